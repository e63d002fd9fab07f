"""From samples to batches: keeps what was seen of a fleet, and describes its series for the members."""

from typing import Final

import numpy as np

from tuner.forecast.batch import (
    COVARIATE_FEATURES,
    DAY_STEPS,
    HOUR_STEPS,
    MIN_POINTS,
    SCORED_STEPS,
    TYPICAL_DAYS,
    WINDOW_STEPS,
    Batch,
    BoolArray,
    IntArray,
    change_quantiles,
    fill_gaps,
    hour_of,
    mean_rows,
    movements_of,
    reach_of,
    scale_of,
    still_of,
    whole_of,
    whole_rows,
)
from tuner.forecast.memory import Memory
from tuner.forecast.traits import BLOCK_STEPS, DAY_BLOCKS, WEEK_BLOCKS, LongRun, blocks_of, long_run_of
from tuner.values.metrics import METRICS
from tuner.values.stages import STEP_SECONDS, FloatArray, SeriesFrame

POOLED_SERIES: Final = 256
"""Series whose changes give a big fleet its common shape of spread; fleets up to this size take each series' own."""

REFRESH_STEPS: Final = SCORED_STEPS
"""Distance of two looks at the quantiles of the day's changes: they move slowly, and sorting costs most."""

_CEILINGS: Final = {spec.name: spec.upper for spec in METRICS}


