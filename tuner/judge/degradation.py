"""Degradation: when only high-priority work is served because resources are tight, and when all work is again.

While other work is held back, protected work waits less whatever the load: a short wait alone says nothing about what
happens when the rest comes back. It has recovered where protected work leaves accelerators idle, for that is room
for the rest; or where hardly anything waits, so that little would come back. A long wait alone does not say the
contrary for ever: many schedulers tell the wait of work only once it has ended, and with most of the cluster idle it is
history.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

from tuner.judge.samples import Arrival, arrival
from tuner.settings.safety import DegradationSettings
from tuner.values.safety import Reading

IDLE: Final = "resource_idle_ratio"
PENDING: Final = "pending_demand_ratio"
WAIT: Final = "high_priority_wait_seconds"

PLENTY_IDLE_RATIO: Final = 0.5
"""Share of idle accelerators beyond which protected work, which alone is served, cannot be waiting for them
(assumption)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Degradation:
    """Whether only high-priority work is to be served.

    Attributes:
        active: Whether it is.
        tight: New samples in a row in which resources were tight, while it is not.
        eased: New samples in a row in which they had recovered, while it is.
        since_seconds: When `active` last changed; NaN where it never did.
        newest_at_seconds: Time of the newest sample that was seen; NaN before the first.
        reason: Why it began or ended, in one sentence; empty before it first began.
    """

    active: bool = False
    tight: int = 0
    eased: int = 0
    since_seconds: float = math.nan
    newest_at_seconds: float = math.nan
    reason: str = ""


def watch_resources(
    degradation: Degradation,
    reading: Reading,
    *,
    wait_limit_seconds: float,
    settings: DegradationSettings,
    window_seconds: float,
) -> Degradation:
    """Return the degradation after one guard tick.

    A sample counts once. Where a value is missing that would decide, it counts for nothing and resets nothing; a gap
    of three windows starts the count again. Nothing begins or ends before the dwell time has passed, but counts run.

    Args:
        degradation: As it was left by the tick before.
        reading: What the tick sees.
        wait_limit_seconds: Wait of protected work beyond which resources may be tight; NaN: there is no degradation.
        settings: Its part of the policy.
        window_seconds: Window that the reading's queries look back over.
    """
    at = reading.at_seconds
    # A clock that was set back leaves a time in the future: the dwell time starts again. NaN stays NaN.
    degradation = replace(degradation, since_seconds=min(degradation.since_seconds, at))
    if math.isnan(wait_limit_seconds) or not settings.enabled:
        return (
            _end(degradation, at, "the policy asks for no degradation any more") if degradation.active else degradation
        )
    newest = _newest(reading)
    came = arrival(newest, newest_at_seconds=degradation.newest_at_seconds, window_seconds=window_seconds)
    if came is not Arrival.OLD:
        degradation = replace(degradation, newest_at_seconds=newest)
        if came is Arrival.APART:
            degradation = replace(degradation, tight=0, eased=0)
        degradation = _count(degradation, reading, wait_limit_seconds, settings)
    if at - degradation.since_seconds < settings.dwell_seconds:
        return degradation
    if not degradation.active and degradation.tight >= settings.samples:
        return _begin(degradation, reading, wait_limit_seconds)
    if degradation.active and degradation.eased >= settings.recovery_samples:
        return _end(degradation, at, f"resources have eased: {_describe(reading, wait_limit_seconds)}")
    return degradation


def is_tight(reading: Reading, *, wait_limit_seconds: float, settings: DegradationSettings) -> bool | None:
    """Say whether resources are tight; None where a missing value would decide."""
    conditions = (
        _compare(settings.max_idle_ratio - reading.value(IDLE)),
        _compare(reading.value(PENDING) - settings.min_pending_ratio),
        _compare(reading.value(WAIT) - wait_limit_seconds, strict=True),
    )
    if False in conditions:
        return False
    return None if None in conditions else True


def has_eased(reading: Reading, *, wait_limit_seconds: float, settings: DegradationSettings) -> bool | None:
    """Say whether resources have recovered; None where a missing value would decide, which never speaks for it.

    Where the wait of protected work has no sample, because none starts, idle accelerators alone are enough: to hold
    work back for nobody would starve it.
    """
    enough = settings.max_idle_ratio / settings.recovery_ratio
    room = _compare(reading.value(IDLE) - enough, strict=True)
    if room and reading.value(IDLE) > PLENTY_IDLE_RATIO:
        return True
    little = _compare(settings.recovery_ratio * settings.min_pending_ratio - reading.value(PENDING), strict=True)
    short = _compare(settings.recovery_ratio * wait_limit_seconds - reading.value(WAIT), strict=True)
    if (room and short is not False) or (little and short):
        return True
    possible = short is not False and (room is not False or little is not False)
    return None if possible else False


def _compare(difference: float, *, strict: bool = False) -> bool | None:
    """Say whether a difference is at least zero, or over zero; None where it is unknown."""
    if not math.isfinite(difference):
        return None
    return difference > 0 if strict else difference >= 0


def _newest(reading: Reading) -> float:
    """Return the time of the oldest of the samples that tell how tight resources are; NaN where there is none."""
    times = [reading.newest(name) for name in (IDLE, PENDING, WAIT) if math.isfinite(reading.value(name))]
    return min((time for time in times if math.isfinite(time)), default=math.nan)


def _count(degradation: Degradation, reading: Reading, limit: float, settings: DegradationSettings) -> Degradation:
    answer = (has_eased if degradation.active else is_tight)(reading, wait_limit_seconds=limit, settings=settings)
    if answer is None:
        return degradation
    if degradation.active:
        return replace(degradation, eased=degradation.eased + 1 if answer else 0)
    return replace(degradation, tight=degradation.tight + 1 if answer else 0)


def _begin(degradation: Degradation, reading: Reading, limit: float) -> Degradation:
    sentence = f"resources are tight, {degradation.tight} samples in a row: {_describe(reading, limit)}"
    return replace(degradation, active=True, tight=0, eased=0, since_seconds=reading.at_seconds, reason=sentence)


def _end(degradation: Degradation, at: float, reason: str) -> Degradation:
    return replace(degradation, active=False, tight=0, eased=0, since_seconds=at, reason=reason)


def _describe(reading: Reading, limit: float) -> str:
    wait = reading.value(WAIT)
    waits = "waits for an unknown time" if math.isnan(wait) else f"waits {wait:.3g} s"
    return (
        f"{_percent(reading.value(IDLE))} of the accelerators idle, {_percent(reading.value(PENDING))} of the capacity "
        f"asked for by waiting work, protected work {waits}, limit {limit:.3g} s"
    )


def _percent(ratio: float) -> str:
    return "an unknown share" if math.isnan(ratio) else f"{ratio * 100:.3g} %"
