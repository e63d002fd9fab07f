"""What differs from site to site: whose series are looked at, thresholds, links, and how PromQL is written for them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tuner.record.families import PREFIX
from tuner.settings.expansion import escape

FRESH_SECONDS: Final = 300.0
"""How long a value counts after its last sample: Prometheus's own look-back. A failed scrape ends a series at once;
`last_over_time` carries it over the gap, so that an alert does not end and begin again."""

KNOWN_SECONDS: Final = 86_400.0
"""How long what is gone is remembered: a day, so that a night shift sees what went in the evening."""

DEFAULT_RUNBOOKS: Final = "docs/runbooks"
DEFAULT_DASHBOARDS: Final = ""

_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))


def duration(seconds: float) -> str:
    """Return a span of time as Prometheus writes it: `90s` is `1m30s`; the least is `1ms`."""
    left = max(1, round(seconds * 1000))
    parts = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where the rules will run.

    Attributes:
        thresholds: By name, as of `tuner.alerts.thresholds`.
        cluster: The only cluster that they look at; None for all that Prometheus holds.
        policy: The only policy, likewise.
        job: Name of the job by which clocktuner is scraped.
        team: Label of the alerts by which they may be routed.
        runbook_url: What stands before `/<Alert>.md`.
        dashboard_url: What stands before `/d/<uid>`: the address of Grafana.
        speed: How many times faster all windows and waits run: 1, but for rehearsals.
    """

    thresholds: Mapping[str, float]
    cluster: str | None = None
    policy: str | None = None
    job: str = "clocktuner"
    team: str = "scheduling"
    runbook_url: str = DEFAULT_RUNBOOKS
    dashboard_url: str = DEFAULT_DASHBOARDS
    speed: float = 1.0

    def has(self, *names: str) -> bool:
        """Say whether the thresholds exist: an alert without its threshold is left out."""
        return all(name in self.thresholds for name in names)

    def limit(self, name: str) -> str:
        """Return a threshold as PromQL has it."""
        return f"{self.thresholds[name]:.10g}"

    def time_limit(self, name: str) -> str:
        """Return a threshold in seconds that is compared with the time that has passed."""
        return f"{self.thresholds[name] / self.speed:.10g}"

    def span(self, seconds: float) -> str:
        """Return a window or a wait, as fast as time runs here."""
        return duration(seconds / self.speed)

    def matchers(self, **labels: str) -> str:
        """Return matchers for the site's series, in braces; empty where there are none.

        Args:
            **labels: Further labels: `a|b` matches either, `!a` and `!a|b` all others.
        """
        own = {"cluster": self.cluster, "policy": self.policy}
        parts = [f'{label}="{escape(value)}"' for label, value in own.items() if value is not None]
        for label, value in labels.items():
            wanted = value.removeprefix("!")
            operator = {(True, True): "=~", (True, False): "=", (False, True): "!~", (False, False): "!="}
            parts.append(f'{label}{operator[wanted == value, "|" in wanted]}"{escape(wanted)}"')
        return f"{{{', '.join(parts)}}}" if parts else ""

    def series(self, name: str, /, **labels: str) -> str:
        """Return the selector of one of the tuner's series; the name comes without prefix."""
        return f"{PREFIX}{name}{self.matchers(**labels)}"

    def latest(self, name: str, /, *by: str, **labels: str) -> str:
        """Return the newest value of a gauge, one for each cluster, policy and further label.

        Job and instance are aggregated away: a tuner that moved to another host is the same, and its alerts go on.
        """
        window = self.span(FRESH_SECONDS)
        return f"max by ({_by(by)}) (last_over_time({self.series(name, **labels)}[{window}]))"

    def increase(self, name: str, /, *by: str, seconds: float, **labels: str) -> str:
        """Return by how much a counter grew."""
        return f"sum by ({_by(by)}) (increase({self.series(name, **labels)}[{self.span(seconds)}]))"

    def recorded(self, name: str) -> str:
        """Return the selector of a recorded series."""
        return f"{name}{self.matchers()}"


def _by(labels: tuple[str, ...]) -> str:
    return ", ".join(("cluster", "policy", *labels))


def whole_minutes(seconds: float) -> int:
    """Return a span in minutes, rounded up."""
    return math.ceil(seconds / 60 - 1e-9)
