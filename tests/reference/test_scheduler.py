"""What holds whatever is submitted: conservation, determinism, exactness; and the limits that theory knows."""

import math
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import ConfigError
from tuner.reference.cluster import ClusterSpec
from tuner.reference.engine.state import ABANDONED, COMPLETED, RUNNING, WAITING
from tuner.reference.physics import PhysicalConstants
from tuner.reference.scheduler import ReferenceScheduler
from tuner.reference.settings import ClockSettings, QueueOrder
from tuner.reference.snapshot import Snapshot
from tuner.reference.synthetic import merge, poisson, popularity, tasks
from tuner.reference.workload import Priority, TaskKind, Workload
from tuner.values.knobs import SchedulerMode

quick = pytest.mark.skipif(
    bool(getattr(numba.config, "DISABLE_JIT", 0)), reason="thousands of tasks are too many for plain Python"
)

SETTINGS = {
    "clock": ClockSettings(),
    "unoptimised": ClockSettings.unoptimised(),
    "simplified": ClockSettings(mode=SchedulerMode.SIMPLIFIED),
    "priority_only": ClockSettings(mode=SchedulerMode.PRIORITY_ONLY),
    "easy": ClockSettings(order=QueueOrder.EASY),
    "sjf": ClockSettings(order=QueueOrder.SJF),
}


def mixed(*, seed: int, span_seconds: float, load: float = 1.0) -> Workload:
    """Return a bit of everything, near what sixteen accelerators can do at load 1."""
    rng = np.random.default_rng(seed)
    requests = poisson(rng, per_second=1.5 * load, span_seconds=span_seconds)
    jobs = poisson(rng, per_second=0.02 * load, span_seconds=span_seconds)
    chores = poisson(rng, per_second=0.05 * load, span_seconds=span_seconds)
    return merge(
        tasks(
            requests,
            0.05 + rng.exponential(1.5, requests.size),
            kind=TaskKind.INFERENCE,
            priority=rng.choice([Priority.NORMAL, Priority.HIGH], requests.size, p=[0.3, 0.7]),
            patience_seconds=60.0,
            model=popularity(rng, models=6, size=requests.size),
            zone=rng.integers(0, 2, requests.size),
        ),
        tasks(
            jobs,
            20.0 + rng.exponential(100.0, jobs.size),
            gpus=rng.choice([0.25, 1.0, 2.0, 4.0, 8.0], jobs.size),
            priority=rng.choice([Priority.LOW, Priority.NORMAL], jobs.size),
            patience_seconds=900.0,
            zone=rng.integers(0, 2, jobs.size),
        ),
        tasks(chores, 30.0, kind=TaskKind.PREPROCESSING, zone=rng.integers(0, 2, chores.size)),
    )


def drain(scheduler: ReferenceScheduler, *, step: float = 200.0, limit: float = 100_000.0) -> Snapshot:
    while not scheduler.finished and scheduler.now_seconds < limit:
        scheduler.advance(scheduler.now_seconds + step)
    assert scheduler.finished
    return scheduler.snapshot()


def accelerator_seconds(seen: Snapshot) -> float:
    return seen.useful_seconds + seen.switch_seconds + seen.warmup_seconds + seen.idle_seconds


@pytest.mark.parametrize("name", list(SETTINGS))
@pytest.mark.parametrize("at_seconds", [37.3, 300.0])
def test_every_accelerator_second_is_booked_once(small: ClusterSpec, name: str, at_seconds: float) -> None:
    scheduler = ReferenceScheduler(small, mixed(seed=1, span_seconds=300.0), settings=SETTINGS[name], seed=1)

    scheduler.advance(at_seconds)

    seen = scheduler.snapshot()
    assert accelerator_seconds(seen) == pytest.approx(small.gpus * at_seconds, rel=1e-9)
    assert seen.node_useful_seconds.sum() == pytest.approx(seen.useful_seconds)
    assert min(seen.useful_seconds, seen.switch_seconds, seen.warmup_seconds, seen.idle_seconds) >= 0.0


