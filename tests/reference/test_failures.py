"""Nodes fail with all that runs on them, and come back empty; nothing is lost but the work that was done."""

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.reference.test_scheduler import SETTINGS, accelerator_seconds, drain, mixed
from tuner.errors import ConfigError
from tuner.reference.cluster import ClusterSpec
from tuner.reference.construction import EVENTS
from tuner.reference.engine.placement import count_free
from tuner.reference.engine.state import ABANDONED, COMPLETED, DOWN, FREE, LANES, RUNNING, WAITING, Engine
from tuner.reference.exposition import Exposition
from tuner.reference.physics import PhysicalConstants
from tuner.reference.scheduler import ReferenceScheduler
from tuner.reference.settings import ClockSettings
from tuner.reference.synthetic import tasks
from tuner.reference.tally import Tally
from tuner.reference.workload import Priority, TaskKind
from tuner.values.knobs import SchedulerMode
from tuner.values.metrics import METRIC_INDEX

CLUSTER = ClusterSpec(name="small", zone_nodes=(2, 2), gpus_per_node=4, cpu_slots_per_node=4)


@numba.njit()
def count(engine: Engine) -> None:
    """Count what is free, as placement does; what is compiled inside the engine cannot be called from here."""
    count_free(engine)


def check(scheduler: ReferenceScheduler, failed: set[int]) -> None:
    """Assert what holds at any instant, whatever has failed."""
    engine, seen = scheduler._engine, scheduler.snapshot()
    cluster, per_node = scheduler.cluster, scheduler.cluster.gpus_per_node
    owners = engine.gpu["owner"].reshape(cluster.nodes, per_node)
    down = np.isin(np.arange(cluster.nodes), sorted(failed))
    assert (owners[down] == DOWN).all()
    assert (owners[~down] != DOWN).all()
    residents, models = (engine.gpu[name].reshape(cluster.nodes, per_node) for name in ("n", "models"))
    assert residents[down].sum() == models[down].sum() == engine.node["cpu_free"][down].sum() == 0
    assert seen.nodes == cluster.nodes - len(failed)
    assert seen.accelerators == seen.nodes * per_node == seen.node_accelerators.sum()
    assert seen.accelerators_allocated <= seen.accelerators

    states = scheduler.tasks["state"]
    running = set(np.flatnonzero(states == RUNNING).tolist())
    gangs = set(owners[owners >= 0].tolist())
    shared = {int(gpu["task"][slot]) for gpu in engine.gpu for slot in range(gpu["n"]) if gpu["task"][slot] >= 0}
    on_cpu = {i for i in running if scheduler.tasks["gpus"][i] == 0}
    assert gangs | shared | on_cpu == running
    assert not gangs & shared
    assert all(int(scheduler.tasks["place"][i]) not in failed for i in on_cpu)
    for gang in gangs:
        assert (owners == gang).sum() == scheduler.tasks["held"][gang]
    assert seen.running_tasks.sum() == len(running)
    assert seen.waiting_tasks.sum() == seen.queue_length == (states == WAITING).sum()
    assert seen.pending_accelerators == pytest.approx(float(scheduler.workload.gpus[states == WAITING].sum()))
    booked = accelerator_seconds(seen) + seen.down_seconds
    assert booked == pytest.approx(cluster.gpus * seen.uptime_seconds, rel=1e-9)
    check_books(scheduler, down)
    check_queue(scheduler)


