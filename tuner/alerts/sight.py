"""Can clocktuner see the cluster?"""

from collections.abc import Iterator
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
    Recording,
    Severity,
    gauge,
)
from tuner.alerts.site import KNOWN_SECONDS, Site, duration
from tuner.values.metrics import METRICS

COVERED: Final = "metric:clocktuner_observation_coverage_ratio:max_blind"

OPTIONAL: Final = "|".join(spec.name for spec in METRICS if spec.optional)
"""Metrics that may have no sample for long: where no protected task starts, nobody waits."""


def idle(site: Site) -> str:
    """Return what answers where nothing waits and nothing is completed: then many metrics have no value, rightly."""
    return (
        f"({site.latest('observed_queue_length')} == 0 and on (cluster, policy) "
        f"{site.latest('observed_tasks_completed_per_second')} == 0)"
    )


def groups(site: Site) -> Iterator[Group]:
    """Yield the rules about the metrics source and its samples."""
    yield Group(
        "clocktuner-source", (Recording(COVERED, _covered(site)),), (*_reach(site), *_samples(site), *_holding(site))
    )


def _covered(site: Site) -> str:
    window = site.span(site.thresholds["blind_seconds"])
    return f"max by (cluster, policy, metric) (max_over_time({site.series('observation_coverage_ratio')}[{window}]))"


def _reach(site: Site) -> Iterator[Alert]:
    yield Alert(
        name="PrometheusUnreachableFromTuner",
        severity=Severity.WARNING,
        component=Component.SOURCE,
        dashboard=Dashboard.SIDECAR,
        summary="clocktuner cannot reach its metrics source.",
        description=f"The metrics source of {WHERE} does not answer clocktuner. It holds the last settings, and its "
        "guard is blind. Run `clocktuner check --policy FILE` where it runs, and look at the source.",
        expression=f"{site.latest('source_up')} == 0",
        for_seconds=120,
        keep_seconds=300,
        example=Example((gauge("source_up", 1, 0),)),
    )
    yield Alert(
        name="ClockSkew",
        severity=Severity.WARNING,
        component=Component.SOURCE,
        dashboard=Dashboard.SIDECAR,
        summary="The clocks of clocktuner and its metrics source disagree.",
        description=f"The clocks of {WHERE} differ by {SECONDS}: no age of a sample can be believed, so nothing is "
        "changed. Look at the time synchronisation of both hosts.",
        expression=f"abs({site.latest('source_clock_offset_seconds')}) > {site.limit('clock_skew_seconds')}\n"
        f"or on (cluster, policy)\n{site.increase('observation_problems_total', seconds=600, reason='clock_skew')} > 0",
        for_seconds=60,
        keep_seconds=600,
        window_seconds=600,
        example=Example((gauge("source_clock_offset_seconds", 0.2, -43_200),), shown="12h 0m 0s"),
    )


def _remembered(site: Site) -> str:
    """Return what answers for metrics that had samples within the last day: a policy may declare others absent."""
    coverage = site.series("observation_coverage_ratio")
    return f"max by (cluster, policy, metric) (max_over_time({coverage}[{site.span(KNOWN_SECONDS)}])) > 0"


BUSY: Final = (
    gauge("observation_coverage_ratio", 1, 0, metric="queue_wait_seconds"),
    gauge("observed_queue_length", 120, 120),
    gauge("observed_tasks_completed_per_second", 1, 1),
)
"""Example: one metric has no samples, although work is done."""


def _samples(site: Site) -> Iterator[Alert]:
    yield Alert(
        name="SchedulerMetricMissing",
        severity=Severity.WARNING,
        component=Component.SOURCE,
        dashboard=Dashboard.OVERVIEW,
        summary="A metric of the scheduler has no samples any more.",
        description=f"Only {RATIO} of the samples of {{{{ $labels.metric }}}} of {WHERE} come, which came within the "
        "last day. `clocktuner check --policy FILE` tells whether the query or the exporter is at fault.",
        expression=f"{site.latest('observation_coverage_ratio', 'metric', metric=f'!{OPTIONAL}')} == 0\n"
        f"and on (cluster, policy, metric)\n{_remembered(site)}\nunless on (cluster, policy)\n{idle(site)}",
        for_seconds=300,
        keep_seconds=300,
        example=Example(BUSY, shown="0%", labels={"metric": "queue_wait_seconds"}),
    )
    yield Alert(
        name="SchedulerMetricStale",
        severity=Severity.WARNING,
        component=Component.SOURCE,
        dashboard=Dashboard.OVERVIEW,
        summary="A metric of the scheduler is too old to act upon.",
        description=f"The newest sample of {{{{ $labels.metric }}}} of {WHERE} is {SECONDS} old. Nothing is changed on "
        "such samples. Look at the exporter and at its scrapes.",
        expression=f"{site.latest('observation_age_seconds', 'metric')} > {site.limit('sample_age_seconds')}",
        for_seconds=300,
        keep_seconds=300,
        absence="SchedulerMetricMissing",
        example=Example(
            (gauge("observation_age_seconds", 15, 600, metric="queue_length"),),
            shown="10m 0s",
            labels={"metric": "queue_length"},
        ),
    )


def _holding(site: Site) -> Iterator[Alert]:
    blind = site.thresholds["blind_seconds"]
    yield Alert(
        name="HoldingLastSettings",
        severity=Severity.WARNING,
        component=Component.SOURCE,
        dashboard=Dashboard.OVERVIEW,
        summary="clocktuner holds the last settings, because it lacks metrics.",
        description=f"{NUMBER} metrics that are needed of {WHERE} have had no sample for {duration(blind)}: the last "
        "good settings stay in force, and no change is judged. Run `clocktuner check --policy FILE`.",
        expression=f"count by (cluster, policy) (\n  {COVERED}{site.matchers(metric=f'!{OPTIONAL}')} == 0\n"
        f"  and on (cluster, policy, metric)\n  {_remembered(site)}\n)\nunless on (cluster, policy)\n{idle(site)}",
        window_seconds=blind,
        keep_seconds=300,
        absence="ClockTunerAbsent",
        example=Example(BUSY, shown="1"),
    )
