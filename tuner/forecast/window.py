"""The best window: where work that can wait would find most room."""

from typing import Final

import numpy as np

from tuner.values.stages import BestWindow, FloatArray, Forecast

LENGTH_STEPS: Final = 5
"""Length of the window that is recommended: five minutes, a tuning cycle of the source document."""


def best_window(forecast: Forecast) -> BestWindow | None:
    """Return the interval with most expected headroom; None where neither idle share nor utilisation is forecast.

    Headroom is the share of accelerators expected to be free, less what tasks that wait already will take of it.
    Among equals the earliest wins.

    Args:
        forecast: Cluster-level quantiles; its own best window is ignored.
    """
    free = _free(forecast)
    if free is None:
        return None
    if "pending_demand_ratio" in forecast.names:
        free = free - forecast["pending_demand_ratio"][:, 1]
    length = min(LENGTH_STEPS, len(free))
    means = np.convolve(free, np.full(length, 1 / length), mode="valid")
    # Rounded, so that differences that are none do not send work into the future.
    start = int(np.argmax(np.round(means, 6)))
    begin = forecast.at_seconds + start * forecast.step_seconds
    return BestWindow(
        start_at_seconds=begin,
        end_at_seconds=begin + length * forecast.step_seconds,
        headroom_ratio=float(np.clip(means[start], 0.0, 1.0)),
    )


def _free(forecast: Forecast) -> FloatArray | None:
    if "resource_idle_ratio" in forecast.names:
        return forecast["resource_idle_ratio"][:, 1]
    if "accelerator_utilization_ratio" in forecast.names:
        busy: FloatArray = forecast["accelerator_utilization_ratio"][:, 1]
        return 1.0 - busy
    return None
