"""What a guard tick sees, from scripted answers and from real servers."""

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.faulty import Handler, Request, answer, faulty_server
from tests.support.policies import policy_of
from tests.support.scripted import ScriptedSource
from tests.support.servers import running_prometheus
from tuner import assets
from tuner.demo.remote_write import RemoteWriter, SeriesBlock
from tuner.errors import QueryRejected, SourceUnavailable
from tuner.judge.samples import Arrival, arrival
from tuner.observe.asker import RETRY_CYCLES
from tuner.observe.glance import DEADLINE_PERIODS, GUARDED, SLOW_SECONDS, Glance, guard_policy
from tuner.observe.meter import MAX_QUERIES
from tuner.observe.prometheus import PrometheusSource
from tuner.observe.promql import NEWEST_LABEL, VALUE_LABEL
from tuner.observe.scrape import ScrapeSource
from tuner.observe.source import Answer, Series
from tuner.settings.loading import load_policy
from tuner.settings.model import Policy
from tuner.values.metrics import METRIC_INDEX, METRICS
from tuner.values.safety import Reading
from tuner.values.stages import FloatArray

AT = 1_796_067_600.0
LATENCY = "scheduling_latency_seconds"
HOT = "node_temperature_celsius"
MAPPED: dict[str, dict[str, Any]] = {
    LATENCY: {"query": "latency", "scrape": "latency"},
    "resource_idle_ratio": {"query": "idle", "scrape": "idle"},
    "task_abandonment_ratio": {"query": "abandoned", "scrape": "abandoned"},
    "pending_demand_ratio": {"query": "pending", "scrape": "pending"},
    "high_priority_wait_seconds": {"query": "wait", "scrape": "wait"},
}
VALUES: dict[str, Any] = {"latency": 0.4, "idle": 0.1, "abandoned": 0.0, "pending": 1.5, "wait": 12.0}


def glance(source: Any, metrics: dict[str, dict[str, Any]] | None = None, **sections: Any) -> Glance:
    return Glance(source, policy_of(MAPPED if metrics is None else metrics, **sections))


def latency_only(source: ScriptedSource, **sections: Any) -> Glance:
    return glance(source, {LATENCY: {"query": "latency"}}, **sections)


def problems(seen: Reading) -> list[tuple[str, str]]:
    return [(problem.metric, problem.reason) for problem in seen.problems]


def test_the_guarded_metrics_are_read_in_one_query_and_nothing_else_is() -> None:
    source = ScriptedSource({**VALUES, "queue": 7.0, "nodes": 3.0})
    looking = Glance(
        source,
        policy_of({**MAPPED, "queue_length": {"query": "queue"}}, context={"nodes_count": {"query": "nodes"}}),
    )

    seen = looking.read(at_seconds=AT)

    assert source.asked == [("instant", tuple(MAPPED), AT, AT)]
    assert [seen.value(name) for name in MAPPED] == list(VALUES.values())
    assert [seen.newest(name) for name in MAPPED] == [AT] * 5
    assert np.isnan(np.delete(seen.metrics, [METRIC_INDEX[name] for name in MAPPED])).all()
    assert (seen.at_seconds, seen.problems) == (AT, ())
    assert (looking.last_queries, looking.last_bytes) == (1, 100)


def test_all_that_is_guarded_is_in_the_catalogue_and_covers_what_is_safety() -> None:
    assert list(GUARDED) == [name for name in METRIC_INDEX if name in GUARDED]
    assert {spec.name for spec in METRICS if spec.safety} <= set(GUARDED)


NODES_TOO = {**MAPPED, HOT: {"query": "hot", "node_label": "node"}}


class Heat:
    """A cluster whose hottest node can be set; counts how often each metric was asked for."""

    def __init__(self, celsius: float = 55.0, *, fuses: bool = True) -> None:
        self.fuses = fuses
        self.celsius = celsius
        self.newest_at_seconds = AT
        self.asked: dict[str, list[float]] = {name: [] for name in NODES_TOO}
        self.failure: Exception | None = None

    def instant(self, expression: str, *, at_seconds: float) -> Answer:
        if self.failure is not None:
            raise self.failure
        series = []
        for name in [name for name in NODES_TOO if f'"{name}"' in expression]:
            self.asked[name].append(at_seconds)
            value, newest = self.told(name, at_seconds)
            for label, number in ((VALUE_LABEL, value), (NEWEST_LABEL, newest)):
                if not math.isnan(number):
                    series.append(Series({label: name}, np.array([at_seconds]), np.array([number])))
        return Answer(series=tuple(series), queries=1)

    def told(self, name: str, at_seconds: float) -> tuple[float, float]:
        return (self.celsius, self.newest_at_seconds) if name == HOT else (0.5, at_seconds)


