from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from tests.support.actuators import MemoryActuator
from tuner.apply.actuator import Actuator
from tuner.apply.null import NoActuator
from tuner.checking import MAX_UNANSWERED, CheckReport, Row, Status, check, render
from tuner.errors import QueryRejected, SourceUnavailable
from tuner.observe.source import Answer, Series
from tuner.settings.loading import load_policy
from tuner.settings.model import KnobMapping, MetricMapping, Policy, SeriesMapping
from tuner.values.knobs import DESIGN_RANGES, KnobValues, Role, middle

NOW = 1_700_000_000.0
SMALLEST = load_policy(Path(__file__).parent / "settings" / "policies" / "good" / "smallest.yaml")

Labelled = Mapping[str, float]
"""Values by node; the key "" for a series without labels."""


class FakeSource:
    """Answers from a table of expressions; the age of every series is the same."""

    def __init__(self, answers: Mapping[str, Labelled], *, age_seconds: float = 30.0, fuses: bool = True) -> None:
        self.answers = dict(answers)
        self.age_seconds = age_seconds
        self.fuses = fuses
        self.errors: dict[str, Exception] = {}
        self.down = False
        self.asked: list[str] = []
        self.extras: dict[str, object] = {}

    def instant(self, expression: str, *, at_seconds: float) -> Answer:
        assert at_seconds == NOW
        self.asked.append(expression)
        if self.down:
            raise SourceUnavailable("no answer within 5 s")
        if expression in self.errors:
            raise self.errors[expression]
        if expression.startswith("min("):  # The question for the time of the newest sample.
            return Answer(series=(_series({}, NOW - self.age_seconds),))
        found = self.answers.get(expression, {})
        series = tuple(_series({"node": node} if node else {}, value) for node, value in found.items())
        return Answer(series=series, **self.extras)  # type: ignore[arg-type]

    def range(self, expression: str, *, start_seconds: float, end_seconds: float, step_seconds: float) -> Answer:
        raise AssertionError("a check asks for the present only")


def _series(labels: dict[str, str], value: float) -> Series:
    return Series(labels, np.array([NOW - 30.0]), np.array([value]))


ANSWERS: Mapping[str, Labelled] = {
    "latency": {"": 0.4},
    "idle": {"": 0.2},
    "busy": {"a": 0.5, "b": 0.7},
    "queue": {"": 12.0},
    "wait": {"": 30.0},
    "done": {"": 0.3},
    "left": {"": 0.01},
    "remaining": {"": 600.0},
    "heat": {"a": 60.0, "b": 65.0},
    "power": {"a": 900.0, "b": 1000.0},
    "pending": {"": 0.1},
    "lost": {"": 0.05},
}


def run(
    source: FakeSource | None = None, *, policy: Policy = SMALLEST, actuator: Actuator | None = None
) -> CheckReport:
    return check(policy, source or FakeSource(ANSWERS), actuator or NoActuator(policy.knobs), at_seconds=NOW)


def row(report: CheckReport, name: str) -> Row:
    (found,) = [each for each in report.rows if each.name == name]
    return found


def changed(**mappings: MetricMapping) -> Policy:
    return SMALLEST.model_copy(update={"metrics": {**SMALLEST.metrics, **mappings}})


def test_a_policy_that_fits_passes() -> None:
    report = run()

    assert report.ok
    assert report.count(Status.FAILED) == 0
    assert {each.status for each in report.rows if each.area == "metrics"} == {Status.OK, Status.ABSENT}


def test_a_row_tells_value_unit_series_and_age() -> None:
    found = row(run(), "accelerator_utilization_ratio")

    assert found.value == pytest.approx(0.6)
    assert (found.unit, found.series, found.age_seconds) == ("ratio", 2, 30.0)


def test_each_query_is_asked_with_its_placeholders_filled_in() -> None:
    policy = changed(queue_length=MetricMapping(query='q{cluster="$cluster"}[$window]'))
    source = FakeSource({**ANSWERS, 'q{cluster="test"}[300s]': {"": 1.0}})

    assert run(source, policy=policy).ok


def test_values_are_scaled_before_they_are_judged() -> None:
    policy = changed(resource_idle_ratio=MetricMapping(query="idle", scale=0.01))

    found = row(run(FakeSource({**ANSWERS, "idle": {"": 45.0}}), policy=policy), "resource_idle_ratio")

    assert found.status is Status.OK
    assert found.value == pytest.approx(0.45)


