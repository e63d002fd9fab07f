"""The benchmark of the cycle: the cluster that it makes up, and that it measures whole cycles and no others."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.servers import require_program
from tuner.bench import cycle as bench
from tuner.bench.fleet import LEAST_SPEED, MAX_SHIFT_MINUTES, Feeder, Fleet, Recording
from tuner.demo.world import START_AT_SECONDS
from tuner.errors import ConfigError, PermanentError

RECORDED_NODES = ("a", "b", "c")
RECORDED_MINUTES = 100


def recording() -> Recording:
    """Return a made-up recording of three nodes: counters that grow, gauges, a ratio."""
    minutes = np.arange(RECORDED_MINUTES, dtype=np.float64)
    rows: list[tuple[dict[str, str], Any]] = [
        ({"__name__": "reference_tasks_completed_total", "class": "training"}, 10 * minutes),
        ({"__name__": "reference_queue_wait_seconds_bucket", "le": "1.0"}, 3 * minutes),
        ({"__name__": "reference_queue_length"}, 5 + minutes % 7),
        ({"__name__": "reference_memory_latency_ratio"}, np.full(RECORDED_MINUTES, 1.25)),
    ]
    for index, node in enumerate(RECORDED_NODES):
        names = {"node": node, "cluster": "reference"}
        rows.append(({"__name__": "reference_node_accelerators", **names}, np.full(RECORDED_MINUTES, 8.0)))
        rows.append(({"__name__": "reference_node_useful_seconds_total", **names}, (1 + index) * 60 * minutes))
    return Recording([labels for labels, _ in rows], np.stack([values for _, values in rows]))


def rows_of(fleet: Fleet, family: str) -> list[int]:
    return [row for row, labels in enumerate(fleet.node_labels) if labels["__name__"] == family]


def test_what_counts_or_accumulates_grows_with_the_cluster_and_nothing_else() -> None:
    made = recording()

    values = Fleet(made, nodes=30, seed=1).cluster_values(0, 50)

    growth = np.array([10.0, 10.0, 10.0, 1.0])
    assert values == pytest.approx(made.values[:4, :50] * growth[:, None])


def test_every_node_has_the_series_of_a_recorded_one_under_its_own_name() -> None:
    fleet = Fleet(recording(), nodes=7, seed=1)

    useful = rows_of(fleet, "reference_node_useful_seconds_total")
    assert len(fleet.node_labels) == 2 * 7
    assert [fleet.node_labels[row]["node"] for row in useful] == [f"n{node:05d}" for node in range(7)]
    assert {fleet.node_labels[row]["cluster"] for row in useful} == {"reference"}


def test_nodes_are_unlike_but_none_is_faster_than_what_was_recorded() -> None:
    fleet = Fleet(recording(), nodes=60, seed=1)

    values = fleet.node_values(10, 40)

    useful = values[rows_of(fleet, "reference_node_useful_seconds_total")]
    rates = np.diff(useful, axis=1) / 60
    recorded = 1.0 + np.arange(60) % 3
    assert (np.ptp(rates, axis=1) < 1e-9).all()
    assert (rates[:, 0] <= recorded).all()
    assert (rates[:, 0] >= LEAST_SPEED * recorded).all()
    assert len(np.unique(useful[:, 0])) == 60
    assert (values[rows_of(fleet, "reference_node_accelerators")] == 8.0).all()


def test_a_seed_makes_the_same_cluster_again() -> None:
    one, same, other = (Fleet(recording(), nodes=20, seed=seed).node_values(0, 5) for seed in (1, 1, 2))

    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_there_are_values_up_to_the_largest_shift() -> None:
    fleet = Fleet(recording(), nodes=50, seed=1)

    assert fleet.minutes == RECORDED_MINUTES - MAX_SHIFT_MINUTES
    assert np.isfinite(fleet.node_values(fleet.minutes - 1, fleet.minutes)).all()


class Sink:
    """Takes what a feeder writes, and refuses what a Prometheus would refuse."""

    def __init__(self) -> None:
        self.written = SimpleNamespace(samples=0)
        self.times: dict[int, list[float]] = {}
        self.newest = -np.inf

    def write(self, block: Any, times: Any, values: Any) -> None:
        assert values.shape == (len(block), len(times))
        assert times[0] > self.newest - 3600, "out of bounds"
        self.newest = max(self.newest, times[-1])
        self.times.setdefault(len(block), []).extend(times)
        self.written.samples += values.size


def test_a_feeder_goes_on_where_it_stopped_and_leaves_early_nodes_out() -> None:
    sink: Any = Sink()
    feeder = Feeder(Fleet(recording(), nodes=3, seed=1), sink)

    first = feeder.write(40)
    again = feeder.write(0)
    last = feeder.write(70, nodes_from=60)

    minutes = {count: (np.array(times) - START_AT_SECONDS) / 60 for count, times in sink.times.items()}
    assert minutes[4].tolist() == list(range(70))
    assert minutes[6].tolist() == [*range(40), *range(60, 70)]
    assert (first, again, last) == (400, 400, 400 + 120 + 60)


def record(**changes: Any) -> Any:
    whole = {
        "cycle_id": 3,
        "failure": None,
        "proposal": SimpleNamespace(trials=100),
        "decision": "hold",
        "reason": "no gain",
        "stage_seconds": {"observe": 0.1},
        "receipt": None,
        "forecast": None,
    }
    return SimpleNamespace(**{**whole, **changes})


OBSERVER: Any = SimpleNamespace(last_queries=6, last_bytes=1000)
SPENT = bench.Spent(0.5, 0.2, 0.1)


@pytest.mark.parametrize(
    "changes",
    [{"failure": object(), "reason": "observe: down"}, {"proposal": None}, {"proposal": SimpleNamespace(trials=99)}],
    ids=["failed", "did not search", "searched too little"],
)
def test_what_is_no_whole_cycle_is_not_measured(changes: dict[str, Any]) -> None:
    measured = bench.Measured()

    with pytest.raises(PermanentError, match="cycle 3 was no whole cycle"):
        measured.add(record(**changes), OBSERVER, SPENT)

    assert measured.seconds == []


def test_a_change_is_counted_only_where_it_was_applied() -> None:
    measured = bench.Measured()

    for receipt in (None, SimpleNamespace(applied=False), SimpleNamespace(applied=True)):
        measured.add(record(receipt=receipt), OBSERVER, SPENT)

    assert measured.changes == 1
    assert measured.stages == {"observe": [0.1, 0.1, 0.1]}


def test_time_of_processors_only_grows_and_memory_is_told() -> None:
    before = bench.cpu_seconds_of(os.getpid())
    sum(range(100_000))

    assert bench.cpu_seconds_of(os.getpid()) >= before > 0
    assert bench.peak_memory_mib() > 10


def test_a_cluster_that_cannot_be_played_is_an_error_and_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/true")

    process = bench.fleet_process(nodes=1, minutes=1, write_url="http://127.0.0.1:1")

    with pytest.raises(PermanentError, match="plays the cluster ended"), process:
        pass


def test_without_prometheus_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.demo.prometheus_server.find_prometheus", lambda: None)

    with pytest.raises(ConfigError, match="apt install prometheus"):
        bench.run(nodes=1, quick=True)


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_small_cluster_is_measured_with_all_figures_and_goals(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    require_program("prometheus")
    monkeypatch.setattr(bench, "QUICK_CYCLES", 2)
    monkeypatch.setattr(bench, "LONG_MINUTES", 100)

    results = bench.run(nodes=4, quick=True)

    results.write(tmp_path / "figures.json")
    document = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    figures = document["figures"]
    assert {"cycle_p50_seconds", "cycle_p95_seconds", "cycle_first_seconds", "peak_memory_mib"} <= figures.keys()
    assert {f"cycle_{stage}_p50_seconds" for stage in ("observe", "forecast", "propose", "judge", "record")} <= (
        figures.keys()
    )
    assert figures["queries_per_cycle"] <= 14
    assert figures["candidates_per_cycle"] >= 100
    assert 0 < figures["cycle_p50_seconds"] <= figures["cycle_p95_seconds"]
    assert figures["bytes_read_per_cycle"] < 1.2 * figures["bytes_read_per_cycle_short_history"]
    assert document["goals"]["queries_per_cycle"]["met"] is True
    assert "cycle_p50_seconds" not in document["goals"]
    assert document["setting"]["nodes"] == 4
