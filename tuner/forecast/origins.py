"""Batches at many origins of one long series: what training samples from, and what scoring rolls over.

In life the same description is made of a memory that ends at the origin (`describe`); a test holds the two together.
"""

import numpy as np

from tuner.forecast.batch import (
    COVARIATE_FEATURES,
    DAY_STEPS,
    HOUR_STEPS,
    LAGS,
    SCORED_STEPS,
    TYPICAL_DAYS,
    WINDOW_STEPS,
    Batch,
    IntArray,
    change_quantiles,
    fill_gaps,
    mean_rows,
    usable,
    whole_rows,
)
from tuner.forecast.describe import COARSE_STEPS, known_ratio
from tuner.values.stages import FloatArray


def batch_at(
    values: FloatArray,
    origins: IntArray,
    *,
    horizon: int,
    as_node: bool = False,
    ceiling: float = float("inf"),
    past: FloatArray | None = None,
    covariates: FloatArray | None = None,
) -> Batch:
    """Describe one series at many origins, each knowing nothing of what follows it.

    Args:
        values: Shape (steps,); NaN where no sample was had.
        origins: Steps of the last known sample, shape (windows,), >= 0.
        horizon: Steps ahead.
        as_node: Whether the memory is that of a node: an hour at one minute, a day at five, instead of a week at one.
        ceiling: Largest possible value.
        past: The part of the series from which the quantiles of changes, the sign and the wholeness are taken;
            the whole of `values` up to the first origin where absent.
        covariates: Shape (steps, COVARIATE_FEATURES); NaN where absent.
    """
    values = usable(values)
    past = values[: origins.min() + 1] if past is None else past
    low, high = change_quantiles(past[None], horizon=horizon)
    memory = HOUR_STEPS if as_node else DAY_STEPS
    window = fill_gaps(_gather(values, origins[:, None] + np.arange(1 - WINDOW_STEPS, 1)))
    count, ones = len(origins), np.ones(len(origins))
    known = np.isfinite(past)
    return Batch(
        window=window,
        known=known_ratio(_gather(values, origins[:, None] + np.arange(1 - WINDOW_STEPS, 1))),
        scale=_rolling_scale(values, memory)[origins],
        reach=_rolling_reach(values, memory)[origins],
        hour=_rolling_mean(values, HOUR_STEPS)[origins],
        still=_rolling_still(values, memory)[origins],
        yesterday=_yesterday(values, origins, horizon, as_node=as_node),
        typical=_typical(values, origins, horizon, as_node=as_node),
        low=np.repeat(low, count, axis=0),
        high=np.repeat(high, count, axis=0),
        floor=ones * (0.0 if past[known].min(initial=0.0) >= 0 else -np.inf),
        ceiling=ones * ceiling,
        whole=np.full(count, bool((past[known] == np.round(past[known])).all())),
        covariates=np.full((count, COVARIATE_FEATURES), np.nan) if covariates is None else covariates[origins],
    )


def truths_at(values: FloatArray, origins: IntArray, *, horizon: int) -> FloatArray:
    """Return what followed each origin, shape (windows, horizon); NaN beyond the end."""
    return _gather(values, origins[:, None] + np.arange(1, horizon + 1))


def _gather(values: FloatArray, steps: IntArray) -> FloatArray:
    inside = (steps >= 0) & (steps < len(values))
    gathered: FloatArray = np.where(inside, values[np.where(inside, steps, 0)], np.nan)
    return gathered


def _rolling_mean(values: FloatArray, length: int) -> FloatArray:
    """Return the mean of the known among the last `length` values at each step; 0 where there are none."""
    known = np.isfinite(values)
    total = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
    count = np.concatenate([[0], np.cumsum(known)])
    end = np.arange(1, len(values) + 1)
    start = np.maximum(end - length, 0)
    mean: FloatArray = (total[end] - total[start]) / np.maximum(count[end] - count[start], 1)
    return mean


def _changes(values: FloatArray, lag: int) -> FloatArray:
    changes = np.full(len(values), np.nan)
    if lag < len(values):
        changes[lag:] = np.abs(values[lag:] - values[:-lag])
    return changes


def _rolling_scale(values: FloatArray, memory: int) -> FloatArray:
    total: FloatArray = np.sum([_rolling_mean(_changes(values, lag), memory - lag) for lag in LAGS], axis=0)
    # A difference of running sums can end a hair off 0 where nothing moves.
    size = np.abs(values).max(initial=0.0, where=np.isfinite(values))
    return np.where(total > 1e-9 * size, total, 0.0) / len(LAGS)


def _rolling_reach(values: FloatArray, memory: int) -> FloatArray:
    from scipy.ndimage import maximum_filter1d

    changes = np.nan_to_num(_changes(values, SCORED_STEPS))
    length = memory - SCORED_STEPS
    reach: FloatArray = maximum_filter1d(changes, length, mode="constant", origin=(length - 1) // 2)
    return reach


def _rolling_still(values: FloatArray, memory: int) -> FloatArray:
    changes = _changes(values, 1)
    moved = np.where(np.isfinite(changes), changes != 0, np.nan)
    return 1 - _rolling_mean(moved, memory - 1)


def _yesterday(values: FloatArray, origins: IntArray, horizon: int, *, as_node: bool) -> FloatArray:
    steps = _days_ago(origins, horizon, days=1)
    if not as_node:
        return whole_rows(_gather(values, steps))
    # Blocks end at multiples of five in life; here one phase stands for all.
    middle = _rolling_mean(values, COARSE_STEPS)
    block = (steps + 2) // COARSE_STEPS
    share = (steps + 2) / COARSE_STEPS - block
    before, after = _gather(middle, block * COARSE_STEPS), _gather(middle, (block + 1) * COARSE_STEPS)
    return whole_rows(before * (1 - share) + after * share)


def _typical(values: FloatArray, origins: IntArray, horizon: int, *, as_node: bool) -> FloatArray:
    if as_node:
        return np.full((len(origins), WINDOW_STEPS + horizon), np.nan)
    return mean_rows([whole_rows(_gather(values, _days_ago(origins, horizon, days=days))) for days in TYPICAL_DAYS])


def _days_ago(origins: IntArray, horizon: int, *, days: int) -> IntArray:
    steps: IntArray = origins[:, None] - days * DAY_STEPS + np.arange(1 - WINDOW_STEPS, horizon + 1)
    return steps
