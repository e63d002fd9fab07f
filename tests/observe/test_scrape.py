"""Scraping a page without a Prometheus between."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.faulty import FaultyServer, Handler, Request, answer, faulty_server
from tests.support.policies import policy_of
from tuner.errors import QueryRejected, QueryTooLarge, SourceUnavailable
from tuner.observe.observer import Observer
from tuner.observe.scrape import LOOKBACK_SECONDS, MEMORY_SECONDS, ScrapeSource, parse_selector
from tuner.settings.model import SourceSettings
from tuner.values.metrics import METRIC_INDEX

AT = 1_796_067_600.0

Show = Callable[[str], None]


@contextmanager
def page(text: str = "") -> Iterator[tuple[FaultyServer, Show]]:
    """Serve a page; yields the server, and a function that changes the page."""
    shown = [text]

    def serve(handler: Handler, _: Request) -> None:
        answer(handler, 200, shown[0].encode(), Content_Type="text/plain; version=0.0.4")

    def show(new: str) -> None:
        shown[0] = new

    with faulty_server(serve) as server:
        yield server, show


def source(server: FaultyServer, **settings: Any) -> ScrapeSource:
    return ScrapeSource(
        SourceSettings.model_validate({"kind": "scrape", "url": f"{server.url}/metrics", "retries": 0, **settings})
    )


def test_the_page_is_read_once_a_time_however_much_is_asked() -> None:
    with page('a 1\nb{node="x"} 2\nb{node="y"} 3\n') as (server, _):
        reading = source(server)
        costs = [reading.instant(name, at_seconds=AT).queries for name in ("a", "b", "c", "a")]
        assert costs == [1, 0, 0, 0]
        assert reading.range("a", start_seconds=AT, end_seconds=AT, step_seconds=60).queries == 0
        assert reading.instant("a", at_seconds=AT + 0.001).queries == 1

    assert [request.path for request in server.requests] == ["/metrics", "/metrics"]


def test_it_has_seen_nothing_before_it_was_asked() -> None:
    with page("a 1\n") as (server, _):
        reading = source(server)
        reading.instant("a", at_seconds=AT)

        found = reading.range("a", start_seconds=AT - 120, end_seconds=AT + 60, step_seconds=60)

    (series,) = found.series
    assert (series.times_seconds - AT).tolist() == [0.0, 60.0]


def test_a_sample_stands_for_later_times_only_as_long_as_prometheus_would_let_it() -> None:
    with page("a 1\n") as (server, _):
        reading = source(server)
        reading.instant("a", at_seconds=AT)

        found = reading.range("a", start_seconds=AT, end_seconds=AT + 600, step_seconds=60)

    assert found.series[0].times_seconds[-1] == AT + LOOKBACK_SECONDS - 60


def test_it_forgets_after_an_hour_and_keeps_only_what_was_asked_for() -> None:
    with page("a 1\nb 2\n") as (server, show):
        reading = source(server)
        reading.instant("a", at_seconds=AT)
        show("a 3\nb 4\n")
        reading.instant("a", at_seconds=AT + 60)

        assert len(reading.range("b", start_seconds=AT, end_seconds=AT, step_seconds=60)) == 0
        assert len(reading.range("b", start_seconds=AT + 60, end_seconds=AT + 60, step_seconds=60)) == 1
        assert len(reading.range("a", start_seconds=AT, end_seconds=AT, step_seconds=60)) == 1
        reading.instant("a", at_seconds=AT + MEMORY_SECONDS + 1)
        assert len(reading.range("a", start_seconds=AT, end_seconds=AT, step_seconds=60)) == 0


@pytest.mark.parametrize("text", ["<html>log in</html>", "a one\n", 'a{b="c} 1\n', "\x00\x01"])
def test_what_is_no_page_of_metrics_is_an_unavailable_source(text: str) -> None:
    with page(text) as (server, _), pytest.raises(SourceUnavailable, match=r"check source\.url"):
        source(server).instant("a", at_seconds=AT)


def test_a_page_that_is_not_text_is_an_unavailable_source() -> None:
    def serve(handler: Handler, _: Request) -> None:
        answer(handler, 200, b"\xff\xfe\x00")

    with faulty_server(serve) as server, pytest.raises(SourceUnavailable):
        source(server).instant("a", at_seconds=AT)


def test_a_failed_reading_is_tried_again_at_the_next_question() -> None:
    def broken(handler: Handler, _: Request) -> None:
        answer(handler, 500, b"")

    def whole(handler: Handler, _: Request) -> None:
        answer(handler, 200, b"a 1\n")

    with faulty_server(broken, whole) as server:
        reading = source(server)
        with pytest.raises(SourceUnavailable):
            reading.instant("a", at_seconds=AT)
        assert reading.instant("a", at_seconds=AT).series[0].values.tolist() == [1.0]


def test_too_many_series_are_refused() -> None:
    text = "".join(f'a{{job="{job}"}} 1\n' for job in range(20))
    with page(text) as (server, _), pytest.raises(QueryTooLarge, match="20 series"):
        source(server, max_series=19).instant("a", at_seconds=AT)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a", ("a", {})),
        (" a:b_c1 ", ("a:b_c1", {})),
        ("a{}", ("a", {})),
        ('a{b="c"}', ("a", {"b": "c"})),
        ('a{b="c", d="}",}', ("a", {"b": "c", "d": "}"})),
        (r'a{b="\"\\\n\x22\x27"}', ("a", {"b": '"\\\n"\''})),
    ],
)
def test_names_and_labels_are_understood(expression: str, expected: tuple[str, dict[str, str]]) -> None:
    assert parse_selector(expression) == expected


@pytest.mark.parametrize("expression", ["", "sum(a)", "1a", "a b", "a{", "a{b}", "a{b=c}", 'a{b!="c"}', 'a{b="c"} 1'])
def test_anything_else_is_refused(expression: str) -> None:
    with pytest.raises(QueryRejected, match="is not the name of a series"):
        parse_selector(expression)


@given(st.text(max_size=30))
def test_any_text_is_a_name_or_refused(expression: str) -> None:
    try:
        name, _ = parse_selector(expression)
    except QueryRejected:
        return
    assert expression.strip().startswith(name)


def test_two_series_of_one_node_are_told() -> None:
    metric = {"accelerator_utilization_ratio": {"query": "-", "scrape": "busy", "node_label": "node"}}
    with page('busy{node="n1",gpu="0"} 0.2\nbusy{node="n1",gpu="1"} 0.4\n') as (server, _):
        seen = Observer(source(server), policy_of(metric)).observe(cycle_id=1, at_seconds=AT)

    (problem,) = seen.problems
    assert (problem.metric, problem.reason) == ("accelerator_utilization_ratio", "duplicate")
    assert problem.detail == "2 series for 1 values of the label 'node'"
    assert seen.metrics[METRIC_INDEX["accelerator_utilization_ratio"]] == pytest.approx(0.3)


def test_an_observer_sees_a_cluster_without_a_prometheus() -> None:
    policy = policy_of(
        {
            "queue_length": {"query": "-", "scrape": "queue"},
            "accelerator_utilization_ratio": {"query": "-", "scrape": "busy", "node_label": "node"},
        },
        context={"running_tasks:training": {"query": "-", "scrape": 'running{class="training"}'}},
        cycle={"history_seconds": "30m"},
    )
    with page() as (server, show):
        watching = Observer(source(server), policy)
        for minute in range(10):
            show(
                f'queue {minute}\nbusy{{node="n1"}} 0.{minute}\nbusy{{node="n2"}} 0.5\n'
                f'running{{class="training"}} 4\nrunning{{class="inference"}} 9\n'
            )
            seen = watching.observe(cycle_id=minute, at_seconds=AT + 60 * minute)

    assert len(server.requests) == 10
    assert watching.last_queries == 1
    assert seen.problems == ()
    assert seen.metrics[METRIC_INDEX["queue_length"]] == 9.0
    assert seen.metrics[METRIC_INDEX["accelerator_utilization_ratio"]] == pytest.approx(0.7)
    assert seen.context == {"running_tasks:training": 4.0}
    assert seen.history["queue_length"].tolist() == list(range(10))
    assert seen.nodes["accelerator_utilization_ratio"]["n1"].tolist() == [minute / 10 for minute in range(10)]
    assert seen.coverage_ratio[METRIC_INDEX["queue_length"]] == 1.0
