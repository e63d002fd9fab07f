"""Batches at many origins of one long series: what training samples from, and what scoring rolls over.

In life the same description is made of a memory that ends at the origin (`describe`); a test holds the two together.
"""

from typing import Final

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
from tuner.forecast.describe import known_ratio
from tuner.forecast.traits import BLOCK_STEPS, DAY_LAGS, LEVEL_BLOCKS, TURN_LAG, WEEK_LAGS
from tuner.values.stages import FloatArray

WEEK_STEPS: Final = 7 * DAY_STEPS
"""Steps in a week."""


def batch_at(
    values: FloatArray,
    origins: IntArray,
    *,
    horizon: int,
    as_node: bool = False,
    ceiling: float = float("inf"),
    past: FloatArray | None = None,
    memory_steps: int = WEEK_STEPS,
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
        memory_steps: Steps that are remembered at most: few, as of a tuner that was just started.
        covariates: Shape (steps, COVARIATE_FEATURES); NaN where absent.
    """
    values = usable(values)
    past = values[: origins.min() + 1] if past is None else past
    low, high = change_quantiles(past[None], horizon=horizon)
    memory = min(HOUR_STEPS if as_node else DAY_STEPS, memory_steps)
    recent, remembered = (
        _rolling_movements(values, min(HOUR_STEPS, memory))[origins],
        _rolling_movements(values, memory)[origins],
    )
    day, week = min(DAY_STEPS, memory_steps), min(DAY_STEPS if as_node else WEEK_STEPS, memory_steps)
    moved, levels, held = _long_run(values, origins, day, week)
    window = fill_gaps(_gather(values, origins[:, None] + np.arange(1 - WINDOW_STEPS, 1)))
    count, ones = len(origins), np.ones(len(origins))
    nothing = np.full((count, WINDOW_STEPS + horizon), np.nan)
    known = np.isfinite(past)
    return Batch(
        window=window,
        known=known_ratio(_gather(values, origins[:, None] + np.arange(1 - WINDOW_STEPS, 1))),
        scale=remembered.mean(axis=1),
        reach=_rolling_reach(values, memory)[origins],
        movements=np.concatenate([recent, remembered, moved], axis=1),
        levels=np.concatenate([_rolling_level(values, HOUR_STEPS)[origins, None], levels], axis=1),
        held=held,
        still=_rolling_still(values, memory)[origins],
        yesterday=nothing if memory_steps <= DAY_STEPS else _yesterday(values, origins, horizon, as_node=as_node),
        typical=nothing if memory_steps < WEEK_STEPS else _typical(values, origins, horizon, as_node=as_node),
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


def _rolling_movements(values: FloatArray, memory: int) -> FloatArray:
    """Return `movements_of` the last `memory` values at each step, shape (steps, len(LAGS))."""
    moved = np.stack([_rolling_mean(_changes(values, lag), memory - lag) for lag in LAGS], axis=1)
    # A difference of running sums can end a hair off 0 where nothing moves.
    size = np.abs(values).max(initial=0.0, where=np.isfinite(values))
    return np.where(moved > 1e-9 * size, moved, 0.0)


def _long_run(values: FloatArray, origins: IntArray, day: int, week: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return movements, levels and held share as `traits.long_run_of` does, of blocks that end at every step.

    Args:
        values: Shape (steps,).
        origins: Shape (windows,).
        day: Steps of a day, or fewer where less is remembered.
        week: The same of a week.
    """
    # The first sample is taken off, so that running sums of squares keep their digits.
    known = np.isfinite(values)
    centre = values[known.argmax()] if known.any() else 0.0
    blocks = _rolling_level(values - centre, BLOCK_STEPS)
    turn = TURN_LAG * BLOCK_STEPS
    change = np.full(len(values), np.nan)
    change[turn:] = blocks[turn:] - blocks[:-turn]
    rising = np.where(np.isfinite(change), np.maximum(change, 0.0), np.nan)
    falling = rising - change
    # A difference of running sums can end a hair off 0 where nothing moves.
    nothing = 1e-9 * np.maximum.accumulate(np.where(known, np.abs(values - centre), 0.0))
    same = np.where(np.isfinite(change), np.abs(change) <= nothing, np.nan)

    def moves(span: int, lags: tuple[int, ...]) -> list[FloatArray]:
        sizes = [_rolling_mean(_changes(blocks, lag * BLOCK_STEPS), span - lag * BLOCK_STEPS) for lag in lags]
        return [*sizes, *(_rolling_mean(one, span - turn) for one in (rising, falling))]

    variance = _rolling_mean(blocks**2, day) - _rolling_mean(blocks, day) ** 2
    deviation = np.sqrt(np.maximum(variance, 0.0))
    moved = np.stack([*moves(day, DAY_LAGS), deviation, *moves(week, WEEK_LAGS)], axis=1)
    moved = np.where(moved > nothing[:, None], moved, 0.0)[origins]
    spans = [min(count * BLOCK_STEPS, week) for count in LEVEL_BLOCKS]
    levels = np.stack([*(_rolling_level(blocks, span) for span in spans), *_rolling_extremes(blocks, day)], axis=1)
    return moved, centre + levels[origins], _rolling_mean(same, day - turn)[origins]


def _rolling_level(values: FloatArray, length: int) -> FloatArray:
    """Return `_rolling_mean`; NaN where nothing is known."""
    known = _rolling_mean(np.isfinite(values).astype(np.float64), length)
    return np.where(known > 0, _rolling_mean(values, length), np.nan)


def _rolling_extremes(values: FloatArray, length: int) -> tuple[FloatArray, FloatArray]:
    """Return the highest and the lowest of the last values at each step; NaN where none is known."""
    from scipy.ndimage import maximum_filter1d

    known = np.isfinite(values)
    extremes = [
        sign
        * maximum_filter1d(
            np.where(known, sign * values, -np.inf), length, mode="constant", cval=-np.inf, origin=(length - 1) // 2
        )
        for sign in (1.0, -1.0)
    ]
    highest, lowest = (np.where(np.isfinite(one), one, np.nan) for one in extremes)
    return highest, lowest


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
    middle = _rolling_mean(values, BLOCK_STEPS)
    block = (steps + 2) // BLOCK_STEPS
    share = (steps + 2) / BLOCK_STEPS - block
    before, after = _gather(middle, block * BLOCK_STEPS), _gather(middle, (block + 1) * BLOCK_STEPS)
    return whole_rows(before * (1 - share) + after * share)


def _typical(values: FloatArray, origins: IntArray, horizon: int, *, as_node: bool) -> FloatArray:
    if as_node:
        return np.full((len(origins), WINDOW_STEPS + horizon), np.nan)
    return mean_rows([whole_rows(_gather(values, _days_ago(origins, horizon, days=days))) for days in TYPICAL_DAYS])


def _days_ago(origins: IntArray, horizon: int, *, days: int) -> IntArray:
    steps: IntArray = origins[:, None] - days * DAY_STEPS + np.arange(1 - WINDOW_STEPS, horizon + 1)
    return steps
