"""What the calibration learns from: intervals of the past, each with its load, its setting and what came of it."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.twin.load import RECENT_STEPS, read_load
from tuner.twin.model import EXTRAS
from tuner.twin.parameters import PARAMETER_COUNT
from tuner.twin.workload import HORIZON_SECONDS, STEP_SECONDS, STEPS, Scenarios, joined, scenarios_of
from tuner.values.context import TASK_CLASSES
from tuner.values.metrics import METRIC_NAMES
from tuner.values.stages import FloatArray, Observation

CAPACITY: Final = 64
"""Intervals that are kept: some five hours at their usual distance; a fit costs in proportion."""

MIN_COVERAGE_RATIO: Final = 0.5
"""Smallest share of the samples of an interval that must be there for it to count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One interval of the past.

    Attributes:
        at_seconds: When it ended.
        knobs: Setting in force all through it, shape (4,), NaN where absent.
        scenario: The load as it came: one scenario that starts from the state at the beginning.
        observed: Mean of each metric and of the `EXTRAS` over it, shape (15,); NaN where there was no sample.
    """

    at_seconds: float
    knobs: FloatArray
    scenario: Scenarios
    observed: FloatArray


def record_interval(observation: Observation, knobs: FloatArray, *, back: int = 0) -> Record | None:
    """Return the interval that ended `back` steps before the end of an observation's history.

    Returns:
        None where the history does not reach over the interval, or has too many gaps in it.
    """
    history = observation.history
    length = round(HORIZON_SECONDS / history.step_seconds)
    end = history.values.shape[1] - back
    start = end - length
    if start < 1:
        return None
    # Metrics look back over the recent window: the first samples still show what was before.
    settled = slice(start + RECENT_STEPS, end)
    names = (*METRIC_NAMES, *EXTRAS)
    observed = np.full(len(names), np.nan)
    for index, name in enumerate(names):
        if name in history:
            samples = history[name][settled]
            known = samples[np.isfinite(samples)]
            if known.size >= MIN_COVERAGE_RATIO * samples.size:
                observed[index] = known.mean()
    if np.isnan(observed).all():
        return None
    load = read_load(observation, back=back + length)
    arrivals = _arrivals(observation, slice(start, end), load.arrivals_per_second)
    scenario = scenarios_of(
        load,
        arrivals=arrivals[None],
        service=load.service_seconds[None],
        parameter_draws=np.zeros((1, PARAMETER_COUNT)),
        weights=np.ones(1),
    )
    return Record(
        at_seconds=history.end_at_seconds - back * history.step_seconds,
        knobs=knobs,
        scenario=scenario,
        observed=observed,
    )


def _arrivals(observation: Observation, columns: slice, otherwise: FloatArray) -> FloatArray:
    """Return what arrived by class in the columns of the history, shape (T, 3); gaps take the mean."""
    history = observation.history
    arrived = np.empty((STEPS, len(TASK_CLASSES)))
    for index, kind in enumerate(TASK_CLASSES):
        name = f"arrivals_per_second:{kind}"
        samples = history[name][columns] if name in history else np.empty(0)
        known = samples[np.isfinite(samples)]
        filled = np.where(np.isfinite(samples), samples, known.mean()) if known.size else np.array([otherwise[index]])
        # Each sample is a mean over the time before it.
        places = (np.arange(STEPS) * STEP_SECONDS // history.step_seconds).astype(np.int64)
        arrived[:, index] = filled[np.minimum(places, filled.size - 1)]
    return np.maximum(arrived, 0.0)


class Memory:
    """A bounded number of records, newest last; no setting may crowd out another.

    A record over the limit pushes out the oldest of the setting that has most records: what was learned of a setting
    that was tried once stays longer than the hundredth look at the usual one.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self.records: list[Record] = []

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.records)

    def add(self, record: Record) -> None:
        """Keep a record, at the cost of another where there is no room."""
        self.records.append(record)
        if len(self.records) <= self._capacity:
            return
        settings = [row.knobs.tobytes() for row in self.records]
        commonest = max(settings, key=settings.count)
        del self.records[settings.index(commonest)]

    @property
    def scenarios(self) -> Scenarios:
        """The loads of all records, one scenario each."""
        return joined([record.scenario for record in self.records])

    @property
    def knobs(self) -> FloatArray:
        """Settings of all records, shape (R, 4)."""
        return np.stack([record.knobs for record in self.records])

    @property
    def observed(self) -> FloatArray:
        """What came of all records, shape (R, 15)."""
        return np.stack([record.observed for record in self.records])

    @property
    def at_seconds(self) -> FloatArray:
        """When the records ended, shape (R,)."""
        return np.array([record.at_seconds for record in self.records])
