"""Rules for a site: thresholds from its policy, its cluster only, and the same bytes again."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tests.support.policies import policy_of
from tests.support.servers import require_program
from tuner import assets
from tuner.alerts.lint.catalogue import lint
from tuner.alerts.lint.promql import parse, selectors
from tuner.alerts.render import quoted, rules_text
from tuner.alerts.shipped import texts, write
from tuner.alerts.site import Site, duration, whole_minutes
from tuner.alerts.thresholds import FASTEST_BURN, THRESHOLDS, parse_override, thresholds
from tuner.cli.alerts import app
from tuner.errors import ConfigError
from tuner.settings.loading import load_policy
from tuner.settings.model import Policy

REFERENCE = assets.folder("policies") / "reference.yaml"

GUARDED: dict[str, dict[str, Any]] = {
    "scheduling_latency_seconds": {"query": "latency", "limit": 2.5},
    "high_priority_wait_seconds": {"query": "wait", "limit": 30.0},
    "task_abandonment_ratio": {"query": "abandoned", "limit": 0.1},
    "node_temperature_celsius": {"query": "heat", "node_label": "node", "limit": 70.0},
}


def policy(**sections: Any) -> Policy:
    return policy_of(GUARDED, **sections)


def rules_of(text: str) -> Mapping[str, Mapping[str, Any]]:
    """Return alerts and recorded series by name; of several rows of one name the last."""
    groups = yaml.safe_load(text)["groups"]
    return {rule.get("alert", rule.get("record")): rule for group in groups for rule in group["rules"]}


def render(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["render", "--policy", str(REFERENCE), *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(
    ("name", "expected", "sections"),
    [
        ("scheduling_latency_seconds", 2.5, {}),
        ("scheduling_latency_seconds", 4.0, {"guard": {"latency_breaker": {"threshold_seconds": 4.0}}}),
        ("high_priority_wait_seconds", 30.0, {}),
        ("high_priority_wait_seconds", 9.0, {"guard": {"degradation": {"max_high_priority_wait_seconds": 9.0}}}),
        ("task_abandonment_ratio", 0.1, {}),
        ("node_temperature_celsius", 70.0, {}),
        ("cycle_stalled_seconds", 150.0, {"cycle": {"period_seconds": 30.0}}),
        ("cycle_failing_seconds", 300.0, {"cycle": {"period_seconds": 30.0}}),
        ("guard_delay_seconds", 20.0, {"guard": {"period_seconds": 20.0}}),
        ("guard_stalled_seconds", 240.0, {"guard": {"period_seconds": 20.0}}),
        ("sample_age_seconds", 99.0, {"cycle": {"max_age_seconds": 99.0}}),
        ("clock_skew_seconds", 7.0, {"source": {"max_clock_skew_seconds": 7.0}}),
        ("harmful_changes", 5.0, {"change_breaker": {"harmful_changes": 5}}),
        ("harmful_window_seconds", 7200.0, {"change_breaker": {"window_seconds": 7200.0}}),
        ("changes_per_day", 3.0, {"control": {"max_changes_per_day": 3}}),
        ("fidelity_ratio", 0.5, {"cycle": {"min_fidelity_ratio": 0.5}}),
    ],
)
def test_a_threshold_is_what_the_policy_acts_on(name: str, expected: float, sections: dict[str, Any]) -> None:
    assert thresholds(policy(**sections))[name] == expected


def test_an_override_takes_the_place_of_what_the_policy_says() -> None:
    assert thresholds(policy(), {"task_abandonment_ratio": 0.3})["task_abandonment_ratio"] == 0.3


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("task_abandonment", 0.1, "did you mean task_abandonment_ratio"),
        ("nonsense", 1.0, "must be one of"),
        ("task_abandonment_ratio", 0.0, "must be over 0"),
        ("latency_objective_ratio", 0.9, r"must be over 0\.9306"),
        ("latency_objective_ratio", 1.0, "at most 0.99999"),
        ("clock_skew_seconds", float("nan"), "must be over 0"),
        ("clock_skew_seconds", float("inf"), "must be over 0"),
    ],
)
def test_an_override_that_makes_no_sense_is_refused_with_a_remedy(name: str, value: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        thresholds(policy(), {name: value})


def test_an_override_is_name_equals_number() -> None:
    assert parse_override("clock_skew_seconds=5") == ("clock_skew_seconds", 5.0)
    for text in ("clock_skew_seconds", "clock_skew_seconds=", "clock_skew_seconds=soon"):
        with pytest.raises(ConfigError, match="must be NAME=NUMBER"):
            parse_override(text)


def test_the_smallest_objective_can_still_be_missed_fast_enough() -> None:
    (row,) = (row for row in THRESHOLDS if row.name == "latency_objective_ratio")

    assert FASTEST_BURN * (1 - row.low) <= 1.0 + 1e-9


def test_an_alert_without_its_threshold_is_left_out_and_the_file_says_so(tmp_path: Path) -> None:
    text = rules_text(Site(thresholds=thresholds(policy_of({}))))

    rules = rules_of(text)
    for name in ("SchedulingLatencyBudgetBurn", "HighPriorityStarvation", "TaskAbandonmentHigh", "NodeTemperatureHigh"):
        assert name not in rules
    assert "CircuitBreakerOpen" in rules
    assert "#   task_abandonment_ratio: the policy sets none" in text


def test_a_changed_limit_changes_the_rule_and_what_it_says() -> None:
    rules = rules_of(rules_text(Site(thresholds=thresholds(policy()))))

    assert rules["TaskAbandonmentHigh"]["expr"].endswith("> 0.1")
    assert "over the limit of 0.1" in rules["TaskAbandonmentHigh"]["annotations"]["description"]
    assert rules["HighPriorityStarvation"]["expr"].endswith("> 30")
    assert "over the 30s that it may" in rules["HighPriorityStarvation"]["annotations"]["description"]


def test_rules_of_a_cluster_look_at_that_cluster_only() -> None:
    text = render("--cluster", "north")

    seen = 0
    for name, rule in rules_of(text).items():
        for selector in selectors(parse(rule["expr"])):
            if not str(selector.name).startswith(("up", "prometheus_", "alertmanager_")):
                matchers = {matcher.name: matcher.value for matcher in selector.matchers.matchers}
                assert (matchers.get("cluster"), matchers.get("policy")) == ("north", "reference"), name
                seen += 1
    assert seen > 50
    assert rules_of(text)["ClockTunerAbsent"]["expr"].startswith('absent(clocktuner_build_info{cluster="north"')


def test_without_a_cluster_they_look_at_the_policys() -> None:
    assert 'cluster="reference", policy="reference"' in render()
    assert 'cluster="' not in render("--every-cluster")


def test_a_name_with_quotes_stays_inside_its_quotes(tmp_path: Path) -> None:
    require_program("promtool")
    output = tmp_path / "rules.yaml"

    render("--cluster", 'no"rth\\', "--job", 'a"b', "--team", "yes", "--output", str(output))

    checked = subprocess.run(
        ["promtool", "check", "rules", "--lint-fatal", str(output)], capture_output=True, timeout=30, check=False
    )
    assert checked.returncode == 0, checked.stderr
    assert rules_of(output.read_text())["CircuitBreakerOpen"]["labels"]["team"] == "yes"


def test_links_begin_with_the_sites_addresses() -> None:
    text = render("--runbook-url", "https://books.example.com/", "--dashboard-url", "https://grafana.example.com/")

    annotations = rules_of(text)["CircuitBreakerOpen"]["annotations"]
    assert annotations["runbook_url"] == "https://books.example.com/CircuitBreakerOpen.md"
    assert annotations["dashboard_url"].startswith("https://grafana.example.com/d/clocktuner-safety?var-cluster=")


def test_a_rehearsal_waits_so_many_times_shorter(tmp_path: Path) -> None:
    output = tmp_path / "rules.yaml"

    render("--speed", "60", "--output", str(output))

    rule = rules_of(output.read_text())["CircuitBreakerOpen"]
    assert (rule["for"], rule["keep_firing_for"]) == ("2s", "5s")
    assert "[5s]" in rule["expr"]
    checked = subprocess.run(["promtool", "check", "rules", "--lint-fatal", str(output)], timeout=30, check=False)
    assert checked.returncode == 0


def test_one_cluster_or_all_but_not_both() -> None:
    result = CliRunner().invoke(app, ["render", "--policy", str(REFERENCE), "--cluster", "n", "--every-cluster"])

    assert isinstance(result.exception, ConfigError)


@pytest.mark.parametrize("threshold", ["task_abandonment_ratio", "no_such=5"])
def test_a_wrong_threshold_is_refused(threshold: str) -> None:
    result = CliRunner().invoke(app, ["render", "--policy", str(REFERENCE), "--threshold", threshold])

    assert isinstance(result.exception, ConfigError)


@pytest.mark.parametrize("arguments", [(), ("--cluster", "north"), ("--speed", "60")])
def test_what_is_rendered_passes_our_own_linter(arguments: tuple[str, ...], tmp_path: Path) -> None:
    output = tmp_path / "rules.yaml"

    render("--runbook-url", "https://books.example.com", "--output", str(output), *arguments)

    # Rehearsals look back for seconds, and wait for less than a scrape.
    allowed = {"promql/rate", "alerts/absent"} if "--speed" in arguments else set()
    assert {finding.check for finding in lint([output])} <= allowed


def test_rendering_and_writing_give_the_same_bytes_again(tmp_path: Path) -> None:
    assert render() == render()

    write(tmp_path)

    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict(texts())


def test_linting_prints_findings_and_exits_with_1(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("groups:\n  - name: g\n    rules:\n      - record: bad\n        expr: sum(a_total)\n")

    result = CliRunner().invoke(app, ["lint", str(bad)])

    assert result.exit_code == 1
    assert f"{bad}:5: [promql/counter] bad: reads the counter a_total" in result.output
    assert f"{bad}:4: [rule/name] bad:" in result.output


def test_linting_good_rules_exits_with_0() -> None:
    shipped = assets.folder("alerts") / "clocktuner.rules.yaml"

    result = CliRunner().invoke(app, ["lint", str(shipped), "--scrape-interval", "30s", "--retention", "15d"])

    assert result.exit_code == 0, result.output


def test_the_options_of_the_linter_reach_the_checks(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "groups:\n  - name: g\n    rules:\n      - record: a:b:rate5m\n"
        "        expr: rate(errors_total[5m]) + increase(errors_total[10d])\n"
    )
    page = tmp_path / "page.txt"
    page.write_text("errors 1\n")

    def checks(*options: str) -> set[str]:
        output = CliRunner().invoke(app, ["lint", str(rules), *options]).output
        return {line.partition("[")[2].partition("]")[0] for line in output.splitlines() if "[" in line}

    assert checks() == set()
    assert checks("--scrape-interval", "5m") == {"promql/rate"}
    assert checks("--retention", "7d") == {"promql/range_query"}
    assert checks("--metrics", str(page)) == {"promql/series"}


def test_a_span_that_is_none_is_refused() -> None:
    result = CliRunner().invoke(app, ["lint", str(REFERENCE), "--retention", "long"])

    assert isinstance(result.exception, ConfigError)


@pytest.mark.parametrize(
    ("seconds", "text"), [(90.0, "1m30s"), (86_400.0, "1d"), (0.5, "500ms"), (0.0001, "1ms"), (5400.0, "1h30m")]
)
def test_spans_are_written_as_prometheus_reads_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "matcher"), [("a", 'x="a"'), ("a|b", 'x=~"a|b"'), ("!a", 'x!="a"'), ("!a|b", 'x!~"a|b"')]
)
def test_matchers_choose_one_either_or_all_others(value: str, matcher: str) -> None:
    assert Site(thresholds={}).matchers(x=value) == f"{{{matcher}}}"
    assert Site(thresholds={}, cluster="n").matchers(x=value) == f'{{cluster="n", {matcher}}}'
    assert Site(thresholds={}).matchers() == ""


def test_minutes_are_rounded_up() -> None:
    assert [whole_minutes(seconds) for seconds in (60.0, 61.0, 0.0)] == [1, 2, 0]


@pytest.mark.parametrize("text", ["on", "No", "1", "a b", "", "x: y", "é", 'say "x"', "plain", "clock-tuner", "null"])
def test_quoted_text_is_read_back_as_it_was(text: str) -> None:
    assert yaml.safe_load(f"key: {quoted(text)}") == {"key": text}


def test_the_reference_policy_has_every_threshold() -> None:
    assert set(thresholds(load_policy(REFERENCE))) == {row.name for row in THRESHOLDS}
