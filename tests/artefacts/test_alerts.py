"""The shipped alerts: current, tested case by case, exported, explained, and routed."""

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from tests.support.servers import require_program
from tuner import assets
from tuner.alerts.catalogue import alerts, groups
from tuner.alerts.examples import CASES, FILES
from tuner.alerts.lint.catalogue import lint
from tuner.alerts.lint.promql import parse, selectors
from tuner.alerts.lint.rules import Options, duration_seconds
from tuner.alerts.lint.selecting import EXPORTED
from tuner.alerts.render import labels
from tuner.alerts.rows import DERIVED, Alert, Component, Dashboard, Severity
from tuner.alerts.shipped import site, texts
from tuner.cli.app import app
from tuner.record.families import FAMILIES, Kind

FOLDER = assets.folder("alerts")
RUNBOOKS = FOLDER.parent / "docs" / "runbooks"
RULES: dict[str, Any] = yaml.safe_load((FOLDER / "clocktuner.rules.yaml").read_text(encoding="utf-8"))
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule]
RECORDED = {rule["record"] for group in RULES["groups"] for rule in group["rules"] if "record" in rule}
ROWS = list(alerts(groups(site())))
NAMES = sorted({rule["alert"] for rule in ALERTS})
MANAGER = FOLDER / "alertmanager.example.yaml"
ROUTING: dict[str, Any] = yaml.safe_load(MANAGER.read_text(encoding="utf-8"))

FOREIGN = {
    "up",
    "prometheus_rule_evaluation_failures_total",
    "prometheus_rule_group_iterations_missed_total",
    "prometheus_notifications_sent_total",
    "prometheus_notifications_errors_total",
    "alertmanager_notifications_total",
    "alertmanager_notifications_failed_total",
}
"""Series that Prometheus and Alertmanager export of themselves."""

REQUIRED = {
    *("ClockTunerDown", "ClockTunerAbsent", "ClockTunerLoopStalled", "PrometheusUnreachableFromTuner"),
    *("SchedulerMetricMissing", "SchedulerMetricStale", "SchedulingLatencyBudgetBurn", "HighPriorityStarvation"),
    *("QueueGrowingWithoutBound", "CircuitBreakerOpen", "CircuitBreakerFlapping", "DegradedModeTooLong"),
    *("RollbackRateHigh", "ConfigContested", "ConfigDriftUnrepaired", "ConfigInvalid", "SelfHealFailing"),
    *("RetuneRateHigh", "ParameterAtBound", "ForecastErrorHigh", "TunerNotImproving", "OptunaTrialsFailing"),
    *("TunerPaused", "TunerDryRun", "ConfigChanged", "Watchdog", "RuleFailures", "NotificationsFailing"),
    *("ClockSkew", "KillSwitchActive", "HoldingLastSettings"),
}
"""Those that an operator counts on."""

STATES = re.compile(r"(== [01]|unless on [^\n]+\n.*)$")
"""What a condition that is true or false ends with: its value tells nothing."""


def identity(rule: Mapping[str, Any]) -> str:
    return f"{rule['alert']} {rule['labels'].get('window', '')}".strip()


def run(*argv: str | Path, folder: Path = FOLDER) -> "subprocess.CompletedProcess[str]":
    require_program(str(argv[0]))
    return subprocess.run(list(map(str, argv)), capture_output=True, text=True, timeout=180, check=False, cwd=folder)


def test_the_shipped_files_are_what_the_code_writes() -> None:
    shipped = {name: (FOLDER / name).read_text(encoding="utf-8") for name in texts()}

    assert shipped == dict(texts()), "run: python -m tuner.alerts"


def test_prometheus_takes_the_rules() -> None:
    checked = run("promtool", "check", "rules", "--lint-fatal", "clocktuner.rules.yaml")

    assert checked.returncode == 0, checked.stderr
    assert f"{len(ALERTS) + len(RECORDED)} rules found" in checked.stdout


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", [file.name for file in FILES])
def test_every_case_of_every_alert_passes(name: str) -> None:
    tested = run("promtool", "test", "rules", name)

    assert tested.returncode == 0, tested.stdout[-4000:]


