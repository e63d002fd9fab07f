"""The shipped dashboards are current, sound, and speak of what is exported, all of it that matters."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tuner import assets
from tuner.alerts.rows import Dashboard
from tuner.dashboards.boards import BOARDS, build
from tuner.dashboards.grafana import COLUMNS, CYCLES, TICKS, targets_of
from tuner.record.families import FAMILIES, FamilySpec, Kind
from tuner.values.knobs import Role
from tuner.values.metrics import METRIC_NAMES

Board: TypeAlias = dict[str, Any]

SHIPPED: dict[str, Board] = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(assets.folder("dashboards").glob("*"))
}
PANELS = [
    pytest.param(panel, id=f"{name}: {panel['title']}")
    for name, board in SHIPPED.items()
    for panel in board["panels"]
    if panel["type"] != "row"
]
TARGETS = {f"{name}: {where}": expression for name, board in SHIPPED.items() for where, expression in targets_of(board)}
RUNBOOKS = Path(__file__).parents[2] / "docs" / "runbooks"

VARIABLES = {"$__rate_interval": "5m", "$__range": "6h", "$cluster": ".+", "$policy": ".+"}

UNITS = {"s", "percentunit", "short", "cps", "celsius", "watt", "reqps", "Bps"}
"""Those of Grafana's list that stand for base units."""

CUMULATIVE = ("Changes ", "Roll-back drills ")
"""Panels that show how many there were since the start: they are few and far between."""


@pytest.fixture(params=SHIPPED)
def board(request: pytest.FixtureRequest) -> Board:
    found: Board = SHIPPED[request.param]
    return found


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


def test_the_shipped_dashboards_are_what_the_code_writes() -> None:
    shipped = {path.name: path.read_text(encoding="utf-8") for path in assets.folder("dashboards").iterdir()}

    assert shipped == {f"{name}.json": board.text() for name, board in BOARDS.items()}, (
        "run: python -m tuner.dashboards"
    )


def test_building_writes_the_same_bytes_again(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    first, second = ([path.read_bytes() for path in build(folder)] for folder in folders)

    assert len(first) == len(BOARDS)
    assert first == second


def test_every_dashboard_that_an_alert_links_to_is_shipped() -> None:
    assert {board["uid"] for board in SHIPPED.values()} == {dashboard.value for dashboard in Dashboard}


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


def test_all_that_is_exported_is_shown() -> None:
    queried = [entry["definition"] for board in SHIPPED.values() for entry in board["templating"]["list"][1:3]]
    shown = {family_of(name).name for expression in TARGETS.values() for name, _ in selectors(expression)}
    shown |= {name for text in queried for name in re.findall(r"clocktuner_(\w+)", text)}

    assert {spec.name for spec in FAMILIES} == shown


def test_all_of_the_safety_parts_is_on_their_own_page() -> None:
    names = [spec.name for spec in FAMILIES]
    safety = {*names[names.index("verification_pairs") :], "source_up", "source_clock_offset_seconds"}
    shown = {
        family_of(name).name for _, expression in targets_of(SHIPPED["safety"]) for name, _ in selectors(expression)
    }

    assert safety <= shown


def test_every_metric_and_every_knob_has_a_panel() -> None:
    shown = " ".join(expression for _, expression in targets_of(SHIPPED["overview"]))

    for name in METRIC_NAMES:
        assert f"clocktuner_observed_{name}{{" in shown
    for role in Role:
        assert f'clocktuner_knob_value{{cluster=~"$cluster",policy=~"$policy",knob="{role.value}"}}' in shown


@pytest.mark.parametrize("where", TARGETS)
def test_counters_are_rates_over_a_span_that_fits(where: str) -> None:
    expression = TARGETS[where]

    for name, _ in selectors(expression):
        spec = family_of(name)
        cumulative = where.partition(": ")[2].startswith(CUMULATIVE) and "[" not in expression
        if spec.kind is not Kind.GAUGE and not cumulative:
            assert re.search(rf"(rate|increase)\(clocktuner_{name}\{{[^}}]*\}}\[", expression)
        if spec.kind is Kind.GAUGE:
            assert not re.search(rf"(rate|increase)\(clocktuner_{name}\b", expression)
    assert set(re.findall(r"\[([^\]]+)\]", expression)) <= {"$__rate_interval", "$__range", "1d"}


@pytest.mark.parametrize("panel", PANELS)
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


def test_titles_and_numbers_of_panels_are_of_one_kind(board: Board) -> None:
    titles = [panel["title"] for panel in board["panels"]]
    numbers = [panel["id"] for panel in board["panels"]]

    assert len(set(titles)) == len(titles)
    assert numbers == list(range(1, len(numbers) + 1))


def test_panels_lie_on_the_grid_and_do_not_overlap(board: Board) -> None:
    cells: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= COLUMNS
        assert cells.isdisjoint(own), panel["title"]
        cells |= own
    if board["uid"] != "clocktuner-overview":  # Thirteen metrics fill no line of four.
        assert len(cells) == COLUMNS * (max(y for _, y in cells) + 1), "a gap"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "overview",
            [
                "State",
                "The cluster, as clocktuner sees it",
                "The knobs, with their bounds",
                "Forecast against actual",
                "Decisions, and what came of them",
                "The sidecar itself",
            ],
        ),
        (
            "safety",
            [
                "State",
                "The scheduler, and what protects it",
                "The guard tick",
                "The settings",
                "Changes, and how they are compared",
                "How far it trusts itself",
                "Can it step back, and what is it worth",
            ],
        ),
    ],
)
def test_rows_go_from_state_over_symptoms_to_the_tuner(name: str, expected: list[str]) -> None:
    board = SHIPPED[name]

    assert [panel["title"] for panel in board["panels"] if panel["type"] == "row"] == expected
    assert board["panels"][0]["type"] == "row"


