from dataclasses import replace

import numpy as np
import pytest

from tuner.bench.observing import Recorder, read
from tuner.reference.cluster import ClusterSpec
from tuner.reference.scheduler import ReferenceScheduler
from tuner.reference.snapshot import Snapshot
from tuner.reference.workload import NO_MODEL, Priority, TaskKind, Workload
from tuner.values.context import CONTEXT_NAMES
from tuner.values.metrics import METRIC_INDEX, METRIC_NAMES

TASKS = 120


@pytest.fixture(scope="module")
def snapshots() -> list[Snapshot]:
    """Return a snapshot a minute of a small cluster that runs gangs and requests for ten minutes."""
    kind = np.where(np.arange(TASKS) % 4 == 0, TaskKind.TRAINING, TaskKind.INFERENCE)
    work = Workload(
        submit_seconds=5.0 * np.arange(TASKS, dtype=np.float64),
        service_seconds=np.where(kind == TaskKind.TRAINING, 60.0, 2.0),
        gpus=np.where(kind == TaskKind.TRAINING, 2.0, 0.25),
        kind=kind,
        priority=np.where(kind == TaskKind.TRAINING, Priority.NORMAL, Priority.HIGH),
        patience_seconds=np.full(TASKS, 600.0),
        model=np.where(kind == TaskKind.TRAINING, NO_MODEL, 0),
        zone=np.zeros(TASKS, dtype=np.int64),
    )
    scheduler = ReferenceScheduler(ClusterSpec(name="small", zone_nodes=(2,)), work, seed=1)
    taken = []
    for minute in range(10):
        scheduler.advance(60.0 * minute)
        taken.append(scheduler.snapshot())
    return taken


def test_reads_rates_between_two_snapshots(snapshots: list[Snapshot]) -> None:
    values = read(snapshots[2], snapshots[7])

    assert values["arrivals_per_second:training"] == pytest.approx(0.05, rel=0.1)
    assert values["arrivals_per_second:inference"] == pytest.approx(0.15, rel=0.1)
    assert values["demand_accelerators:training"] == 2.0
    assert values["service_seconds:training"] == pytest.approx(60.0)
    assert values["high_priority_share_ratio"] == pytest.approx(0.75, abs=0.05)
    assert 0 < values["accelerator_utilization_ratio"] < 1
    assert set(values) <= {*METRIC_NAMES, *CONTEXT_NAMES}


def test_what_has_no_sample_is_left_out(snapshots: list[Snapshot]) -> None:
    values = read(snapshots[3], replace(snapshots[3], now_seconds=snapshots[3].now_seconds + 60.0))

    assert "queue_wait_seconds" not in values
    assert "task_abandonment_ratio" not in values
    assert "service_seconds:training" not in values


def test_an_observation_holds_the_history_and_what_is_in_force(snapshots: list[Snapshot]) -> None:
    recorder = Recorder()
    for snapshot in snapshots:
        recorder.push(snapshot)

    observation = recorder.observation(cycle_id=3, start_at_seconds=1000.0)

    assert observation.at_seconds == 1000.0 + 540.0
    assert observation.history.values.shape[1] == len(recorder) == 9
    assert observation.knobs == snapshots[-1].settings.knobs
    assert observation.metrics[METRIC_INDEX["queue_length"]] == snapshots[-1].queue_length
    assert observation.arriving


def test_history_is_bounded(snapshots: list[Snapshot]) -> None:
    recorder = Recorder(history_steps=4)
    for snapshot in snapshots:
        recorder.push(snapshot)

    assert len(recorder) == 4


def test_a_copy_goes_its_own_way(snapshots: list[Snapshot]) -> None:
    recorder = Recorder()
    for snapshot in snapshots[:5]:
        recorder.push(snapshot)
    other = recorder.copy()
    other.push(snapshots[5])

    assert (len(recorder), len(other)) == (4, 5)


def test_needs_two_snapshots(snapshots: list[Snapshot]) -> None:
    recorder = Recorder()
    recorder.push(snapshots[0])

    with pytest.raises(ValueError, match="two snapshots"):
        recorder.observation()
