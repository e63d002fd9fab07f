"""What keeps the cluster safe: breakers, protected work, the settings in force, and the changes made to them."""

from collections.abc import Iterator

from tuner.alerts.rows import (
    COUNT,
    WHERE,
    Alert,
    Component,
    Dashboard,
    Example,
    Group,
    Severity,
    counter,
    gauge,
)
from tuner.alerts.site import Site, duration
from tuner.values.knobs import SchedulerMode


def groups(site: Site) -> Iterator[Group]:
    """Yield the rules about the breakers, the settings, and the changes."""
    yield Group("clocktuner-breakers", (), (*_latency(site), *_degradation(site), *_standstill(site)))
    yield Group("clocktuner-settings", (), (*_states(site), *_writers(site)))
    yield Group("clocktuner-changes", (), (*_rates(site), *_switches(site)))


def _latency(site: Site) -> Iterator[Alert]:
    yield Alert(
        name="CircuitBreakerOpen",
        severity=Severity.WARNING,
        component=Component.LATENCY,
        dashboard=Dashboard.SAFETY,
        summary="The latency breaker has put the scheduler into its simplified policy.",
        description=f"The scheduler of {WHERE} could not keep up with its decisions, so the latency breaker has "
        "opened. It tries the full policy again by itself. `clocktuner history` tells since when; look for what made "
        "the queue grow.",
        expression=f"{site.latest('latency_breaker_state', state='closed')} == 0",
        for_seconds=120,
        keep_seconds=300,
        absence="ClockTunerGuardStalled",
        example=Example((gauge("latency_breaker_state", 1, 0, state="closed"),)),
    )
    yield Alert(
        name="CircuitBreakerWithoutEffect",
        severity=Severity.WARNING,
        component=Component.LATENCY,
        dashboard=Dashboard.SAFETY,
        summary="The latency breaker is open, but the scheduler keeps its full policy.",
        description=f"The latency breaker of {WHERE} has opened, and the scheduler still works by its full policy, "
        "although clocktuner may change it. Set the simplified policy by hand; `clocktuner history` tells why the "
        "switch failed.",
        expression=f"{site.latest('latency_breaker_state', state='open')} == 1\n"
        f"and on (cluster, policy)\n{site.latest('scheduler_mode', mode=SchedulerMode.FULL.value)} == 1\n"
        f"and on (cluster, policy)\n{site.latest('mode', mode='auto')} == 1\n"
        f"unless on (cluster, policy)\n{site.latest('paused', by='kill_switch')} == 1",
        for_seconds=180,
        keep_seconds=300,
        absence="ClockTunerGuardStalled",
        example=Example(
            (
                gauge("latency_breaker_state", 0, 1, state="open"),
                gauge("scheduler_mode", 1, 1, mode=SchedulerMode.FULL.value),
                gauge("mode", 1, 1, mode="auto"),
                gauge("paused", 0, 0, by="kill_switch"),
            ),
        ),
    )
    yield Alert(
        name="CircuitBreakerFlapping",
        severity=Severity.WARNING,
        component=Component.LATENCY,
        dashboard=Dashboard.SAFETY,
        summary="The latency breaker opens again and again.",
        description=f"The latency breaker of {WHERE} keeps opening soon after it has closed: the full policy is too "
        "slow for this load. Compare the scheduling latency with its threshold; freeze tuning until the cause is "
        "found.",
        expression=f"{site.latest('latency_breaker_flapping')} == 1",
        for_seconds=120,
        keep_seconds=900,
        absence="ClockTunerGuardStalled",
        example=Example((gauge("latency_breaker_flapping", 0, 1),)),
    )


def _degradation(site: Site) -> Iterator[Alert]:
    too_long = site.thresholds["degraded_seconds"]
    yield Alert(
        name="DegradedModeTooLong",
        severity=Severity.WARNING,
        component=Component.WORKLOAD,
        dashboard=Dashboard.SAFETY,
        summary="Only high-priority work has been served for long.",
        description=f"The scheduler of {WHERE} has served only high-priority work for more than {duration(too_long)}: "
        "all other work stands still. Add capacity, or hold back high-priority work.",
        expression=f"{site.latest('degraded')} == 1",
        for_seconds=too_long,
        keep_seconds=300,
        absence="ClockTunerGuardStalled",
        example=Example((gauge("degraded", 0, 1),)),
    )