def test_every_alert_has_all_its_cases_and_they_expect_what_they_say() -> None:
    wanted = {
        f"{alert.name}{''.join(f', {k} {v}' for k, v in alert.labels.items())}: {case}"
        for alert in ROWS
        for case in CASES
    }
    found: dict[str, bool] = {}
    for file in FILES:
        for test in yaml.safe_load((FOLDER / file.name).read_text(encoding="utf-8"))["tests"]:
            checks = [check["exp_alerts"] for check in test.get("alert_rule_test", ())]
            checks += [check["exp_samples"] for check in test.get("promql_expr_test", ())]
            assert test["name"] not in found
            assert len(checks) == 1
            found[test["name"]] = bool(checks[0])

    assert found.keys() == wanted
    for name, expects in found.items():
        if name.endswith(": fires"):
            assert expects, name
        if name.endswith((": is quiet", ": is resolved", ": NaN")):
            assert expects == name.startswith("Watchdog"), name


def test_what_an_operator_counts_on_is_there() -> None:
    assert set(NAMES) >= REQUIRED
    burns = [rule for rule in ALERTS if rule["alert"] == "SchedulingLatencyBudgetBurn"]
    assert [rule["labels"]["window"] for rule in burns] == ["1h", "6h", "1d", "3d"]


@pytest.mark.parametrize("rule", ALERTS, ids=identity)
def test_every_metric_that_an_alert_names_is_exported_with_that_label(rule: dict[str, Any]) -> None:
    for selector in selectors(parse(rule["expr"])):
        name = str(selector.name)
        if name in RECORDED or name in FOREIGN:
            continue
        assert name in EXPORTED, f"{name} is in an alert, but nobody exports it"
        labels_known = {*EXPORTED[name].labels, "cluster", "policy", "job", "instance", "le"}
        assert {matcher.name for matcher in selector.matchers.matchers} <= labels_known


def test_what_rules_record_is_made_of_what_is_exported_and_read_by_an_alert() -> None:
    recordings = [rule for group in RULES["groups"] for rule in group["rules"] if "record" in rule]

    for rule in recordings:
        for selector in selectors(parse(rule["expr"])):
            assert selector.name in EXPORTED.keys() | FOREIGN | RECORDED
    read = {selector.name for rule in ALERTS for selector in selectors(parse(rule["expr"]))}
    assert read >= RECORDED


def test_the_states_that_matter_are_all_watched() -> None:
    """A gauge that tells of a bad state, and no alert on it, is a state that nobody hears of."""
    read = {str(selector.name) for rule in ALERTS for selector in selectors(parse(rule["expr"]))}
    watched = {"latency_breaker_state", "latency_breaker_flapping", "degraded", "settings_state", "heal_exhausted"}
    watched |= {"change_breaker_state", "ladder_rung", "paused", "source_up"}

    assert {f"clocktuner_{name}" for name in watched} <= read
    assert watched <= {spec.name for spec in FAMILIES if spec.kind is Kind.GAUGE}


@pytest.mark.parametrize("rule", ALERTS, ids=identity)
def test_an_alert_tells_a_person_what_where_how_bad_and_what_to_do(rule: dict[str, Any]) -> None:
    told = rule["annotations"]
    assert rule["labels"].keys() >= {"severity", "component", "team"}
    assert rule["labels"]["severity"] in set(Severity)
    assert rule["labels"]["component"] in set(Component)
    assert told.keys() == {"summary", "description", "runbook_url", "dashboard_url"}
    assert len(told["summary"]) <= 80
    assert "{{" not in told["summary"]
    assert told["summary"].endswith(".")
    assert 80 <= len(told["description"]) <= 420
    if rule["labels"]["component"] != "alerting":
        assert "$labels.cluster" in told["description"]
        if not STATES.search(rule["expr"]) and "absent(" not in rule["expr"] and rule["alert"] != "SelfHealFailing":
            assert "$value" in told["description"]
    for template in re.findall(r"\{\{ \$value (.*?) \}\}", told["description"]):
        assert template in {"| humanizeDuration", "| humanizePercentage", "| humanize", '| printf "%.0f"'}


