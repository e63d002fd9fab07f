"""The change breaker: stops clocktuner from changing anything when its changes do harm.

Closed: changes may be tried. Open: none may. Half open: one small one may, whose end decides.

Besides, it rests after a trial that has cost something and gained nothing, in any state, for as long as makes the cost
a small share of the time's score: what trials cost is thus bounded, however wrong that which proposes them is.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from tuner.settings.safety import ChangeBreakerSettings
from tuner.values.safety import BreakerState


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeBreaker:
    """State of the change breaker.

    Attributes:
        state: Closed, open, or half open.
        harms: When changes were undone for harm, as far back as they count.
        opened_at_seconds: When it last opened; NaN where it never did.
        cool_down_seconds: Time that it stays, or last stayed, open; NaN where it never opened.
        reason: Why it is in its state, in one sentence; empty before it first opened.
        rests_until_seconds: Until when nothing is tried, because of what failed trials cost; NaN where none did.
        rest_reason: Why it rests, in one sentence; empty where it never did.
    """

    state: BreakerState = BreakerState.CLOSED
    harms: tuple[float, ...] = ()
    opened_at_seconds: float = math.nan
    cool_down_seconds: float = math.nan
    reason: str = ""
    rests_until_seconds: float = math.nan
    rest_reason: str = ""


def harmed(breaker: ChangeBreaker, *, at_seconds: float, settings: ChangeBreakerSettings, reason: str) -> ChangeBreaker:
    """Return it after a change was undone for harm; `reason` says which and what it did.

    One harm is enough while half open: the trial failed. Harms keep counting after it has closed, so that a second
    streak within the same day needs fewer.
    """
    kept = (min(time, at_seconds) for time in breaker.harms if at_seconds - time <= settings.window_seconds)
    breaker = replace(breaker, harms=(*kept, at_seconds))
    count, limit = len(breaker.harms), settings.harmful_changes
    if breaker.state is BreakerState.HALF_OPEN:
        return _open(breaker, at_seconds, settings, f"the small trial did harm: {reason}")
    if breaker.state is BreakerState.CLOSED and count >= limit:
        sentence = f"{count} changes did harm within {settings.window_seconds / 3600:.3g} h, limit {limit}; the last: "
        return _open(breaker, at_seconds, settings, sentence + reason)
    return breaker


def failed(breaker: ChangeBreaker, *, at_seconds: float, settings: ChangeBreakerSettings, reason: str) -> ChangeBreaker:
    """Return it opened, because a roll-back failed or a change met an unexpected error; `reason` says which.

    Where it is open already, the cool-down starts again.
    """
    return _open(breaker, at_seconds, settings, reason)


def elapsed(breaker: ChangeBreaker, *, at_seconds: float, settings: ChangeBreakerSettings) -> ChangeBreaker:
    """Return it half open once its cool-down has passed; a clock that was set back starts the cool-down again."""
    if breaker.state is not BreakerState.OPEN:
        return breaker
    # In this order, NaN stays NaN.
    breaker = replace(breaker, opened_at_seconds=min(breaker.opened_at_seconds, at_seconds))
    cool_down = min(breaker.cool_down_seconds, settings.max_cool_down_seconds)
    if at_seconds - breaker.opened_at_seconds < cool_down:
        return breaker
    sentence = f"the cool-down of {cool_down:.0f} s has passed: one small change may be tried"
    return replace(breaker, state=BreakerState.HALF_OPEN, reason=sentence)


def proven(breaker: ChangeBreaker, *, at_seconds: float) -> ChangeBreaker:
    """Return it closed, because the small trial ended without harm; a trial of before it opened proves nothing."""
    if breaker.state is not BreakerState.HALF_OPEN:
        return breaker
    hours = (at_seconds - breaker.opened_at_seconds) / 3600
    sentence = f"the small trial ended without harm, {hours:.3g} h after the change breaker opened"
    return replace(breaker, state=BreakerState.CLOSED, reason=sentence)


def charged(
    breaker: ChangeBreaker,
    *,
    cost_score_seconds: float,
    earned_score: float = 0.0,
    at_seconds: float,
    settings: ChangeBreakerSettings,
) -> ChangeBreaker:
    """Return it resting after a change was undone, until what that has cost is small against the time that passes.

    Rests add up, so that trials without gain never cost more than `max_cost_ratio` of the score in the long run, and
    `max_cost_of_gain_ratio` of what the changes in force gain at the same time.

    Args:
        breaker: As it was.
        cost_score_seconds: Score of the setting on trial against the one before, times how long it was in force; what
            is not over 0, or not known, is no cost.
        earned_score: What the changes that are in force have surely gained, >= 0.
        at_seconds: When the change was undone.
        settings: Limits.
    """
    if not cost_score_seconds > 0:
        return breaker
    minutes = cost_score_seconds / 60 * 100
    ratio = settings.max_cost_ratio + settings.max_cost_of_gain_ratio * earned_score
    reason = (
        f"the last change that was undone cost as much as {minutes:.0f} min at a score 1 % worse, and trials that fail "
        f"may cost {ratio * 100:.3g} % over time"
    )
    begins = float(np.fmax(breaker.rests_until_seconds, at_seconds))
    until = min(begins + cost_score_seconds / ratio, at_seconds + settings.max_cool_down_seconds)
    return replace(breaker, rests_until_seconds=until, rest_reason=reason)


def resting_seconds(breaker: ChangeBreaker, *, at_seconds: float) -> float:
    """Return for how much longer it rests; 0 where it does not."""
    left = breaker.rests_until_seconds - at_seconds
    return left if left > 0 else 0.0


def _open(breaker: ChangeBreaker, at: float, settings: ChangeBreakerSettings, reason: str) -> ChangeBreaker:
    return replace(
        breaker,
        state=BreakerState.OPEN,
        opened_at_seconds=at,
        cool_down_seconds=min(_cool_down(breaker, at, settings), settings.max_cool_down_seconds),
        reason=reason,
    )


def _cool_down(breaker: ChangeBreaker, at: float, settings: ChangeBreakerSettings) -> float:
    if breaker.state is BreakerState.OPEN:
        return breaker.cool_down_seconds
    since_cool_down = at - breaker.opened_at_seconds - breaker.cool_down_seconds
    if breaker.state is BreakerState.HALF_OPEN or since_cool_down <= settings.window_seconds:
        return 2.0 * breaker.cool_down_seconds
    # It never opened, or long ago.
    return settings.cool_down_seconds