@pytest.mark.parametrize("name", list(SETTINGS))
def test_every_task_is_in_one_place_and_the_counters_agree(small: ClusterSpec, name: str) -> None:
    work = mixed(seed=2, span_seconds=400.0, load=2.0)
    scheduler = ReferenceScheduler(small, work, settings=SETTINGS[name], seed=2)

    scheduler.advance(250.0)

    seen, states = scheduler.snapshot(), scheduler.tasks["state"]
    submitted = work.submit_seconds <= 250.0
    assert (states[~submitted] == 0).all()
    for kind in TaskKind:
        of_kind = states[submitted & (work.kind == kind)]
        assert seen.submitted_tasks[kind].sum() == of_kind.size
        assert seen.waiting_tasks[kind] == (of_kind == WAITING).sum()
        assert seen.running_tasks[kind] == (of_kind == RUNNING).sum()
        assert seen.completed_tasks[kind] == (of_kind == COMPLETED).sum()
        assert seen.abandoned_tasks[kind] == (of_kind == ABANDONED).sum()
    assert seen.queue_length == seen.waiting_tasks.sum()
    assert seen.pending_accelerators == pytest.approx(float(work.gpus[states == WAITING].sum()))


@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "priority_only"])
def test_all_memory_slots_and_accelerators_come_back(small: ClusterSpec, name: str) -> None:
    scheduler = ReferenceScheduler(small, mixed(seed=3, span_seconds=200.0), settings=SETTINGS[name], seed=3)

    seen = drain(scheduler)
    scheduler.configure(ClockSettings(prediction_window_seconds=30.0))
    scheduler.advance(scheduler.now_seconds + 200.0)

    engine = scheduler._engine
    assert seen.accelerators_allocated == 0
    assert engine.gpu["memory"] == pytest.approx(1.0)
    assert engine.gpu["idle_memory"] == pytest.approx(0.0)
    assert scheduler.snapshot().warm_instances == 0
    assert (engine.node["cpu_free"] == small.cpu_slots_per_node).all()
    assert (seen.waiting_tasks.sum(), seen.running_tasks.sum()) == (0, 0)


def test_useful_time_is_the_work_of_completed_tasks_times_their_efficiency(
    ideal: PhysicalConstants, small: ClusterSpec
) -> None:
    work = tasks([0.0, 1.0, 2.0], [50.0, 80.0, 20.0], gpus=[1.0, 4.0, 0.25])
    scheduler = ReferenceScheduler(small, work, seed=1, constants=ideal)

    seen = drain(scheduler)

    efficiency = scheduler.tasks["efficiency"]
    assert seen.useful_seconds == pytest.approx(float((work.demand_seconds() * efficiency).sum()))
    assert (seen.switch_seconds, seen.warmup_seconds) == (0.0, 0.0)


def test_one_seed_gives_one_result(small: ClusterSpec) -> None:
    work = mixed(seed=4, span_seconds=200.0)

    first, second = (ReferenceScheduler(small, work, seed=5) for _ in range(2))
    for scheduler in (first, second):
        scheduler.advance(300.0)

    assert (first.tasks == second.tasks).all()


@given(cuts=st.lists(st.floats(0.0, 120.0), max_size=6))
@settings(deadline=None, max_examples=20)
def test_advancing_in_pieces_with_looks_between_equals_advancing_at_once(cuts: list[float]) -> None:
    small = ClusterSpec(name="small", zone_nodes=(2, 2), gpus_per_node=4, cpu_slots_per_node=4)
    work = mixed(seed=6, span_seconds=100.0)
    whole, pieces = (ReferenceScheduler(small, work, seed=6) for _ in range(2))

    whole.advance(120.0)
    for cut in sorted(cuts):
        pieces.advance(cut)
        pieces.snapshot()
    pieces.advance(120.0)

    # Bit for bit, not approximately.
    assert (whole.tasks == pieces.tasks).all()
    assert whole.snapshot().useful_seconds == pieces.snapshot().useful_seconds