def _standstill(site: Site) -> Iterator[Alert]:
    yield Alert(
        name="ChangeBreakerOpen",
        severity=Severity.WARNING,
        component=Component.CHANGES,
        dashboard=Dashboard.SAFETY,
        summary="The change breaker has stopped all changes.",
        description=f"The changes made to {WHERE} did harm, or one could not be undone, so nothing is changed until a "
        "cool-down is over. `clocktuner history` and `clocktuner explain CYCLE` tell which changes, and why.",
        expression=f"{site.latest('change_breaker_state', state='closed')} == 0",
        for_seconds=120,
        keep_seconds=300,
        example=Example((gauge("change_breaker_state", 1, 0, state="closed"),)),
    )
    yield Alert(
        name="TunerFrozen",
        severity=Severity.WARNING,
        component=Component.CHANGES,
        dashboard=Dashboard.SAFETY,
        summary="clocktuner changes nothing until a person says so.",
        description=f"clocktuner of {WHERE} has frozen itself. `clocktuner history` tells why; then say `clocktuner "
        "adopt` or `clocktuner resume`.",
        expression=f"{site.latest('ladder_rung', rung='frozen')} == 1",
        for_seconds=300,
        keep_seconds=300,
        example=Example((gauge("ladder_rung", 0, 1, rung="frozen"),)),
    )


def _states(site: Site) -> Iterator[Alert]:
    for name, state, severity, wait, summary, description in (
        (
            "ConfigInvalid",
            "invalid",
            Severity.WARNING,
            120,
            "The scheduler runs with settings outside their bounds.",
            f"The settings in force in {WHERE} are missing, not to be understood, or outside the bounds of the policy, "
            "and have not been restored yet. Look at them with `clocktuner check --policy FILE`, and find who wrote "
            "them.",
        ),
        (
            "ConfigDriftUnrepaired",
            "lost",
            Severity.WARNING,
            600,
            "The scheduler lost its settings, and they are not restored.",
            f"The scheduler of {WHERE} restarted with other settings than were left in force, and they could not be "
            "restored yet. `clocktuner history` tells why; see whether the scheduler accepts writes.",
        ),
        (
            "SchedulerUnreachableFromTuner",
            "unreadable",
            Severity.WARNING,
            300,
            "clocktuner cannot read the scheduler's settings.",
            f"The scheduler of {WHERE} does not tell its settings, so clocktuner can neither change nor guard them. "
            "Look at the scheduler, at the actuator's address, and at its token.",
        ),
    ):
        yield Alert(
            name=name,
            severity=severity,
            component=Component.SETTINGS,
            dashboard=Dashboard.SAFETY,
            summary=summary,
            description=description,
            expression=f"{site.latest('settings_state', state=state)} == 1",
            for_seconds=wait,
            keep_seconds=300,
            absence="ClockTunerGuardStalled",
            example=Example((gauge("settings_state", 0, 1, state=state),)),
        )


def _writers(site: Site) -> Iterator[Alert]:
    yield Alert(
        name="ConfigContested",
        severity=Severity.WARNING,
        component=Component.SETTINGS,
        dashboard=Dashboard.SAFETY,
        summary="Somebody else sets what clocktuner sets.",
        description=f"A person or another controller has set {COUNT} knobs or modes of {WHERE} within an hour. "
        "clocktuner never undoes that. Find the other writer; say `clocktuner adopt` if the value is meant, or pause "
        "clocktuner.",
        expression=f"{site.increase('contested_total', seconds=3600)} > 0",
        window_seconds=3600,
        example=Example((counter("contested_total", 0, 1),), shown="60"),
    )
    failed = site.increase("heals_total", seconds=1800, result="failed")
    yield Alert(
        name="SelfHealFailing",
        severity=Severity.CRITICAL,
        component=Component.SETTINGS,
        dashboard=Dashboard.SAFETY,
        summary="The scheduler's settings are wrong, and cannot be restored.",
        description=f"Restoring the settings of {WHERE} failed again and again, or was given up: the scheduler runs "
        "with settings that nobody meant. Set known good ones by hand (`clocktuner rollback`), and look at what "
        "refuses them.",
        expression=f"{site.latest('heal_exhausted')} == 1\nor on (cluster, policy)\n"
        f"{failed} > {site.limit('failed_heals')}",
        for_seconds=60,
        keep_seconds=300,
        window_seconds=1800,
        example=Example((gauge("heal_exhausted", 0, 1), counter("heals_total", 0, 0.5, result="failed"))),
    )


