"""The roll-back drill: a change too small to matter, made, seen effective, undone and timed.

What is proven is the way that every roll-back takes; what is measured is how long harm would last once it is seen.
This module says what to change and what the times mean; the loop does it.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from tuner.values.knobs import KnobSpec, KnobValues, Role

LEAST_FIRST: Final = (Role.PREDICTION_WINDOW, Role.BASE_SLICE, Role.RESERVATION, Role.DECISION_PERIOD)
"""Knobs by what one step of them does, the least first: looking ahead a minute more changes plans, five milliseconds of
slice a little overhead, a hundredth reserved some room, the period every latency (assumption, from how each acts)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """What a drill changes.

    Attributes:
        role: The knob.
        before: Setting in force, to which it returns.
        during: The same but for one step of that knob.
    """

    role: Role
    before: KnobValues
    during: KnobValues

    def describe(self) -> str:
        """Return it in words: `decision_period_seconds from 0.6 to 0.65 and back`."""
        return f"{self.role} from {self.before[self.role]:g} to {self.during[self.role]:g} and back"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillResult:
    """What came of a drill.

    Attributes:
        role: The knob that was moved.
        apply_seconds: From asking for the change until the scheduler had taken it; NaN where it did not.
        effective_seconds: From asking for the change until it was seen in force; NaN where it was not.
        restore_seconds: From asking for the setting before until it was seen in force again; NaN where it was not.
        passed: Whether the change was seen in force, and the setting before was restored.
        sentence: The same for people.
    """

    role: Role
    apply_seconds: float
    effective_seconds: float
    restore_seconds: float
    passed: bool
    sentence: str


def exercise(
    specs: Iterable[KnobSpec],
    in_force: KnobValues,
    *,
    written: Collection[Role],
    words: Collection[Role] = (),
) -> Exercise | None:
    """Choose what a drill changes: one step of the least important knob, towards the middle of its range.

    Args:
        specs: Knobs of the policy.
        in_force: Setting in force; a knob that is outside its range is left to self-healing.
        written: Knobs that the scheduler takes: one that lives inside the tuner proves nothing.
        words: Knobs whose native setting is a word: the next word may mean anything but a small step.

    Returns:
        The change; None where no knob can be moved without disruption.
    """
    known = {spec.role: spec for spec in specs}
    for role in LEAST_FIRST:
        spec = known.get(role)
        if spec is None or spec.disruptive or role not in written or role in words:
            continue
        value = in_force.get(role, math.nan)
        if spec.contains(value):
            during = KnobValues.of({**in_force, role: _next(spec, value)})
            return Exercise(role=role, before=in_force, during=during)
    return None


def _next(spec: KnobSpec, value: float) -> float:
    """Return the grid point next to a value on the side of the middle; from the middle itself, the one above."""
    index = spec.index(value)
    return spec.at(index + 1 if 2 * index <= spec.steps else index - 1)


def result(
    planned: Exercise, *, apply_seconds: float, effective_seconds: float, restore_seconds: float, trouble: str = ""
) -> DrillResult:
    """Return what came of a drill.

    Args:
        planned: What was changed.
        apply_seconds: See `DrillResult`, as for the next two; NaN where the scheduler did not take the change.
        effective_seconds: NaN where the change was never seen in force.
        restore_seconds: NaN where the setting before was not restored.
        trouble: What went wrong, as it was told; empty where nothing did.
    """
    seen, restored = math.isfinite(effective_seconds), math.isfinite(restore_seconds)
    what = planned.describe()
    if seen and restored:
        sentence = f"{what}: in force after {effective_seconds:.2f} s, restored {restore_seconds:.2f} s after asking"
    else:
        sentence = f"{what}: {_failure(apply_seconds, restore_seconds)}" + (f": {trouble}" if trouble else "")
    return DrillResult(
        role=planned.role,
        apply_seconds=apply_seconds,
        effective_seconds=effective_seconds,
        restore_seconds=restore_seconds,
        passed=seen and restored,
        sentence=sentence,
    )


def _failure(apply_seconds: float, restore_seconds: float) -> str:
    if math.isnan(apply_seconds):
        return "the change was not made"
    return (
        "the setting before could not be restored" if math.isnan(restore_seconds) else "the change was never in force"
    )


def due(last_at_seconds: float, *, every_seconds: float | None, at_seconds: float) -> bool:
    """Say whether a drill is due by the schedule.

    Args:
        last_at_seconds: When the newest one ended, passed or failed; NaN before the first.
        every_seconds: Distance of two; None where they are done by hand only.
        at_seconds: Now. A last one in the future, which a clock that was set back leaves behind, counts as none.
    """
    if every_seconds is None:
        return False
    return not 0 <= at_seconds - last_at_seconds < every_seconds
