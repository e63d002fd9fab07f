"""A small forecast for tests of what is done with one."""

import math

import numpy as np

from tuner.values.stages import BestWindow, Forecast

ARRIVALS = "arrivals_per_second:inference"


def small_forecast(names: tuple[str, ...] = (ARRIVALS,)) -> Forecast:
    """Return a forecast of three steps; its medians are -1, 2 and 5 for the first series."""
    values = np.arange(len(names) * 9, dtype=float).reshape(len(names), 3, 3) - 2.0
    return Forecast(
        cycle_id=1,
        at_seconds=1000.0,
        names=names,
        values=values,
        models=("last_value",) * len(names),
        error_ratio=np.full(len(names), math.nan),
        best_window=BestWindow(1060.0, 1180.0, 0.4),
    )
