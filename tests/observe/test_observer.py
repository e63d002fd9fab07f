"""What the observer makes of answers, good and bad; the source is scripted, because no server errs on demand."""

import math
from typing import Any

import numpy as np
import pytest

from tests.support.policies import policy_of
from tests.support.scripted import ScriptedSource
from tuner.errors import QueryRejected, QueryTooLarge, SourceUnavailable
from tuner.observe.meter import MAX_QUERIES
from tuner.observe.observer import NODE_COLUMNS, Observer
from tuner.observe.source import Answer
from tuner.values.metrics import METRIC_INDEX, METRICS
from tuner.values.stages import FloatArray, Observation

AT = 1_796_067_600.0
QUEUE = METRIC_INDEX["queue_length"]


def observer(source: ScriptedSource, metrics: dict[str, dict[str, Any]], **sections: Any) -> Observer:
    sections.setdefault("cycle", {"history_seconds": "1h"})
    return Observer(source, policy_of(metrics, **sections))


def queue_only(source: ScriptedSource, **sections: Any) -> Observer:
    return observer(source, {"queue_length": {"query": "q"}}, **sections)


def reasons(seen: Observation, metric: str) -> list[str]:
    return [problem.reason for problem in seen.problems if problem.metric == metric]


def minutes(times: FloatArray) -> FloatArray:
    """A series whose value is the minute since `AT`, plus a thousand."""
    return (times - AT) / 60 + 1000


def test_a_healthy_cluster_is_seen_whole() -> None:
    source = ScriptedSource({"q": minutes, "n": 12.0})
    watching = queue_only(source, context={"nodes_count": {"query": "n"}})

    seen = watching.observe(cycle_id=7, at_seconds=AT)

    assert (seen.cycle_id, seen.at_seconds) == (7, AT)
    assert seen.metrics[QUEUE] == 1000.0
    assert seen.ages_seconds[QUEUE] == 0.0
    assert seen.coverage_ratio[QUEUE] == 1.0
    assert seen.context == {"nodes_count": 12.0}
    assert type(seen.context["nodes_count"]) is float, "so that it can be written as JSON"
    assert seen.history.names == ("queue_length", "nodes_count")
    assert seen.history.end_at_seconds == AT
    np.testing.assert_allclose(seen.history["queue_length"], np.arange(941, 1001))
    assert seen.problems == ()
    assert np.isnan(np.delete(seen.metrics, QUEUE)).all(), "what the policy does not map has no value"


def test_history_is_read_once_and_afterwards_only_what_is_new() -> None:
    source = ScriptedSource({"q": minutes})
    watching = queue_only(source, cycle={"history_seconds": "24h"})
    watching.observe(cycle_id=1, at_seconds=AT)
    loaded = [end - start for kind, _, start, end in source.asked if kind == "range"]
    assert sum(loaded) + 60 * len(loaded) == 86_400

    for cycle in range(1, 4):
        source.asked.clear()
        seen = watching.observe(cycle_id=cycle, at_seconds=AT + 60 * cycle)
        assert [(kind, start - AT, end - AT) for kind, _, start, end in source.asked] == [
            ("instant", 60 * cycle, 60 * cycle),
            ("range", 60 * (cycle - 1), 60 * cycle),
        ]
        assert watching.last_bytes == 200

    # A thousand minutes ago the value was 0, and before that negative, which is not possible.
    assert np.isnan(seen.history["queue_length"]).sum() == 0
    assert seen.history["queue_length"][0] == 0.0
    assert seen.history["queue_length"][-1] == 1003.0


def test_the_grid_ends_at_the_last_full_minute_but_now_is_now() -> None:
    source = ScriptedSource({"q": minutes})

    seen = queue_only(source).observe(cycle_id=1, at_seconds=AT + 45)

    assert seen.history.end_at_seconds == AT
    assert seen.history["queue_length"][-1] == 1000.0
    assert seen.metrics[QUEUE] == 1000.75


def test_an_empty_answer_is_missing_and_never_zero() -> None:
    source = ScriptedSource({"q": 120.0})
    watching = queue_only(source)
    watching.observe(cycle_id=1, at_seconds=AT)
    source.values["q"] = {}
    source.newest_at["q"] = math.nan

    found = [watching.observe(cycle_id=cycle, at_seconds=AT + 60 * cycle) for cycle in range(1, 6)]

    # The last good column stands in while it is fresh (150 s), then there is nothing.
    np.testing.assert_array_equal([seen.metrics[QUEUE] for seen in found], [120, 120, np.nan, np.nan, np.nan])
    assert [seen.ages_seconds[QUEUE] for seen in found] == [60, 120, 180, 240, 300]
    assert [reasons(seen, "queue_length") for seen in found] == [[], [], ["stale"], ["stale"], ["stale"]]
    assert [round(seen.coverage_ratio[QUEUE], 1) for seen in found] == [0.8, 0.6, 0.4, 0.2, 0.0]
    assert found[-1].arriving, "no data is not idle"
    assert not np.isin(0.0, found[-1].history["queue_length"])