@pytest.mark.parametrize("rule", ALERTS, ids=identity)
def test_an_alert_links_to_its_runbook_and_to_a_dashboard_that_exists(rule: dict[str, Any]) -> None:
    told = rule["annotations"]

    assert (FOLDER.parent / told["runbook_url"]).is_file()
    uid = told["dashboard_url"].partition("?")[0].rpartition("/d/")[2]
    assert uid in set(Dashboard)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.name} {row.labels.get('window', '')}".strip())
def test_an_alert_waits_or_looks_at_a_window_and_its_absence_is_told(row: Alert) -> None:
    if row.severity is Severity.NONE:
        return

    assert row.for_seconds or row.window_seconds
    assert row.absence in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_has_a_runbook_for_the_night(name: str) -> None:
    text = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")

    assert text.startswith(f"# {name}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Meaning", "Impact", "Diagnosis", "Mitigation"]
    for section in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]:
        assert len(section.strip()) >= 30
    assert max(map(len, text.splitlines())) <= 125
    assert len(text) < 2500, "too long to be read at night"


def test_no_runbook_is_left_behind_and_the_index_lists_all() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == {*NAMES, "README"}
    linked = re.findall(r"\]\((\w+)\.md\)", (RUNBOOKS / "README.md").read_text(encoding="utf-8"))
    assert sorted(linked) == NAMES


def test_every_command_that_alerts_and_runbooks_name_exists_with_its_options() -> None:
    told = [path.read_text(encoding="utf-8") for path in RUNBOOKS.glob("*.md")]
    told += [rule["annotations"]["description"] for rule in ALERTS]

    named = {line for text in told for line in re.findall(r"`clocktuner ([^`]+)`", text)}

    assert len(named) > 10
    for line in named:
        command: Any = get_command(app)
        for word in line.split():
            if word in getattr(command, "commands", {}):
                command = command.commands[word]
            elif word.startswith("--"):
                assert word in {option for parameter in command.params for option in parameter.opts}, line
        assert not getattr(command, "commands", {}), f"clocktuner {line} is no command"


def test_our_own_linter_has_nothing_to_say() -> None:
    assert [str(finding) for finding in lint([FOLDER / "clocktuner.rules.yaml"])] == []


def test_no_alert_of_clocktuners_own_loses_cluster_and_policy() -> None:
    found = lint([FOLDER / "clocktuner.rules.yaml"], Options(keep_labels=frozenset({"cluster", "policy"})))

    alerting = {rule["alert"] for rule in ALERTS if rule["labels"]["component"] == "alerting"}
    assert {finding.rule for finding in found} <= alerting


# Alertmanager.


def routes_to(**told: str) -> str:
    pairs = [f"{name}={value}" for name, value in told.items()]
    found = run("amtool", "config", "routes", "test", f"--config.file={MANAGER.name}", *pairs)
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def test_alertmanager_takes_the_example() -> None:
    checked = run("amtool", "check-config", MANAGER.name)

    assert checked.returncode == 0, checked.stderr
    assert "1 templates" in checked.stdout


RECEIVERS = {
    "critical": "pager",
    "warning": "chat",
    "info": "digest",
    "none": "nobody",
}
TUNING = {Component.CHANGES, Component.FORECAST, Component.SETTINGS}


