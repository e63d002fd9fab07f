import json
from dataclasses import replace

from tests.support.forecasts import small_forecast
from tuner.apply.forecasts import forecast_document
from tuner.reference.documents import ReplayClock, forecast_of


def test_the_median_of_arrivals_is_handed_over_and_is_never_negative() -> None:
    document = forecast_document(small_forecast())

    assert document == {
        "at_seconds": 1000.0,
        "step_seconds": 60.0,
        "inference_arrivals_per_second": [0.0, 2.0, 5.0],
        "window_start_seconds": 1060.0,
        "window_end_seconds": 1180.0,
    }


def test_what_is_not_known_is_empty_or_null() -> None:
    document = forecast_document(replace(small_forecast(("queue_length",)), best_window=None))

    assert document["inference_arrivals_per_second"] == []
    assert document["window_start_seconds"] is None
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_the_reference_scheduler_understands_it() -> None:
    body = json.dumps(forecast_document(small_forecast())).encode()

    understood = forecast_of(body, clock=ReplayClock(origin_seconds=940.0, speed=1.0))

    assert understood.at_seconds == 60.0
    assert understood.inference_arrivals_per_second.tolist() == [0.0, 2.0, 5.0]
    assert (understood.window_start_seconds, understood.window_end_seconds) == (120.0, 240.0)
