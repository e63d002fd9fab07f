"""Calibration: what the twin learns of a scheduler, from observations alone."""

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np

from tuner.twin.fidelity import Fidelity
from tuner.twin.fitting import fit
from tuner.twin.model import from_started_log, simulate_records, started_log
from tuner.twin.parameters import TwinParameters
from tuner.twin.records import Memory, Record, record_interval
from tuner.twin.residual import Residual
from tuner.twin.residual import fit as fit_residual
from tuner.twin.trust import RankAgreement, Trust
from tuner.twin.workload import HORIZON_SECONDS
from tuner.values.knobs import KnobValues, Role, SchedulerMode
from tuner.values.metrics import METRIC_COUNT, MetricVector
from tuner.values.stages import FloatArray, Observation

SPACING_SECONDS: Final = 300.0
"""Smallest distance of two records: nearer ones tell the same again."""
MAX_BACKFILL: Final = 24
"""Intervals of history that the first observation is worth: six hours that do not overlap."""
FIRST_ITERATIONS: Final = 6
NEXT_ITERATIONS: Final = 1

STATE_NAME: Final = "twin"
"""Name under which the journal keeps what outlives a process."""

_FORMAT: Final = 1
"""Version of the stored text; raised whenever an older reader would misread it."""


class Calibrator:
    """Learns the twin's parameters from observations as they come.

    The first observation brings its history: the setting in force is taken to have been in force all through it, or
    since the last change that is known (`changed`). Afterwards an interval counts only if the setting was the same from
    its beginning to its end, and the scheduler in its full mode.
    """

    def __init__(self, start: TwinParameters | None = None) -> None:
        """Begin with what an earlier process learned, or with the priors."""
        self._parameters = start or TwinParameters()
        self._memory = Memory()
        self._fidelity = Fidelity()
        self._trust = Trust()
        self._seen_at_seconds = -math.inf
        self._knobs: FloatArray | None = None
        self._steady_since = -math.inf
        self._last: tuple[Record, MetricVector] | None = None

    def changed(self, at_seconds: float) -> None:
        """Say when a setting was last changed, as an earlier process knows: what was before tells of another one."""
        self._steady_since = max(self._steady_since, at_seconds)

    @property
    def trust_ratio(self) -> float:
        """How far predicted gains have come true, 0..1, as of the newest observation; one half before any."""
        return self._trust.ratio_at(self._seen_at_seconds)

    @property
    def region_ratio(self) -> float:
        """The trust region as of the newest observation: the share of a full step that verified changes have earned."""
        return self._trust.region_at(self._seen_at_seconds)

    @property
    def proven(self) -> bool:
        """Whether what the twin promises counts as evidence, as of the newest observation."""
        return self._trust.proven_at(self._seen_at_seconds)

    @property
    def sign_hit_ratio(self) -> float:
        """Share of the changes with a clear result whose sign was the promised one, 0..1; NaN without any."""
        return self._trust.sign_hit_ratio

    @property
    def rank_agreement(self) -> RankAgreement:
        """How far changes that promised more also brought more, and over how many."""
        return self._trust.rank_agreement

    @property
    def residual(self) -> Residual:
        """What verified changes say of the twin's promises, as of the newest observation."""
        return fit_residual(self._trust.evidence, at_seconds=self._seen_at_seconds)

    def realised(
        self,
        predicted_score: float,
        observed_score: float,
        *,
        noise: float = 0.0,
        twin_score: float = math.nan,
        moved: Iterable[float] = (0.0,) * len(Role),
        context: Iterable[float] = (),
    ) -> float:
        """Take in what was promised of a change that was verified, and what came of it; return the new trust.

        The time is that of the newest observation.

        Args:
            predicted_score: Score that was promised, with the residual; negative is better.
            observed_score: Score that was measured; NaN teaches nothing.
            noise: Its standard error; NaN counts as 0.
            twin_score: What the twin alone had said; without it the residual learns nothing.
            moved: How far each knob was moved, as of `displacement`.
            context: Load that the change was made for, as of `context_vector`.
        """
        self._trust.realised(
            predicted_score,
            observed_score,
            noise=noise,
            at_seconds=max(self._seen_at_seconds, 0.0),
            twin_score=twin_score,
            moved=moved,
            context=context,
        )
        return self.trust_ratio

    def observe(self, observation: Observation) -> None:
        """Learn from an observation; one without settings, work or full mode teaches nothing."""
        self._seen_at_seconds = max(self._seen_at_seconds, observation.at_seconds)
        if observation.knobs is None:
            return
        knobs = knob_row(observation.knobs)
        at_seconds = observation.history.end_at_seconds
        before, self._knobs = self._knobs, knobs
        if before is not None and not np.array_equal(knobs, before, equal_nan=True):
            self._steady_since = observation.at_seconds
        self._parameters = replace(self._parameters, knobs=knobs)
        if observation.mode is not SchedulerMode.FULL or not observation.arriving:
            # What comes next starts in another mode: it tells nothing of this one.
            self._steady_since = max(self._steady_since, observation.at_seconds)
            return
        if before is None:
            self._backfill(observation, knobs)
            return
        newest = self._memory.at_seconds[-1] if len(self._memory) else -math.inf
        if at_seconds - HORIZON_SECONDS < self._steady_since or at_seconds - newest < SPACING_SECONDS:
            return
        record = record_interval(observation, knobs)
        if record is not None:
            self._foretell(record)
            self._memory.add(record)
            self._learn(NEXT_ITERATIONS)

    @property
    def intervals(self) -> int:
        """How many intervals of the past are recorded."""
        return len(self._memory)

    def anchors(self, count: int) -> tuple[FloatArray, FloatArray]:
        """Return the newest intervals as observed, and what the twin now says of each under its own setting.

        Args:
            count: How many at most.

        Returns:
            Two arrays of shape (intervals, 13), oldest first; empty where nothing was recorded.
        """
        if not len(self._memory):
            return np.empty((0, METRIC_COUNT)), np.empty((0, METRIC_COUNT))
        raw = simulate_records(self._memory.knobs, self._memory.scenarios, self._parameters.log_values[None])[
            0, :, :METRIC_COUNT
        ]
        expected = from_started_log(started_log(raw) + self._parameters.levels)
        return self._memory.observed[-count:, :METRIC_COUNT], expected[-count:]

    def parameters(self, at_seconds: float) -> TwinParameters:
        """Return what is known at a time; fidelity is NaN where nothing was foretold yet.

        The farther the newest record lies behind, the less the levels are worth: their deviation grows with the square
        root of the age over the horizon.
        """
        age = at_seconds - self._parameters.at_seconds
        if not age > HORIZON_SECONDS:
            return self._parameters
        return replace(self._parameters, level_errors=self._parameters.level_errors * math.sqrt(age / HORIZON_SECONDS))

    def to_json(self) -> str:
        """Return what outlives a process, as strict JSON of bounded size (under 64 KiB).

        The recorded intervals are not in it: they are read again from the history. The residual follows from what is.
        """
        stored = {
            "format": _FORMAT,
            "parameters": self._parameters.to_json(),
            "fidelity": self._fidelity.to_json(),
            "trust": self._trust.to_json(),
        }
        return json.dumps(stored, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "Calibrator":
        """Return a calibrator that goes on with what `to_json` wrote.

        Raises:
            ValueError: The text is damaged, or of another version of the twin.
        """
        stored = json.loads(text)
        if not isinstance(stored, dict) or stored.get("format") != _FORMAT:
            raise ValueError("what the twin had learned: the text is damaged, or of another version; calibrate anew")
        try:
            restored = cls(TwinParameters.from_json(stored["parameters"]))
            restored._fidelity = Fidelity.from_json(stored["fidelity"])
            restored._trust = Trust.from_json(stored["trust"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"what the twin had learned: the text is damaged: {error!r}") from error
        return restored

    def _backfill(self, observation: Observation, knobs: FloatArray) -> None:
        """Learn from the history of the first observation; the newest quarter tests what the rest taught."""
        length = round(HORIZON_SECONDS / observation.history.step_seconds)
        found = [record_interval(observation, knobs, back=index * length) for index in range(MAX_BACKFILL)]
        steady = self._steady_since + HORIZON_SECONDS
        records = [record for record in reversed(found) if record is not None and record.at_seconds >= steady]
        if not records:
            return
        held_out = len(records) // 4
        for record in records[: len(records) - held_out]:
            self._memory.add(record)
        self._learn(FIRST_ITERATIONS)
        for record in records[len(records) - held_out :]:
            self._foretell(record)
            self._memory.add(record)
        if held_out:
            self._learn(NEXT_ITERATIONS)

    def _foretell(self, record: Record) -> None:
        """Compare a record with what the twin says of it before it has learned from it."""
        known = self._parameters
        raw = simulate_records(record.knobs[None], record.scenario, known.log_values[None])[0, 0, :METRIC_COUNT]
        predicted = from_started_log(started_log(raw) + known.levels)
        observed = record.observed[:METRIC_COUNT]
        self._fidelity.foretold(predicted, observed)
        if self._last is not None:
            before, said = self._last
            if not np.array_equal(before.knobs, record.knobs, equal_nan=True):
                self._fidelity.changed((said, predicted), (before.observed[:METRIC_COUNT], observed))
        self._last = (record, predicted)

    def _learn(self, iterations: int) -> None:
        fitted = fit(self._memory, self._parameters.log_values, iterations=iterations)
        knobs = self._memory.knobs
        offered = self._memory.scenarios.offered_accelerators
        self._parameters = TwinParameters(
            log_values=fitted.log_values,
            log_errors=fitted.log_errors,
            levels=fitted.levels,
            level_errors=fitted.level_errors,
            knobs=self._parameters.knobs,
            knobs_low=knobs.min(axis=0),
            knobs_high=knobs.max(axis=0),
            offered_low=float(offered.min()),
            offered_high=float(offered.max()),
            records=len(self._memory),
            fidelity_ratio=self._fidelity.ratio,
            at_seconds=float(self._memory.at_seconds[-1]),
        )


def knob_row(knobs: KnobValues) -> FloatArray:
    """Return a setting as a row in the order of `Role`, shape (4,); NaN where a role is absent."""
    return np.array([knobs.get(role, np.nan) for role in Role])
