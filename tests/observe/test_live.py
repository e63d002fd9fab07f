"""The observer on real servers: what it sees is what was written, also when the servers do what servers do."""

import itertools
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import requests

from tests.support.policies import policy_of
from tests.support.servers import running_prometheus, running_victoria_metrics
from tuner.demo.remote_write import RemoteWriter, SeriesBlock
from tuner.observe.meter import MAX_QUERIES
from tuner.observe.observer import Observer
from tuner.observe.prometheus import PrometheusSource
from tuner.settings.model import Policy, SourceSettings
from tuner.values.metrics import METRIC_INDEX
from tuner.values.stages import FloatArray, Observation

pytestmark = pytest.mark.e2e

START = time.time() // 60 * 60 - 4 * 3600
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def prometheus() -> Iterator[str]:
    # Each test writes a past of its own, behind what the tests before have written.
    with running_prometheus(config="storage: {tsdb: {out_of_order_time_window: 25h}}") as server:
        yield server.url


@pytest.fixture(scope="module")
def victoria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_victoria_metrics(tmp_path_factory.mktemp("victoria")) as url:
        yield url


@pytest.fixture(params=["prometheus", "victoria"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


@dataclass
class Cluster:
    """A made-up cluster whose series are written to a server, under a label of its own."""

    url: str
    name: str = field(init=False)

    def __post_init__(self) -> None:
        # Quotes and all: what a policy names must not be able to end a string.
        self.name = f"north \"{next(_NUMBERS)}\" \\ 'x'"

    def write(self, times: FloatArray, series: Mapping[tuple[str, str], FloatArray | float]) -> None:
        """Write values at times; keys are the metric's name and the node, which may be empty."""
        labels = [{"__name__": name, "node": node, "cluster": self.name} for name, node in series]
        values = np.array([np.broadcast_to(value, times.shape) for value in series.values()], dtype=np.float64)
        writer = RemoteWriter(f"{self.url}/api/v1/write")
        writer.write(SeriesBlock(labels), times, values)
        writer.close()
        requests.get(f"{self.url}/internal/force_flush", timeout=5)  # Unknown to Prometheus, which needs none.

    def observer(self, metrics: Mapping[str, Mapping[str, Any]], **sections: Any) -> Observer:
        policy = self.policy(metrics, **sections)
        return Observer(PrometheusSource(policy.source), policy)

    def policy(self, metrics: Mapping[str, Mapping[str, Any]], **sections: Any) -> Policy:
        sections.setdefault("cycle", {"history_seconds": "2h"})
        return policy_of(
            {name: dict(mapping) for name, mapping in metrics.items()},
            cluster=self.name,
            source={"url": self.url},
            **sections,
        )


def minutes(first: int, last: int) -> FloatArray:
    """Times from one minute after `START` to another, both included."""
    return START + 60.0 * np.arange(first, last + 1.0)


def value(seen: Observation, metric: str) -> float:
    return float(seen.metrics[METRIC_INDEX[metric]])


QUEUE = {"queue_length": {"query": "sum(queue{$labels})"}}


def test_what_is_seen_is_what_was_written(url: str) -> None:
    cluster = Cluster(url)
    times = minutes(0, 120)
    cluster.write(
        times,
        {
            ("queue", ""): np.arange(121.0),
            ("done_total", ""): 120.0 * np.arange(121.0),
            ("busy", "n1"): 0.25,
            ("busy", "n2"): 0.75,
            ("heat", "n1"): 50.0,
            ("heat", "n2"): 70.0,
        },
    )
    watching = cluster.observer(
        {
            **QUEUE,
            "tasks_completed_per_second": {"query": "sum(rate(done_total{cluster='$cluster'}[$window]))"},
            "accelerator_utilization_ratio": {"query": "busy{$labels} # by node", "node_label": "node"},
            "node_temperature_celsius": {"query": "heat{$labels}", "node_label": "node"},
        },
        context={"nodes_count": {"query": "count(busy{$labels})"}},
    )

    seen = watching.observe(cycle_id=1, at_seconds=times[-1])

    assert seen.problems == ()
    assert value(seen, "queue_length") == 120.0
    assert value(seen, "tasks_completed_per_second") == pytest.approx(2.0)
    assert value(seen, "accelerator_utilization_ratio") == 0.5
    assert value(seen, "node_temperature_celsius") == 70.0
    assert seen.context == {"nodes_count": 2.0}
    np.testing.assert_allclose(seen.history["queue_length"], np.arange(1.0, 121.0))
    np.testing.assert_allclose(seen.history["node_temperature_celsius"], 60.0)
    np.testing.assert_allclose(seen.nodes["node_temperature_celsius"]["n2"], 70.0)
    mapped = [METRIC_INDEX[name] for name in ("queue_length", "node_temperature_celsius")]
    assert seen.ages_seconds[mapped].tolist() == [0.0, 0.0]
    assert seen.coverage_ratio[mapped].tolist() == [1.0, 1.0]
    assert watching.last_queries <= MAX_QUERIES


def test_a_cycle_costs_the_same_however_long_the_history(url: str) -> None:
    cluster = Cluster(url)
    cluster.write(minutes(0, 210), {("queue", ""): 3.0})
    costs = []
    for hours in (1, 3):
        watching = cluster.observer(QUEUE, cycle={"history_seconds": hours * 3600})
        for minute in (200, 201):
            watching.observe(cycle_id=minute, at_seconds=START + 60 * minute)
        costs.append((watching.last_queries, watching.last_bytes))

    assert costs[0] == costs[1]


def test_increments_and_one_long_reading_see_the_same(url: str) -> None:
    cluster = Cluster(url)
    wave = 50 + 40 * np.sin(np.arange(181.0) / 9)
    wave[100:104] = np.nan
    cluster.write(minutes(0, 180), {("queue", ""): wave})
    steps = cluster.observer(QUEUE)
    for minute in (90, 91, 95, 96, 130, 131, 132, 180):
        stepwise = steps.observe(cycle_id=minute, at_seconds=START + 60 * minute)

    at_once = cluster.observer(QUEUE).observe(cycle_id=1, at_seconds=START + 60 * 180)

    np.testing.assert_array_equal(stepwise.history.values, at_once.history.values)
    assert np.isnan(at_once.history["queue_length"]).sum() == 4


def test_an_exporter_that_dies_is_stale_long_before_its_rates_end(url: str) -> None:
    cluster = Cluster(url)
    cluster.write(minutes(0, 60), {("done_total", ""): 120.0 * np.arange(61.0)})
    watching = cluster.observer({"tasks_completed_per_second": {"query": "sum(rate(done_total{$labels}[$window]))"}})

    seen = [watching.observe(cycle_id=m, at_seconds=START + 60 * m) for m in (60, 61, 62, 63, 64)]

    ages = [each.ages_seconds[METRIC_INDEX["tasks_completed_per_second"]] for each in seen]
    assert ages == [0.0, 60.0, 120.0, 180.0, 240.0]
    known = [not math.isnan(value(each, "tasks_completed_per_second")) for each in seen]
    assert known == [True, True, True, False, False]
    assert [problem.reason for problem in seen[-1].problems] == ["stale"]


def test_samples_from_the_future_tell_that_a_clock_is_wrong(url: str) -> None:
    cluster = Cluster(url)
    ahead = START + 12 * 3600
    cluster.write(np.array([ahead - 60, ahead]), {("queue", ""): 5.0})

    seen = cluster.observer(QUEUE).observe(cycle_id=1, at_seconds=START)

    assert math.isnan(value(seen, "queue_length"))
    (skew,) = (problem for problem in seen.problems if problem.metric == "source")
    assert skew.reason == "clock_skew"
    assert "43200 s in the future" in skew.detail


def test_one_wrong_expression_is_found_among_many(url: str) -> None:
    cluster = Cluster(url)
    cluster.write(minutes(0, 120), {("queue", ""): 3.0})
    watching = cluster.observer(
        {
            **QUEUE,
            "queue_wait_seconds": {"query": "sum(queue{$labels}"},
            "pending_demand_ratio": {"query": "scalar(queue{$labels}) / 6"},
            "running_task_remaining_seconds": {"query": "sum(queue{$labels})"},
        }
    )

    seen = watching.observe(cycle_id=1, at_seconds=START + 7200)

    assert [(problem.metric, problem.reason) for problem in seen.problems] == [("queue_wait_seconds", "rejected")]
    assert value(seen, "queue_length") == 3.0
    assert value(seen, "pending_demand_ratio") == 0.5, "a scalar cannot be fused, but it can be read"
    assert value(seen, "running_task_remaining_seconds") == 3.0
    assert watching.last_queries <= MAX_QUERIES


def test_one_node_without_a_number_does_not_spoil_the_mean_of_the_others(url: str) -> None:
    cluster = Cluster(url)
    cluster.write(minutes(0, 10), {("busy", "n1"): 0.4, ("busy", "n2"): math.inf})
    watching = cluster.observer({"accelerator_utilization_ratio": {"query": "busy{$labels}", "node_label": "node"}})

    seen = watching.observe(cycle_id=1, at_seconds=START + 600)

    assert value(seen, "accelerator_utilization_ratio") == 0.4
    assert seen.nodes["accelerator_utilization_ratio"].names == ("n1",)
    assert [problem.reason for problem in seen.problems] == ["non_finite"]


def test_a_label_that_grows_with_every_job_is_refused_with_a_message(url: str) -> None:
    cluster = Cluster(url)
    jobs: dict[tuple[str, str], FloatArray | float] = {("wait", f"job-{number}"): 1.0 for number in range(500)}
    cluster.write(minutes(0, 10), {("queue", ""): 3.0, **jobs})
    policy = cluster.policy({**QUEUE, "queue_wait_seconds": {"query": "wait{$labels}"}})
    narrow = policy.source.model_copy(update={"max_series": 100})
    watching = Observer(PrometheusSource(narrow), policy)

    seen = watching.observe(cycle_id=1, at_seconds=START + 600)

    (problem,) = seen.problems
    assert (problem.metric, problem.reason) == ("queue_wait_seconds", "too_many_series")
    assert "500 series, over source.max_series (100): aggregate away the label" in problem.detail
    assert value(seen, "queue_length") == 3.0


def test_a_prometheus_that_may_load_few_samples_is_read_in_pieces() -> None:
    with running_prometheus(flags=["--query.max-samples=200"]) as server:
        cluster = Cluster(server.url)
        cluster.write(minutes(0, 120), {("queue", str(node)): 1.0 for node in range(10)})
        source = PrometheusSource(SourceSettings(url=server.url))

        found = source.range("sum(queue)", start_seconds=START, end_seconds=START + 7200, step_seconds=60)

    (series,) = found.series
    assert series.values.tolist() == [10.0] * 121
    assert found.queries > 1


def test_eleven_thousand_points_are_no_limit(url: str) -> None:
    cluster = Cluster(url)
    cluster.write(minutes(0, 60), {("queue", ""): 3.0})
    source = PrometheusSource(SourceSettings(url=url))

    found = source.range("count(queue)", start_seconds=START - 86_400, end_seconds=START + 3600, step_seconds=5)

    (series,) = found.series
    assert found.queries == 2
    assert (np.diff(series.times_seconds) == 5.0).all()