def test_dashboards_are_uneditable_in_utc_and_linked_by_tag(board: Board) -> None:
    assert board["editable"] is False
    assert board["timezone"] == "utc"
    assert board["refresh"] == "30s"
    assert board["tags"] == ["clocktuner"]
    assert board["panels"][0]["type"] == "row"
    (link,) = board["links"]
    assert (link["type"], link["tags"], link["keepTime"], link["includeVars"]) == (
        "dashboards",
        ["clocktuner"],
        True,
        True,
    )


def test_the_variables_are_the_source_the_cluster_and_the_policy(board: Board) -> None:
    source, *queried = board["templating"]["list"]

    assert (source["type"], source["name"], source["label"]) == ("datasource", "datasource", "Data source")
    assert [variable["name"] for variable in queried[:2]] == ["cluster", "policy"]
    for variable in queried[:2]:
        assert variable["refresh"] == 2, "read anew when the time range changes"
        assert variable["allValue"] == ".+"
        assert variable["query"]["query"].startswith("label_values(clocktuner_build_info")


def test_a_dashboard_with_links_to_runbooks_asks_where_they_are(board: Board) -> None:
    linked = any(panel.get("links") for panel in board["panels"])
    asked = [entry for entry in board["templating"]["list"] if entry["type"] == "textbox"]

    assert [entry["name"] for entry in asked] == (["runbooks"] if linked else [])


@pytest.mark.parametrize("panel", PANELS)
def test_linked_runbooks_exist(panel: dict[str, Any]) -> None:
    for link in panel.get("links", ()):
        address, _, name = link["url"].rpartition("/")
        assert address == "${runbooks}"
        assert (RUNBOOKS / name).is_file(), name
        assert link["title"] == f"Runbook: {name.removesuffix('.md')}"


def test_every_tile_of_the_safety_page_leads_to_runbooks() -> None:
    tiles = [panel for panel in SHIPPED["safety"]["panels"] if panel["type"] == "stat" and panel["gridPos"]["y"] < 5]

    assert len(tiles) == 8
    assert all(tile["links"] for tile in tiles)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("overview", {"change made", "change kept", "rolled back"}),
        ("safety", {"latency breaker opened", "degradation began or ended", "paused", "drill"}),
    ],
)
def test_what_happened_is_marked_at_the_time_that_the_series_holds(name: str, expected: set[str]) -> None:
    marks = {entry["name"]: entry for entry in SHIPPED[name]["annotations"]["list"]}

    assert set(marks) == expected
    for entry in marks.values():
        assert entry["enable"] is True
        assert entry["useValueForTime"] is True
        assert re.fullmatch(r"clocktuner_\w+_timestamp_seconds\{[^}]*\} \* 1000", entry["expr"])
    assert len({entry["iconColor"] for entry in marks.values()}) == len(expected)


@pytest.mark.parametrize("panel", PANELS)
def test_tiles_have_words_or_limits_or_grow(panel: dict[str, Any]) -> None:
    if panel["type"] != "stat":
        return
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults["mappings"] or len(defaults["thresholds"]["steps"]) > 1 or panel["title"] == "Last drill"
    assert defaults["thresholds"]["steps"][0]["value"] is None


def words_of(panel: dict[str, Any]) -> set[str]:
    (mapping,) = panel["fieldConfig"]["defaults"]["mappings"]
    return set(mapping["options"])


@pytest.mark.parametrize("panel", PANELS)
def test_a_tile_has_a_word_for_every_state_that_its_query_can_give(panel: dict[str, Any]) -> None:
    if panel["type"] != "stat" or not panel["fieldConfig"]["defaults"]["mappings"]:
        return
    (target,) = panel["targets"]
    ((name, _), *_) = list(selectors(target["expr"]))
    values = family_of(name).values
    states = len(values[0]) if values else 2
    if name == "paused":
        states += 1  # By nobody.

    assert words_of(panel) == {str(number) for number in range(states)}


@pytest.mark.parametrize("panel", PANELS)
def test_what_counts_once_a_cycle_or_a_tick_is_drawn_over_at_least_two(panel: dict[str, Any]) -> None:
    if any("$__rate_interval" in target["expr"] for target in panel["targets"]):
        assert panel["interval"] in (CYCLES, TICKS), panel["title"]