def test_what_is_evaluated_node_by_node_is_asked_every_half_minute_and_the_rest_in_every_tick() -> None:
    source = Heat()
    looking = glance(source, NODES_TOO)

    queries, asked = set(), []
    for tick in range(13):
        looking.read(at_seconds=AT + 5 * tick)
        queries.add(looking.last_queries)
        asked.append(looking.last_asked)

    assert source.asked[HOT] == [AT, AT + 30, AT + 60]
    assert all(len(source.asked[name]) == 13 for name in MAPPED)
    assert queries == {1}, "fused with the others where it is due"
    assert asked == [6, 5, 5, 5, 5, 5] * 2 + [6]


@pytest.mark.parametrize(("window", "every"), [(10.0, 5.0), (20.0, 10.0), (60.0, 30.0), (600.0, 30.0)])
def test_it_is_asked_more_often_where_the_window_is_short(window: float, every: float) -> None:
    source = Heat()
    looking = glance(source, NODES_TOO, guard={"window_seconds": window})

    for tick in range(61):
        looking.read(at_seconds=AT + tick)

    assert set(np.diff(source.asked[HOT])) == {every}


def test_a_node_that_becomes_too_hot_is_seen_within_half_a_minute_and_a_period() -> None:
    source = Heat()
    looking = glance(source, NODES_TOO)
    period, first = 5.0, 1.0
    looking.read(at_seconds=AT)
    source.celsius, source.newest_at_seconds = 97.0, AT + first

    seen = next(
        at for at in np.arange(AT + first, AT + 300, period) if looking.read(at_seconds=at).value(HOT) == source.celsius
    )

    assert seen - source.newest_at_seconds <= SLOW_SECONDS + period


def test_what_is_carried_over_keeps_its_time_and_grows_stale_like_any_other() -> None:
    source = Heat()
    source.newest_at_seconds = AT - 100
    looking = glance(source, NODES_TOO)

    seen = [looking.read(at_seconds=AT + later) for later in (0, 15, 25)]

    assert source.asked[HOT] == [AT]
    assert {each.newest(HOT) for each in seen} == {AT - 100}
    assert [each.value(HOT) for each in seen[:2]] == [55.0, 55.0]
    assert math.isnan(seen[2].value(HOT))
    assert problems(seen[2]) == [(HOT, "stale")]


@given(
    steps=st.lists(st.floats(0.5, 40.0), min_size=1, max_size=25),
    delays=st.lists(st.floats(0.0, 100.0), min_size=25, max_size=25),
    down=st.lists(st.booleans(), min_size=25, max_size=25),
)
def test_what_is_carried_over_is_never_news(steps: list[float], delays: list[float], down: list[bool]) -> None:
    source = Heat()
    looking = glance(source, NODES_TOO)
    at, told, counted = AT, -math.inf, -math.inf
    for step, delay, failing in zip(steps, delays, down, strict=False):
        at += step
        asked = len(source.asked[HOT])
        source.newest_at_seconds = max(source.newest_at_seconds, at - delay)
        source.failure = SourceUnavailable("down") if failing else None
        try:
            seen = looking.read(at_seconds=at)
        except SourceUnavailable:
            continue
        if len(source.asked[HOT]) > asked:
            told = source.newest_at_seconds
        came = arrival(seen.newest(HOT), newest_at_seconds=counted, window_seconds=60.0)
        assert seen.newest(HOT) == told, "the time is that of the sample, and no later one"
        assert len(source.asked[HOT]) > asked or came is Arrival.OLD, "nothing counts twice"
        assert math.isnan(seen.value(HOT)) == (at - told > 120.0)
        counted = max(counted, seen.newest(HOT))