def check_books(scheduler: ReferenceScheduler, down: NDArray[np.bool_]) -> None:
    """Assert that what is counted as free is what nobody holds, on each accelerator and each node."""
    engine, tasks_, cluster = scheduler._engine, scheduler.tasks, scheduler.cluster
    memory, idle = np.ones(cluster.gpus), np.zeros(cluster.gpus)
    for g, gpu in enumerate(engine.gpu):
        residents = [int(task) for task in gpu["task"][: gpu["n"]]]
        memory[g] -= sum(float(tasks_["memory"][task]) for task in residents if task >= 0)
        for k in range(gpu["models"]):
            model = int(gpu["model"][k])
            memory[g] -= engine.model["memory"][model]
            idle[g] += engine.model["memory"][model] if gpu["ready"][k] and not gpu["users"][k] else 0.0
            assert gpu["users"][k] == sum(task >= 0 and tasks_["model"][task] == model for task in residents)
            assert g in engine.places[model, : engine.model["places"][model]]
        assert all(task < 0 or tasks_["place"][task] == g for task in residents)
    assert engine.gpu["memory"] == pytest.approx(memory)
    assert engine.gpu["idle_memory"] == pytest.approx(idle)
    assert engine.model["places"].sum() == engine.gpu["models"].sum()

    on_cpu = tasks_["place"][(tasks_["state"] == RUNNING) & (tasks_["kind"] == TaskKind.PREPROCESSING)]
    used = np.bincount(on_cpu, minlength=cluster.nodes)
    assert (engine.node["cpu_free"] == np.where(down, 0, cluster.cpu_slots_per_node - used)).all()

    # Placement counts on copies, so that it is not this test that keeps its counts right.
    counted = engine._replace(clock=engine.clock.copy(), node=engine.node.copy())
    count(counted)
    whole = (engine.gpu["owner"] == FREE) & (engine.gpu["n"] == 0) & (engine.gpu["reserved"] == 0)
    free = whole.reshape(cluster.nodes, cluster.gpus_per_node).sum(axis=1)
    assert (counted.node["free"] == free).all()
    assert (counted.clock["free"][0], counted.clock["best_free"][0]) == (free.sum(), free.max())


def check_queue(scheduler: ReferenceScheduler) -> None:
    """Assert that every lane lists its waiting tasks once, in order of submission, those looked at before first."""
    clock, tasks_ = scheduler._engine.clock[0], scheduler.tasks
    listed: list[int] = []
    for lane in range(LANES):
        found, before, i = [], -1, int(clock["head"][lane])
        while i >= 0:
            assert tasks_["previous"][i] == before
            found.append(i)
            before, i = i, int(tasks_["next"][i])
        unseen = [i for i in found if not tasks_["seen"][i]]
        assert found == sorted(found)
        assert (len(found), len(unseen)) == (clock["waiting"][lane], clock["unseen"][lane])
        assert found[len(found) - len(unseen) :] == unseen
        assert clock["tail"][lane] == (found[-1] if found else -1)
        listed += found
    assert sorted(listed) == np.flatnonzero(tasks_["state"] == WAITING).tolist()
    assert clock["events"] <= scheduler._engine.event.size


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(sorted(SETTINGS)),
    st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.floats(1.0, 120.0)), min_size=1, max_size=8),
    st.integers(0, 5),
)
def test_whatever_fails_and_comes_back_every_task_is_in_one_place_and_ends(
    name: str, events: list[tuple[bool, int, float]], seed: int
) -> None:
    work = mixed(seed=seed, span_seconds=120.0, load=1.5)
    scheduler = ReferenceScheduler(CLUSTER, work, settings=SETTINGS[name], seed=seed)
    failed: set[int] = set()

    for fails, node, seconds in events:
        if fails:
            scheduler.fail_nodes([node])
            failed.add(node)
        else:
            scheduler.repair_nodes([node])
            failed.discard(node)
        check(scheduler, failed)
        scheduler.advance(scheduler.now_seconds + seconds)
        check(scheduler, failed)

    scheduler.repair_nodes(range(CLUSTER.nodes))
    scheduler.configure(ClockSettings())
    drain(scheduler)
    check(scheduler, set())
    assert np.isin(scheduler.tasks["state"], (COMPLETED, ABANDONED)).all()
    assert scheduler.snapshot().accelerators_allocated == 0


def test_a_gang_on_a_failed_node_begins_anew_elsewhere_and_gives_back_all_that_it_held(
    ideal: PhysicalConstants,
) -> None:
    scheduler = ReferenceScheduler(CLUSTER, tasks([0.0], [100.0], gpus=[8.0]), seed=1, constants=ideal)
    scheduler.advance(50.0)
    (held,) = {tuple(np.flatnonzero(scheduler._engine.gpu["owner"] == 0).tolist())}
    node = held[0] // 4

    scheduler.fail_nodes([node])

    seen = scheduler.snapshot()
    assert (seen.running_tasks.sum(), seen.queue_length, seen.put_back_tasks.sum()) == (0, 1, 1)
    assert seen.accelerators_allocated == 0
    end = drain(scheduler, step=10.0)
    assert end.now_seconds >= 150.0
    assert end.completed_tasks.sum() == 1
    assert not set(np.flatnonzero(scheduler._engine.gpu["owner"] == DOWN).tolist()) & set(range(8)) - set(held)


