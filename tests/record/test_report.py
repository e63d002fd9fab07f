"""The report is one page that needs nothing, hides nothing, and says the same as its JSON."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.guarded import act, order
from tests.support.records import MIDDLE, MIDNIGHT, SPECS, applied, day, failed, runs, simplest
from tuner.control.orders import OrderKind
from tuner.errors import ConfigError
from tuner.record import plots, timeline
from tuner.record.comparison import ComparisonRun, gains, improves
from tuner.record.encoding import decode
from tuner.record.html import Markup, join, table, tag, words
from tuner.record.journal import Journal
from tuner.record.plots import Line, Marks, Panel, axis_unit, draw, thin, time_ticks
from tuner.record.report import write_report
from tuner.record.setting import Setting, load_setting, save_setting
from tuner.record.wording import label
from tuner.values.knobs import SchedulerMode
from tuner.values.metrics import DEFAULT_WEIGHTS, METRIC_INDEX, METRIC_NAMES, METRICS, score
from tuner.values.stages import (
    CycleRecord,
    Decision,
    Finding,
    FloatArray,
    Outcome,
    StageFailure,
    Step,
    Verification,
)

SETTING = Setting(
    cluster="gpu-64x8",
    policy="reference",
    mode="auto",
    specs=SPECS,
    real=("Job traces of a public cluster.",),
    simulated=("The cluster.",),
)
VOID = {"meta", "br", "hr", "col"}
NASTY = "<script>alert('x')</script> & \"quoted\" > all"


class Reader(HTMLParser):
    """Reads a page strictly: every element closes, every id is one of a kind."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, name: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((name, dict(attrs)))
        if name not in VOID:
            self.open.append(name)

    def handle_startendtag(self, name: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((name, dict(attrs)))

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.text.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def written(path: Path, records: Sequence[CycleRecord], **arguments: object) -> str:
    return write_report(records, path / "report.html", setting=SETTING, **arguments).read_text()  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report")
    written(path, day(120), comparison=runs())
    return path


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return (folder / "report.html").read_text()


# The page.


def test_the_page_is_sound_html_with_ids_of_one_kind_each(page: str) -> None:
    reader = read(page)

    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {
        value[1:] for _, attributes in reader.tags if (value := attributes.get("href")) and value.startswith("#")
    }
    assert targets <= set(ids)
    clips = set(re.findall(r"url\(#([^)]+)\)", page))
    assert clips <= set(ids)


def test_the_page_loads_and_runs_nothing(page: str) -> None:
    reader = read(page)

    names = {name for name, _ in reader.tags}
    assert names.isdisjoint({"script", "link", "iframe", "img", "object", "embed", "base", "form"})
    for name, attributes in reader.tags:
        assert "src" not in attributes, name
        assert not any(key.startswith("on") for key in attributes), name
        assert (attributes.get("href") or "#").startswith("#"), name
    assert "http://" not in re.sub(r"http://127\.0\.0\.1:9090", "", page)
    assert "https://" not in page
    assert "@import" not in page
    policies = [attributes for _, attributes in reader.tags if attributes.get("http-equiv")]
    assert policies[0]["content"] == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def test_every_drawing_says_in_words_what_it_shows(page: str) -> None:
    drawings = re.findall(r"<svg .*?</svg>", page, flags=re.DOTALL)

    # 13 metrics and as many comparisons, 6 forecasts, 4 knobs, 2 of predicted against measured.
    assert len(drawings) == 38
    for drawing in drawings:
        assert re.match(r'<svg class="plot" role="img" viewBox="[^"]+" aria-labelledby="(\w+-t) (\w+-d)">', drawing)
        assert re.search(r"<title [^>]*>[^<]{5,}</title><desc [^>]*>[^<]{5,}</desc>", drawing)
        assert "<text" in drawing
        assert not re.search(r"#0[1-9]0[1-9]0[1-9]|#[0-9a-f]{6}\b", drawing), "a colour that does not follow the theme"


def test_everything_is_said_plan_do_check_act(page: str) -> None:
    text = " ".join(read(page).text)

    for word in ("Plan", "Do", "Check", "Act", "Real", "Simulated", "Job traces of a public cluster.", "gpu-64x8"):
        assert word in text
    for spec in METRICS:
        assert label(spec.name).capitalize() in text
    assert "the prediction lay within the 95 % interval" in text
    assert "2 cycles held their hand" not in text
    assert page.count('<details class="row"') == sum(
        record.proposal is not None or record.decision in ("promote", "roll_back", "failed") for record in day(120)
    )


def test_every_finding_stands_with_value_limit_and_sentence(page: str) -> None:
    searched = [record for record in day(120) if record.verdict is not None]

    for record in searched:
        assert record.verdict is not None
        entry = page[page.index(f'id="cycle-{record.cycle_id}"') :]
        entry = entry[: entry.index("</details>")]
        for finding in record.verdict.findings:
            assert f">{finding.guard.replace('_', ' ')}<" in entry
            assert finding.sentence.replace(" %", "\N{NO-BREAK SPACE}%") in entry
        assert entry.count("<tr>") == len(record.verdict.findings) + 1


def test_texts_cannot_become_markup(tmp_path: Path) -> None:
    finding = Finding(
        guard=NASTY, passed=True, severity=Decision.HOLD, observed=1.0, limit=math.nan, unit=NASTY, sentence=NASTY
    )
    nasty = applied()
    assert nasty.verdict is not None
    assert nasty.proposal is not None
    records = [
        replace(
            nasty,
            reason=NASTY,
            verdict=replace(nasty.verdict, findings=(finding,)),
            proposal=replace(nasty.proposal, reason=NASTY),
        ),
        replace(failed(2, MIDNIGHT + 60), reason=NASTY, failure=StageFailure(stage=NASTY, reason=NASTY, detail=NASTY)),
    ]
    compared = [replace(run, name=NASTY, title=NASTY, description=NASTY) for run in runs()]
    setting = replace(SETTING, cluster=NASTY, real=(NASTY,))

    path = write_report(records, tmp_path / "r.html", comparison=compared, setting=setting, title=NASTY)

    page = path.read_text()
    read(page)
    assert "<script" not in page
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt; &amp; &quot;quoted&quot;" in page


@pytest.mark.parametrize(
    "records",
    [(), (simplest(),), (failed(), applied(91, MIDNIGHT + 300))],
    ids=["nothing", "one", "a failure and a change"],
)
def test_a_period_with_little_in_it_has_a_report_too(tmp_path: Path, records: tuple[CycleRecord, ...]) -> None:
    page = written(tmp_path, records)

    read(page)
    assert not re.search(r"\bnan\b|\b1 (cycles|changes|searches|candidates)\b", " ".join(read(page).text).lower())


def test_equal_input_gives_equal_bytes(tmp_path: Path) -> None:
    first = write_report(day(6), tmp_path / "a.html", setting=SETTING, last_seconds=900)
    second = write_report(day(6)[2:], tmp_path / "b.html", setting=SETTING)

    assert first.read_bytes() == second.read_bytes()
    assert first.with_suffix(".json").read_bytes() == second.with_suffix(".json").read_bytes()


def test_nothing_but_page_and_json_is_left_in_the_folder(tmp_path: Path) -> None:
    written(tmp_path / "deep" / "folder", [simplest()])

    assert sorted(path.name for path in (tmp_path / "deep" / "folder").iterdir()) == ["report.html", "report.json"]


def test_the_journal_alone_is_enough_and_its_last_hours_may_be_asked_for(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.sqlite") as journal:
        for record in day(30):
            journal.append(record)
        save_setting(journal, SETTING)

        path = write_report(journal, tmp_path / "report.html", last_seconds=3600)

    assert "gpu-64x8" in path.read_text()
    decisions = json.loads(path.with_suffix(".json").read_text())["decisions"]
    assert [entry["cycle_id"] for entry in decisions] == list(range(18, 31))


def test_without_a_word_on_what_is_real_the_page_says_so(tmp_path: Path) -> None:
    path = write_report([simplest()], tmp_path / "report.html")

    assert "does not say what of this was real and what was simulated" in path.read_text()


# Safety.


def guarded() -> list[CycleRecord]:
    """Return an hour in which the guard had to step in, and somebody said something."""
    made = applied(1, MIDNIGHT)
    assert made.observation is not None
    look = Verification(
        cycle_id=9,
        change_cycle_id=1,
        outcome=Outcome.SUCCESSFUL,
        step=Step.PROMOTE,
        samples=8,
        expected_score=-0.03,
        observed_score=-0.05,
        score_error=0.01,
        observed=made.observation.metrics,
        counterfactual=made.observation.metrics,
        reason="surely better",
        pairs=4,
        evidence=math.log(40.0),
    )
    return [
        made,
        act(2, 60, "simplify", "too slow <b>", mode=SchedulerMode.SIMPLIFIED),
        act(3, 180, "probe", mode=SchedulerMode.FULL),
        act(4, 240, "recover", "fast again"),
        order(5, 300, OrderKind.PAUSE, reason="racks"),
        order(6, 900, OrderKind.RESUME),
        act(7, 1000, "heal", "lost", after=MIDDLE),
        act(8, 1100, "hold", "would protect"),
        replace(simplest(9, MIDNIGHT + 1200), decision=Step.PROMOTE, verification=look),
    ]


def test_the_section_on_safety_tells_what_happened_and_how_long_it_lasted(tmp_path: Path) -> None:
    page = written(tmp_path, guarded())
    section = page[page.index('id="safety"') :]
    section = section[: section.index("</section>")]
    text = " ".join(read(page).text)

    read(page)
    assert "2 cycles, 7 acts of guard and people between them" in text
    assert "too slow &lt;b&gt;" in section
    for kind in ("latency breaker", "paused", "order", "restored", "would have acted"):
        assert f">{kind}</span>" in section
    assert "<td>3 min</td>" in section  # The breaker, from 60 s to 240 s.
    assert "The latency breaker took 3 min at most to recover." in text
    assert section.index(">would have acted<") < section.index(">restored<") < section.index("too slow")


def test_the_json_has_events_counts_and_times_by_mode_and_rung(tmp_path: Path) -> None:
    written(tmp_path, guarded())
    safety = json.loads((tmp_path / "report.json").read_text())["safety"]

    assert safety["counts"] == {
        "latency breaker": 1,
        "restored": 1,
        "paused": 1,
        "order": 1,
        "would have acted": 1,
    }
    assert [event["cycle_id"] for event in safety["events"]] == [2, 5, 6, 7, 8]
    assert safety["events"][0]["lasted_seconds"] == 180.0
    assert safety["mode_seconds"] == {"full": 1080.0, "simplified": 120.0}
    assert safety["rung_seconds"] == {}


def test_a_change_that_was_compared_in_turns_tells_pairs_and_evidence(tmp_path: Path) -> None:
    page = written(tmp_path, guarded())

    assert '<th scope="col">pairs</th><th scope="col">e-value</th>' in page
    assert "<td>4</td><td>40</td>" in page
    assert "against the setting before, put back in force in turns" in page
    (change,) = json.loads((tmp_path / "report.json").read_text())["changes"]
    assert (change["pairs"], change["fate"]) == (4, "kept")
    assert change["evidence"] == pytest.approx(math.log(40.0))


def test_where_nothing_was_compared_in_turns_there_is_no_column_for_it(page: str) -> None:
    assert '<th scope="col">e-value</th>' not in page
    assert "against the forecast of what would have been without the change" in page


def test_guard_acts_stand_in_the_log_and_leave_no_gap_in_the_lines(tmp_path: Path) -> None:
    page = written(tmp_path, guarded())
    data = json.loads((tmp_path / "report.json").read_text())

    for number in range(2, 9):
        assert f'id="cycle-{number}"' in page
    assert len(data["times_seconds"]) == 2
    assert None not in data["metrics"]["queue_length"]
    assert len(data["knob_times_seconds"]) == len(data["knobs"]["reservation_ratio"]) == 5
    assert None not in data["knobs"]["reservation_ratio"]


def test_a_quiet_period_says_that_nothing_happened(tmp_path: Path) -> None:
    assert "Nothing happened that asked for protection" in written(tmp_path, [simplest()])


def test_events_beyond_what_the_page_lists_are_left_to_the_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "SHOWN", 2)
    page = written(tmp_path, guarded())

    assert "The JSON has 3 older events." in page
    assert ">latency breaker</span>" not in page


# The JSON.


def test_the_json_holds_the_numbers_of_the_page_and_is_strict(folder: Path) -> None:
    data = json.loads((folder / "report.json").read_text(), parse_constant=pytest.fail)

    assert set(data["metrics"]) == set(METRIC_NAMES)
    assert len(data["times_seconds"]) == 120
    assert data["metrics"]["queue_length"][89] is None
    assert [change["fate"] for change in data["changes"]].count("kept") > 0
    assert data["comparison"]["gains"][1]["worse"] == ["node_power_watts"]
    assert data["setting"]["cluster"] == "gpu-64x8"
    assert data["decisions"][5]["findings"][0]["sentence"]
    assert {entry["track"]["name"] for entry in data["forecasts"]} >= {"queue_wait_seconds", "queue_length"}


# The comparison.


def test_gains_are_scores_against_the_run_before_and_name_what_got_worse() -> None:
    compared = runs()

    first, second = gains(compared, weights=DEFAULT_WEIGHTS)

    assert (first.earlier, first.later, second.earlier, second.later) == ("a", "b", "b", "c")
    assert first.score == float(score(compared[1].metrics, compared[0].metrics))
    assert first.worse == ()
    assert second.worse == ("node_power_watts",)
    wait = METRIC_INDEX["queue_wait_seconds"]
    expected = compared[2].metrics[wait] / compared[1].metrics[wait] - 1
    assert second.change_ratio[wait] == pytest.approx(expected)


def test_a_metric_that_one_run_lacks_is_neither_better_nor_worse() -> None:
    without = runs()[1].metrics.copy()
    without[0] = math.nan

    (gain,) = gains([runs()[0], replace(runs()[1], metrics=without)], weights=DEFAULT_WEIGHTS)

    assert math.isnan(gain.change_ratio[0])
    assert METRIC_NAMES[0] not in gain.worse


@pytest.mark.parametrize(
    ("name", "change", "better"),
    [
        ("queue_wait_seconds", -0.05, True),
        ("queue_wait_seconds", 0.05, False),
        ("queue_wait_seconds", -0.001, False),
        ("accelerator_utilization_ratio", 0.05, True),
        ("accelerator_utilization_ratio", -0.05, False),
        ("running_task_remaining_seconds", -0.5, False),
        ("queue_wait_seconds", math.nan, False),
    ],
)
def test_what_counts_as_better(name: str, change: float, better: bool) -> None:
    assert improves(METRIC_INDEX[name], change) is better


def test_every_worse_metric_is_flagged_on_the_page(page: str) -> None:
    row = page[page.index('<th scope="row">node power</th>') :]

    assert re.search(r'class="worse">\+\d+\.\d % worse<', row[: row.index("</tr>")])
    assert "Worse: node power." in page


@pytest.mark.parametrize("change", [{"metrics": np.zeros(3)}, {"series": np.zeros((13, 4))}])
def test_a_run_whose_shapes_disagree_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="run a: "):
        replace(runs()[0], **change)  # type: ignore[arg-type]


