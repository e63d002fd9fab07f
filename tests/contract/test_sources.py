"""One suite over all metrics sources: a real Prometheus, a real VictoriaMetrics, and a real page that is scraped."""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
import requests

from tests.support.faulty import Handler, Request, answer, faulty_server
from tests.support.servers import running_prometheus, running_victoria_metrics
from tuner.demo.remote_write import RemoteWriter, SeriesBlock
from tuner.errors import QueryRejected, QueryTooLarge, SourceUnavailable
from tuner.observe.prometheus import PrometheusSource
from tuner.observe.scrape import ScrapeSource
from tuner.observe.source import Series, Source
from tuner.settings.model import SourceSettings

pytestmark = pytest.mark.e2e

START = time.time() // 3600 * 3600 - 7200 + 600
"""About two hours ago, for a server that keeps a clock takes no samples from far away; never on the hour, because the
first instant of a month is in another file of VictoriaMetrics than the one before."""

NODES = ("n0", "n1", 'n2 "quoted" \\ back', "n3 ä")
_NUMBERS = itertools.count()

Minute = dict[str, float]
"""Value of each node in one minute; absent ones have no sample."""


@dataclass
class Bench:
    """A source, and a way to let the cluster behind it live through some minutes."""

    source: Source
    metric: str
    live: Callable[[Sequence[Minute]], None]
    make: Callable[[dict[str, object]], Source]
    missing: Source


@pytest.fixture(scope="module")
def prometheus() -> Iterator[str]:
    with running_prometheus() as server:
        yield server.url


@pytest.fixture(scope="module")
def victoria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_victoria_metrics(tmp_path_factory.mktemp("victoria")) as url:
        yield url


def fresh_metric() -> str:
    """Return a name that no test has used: a server cannot be told to forget."""
    return f"contract_{next(_NUMBERS)}"


def stored(url: str) -> Bench:
    """A source that reads a database, into which minutes are written beforehand."""
    metric = fresh_metric()
    writer = RemoteWriter(f"{url}/api/v1/write")

    def live(minutes: Sequence[Minute]) -> None:
        block = SeriesBlock([{"__name__": metric, "node": node, "job": "test"} for node in NODES])
        values = [[minute.get(node, math.nan) for minute in minutes] for node in NODES]
        writer.write(block, START + 60.0 * np.arange(len(minutes)), values)
        wait_until_visible(url, metric)

    def make(changes: dict[str, object]) -> Source:
        return PrometheusSource(SourceSettings.model_validate({"url": url, **changes}))

    return Bench(make({}), metric, live, make, make({"url": "http://127.0.0.1:1", "retries": 0}))


def wait_until_visible(url: str, metric: str) -> None:
    """Wait for what was written to be found.

    VictoriaMetrics shows samples after about a second, and remembers for ten that it has found nothing, unless it is
    told to flush. Prometheus knows no such path, and shows them at once.
    """
    requests.get(f"{url}/internal/force_flush", timeout=5)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        found = requests.get(
            f"{url}/api/v1/series", params={"match[]": metric, "start": str(START - 60)}, timeout=5
        ).json()
        if found["data"]:
            return
        time.sleep(0.05)
    pytest.fail(f"{metric} did not appear")


