"""Do alerts arrive at all? Rules that fail, notifications that fail, and a switch that must never be silent."""

from collections.abc import Iterator

from tuner.alerts.rows import (
    COUNT,
    RATIO,
    Alert,
    Component,
    Dashboard,
    Example,
    Group,
    Input,
    Rate,
    Severity,
)
from tuner.alerts.site import Site


def groups(site: Site) -> Iterator[Group]:
    """Yield the rules about the rules."""
    yield Group("clocktuner-alerting", (), (*_switch(site), *_rules(site), *_notifications(site)))


def _switch(_: Site) -> Iterator[Alert]:
    yield Alert(
        name="Watchdog",
        severity=Severity.NONE,
        component=Component.ALERTING,
        dashboard=Dashboard.OVERVIEW,
        summary="Alerts arrive.",
        description="This alert always fires. Send it to a dead-man switch, which speaks up when it no longer comes: "
        "then Prometheus, Alertmanager or the way between them is broken.",
        expression="vector(1)",
        absence="",
        example=Example((), bare=True, always=True),
    )


def _rules(site: Site) -> Iterator[Alert]:
    window = site.span(600)
    group = 'rule_group=~".*;clocktuner-.*"'
    failures = "prometheus_rule_evaluation_failures_total"
    missed = "prometheus_rule_group_iterations_missed_total"
    rules = {"job": "prometheus", "instance": "prom:9090", "rule_group": "clocktuner.rules.yaml;clocktuner-latency"}
    yield Alert(
        name="RuleFailures",
        severity=Severity.WARNING,
        component=Component.ALERTING,
        dashboard=Dashboard.SIDECAR,
        summary="Prometheus cannot evaluate clocktuner's rules.",
        description=f"{COUNT} evaluations of {{{{ $labels.rule_group }}}} at {{{{ $labels.instance }}}} failed or were "
        "missed within ten minutes: its alerts may stay silent. See the Rules page of Prometheus.",
        expression=f"sum by (job, instance, rule_group) (increase({failures}{{{group}}}[{window}])) > 0\n"
        f"or\nsum by (job, instance, rule_group) (increase({missed}{{{group}}}[{window}])) > 0",
        window_seconds=600,
        keep_seconds=600,
        absence="Watchdog",
        example=Example((Input(failures, Rate(0), Rate(1), rules, bare=True),), shown="10", labels=rules, bare=True),
    )


def _notifications(site: Site) -> Iterator[Alert]:
    quarter = site.span(900)
    sent, errors = "alertmanager_notifications_total", "alertmanager_notifications_failed_total"
    delivered, lost = "prometheus_notifications_sent_total", "prometheus_notifications_errors_total"
    manager = {"job": "alertmanager", "instance": "am:9093", "integration": "webhook"}
    yield Alert(
        name="NotificationsFailing",
        severity=Severity.WARNING,
        component=Component.ALERTING,
        dashboard=Dashboard.SIDECAR,
        summary="Notifications about alerts do not get through.",
        description=f"{RATIO} of what {{{{ $labels.job }}}} at {{{{ $labels.instance }}}} sends gets lost, over a "
        "quarter of an hour: alerts may reach nobody. See its log; until then, watch the Alerts page of Prometheus.",
        expression=f"sum by (job, instance, integration) (increase({errors}[{quarter}]))\n"
        f"/ (sum by (job, instance, integration) (increase({sent}[{quarter}])) > 0) > 0.01\n"
        f"or\nsum by (job, instance) (increase({lost}[{quarter}]))\n"
        f"/ (sum by (job, instance) (increase({delivered}[{quarter}])) > 0) > 0.01",
        window_seconds=900,
        keep_seconds=600,
        absence="Watchdog",
        example=Example(
            (Input(sent, Rate(4), Rate(4), manager, bare=True), Input(errors, Rate(0), Rate(1), manager, bare=True)),
            shown="25%",
            labels=manager,
            bare=True,
        ),
    )
