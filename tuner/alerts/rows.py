"""The shape of an alert, of a recorded series, and of the example from which an alert's tests are made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias


class Severity(StrEnum):
    """How soon somebody has to look."""

    CRITICAL = "critical"
    """Now: users feel it, or nobody guards them."""
    WARNING = "warning"
    """In working hours."""
    INFO = "info"
    """Not by itself; it explains others."""
    NONE = "none"
    """Never: it proves that alerts arrive."""


class Component(StrEnum):
    """What an alert is about; the more severe alert of a component silences the less severe."""

    SIDECAR = "sidecar"
    SOURCE = "source"
    LATENCY = "latency"
    WORKLOAD = "workload"
    SETTINGS = "settings"
    CHANGES = "changes"
    FORECAST = "forecast"
    CONTROL = "control"
    ALERTING = "alerting"


DERIVED: Final = tuple(component for component in Component if component not in {Component.SIDECAR, Component.ALERTING})
"""Components whose alerts are made of what the tuner exports: without the tuner they say nothing."""


class Dashboard(StrEnum):
    """Fixed uids of the dashboards."""

    OVERVIEW = "clocktuner-overview"
    DECISIONS = "clocktuner-decisions"
    FORECAST = "clocktuner-forecast"
    SAFETY = "clocktuner-safety"
    SIDECAR = "clocktuner-sidecar"


# How values are shown.
SECONDS: Final = "{{ $value | humanizeDuration }}"
RATIO: Final = "{{ $value | humanizePercentage }}"
NUMBER: Final = "{{ $value | humanize }}"
COUNT: Final = '{{ $value | printf "%.0f" }}'
WHERE: Final = "{{ $labels.cluster }} (policy {{ $labels.policy }})"


@dataclass(frozen=True, slots=True)
class Level:
    """A gauge that holds a value."""

    value: float


@dataclass(frozen=True, slots=True)
class Rate:
    """A counter that grows, by so much a minute; or a gauge that rises."""

    per_minute: float


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day that follows the clock, so many seconds behind."""

    lag_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Gone:
    """No sample."""


Course: TypeAlias = Level | Rate | Clock | Gone

STILL: Final = Rate(0)
"""It keeps the value that it had."""


@dataclass(frozen=True, slots=True)
class Input:
    """One series of an example.

    Attributes:
        name: Full name.
        good: Its course while all is well.
        bad: Its course while the alert has to fire.
        labels: Labels, beside those that the tuner's series all have.
        bare: Whether it lacks `cluster` and `policy`, as Prometheus's own series do.
    """

    name: str
    good: Course
    bad: Course
    labels: Mapping[str, str] = field(default_factory=dict)
    bare: bool = False


@dataclass(frozen=True, slots=True)
class Example:
    """From which an alert's tests are made.

    Attributes:
        inputs: What the alert looks at.
        shown: The value, as the description then shows it.
        labels: Further labels of the alert.
        bare: Whether the alert has neither cluster nor policy.
        fires_when_gone: Whether the alert goes on when its series end: so do those that tell of absence.
        fires_on_nan: Whether it fires where all its series hold NaN.
        always: Whether it fires at all times, as the dead-man switch does.
        bad_seconds: How long all is bad before it fires, where that is less than its window and its wait.
    """

    inputs: tuple[Input, ...]
    shown: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    bare: bool = False
    fires_when_gone: bool = False
    fires_on_nan: bool = False
    always: bool = False
    bad_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert.

    Attributes:
        name: Name; several rows may share it where a label tells them apart.
        severity: How soon somebody has to look.
        component: What it is about.
        dashboard: Where to look at it.
        summary: One short line without values.
        description: The cluster, the value with its unit, and what to do next.
        expression: PromQL; has an answer where the alert is active.
        example: From which its tests are made.
        for_seconds: How long it has to be active before it fires.
        keep_seconds: How long it goes on firing after it is no longer active: for what comes and goes.
        window_seconds: Span that the expression looks back over, beyond the newest sample.
        labels: Further labels.
        absence: The alert that speaks up where the series of this one are gone.
    """

    name: str
    severity: Severity
    component: Component
    dashboard: Dashboard
    summary: str
    description: str
    expression: str
    example: Example
    for_seconds: float = 0.0
    keep_seconds: float = 0.0
    window_seconds: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)
    absence: str = "ClockTunerAbsent"


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded series: its name as `level:metric:operation`, and its expression."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class Group:
    """The rules of a subsystem; recorded series first, so that its alerts see them."""

    name: str
    recordings: tuple[Recording, ...]
    alerts: tuple[Alert, ...]


def gauge(name: str, good: float, bad: float, /, **labels: str) -> Input:
    """Return a gauge of the tuner; the name comes without prefix."""
    return Input(f"clocktuner_{name}", Level(good), Level(bad), labels)


def counter(name: str, good: float, bad: float, /, **labels: str) -> Input:
    """Return a counter of the tuner with its growth a minute; the name comes without prefix."""
    return Input(f"clocktuner_{name}", Rate(good), Rate(bad), labels)