@pytest.mark.parametrize("component", list(Component))
@pytest.mark.parametrize("severity", list(Severity))
def test_every_severity_of_every_component_has_its_way(severity: Severity, component: Component) -> None:
    expected = RECEIVERS[severity]
    if component is Component.ALERTING and severity is not Severity.NONE:
        expected = "chat-and-mail"
    elif severity is Severity.WARNING and component in TUNING:
        expected = "tuning"

    found = run(
        *("amtool", "config", "routes", "test", f"--config.file={MANAGER.name}", f"--verify.receivers={expected}"),
        *(f"severity={severity}", f"component={component}", "cluster=north", "policy=main", "alertname=X"),
    )

    assert found.returncode == 0, found.stdout + found.stderr


def test_every_alert_but_for_the_watchdog_reaches_somebody() -> None:
    for told in {tuple(sorted(labels(site(), row).items())) for row in ROWS if row.name != "Watchdog"}:
        assert routes_to(**dict(told)) not in {"nobody", "dead-man"}


def test_the_dead_man_switch_repeats_just_under_its_group_interval() -> None:
    assert routes_to(alertname="Watchdog", severity="none", component="alerting", team="scheduling") == "dead-man"
    (route,) = (route for route in ROUTING["route"]["routes"] if route["receiver"] == "dead-man")
    interval, repeat = (duration_seconds(route[key]) for key in ("group_interval", "repeat_interval"))
    assert interval is not None
    assert repeat is not None
    assert 0.9 * interval <= repeat < interval
    (receiver,) = (receiver for receiver in ROUTING["receivers"] if receiver["name"] == "dead-man")
    assert all(hook["send_resolved"] is False for hook in receiver["webhook_configs"])


def test_inhibition_rests_on_labels_that_only_our_alerts_have() -> None:
    for rule in ROUTING["inhibit_rules"]:
        assert 'policy =~ ".+"' in rule["source_matchers"]
        assert 'policy =~ ".+"' in rule["target_matchers"]
        assert {"cluster", "policy"} <= set(rule["equal"])


def test_inhibition_names_alerts_and_components_that_exist() -> None:
    text = json.dumps(ROUTING["inhibit_rules"] + ROUTING["route"]["routes"])

    for quoted in re.findall(r'alertname =~? \\"([^"]+)\\"', text):
        assert set(quoted.split("|")) <= set(NAMES)
    for quoted in re.findall(r'component =~? \\"([^"]+)\\"', text):
        assert set(quoted.split("|")) <= set(Component)
    down = next(rule for rule in ROUTING["inhibit_rules"] if "ClockTunerDown" in rule["source_matchers"][0])
    (components,) = re.findall(r'component =~ "([^"]+)"', " ".join(down["target_matchers"]))
    assert set(components.split("|")) == set(DERIVED)


@pytest.mark.parametrize(
    ("silencing", "silenced"),
    [
        ("SchedulingLatencyBudgetBurn", "CircuitBreakerOpen"),
        ("SchedulingLatencyBudgetBurn", "CircuitBreakerFlapping"),
        ("HighPriorityStarvation", "DegradedModeTooLong"),
        ("HighPriorityStarvation", "TaskAbandonmentHigh"),
        ("ClockTunerGuardStalled", "ClockTunerGuardLate"),
        ("ClockTunerDown", "ClockTunerNoCycle"),
        ("SelfHealFailing", "ConfigDriftUnrepaired"),
    ],
)
def test_the_alert_that_silences_comes_first_and_leaves_last(silencing: str, silenced: str) -> None:
    """Where one cause raises both, the more severe one waits no longer and stays no shorter: else both are sent."""
    first, second = (next(row for row in ROWS if row.name == name) for name in (silencing, silenced))

    assert first.component is second.component
    assert (first.severity, second.severity) == (Severity.CRITICAL, Severity.WARNING)
    assert first.for_seconds <= second.for_seconds
    assert first.keep_seconds >= second.keep_seconds


def test_groups_wait_for_longer_than_an_evaluation() -> None:
    assert (duration_seconds(ROUTING["route"]["group_wait"]) or 0) > 30  # Two evaluations at the usual 15 s.