def _rates(site: Site) -> Iterator[Alert]:
    window = site.thresholds["harmful_window_seconds"]
    harmful = site.thresholds["harmful_changes"]
    yield Alert(
        name="RollbackRateHigh",
        severity=Severity.WARNING,
        component=Component.CHANGES,
        dashboard=Dashboard.DECISIONS,
        summary="Many changes had to be undone.",
        description=f"{COUNT} changes of {WHERE} were undone within {duration(window)}. See with `clocktuner history` "
        "what they have in common; a twin that does not fit, or a limit that is too tight, shows on the dashboard.",
        # Half a change of slack: increase() extrapolates, and is seldom whole.
        expression=f"{site.increase('rollbacks_total', seconds=window)} > {harmful - 0.5:g}",
        window_seconds=window,
        example=Example((counter("rollbacks_total", 0, 0.05),), shown="7", bad_seconds=7200),
    )
    per_day = site.thresholds["changes_per_day"]
    yield Alert(
        name="RetuneRateHigh",
        severity=Severity.WARNING,
        component=Component.CHANGES,
        dashboard=Dashboard.DECISIONS,
        summary="The settings are changed as often as is allowed.",
        description=f"{COUNT} changes of {WHERE} were tried within a day, of {per_day:g} that are allowed: it may "
        "oscillate. Compare the changes with `clocktuner history`; lengthen the cool-down or widen the smallest gain.",
        expression=f"{site.increase('changes_total', seconds=86_400)} > {per_day - 0.5:g}",
        window_seconds=86_400,
        example=Example((counter("changes_total", 0, 0.2),), shown="40", bad_seconds=10_800),
    )


def _switches(site: Site) -> Iterator[Alert]:
    ten = site.span(600)
    stopped = (
        f"min_over_time({site.series('paused')}[{ten}]) == 1",
        f"min_over_time({site.series('ladder_rung', rung='frozen')}[{ten}]) == 1",
        f"min_over_time({site.series('mode', mode='observe')}[{ten}]) == 1",
    )
    joined = "\n  or on (cluster, policy, job, instance)\n  ".join(
        f"max by (cluster, policy, job, instance) ({part})" for part in stopped
    )
    yield Alert(
        name="TunerChangingWhileStopped",
        severity=Severity.CRITICAL,
        component=Component.CHANGES,
        dashboard=Dashboard.SAFETY,
        summary="Settings were changed although clocktuner was told not to.",
        description=f"{COUNT} changes were made to {WHERE} within ten minutes in which it was paused, frozen, or only "
        "to observe. Stop the process now, keep its journal, and set known good settings by hand.",
        # By instance: what another one did before it stopped does not count.
        expression=f"sum by (cluster, policy) (\n  increase({site.series('changes_total')}[{ten}]) > 0\n"
        f"  and on (cluster, policy, job, instance)\n  (\n  {joined}\n  )\n)",
        window_seconds=600,
        keep_seconds=1800,
        example=Example(
            (counter("changes_total", 0, 1), gauge("paused", 0, 1, by="kill_switch")),
            shown="10",
        ),
    )
    yield Alert(
        name="RollbackDrillFailed",
        severity=Severity.WARNING,
        component=Component.CHANGES,
        dashboard=Dashboard.SAFETY,
        summary="A roll-back drill failed.",
        description=f"{COUNT} roll-back drills of {WHERE} failed within a day: a harmful change might not be undone in "
        "time. Run `clocktuner drill` and see at which step it fails; keep clocktuner in recommend until it passes.",
        expression=f"{site.increase('drills_total', seconds=86_400, result='failed')} > 0",
        window_seconds=86_400,
        example=Example((counter("drills_total", 0, 0.05, result="failed"),), shown="3", bad_seconds=1800),
    )