def test_what_gave_nothing_is_not_carried_over_but_asked_again_in_the_next_tick() -> None:
    source = Heat(celsius=math.nan)
    looking = glance(source, NODES_TOO)
    first = looking.read(at_seconds=AT)
    source.celsius = 71.0

    second = looking.read(at_seconds=AT + 5)

    assert problems(first) == [(HOT, "missing")]
    assert (second.value(HOT), second.problems) == (71.0, ())
    assert source.asked[HOT] == [AT, AT + 5]


def test_after_the_clock_was_set_back_nothing_is_carried_over_from_the_future() -> None:
    source = Heat()
    looking = glance(source, NODES_TOO)
    looking.read(at_seconds=AT)

    looking.read(at_seconds=AT - 3600)

    assert source.asked[HOT] == [AT, AT - 3600]


def test_a_source_that_was_down_is_asked_for_everything_that_is_due_when_it_is_back() -> None:
    source = Heat()
    looking = glance(source, NODES_TOO)
    looking.read(at_seconds=AT)
    source.failure = SourceUnavailable("down")
    with pytest.raises(SourceUnavailable):
        looking.read(at_seconds=AT + 30)
    source.failure = None

    looking.read(at_seconds=AT + 35)

    assert source.asked[HOT] == [AT, AT + 35]


@pytest.mark.parametrize("bad", [*VALUES, "hot"])
def test_what_is_refused_is_isolated_as_ever_while_some_metrics_are_not_asked(bad: str) -> None:
    source = ScriptedSource({**VALUES, "hot": 60.0}, refusals={bad: QueryRejected("parse error")})
    looking = glance(source, {**MAPPED, HOT: {"query": "hot"}})

    seen = [looking.read(at_seconds=AT + 5 * tick) for tick in range(3 * RETRY_CYCLES)]
    source.refusals.clear()
    healed = [looking.read(at_seconds=AT + 1000 + 5 * tick) for tick in range(2 * RETRY_CYCLES)]

    spoilt = {problem.metric for each in seen for problem in each.problems}
    assert len(spoilt) <= 1
    assert all(np.isfinite(each.metrics).sum() == 6 - len(spoilt) for each in seen)
    assert healed[-1].problems == ()
    assert looking.last_queries == 1


class Recording:
    """Answers nothing, and remembers what it was asked."""

    def __init__(self, *, fuses: bool = True) -> None:
        self.fuses = fuses
        self.texts: list[str] = []

    def instant(self, expression: str, *, at_seconds: float) -> Answer:
        self.texts.append(expression)
        return Answer(series=())


def test_the_window_is_that_of_the_guard() -> None:
    source = Recording()
    metrics = {LATENCY: {"query": 'rate(latency{cluster="$cluster"}[$window])'}}

    glance(source, metrics, guard={"window_seconds": "45s"}).read(at_seconds=AT)

    (text,) = source.texts
    assert 'rate(latency{cluster="north"}[45s])' in text


def test_a_sample_that_was_seen_before_keeps_its_time() -> None:
    source = ScriptedSource({"latency": 0.4}, newest_at={"latency": AT - 3})
    looking = latency_only(source)

    newest = [looking.read(at_seconds=AT + later).newest(LATENCY) for later in (0, 5, 10)]
    source.newest_at["latency"] = AT + 12
    newest.append(looking.read(at_seconds=AT + 15).newest(LATENCY))

    assert newest == [AT - 3, AT - 3, AT - 3, AT + 12]


@pytest.mark.parametrize(("age", "known"), [(0, True), (120, True), (120.5, False), (299, False)])
def test_a_sample_is_believed_for_two_windows(age: float, known: bool) -> None:
    source = ScriptedSource({"latency": 0.4}, newest_at={"latency": AT - age})

    seen = latency_only(source).read(at_seconds=AT)

    assert math.isnan(seen.value(LATENCY)) is not known
    assert seen.newest(LATENCY) == AT - age, "when it stopped is known all the same"
    assert problems(seen) == ([] if known else [(LATENCY, "stale")])


