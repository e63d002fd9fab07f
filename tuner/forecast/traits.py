"""What a series is like in the long run: how far it moves within minutes and hours, where it lies, how it turns.

Thirty minutes tell little of whether a series returns to its level or wanders off; a day of means over five minutes
does. All of it is made of such blocks, which a fleet of ten thousand nodes can afford to keep.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.forecast.batch import DAY_STEPS, mean_known, mean_or_nan
from tuner.values.stages import FloatArray

BLOCK_STEPS: Final = 5
"""Steps whose mean makes a block."""

DAY_BLOCKS: Final = DAY_STEPS // BLOCK_STEPS
"""Blocks of a day."""

WEEK_BLOCKS: Final = 7 * DAY_BLOCKS
"""Blocks of a week."""

DAY_LAGS: Final = (1, 3, 6, 12)
"""Distances, in blocks, of the changes within a day: from five minutes to an hour."""

WEEK_LAGS: Final = (1, 3, 12)
"""The same within a week."""

TURN_LAG: Final = 3
"""Distance, in blocks, at which rises and falls are told apart: the fifteen minutes that are scored."""

LEVEL_BLOCKS: Final = (24, 72, DAY_BLOCKS, WEEK_BLOCKS)
"""Spans of the means: two hours, six, a day, a week."""


@dataclass(frozen=True, slots=True)
class LongRun:
    """The long run of many series, in their own units.

    Attributes:
        movements: Mean sizes of changes, shape (series, LONG_MOVEMENTS), >= 0: of a day by `DAY_LAGS`, rise, fall and
            standard deviation; of a week by `WEEK_LAGS`, rise and fall. 0 where nothing is known.
        levels: Means over `LEVEL_BLOCKS`, highest and lowest block of a day, shape (series, LONG_LEVELS); NaN where
            nothing is known.
        held: Share of a day's changes over fifteen minutes that are exactly 0, shape (series,), 0..1.
    """

    movements: FloatArray
    levels: FloatArray
    held: FloatArray


def long_run_of(blocks: FloatArray) -> LongRun:
    """Describe series by their blocks.

    Args:
        blocks: Means over five minutes, oldest first, shape (series, at least TURN_LAG + 1); NaN where nothing was
            sampled. A week of them is looked at, or what there is.
    """
    week = blocks[:, -WEEK_BLOCKS:]
    day = blocks[:, -DAY_BLOCKS:]
    rise, fall, held = _turns(day)
    # A memory of a day only, as of nodes, need not be looked at twice.
    week_rise, week_fall, _ = _turns(week) if week.shape[1] > day.shape[1] else (rise, fall, held)
    movements = [*(_moved(day, lag) for lag in DAY_LAGS), rise, fall, _deviation(day)]
    movements += [*(_moved(week, lag) for lag in WEEK_LAGS), week_rise, week_fall]
    known = np.isfinite(day)
    highest = day.max(axis=1, initial=-np.inf, where=known)
    lowest = day.min(axis=1, initial=np.inf, where=known)
    levels = [mean_or_nan(week[:, -count:]) for count in LEVEL_BLOCKS]
    levels += [np.where(np.isfinite(one), one, np.nan) for one in (highest, lowest)]
    return LongRun(np.stack(movements, axis=1), np.stack(levels, axis=1), held)


def blocks_of(values: FloatArray) -> FloatArray:
    """Return the means over five steps, the last ending with the values; shape (series, steps // BLOCK_STEPS).

    Args:
        values: Shape (series, steps); NaN where no sample was had, as is a block without any.
    """
    count = values.shape[1] // BLOCK_STEPS
    grouped = values[:, values.shape[1] - count * BLOCK_STEPS :].reshape(len(values), count, BLOCK_STEPS)
    known = np.isfinite(grouped)
    total = np.where(known, grouped, 0.0).sum(axis=2)
    return np.where(known.any(axis=2), total / np.maximum(known.sum(axis=2), 1), np.nan)


def _turns(blocks: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return mean rise, mean fall, and the share of no change."""
    change = blocks[:, TURN_LAG:] - blocks[:, :-TURN_LAG]
    rise = mean_known(np.maximum(change, 0.0))
    same = np.where(np.isfinite(change), change == 0, np.nan)
    # Rounding must not make a fall of nothing a negative size.
    fall = np.maximum(rise - mean_known(change), 0.0)
    return rise, fall, mean_known(same)


def _moved(blocks: FloatArray, lag: int) -> FloatArray:
    return mean_known(np.abs(blocks[:, lag:] - blocks[:, :-lag]))


def _deviation(blocks: FloatArray) -> FloatArray:
    deviation: FloatArray = np.sqrt(mean_known((blocks - mean_known(blocks)[:, None]) ** 2))
    return deviation
