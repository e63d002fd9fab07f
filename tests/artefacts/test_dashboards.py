"""The shipped dashboards are current, sound, and speak of what is exported, all of it that matters."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tuner import assets
from tuner.dashboards import overview
from tuner.dashboards.grafana import COLUMNS, targets_of
from tuner.record.families import FAMILIES, FamilySpec, Kind
from tuner.values.knobs import Role
from tuner.values.metrics import METRIC_NAMES

BOARD: dict[str, Any] = json.loads((assets.folder("dashboards") / "overview.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
TARGETS = dict(targets_of(BOARD))

VARIABLES = {"$__rate_interval": "5m", "$__range": "6h", "$cluster": ".+", "$policy": ".+"}

UNITS = {"s", "percentunit", "short", "cps", "celsius", "watt", "reqps", "Bps"}
"""Those of Grafana's list that stand for base units."""

UNSEEN = {
    "build_info",  # Feeds the variables.
    "cycle_last_timestamp_seconds",  # Its success is what counts.
    "best_window_headroom_ratio",
    "trials_total",
}
"""Families that the overview leaves to others."""

SAFETY = {spec.name for spec in FAMILIES[[spec.name for spec in FAMILIES].index("verification_pairs") :]} | {
    "source_up",
    "source_clock_offset_seconds",
}
"""Families of the safety parts, which the overview leaves to a page of their own."""


def substituted(expression: str) -> str:
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    return expression