@pytest.fixture(params=["prometheus", "victoria", "scrape"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    if request.param == "scrape":
        with scraped() as made:
            yield made
    else:
        yield stored(request.getfixturevalue(request.param))


@contextmanager
def scraped() -> Iterator[Bench]:
    """A source that reads a page, which is looked at once in every minute lived through."""
    page = [""]
    metric = fresh_metric()

    def serve(handler: Handler, _: Request) -> None:
        answer(handler, 200, page[0].encode(), Content_Type="text/plain; version=0.0.4")

    with faulty_server(serve) as server:

        def make(changes: dict[str, object]) -> Source:
            settings = {"kind": "scrape", "url": f"{server.url}/metrics", **changes}
            return ScrapeSource(SourceSettings.model_validate(settings))

        source = make({})

        def live(minutes: Sequence[Minute]) -> None:
            for index, minute in enumerate(minutes):
                page[0] = f"# TYPE {metric} gauge\n" + "".join(
                    f'{metric}{{node="{_escaped(node)}",job="test"}} {value}\n' for node, value in minute.items()
                )
                source.instant(metric, at_seconds=START + 60 * index)

        yield Bench(source, metric, live, make, make({"url": "http://127.0.0.1:1/metrics", "retries": 0}))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def by_node(found: Sequence[Series]) -> dict[str, list[float]]:
    return {series.labels["node"]: series.values.tolist() for series in found}


def test_the_newest_value_of_every_series_is_found_at_a_time(bench: Bench) -> None:
    bench.live([{node: index + 10.0 * minute for index, node in enumerate(NODES)} for minute in range(3)])

    found = bench.source.instant(bench.metric, at_seconds=START + 120)

    assert by_node(found.series) == {node: [index + 20.0] for index, node in enumerate(NODES)}
    assert not found.partial
    for series in found:
        assert series.labels["job"] == "test"
        assert series.times_seconds.tolist() == [START + 120]


def test_a_range_has_one_sample_a_step_with_both_ends_included(bench: Bench) -> None:
    bench.live([{"n0": float(minute)} for minute in range(6)])

    found = bench.source.range(bench.metric, start_seconds=START + 60, end_seconds=START + 240, step_seconds=60)

    (series,) = found.series
    assert series.values.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert (series.times_seconds - START).tolist() == [60.0, 120.0, 180.0, 240.0]
    assert found.duplicates == 0


def test_labels_choose_among_series(bench: Bench) -> None:
    bench.live([{"n0": 1.0, "n1": 2.0}])

    found = bench.source.instant(f'{bench.metric}{{node="n1"}}', at_seconds=START)

    assert by_node(found.series) == {"n1": [2.0]}


def test_what_does_not_exist_is_an_empty_answer_and_not_an_error(bench: Bench) -> None:
    bench.live([{"n0": 1.0}])

    assert len(bench.source.instant("no_such_metric", at_seconds=START)) == 0
    assert len(bench.source.range("no_such_metric", start_seconds=START, end_seconds=START, step_seconds=60)) == 0
    assert len(bench.source.instant(f'{bench.metric}{{node="n9"}}', at_seconds=START)) == 0


def test_a_series_that_ended_is_not_carried_on(bench: Bench) -> None:
    bench.live([{"n0": 1.0, "n1": 1.0}, {"n0": 2.0}, {"n0": 3.0, "n1": 3.0}])

    assert by_node(bench.source.instant(bench.metric, at_seconds=START + 60).series) == {"n0": [2.0]}
    found = bench.source.range(bench.metric, start_seconds=START, end_seconds=START + 120, step_seconds=60)
    assert by_node(found.series) == {"n0": [1.0, 2.0, 3.0], "n1": [1.0, 3.0]}


def test_infinities_are_passed_on(bench: Bench) -> None:
    bench.live([{"n0": math.inf, "n1": -math.inf}])

    found = by_node(bench.source.instant(bench.metric, at_seconds=START).series)

    assert found == {"n0": [math.inf], "n1": [-math.inf]}


def test_an_expression_that_is_none_is_rejected(bench: Bench) -> None:
    for wrong in ("sum(", "{{{", "a{b=}"):
        with pytest.raises(QueryRejected):
            bench.source.instant(wrong, at_seconds=START)
        with pytest.raises(QueryRejected):
            bench.source.range(wrong, start_seconds=START, end_seconds=START + 60, step_seconds=60)


def test_too_many_series_are_refused(bench: Bench) -> None:
    bench.live([dict.fromkeys(NODES, 1.0)])
    narrow = bench.make({"max_series": 3})

    with pytest.raises(QueryTooLarge, match=r"4 series, over source\.max_series \(3\)"):
        narrow.instant(bench.metric, at_seconds=START)
    assert len(bench.make({"max_series": 4}).instant(bench.metric, at_seconds=START)) == 4


def test_a_server_that_is_not_there_is_unavailable(bench: Bench) -> None:
    with pytest.raises(SourceUnavailable):
        bench.missing.instant(bench.metric, at_seconds=START)


def test_answers_tell_what_they_cost_and_what_the_servers_clock_says(bench: Bench) -> None:
    bench.live([{"n0": 1.0}])

    found = bench.make({}).instant(bench.metric, at_seconds=START + 1)

    assert found.queries == 1
    assert found.bytes_read > 0
    assert abs(found.clock_offset_seconds) < 5.0