def test_a_single_run_is_no_comparison(tmp_path: Path) -> None:
    only: list[ComparisonRun] = [runs()[0]]

    assert "run by run" not in written(tmp_path, [simplest()], comparison=only)


# The setting.


def test_the_setting_returns_from_the_journal_and_has_a_default(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.sqlite") as journal:
        assert load_setting(journal).cluster == "unknown"
        save_setting(journal, SETTING)

        returned = load_setting(journal)

    assert returned.specs == SETTING.specs
    assert returned.real == SETTING.real
    np.testing.assert_array_equal(returned.weights, DEFAULT_WEIGHTS)
    assert decode(Setting, '{"cluster":"x"}').specs == SPECS


# The parts.


def test_tags_escape_texts_and_attributes_but_not_markup() -> None:
    element = tag("p", "a < b", Markup("<b>c</b>"), None, class_="it's", aria_label=None, data_x=3)

    assert element == '<p class="it&#x27;s" data-x="3">a &lt; b<b>c</b></p>'
    assert join(["<", Markup("<br>")]) == "&lt;<br>"
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_tables_name_their_rows_and_columns_and_scroll() -> None:
    element = table(["metric", "value"], [["wait", "3 s"]], caption="Two")

    assert '<th scope="col">metric</th><th scope="col">value</th>' in element
    assert '<th scope="row">wait</th><td>3 s</td>' in element
    assert 'class="scroll" tabindex="0" role="region" aria-label="Two"' in element


def test_a_number_stays_with_its_unit() -> None:
    assert "115\N{NO-BREAK SPACE}ms → 100\N{NO-BREAK SPACE}ms" in words("slice 115 ms → 100 ms")
    assert "2 samples" in words("2 samples")


@given(st.text())
def test_no_text_opens_an_element(text: str) -> None:
    assert "<" not in tag("b", text).removeprefix("<b>").removesuffix("</b>")


def panel(values: Sequence[float], **arguments: object) -> Panel:
    times: FloatArray = MIDNIGHT + 60.0 * np.arange(float(len(values)))
    line = Line(times_seconds=times, values=np.array(values, dtype=float))
    return Panel(title="queue wait", unit="s", lines=[line], **arguments)  # type: ignore[arg-type]


def test_a_description_tells_start_end_and_range() -> None:
    drawing = draw(panel([1.0, 5.0, math.nan, 2.0], marks=Marks(changed=[MIDNIGHT + 60])))

    assert "From 1 s at the start to 2 s at the end, between 1 s and 5 s. Changes marked: 1." in drawing


@pytest.mark.parametrize("values", [[], [math.nan, math.nan], [1.0]])
def test_a_panel_with_nothing_to_draw_is_drawn(values: list[float]) -> None:
    drawing = draw(panel(values))

    assert drawing.startswith("<svg")
    assert values == [1.0] or "No samples." in drawing


def test_two_panels_on_one_page_share_no_id() -> None:
    first, second = (set(re.findall(r' id="([^"]+)"', draw(panel(values)))) for values in ([1, 2], [2, 1]))

    assert first
    assert first.isdisjoint(second)


def test_a_matplotlibrc_of_the_machine_changes_nothing() -> None:
    import matplotlib as mpl

    plain = draw(panel([1.0, 2.0]))
    with mpl.rc_context({"lines.linewidth": 9.0, "axes.grid": False, "svg.hashsalt": "other", "font.size": 20.0}):
        assert draw(panel([1.0, 2.0])) == plain


@pytest.mark.parametrize(
    ("hours", "first", "count"),
    [(0.0, "Jan 1", 1), (0.01, "Jan 1", 3), (1.0, "Jan 1", 5), (24.0, "Jan 1", 5), (24.0 * 30, "Jan 1", 5)],
)
def test_time_axes_have_a_few_round_marks(hours: float, first: str, count: int) -> None:
    ticks = time_ticks(MIDNIGHT, MIDNIGHT + 3600 * hours)

    assert ticks[0] == (MIDNIGHT, first)
    assert len(ticks) == count


def test_time_axes_name_the_date_at_midnight_and_the_time_elsewhere() -> None:
    assert [text for _, text in time_ticks(MIDNIGHT + 3600, MIDNIGHT + 86_400)] == ["06:00", "12:00", "18:00", "Jan 2"]
    assert time_ticks(MIDNIGHT + 1, MIDNIGHT + 21)[0][1] == "00:00:05"


@given(st.floats(min_value=1, max_value=4e9), st.floats(min_value=0, max_value=1e9))
def test_time_axes_never_have_more_marks_than_fit(start: float, span: float) -> None:
    ticks = time_ticks(start, start + span)

    assert len(ticks) <= plots.TICKS + 1
    assert all(start <= at_seconds <= start + span + 1e-6 for at_seconds, _ in ticks)


def test_long_lines_are_thinned_without_losing_a_peak() -> None:
    values = np.zeros(10_000)
    values[5_003] = 7.0
    values[20] = math.nan
    line = Line(times_seconds=np.arange(10_000.0), values=values)

    times, mean, low, high = thin(line)

    assert low is not None
    assert high is not None
    assert len(times) == len(mean) == plots.MAX_COLUMNS
    assert np.nanmax(high) == 7.0
    assert np.nanmax(mean) < 1.0
    assert np.nanmin(low) == 0.0
    assert thin(replace(line, steps=True))[1] is values


def test_thinning_keeps_whole_gaps_as_gaps() -> None:
    values = np.ones(4_800)
    values[1_000:2_000] = math.nan

    _, mean, _, _ = thin(Line(times_seconds=np.arange(4_800.0), values=values))

    assert np.isnan(mean[100:200]).all()
    assert np.isfinite(mean[:100]).all()


@pytest.mark.parametrize(
    ("unit", "largest", "expected"),
    [
        ("ratio", 0.5, (100.0, " %")),
        ("s", 0.8, (1000.0, " ms")),
        ("s", 80.0, (1.0, " s")),
        ("s", 900.0, (1 / 60, " min")),
        ("1/s", 2.0, (1.0, " /s")),
        ("tasks", 9.0, (1.0, "")),
        ("W", 9.0, (1.0, " W")),
    ],
)
def test_axes_speak_the_unit_that_fits(unit: str, largest: float, expected: tuple[float, str]) -> None:
    assert axis_unit(unit, largest) == expected


def test_a_place_that_cannot_be_written_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match=r"file cannot be written \(.*\); name another place"):
        write_report(day(2), tmp_path / "file" / "r.html", setting=SETTING)

    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(("name", "told"), [("", "it is a folder"), ("r.json", "would be one file")])
def test_a_name_that_is_no_page_is_told_before_anything_is_written(tmp_path: Path, name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        write_report(day(2), tmp_path / name, setting=SETTING)

    assert not list(tmp_path.iterdir())


def test_a_page_that_cannot_be_replaced_leaves_no_scratch(tmp_path: Path) -> None:
    (tmp_path / "r.json").mkdir()

    with pytest.raises(ConfigError, match=r"r\.json cannot be written"):
        write_report(day(2), tmp_path / "r.html", setting=SETTING)

    assert [each.name for each in tmp_path.iterdir()] == ["r.json"]
