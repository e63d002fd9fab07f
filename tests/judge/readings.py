"""Readings of a guard tick, made up."""

import math

import numpy as np

from tuner.values.metrics import METRIC_INDEX
from tuner.values.safety import Reading

NOW = 1_700_000_000.0


def reading(at_seconds: float, *, newest_at_seconds: float | None = None, **values: float) -> Reading:
    """Return a reading of some metrics whose newest samples are of one time: that of the tick unless told otherwise."""
    metrics, newest = np.full(13, math.nan), np.full(13, math.nan)
    for name, value in values.items():
        metrics[METRIC_INDEX[name]] = value
        newest[METRIC_INDEX[name]] = at_seconds if newest_at_seconds is None else newest_at_seconds
    return Reading(at_seconds=at_seconds, metrics=metrics, newest_at_seconds=newest)