@pytest.mark.parametrize(
    ("expression", "answer", "name", "message"),
    [
        ("queue", {}, "queue_length", "no series matches queue: check its name and labels"),
        ("queue", {"a": 1.0, "b": 2.0}, "queue_length", "answers with 2 series, must be one"),
        ("idle", {"": 45.0}, "resource_idle_ratio", "45 is over 1 ratio, the largest possible: correct the scale"),
        ("wait", {"": -1.0}, "queue_wait_seconds", "-1 is negative"),
        ("wait", {"": np.nan}, "queue_wait_seconds", "1 of 1 values are NaN or infinite: guard the query"),
        ("heat", {"a": np.inf, "b": 60.0}, "node_temperature_celsius", "1 of 2 values are NaN or infinite"),
        ("heat", {"": 60.0}, "node_temperature_celsius", "a series has no label node, only no labels"),
    ],
)
def test_what_is_wrong_with_an_answer_fails_with_its_remedy(
    expression: str, answer: Labelled, name: str, message: str
) -> None:
    report = run(FakeSource({**ANSWERS, expression: answer}))

    assert not report.ok
    assert row(report, name).status is Status.FAILED
    assert message in row(report, name).detail


def test_two_series_of_one_node_fail() -> None:
    class Doubled(FakeSource):
        def instant(self, expression: str, *, at_seconds: float) -> Answer:
            answer = super().instant(expression, at_seconds=at_seconds)
            return Answer(series=answer.series * 2) if expression == "power" else answer

    found = row(run(Doubled(ANSWERS)), "node_power_watts")

    assert found.status is Status.FAILED
    assert "several series for a, b: aggregate them, with by (node)" in found.detail


def test_negative_temperatures_are_possible() -> None:
    found = row(run(FakeSource({**ANSWERS, "heat": {"a": -5.0}})), "node_temperature_celsius")

    assert found.status is Status.OK


def test_old_samples_fail() -> None:
    report = run(FakeSource(ANSWERS, age_seconds=400.0))

    assert "the newest sample is 400 s old, over 150 s" in row(report, "queue_length").detail
    assert not report.ok


def test_series_that_say_nothing_now_are_a_warning_and_not_a_failure() -> None:
    policy = changed(queue_wait_seconds=MetricMapping(query="wait / (busy > 0)"))

    found = row(run(policy=policy), "queue_wait_seconds")

    assert found.status is Status.WARNING
    assert found.series == 0
    assert "nothing happened in the recent window" in found.detail


def test_missing_context_is_a_warning_because_it_is_optional() -> None:
    policy = SMALLEST.model_copy(update={"context": {"nodes_count": SeriesMapping(query="nodes")}})

    report = run(policy=policy)

    assert row(report, "nodes_count").status is Status.WARNING
    assert "no series matches nodes" in row(report, "nodes_count").detail
    assert report.ok


def test_a_value_beyond_its_limit_is_a_warning() -> None:
    policy = changed(node_temperature_celsius=MetricMapping(query="heat", node_label="node", limit=62.0))

    found = row(run(policy=policy), "node_temperature_celsius")

    assert found.status is Status.WARNING
    assert "65 is beyond its limit 62 already" in found.detail


def test_a_refused_query_fails_alone() -> None:
    source = FakeSource(ANSWERS)
    source.errors["queue"] = QueryRejected("parse error at char 3")

    report = run(source)

    assert row(report, "queue_length").detail == "parse error at char 3; correct the query"
    assert report.count(Status.FAILED) == 1


def test_a_source_that_is_down_is_soon_asked_no_more() -> None:
    source = FakeSource(ANSWERS)
    source.down = True

    report = run(source)

    assert len(source.asked) == MAX_UNANSWERED
    assert report.rows[0].status is Status.FAILED
    assert report.rows[0].detail == "no answer within 5 s; check source.url, and whether it runs"
    assert row(report, "node_power_watts").detail == "not asked: the source does not answer"


def test_one_slow_query_does_not_count_as_a_source_that_is_down() -> None:
    source = FakeSource(ANSWERS)
    source.errors["queue"] = SourceUnavailable("no answer within 5 s")

    report = run(source)

    assert report.rows[0].status is Status.OK
    assert report.count(Status.FAILED) == 1


def test_clocks_that_disagree_fail() -> None:
    source = FakeSource(ANSWERS)
    source.extras["clock_offset_seconds"] = -90.0

    report = run(source)

    assert report.rows[0].detail == "its clock is -90 s off ours, over 30 s: set both by NTP"
    assert not report.ok


def test_warnings_of_the_source_are_passed_on() -> None:
    source = FakeSource(ANSWERS)
    source.extras["warnings"] = ("a replica did not answer",)

    report = run(source)

    assert report.rows[0].detail == "it warns: a replica did not answer"
    assert report.rows[0].status is Status.WARNING


def test_a_source_without_promql_needs_names_to_scrape() -> None:
    policy = changed(queue_length=MetricMapping(query="queue", scrape="queue_gauge"))

    report = run(FakeSource({"queue_gauge": {"": 3.0}}, fuses=False), policy=policy)

    assert row(report, "queue_length").status is Status.OK
    assert row(report, "queue_length").age_seconds == 30.0
    assert "names no series to scrape" in row(report, "queue_wait_seconds").detail


