"""The best window: where work that can wait would find most room."""

from typing import Final

import numpy as np

from tuner.values.metrics import FLOORS, METRIC_INDEX
from tuner.values.stages import BestWindow, FloatArray, Forecast

LENGTH_STEPS: Final = 5
"""Length of the window that is recommended: five minutes, a tuning cycle of the source document."""

LEAST_HEADROOM: Final = float(FLOORS[METRIC_INDEX["resource_idle_ratio"]])
"""Difference of headroom that nobody would care to tell."""


def best_window(forecast: Forecast) -> BestWindow | None:
    """Return the interval with most expected headroom; None where neither idle share nor utilisation is forecast.

    Headroom is the share of accelerators expected to be free, less what tasks that wait already will take of it. The
    earliest wins among those that are not surely worse than the best: to wait for nothing costs a wait.

    Args:
        forecast: Cluster-level quantiles; its own best window is ignored.
    """
    known = _free(forecast)
    if known is None:
        return None
    free, unsure = known
    if "pending_demand_ratio" in forecast.names:
        free = free - forecast["pending_demand_ratio"][:, 1]
    length = min(LENGTH_STEPS, len(free))
    means = np.convolve(free, np.full(length, 1 / length), mode="valid")
    start = int(np.flatnonzero(means >= means.max() - max(unsure, LEAST_HEADROOM))[0])
    begin = forecast.at_seconds + start * forecast.step_seconds
    return BestWindow(
        start_at_seconds=begin,
        end_at_seconds=begin + length * forecast.step_seconds,
        headroom_ratio=float(np.clip(means[start], 0.0, 1.0)),
    )


def _free(forecast: Forecast) -> tuple[FloatArray, float] | None:
    """Return the share expected to be free in each step, and half of how far its quantiles lie apart on average."""
    for name in ("resource_idle_ratio", "accelerator_utilization_ratio"):
        if name in forecast.names:
            low, median, high = forecast[name].T
            unsure = float(np.mean(high - low)) / 2.0
            return (median if name == "resource_idle_ratio" else 1.0 - median), unsure
    return None
