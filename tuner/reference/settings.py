"""What can be set on the reference scheduler while it runs."""

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Self

from tuner.errors import ChangeRejected
from tuner.values.knobs import KnobValues, Role, SchedulerMode


class QueueOrder(StrEnum):
    """In which order a decision looks at the waiting tasks."""

    PRIORITY = "priority"
    """Clock control's own: by priority, then submission, with bounded backfilling around blocked gangs."""
    FCFS = "fcfs"
    """Strictly in order of submission: the first task that does not fit blocks all behind it."""
    EASY = "easy"
    """By submission, with EASY backfilling: nothing may delay the expected start of the first blocked task."""
    SJF = "sjf"
    """Shortest expected run time first, as far as it fits."""


LIMITS: Final[dict[Role, tuple[float, float]]] = {
    Role.BASE_SLICE: (0.005, 5.0),
    Role.PREDICTION_WINDOW: (30.0, 7200.0),
    Role.DECISION_PERIOD: (0.02, 60.0),
    Role.RESERVATION: (0.0, 0.9),
}
"""What the scheduler accepts at all. Far wider than the recommended ranges, as real schedulers' limits are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSettings:
    """A full setting; the defaults are the middle of the recommended ranges.

    Attributes:
        base_slice_seconds: Time slice of a task of mean efficiency on a shared accelerator.
        prediction_window_seconds: How far ahead warm models are planned, and how long an idle one is kept.
        decision_period_seconds: Time between the starts of two decisions, where decisions do not take longer.
        reservation_ratio: Share of the accelerators that only high-priority work may use.
        mode: How much of the policy runs.
        order: Order of the queue.
        adaptive_slice: Whether efficient tasks get longer slices.
        prewarm: Whether models are kept and made warm for predicted demand; without, an idle model is dropped.
        tiers: Whether placement goes by zone, node and accelerator; without, it searches all and ignores distance.
    """

    base_slice_seconds: float = 0.115
    prediction_window_seconds: float = 900.0
    decision_period_seconds: float = 0.75
    reservation_ratio: float = 0.20
    mode: SchedulerMode = SchedulerMode.FULL
    order: QueueOrder = QueueOrder.PRIORITY
    adaptive_slice: bool = True
    prewarm: bool = True
    tiers: bool = True

    def __post_init__(self) -> None:
        """Refuse values that the scheduler cannot run with.

        Raises:
            ChangeRejected: A knob is not finite or outside `LIMITS`; the message lists every problem.
        """
        problems = []
        for role, (low, high) in LIMITS.items():
            value = getattr(self, role.value)
            if not (math.isfinite(value) and low <= value <= high):
                problems.append(f"{role.value} is {value}, must be {low}..{high}")
        if problems:
            raise ChangeRejected("; ".join(problems))

    @classmethod
    def unoptimised(cls) -> Self:
        """Return the scheduler without clock control: FCFS, fixed slice, no prediction, flat search, no reserve."""
        return cls(reservation_ratio=0.0, order=QueueOrder.FCFS, adaptive_slice=False, prewarm=False, tiers=False)

    @property
    def knobs(self) -> KnobValues:
        """The tunable part."""
        return KnobValues.of({role: getattr(self, role.value) for role in Role})

    def with_knobs(self, knobs: KnobValues) -> Self:
        """Return the same setting with other knobs; roles that are missing stay.

        Raises:
            ChangeRejected: A value is outside `LIMITS`.
        """
        changed: dict[str, Any] = {role.value: value for role, value in knobs.items()}
        return replace(self, **changed)