def test_secrets_stay_in_files() -> None:
    text = MANAGER.read_text(encoding="utf-8")

    for key in ("api_url", "smtp_auth_password", "password", "bearer_token", "credentials"):
        assert not re.search(rf"^\s*-?\s*{key}:", text, re.MULTILINE), key


DATA: dict[str, Any] = {
    "receiver": "chat",
    "status": "firing",
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "CircuitBreakerOpen", "severity": "warning"},
            "annotations": {
                "summary": "The breaker has opened.",
                "description": "It was <slow> & long.",
                "runbook_url": "https://books.example.com/CircuitBreakerOpen.md",
                "dashboard_url": "https://grafana.example.com/d/clocktuner-safety",
            },
            "startsAt": "2026-01-05T10:00:00Z",
            "endsAt": "0001-01-01T00:00:00Z",
        },
        {
            "status": "resolved",
            "labels": {"alertname": "TunerPaused", "severity": "warning"},
            "annotations": {"summary": "It was paused."},
            "startsAt": "2026-01-05T09:00:00Z",
            "endsAt": "2026-01-05T09:30:00Z",
        },
    ],
    "groupLabels": {},
    "commonLabels": {"severity": "warning", "component": "latency", "cluster": "north"},
    "commonAnnotations": {},
    "externalURL": "http://am.example.com",
}


def rendered(template: str, tmp_path: Path, *, kind: str = "text", data: dict[str, Any] | None = None) -> str:
    (tmp_path / "data.json").write_text(json.dumps(data or DATA))
    found = run(
        *("amtool", "template", "render", "--template.glob=templates/*.tmpl", f"--template.type={kind}"),
        *(f'--template.text={{{{ template "{template}" . }}}}', f"--template.data={tmp_path / 'data.json'}"),
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_a_title_tells_status_severity_subject_and_cluster(tmp_path: Path) -> None:
    one = {**DATA, "alerts": DATA["alerts"][:1]}
    one["commonLabels"] = {**DATA["commonLabels"], "alertname": "CircuitBreakerOpen"}

    assert rendered("clocktuner.title", tmp_path) == "[WARNING] latency on north"
    assert rendered("clocktuner.title", tmp_path, data=one) == "[WARNING] CircuitBreakerOpen on north"
    assert rendered("clocktuner.title", tmp_path, data={**DATA, "status": "resolved"}) == "[RESOLVED] latency on north"


@pytest.mark.parametrize("template", ["clocktuner.text", "clocktuner.mail.text", "clocktuner.mail.html"])
def test_a_message_tells_what_since_when_and_what_to_do(template: str, tmp_path: Path) -> None:
    kind = "html" if template.endswith("html") else "text"

    text = rendered(template, tmp_path, kind=kind)

    assert "The breaker has opened." in text
    assert "2026-01-05 10:00 UTC" in text
    assert "https://books.example.com/CircuitBreakerOpen.md" in text
    assert "https://grafana.example.com/d/clocktuner-safety" in text
    assert "It was paused. (09:00 to 09:30 UTC)" in text
    assert ("It was &lt;slow&gt; &amp; long." if kind == "html" else "It was <slow> & long.") in text


@pytest.mark.parametrize(
    ("status", "severity", "colour"),
    [("firing", "critical", "danger"), ("firing", "warning", "warning"), ("resolved", "critical", "good")],
)
def test_colours_follow_severity(status: str, severity: str, colour: str, tmp_path: Path) -> None:
    data = {**DATA, "status": status, "commonLabels": {"severity": severity}}

    assert rendered("clocktuner.color", tmp_path, data=data) == colour


def test_every_template_that_the_example_names_is_defined() -> None:
    defined = re.findall(r'define "([^"]+)"', (FOLDER / "templates" / "clocktuner.tmpl").read_text(encoding="utf-8"))
    named = re.findall(r'template "([^"]+)"', MANAGER.read_text(encoding="utf-8"))

    assert set(named) == set(defined)