def test_a_series_that_stopped_is_stale_from_when_it_was_last_seen() -> None:
    source = ScriptedSource({"latency": 0.4})
    looking = latency_only(source)
    looking.read(at_seconds=AT)
    source.values.clear()
    source.newest_at["latency"] = math.nan

    soon, late = looking.read(at_seconds=AT + 65), looking.read(at_seconds=AT + 125)

    assert problems(soon) == [(LATENCY, "missing")]
    assert problems(late) == [(LATENCY, "stale")]
    assert (soon.newest(LATENCY), late.newest(LATENCY)) == (AT, AT)
    assert "125 s old; the limit is 120 s" in late.problems[0].detail


def test_what_never_had_a_sample_is_missing_and_has_no_time() -> None:
    seen = latency_only(ScriptedSource({}, newest_at={"latency": math.nan})).read(at_seconds=AT)

    assert math.isnan(seen.value(LATENCY))
    assert math.isnan(seen.newest(LATENCY))
    assert problems(seen) == [(LATENCY, "missing")]


@pytest.mark.parametrize(
    ("metric", "value", "reason"),
    [
        (LATENCY, math.nan, "non_finite"),
        (LATENCY, math.inf, "non_finite"),
        (LATENCY, -1.0, "out_of_range"),
        ("resource_idle_ratio", 1.5, "out_of_range"),
        ("task_abandonment_ratio", 75.0, "out_of_range"),
    ],
)
def test_what_cannot_be_is_a_problem_and_no_number(metric: str, value: float, reason: str) -> None:
    seen = glance(ScriptedSource({"x": value}), {metric: {"query": "x"}}).read(at_seconds=AT)

    assert math.isnan(seen.value(metric))
    assert problems(seen) == [(metric, reason)]


def test_two_series_where_one_is_expected_are_not_believed() -> None:
    source = ScriptedSource({"latency": {"a": 0.4, "b": 9.0}})

    seen = latency_only(source).read(at_seconds=AT)

    assert math.isnan(seen.value(LATENCY))
    assert problems(seen) == [(LATENCY, "too_many_series")]


def test_values_come_in_the_unit_of_the_metric() -> None:
    source = ScriptedSource({"latency": 400.0})

    seen = glance(source, {LATENCY: {"query": "latency", "scale": 0.001}}).read(at_seconds=AT)

    assert seen.value(LATENCY) == pytest.approx(0.4)


@pytest.mark.parametrize("bad", list(VALUES))
def test_a_refused_query_is_isolated_and_the_others_are_read_in_the_same_tick(bad: str) -> None:
    source = ScriptedSource(dict(VALUES), refusals={bad: QueryRejected("parse error")})
    looking = glance(source)

    first = looking.read(at_seconds=AT)
    queries = looking.last_queries
    second = looking.read(at_seconds=AT + 5)

    (name,) = (name for name, mapping in MAPPED.items() if mapping["query"] == bad)
    for seen in (first, second):
        assert problems(seen) == [(name, "rejected")]
        assert np.isfinite(seen.metrics).sum() == 4
    assert queries <= MAX_QUERIES
    assert looking.last_queries == 1, "it rests"


def test_a_query_that_comes_right_is_read_again() -> None:
    source = ScriptedSource(dict(VALUES), refusals={"wait": QueryRejected("many-to-many")})
    looking = glance(source)
    looking.read(at_seconds=AT)
    source.refusals.clear()

    seen = [looking.read(at_seconds=AT + 5 * tick) for tick in range(1, RETRY_CYCLES + 2)]

    assert seen[-1].problems == ()
    assert seen[-1].value("high_priority_wait_seconds") == 12.0


def test_no_query_is_begun_once_the_time_of_the_tick_is_used_up() -> None:
    class Slow(ScriptedSource):
        def instant(self, expression: str, *, at_seconds: float) -> Answer:
            time.sleep(0.15)
            return super().instant(expression, at_seconds=at_seconds)

    source = Slow(dict(VALUES), refusals={"latency": QueryRejected("parse error")})
    looking = glance(source, guard={"period_seconds": 0.5})

    seen = looking.read(at_seconds=AT)

    assert looking.last_queries == 2
    assert {problem.reason for problem in seen.problems} == {"unavailable"}
    assert "0.25 s are used up by finding out which expressions are refused" in seen.problems[0].detail
    for tick in range(1, 6):
        seen = looking.read(at_seconds=AT + tick)
    assert problems(seen) == [(LATENCY, "rejected")], "the search goes on in the next ticks"