def selectors(expression: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the series that an expression names, with its matchers."""
    for name, matchers in re.findall(r"clocktuner_(\w+)\{([^}]*)\}", expression):
        yield name, dict(re.findall(r'(\w+)=~?"([^"]*)"', matchers))


def family_of(name: str) -> FamilySpec:
    for spec in FAMILIES:
        suffixes = {
            Kind.HISTOGRAM: ("_bucket", "_sum", "_count"),
            Kind.SUMMARY: ("_sum", "_count"),
        }.get(spec.kind, ("",))
        if name in {spec.name + suffix for suffix in suffixes}:
            return spec
    pytest.fail(f"clocktuner_{name} is on the dashboard, but nobody exports it")


def test_the_shipped_dashboard_is_what_the_code_writes() -> None:
    shipped = (assets.folder("dashboards") / "overview.json").read_text(encoding="utf-8")

    assert shipped == overview.text(), "run: python -m tuner.dashboards"


def test_building_writes_the_same_bytes_again(tmp_path: Path) -> None:
    first, second = (overview.build(tmp_path / name).read_bytes() for name in ("a.json", "b.json"))

    assert first == second


def test_every_expression_is_promql(tmp_path: Path) -> None:
    rules = [
        {"record": f"check:target:{number}", "expr": substituted(expression)}
        for number, expression in enumerate(TARGETS.values())
    ]
    # JSON is YAML, too.
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))

    checked = subprocess.run(
        ["promtool", "check", "rules", "--lint-fatal", str(tmp_path / "rules.yml")],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert checked.returncode == 0, checked.stderr
    assert f"{len(rules)} rules found" in checked.stdout
    assert not any("$" in rule["expr"] for rule in rules), "a variable that nobody substitutes"


@pytest.mark.parametrize("where", TARGETS)
def test_every_expression_names_what_is_exported_with_labels_that_it_has(where: str) -> None:
    found = list(selectors(TARGETS[where]))

    assert found
    assert len(found) == TARGETS[where].count("clocktuner_"), "a series without a selector"
    for name, matchers in found:
        spec = family_of(name)
        known = dict(zip(spec.labels, spec.values, strict=True))
        assert matchers.pop("cluster") == "$cluster"
        assert matchers.pop("policy") == "$policy"
        for label, value in matchers.items():
            assert value in known[label], f"{label}={value}"
    for by in re.findall(r"by \(([^)]*)\)", TARGETS[where]):
        labels = {label for name, _ in found for label in family_of(name).labels}
        assert set(by.split(", ")) <= labels | {"cluster", "policy", "le"}


def test_all_that_is_exported_is_shown_but_for_a_few() -> None:
    shown = {family_of(name).name for expression in TARGETS.values() for name, _ in selectors(expression)}

    assert {spec.name for spec in FAMILIES} - shown == UNSEEN | SAFETY


def test_every_metric_and_every_knob_has_a_panel() -> None:
    shown = " ".join(TARGETS.values())

    for name in METRIC_NAMES:
        assert f"clocktuner_observed_{name}{{" in shown
    for role in Role:
        assert f'clocktuner_knob_value{{cluster=~"$cluster",policy=~"$policy",knob="{role.value}"}}' in shown


@pytest.mark.parametrize("where", TARGETS)
def test_counters_are_rates_over_a_span_that_fits(where: str) -> None:
    expression = TARGETS[where]

    for name, _ in selectors(expression):
        spec = family_of(name)
        cumulative = where.startswith("Changes ")  # Few and far between: their number is what is asked for.
        if spec.kind is not Kind.GAUGE and not cumulative:
            assert re.search(rf"(rate|increase)\(clocktuner_{name}\{{[^}}]*\}}\[", expression)
        if spec.kind is Kind.GAUGE:
            assert not re.search(rf"(rate|increase)\(clocktuner_{name}\b", expression)
    assert set(re.findall(r"\[([^\]]+)\]", expression)) <= {"$__rate_interval", "$__range"}


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_every_panel_says_what_it_is_in_which_unit_from_the_chosen_source(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["targets"]
    for target in [panel, *panel["targets"]]:
        assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert all(target["legendFormat"] for target in panel["targets"])
    letters = [target["refId"] for target in panel["targets"]]
    assert len(set(letters)) == len(letters)
    for override in panel["fieldConfig"]["overrides"]:
        assert override["matcher"]["options"] in letters
        for item in override["properties"]:
            if item["id"] == "custom.fillBelowTo":
                assert item["value"] in {target["legendFormat"] for target in panel["targets"]}


def test_titles_and_numbers_of_panels_are_of_one_kind() -> None:
    titles = [panel["title"] for panel in BOARD["panels"]]
    numbers = [panel["id"] for panel in BOARD["panels"]]

    assert len(set(titles)) == len(titles)
    assert numbers == list(range(1, len(numbers) + 1))


def test_panels_lie_on_the_grid_and_do_not_overlap() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= COLUMNS
        assert cells.isdisjoint(own), panel["title"]
        cells |= own


def test_rows_go_from_state_over_symptoms_to_the_sidecar() -> None:
    rows = [panel["title"] for panel in BOARD["panels"] if panel["type"] == "row"]

    assert rows == [
        "State",
        "The cluster, as clocktuner sees it",
        "The knobs, with their bounds",
        "Forecast against actual",
        "Decisions, and what came of them",
        "The sidecar itself",
    ]
    assert BOARD["panels"][0]["type"] == "row"


def test_the_dashboard_is_uneditable_in_utc_and_linked_by_tag() -> None:
    assert BOARD["uid"] == "clocktuner-overview"
    assert BOARD["editable"] is False
    assert BOARD["timezone"] == "utc"
    assert BOARD["refresh"] == "30s"
    assert BOARD["tags"] == ["clocktuner"]
    (link,) = BOARD["links"]
    assert (link["type"], link["tags"], link["keepTime"], link["includeVars"]) == (
        "dashboards",
        ["clocktuner"],
        True,
        True,
    )


def test_the_variables_are_the_source_the_cluster_and_the_policy() -> None:
    source, *queried = BOARD["templating"]["list"]

    assert (source["type"], source["name"], source["label"]) == ("datasource", "datasource", "Data source")
    assert [variable["name"] for variable in queried] == ["cluster", "policy"]
    for variable in queried:
        assert variable["refresh"] == 2, "read anew when the time range changes"
        assert variable["allValue"] == ".+"
        assert variable["query"]["query"].startswith("label_values(clocktuner_build_info")


def test_changes_kept_and_undone_are_marked_at_the_time_that_the_series_holds() -> None:
    marks = {entry["name"]: entry for entry in BOARD["annotations"]["list"]}

    assert set(marks) == {"change made", "change kept", "rolled back"}
    for entry in marks.values():
        assert entry["enable"] is True
        assert entry["useValueForTime"] is True
        assert re.fullmatch(r"clocktuner_last_\w+_timestamp_seconds\{[^}]*\} \* 1000", entry["expr"])
    assert len({entry["iconColor"] for entry in marks.values()}) == 3


def test_tiles_have_words_or_limits() -> None:
    for panel in PANELS:
        if panel["type"] != "stat":
            continue
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["mappings"] or len(defaults["thresholds"]["steps"]) > 1, panel["title"]
        assert defaults["thresholds"]["steps"][0]["value"] is None


def test_what_counts_once_a_cycle_is_drawn_over_at_least_two() -> None:
    for panel in PANELS:
        if any("$__rate_interval" in target["expr"] for target in panel["targets"]):
            assert panel["interval"] == "10m", panel["title"]
