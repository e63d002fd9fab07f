"""What users of the cluster feel: the scheduling latency against its objective, waiting, work given up, heat."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tuner.alerts.rows import (
    NUMBER,
    RATIO,
    SECONDS,
    WHERE,
    Alert,
    Component,
    Dashboard,
    Example,
    Group,
    Input,
    Level,
    Rate,
    Recording,
    Severity,
    counter,
    gauge,
)
from tuner.alerts.site import Site, duration
from tuner.alerts.thresholds import FASTEST_BURN


@dataclass(frozen=True, slots=True)
class Burn:
    """How fast the error budget burns, seen over a long window and confirmed by a short one.

    Attributes:
        factor: Multiple of the rate that would use the budget up in just 30 days.
        long_seconds: Window in which that is significant.
        short_seconds: Window by which it is seen to end.
        for_seconds: How long it has to last.
        severity: How soon somebody has to look.
        example_per_minute: Of four samples a minute, how many are beyond the threshold in its example: so few, and for
            so short a time, that no other window fires.
        example_bad_seconds: How long that lasts.
        example_shown: The share that is then seen.
    """

    factor: float
    long_seconds: float
    short_seconds: float
    for_seconds: float
    severity: Severity
    example_per_minute: float
    example_bad_seconds: float
    example_shown: str


BURNS: Final = (
    Burn(FASTEST_BURN, 3600, 300, 120, Severity.CRITICAL, 4, 300, "44.44%"),
    Burn(6, 21_600, 1800, 900, Severity.CRITICAL, 0.4, 2400, "8.113%"),
    Burn(3, 86_400, 7200, 3600, Severity.WARNING, 0.2, 5400, "4.587%"),
    Burn(1, 259_200, 21_600, 10_800, Severity.WARNING, 0.08, 14_400, "1.926%"),
)
"""Those of kubernetes-mixin; 2 %, 5 %, 10 % and 10 % of the budget of 30 days (Google, "The Site Reliability Workbook",
chapter 5)."""

_WINDOWS: Final = tuple(sorted({window for burn in BURNS for window in (burn.long_seconds, burn.short_seconds)}))


def ratio_name(seconds: float) -> str:
    """Return the name of the recorded share of samples beyond the threshold, over a window."""
    return f"policy:clocktuner_scheduling_latency_beyond:ratio_{duration(seconds)}"


def groups(site: Site) -> Iterator[Group]:
    """Yield the rules about the scheduling latency, and those about the work."""
    if site.has("scheduling_latency_seconds"):
        recordings = tuple(Recording(ratio_name(window), _ratio(site, window)) for window in _WINDOWS)
        yield Group("clocktuner-latency", recordings, tuple(_burn(site, burn) for burn in BURNS))
    yield Group("clocktuner-workload", (), (*_waiting(site), *_limits(site)))


def _ratio(site: Site, seconds: float) -> str:
    beyond = site.increase("scheduling_latency_beyond_total", seconds=seconds)
    samples = site.increase("scheduling_latency_samples_total", seconds=seconds)
    return f"{beyond}\n/\n({samples} > 0)"


def _burn(site: Site, burn: Burn) -> Alert:
    objective = site.thresholds["latency_objective_ratio"]
    limit = f"{burn.factor * (1 - objective):.4g}"
    long, short = (site.recorded(ratio_name(window)) for window in (burn.long_seconds, burn.short_seconds))
    threshold = duration(site.thresholds["scheduling_latency_seconds"])
    return Alert(
        name="SchedulingLatencyBudgetBurn",
        severity=burn.severity,
        component=Component.LATENCY,
        dashboard=Dashboard.SAFETY,
        summary="Scheduling decisions take too long too often.",
        description=f"{RATIO} of the scheduling latencies of {WHERE} were over {threshold} in the last "
        f"{duration(burn.long_seconds)}: the error budget of {objective:.10g} burns {burn.factor:g} times too fast. "
        "See whether the latency breaker has opened (`clocktuner history`), and what made the queue grow.",
        expression=f"{long} > {limit}\nand on (cluster, policy)\n{short} > {limit}",
        for_seconds=burn.for_seconds,
        keep_seconds=900,
        window_seconds=burn.short_seconds,
        labels={"window": duration(burn.long_seconds)},
        absence="ClockTunerGuardStalled",
        example=Example(
            (
                counter("scheduling_latency_samples_total", 4, 4),
                counter("scheduling_latency_beyond_total", 0, burn.example_per_minute),
            ),
            shown=burn.example_shown,
            bad_seconds=burn.example_bad_seconds,
        ),
    )


def _waiting(site: Site) -> Iterator[Alert]:
    if site.has("high_priority_wait_seconds"):
        yield Alert(
            name="HighPriorityStarvation",
            severity=Severity.CRITICAL,
            component=Component.WORKLOAD,
            dashboard=Dashboard.SAFETY,
            summary="High-priority work waits longer than it may.",
            description=f"High-priority work of {WHERE} waits {SECONDS}, over the "
            f"{duration(site.thresholds['high_priority_wait_seconds'])} that it may. See whether only high-priority "
            "work is served already (`clocktuner history`); then free capacity, or hold back other work.",
            expression=f"{site.latest('observed_high_priority_wait_seconds')} "
            f"> {site.limit('high_priority_wait_seconds')}",
            for_seconds=120,
            keep_seconds=600,
            absence="SchedulerMetricMissing",
            example=Example((gauge("observed_high_priority_wait_seconds", 5, 240),), shown="4m 0s"),
        )
    pending = site.series("observed_pending_demand_ratio")
    quarter, hour = site.span(900), site.span(3600)
    now = f"max by (cluster, policy) (avg_over_time({pending}[{quarter}]))"
    before = f"max by (cluster, policy) (avg_over_time({pending}[{quarter}] offset {hour}))"
    yield Alert(
        name="QueueGrowingWithoutBound",
        severity=Severity.WARNING,
        component=Component.WORKLOAD,
        dashboard=Dashboard.OVERVIEW,
        summary="More work arrives than is done, for an hour.",
        description=f"What waits in {WHERE} asks for {NUMBER} times the whole capacity, half as much again as an hour "
        "ago, and it is still growing. No setting cures that: add capacity or admit less; see what arrives.",
        expression=f"{now} > {site.limit('pending_demand_ratio')}\nand on (cluster, policy)\n{now} > 1.5 * {before}\n"
        f"and on (cluster, policy)\nmax by (cluster, policy) (deriv({pending}[{quarter}])) > 0",
        window_seconds=4500,
        keep_seconds=900,
        absence="SchedulerMetricMissing",
        example=Example(
            (Input("clocktuner_observed_pending_demand_ratio", Level(0.5), Rate(0.05)),),
            shown="5.175",
        ),
    )


def _limits(site: Site) -> Iterator[Alert]:
    if site.has("task_abandonment_ratio"):
        yield Alert(
            name="TaskAbandonmentHigh",
            severity=Severity.WARNING,
            component=Component.WORKLOAD,
            dashboard=Dashboard.OVERVIEW,
            summary="Too many tasks are given up before they complete.",
            description=f"{RATIO} of the tasks of {WHERE} are given up, over the limit of "
            f"{site.limit('task_abandonment_ratio')} as a ratio. See `clocktuner history` for a change of the last "
            "hour, and the queue wait for the reason.",
            expression=f"{site.latest('observed_task_abandonment_ratio')} > {site.limit('task_abandonment_ratio')}",
            for_seconds=300,
            keep_seconds=600,
            absence="SchedulerMetricMissing",
            example=Example((gauge("observed_task_abandonment_ratio", 0.01, 0.2),), shown="20%"),
        )
    if site.has("node_temperature_celsius"):
        yield Alert(
            name="NodeTemperatureHigh",
            severity=Severity.WARNING,
            component=Component.WORKLOAD,
            dashboard=Dashboard.OVERVIEW,
            summary="The hottest node is over its limit.",
            description=f"The hottest node of {WHERE} has {NUMBER} °C, over the limit of "
            f"{site.limit('node_temperature_celsius')} °C. Accelerators slow themselves down soon. Look for its "
            "cooling, and drain it if it stays hot.",
            expression=f"{site.latest('observed_node_temperature_celsius')} > {site.limit('node_temperature_celsius')}",
            for_seconds=300,
            keep_seconds=600,
            absence="SchedulerMetricMissing",
            example=Example((gauge("observed_node_temperature_celsius", 60, 91),), shown="91"),
        )
