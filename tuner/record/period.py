"""All that the report says of a period, found once from its cycles."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from tuner.record.plots import Marks
from tuner.record.summary import (
    Change,
    Fate,
    GuardCount,
    Track,
    changes,
    guard_counts,
    held_reasons,
    observed,
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
        records: The cycles, oldest first.
        changes: What was changed, and what came of it.
        tracks: Forecasts against what came.
        guards: How each guard judged.
        reasons: Why nothing was done, the most frequent first.
    """

    records: Sequence[CycleRecord]
    changes: tuple[Change, ...]
    tracks: tuple[Track, ...]
    guards: tuple[GuardCount, ...]
    reasons: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, records: Sequence[CycleRecord]) -> Self:
        """Return what cycles in time order amount to."""
        tracks = [track(records, name) for name in TRACKED]
        return cls(
            records=records,
            changes=changes(records),
            tracks=tuple(item for item in tracks if item is not None),
            guards=guard_counts(records),
            reasons=held_reasons(records),
        )

    @property
    def searches(self) -> list[CycleRecord]:
        """The cycles that searched."""
        return [record for record in self.records if record.proposal is not None]

    @property
    def held(self) -> int:
        """Number of cycles that did not change anything by decision."""
        return sum(record.decision in (Decision.HOLD, Decision.REJECT) for record in self.records)

    @property
    def failed(self) -> int:
        """Number of cycles that failed."""
        return sum(record.failure is not None for record in self.records)

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
        last = self.records[-1].receipt
        final = last.after if last is not None and last.applied else settings[-1]
        if not final.differs(settings[0]):
            return f"In force at the end, as at the start: {final.describe()}."
        return f"In force at the end: {final.describe()}. Since the start that moved {moves(settings[0], final)}."

    def series(self, name: str) -> tuple[FloatArray, FloatArray]:
        """Return times and values of a metric or context series."""
        return observed(self.records, name)

    def knob(self, role: Role) -> tuple[FloatArray, FloatArray]:
        """Return times and values of a knob, as in force after each cycle; NaN where it was not seen."""
        return np.array([record.at_seconds for record in self.records]), np.array(
            [_in_force(record, role) for record in self.records]
        )


def _in_force(record: CycleRecord, role: Role) -> float:
    if record.receipt is not None and record.receipt.applied:
        return record.receipt.after.get(role, math.nan)
    if record.observation is None or record.observation.knobs is None:
        return math.nan
    return record.observation.knobs.get(role, math.nan)