def test_a_source_that_is_down_is_an_error_and_the_next_tick_asks_again() -> None:
    source = ScriptedSource(dict(VALUES), refusals={"latency": SourceUnavailable("down")})
    looking = glance(source)

    with pytest.raises(SourceUnavailable, match="down"):
        looking.read(at_seconds=AT)
    source.refusals.clear()

    assert looking.read(at_seconds=AT + 5).problems == ()


def test_a_metric_that_is_absent_is_no_problem() -> None:
    metrics = {**MAPPED, LATENCY: {"absent": "the scheduler does not tell"}}

    seen = glance(ScriptedSource(dict(VALUES)), metrics).read(at_seconds=AT)

    assert seen.problems == ()
    assert math.isnan(seen.value(LATENCY))


def test_without_any_guarded_metric_nothing_is_asked() -> None:
    source = ScriptedSource({})

    seen = glance(source, {"queue_length": {"query": "q"}}).read(at_seconds=AT)

    assert (source.asked, seen.problems) == ([], ())
    assert np.isnan(seen.metrics).all()


def test_what_the_source_says_against_itself_is_told() -> None:
    source = ScriptedSource(dict(VALUES), warnings=("a replica is down",), duplicates=2, clock_offset_seconds=-40.0)
    looking = glance(source)

    seen = looking.read(at_seconds=AT)

    assert problems(seen) == [("source", "partial"), ("source", "duplicate"), ("source", "clock_skew")]
    assert looking.clock_offset_seconds == -40.0


@pytest.mark.parametrize(("timeout", "period", "deadline"), [(5.0, 5.0, 2.5), (1.0, 5.0, 1.0), (5.0, 1.0, 0.5)])
def test_the_deadline_of_a_query_is_well_below_the_tick(timeout: float, period: float, deadline: float) -> None:
    policy = policy_of(MAPPED, source={"timeout_seconds": timeout}, guard={"period_seconds": period})

    assert guard_policy(policy).source.timeout_seconds == deadline
    assert guard_policy(guard_policy(policy)) == guard_policy(policy)
    assert policy.source.timeout_seconds == timeout


def test_the_reference_policy_serves_every_guarded_metric_from_either_kind_of_source() -> None:
    policy = load_policy(assets.folder("policies") / "reference.yaml")

    for fuses in (True, False):
        source: Any = Recording(fuses=fuses)
        seen = Glance(source, policy).read(at_seconds=AT)
        assert len(source.texts) == (1 if fuses else len(GUARDED))
        assert {problem.metric for problem in seen.problems} == set(GUARDED)
        assert {problem.reason for problem in seen.problems} == {"missing"}
        assert not any("names no series" in problem.detail for problem in seen.problems)


# Real servers.


def test_a_server_that_hangs_does_not_hold_the_tick() -> None:
    def hang(handler: Handler, _: Request) -> None:
        time.sleep(1.5)
        answer(handler, 200, b"{}")

    with faulty_server(hang) as server:
        policy = policy_of(MAPPED, source={"url": server.url}, guard={"period_seconds": 0.5})
        looking = Glance(PrometheusSource(guard_policy(policy).source), policy)
        started = time.monotonic()
        with pytest.raises(SourceUnavailable, match=r"did not answer within 0\.2"):
            looking.read(at_seconds=AT)

    assert time.monotonic() - started < 2 * DEADLINE_PERIODS * policy.guard.period_seconds


def test_a_page_is_scraped_once_a_tick_and_the_hottest_node_counts() -> None:
    def serve(handler: Handler, _: Request) -> None:
        text = 'latency 0.4\nidle 0.1\nabandoned NaN\nwait 12\nhot{node="a"} 60\nhot{node="b"} 83\nhot{node="c"} NaN\n'
        answer(handler, 200, text.encode(), Content_Type="text/plain; version=0.0.4")

    metrics = {**MAPPED, HOT: {"query": "hot", "scrape": "hot", "node_label": "node"}}
    with faulty_server(serve) as server:
        policy = policy_of(metrics, source={"kind": "scrape", "url": f"{server.url}/metrics"})
        looking = Glance(ScrapeSource(guard_policy(policy).source), policy)
        seen = looking.read(at_seconds=AT)

    assert len(server.requests) == looking.last_queries == 1
    assert [seen.value(name) for name in (LATENCY, "resource_idle_ratio", HOT)] == [0.4, 0.1, 83.0]
    assert seen.newest(LATENCY) == AT
    assert problems(seen) == [
        ("task_abandonment_ratio", "non_finite"),
        (HOT, "non_finite"),
        ("pending_demand_ratio", "missing"),
    ]


