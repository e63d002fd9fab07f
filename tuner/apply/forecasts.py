"""Forecasts as schedulers are handed them."""

from tuner.values.stages import Forecast

ARRIVALS = "arrivals_per_second:inference"
"""The series that schedulers pre-warm for."""


def forecast_document(forecast: Forecast) -> dict[str, object]:
    """Return a forecast as a JSON object.

    Its keys:

        at_seconds                       when it was made, Unix seconds
        step_seconds                     distance of its steps
        inference_arrivals_per_second    median of the rate in each step after `at_seconds`; empty for "no opinion"
        window_start_seconds             start of the interval that suits deferrable work best, Unix seconds, or null
        window_end_seconds               its end, or null
    """
    arrivals = forecast[ARRIVALS][:, 1] if ARRIVALS in forecast.names else ()
    best = forecast.best_window
    return {
        "at_seconds": forecast.at_seconds,
        "step_seconds": forecast.step_seconds,
        "inference_arrivals_per_second": [max(float(rate), 0.0) for rate in arrivals],
        "window_start_seconds": best.start_at_seconds if best else None,
        "window_end_seconds": best.end_at_seconds if best else None,
    }
