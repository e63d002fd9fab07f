"""Is clocktuner there, and does it run?"""

from collections.abc import Iterator
from typing import Final

from tuner.alerts.rows import (
    NUMBER,
    SECONDS,
    STILL,
    WHERE,
    Alert,
    Clock,
    Component,
    Dashboard,
    Example,
    Gone,
    Group,
    Input,
    Level,
    Recording,
    Severity,
    counter,
    gauge,
)
from tuner.alerts.site import FRESH_SECONDS, KNOWN_SECONDS, Site
from tuner.settings.expansion import escape

UP: Final = "instance:clocktuner_up:identified"
CYCLE_TIME: Final = "policy:clocktuner_cycle_duration_seconds:mean30m"


def groups(site: Site) -> Iterator[Group]:
    """Yield the rules about the process, its cycles and its guard."""
    recordings = (Recording(UP, _identified(site)), Recording(CYCLE_TIME, _cycle_time(site)))
    yield Group(
        "clocktuner-sidecar",
        recordings,
        (*_process(site), *_cycles(site), *_failing(site), *_burden(site), *_guard(site)),
    )


def target(site: Site) -> str:
    """Return the selector of whether clocktuner's targets answer."""
    return f'up{{job="{escape(site.job)}"}}'


def _identified(site: Site) -> str:
    # `up` does not know whose tuner it is about. Its page did, while it answered.
    known = f"last_over_time({site.series('build_info', job=site.job)}[{site.span(KNOWN_SECONDS)}])"
    found = (
        f"max by (job, instance, cluster, policy) ({known})\n"
        f"* on (job, instance) group_left ()\nmin by (job, instance) ({target(site)})"
    )
    if site.cluster is not None:
        return found
    never = f"min by (job, instance) ({target(site)})"
    return f"{found}\nor on (job, instance)\n{never}"


def _cycle_time(site: Site) -> str:
    total, count = (site.increase(f"cycle_duration_seconds_{part}", seconds=1800) for part in ("sum", "count"))
    return f"{total}\n/\n({count} > 0)"


def _gone(site: Site) -> str:
    down = f"{site.recorded(UP)} == 0"
    if site.cluster is not None:
        return f"absent({site.series('build_info')})\nunless on (cluster, policy)\n{down}"
    remembered = f"max by (cluster, policy) (last_over_time({site.series('build_info')}[{site.span(KNOWN_SECONDS)}]))"
    return (
        f"(\n  {remembered}\n  unless on (cluster, policy)\n  {site.latest('build_info')}\n)\n"
        f"unless on (cluster, policy)\n({down})\n"
        f"or\n(\n  absent({target(site)})\n  unless on ()\n  {remembered}\n)"
    )


def target_up(bad: float) -> Input:
    """Return whether the tuner's target answers."""
    return Input("up", Level(1), Level(bad), {"job": "clocktuner", "instance": "tuner:9464"}, bare=True)


def _process(site: Site) -> Iterator[Alert]:
    build = Input("clocktuner_build_info", Level(1), Gone(), {"version": "1.0"})
    yield Alert(
        name="ClockTunerDown",
        severity=Severity.CRITICAL,
        component=Component.SIDECAR,
        dashboard=Dashboard.SIDECAR,
        summary="clocktuner does not answer.",
        description=f"clocktuner{{{{ if $labels.cluster }}}} of {WHERE}{{{{ end }}}} at {{{{ $labels.instance }}}} "
        "does not answer its scrapes. The scheduler keeps its last settings, but nobody guards it. Look at the process "
        "and its log, and start it again.",
        expression=f"{site.recorded(UP)} == 0",
        for_seconds=180,
        keep_seconds=300,
        example=Example(
            (target_up(0), build),
            labels={"job": "clocktuner", "instance": "tuner:9464"},
        ),
    )
    yield Alert(
        name="ClockTunerAbsent",
        severity=Severity.CRITICAL,
        component=Component.SIDECAR,
        dashboard=Dashboard.SIDECAR,
        summary="Nothing is heard of clocktuner any more.",
        description=f"Prometheus hears nothing of clocktuner{{{{ if $labels.cluster }}}} of {WHERE}{{{{ end }}}}: it "
        f"is no target, or exports nothing. Look whether it still runs, and whether the scrape job {site.job} still "
        "finds it.",
        expression=_gone(site),
        for_seconds=180,
        keep_seconds=300,
        absence="Watchdog",
        example=Example((build, target_up(1)), fires_when_gone=True, bad_seconds=FRESH_SECONDS + 180),
    )


def _cycles(site: Site) -> Iterator[Alert]:
    newest = site.latest("cycle_last_timestamp_seconds")
    succeeded = site.latest("cycle_last_success_timestamp_seconds")
    yield Alert(
        name="ClockTunerLoopStalled",
        severity=Severity.WARNING,
        component=Component.SIDECAR,
        dashboard=Dashboard.SIDECAR,
        summary="clocktuner answers, but runs no cycles.",
        description=f"The last cycle of {WHERE} was {SECONDS} ago. Nothing is tuned, and no change on trial is judged. "
        "Look for a hanging query or a full disk in the log, then restart it: it resumes where it was.",
        expression=f"time() - {newest} > {site.time_limit('cycle_stalled_seconds')}",
        for_seconds=120,
        keep_seconds=300,
        absence="ClockTunerNoCycle",
        example=Example(
            (Input("clocktuner_cycle_last_timestamp_seconds", Clock(30), STILL),), shown="12m 30s", bad_seconds=540
        ),
    )
    yield Alert(
        name="ClockTunerNoCycle",
        severity=Severity.WARNING,
        component=Component.SIDECAR,
        dashboard=Dashboard.SIDECAR,
        summary="clocktuner has not ended a single cycle well since it started.",
        description=f"clocktuner of {WHERE} answers, but none of its cycles has ended well yet. Run `clocktuner check "
        "--policy FILE` to see what it cannot read, and look at its log.",
        expression=f"{site.latest('build_info')}\nunless on (cluster, policy)\n{succeeded}",
        for_seconds=600,
        example=Example(
            (
                Input("clocktuner_build_info", Level(1), Level(1), {"version": "1.0"}),
                Input("clocktuner_cycle_last_success_timestamp_seconds", Clock(30), Gone()),
            ),
            bad_seconds=FRESH_SECONDS + 600,
        ),
    )


