"""Thresholds of alerts: the limits that a policy's guard acts on, and a few that only alerts know."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from tuner.errors import ConfigError
from tuner.settings.model import Policy


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number that alerts compare with.

    Attributes:
        name: Its name on the command line, with the unit as suffix.
        summary: What lies beyond it.
        of: What a policy says of it; None where the policy sets no such limit, and has no such alert.
        low: Smallest value that makes sense; itself excluded.
        high: Largest value that makes sense.
    """

    name: str
    summary: str
    of: Callable[[Policy], float | None]
    low: float = 0.0
    high: float = math.inf


def _limit(policy: Policy, metric: str) -> float | None:
    mapping = policy.metrics.get(metric)
    return None if mapping is None else mapping.limit


def _latency(policy: Policy) -> float | None:
    own = policy.guard.latency_breaker.threshold_seconds
    return _limit(policy, "scheduling_latency_seconds") if own is None else own


def _high_priority(policy: Policy) -> float | None:
    own = policy.guard.degradation.max_high_priority_wait_seconds
    return _limit(policy, "high_priority_wait_seconds") if own is None else own


FASTEST_BURN: Final = 14.4
"""Largest multiple of the error budget that is alerted upon: 2 % of 30 days' budget in an hour."""

THRESHOLDS: Final = (
    Threshold("scheduling_latency_seconds", "scheduling latency that counts against its objective", _latency),
    Threshold(
        "latency_objective_ratio",
        "share of the latency's samples that has to be under its threshold, over 30 days",
        lambda _: 0.99,  # kubernetes-mixin's default; under 0.931 the fastest burn could never be reached.
        low=1 - 1 / FASTEST_BURN,
        high=0.99999,
    ),
    Threshold("high_priority_wait_seconds", "waiting time of protected work", _high_priority),
    Threshold(
        "task_abandonment_ratio", "share of tasks given up", lambda policy: _limit(policy, "task_abandonment_ratio")
    ),
    Threshold(
        "node_temperature_celsius",
        "temperature of a node",
        lambda policy: _limit(policy, "node_temperature_celsius"),
    ),
    # A queue that outweighs the whole cluster cannot be worked off within the run time of what is running.
    Threshold("pending_demand_ratio", "demand waiting, as a share of the capacity", lambda _: 1.0),
    # Five periods: the process's own health check allows three.
    Threshold("cycle_stalled_seconds", "time without a cycle", lambda policy: 5 * policy.cycle.period_seconds),
    Threshold("cycle_duration_seconds", "mean time of a cycle", lambda policy: 0.8 * policy.cycle.period_seconds),
    Threshold(
        "cycle_failing_seconds",
        "time without a cycle that did not fail",
        lambda policy: 10 * policy.cycle.period_seconds,
    ),
    # A dozen ticks, but never less than a few scrapes.
    Threshold(
        "guard_stalled_seconds",
        "time without a guard tick",
        lambda policy: max(12 * policy.guard.period_seconds, 120.0),
    ),
    Threshold("guard_delay_seconds", "delay of a guard tick", lambda policy: policy.guard.period_seconds),
    Threshold("sample_age_seconds", "age of a metric's newest sample", lambda policy: policy.cycle.max_age_seconds),
    Threshold(
        "blind_seconds",
        "time without a required metric, in which the last settings are held",
        lambda policy: 10 * policy.cycle.period_seconds,
    ),
    Threshold("clock_skew_seconds", "difference of two clocks", lambda policy: policy.source.max_clock_skew_seconds),
    Threshold(
        "degraded_seconds",
        "time that only high-priority work is served",
        lambda policy: max(3600.0, 4 * policy.guard.degradation.dwell_seconds),
    ),
    Threshold("harmful_changes", "changes undone in the window", lambda p: float(p.change_breaker.harmful_changes)),
    Threshold(
        "harmful_window_seconds",
        "window in which changes undone are counted",
        lambda policy: policy.change_breaker.window_seconds,
    ),
    Threshold("changes_per_day", "changes tried in a day", lambda p: float(p.control.max_changes_per_day)),
    Threshold("failed_heals", "failed restorations of the settings in half an hour", lambda _: 2.0),
    # A fifth over what "as tomorrow, so today" loses: worse than noise (assumption).
    Threshold("forecast_error_ratio", "loss of the forecasts over that of last value", lambda _: 1.2),
    Threshold(
        "fidelity_ratio", "fidelity of the twin below which it explains little", lambda p: p.cycle.min_fidelity_ratio
    ),
    Threshold("failed_searches", "searches that failed in an hour", lambda _: 2.0),
    Threshold("fruitless_changes", "changes tried in a day without one that was kept", lambda _: 5.0),
)

_BY_NAME: Final[Mapping[str, Threshold]] = {row.name: row for row in THRESHOLDS}


def thresholds(policy: Policy, overrides: Mapping[str, float] | None = None) -> Mapping[str, float]:
    """Return the thresholds of a policy, by name; those that the policy does not set are left out.

    Args:
        policy: Whose limits are meant.
        overrides: Values to be used instead, by name.

    Raises:
        ConfigError: An override names no threshold, or makes no sense.
    """
    found = {row.name: value for row in THRESHOLDS if (value := row.of(policy)) is not None}
    for name, value in (overrides or {}).items():
        found[name] = _checked(name, value)
    return found


def parse_override(text: str) -> tuple[str, float]:
    """Return name and value of `NAME=VALUE`.

    Raises:
        ConfigError: It is not of that form.
    """
    name, equals, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        equals = ""
    if not equals:
        raise ConfigError(f"threshold {text!r}: must be NAME=NUMBER, as in cycle_stalled_seconds=600")
    return name.strip(), number


def _checked(name: str, value: float) -> float:
    row = _BY_NAME.get(name)
    if row is None:
        close = get_close_matches(name, _BY_NAME, n=1)
        hint = f"did you mean {close[0]}?" if close else f"must be one of {', '.join(_BY_NAME)}"
        raise ConfigError(f"threshold {name!r} does not exist; {hint}")
    if not row.low < value <= row.high or not math.isfinite(value):
        must = f"over {row.low:.4g}" + (f" and at most {row.high:g}" if math.isfinite(row.high) else "")
        raise ConfigError(f"threshold {name}: {value:g}, must be {must} ({row.summary})")
    return value
