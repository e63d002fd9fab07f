"""The linter of rules: each check finds what it is for, and leaves good rules alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tuner.alerts.lint.catalogue import CHECKS, lint
from tuner.alerts.lint.pages import read_names
from tuner.alerts.lint.rules import Finding, Options, duration_seconds, read_rules
from tuner.errors import ConfigError

SOUND: dict[str, Any] = {
    "alert": "ErrorsHigh",
    "expr": "sum by (cluster) (rate(errors_total[5m])) > 1",
    "labels": {"severity": "warning"},
    "annotations": {"summary": "Errors.", "description": "See.", "runbook_url": "https://books.example.com/ErrorsHigh"},
}


def alert(expression: str, **changes: Any) -> dict[str, Any]:
    return {**SOUND, "expr": expression, **changes}


def record(expression: str, *, name: str = "cluster:errors:rate5m", **changes: Any) -> dict[str, Any]:
    return {"record": name, "expr": expression, **changes}


def annotated(**changes: str) -> dict[str, Any]:
    return {**SOUND, "annotations": {**SOUND["annotations"], **changes}}


def linted(folder: Path, rules: Sequence[dict[str, Any]], options: Options | None = None) -> tuple[Finding, ...]:
    path = folder / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": list(rules)}]}, sort_keys=False))
    return lint([path], options)


OPTIONS = Options(external_labels=frozenset({"site"}), keep_labels=frozenset({"cluster"}))

BAD: dict[str, list[list[dict[str, Any]]]] = {
    "promql/syntax": [[alert("sum(")], [alert("rate(errors_total) > 1")], [alert("no_such_function(a) > 1")]],
    "alerts/absent": [
        [alert('absent(up{job="x", cluster="n"})')],
        [alert('absent(up{job="x", cluster="n"})', **{"for": "1m"})],
    ],
    "alerts/annotation": [[{**SOUND, "annotations": {"summary": "x"}}], [annotated(description="  ")]],
    "alerts/comparison": [
        [alert("rate(errors_total[5m])")],
        [alert("rate(errors_total[5m]) > bool 1")],
        [alert("sum by (cluster) (rate(errors_total[5m])) and on (cluster) ready")],
    ],
    "alerts/count": [[alert("sum by (cluster, job_id) (rate(errors_total[5m])) > 1")]],
    "alerts/external_labels": [[annotated(description="In {{ $externalLabels.region }}")]],
    "alerts/for": [
        [alert("temperature > 5")],
        [alert("temperature > 5", **{"for": "5 minutes"})],
        [alert("temperature > 5", **{"for": "0s"})],
        [alert("temperature > 5", **{"for": "5m", "keep_firing_for": "a while"})],
    ],
    "alerts/template": [
        [annotated(description="{{ $labels.instance }} is down")],
        [annotated(description="{{ $labels.cluster")],
        [{**SOUND, "labels": {"severity": "warning", "value": "{{ $value }}"}}],
        [annotated(summary="{{ $value }} errors")],
    ],
    "labels/conflict": [
        [{**SOUND, "labels": {"severity": "warning", "alertname": "x"}}],
        [{**SOUND, "labels": {"severity": "warning", "site": "x"}}],
    ],
    "promql/aggregate": [
        [alert("sum(rate(errors_total[5m])) > 1")],
        [alert("sum by (job) (rate(errors_total[5m])) > 1")],
        [alert("sum without (cluster) (rate(errors_total[5m])) > 1")],
        [record("sum by (job) (rate(errors_total[5m]))"), alert("cluster:errors:rate5m > 1")],
    ],
    "promql/counter": [
        [alert("errors_total > 5", **{"for": "5m"})],
        [alert("max_over_time(errors_total[5m]) > 5")],
        [record("sum by (cluster) (latency_seconds_bucket)")],
    ],
    "promql/fragile": [
        [alert("topk(3, rate(errors_total[5m])) > 1")],
        [alert("sum without (pod) (rate(a_total[5m])) / (sum without (pod) (rate(b_total[5m])) > 0) > 1")],
    ],
    "promql/impossible": [
        [alert("vector(1) > 2")],
        [alert("rate(errors_total[5m]) > 5 and rate(errors_total[5m]) < 3")],
        [alert("rate(errors_total[5m]) > 5 and rate(errors_total[5m]) == 5")],
        [alert("rate(errors_total[5m]) > 5 and rate(errors_total[5m]) < 5")],
    ],
    "promql/nan": [
        [alert("rate(errors_total[5m]) / rate(requests_total[5m]) > 0.1")],
        [alert("rate(errors_total[5m]) / (rate(requests_total[5m]) > bool 0) > 0.1")],
        [alert("rate(errors_total[5m]) / (rate(requests_total[5m]) >= 0) > 0.1")],
        [alert("rate(errors_total[5m]) / 0 > 0.1")],
        [record("a / (b > 0 or c)", name="cluster:a:ratio")],
    ],
    "promql/range_query": [[alert("increase(errors_total[30d]) > 1")], [alert("max_over_time(errors[20d:1h]) > 1")]],
    "promql/rate": [
        [alert("rate(errors_total[1m]) > 1")],
        [alert("rate(temperature[5m]) > 1")],
        [alert("deriv(errors_total[5m]) > 1")],
        [alert("rate(sum(errors_total)[5m:1m]) > 1")],
    ],
    "promql/regexp": [
        [alert('rate(errors_total{code=~"500"}[5m]) > 1')],
        [alert('rate(errors_total{code=~".*"}[5m]) > 1')],
        [alert('rate(errors_total{code=~"^5..$"}[5m]) > 1')],
    ],
    "promql/selector": [
        [alert("up == 0", **{"for": "5m"})],
        [alert('{job="x"} > 1', **{"for": "5m"})],
    ],
    "promql/series": [
        [alert("clocktuner_paussed == 1", **{"for": "5m"})],
        [alert('clocktuner_latency_breaker_state{state="opened"} == 1', **{"for": "5m"})],
        [alert("cluster:never:recorded > 1")],
    ],
    "promql/vector_matching": [
        [alert("sum by (cluster) (rate(a_total[5m])) > sum by (job) (rate(b_total[5m]))")],
        [alert("sum by (cluster) (rate(a_total[5m])) > on (job) sum by (cluster, job) (rate(b_total[5m]))")],
    ],
    "rule/dependency": [[alert("cluster:errors:rate5m > 1"), record("sum by (cluster) (rate(errors_total[5m]))")]],
    "rule/duplicate": [
        [SOUND, SOUND],
        [record("sum by (cluster) (a)"), record("sum by (cluster) (b)")],
        [SOUND, alert("sum by (cluster) (rate(errors_total[5m])) > 2")],
    ],
    "rule/label": [[{**SOUND, "labels": {}}], [{**SOUND, "labels": {"severity": "urgent"}}]],
    "rule/link": [
        [annotated(runbook_url="docs/NoSuchBook.md")],
        [annotated(runbook_url="ftp://books/x")],
        [annotated(dashboard_url="https:///d/x")],
    ],
    "rule/name": [
        [{**SOUND, "alert": "errors_high"}],
        [record("sum by (cluster) (a)", name="errors_5m")],
    ],
    "rule/for": [[alert("temperature > 5", **{"for": "2d"})]],
}

GOOD: dict[str, list[list[dict[str, Any]]]] = {
    "promql/syntax": [[SOUND]],
    "alerts/absent": [[alert('absent(up{job="x", cluster="n"})', **{"for": "2m"})]],
    "alerts/annotation": [[SOUND], [record("sum by (cluster) (a)")]],
    "alerts/comparison": [
        [alert("vector(1)")],
        [alert("a unless on (cluster) b", **{"for": "5m"})],
        [alert('absent(a{cluster="n"})', **{"for": "5m"})],
        [alert("(sum by (cluster) (rate(a_total[5m])) > bool 1) == 1")],
    ],
    "alerts/count": [[alert("count by (cluster) (rate(errors_total[5m]) > 1) > 3")]],
    "alerts/external_labels": [[annotated(description="In {{ $externalLabels.site }}")]],
    "alerts/for": [
        [alert("temperature > 5", **{"for": "1h30m", "keep_firing_for": "5m"})],
        [record("sum by (cluster) (rate(errors_total[5m]))"), alert("cluster:errors:rate5m > 1")],
    ],
    "alerts/template": [
        [annotated(description="{{ $labels.cluster }} has {{ $value | humanize }}, {{ $labels.severity }}")],
        [alert("temperature > 5", **{"for": "5m", "annotations": {**SOUND["annotations"], "x": "{{ $labels.any }}"}})],
        [
            alert(
                "a * on (job, cluster) group_left (owner) b > 1",
                **{"for": "5m", "annotations": {**SOUND["annotations"], "x": "{{ $labels.owner }}"}},
            )
        ],
        [
            alert(
                'absent(up{job="x", cluster="n"})',
                **{"for": "5m", "annotations": {**SOUND["annotations"], "x": "{{ $labels.job }}"}},
            )
        ],
        [
            alert(
                'label_replace(sum by (cluster) (rate(a_total[5m])), "area", "$1", "cluster", "(.*)") > 1',
                annotations={**SOUND["annotations"], "x": "{{ $labels.area }}"},
            )
        ],
    ],
    "labels/conflict": [[{**SOUND, "labels": {"severity": "warning", "team": "x"}}]],
    "promql/aggregate": [
        [SOUND],
        [alert("max without (pod) (rate(errors_total[5m])) > 1")],
        [record("sum by (cluster) (rate(errors_total[5m]))"), alert("cluster:errors:rate5m > 1")],
        [alert("vector(1)", labels={"severity": "none", "cluster": "all"})],
    ],
    "promql/counter": [
        [alert("increase(errors_total[5m]) > 5")],
        [alert('absent(errors_total{cluster="n"})', **{"for": "5m"})],
        [alert("count by (cluster) (errors_total) > 5", **{"for": "5m"})],
    ],
    "promql/fragile": [[record("topk by (cluster) (3, errors)")], [SOUND]],
    "promql/impossible": [
        [alert("rate(errors_total[5m]) > 3 and rate(errors_total[5m]) < 5")],
        [alert("rate(errors_total[5m]) > 5 and rate(faults_total[5m]) < 3")],
        [alert("rate(errors_total[5m]) >= 5 and rate(errors_total[5m]) == 5")],
    ],
    "promql/nan": [
        [alert("rate(errors_total[5m]) / (rate(requests_total[5m]) > 0) > 0.1")],
        [alert("rate(errors_total[5m]) / clamp_min(rate(requests_total[5m]), 0.1) > 0.1")],
        [alert("rate(errors_total[5m]) / 60 > 0.1")],
        [alert("rate(errors_total[5m]) / count by (cluster) (nodes) > 0.1")],
        [alert("rate(errors_total[5m]) / ((a > 0) * 2) > 0.1")],
        [alert("rate(errors_total[5m]) / sum by (cluster) (a != 0) > 0.1")],
    ],
    "promql/range_query": [[alert("increase(errors_total[7d]) > 1")]],
    "promql/rate": [
        [alert("rate(latency_seconds_count[2m]) > 1")],
        [alert("deriv(temperature[5m]) > 1")],
        [alert("max_over_time(rate(errors_total[5m])[1h:]) > 1")],
    ],
    "promql/regexp": [[alert('rate(errors_total{code=~"5..|429"}[5m]) > 1')]],
    "promql/selector": [
        [alert('up{job="x"} == 0', **{"for": "5m"})],
        [alert('{__name__="temperature"} > 1', **{"for": "5m"})],
    ],
    "promql/series": [
        [alert('clocktuner_latency_breaker_state{state="open"} == 1', **{"for": "5m"})],
        [alert("rate(clocktuner_cycle_duration_seconds_sum[5m]) > 1")],
        [record("sum by (cluster) (rate(errors_total[5m]))"), alert("cluster:errors:rate5m > 1")],
    ],
    "promql/vector_matching": [
        [alert("sum by (cluster) (rate(a_total[5m])) > sum by (cluster) (rate(b_total[5m]))")],
        [alert("sum by (cluster, job) (rate(a_total[5m])) > on (cluster) sum by (cluster) (rate(b_total[5m]))")],
        [alert("sum by (cluster) (rate(a_total[5m])) > 1 or sum by (cluster, job) (rate(b_total[5m])) > 1")],
    ],
    "rule/dependency": [[record("sum by (cluster) (rate(errors_total[5m]))"), alert("cluster:errors:rate5m > 1")]],
    "rule/duplicate": [
        [SOUND, {**SOUND, "labels": {"severity": "critical"}}],
        [record("sum by (cluster) (a)"), record("sum by (cluster) (b)", labels={"of": "b"})],
    ],
    "rule/label": [[SOUND]],
    "rule/link": [
        [annotated(runbook_url="books/ErrorsHigh.md#diagnosis")],
        [annotated(dashboard_url="/d/uid?var-cluster={{ $labels.cluster }}")],
    ],
    "rule/name": [[SOUND], [record("sum by (cluster) (a)")]],
    "rule/for": [[alert("temperature > 5", **{"for": "12h"})]],
}


def cases(table: dict[str, list[list[dict[str, Any]]]]) -> list[Any]:
    return [
        pytest.param(check, rules, id=f"{check}-{number}")
        for check, examples in table.items()
        for number, rules in enumerate(examples)
    ]


@pytest.mark.parametrize(("check", "rules"), cases(BAD))
def test_a_check_finds_what_it_is_for(check: str, rules: list[dict[str, Any]], tmp_path: Path) -> None:
    found = [finding for finding in linted(tmp_path, rules, OPTIONS) if finding.check == check]

    assert found
    for finding in found:
        assert finding.message
        assert finding.remedy
        assert finding.line > 1


@pytest.mark.parametrize(("check", "rules"), cases(GOOD))
def test_a_check_leaves_good_rules_alone(check: str, rules: list[dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "ErrorsHigh.md").touch()

    assert [finding for finding in linted(tmp_path, rules, OPTIONS) if finding.check == check] == []


def test_every_check_has_good_and_bad_examples() -> None:
    names = [check.name for check in CHECKS]

    assert len(set(names)) == len(names)
    assert set(BAD) == set(GOOD) == set(names)


def test_a_sound_rule_has_no_findings_at_all(tmp_path: Path) -> None:
    assert linted(tmp_path, [SOUND], OPTIONS) == ()


def test_a_finding_names_file_line_check_rule_and_remedy(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(
        "groups:\n"
        "  - name: g\n"
        "    rules:\n"
        "      - alert: Hot\n"
        "        expr: temperature > 5\n"
        "        for: 5 minutes\n"
        "        labels: {severity: warning}\n"
        "        annotations: {summary: a, description: b, runbook_url: 'https://h/x'}\n"
    )

    path = tmp_path / "rules.yaml"

    found = [str(finding) for finding in lint([path])]

    assert found == [
        f"{path}:5: [alerts/for] Hot: fires on a single sample; add for, or look at a window",
        f"{path}:6: [alerts/for] Hot: for is '5 minutes', no span of time; write it as 90s, 15m or 1h30m",
    ]


def test_what_one_file_records_is_known_to_the_others(tmp_path: Path) -> None:
    for name, rule in (
        ("a", record("sum by (cluster) (rate(e_total[5m]))")),
        ("b", alert("cluster:errors:rate5m > 1")),
    ):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({"groups": [{"name": name, "rules": [rule]}]}))

    assert lint([tmp_path / "a.yaml", tmp_path / "b.yaml"]) == ()
    assert [finding.check for finding in lint([tmp_path / "b.yaml"])] == ["promql/series"]


def test_the_rules_of_a_prometheusrule_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rule.yaml"
    spec = {"groups": [{"name": "g", "rules": [alert("up == 0", **{"for": "5m"})]}]}
    path.write_text(yaml.safe_dump({"kind": "PrometheusRule", "spec": spec}, sort_keys=False))

    (finding,) = lint([path])

    assert (finding.check, finding.rule) == ("promql/selector", "ErrorsHigh")
    assert finding.line == 7


def test_with_pages_names_that_no_page_has_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.txt"
    page.write_text('# HELP errors_total Errors.\nerrors_total{code="5"} 1\nready 1\n')
    options = Options(metrics=read_names([page]))

    rules = [alert("rate(eror_total[5m]) > 1"), alert('up{job="x"} == 0', **{"for": "5m", "alert": "Down"})]

    found = linted(tmp_path, rules, options)

    assert [(finding.check, finding.remedy) for finding in found] == [("promql/series", "did you mean errors_total?")]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "groups: 5", "groups: [{name: g}]", "groups: [{name: g, rules: [{alert: A}]}]", "groups: [\n", "a: 1"],
)
def test_what_is_no_file_of_rules_is_an_error_that_names_it(text: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(text)

    with pytest.raises(ConfigError, match=str(path)):
        read_rules(path)


@pytest.mark.parametrize("text", ["", "nothing here\n"])
def test_what_is_no_page_is_an_error_that_names_it(text: str, tmp_path: Path) -> None:
    path = tmp_path / "page.txt"
    path.write_text(text)

    for named in (path, tmp_path / "missing.txt"):
        with pytest.raises(ConfigError, match=named.name):
            read_names([named])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("1h30m", 5400.0), ("1d", 86_400.0), ("500ms", 0.5), ("0", 0.0), ("1w", 604_800.0)],
)
def test_spans_of_time_are_read_as_prometheus_writes_them(text: str, seconds: float) -> None:
    assert duration_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "5 m", "1m1h", "-5m", "m"])
def test_what_is_no_span_of_time_is_none(text: str) -> None:
    assert duration_seconds(text) is None
