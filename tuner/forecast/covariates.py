"""What the source document feeds its network beside a series itself, as numbers that may be missing."""

from typing import Final

import numpy as np

from tuner.forecast.batch import COVARIATE_FEATURES, WINDOW_STEPS, fill_gaps
from tuner.values.context import TASK_CLASSES
from tuner.values.stages import FloatArray, SeriesFrame

_WAITING: Final = tuple(f"waiting_tasks:{kind}" for kind in TASK_CLASSES)

SOURCES: Final = ("running_task_remaining_seconds", "node_temperature_celsius", "node_power_watts", *_WAITING)
"""Cluster-level series that the covariates are made of, in their order; the capacity divides the waiting tasks."""


def covariates_of(history: SeriesFrame) -> FloatArray:
    """Return the covariates at the end of a history, shape (COVARIATE_FEATURES,).

    They are, each as its level now and its change over the window: the mean remaining time of running tasks
    (logarithm of seconds), the mean node temperature (hundreds of degrees) and power (logarithm of watts), and the
    demand matrix of the waiting tasks by kind (logarithm of tasks an accelerator). What a policy does not map is NaN.
    """
    capacity = _window(history, "accelerators_count")[0, -1] if "accelerators_count" in history else np.nan
    features = np.full(COVARIATE_FEATURES, np.nan)
    for index, name in enumerate(SOURCES):
        if name in history:
            window = normalised(name, _window(history, name), capacity)[0]
            features[2 * index : 2 * index + 2] = window[-1], window[-1] - window[0]
    return np.where(np.isfinite(features), features, np.nan)


def normalised(name: str, values: FloatArray, capacity: FloatArray | float) -> FloatArray:
    """Bring the samples of a covariate to the order of one.

    Args:
        name: One of `SOURCES`.
        values: Any shape, in the unit of the name.
        capacity: Accelerators in the cluster, broadcast against `values`; NaN where unknown.
    """
    if name == "node_temperature_celsius":
        return values / 100.0
    if name == "node_power_watts":
        return np.log1p(np.maximum(values, 0.0)) / 10.0
    if name in _WAITING:
        return np.log1p(np.maximum(values, 0.0) / np.maximum(capacity, 1.0)) / 5.0
    return np.log1p(np.maximum(values, 0.0)) / 10.0


def _window(history: SeriesFrame, name: str) -> FloatArray:
    window = history[name][None, -WINDOW_STEPS:]
    return fill_gaps(window) if np.isfinite(window).any() else window
