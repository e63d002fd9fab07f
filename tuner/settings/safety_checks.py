"""What the safety parts of a policy must be to one another and to what is read.

A breaker that cannot see its metric, or a pause that is never reached, would look like protection and be none.
"""

from collections.abc import Collection, Iterator
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from tuner.settings.faults import Fault, KeyPath, nearest, shown
from tuner.settings.safety import (
    ChangeBreakerSettings,
    ControlSettings,
    DegradationSettings,
    GuardSettings,
    HealingSettings,
    LatencyBreakerSettings,
)
from tuner.settings.sections import CycleSettings, VerifySettings

_LATENCY: Final = "scheduling_latency_seconds"
_TIGHT: Final = ("resource_idle_ratio", "pending_demand_ratio", "high_priority_wait_seconds")
"""What degradation looks at."""


def guard_faults(guard: GuardSettings, read: Collection[str]) -> Iterator[Fault]:
    """Yield what is wrong with the guard tick.

    Args:
        guard: Its part of the policy.
        read: Names of the metrics that are read.
    """
    if guard.window_seconds < guard.period_seconds:
        must = f"at least guard.period_seconds ({guard.period_seconds:g})"
        remedy = "otherwise some samples are seen by no tick"
        yield Fault(("guard", "window_seconds"), f"{guard.window_seconds:g}", must, remedy)
    yield from _latency_breaker(guard.latency_breaker, read)
    yield from _degradation(guard.degradation, read)
    yield from _healing(guard.healing)


def _latency_breaker(breaker: LatencyBreakerSettings, read: Collection[str]) -> Iterator[Fault]:
    path: KeyPath = ("guard", "latency_breaker")
    if breaker.threshold_seconds is not None and _LATENCY not in read:
        remedy = f"map metrics.{_LATENCY}; without it nothing can open the breaker"
        yield Fault((*path, "threshold_seconds"), f"{breaker.threshold_seconds:g}", "left out", remedy)
    yield from _longest(
        path, "max_cool_down_seconds", breaker.max_cool_down_seconds, "cool_down_seconds", breaker.cool_down_seconds
    )
    # Between two openings there is a cool-down at least.
    quickest = (breaker.flap_openings - 1) * breaker.cool_down_seconds
    if breaker.flap_window_seconds < quickest:
        must = f"at least {quickest:g}: {breaker.flap_openings} openings cannot come sooner, with their cool-downs"
        remedy = "lengthen it, or flapping is never reported"
        yield Fault((*path, "flap_window_seconds"), f"{breaker.flap_window_seconds:g}", must, remedy)


def _degradation(degradation: DegradationSettings, read: Collection[str]) -> Iterator[Fault]:
    missing = [name for name in _TIGHT if name not in read]
    limit = degradation.max_high_priority_wait_seconds
    if degradation.enabled and limit is not None and missing:
        remedy = f"map {', '.join(missing)}; without it nothing tells that resources are tight"
        path = ("guard", "degradation", "max_high_priority_wait_seconds")
        yield Fault(path, f"{limit:g}", "left out", remedy)


def _healing(healing: HealingSettings) -> Iterator[Fault]:
    yield from _longest(
        ("guard", "healing"),
        "max_back_off_seconds",
        healing.max_back_off_seconds,
        "back_off_seconds",
        healing.back_off_seconds,
    )


def change_breaker_faults(breaker: ChangeBreakerSettings) -> Iterator[Fault]:
    """Yield what is wrong with the change breaker."""
    yield from _longest(
        ("change_breaker",),
        "max_cool_down_seconds",
        breaker.max_cool_down_seconds,
        "cool_down_seconds",
        breaker.cool_down_seconds,
    )


def _longest(path: KeyPath, name: str, longest: float, first_name: str, first: float) -> Iterator[Fault]:
    """Yield a fault where the longest pause is shorter than the first."""
    if longest < first:
        remedy = f"raise it, or lower {first_name}: pauses grow from the one to the other"
        yield Fault((*path, name), f"{longest:g}", f"at least {first_name} ({first:g})", remedy)


def control_faults(control: ControlSettings) -> Iterator[Fault]:
    """Yield what is wrong with what people decide: time zones that nobody knows."""
    for index, window in enumerate(control.maintenance):
        if not _is_zone(window.timezone):
            known = available_timezones()
            meant = nearest(window.timezone, known)
            remedy = f"did you mean {meant}?" if meant else "write it as in Europe/Vienna"
            if not known:
                remedy = "this system has no time zones: install its package tzdata"
            path = ("control", "maintenance", index, "timezone")
            yield Fault(path, shown(window.timezone), "the name of a time zone", remedy)


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # Unknown; not a plain name; a folder of zones, such as Europe.
        return False
    return True


def switchback_faults(verify: VerifySettings, cycle: CycleSettings | None) -> Iterator[Fault]:
    """Yield what is wrong with the times of a switchback; None where the cycle's part is not sound."""
    if verify.method != "switchback":
        return
    if verify.max_wash_out_seconds < verify.wash_out_seconds:
        must = f"at least verify.wash_out_seconds ({verify.wash_out_seconds:g})"
        remedy = "raise it: the wash-out is learned between the two"
        yield Fault(("verify", "max_wash_out_seconds"), f"{verify.max_wash_out_seconds:g}", must, remedy)
    if cycle is not None and verify.leg_seconds < cycle.recent_window_seconds:
        must = f"at least cycle.recent_window_seconds ({cycle.recent_window_seconds:g})"
        remedy = "a leg must be longer than what each sample looks back over; or set verify.method: before_after"
        yield Fault(("verify", "leg_seconds"), f"{verify.leg_seconds:g}", must, remedy)