class Describer:
    """The memory of one fleet.

    A small fleet remembers a week at one minute; a fleet of nodes remembers the last hour at one minute and a day at
    five, which takes a thirtieth of the room.
    """

    def __init__(self, *, horizon: int, nodes_of: str | None = None) -> None:
        """Start without any sample.

        Args:
            horizon: Steps ahead.
            nodes_of: Metric of which the series are nodes; None for a cluster-level fleet, whose series are named
                by metric.
        """
        margin = WINDOW_STEPS + horizon
        self._horizon = horizon
        self._nodes_of = nodes_of
        self._recent_steps = HOUR_STEPS if nodes_of else DAY_STEPS
        kept = HOUR_STEPS if nodes_of else max(TYPICAL_DAYS) * DAY_STEPS + margin
        self._fine = Memory(steps=kept, step_seconds=STEP_SECONDS)
        self._coarse = Memory(steps=(DAY_STEPS + margin) // BLOCK_STEPS + 2, step_seconds=BLOCK_STEPS * STEP_SECONDS)
        self._quantiles: tuple[FloatArray, FloatArray] | None = None
        self._quantiles_step = 0
        self._long_run: LongRun | None = None
        self._long_run_step = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Series, in the order of the rows."""
        return self._fine.names

    @property
    def step(self) -> int:
        """Number of the newest step; its time over a minute."""
        return self._fine.end_step

    def merge(self, frame: SeriesFrame) -> IntArray:
        """Take in new samples; return for each row the row that held the same series before, -1 for new ones."""
        before = self._fine.merge(frame)
        if not np.array_equal(before, np.arange(len(before))):
            self._quantiles = None
            self._long_run = None
        if self._nodes_of is not None:
            self._merge_coarse()
        return before

    def known(self) -> BoolArray:
        """Say which series have any sample in memory: of the others nothing can be said."""
        known: BoolArray = np.any(np.isfinite(self.history()), axis=1)
        return known

    def history(self) -> FloatArray:
        """Return the last day (nodes: hour) at one minute, shape (series, steps); NaN where no sample was had."""
        return self._fine.values[:, -self._recent_steps :]

    def actual(self, origin: int) -> FloatArray:
        """Return what followed an origin, shape (series, SCORED_STEPS); NaN where no sample was had."""
        return self._columns(origin + 1, SCORED_STEPS)

    def batch(self, covariates: FloatArray) -> Batch:
        """Describe every series at the newest step.

        Args:
            covariates: Shape (COVARIATE_FEATURES,), the same for all series; NaN where there are none.
        """
        values = self.history()
        window = values[:, -WINDOW_STEPS:]
        fresh: BoolArray = np.any(np.isfinite(window), axis=1)
        filled = np.where(fresh[:, None], fill_gaps(window), fill_gaps(values)[:, -1:])
        low, high = self._change_quantiles()
        known = np.isfinite(values)
        smallest, largest = (
            values.min(axis=1, initial=np.inf, where=known),
            values.max(axis=1, initial=-np.inf, where=known),
        )
        ceilings = self._ceilings()
        recent, memory = movements_of(values[:, -HOUR_STEPS:]), movements_of(values)
        long_run = self._looked_back()
        return Batch(
            window=filled,
            known=known_ratio(window),
            scale=memory.mean(axis=1),
            reach=reach_of(values),
            movements=np.concatenate([recent, memory, long_run.movements], axis=1),
            levels=np.concatenate([hour_of(values)[:, None], long_run.levels], axis=1),
            held=long_run.held,
            still=still_of(values),
            yesterday=self._yesterday(),
            typical=self._typical(),
            low=low,
            high=high,
            floor=np.where(smallest >= 0, 0.0, -np.inf),
            # A series that was seen above its ceiling is not what the catalogue takes it for.
            ceiling=np.where(largest <= ceilings, ceilings, np.inf),
            whole=whole_of(values),
            covariates=np.broadcast_to(covariates, (len(values), COVARIATE_FEATURES)),
        )

    def _columns(self, start: int, count: int) -> FloatArray:
        columns = np.arange(start, start + count) - self.step + self._fine.values.shape[1] - 1
        inside = (columns >= 0) & (columns < self._fine.values.shape[1])
        picked = self._fine.values[:, np.where(inside, columns, 0)]
        return np.where(inside, picked, np.nan)

    def _ceilings(self) -> FloatArray:
        if self._nodes_of is not None:
            return np.full(len(self.names), _ceiling(self._nodes_of))
        return np.array([_ceiling(name) for name in self.names], dtype=np.float64)

    def _change_quantiles(self) -> tuple[FloatArray, FloatArray]:
        stale = abs(self.step - self._quantiles_step) >= REFRESH_STEPS
        # While there is little history, every new minute tells much.
        if self._quantiles is None or stale or self._nodes_of is not None:
            self._quantiles = spread_of(self.history(), names=self.names, horizon=self._horizon)
            self._quantiles_step = self.step
        return self._quantiles

    def _looked_back(self) -> LongRun:
        """Return the long run, looked at anew whenever a block has passed."""
        block = self.step // BLOCK_STEPS
        if self._long_run is None or block != self._long_run_step:
            self._long_run = long_run_of(self._blocks())
            self._long_run_step = block
        return self._long_run

    def _blocks(self) -> FloatArray:
        if self._nodes_of is not None:
            return self._coarse.values[: len(self.names), -DAY_BLOCKS:]
        return blocks_of(self._fine.values[:, -WEEK_BLOCKS * BLOCK_STEPS :])

    def _yesterday(self) -> FloatArray:
        if self._nodes_of is None:
            return self._days_ago(1)
        return whole_rows(self._interpolated(self._first(1), WINDOW_STEPS + self._horizon))

    def _typical(self) -> FloatArray:
        if self._nodes_of is None:
            return mean_rows([self._days_ago(days) for days in TYPICAL_DAYS])
        return np.full((len(self.names), WINDOW_STEPS + self._horizon), np.nan)

    def _days_ago(self, days: int) -> FloatArray:
        return whole_rows(self._columns(self._first(days), WINDOW_STEPS + self._horizon))

    def _first(self, days: int) -> int:
        return self.step - days * DAY_STEPS - WINDOW_STEPS + 1

    def _interpolated(self, first: int, count: int) -> FloatArray:
        values = self._coarse.values[: len(self.names)]
        # A coarse sample is the mean of the five steps up to its own: its middle lies two steps back.
        place = (np.arange(first, first + count) + 2) / BLOCK_STEPS
        column = np.floor(place).astype(np.int64) - self._coarse.end_step + values.shape[1] - 1
        if column[0] < 0 or column[-1] + 1 >= values.shape[1]:
            return np.full((len(values), count), np.nan)
        share = place - np.floor(place)
        between: FloatArray = values[:, column] * (1 - share) + values[:, column + 1] * share
        return between

    def _merge_coarse(self) -> None:
        end = self.step // BLOCK_STEPS
        if end == self._coarse.end_step and self._coarse.names[: len(self.names)] == self.names:
            return
        blocks = self._fine.values.shape[1] // BLOCK_STEPS - 1
        means = blocks_of(self._columns((end - blocks) * BLOCK_STEPS + 1, blocks * BLOCK_STEPS))
        seconds = BLOCK_STEPS * STEP_SECONDS
        self._coarse.merge(
            SeriesFrame(names=self.names, end_at_seconds=end * seconds, values=means, step_seconds=seconds)
        )


def known_ratio(window: FloatArray) -> FloatArray:
    """Return the share of real samples since the first one, shape (series,); 0 where there are fewer than eight."""
    known = np.isfinite(window)
    count = known.sum(axis=1)
    span = np.where(count > 0, window.shape[1] - known.argmax(axis=1), 1)
    return np.where(count >= MIN_POINTS, count / span, 0.0)


def spread_of(values: FloatArray, *, names: tuple[str, ...], horizon: int) -> tuple[FloatArray, FloatArray]:
    """Return quantiles 0.1 and 0.9 of the changes by step ahead, each of shape (series, horizon).

    In a fleet of more than `POOLED_SERIES` series, each takes the fleet's shape, times its own scale.
    """
    if len(values) <= POOLED_SERIES:
        return change_quantiles(values, horizon=horizon)
    # Taken in the order of the names, so that the order of the rows does not matter.
    order = np.argsort(np.array(names))
    sample = values[order[:: max(len(values) // POOLED_SERIES, 1)]]
    scale = scale_of(sample)
    moving = scale > 0
    if not moving.any():
        return np.zeros((len(values), horizon)), np.zeros((len(values), horizon))
    low, high = change_quantiles(sample[moving] / scale[moving, None], horizon=horizon)
    own = scale_of(values)[:, None]
    return own * low.mean(axis=0), own * high.mean(axis=0)


def _ceiling(name: str) -> float:
    if name in _CEILINGS:
        return _CEILINGS[name]
    return 1.0 if name.partition(":")[0].endswith("_ratio") else float("inf")