def test_patience_and_wait_count_from_the_loss() -> None:
    work = tasks([0.0], [500.0], gpus=[16.0], patience_seconds=60.0)
    scheduler = ReferenceScheduler(CLUSTER, work, settings=ClockSettings(reservation_ratio=0.0), seed=1)
    scheduler.advance(300.0)

    scheduler.fail_nodes([3])
    scheduler.advance(359.0)
    waiting = scheduler.snapshot()
    scheduler.advance(361.0)

    assert waiting.queue_length == 1
    assert scheduler.snapshot().abandoned_tasks.sum() == 1


def test_losses_without_end_stay_within_the_room_for_events_and_do_not_make_it_grow() -> None:
    work = tasks(np.zeros(24), 3600.0, gpus=0.5, patience_seconds=50_000.0)
    scheduler = ReferenceScheduler(CLUSTER, work, settings=ClockSettings(reservation_ratio=0.0), seed=1)
    sizes = []
    for turn in range(1, 61):
        scheduler.advance(5.0 * turn)
        check(scheduler, set())
        scheduler.fail_nodes(range(4))
        check(scheduler, {0, 1, 2, 3})
        scheduler.repair_nodes(range(4))
        sizes.append(scheduler._engine.event.size)

    lost = int(scheduler.snapshot().put_back_tasks.sum())
    assert lost > 1000
    # Each loss plans the end of patience anew, and nothing else stays behind.
    assert sizes[-1] <= len(work) + lost + EVENTS * len(work)
    scheduler.advance(50_400.0)
    scheduler.fail_nodes(range(4))
    assert scheduler._engine.event.size == sizes[-1]


def test_failures_between_cuts_and_looks_give_the_same_bit_for_bit() -> None:
    work = mixed(seed=6, span_seconds=100.0, load=1.5)
    whole, pieces = (ReferenceScheduler(CLUSTER, work, seed=6) for _ in range(2))

    for scheduler, cuts in ((whole, [40.0, 70.0, 150.0]), (pieces, [11.0, 40.0, 55.5, 70.0, 99.0, 150.0])):
        for cut in cuts:
            scheduler.advance(cut)
            scheduler.snapshot()
            if cut == 40.0:
                scheduler.fail_nodes([0, 2])
            if cut == 70.0:
                scheduler.repair_nodes([2])

    assert (whole.tasks == pieces.tasks).all()
    assert whole.snapshot().useful_seconds == pieces.snapshot().useful_seconds


def test_a_repaired_node_has_no_warm_models() -> None:
    one = ClusterSpec(name="one", zone_nodes=(1,), gpus_per_node=4, cpu_slots_per_node=4)
    work = tasks([0.0, 60.0, 120.0], 1.0, kind=TaskKind.INFERENCE, priority=Priority.HIGH, model=0)
    scheduler = ReferenceScheduler(one, work, seed=1)
    scheduler.advance(90.0)
    warm = scheduler.snapshot()

    scheduler.fail_nodes([0])
    scheduler.repair_nodes([0])

    assert (warm.cold_starts, warm.warm_starts, scheduler.snapshot().warm_instances) == (1, 1, 0)
    scheduler.advance(150.0)
    assert scheduler.snapshot().cold_starts == 2


def test_a_failed_node_cools_down_to_its_room() -> None:
    work, setting = tasks([0.0], 1e6, gpus=[16.0]), ClockSettings(reservation_ratio=0.0)
    scheduler = ReferenceScheduler(CLUSTER, work, settings=setting, seed=1)
    start = scheduler.snapshot().node_temperature_celsius
    scheduler.advance(2000.0)
    hot = scheduler.snapshot().node_temperature_celsius

    scheduler.fail_nodes([0])
    scheduler.advance(10_000.0)
    gone = scheduler.snapshot().node_temperature_celsius
    scheduler.repair_nodes([0])
    back = scheduler.snapshot().node_temperature_celsius

    assert hot[0] > start[0] + 10.0
    assert np.isnan(gone).tolist() == [True, False, False, False]
    assert back[0] == pytest.approx(start[0], abs=2.0)


def test_a_failed_node_shows_no_temperature_and_is_no_capacity() -> None:
    scheduler = ReferenceScheduler(CLUSTER, mixed(seed=1, span_seconds=300.0), seed=1)
    page = Exposition(scheduler.snapshot())
    scheduler.advance(150.0)

    scheduler.fail_nodes([1, 2])

    lines = page.text(scheduler.snapshot()).splitlines()
    temperatures = [line for line in lines if line.startswith("reference_node_temperature_celsius{")]
    assert [line.split('"')[1] for line in temperatures] == ["z0-n00", "z1-n01"]
    assert "reference_nodes 2" in lines
    assert "reference_nodes_failed 2" in lines
    assert "reference_accelerators 8" in lines


