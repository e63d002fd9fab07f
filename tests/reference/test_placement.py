"""Where tasks go: tiers, NUMA domains, the reserve, gangs and those that share."""

import numpy as np
import pytest

from tuner.reference.cluster import ClusterSpec
from tuner.reference.physics import PhysicalConstants
from tuner.reference.scheduler import ReferenceScheduler
from tuner.reference.settings import ClockSettings
from tuner.reference.synthetic import merge, poisson, tasks
from tuner.reference.workload import Priority, TaskKind, Workload

OPEN = ClockSettings(reservation_ratio=0.0)


def _run(cluster: ClusterSpec, work: Workload, *, until: float, setting: ClockSettings = OPEN) -> ReferenceScheduler:
    scheduler = ReferenceScheduler(cluster, work, settings=setting, seed=1)
    scheduler.advance(until)
    return scheduler


def _held(scheduler: ReferenceScheduler, task: int) -> list[int]:
    return np.flatnonzero(scheduler._engine.gpu["owner"] == task).tolist()


def test_tasks_run_where_their_data_lies_while_there_is_room(small: ClusterSpec) -> None:
    homes = np.array([0, 1, 1, 0, 1])
    work = merge(
        tasks(np.arange(5.0), 500.0, gpus=0.3, zone=homes),
        tasks(np.arange(5.0), 500.0, kind=TaskKind.PREPROCESSING, zone=homes),
        tasks([6.0, 7.0], 500.0, gpus=2.0, zone=[1, 0]),
    )

    scheduler = _run(small, work, until=60.0)

    done, zones = scheduler.tasks, scheduler._engine.gpu["zone"]
    places = np.where(done["kind"] == TaskKind.PREPROCESSING, done["place"] // 2, zones[done["place"]])
    assert (done["state"] == 2).all()
    assert (places == done["zone"]).all()
    assert scheduler.snapshot().cross_zone_bytes == 0.0


def test_work_goes_abroad_when_home_is_full_and_pays_for_it(small: ClusterSpec) -> None:
    # Eight accelerators are at home; the second gang does not fit beside the first.
    scheduler = _run(small, tasks([0.0, 1.0], 500.0, gpus=[8.0, 4.0], zone=0), until=60.0)

    done = scheduler.tasks
    assert scheduler._engine.gpu["zone"][done["place"]].tolist() == [0, 1]
    assert done["penalty"][1] > 1.0
    assert scheduler.snapshot().cross_zone_bytes > 0.0


def test_without_tiers_distance_is_ignored(small: ClusterSpec) -> None:
    work = tasks(np.arange(4.0), 500.0, gpus=0.3, zone=1)

    scheduler = _run(small, work, until=60.0, setting=ClockSettings.unoptimised())

    assert (scheduler._engine.gpu["zone"][scheduler.tasks["place"]] == 0).all()
    assert scheduler.snapshot().cross_zone_bytes > 0.0


def test_gangs_stay_in_one_numa_domain_where_one_has_room() -> None:
    cluster = ClusterSpec(name="wide", zone_nodes=(2,), gpus_per_node=8)
    work = tasks([0.0, 5.0, 10.0, 15.0], 500.0, gpus=[2.0, 4.0, 4.0, 2.0])

    scheduler = _run(cluster, work, until=60.0)

    domains = [{gpu // 4 for gpu in _held(scheduler, task)} for task in range(4)]
    assert [len(domain) for domain in domains] == [1, 1, 1, 1]
    # The small ones share a domain, so that whole domains stay free for others.
    assert domains[0] == domains[3]
    assert scheduler.snapshot().numa_remote_tasks == 0


def test_a_gang_that_must_span_domains_it_could_have_fitted_is_remote_and_slower() -> None:
    cluster = ClusterSpec(name="wide", zone_nodes=(1,), gpus_per_node=8)
    # Three of four are taken in each domain, then two are asked for.
    work = tasks([0.0, 5.0, 10.0], 5000.0, gpus=[3.0, 3.0, 2.0])

    scheduler = _run(cluster, work, until=60.0)

    assert scheduler.tasks["remote"].tolist() == [0, 0, 1]
    assert scheduler.tasks["penalty"][2] > scheduler.tasks["penalty"][0]
    assert scheduler.snapshot().memory_latency_ratio > 1.0


def test_without_tiers_about_half_the_tasks_sit_on_the_wrong_socket(small: ClusterSpec) -> None:
    work = tasks(np.linspace(0.0, 400.0, 200), 1.0, gpus=0.1)

    scheduler = _run(small, work, until=600.0, setting=ClockSettings.unoptimised())

    assert 0.35 < scheduler.snapshot().numa_remote_tasks / 200 < 0.65


@pytest.mark.parametrize(("need", "nodes"), [(4, 1), (6, 2), (8, 2), (12, 3)])
def test_gangs_take_as_few_nodes_as_they_can(small: ClusterSpec, need: int, nodes: int) -> None:
    scheduler = _run(small, tasks([0.0], 500.0, gpus=float(need)), until=60.0)

    assert len({gpu // 4 for gpu in _held(scheduler, 0)}) == nodes


def test_a_gang_over_zones_keeps_the_links_busy_until_it_ends(ideal: PhysicalConstants, small: ClusterSpec) -> None:
    constants = {name: getattr(ideal, name) for name in ideal.__dataclass_fields__} | {"gang_bytes_per_second": 1e6}
    scheduler = ReferenceScheduler(
        small, tasks([0.0], 100.0, gpus=12.0), settings=OPEN, seed=1, constants=PhysicalConstants(**constants)
    )

    scheduler.advance(400.0)

    assert scheduler.finished
    assert scheduler.snapshot().cross_zone_bytes == pytest.approx(12 * 1e6 * 100.0)


def test_a_gang_smaller_than_a_node_waits_for_one_before_it_scatters(small: ClusterSpec) -> None:
    # Each node has one accelerator taken, so none has four; they are scattered only after five minutes.
    held = tasks(np.zeros(4), 5000.0, gpus=3.0)

    scheduler = _run(small, merge(held, tasks([1.0], 100.0, gpus=4.0)), until=250.0)
    waiting = scheduler.tasks["state"][4]
    scheduler.advance(320.0)

    assert (waiting, scheduler.tasks["state"][4]) == (1, 2)
    assert len({gpu // 4 for gpu in _held(scheduler, 4)}) == 4


@pytest.fixture
def crowded() -> Workload:
    rng = np.random.default_rng(3)
    requests = poisson(rng, per_second=2.0, span_seconds=600.0)
    return merge(
        tasks(np.linspace(0.0, 500.0, 60), 300.0, gpus=rng.choice([0.5, 1.0, 2.0, 4.0], 60)),
        tasks(np.linspace(0.0, 500.0, 10), 300.0, gpus=2.0, priority=Priority.HIGH),
        tasks(
            requests,
            rng.exponential(2.0, requests.size) + 0.01,
            kind=TaskKind.INFERENCE,
            priority=rng.choice([Priority.NORMAL, Priority.HIGH], requests.size),
            model=rng.integers(0, 5, requests.size),
        ),
    )


@pytest.mark.parametrize("ratio", [0.125, 0.25, 0.5])
def test_the_reserve_is_never_entered_by_gangs_nor_by_work_that_is_not_protected(
    small: ClusterSpec, crowded: Workload, ratio: float
) -> None:
    scheduler = ReferenceScheduler(small, crowded, settings=ClockSettings(reservation_ratio=ratio), seed=3)

    used = 0
    for at_seconds in range(5, 900, 5):
        scheduler.advance(float(at_seconds))
        reserve = scheduler._engine.gpu[scheduler._engine.gpu["reserved"] == 1]
        assert reserve.size == round(ratio * small.gpus)
        assert (reserve["owner"] == -1).all()
        for gpu in reserve:
            residents = gpu["task"][: gpu["n"]]
            assert (scheduler._engine.task["priority"][residents[residents >= 0]] == Priority.HIGH).all()
            used += int(gpu["n"])
    assert used > 0


def test_the_reserve_is_spread_over_the_zones_in_proportion() -> None:
    cluster = ClusterSpec(name="unlike", zone_nodes=(3, 1), gpus_per_node=4)

    scheduler = _run(cluster, tasks([0.0], 1.0), until=10.0, setting=ClockSettings(reservation_ratio=0.25))

    gpu = scheduler._engine.gpu
    assert [int(gpu["reserved"][gpu["zone"] == zone].sum()) for zone in (0, 1)] == [3, 1]


def test_residents_fit_in_memory_and_under_the_cap(small: ClusterSpec, crowded: Workload) -> None:
    scheduler = ReferenceScheduler(small, crowded, settings=OPEN, seed=3)

    most = 0
    for at_seconds in range(5, 900, 5):
        scheduler.advance(float(at_seconds))
        gpu = scheduler._engine.gpu
        most = max(most, int(gpu["n"].max()))
        assert (gpu["memory"] > -1e-9).all()
        assert not ((gpu["owner"] >= 0) & (gpu["n"] > 0)).any()
    assert 2 <= most <= small.residents_per_gpu


def test_demanding_single_tasks_have_an_accelerator_for_themselves(small: ClusterSpec) -> None:
    scheduler = _run(small, tasks(np.zeros(30), 5000.0), until=60.0)

    done, gpu = scheduler.tasks, scheduler._engine.gpu
    running = done[(done["state"] == 2) & (done["exclusive"] == 1)]
    assert running.size > 0
    assert (gpu["n"][running["place"]] == 0).all()


def test_slow_zones_take_longer_for_the_same_work(ideal: PhysicalConstants) -> None:
    cluster = ClusterSpec(name="unlike", zone_nodes=(1, 1), gpus_per_node=4, zone_speeds=(1.0, 0.5))
    work = tasks([0.0, 0.0], 100.0, gpus=[4.0, 4.0], zone=[0, 1])
    scheduler = ReferenceScheduler(cluster, work, settings=OPEN, seed=1, constants=ideal)

    scheduler.advance(400.0)

    done = scheduler.tasks
    assert (done["ends"] - done["started"]).tolist() == pytest.approx([100.0, 200.0])