def test_schedulers_that_advance_in_turns_do_not_touch_each_other(small: ClusterSpec) -> None:
    work = mixed(seed=7, span_seconds=150.0)
    alone = ReferenceScheduler(small, work, seed=7)
    alone.advance(200.0)

    beside = ReferenceScheduler(small, work, seed=7)
    other = ReferenceScheduler(small, work, settings=ClockSettings.unoptimised(), seed=7)
    for at_seconds in np.arange(10.0, 201.0, 10.0):
        other.advance(at_seconds)
        beside.advance(at_seconds)

    assert (alone.tasks == beside.tasks).all()


def test_unlike_settings_meet_the_same_tasks(small: ClusterSpec) -> None:
    work = mixed(seed=8, span_seconds=100.0)

    drawn = [
        ReferenceScheduler(small, work, settings=setting, seed=8).tasks[["efficiency", "memory", "changes", "group"]]
        for setting in (ClockSettings(), ClockSettings.unoptimised())
    ]

    assert (drawn[0] == drawn[1]).all()


GOLDEN_COUNTS = (203, 24, 200)
GOLDEN_USEFUL_SECONDS = 701.7746946976403


def test_results_are_the_same_on_every_machine(small: ClusterSpec) -> None:
    scheduler = ReferenceScheduler(small, mixed(seed=9, span_seconds=120.0), seed=9)

    scheduler.advance(150.0)

    # Written down once; a change of the physics changes them, a machine must not.
    seen = scheduler.snapshot()
    assert (int(seen.completed_tasks.sum()), seen.cold_starts, seen.decisions) == GOLDEN_COUNTS
    assert seen.useful_seconds == pytest.approx(GOLDEN_USEFUL_SECONDS, rel=1e-12)


def test_a_task_that_can_never_run_is_refused_at_once(small: ClusterSpec) -> None:
    with pytest.raises(ConfigError, match="1 tasks can never run on cluster small, first task 1: it asks for 17"):
        ReferenceScheduler(small, tasks([0, 1], 10.0, gpus=[16.0, 17.0]), seed=1)


def test_pre_processing_needs_cpu_slots() -> None:
    bare = ClusterSpec(name="bare", zone_nodes=(1,), cpu_slots_per_node=0)

    with pytest.raises(ConfigError, match="no CPU slots"):
        ReferenceScheduler(bare, tasks([0], 10.0, kind=TaskKind.PREPROCESSING), seed=1)


@pytest.mark.parametrize("until", [math.nan, math.inf])
def test_time_must_be_finite(small: ClusterSpec, until: float) -> None:
    with pytest.raises(ValueError, match="must be finite"):
        ReferenceScheduler(small, tasks([0], 10.0), seed=1).advance(until)


def test_before_anything_happens_there_are_no_samples_rather_than_zeros(small: ClusterSpec) -> None:
    seen = ReferenceScheduler(small, tasks([50.0], 10.0), seed=1).snapshot()

    assert math.isnan(seen.running_remaining_seconds)
    assert np.isnan(seen.recent_node_utilization_ratio).all()
    assert np.isnan(seen.recent[[0, 1, 2, 4, 5, 6, 12]]).all()
    assert seen.memory_latency_ratio == 1.0


def test_values_over_the_last_minute_are_those_of_the_last_minute(ideal: PhysicalConstants, small: ClusterSpec) -> None:
    # Four of sixteen accelerators work from the start until 300 s, then none.
    scheduler = ReferenceScheduler(small, tasks([0.0], 300.0, gpus=4.0), seed=1, constants=ideal)

    scheduler.advance(240.0)
    busy = scheduler.snapshot()
    scheduler.advance(420.0)
    idle = scheduler.snapshot()

    efficiency = float(scheduler.tasks["efficiency"][0])
    assert busy.recent[1] == pytest.approx(0.75)
    assert busy.recent[2] == pytest.approx(efficiency / 4)
    assert busy.recent_node_utilization_ratio.max() == pytest.approx(efficiency)
    assert idle.recent[1] == pytest.approx(1.0)
    assert idle.recent[2] == 0.0