def test_with_half_the_nodes_gone_idle_and_pending_are_of_what_is_left() -> None:
    work = tasks(np.zeros(16), np.full(16, 1e6), gpus=1.0)
    scheduler = ReferenceScheduler(CLUSTER, work, settings=ClockSettings(reservation_ratio=0.0), seed=1)
    scheduler.advance(60.0)
    scheduler.fail_nodes([0, 1])
    tally = Tally()
    for minute in range(5):
        scheduler.advance(61.0 + 60.0 * minute)
        tally.add(scheduler.snapshot())

    metrics = tally.metrics()

    assert metrics[METRIC_INDEX["pending_demand_ratio"]] == pytest.approx(scheduler.snapshot().pending_accelerators / 8)
    assert 0 <= metrics[METRIC_INDEX["resource_idle_ratio"]] <= 1


def test_all_nodes_may_fail_and_nothing_is_made_up() -> None:
    scheduler = ReferenceScheduler(CLUSTER, mixed(seed=1, span_seconds=300.0), seed=1)
    scheduler.advance(100.0)
    tally = Tally()

    scheduler.fail_nodes(range(4))
    tally.add(scheduler.snapshot())
    scheduler.advance(200.0)

    seen = scheduler.snapshot()
    tally.add(seen)
    without = ["resource_idle_ratio", "pending_demand_ratio", "node_temperature_celsius", "node_power_watts"]
    assert np.isnan(tally.metrics()[[METRIC_INDEX[name] for name in without]]).all()
    assert (seen.nodes, seen.accelerators, seen.running_tasks.sum()) == (0, 0, 0)
    assert np.isnan(seen.recent[METRIC_INDEX["pending_demand_ratio"]])
    assert np.isnan(seen.node_power_watts).all()


def test_failing_twice_and_repairing_what_works_change_nothing() -> None:
    scheduler = ReferenceScheduler(CLUSTER, mixed(seed=1, span_seconds=300.0), seed=1)
    scheduler.advance(100.0)
    scheduler.fail_nodes([2])
    before = scheduler._engine.task.copy(), scheduler._engine.gpu.copy()

    scheduler.fail_nodes([2])
    scheduler.repair_nodes([0, 1])

    assert (scheduler._engine.task == before[0]).all()
    assert (scheduler._engine.gpu["owner"] == before[1]["owner"]).all()


@pytest.mark.parametrize("node", [-1, 4])
def test_a_node_that_does_not_exist_is_refused_and_nothing_fails(node: int) -> None:
    scheduler = ReferenceScheduler(CLUSTER, mixed(seed=1, span_seconds=10.0), seed=1)

    with pytest.raises(ConfigError, match=rf"node {node} does not exist, must be 0\.\.3"):
        scheduler.fail_nodes([0, node])

    check(scheduler, set())


def test_after_a_restart_counters_begin_at_zero_and_the_defaults_are_in_force_while_work_goes_on() -> None:
    scheduler = ReferenceScheduler(
        CLUSTER, mixed(seed=1, span_seconds=300.0), settings=ClockSettings(reservation_ratio=0.25), seed=1
    )
    scheduler.advance(150.0)
    before = scheduler.snapshot()

    scheduler.restart()
    at_once = scheduler.snapshot()
    scheduler.advance(160.0)
    after = scheduler.snapshot()

    assert (at_once.running_tasks == before.running_tasks).all()
    assert at_once.completed_tasks.sum() == 0
    assert at_once.queue_wait.count == 0
    assert after.uptime_seconds == pytest.approx(10.0)
    assert after.settings == ClockSettings()
    assert accelerator_seconds(after) == pytest.approx(CLUSTER.gpus * 10.0)


def test_settings_may_come_into_force_late() -> None:
    scheduler = ReferenceScheduler(CLUSTER, mixed(seed=1, span_seconds=300.0), seed=1)
    scheduler.advance(50.0)

    scheduler.configure(ClockSettings(mode=SchedulerMode.SIMPLIFIED), after_seconds=30.0)
    scheduler.advance(75.0)
    early = scheduler.snapshot().settings.mode
    scheduler.advance(90.0)

    assert early is SchedulerMode.FULL
    assert scheduler.snapshot().settings.mode is SchedulerMode.SIMPLIFIED
