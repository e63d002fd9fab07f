"""What the tuner holds against itself: the change breaker and the mode ladder, from cycle to cycle.

Pure. The machines are those of `tuner.judge`; here is which events of the loop move them.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Final

from tuner.errors import ActuatorUnavailable
from tuner.judge.change_breaker import ChangeBreaker, charged, elapsed, failed, harmed, proven
from tuner.judge.ladder import Doubt, Ladder, freeze, step, thaw
from tuner.settings.safety import ChangeBreakerSettings
from tuner.values.knobs import KnobValues
from tuner.values.safety import BreakerState, Rung
from tuner.values.stages import CycleRecord, Step

_CHANGING: Final = frozenset({"apply", "verify"})
"""Stages in which an unexpected error may have to do with a change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Earned:
    """What the changes have surely gained that led to a setting.

    Attributes:
        knobs: The setting; None before the first.
        score: Lower bound of their gains, summed; >= 0.
    """

    knobs: KnobValues | None = None
    score: float = 0.0

    def under(self, knobs: KnobValues) -> float:
        """Return what was gained where a setting is the one that it was gained with; 0 for any other."""
        return self.score if self.knobs is not None and not knobs.differs(self.knobs) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Caution:
    """What the tuner holds against itself, and what it has earned.

    Attributes:
        change_breaker: What became of its changes.
        ladder: How far it trusts itself.
        earned: What the changes in force have surely gained.
        failures_in_row: Cycles that failed, up to the newest.
        blind_in_row: Cycles without an answer from the source, up to the newest.
    """

    change_breaker: ChangeBreaker = field(default_factory=ChangeBreaker)
    ladder: Ladder = field(default_factory=Ladder)
    earned: Earned = field(default_factory=Earned)
    failures_in_row: int = 0
    blind_in_row: int = 0


def counted(caution: Caution, record: CycleRecord) -> Caution:
    """Return it with a cycle's failure, or its success, counted."""
    bad = record.failure is not None
    blind = record.failure is not None and record.failure.reason == "source_unavailable"
    return replace(
        caution,
        failures_in_row=caution.failures_in_row + 1 if bad else 0,
        blind_in_row=caution.blind_in_row + 1 if blind else 0,
    )


def stepped(caution: Caution, doubts: tuple[Doubt, ...], *, at_seconds: float, good: bool, frozen: str) -> Caution:
    """Return it after a cycle on the ladder.

    Args:
        caution: As the cycle before left it.
        doubts: What this cycle doubts.
        at_seconds: Time of the cycle.
        good: Whether the cycle did its work.
        frozen: Why everything is frozen until a person says so; empty where it is not.
    """
    ladder = caution.ladder
    if frozen:
        ladder = freeze(ladder, frozen, at_seconds=at_seconds)
    elif ladder.rung is Rung.FROZEN:
        ladder = thaw(ladder, at_seconds=at_seconds)
    return replace(caution, ladder=step(ladder, doubts, at_seconds=at_seconds, good=good))


def waited(caution: Caution, *, at_seconds: float, settings: ChangeBreakerSettings) -> Caution:
    """Return it with the change breaker half open where its cool-down has passed."""
    breaker = elapsed(caution.change_breaker, at_seconds=at_seconds, settings=settings)
    return replace(caution, change_breaker=breaker)


def learned(
    caution: Caution, record: CycleRecord, *, began_at_seconds: float, settings: ChangeBreakerSettings
) -> Caution:
    """Return it with what a cycle's change has shown.

    A change that was undone for harm counts as harm, and so does one that the scheduler fell silent over: it may have
    died of it. A change that ended otherwise proves the small trial of a half-open
    breaker, if it began after that had opened. A roll-back that failed, and an unexpected error while changing, open it
    at once.

    Args:
        caution: As the cycle found it.
        record: The cycle.
        began_at_seconds: When the trial that it looked at began; NaN where none was.
        settings: Limits of the breaker.
    """
    breaker, at = caution.change_breaker, record.at_seconds
    look, failure = record.verification, record.failure
    if failure is not None and failure.stage in _CHANGING and failure.reason == "internal":
        reason = f"unexpected error in cycle {record.cycle_id}: {failure.detail}"
        return replace(caution, change_breaker=failed(breaker, at_seconds=at, settings=settings, reason=reason))
    undone = look is not None and look.step is Step.ROLL_BACK
    if undone and (record.decision == "failed" or (failure is not None and failure.stage == "apply")):
        reason = f"the roll-back of cycle {record.cycle_id} failed: {record.reason}"
        return replace(caution, change_breaker=failed(breaker, at_seconds=at, settings=settings, reason=reason))
    if failure is not None and failure.stage == "apply" and failure.reason == ActuatorUnavailable.reason:
        reason = f"the scheduler fell silent when it was changed, in cycle {record.cycle_id}: {failure.detail}"
        return replace(caution, change_breaker=harmed(breaker, at_seconds=at, settings=settings, reason=reason))
    if look is None:
        return caution
    if look.harm and undone:
        breaker = harmed(breaker, at_seconds=at, settings=settings, reason=look.reason)
    elif record.decision in (Step.PROMOTE, Step.KEEP, Step.ROLL_BACK) and began_at_seconds > breaker.opened_at_seconds:
        breaker = proven(breaker, at_seconds=at)
    return replace(caution, change_breaker=breaker)


def charge(
    caution: Caution,
    cost_score_seconds: float,
    *,
    back_to: KnobValues,
    at_seconds: float,
    settings: ChangeBreakerSettings,
) -> Caution:
    """Return it after a change was undone that had cost something while it was tried.

    Args:
        caution: As it was.
        cost_score_seconds: What it cost.
        back_to: The setting that it was undone to.
        at_seconds: When.
        settings: Limits of the breaker.
    """
    breaker = charged(
        caution.change_breaker,
        cost_score_seconds=cost_score_seconds,
        earned_score=caution.earned.under(back_to),
        at_seconds=at_seconds,
        settings=settings,
    )
    return replace(caution, change_breaker=breaker)


def credit(caution: Caution, score: float, error: float, *, before: KnobValues, after: KnobValues) -> Caution:
    """Return it after a change was left in force, with what that has surely gained: its lower bound, one error down."""
    surely = -(score + error)
    sure = surely if math.isfinite(surely) and surely > 0 else 0.0
    return replace(caution, earned=Earned(knobs=after, score=caution.earned.under(before) + sure))


def opened(before: Caution, after: Caution) -> bool:
    """Say whether the change breaker has opened between the two."""
    was, now = before.change_breaker.state, after.change_breaker.state
    return now is BreakerState.OPEN and was is not BreakerState.OPEN