def _failing(site: Site) -> Iterator[Alert]:
    newest = site.latest("cycle_last_timestamp_seconds")
    succeeded = site.latest("cycle_last_success_timestamp_seconds")
    yield Alert(
        name="ClockTunerCyclesFailing",
        severity=Severity.WARNING,
        component=Component.SIDECAR,
        dashboard=Dashboard.SIDECAR,
        summary="The cycles of clocktuner fail.",
        description=f"The last cycle of {WHERE} that did not fail was {SECONDS} ago; the settings stay as they are. "
        "`clocktuner history` names the stage and the reason.",
        expression=f"{newest}\n- on (cluster, policy)\n{succeeded}\n> {site.time_limit('cycle_failing_seconds')}",
        for_seconds=120,
        keep_seconds=300,
        example=Example(
            (
                Input("clocktuner_cycle_last_timestamp_seconds", Clock(0), Clock(0)),
                Input("clocktuner_cycle_last_success_timestamp_seconds", Clock(0), STILL),
            ),
            shown="15m 0s",
            bad_seconds=720,
        ),
        absence="ClockTunerNoCycle",
    )


def _burden(site: Site) -> Iterator[Alert]:
    yield Alert(
        name="ClockTunerCycleSlow",
        severity=Severity.WARNING,
        component=Component.SIDECAR,
        dashboard=Dashboard.SIDECAR,
        summary="The cycles of clocktuner take nearly their whole period.",
        description=f"Cycles of {WHERE} take {SECONDS} on average, too near to their period: decisions come late. See "
        "on the dashboard which stage it is; give it more CPU, fewer trials, or a longer period.",
        expression=f"{site.recorded(CYCLE_TIME)} > {site.limit('cycle_duration_seconds')}",
        window_seconds=1800,
        keep_seconds=600,
        example=Example(
            (
                counter("cycle_duration_seconds_count", 1, 1),
                counter("cycle_duration_seconds_sum", 2, 55),
            ),
            shown="55s",
        ),
    )
    yield Alert(
        name="JournalFailing",
        severity=Severity.WARNING,
        component=Component.SIDECAR,
        dashboard=Dashboard.SIDECAR,
        summary="The journal of clocktuner cannot be written.",
        description=f"{NUMBER} cycles of {WHERE} have failed in 15 minutes because of the journal. Without it nothing "
        "is changed. Look at the free space and the rights of its folder.",
        expression=f"{site.increase('stage_failures_total', seconds=900, reason='journal')} > 0",
        window_seconds=900,
        keep_seconds=300,
        example=Example((counter("stage_failures_total", 0, 1, stage="record", reason="journal"),), shown="15"),
    )


def _guard(site: Site) -> Iterator[Alert]:
    newest = site.latest("guard_last_timestamp_seconds")
    yield Alert(
        name="ClockTunerGuardStalled",
        severity=Severity.CRITICAL,
        component=Component.SIDECAR,
        dashboard=Dashboard.SIDECAR,
        summary="The guard of clocktuner does not run.",
        description=f"The last guard tick of {WHERE} was {SECONDS} ago: neither the latency breaker nor the protection "
        "of high-priority work acts. Restart clocktuner; if it stalls again, stop it with the kill switch.",
        expression=f"time() - {newest} > {site.time_limit('guard_stalled_seconds')}",
        for_seconds=60,
        keep_seconds=300,
        absence="ClockTunerNoGuard",
        example=Example((Input("clocktuner_guard_last_timestamp_seconds", Clock(5), STILL),), shown="4m 5s"),
    )
    yield Alert(
        name="ClockTunerNoGuard",
        severity=Severity.CRITICAL,
        component=Component.SIDECAR,
        dashboard=Dashboard.SIDECAR,
        summary="The guard of clocktuner has not run since it started.",
        description=f"clocktuner of {WHERE} answers, but its guard has not ended a single tick: neither the latency "
        "breaker nor the protection of high-priority work acts. Look at its log, and whether its journal can be "
        "written.",
        expression=f"{site.latest('build_info')}\nunless on (cluster, policy)\n{newest}",
        for_seconds=300,
        example=Example(
            (
                Input("clocktuner_build_info", Level(1), Level(1), {"version": "1.0"}),
                Input("clocktuner_guard_last_timestamp_seconds", Clock(5), Gone()),
            ),
            bad_seconds=FRESH_SECONDS + 300,
        ),
    )
    yield Alert(
        name="ClockTunerGuardLate",
        severity=Severity.WARNING,
        component=Component.SIDECAR,
        dashboard=Dashboard.SIDECAR,
        summary="The guard ticks of clocktuner come late.",
        description=f"Guard ticks of {WHERE} begin {SECONDS} late: a breach is seen later by so much. Give the process "
        "more CPU, or see what the cycles wait for.",
        expression=f"{site.latest('guard_delay_seconds')} > {site.limit('guard_delay_seconds')}",
        for_seconds=300,
        keep_seconds=300,
        absence="ClockTunerNoGuard",
        example=Example((gauge("guard_delay_seconds", 0.1, 7.5),), shown="7.5s"),
    )