def test_heat_follows_load_within_the_ranges_of_the_measurements(small: ClusterSpec) -> None:
    scheduler = ReferenceScheduler(small, tasks([0.0], 3000.0, gpus=4.0), seed=1)
    cool = scheduler.snapshot()

    scheduler.advance(2000.0)

    hot = scheduler.snapshot()
    heated = hot.node_temperature_celsius - cool.node_temperature_celsius > 10.0
    assert heated.sum() == 1
    assert hot.node_power_watts[heated] > 2.0 * cool.node_power_watts.min() * 0.7
    # Acme: 15-80 C; a four-accelerator node without load lies over 900 W (the node itself) in all draws.
    assert ((hot.node_temperature_celsius > 20.0) & (hot.node_temperature_celsius < 80.0)).all()
    assert (hot.node_power_watts > 900.0).all()


def _lossless(**settings_: Any) -> ClockSettings:
    base = {"decision_period_seconds": 0.02, "reservation_ratio": 0.0, "base_slice_seconds": 0.005}
    return ClockSettings(**(base | settings_))


@quick
def test_waiting_for_cpu_slots_is_that_of_an_m_m_c_queue(ideal: PhysicalConstants) -> None:
    slots, mean, load = 4, 10.0, 0.8
    cluster = ClusterSpec(name="slots", zone_nodes=(1,), cpu_slots_per_node=slots)
    rng = np.random.default_rng(11)
    submit = poisson(rng, per_second=load * slots / mean, span_seconds=400_000.0)
    work = tasks(submit, rng.exponential(mean, submit.size), kind=TaskKind.PREPROCESSING)
    setting = _lossless(decision_period_seconds=0.2)
    scheduler = ReferenceScheduler(cluster, work, settings=setting, seed=1, constants=ideal)

    seen = drain(scheduler, step=50_000.0, limit=1e6)

    # Half a period passes before a new task is seen, and before a slot that became free is filled again.
    held = mean + 0.1
    load = load * held / mean
    assert seen.queue_wait.mean == pytest.approx(0.1 + erlang_c(slots, load) * held / (slots * (1 - load)), rel=0.06)


def erlang_c(servers: int, load: float) -> float:
    """Return the probability that all servers are busy in an M/M/c queue."""
    offered = servers * load
    busy = offered**servers / math.factorial(servers) / (1 - load)
    return busy / (sum(offered**k / math.factorial(k) for k in range(servers)) + busy)


@quick
@pytest.mark.parametrize("shape", [0.5, 1.0, 1000.0], ids=["bursty", "exponential", "constant"])
def test_a_shared_accelerator_is_an_m_g_1_queue_with_processor_sharing(ideal: PhysicalConstants, shape: float) -> None:
    # E[T] = E[S] / (1 - load), whatever the distribution of service (Kleinrock 1967).
    mean, load = 1.0, 0.4
    cluster = ClusterSpec(name="one", zone_nodes=(1,), gpus_per_node=1, numa_domains_per_node=1)
    rng = np.random.default_rng(12)
    submit = poisson(rng, per_second=load / mean, span_seconds=60_000.0)
    work = tasks(submit, 1e-3 + rng.gamma(shape, mean / shape, submit.size), gpus=0.05)
    scheduler = ReferenceScheduler(cluster, work, settings=_lossless(), seed=1, constants=ideal)

    drain(scheduler, step=10_000.0)

    done = scheduler.tasks
    assert float((done["ends"] - done["submit"]).mean()) == pytest.approx(mean / (1 - load), rel=0.06)


@quick
def test_the_mean_queue_is_arrival_rate_times_mean_wait(small: ClusterSpec) -> None:
    # Little's law, between two instruments: the gauge, looked at from outside, and the histogram's sum.
    work = mixed(seed=13, span_seconds=4000.0, load=1.3)
    scheduler = ReferenceScheduler(small, work, seed=13)

    lengths = []
    while not scheduler.finished:
        scheduler.advance(scheduler.now_seconds + 0.5)
        lengths.append(scheduler.snapshot().queue_length)

    states = scheduler.tasks
    gave_up = states["state"] == ABANDONED
    waited = scheduler.snapshot().queue_wait.total + float(states["patience"][gave_up].sum())
    assert sum(lengths) * 0.5 == pytest.approx(waited, rel=0.03)
