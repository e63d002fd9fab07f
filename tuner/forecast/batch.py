"""What a member sees: many series at one origin each, cleaned and described, as arrays.

Every function here works on whole arrays of series, and treats rows independently of each other: the order of the
series never matters. All of it is NumPy; it serves training and life alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tuner.values.stages import FloatArray

BoolArray: TypeAlias = NDArray[np.bool_]
IntArray: TypeAlias = NDArray[np.int64]

WINDOW_STEPS: Final = 30
"""History that members look at: 30 minutes, as in the source document."""

HOUR_STEPS: Final = 60
"""Steps in an hour."""

TYPICAL_DAYS: Final = range(2, 8)
"""Days back whose mean is a typical day: with yesterday they make a week."""

SCORED_STEPS: Final = 15
"""Steps ahead over which errors are measured: 15 minutes."""

DAY_STEPS: Final = 1440
"""Steps in a day: how far back "yesterday" lies."""

LAGS: Final = (1, 2, 4, 8, 15)
"""Distances of the changes that make up the scale: spread over 1..15, so that five stand for fifteen."""

LARGEST: Final = 1e15
"""Larger magnitudes are no samples: float64 no longer resolves unit steps there."""

MIN_POINTS: Final = 8
"""Fewer known points in the window than this, and only the last value is trusted."""

MAX_MISSING_RATIO: Final = 0.2
"""Larger shares of missing points in the window, and only the last value is trusted."""

COVARIATES: Final = (
    "remaining",
    "temperature",
    "power",
    "waiting_preprocessing",
    "waiting_training",
    "waiting_inference",
)
"""What the source document feeds its network beside the series itself: see `covariates_of`."""

COVARIATE_FEATURES: Final = 2 * len(COVARIATES)
"""Each covariate enters as its level and its change over the window."""


LONG_MOVEMENTS: Final = 12
"""Sizes of movement in the long run: see `traits`."""

LONG_LEVELS: Final = 6
"""Levels in the long run: see `traits`."""

MOVEMENTS: Final = 2 * len(LAGS) + LONG_MOVEMENTS
"""Sizes of movement of a series: over the last hour, over its memory, and in the long run."""

LEVELS: Final = 1 + LONG_LEVELS
"""Levels of a series: over the last hour, and in the long run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Many series, each at its origin; row i of every array belongs to series i.

    Attributes:
        window: Shape (series, WINDOW_STEPS): the newest points, gaps filled, finite; the last column is the origin.
        known: Share of the window's points that were real samples, shape (series,), 0..1.
        scale: Mean absolute change over 1..15 steps in the last day, shape (series,), >= 0.
        reach: Largest absolute change over 15 steps in the last day, shape (series,), >= 0.
        movements: Mean absolute changes, shape (series, MOVEMENTS), >= 0: over `LAGS` in the last hour, the same in the
            last day (nodes: hour), and those of `LongRun`.
        levels: Mean of the last hour, and those of `LongRun`, shape (series, LEVELS); NaN where not known.
        held: As in `LongRun`, shape (series,).
        still: Share of the last day's steps that brought no change, shape (series,), 0..1.
        yesterday: Shape (series, WINDOW_STEPS + horizon): the same window a day ago and what followed; rows of NaN
            where there is no yesterday.
        typical: The mean of the same windows two to seven days ago, as far as they are known; shape as `yesterday`.
        low: Quantile 0.1 of the series' own changes, by step ahead, shape (series, horizon).
        high: Quantile 0.9 of the same.
        floor: Smallest possible value, shape (series,); -inf where there is none.
        ceiling: Largest possible value, shape (series,); inf where there is none.
        whole: Whether the series counts things, shape (series,).
        covariates: Shape (series, COVARIATE_FEATURES); NaN where there are none.
    """

    window: FloatArray
    known: FloatArray
    scale: FloatArray
    reach: FloatArray
    movements: FloatArray
    levels: FloatArray
    held: FloatArray
    still: FloatArray
    yesterday: FloatArray
    typical: FloatArray
    low: FloatArray
    high: FloatArray
    floor: FloatArray
    ceiling: FloatArray
    whole: BoolArray
    covariates: FloatArray

    @property
    def horizon(self) -> int:
        """Number of steps ahead."""
        return int(self.low.shape[1])

    @property
    def last(self) -> FloatArray:
        """Value at the origin, shape (series,)."""
        last: FloatArray = self.window[:, -1]
        return last

    @property
    def trusted(self) -> BoolArray:
        """Whether the window holds enough real samples for more than its last value, shape (series,)."""
        least = max(MIN_POINTS / WINDOW_STEPS, 1 - MAX_MISSING_RATIO)
        return self.known >= least - 1e-9

    def __len__(self) -> int:
        """Return the number of series."""
        return int(self.window.shape[0])

    def take(self, rows: IntArray | BoolArray | slice) -> "Batch":
        """Return a batch of some of the series."""
        return Batch(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def join(batches: Sequence[Batch]) -> Batch:
    """Return one batch of several with the same horizon."""
    return Batch(
        **{field.name: np.concatenate([getattr(batch, field.name) for batch in batches]) for field in fields(Batch)}
    )


def usable(values: FloatArray) -> FloatArray:
    """Return a copy in which everything that cannot be a sample is NaN."""
    with np.errstate(invalid="ignore"):
        good = np.isfinite(values) & (np.abs(values) <= LARGEST)
    return np.where(good, values, np.nan)


def fill_gaps(values: FloatArray) -> FloatArray:
    """Carry the last sample forward over gaps, and the first one back; rows without any sample become 0.

    Args:
        values: Shape (series, steps); NaN where no sample was had.
    """
    known = np.isfinite(values)
    if known.all():
        return values
    steps = np.arange(values.shape[1])
    newest = np.maximum.accumulate(np.where(known, steps, -1), axis=1)
    first = np.where(known.any(axis=1), known.argmax(axis=1), 0)
    source = np.where(newest < 0, first[:, None], newest)
    filled: FloatArray = np.take_along_axis(values, source, axis=1)
    return np.where(np.isfinite(filled), filled, 0.0)


def whole_rows(values: FloatArray) -> FloatArray:
    """Fill gaps in rows that are four fifths known, and turn the others to NaN throughout."""
    known = np.isfinite(values).mean(axis=1) >= 0.8
    return np.where(known[:, None], fill_gaps(values), np.nan)


def mean_rows(days: Sequence[FloatArray]) -> FloatArray:
    """Return the mean of those arrays in which a row is known, row by row; NaN where it is known in none."""
    stacked = np.stack(days)
    known = np.isfinite(stacked)
    total = np.where(known, stacked, 0.0).sum(axis=0)
    count = known.sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def movements_of(values: FloatArray) -> FloatArray:
    """Return the mean absolute change over each of `LAGS`, shape (series, len(LAGS)); 0 where nothing is known.

    Args:
        values: Shape (series, steps), NaN where no sample was had.
    """
    return np.stack([mean_known(np.abs(values[:, lag:] - values[:, :-lag])) for lag in LAGS], axis=1)


def scale_of(values: FloatArray) -> FloatArray:
    """Return the mean absolute change over 1..15 steps, shape (series,); 0 where nothing is known.

    Args:
        values: Shape (series, steps), NaN where no sample was had.
    """
    scale: FloatArray = movements_of(values).mean(axis=1)
    return scale


def mean_known(values: FloatArray) -> FloatArray:
    """Return the mean of each row's known samples, shape (series,); 0 where there are none."""
    known = np.isfinite(values)
    mean: FloatArray = np.where(known, values, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    return mean


def mean_or_nan(values: FloatArray) -> FloatArray:
    """Return the mean of each row's known samples, shape (series,); NaN where there are none."""
    return np.where(np.isfinite(values).any(axis=1), mean_known(values), np.nan)


def reach_of(values: FloatArray) -> FloatArray:
    """Return the largest absolute change over 15 steps, shape (series,); 0 where nothing is known."""
    if values.shape[1] <= SCORED_STEPS:
        return np.zeros(values.shape[0])
    change = np.abs(values[:, SCORED_STEPS:] - values[:, :-SCORED_STEPS])
    reach: FloatArray = np.where(np.isfinite(change), change, 0.0).max(axis=1)
    return reach


def hour_of(values: FloatArray) -> FloatArray:
    """Return the mean of the last hour's known samples, shape (series,); NaN where there are none."""
    return mean_or_nan(values[:, -HOUR_STEPS:])


def still_of(values: FloatArray) -> FloatArray:
    """Return the share of steps that brought no change, shape (series,); 1 where nothing is known."""
    if values.shape[1] < 2:
        return np.ones(values.shape[0])
    change = np.diff(values, axis=1)
    known = np.isfinite(change)
    moved: FloatArray = (known & (change != 0)).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    return 1 - moved


def change_quantiles(values: FloatArray, *, horizon: int) -> tuple[FloatArray, FloatArray]:
    """Return quantiles 0.1 and 0.9 of the changes by step ahead, each of shape (series, horizon).

    Args:
        values: Shape (series, steps), NaN where no sample was had. Steps ahead for which fewer than 20 changes are
            known take the quantile of the nearest shorter distance, widened by the square root of the distance, as
            for a random walk.
        horizon: Number of steps ahead.
    """
    low = np.zeros((values.shape[0], horizon))
    high = np.zeros((values.shape[0], horizon))
    for lag in range(1, horizon + 1):
        change = values[:, lag:] - values[:, :-lag] if lag < values.shape[1] else values[:, :0]
        enough = np.isfinite(change).sum(axis=1) >= 20
        if lag > 1:
            growth = np.sqrt(lag / (lag - 1))
            low[:, lag - 1], high[:, lag - 1] = low[:, lag - 2] * growth, high[:, lag - 2] * growth
        if enough.any():
            quantiles = _quantiles_known(change[enough])
            low[enough, lag - 1], high[enough, lag - 1] = quantiles[0], quantiles[1]
    return np.minimum(low, 0.0), np.maximum(high, 0.0)


def _quantiles_known(values: FloatArray) -> FloatArray:
    if np.isfinite(values).all():
        quantiles: FloatArray = np.quantile(values, (0.1, 0.9), axis=1)
        return quantiles
    known: FloatArray = np.nanquantile(values, (0.1, 0.9), axis=1)
    return known


def whole_of(values: FloatArray) -> BoolArray:
    """Say which series count things: all their samples are whole numbers, and there is one that is not 0."""
    known = np.isfinite(values)
    whole = np.where(known, values == np.round(values), True).all(axis=1)  # noqa: FBT003 - np.where takes values.
    counts: BoolArray = whole & (known & (values != 0)).any(axis=1)
    return counts
