"""All that the report says of a period, found once from its cycles."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from tuner.record.plots import Marks
from tuner.record.safety import Protection
from tuner.record.summary import (
    Change,
    Fate,
    GuardCount,
    Track,
    changes,
    cycles,
    guard_counts,
    held_reasons,
    in_force,
    observed,
    of_guard,
    track,
)
from tuner.record.wording import moves
from tuner.values.knobs import Role
from tuner.values.stages import CycleRecord, Decision, FloatArray

TRACKED: Final = (
    "queue_wait_seconds",
    "queue_length",
    "accelerator_utilization_ratio",
    "pending_demand_ratio",
    "arrivals_per_second:inference",
    "arrivals_per_second:training",
)
"""Series whose forecasts the report shows: those that drive decisions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """What a period amounts to.

    Attributes:
        records: All records, those of guard ticks and orders among them, oldest first.
        cycles: Those of cycles.
        changes: What was changed, and what came of it.
        tracks: Forecasts against what came.
        guards: How each guard judged.
        reasons: Why nothing was done, the most frequent first.
        protection: What kept the scheduler safe.
    """

    records: Sequence[CycleRecord]
    cycles: Sequence[CycleRecord]
    changes: tuple[Change, ...]
    tracks: tuple[Track, ...]
    guards: tuple[GuardCount, ...]
    reasons: tuple[tuple[str, int], ...]
    protection: Protection

    @classmethod
    def of(cls, records: Sequence[CycleRecord]) -> Self:
        """Return what records in time order amount to."""
        run = cycles(records)
        tracks = [track(run, name) for name in TRACKED]
        return cls(
            records=records,
            cycles=run,
            changes=changes(records),
            tracks=tuple(item for item in tracks if item is not None),
            guards=guard_counts(records),
            reasons=held_reasons(records),
            protection=Protection.of(records),
        )

    @property
    def searches(self) -> list[CycleRecord]:
        """The cycles that searched."""
        return [record for record in self.cycles if record.proposal is not None]

    @property
    def held(self) -> int:
        """Number of cycles that did not change anything by decision."""
        return sum(record.decision in (Decision.HOLD, Decision.REJECT) for record in self.cycles)

    @property
    def failed(self) -> int:
        """Number of cycles that failed."""
        return sum(record.failure is not None for record in self.cycles)

    @property
    def marks(self) -> Marks:
        """When changes were made, kept and undone."""
        return Marks(
            changed=[change.at_seconds for change in self.changes],
            kept=[change.looked_at_seconds for change in self.changes if change.kept],
            undone=[change.looked_at_seconds for change in self.changes if change.fate is Fate.UNDONE],
        )

    @property
    def conclusion(self) -> str:
        """One or two sentences on what is in force at the end."""
        settings = [
            record.observation.knobs for record in self.records if record.observation and record.observation.knobs
        ]
        if not settings:
            return "The setting of the scheduler was not seen in this period."
        final = next(
            (found for record in reversed(self.records) if (found := in_force(record)) is not None), settings[-1]
        )
        if not final.differs(settings[0]):
            return f"In force at the end, as at the start: {final.describe()}."
        return f"In force at the end: {final.describe()}. Since the start that moved {moves(settings[0], final)}."

    def series(self, name: str) -> tuple[FloatArray, FloatArray]:
        """Return times and values of a metric or context series."""
        return observed(self.records, name)

    def knob(self, role: Role) -> tuple[FloatArray, FloatArray]:
        """Return times and values of a knob, as in force after each record; NaN where a cycle did not see it."""
        telling = [record for record in self.records if not of_guard(record) or in_force(record) is not None]
        values = [math.nan if (knobs := in_force(record)) is None else knobs.get(role, math.nan) for record in telling]
        return np.array([record.at_seconds for record in telling]), np.array(values)