def test_what_never_had_a_sample_is_missing_with_no_age() -> None:
    seen = queue_only(ScriptedSource({}, newest_at={"q": math.nan})).observe(cycle_id=1, at_seconds=AT)

    assert np.isnan(seen.metrics[QUEUE])
    assert np.isnan(seen.ages_seconds[QUEUE])
    assert seen.coverage_ratio[QUEUE] == 0.0
    assert reasons(seen, "queue_length") == ["missing"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_numbers_are_rejected_with_a_reason(value: float) -> None:
    def broken(times: FloatArray) -> FloatArray:
        return np.where(times >= AT - 120, value, 120.0)

    seen = queue_only(ScriptedSource({"q": broken})).observe(cycle_id=1, at_seconds=AT)

    assert np.isnan(seen.metrics[QUEUE])
    assert seen.coverage_ratio[QUEUE] == pytest.approx(0.4)
    assert reasons(seen, "queue_length") == ["non_finite"]
    assert np.isfinite(seen.history["queue_length"]).sum() == 57


def test_a_rate_that_goes_on_after_its_series_stopped_is_stale() -> None:
    source = ScriptedSource({"q": 5.0}, newest_at={"q": AT - 200})

    seen = queue_only(source).observe(cycle_id=1, at_seconds=AT)

    assert np.isnan(seen.metrics[QUEUE])
    assert seen.ages_seconds[QUEUE] == 200.0
    assert reasons(seen, "queue_length") == ["stale"]
    assert seen.coverage_ratio[QUEUE] == pytest.approx(0.8), "the column that only repeats the rate is left out"


def test_impossible_values_are_rejected_and_rounding_is_not() -> None:
    source = ScriptedSource({"idle": 75.0, "overhead": 1.004})
    watching = observer(
        source, {"resource_idle_ratio": {"query": "idle"}, "switch_overhead_ratio": {"query": "overhead"}}
    )

    seen = watching.observe(cycle_id=1, at_seconds=AT)

    assert np.isnan(seen.metrics[METRIC_INDEX["resource_idle_ratio"]])
    assert reasons(seen, "resource_idle_ratio") == ["out_of_range"]
    assert seen.metrics[METRIC_INDEX["switch_overhead_ratio"]] == 1.0


@pytest.mark.parametrize(("rate", "arriving"), [(0.0, False), (0.5, True)])
def test_idle_is_told_from_no_data(rate: float, arriving: bool) -> None:
    source = ScriptedSource({"q": 0.0, "rate": rate})
    watching = queue_only(source, context={"arrivals_per_second:training": {"query": "rate"}})

    seen = watching.observe(cycle_id=1, at_seconds=AT)

    assert seen.arriving is arriving


NODES: dict[str, dict[str, Any]] = {
    "accelerator_utilization_ratio": {"query": "u", "node_label": "node"},
    "node_temperature_celsius": {"query": "t", "node_label": "node"},
}


def node_source(**nodes: float) -> ScriptedSource:
    """A source without PromQL, so that means are made here, with some nodes."""
    series: Any = dict(nodes)
    return ScriptedSource({"u": series, "t": {node: 40 + 10 * value for node, value in nodes.items()}}, fuses=False)


def node_observer(source: ScriptedSource) -> Observer:
    metrics = {name: {**mapping, "scrape": mapping["query"]} for name, mapping in NODES.items()}
    return observer(source, metrics)


def test_per_node_metrics_have_frames_and_means_and_the_hottest_node() -> None:
    seen = node_observer(node_source(n1=0.25, n0=0.75)).observe(cycle_id=1, at_seconds=AT)

    frame = seen.nodes["accelerator_utilization_ratio"]
    assert frame.names == ("n0", "n1")
    assert frame.values.shape == (2, NODE_COLUMNS)
    assert frame["n1"].tolist() == [0.25] * NODE_COLUMNS
    assert seen.metrics[METRIC_INDEX["accelerator_utilization_ratio"]] == 0.5
    assert seen.metrics[METRIC_INDEX["node_temperature_celsius"]] == 47.5
    np.testing.assert_allclose(seen.history["node_temperature_celsius"], 45.0)


def test_nodes_come_and_go_without_breaking_the_frame() -> None:
    source = node_source(n1=0.5, n2=0.5)
    watching = node_observer(source)
    watching.observe(cycle_id=1, at_seconds=AT)

    source.values = node_source(n0=0.1, n2=0.9).values
    seen = watching.observe(cycle_id=2, at_seconds=AT + 60)

    frame = seen.nodes["accelerator_utilization_ratio"]
    assert frame.names == ("n0", "n1", "n2")
    np.testing.assert_array_equal(frame.values[:, -1], [0.1, np.nan, 0.9])
    np.testing.assert_array_equal(frame["n0"][:-2], np.nan)
    assert frame["n1"][-2] == 0.5
    assert seen.metrics[METRIC_INDEX["accelerator_utilization_ratio"]] == pytest.approx(0.5)
    assert seen.coverage_ratio[METRIC_INDEX["accelerator_utilization_ratio"]] == 1.0

    for cycle in range(3, 3 + NODE_COLUMNS):
        seen = watching.observe(cycle_id=cycle, at_seconds=AT + 60 * (cycle - 1))
    assert seen.nodes["accelerator_utilization_ratio"].names == ("n0", "n2")


def test_series_without_the_node_label_are_told() -> None:
    source = ScriptedSource({"u": 0.5}, fuses=False)
    watching = observer(source, {"accelerator_utilization_ratio": {"query": "u", "scrape": "u", "node_label": "host"}})

    seen = watching.observe(cycle_id=1, at_seconds=AT)

    assert reasons(seen, "accelerator_utilization_ratio") == ["missing"]
    assert seen.nodes["accelerator_utilization_ratio"].names == ()


def test_a_wrong_expression_is_reported_and_costs_only_itself() -> None:
    source = ScriptedSource({"q": 3.0, "w": 9.0}, refusals={"bad": QueryRejected("1:9: parse error")})
    metrics = {
        name: {"query": query}
        for name, query in (
            ("queue_length", "q"),
            ("queue_wait_seconds", "w"),
            ("tasks_completed_per_second", "bad"),
        )
    }
    watching = observer(source, metrics)

    seen = watching.observe(cycle_id=1, at_seconds=AT)

    assert [(p.metric, p.reason, p.detail) for p in seen.problems] == [
        ("tasks_completed_per_second", "rejected", "1:9: parse error")
    ]
    assert seen.metrics[QUEUE] == 3.0
    assert np.isfinite(seen.history["queue_wait_seconds"]).all()
    assert np.isnan(seen.history["tasks_completed_per_second"]).all()
    assert len(watching.last_query_seconds) == watching.last_queries <= MAX_QUERIES


def test_a_metric_with_too_many_series_is_reported_and_costs_only_itself() -> None:
    source = ScriptedSource({"q": 3.0}, refusals={"jobs": QueryTooLarge("the answer holds 50000 series")})
    watching = observer(source, {"queue_length": {"query": "q"}, "queue_wait_seconds": {"query": "jobs"}})

    seen = watching.observe(cycle_id=1, at_seconds=AT)

    assert reasons(seen, "queue_wait_seconds") == ["too_many_series"]
    assert seen.metrics[QUEUE] == 3.0


def test_several_series_where_one_is_expected_are_not_guessed_from() -> None:
    seen = queue_only(ScriptedSource({"q": {"a": 1.0, "b": 2.0}})).observe(cycle_id=1, at_seconds=AT)

    assert np.isnan(seen.metrics[QUEUE])
    assert reasons(seen, "queue_length") == ["too_many_series"]


def test_a_source_that_is_down_raises_and_what_was_known_is_kept_for_when_it_is_back() -> None:
    source = ScriptedSource({"q": minutes})
    watching = queue_only(source)
    watching.observe(cycle_id=1, at_seconds=AT)

    source.refusals["q"] = SourceUnavailable("connection refused")
    with pytest.raises(SourceUnavailable):
        watching.observe(cycle_id=2, at_seconds=AT + 60)
    source.refusals.clear()
    source.asked.clear()
    seen = watching.observe(cycle_id=3, at_seconds=AT + 600)

    assert source.asked[-1] == ("range", ("queue_length",), AT, AT + 600)
    np.testing.assert_allclose(seen.history["queue_length"], np.arange(951, 1011))


def test_history_that_cannot_be_had_now_is_a_problem_and_comes_later() -> None:
    class NoRanges(ScriptedSource):
        down = True

        def _answer(self, kind: str, expression: str, times: FloatArray) -> Answer:
            if self.down and kind == "range":
                raise SourceUnavailable("did not answer within 5 s")
            return super()._answer(kind, expression, times)

    source = NoRanges({"q": minutes})
    watching = queue_only(source)

    seen = watching.observe(cycle_id=1, at_seconds=AT)
    assert seen.metrics[QUEUE] == 1000.0
    assert [(p.metric, p.reason) for p in seen.problems] == [("source", "unavailable")]

    source.down = False
    seen = watching.observe(cycle_id=2, at_seconds=AT + 60)
    np.testing.assert_allclose(seen.history["queue_length"], np.arange(942, 1002))
    assert seen.problems == ()


def test_what_answers_say_against_themselves_is_reported() -> None:
    source = ScriptedSource({"q": 1.0}, warnings=("store b did not answer",), duplicates=2)

    seen = queue_only(source).observe(cycle_id=1, at_seconds=AT)

    assert {(p.metric, p.reason) for p in seen.problems} == {("source", "partial"), ("source", "duplicate")}
    assert "store b did not answer" in seen.problems[0].detail


@pytest.mark.parametrize(("offset", "skewed"), [(0.4, False), (-29.0, False), (43_200.0, True), (-31.0, True)])
def test_clocks_that_disagree_are_reported(offset: float, skewed: bool) -> None:
    seen = queue_only(ScriptedSource({"q": 1.0}, clock_offset_seconds=offset)).observe(cycle_id=1, at_seconds=AT)

    assert reasons(seen, "source") == (["clock_skew"] if skewed else [])


def test_the_clock_may_be_set_back_and_everything_is_read_anew() -> None:
    source = ScriptedSource({"q": minutes})
    watching = queue_only(source)
    watching.observe(cycle_id=1, at_seconds=AT + 1800)

    seen = watching.observe(cycle_id=2, at_seconds=AT)

    np.testing.assert_allclose(seen.history["queue_length"], np.arange(941, 1001))


def test_nodes_that_cannot_be_had_cost_only_their_frame() -> None:
    class NoNodes(ScriptedSource):
        def _answer(self, kind: str, expression: str, times: FloatArray) -> Answer:
            if kind == "range" and expression == "u":
                raise QueryTooLarge("the answer holds 50000 series")
            return super()._answer(kind, expression, times)

    source = NoNodes(node_source(n1=0.5).values, fuses=False)

    seen = node_observer(source).observe(cycle_id=1, at_seconds=AT)

    assert reasons(seen, "accelerator_utilization_ratio") == ["too_many_series"]
    assert seen.nodes["accelerator_utilization_ratio"].names == ()
    assert seen.nodes["node_temperature_celsius"].names == ("n1",)
    assert seen.metrics[METRIC_INDEX["accelerator_utilization_ratio"]] == 0.5


def test_what_is_not_reached_within_the_limit_of_queries_is_told_and_reached_later() -> None:
    names = [spec.name for spec in METRICS if not spec.per_node]
    source = ScriptedSource(dict.fromkeys(names, 0.5))
    source.refusals = {name: QueryRejected("parse error") for name in names[:6]}
    watching = observer(source, {name: {"query": name} for name in names})

    seen = watching.observe(cycle_id=1, at_seconds=AT)
    assert watching.last_queries <= MAX_QUERIES
    told = {problem.metric for problem in seen.problems}
    assert told == {name for name in names if np.isnan(seen.metrics[METRIC_INDEX[name]])}
    assert "unavailable" in {problem.reason for problem in seen.problems}

    for cycle in range(1, 5):
        seen = watching.observe(cycle_id=cycle, at_seconds=AT + 60 * cycle)
    assert {(problem.metric, problem.reason) for problem in seen.problems} == {(name, "rejected") for name in names[:6]}
    assert np.isfinite(seen.history[names[-1]]).all()


def test_no_future_is_looked_into_where_nothing_is_read() -> None:
    source = ScriptedSource({}, newest_at={})
    watching = observer(source, {"queue_length": {"query": "2"}})

    seen = watching.observe(cycle_id=1, at_seconds=AT)

    assert [kind for kind, *_ in source.asked] == ["instant", "range"]
    assert reasons(seen, "queue_length") == ["missing"]


def test_the_search_for_a_wrong_clock_may_fail() -> None:
    class NoFuture(ScriptedSource):
        def _answer(self, kind: str, expression: str, times: FloatArray) -> Answer:
            if times[0] > AT:
                raise SourceUnavailable("too slow")
            return super()._answer(kind, expression, times)

    seen = queue_only(NoFuture({}, newest_at={"q": math.nan})).observe(cycle_id=1, at_seconds=AT)

    assert [problem.metric for problem in seen.problems] == ["queue_length"]


def test_a_metric_without_a_name_to_scrape_is_missing() -> None:
    watching = queue_only(ScriptedSource({}, fuses=False))

    seen = watching.observe(cycle_id=1, at_seconds=AT)

    assert [(p.metric, p.reason) for p in seen.problems] == [("queue_length", "missing")]
    assert "scrape" in seen.problems[0].detail


def test_an_observation_does_not_change_when_the_next_one_is_made() -> None:
    watching = queue_only(ScriptedSource({"q": minutes}))
    first = watching.observe(cycle_id=1, at_seconds=AT)
    before = first.history.values.copy()

    watching.observe(cycle_id=2, at_seconds=AT + 60)

    np.testing.assert_array_equal(first.history.values, before)