START = time.time() // 60 * 60 - 3600
NODES = 400


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """A Prometheus that holds five minutes of a cluster, a sample every 15 s, and then nothing."""
    times = START + 15.0 * np.arange(21)
    labels = [{"__name__": "placed_bucket", "cluster": "north", "le": le} for le in ("0.5", "1", "4", "+Inf")]
    labels += [{"__name__": "waiting", "cluster": "north"}, {"__name__": "capacity", "cluster": "north"}]
    labels += [{"__name__": "hot", "cluster": "north", "node": f"n{node}"} for node in range(NODES)]
    placed = np.outer([8.0, 9.0, 10.0, 10.0], np.arange(21.0))
    rows: list[FloatArray] = [*placed, np.full(21, 30.0), np.full(21, 20.0)]
    rows += [np.full(21, 40.0 + node / 10) for node in range(NODES)]
    rows[6][:] = math.inf
    with running_prometheus(config="storage: {tsdb: {out_of_order_time_window: 25h}}") as server:
        writer = RemoteWriter(f"{server.url}/api/v1/write")
        writer.write(SeriesBlock(labels), times, np.stack(rows))
        writer.close()
        yield server.url


def live(url: str) -> Policy:
    return policy_of(
        {
            LATENCY: {"query": "histogram_quantile(0.9, sum by (le) (rate(placed_bucket{$labels}[$window])))"},
            "pending_demand_ratio": {"query": "sum(waiting{$labels}) / sum(capacity{$labels})"},
            HOT: {"query": "max by (node) (hot{$labels})", "node_label": "node"},
            "high_priority_wait_seconds": {"query": "histogram_quantile(0.95, nothing{$labels}) >= 0"},
        },
        source={"url": url},
    )


@pytest.mark.e2e
def test_a_real_store_reduces_and_tells_the_time_of_the_newest_samples(store: str) -> None:
    policy = live(store)
    looking = Glance(PrometheusSource(guard_policy(policy).source), policy)

    seen = [looking.read(at_seconds=START + 300 + later) for later in (0, 5, 10)]

    assert [each.value(LATENCY) for each in seen] == pytest.approx([1.0] * 3)
    assert [each.value("pending_demand_ratio") for each in seen] == [1.5] * 3
    assert [each.value(HOT) for each in seen] == pytest.approx([40 + (NODES - 1) / 10] * 3)
    assert {each.newest(name) for each in seen for name in (LATENCY, HOT)} == {START + 300}
    assert problems(seen[0]) == [("high_priority_wait_seconds", "missing")]
    assert looking.last_queries == 1
    assert looking.last_bytes < 1500, "no series of a node crosses the wire"
    assert abs(looking.clock_offset_seconds) < 5


@pytest.mark.e2e
def test_in_a_real_store_that_gets_nothing_more_everything_is_stale_after_two_windows(store: str) -> None:
    policy = live(store)
    looking = Glance(PrometheusSource(guard_policy(policy).source), policy)

    seen = {later: looking.read(at_seconds=START + 300 + later) for later in (0, 50, 115, 125, 400)}

    gauge = [not math.isnan(each.value("pending_demand_ratio")) for each in seen.values()]
    rate = [not math.isnan(each.value(LATENCY)) for each in seen.values()]
    assert gauge == [True, True, True, False, False]
    assert rate == [True, False, False, False, False], "one sample in a window is no rate"
    assert {each.newest(LATENCY) for each in seen.values()} == {START + 300}
    assert ("pending_demand_ratio", "stale") in problems(seen[125])
    assert (HOT, "stale") in problems(seen[400])