def test_absent_metrics_and_roles_are_shown_with_their_reason() -> None:
    report = run(policy=changed(node_power_watts=MetricMapping(absent="no power meter")))

    assert row(report, "node_power_watts").status is Status.ABSENT
    assert row(report, "node_power_watts").detail == "no power meter"
    assert row(report, "base_slice_seconds").detail == "no slices here"
    assert report.ok


def test_weights_that_do_not_sum_to_one_are_told() -> None:
    assert row(run(), "weights").detail.startswith("they sum to 0.85, not to 1")


def test_weights_that_sum_to_one_are_fine() -> None:
    heavier = changed(queue_wait_seconds=MetricMapping(query="wait", weight=0.4))

    assert row(run(policy=heavier), "weights").status is Status.OK


def writing_policy() -> Policy:
    other = load_policy(Path(__file__).parent / "settings" / "policies" / "good" / "wide_ranges.yaml")
    return other.model_copy(update={"knobs": {role: KnobMapping(native=role.value) for role in Role}})


def test_knobs_are_shown_as_they_are_in_force() -> None:
    report = run(policy=writing_policy(), actuator=MemoryActuator())

    assert row(report, "base_slice_seconds").value == 0.115
    assert row(report, "base_slice_seconds").unit == "s"
    assert row(report, "http").detail == "mode full, revision 1"


@pytest.mark.parametrize(
    ("mode_key", "native", "status", "words"),
    [
        ("mode", {"mode": "full"}, None, ""),
        ("policy.mode", {"policy": {"mode": "full"}}, None, ""),
        ("mode", {}, Status.WARNING, "the settings have no key mode, to which latency breaker and degradation would"),
        (None, {}, Status.ABSENT, "latency breaker and degradation are watched, and change nothing"),
    ],
)
def test_it_is_told_where_nothing_can_set_a_policy_mode(
    mode_key: str | None, native: dict[str, object], status: Status | None, words: str
) -> None:
    policy, scheduler = writing_policy(), MemoryActuator()
    policy = policy.model_copy(update={"actuator": policy.actuator.model_copy(update={"mode_key": mode_key})})
    scheduler.current = replace(scheduler.current, native=native)

    report = run(policy=policy, actuator=scheduler)

    told = [found for found in report.rows if found.name == "policy mode"]
    assert [found.status for found in told] == ([] if status is None else [status])
    assert all(words in found.detail for found in told)
    assert row(report, "http").status is Status.OK


def test_a_knob_outside_its_range_is_a_warning() -> None:
    low = KnobValues.of({**middle(DESIGN_RANGES.values()), Role.BASE_SLICE: 0.03})

    found = row(run(policy=writing_policy(), actuator=MemoryActuator(low)), "base_slice_seconds")

    assert found.status is Status.WARNING
    assert "outside the range 0.08 to 0.15" in found.detail


def test_a_scheduler_that_cannot_be_reached_fails() -> None:
    scheduler = MemoryActuator()
    scheduler.unreachable = True

    report = run(policy=writing_policy(), actuator=scheduler)

    assert row(report, "http").detail == (
        "the scheduler cannot be reached; check actuator.url, and whether the scheduler runs"
    )
    assert row(report, "reservation_ratio").status is Status.FAILED


def test_a_check_writes_nothing() -> None:
    scheduler = MemoryActuator()

    run(policy=writing_policy(), actuator=scheduler)

    assert scheduler.writes == 0


def shown(report: CheckReport) -> str:
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(render(report))
    return capture.get()


@pytest.mark.parametrize(
    ("spoil", "closing"),
    [(lambda _: None, "The policy fits."), (lambda s: s.answers.pop("queue"), "The policy does not fit yet.")],
)
def test_the_table_shows_every_row_and_a_closing_line(spoil: Callable[[FakeSource], None], closing: str) -> None:
    source = FakeSource(ANSWERS)
    spoil(source)
    report = run(source)

    text = shown(report)

    assert all(each.name in text for each in report.rows)
    assert "0.6 ratio" in text
    assert closing in text


def test_brackets_in_a_message_are_not_taken_for_markup() -> None:
    source = FakeSource(ANSWERS)
    source.errors["queue"] = QueryRejected("unexpected [5m] in x[5m]")

    assert "unexpected [5m] in x[5m]" in shown(run(source))


def test_names_and_findings_are_whole_on_a_narrow_console() -> None:
    source = FakeSource(ANSWERS)
    source.answers.pop("queue")
    report = run(source)
    console = Console(width=80, color_system=None)

    with console.capture() as capture:
        console.print(render(report))

    assert all(each.name in capture.get() for each in report.rows)
    assert "…" not in capture.get()


def test_rows_that_say_the_same_say_it_once() -> None:
    rows = [Row(area="metrics", name=name, status=Status.FAILED, detail="not asked") for name in ("a", "b")]

    assert "failed a, b: not asked" in shown(CheckReport(tuple(rows)))
