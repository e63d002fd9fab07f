"""The decision loop: what it costs, what it looks at first, and when it takes over new settings."""

from typing import Any

import numpy as np
import pytest

from tuner.reference.cluster import PRESETS, ClusterSpec
from tuner.reference.demand import DemandForecast
from tuner.reference.engine.state import ABANDONED, COMPLETED, RUNNING, WAITING
from tuner.reference.physics import PhysicalConstants
from tuner.reference.scheduler import ReferenceScheduler
from tuner.reference.settings import ClockSettings, QueueOrder
from tuner.reference.synthetic import merge, tasks
from tuner.reference.workload import Priority, TaskKind, Workload
from tuner.values.knobs import SchedulerMode

OPEN: dict[str, Any] = {"reservation_ratio": 0.0}


def _run(cluster: ClusterSpec, work: Workload, *, until: float, **settings: Any) -> ReferenceScheduler:
    scheduler = ReferenceScheduler(cluster, work, settings=ClockSettings(**(OPEN | settings)), seed=1)
    scheduler.advance(until)
    return scheduler


def _burst(size: int) -> Workload:
    return tasks(np.full(size, 10.1), 5.0, gpus=0.05, patience_seconds=3600.0)


def _latency(setting: ClockSettings, size: int) -> float:
    scheduler = ReferenceScheduler(PRESETS["reference"], _burst(size), settings=setting, seed=1)
    scheduler.advance(60.0)
    return scheduler.snapshot().scheduling_latency.mean


def test_latency_blows_up_with_a_hundred_tasks_at_once_but_not_under_clock_control() -> None:
    flat, tiers = ClockSettings.unoptimised(), ClockSettings()

    few = [_latency(setting, 3) for setting in (flat, tiers)]
    many = [_latency(setting, 150) for setting in (flat, tiers)]

    assert many[0] - few[0] > 1.0
    assert many[1] - few[1] < 0.3


def test_a_task_waits_for_the_end_of_the_first_decision_that_began_after_it(ideal: PhysicalConstants) -> None:
    # Decisions begin at 0, 0.7, 1.4, ... and take no time in a world without costs.
    cluster = ClusterSpec(name="one", zone_nodes=(1,))
    work = tasks([0.1, 0.69, 0.71], 5.0, gpus=0.1)
    setting = ClockSettings(decision_period_seconds=0.7, reservation_ratio=0.0)
    scheduler = ReferenceScheduler(cluster, work, settings=setting, seed=1, constants=ideal)

    scheduler.advance(3.0)

    assert scheduler.tasks["started"].tolist() == pytest.approx([0.7, 0.7, 1.4])
    assert scheduler.snapshot().scheduling_latency.total == pytest.approx(0.6 + 0.01 + 0.69)


def test_a_decision_that_takes_longer_than_the_period_delays_the_next(world: Any) -> None:
    cluster = ClusterSpec(name="one", zone_nodes=(1,))
    constants = world(decision_base_seconds=2.0, decision_node_seconds=0.0)
    scheduler = ReferenceScheduler(cluster, tasks([0.0], 1.0), seed=1, constants=constants)

    scheduler.advance(20.1)

    assert scheduler.snapshot().decisions == 10


def test_every_decision_pauses_shared_accelerators_only(ideal: PhysicalConstants) -> None:
    constants = {name: getattr(ideal, name) for name in ideal.__dataclass_fields__} | {"pause_base_seconds": 0.05}
    cluster = ClusterSpec(name="two", zone_nodes=(1,), gpus_per_node=2, numa_domains_per_node=1)
    work = merge(tasks([0.0], 10.0, gpus=0.1), tasks([0.0], 10.0, kind=TaskKind.PREPROCESSING))
    setting = ClockSettings(decision_period_seconds=0.5, reservation_ratio=0.0)
    scheduler = ReferenceScheduler(cluster, work, settings=setting, seed=1, constants=PhysicalConstants(**constants))

    scheduler.advance(30.0)

    ran = (scheduler.tasks["ends"] - scheduler.tasks["started"]).tolist()
    # The pause that begins with its own start included, one in ten of the time is lost.
    assert ran == pytest.approx([10.0 * 1.0 / 0.9, 10.0], rel=0.01)
    assert scheduler.snapshot().switch_seconds == pytest.approx(ran[0] - 10.0)


def test_new_settings_are_in_force_from_the_beginning_of_the_next_decision(small: ClusterSpec) -> None:
    scheduler = _run(small, tasks([0.0], 500.0, gpus=0.1), until=10.0, decision_period_seconds=5.0)
    scheduler.advance(11.0)

    scheduler.configure(ClockSettings(base_slice_seconds=0.2, reservation_ratio=0.5, decision_period_seconds=5.0))
    scheduler.advance(14.9)
    before = scheduler.snapshot()
    scheduler.advance(15.1)
    after = scheduler.snapshot()

    assert (before.settings.base_slice_seconds, before.config_generation) == (0.115, 0)
    assert (after.settings.base_slice_seconds, after.config_generation) == (0.2, 1)
    engine = scheduler._engine
    assert engine.gpu["slice"][engine.gpu["n"] > 0][0][0] == 0.2
    assert engine.gpu["reserved"].sum() == small.gpus / 2


def test_a_setting_is_shown_as_it_was_asked_for(small: ClusterSpec) -> None:
    asked = ClockSettings(mode=SchedulerMode.SIMPLIFIED, order=QueueOrder.SJF, prewarm=False, tiers=False)

    scheduler = ReferenceScheduler(small, tasks([0.0], 1.0), settings=asked, seed=1)
    scheduler.advance(1.0)

    assert scheduler.snapshot().settings == asked


def test_slices_follow_the_formula(small: ClusterSpec) -> None:
    # Sixty tasks of two sizes teach the history; then two of them share an accelerator.
    sizes = np.tile([0.1, 0.2], 40)
    past = tasks(np.linspace(0.0, 400.0, 80), 2.0, gpus=sizes)
    requests = tasks(np.linspace(0.0, 400.0, 80), 2.0, kind=TaskKind.INFERENCE, model=0)
    now = merge(tasks([1000.0], 500.0, gpus=0.1), tasks([1000.0], 500.0, kind=TaskKind.INFERENCE, model=0))
    one = ClusterSpec(name="one", zone_nodes=(1,), gpus_per_node=1, numa_domains_per_node=1)

    scheduler = _run(one, merge(past, requests, now), until=1030.0)

    engine, clock = scheduler._engine, scheduler._engine.clock[0]
    recent = clock["recent"][:100]
    done = scheduler.tasks
    ended = done[done["state"] == COMPLETED]
    last = ended[np.argsort(ended["ends"], kind="stable")][-100:]
    assert recent.mean() == pytest.approx(
        ((last["efficiency"] + last["efficiency_after"]) / 2 / last["penalty"]).mean()
    )
    gpu = engine.gpu[0]
    assert gpu["n"] == 2
    for slot in range(2):
        efficiency = engine.group["efficiency"][done["group"][gpu["task"][slot]]]
        expected = 0.115 * (1 + 0.3 * (efficiency - recent.mean()) / recent.mean())
        assert gpu["slice"][slot] == pytest.approx(expected)
    assert gpu["slice"][0] != gpu["slice"][1]


def test_fixed_slices_are_all_the_base_slice(small: ClusterSpec) -> None:
    work = tasks(np.linspace(0.0, 300.0, 200), 20.0, gpus=0.1)

    scheduler = _run(small, work, until=320.0, adaptive_slice=False)

    gpu = scheduler._engine.gpu
    granted = np.concatenate([row["slice"][: row["n"]] for row in gpu])
    assert granted.size > 0
    assert (granted == 0.115).all()


def test_in_simplified_mode_decisions_cost_the_same_whatever_waits() -> None:
    durations = []
    for size in (3, 150):
        scheduler = _run(PRESETS["reference"], _burst(size), until=30.0, mode=SchedulerMode.SIMPLIFIED)
        durations.append(scheduler.snapshot().decision_duration)

    assert durations[0].mean == pytest.approx(durations[1].mean)
    assert durations[0].mean < 0.05


def test_in_priority_only_mode_nothing_else_is_dispatched_until_the_mode_ends(small: ClusterSpec) -> None:
    work = tasks(np.zeros(3), 500.0, gpus=0.1, priority=[Priority.LOW, Priority.NORMAL, Priority.HIGH])
    scheduler = _run(small, work, until=30.0, mode=SchedulerMode.PRIORITY_ONLY)
    degraded = scheduler.tasks["state"].tolist()

    scheduler.configure(ClockSettings(reservation_ratio=0.0))
    scheduler.advance(40.0)

    assert degraded == [WAITING, WAITING, RUNNING]
    assert scheduler.tasks["state"].tolist() == [RUNNING] * 3


def test_priority_goes_before_submission_under_clock_control_only(small: ClusterSpec) -> None:
    work = tasks([0.0, 1.0, 2.0], 50.0, gpus=16.0, priority=[Priority.NORMAL, Priority.LOW, Priority.HIGH])
    orders = {}
    for order in (QueueOrder.PRIORITY, QueueOrder.FCFS):
        scheduler = _run(small, work, until=400.0, order=order)
        orders[order] = np.argsort(scheduler.tasks["started"]).tolist()

    assert orders == {QueueOrder.PRIORITY: [0, 2, 1], QueueOrder.FCFS: [0, 1, 2]}


def test_under_fcfs_the_first_that_does_not_fit_blocks_all_behind_it(small: ClusterSpec) -> None:
    work = tasks([0.0, 5.0, 10.0], 100.0, gpus=[12.0, 8.0, 1.5])

    strict = _run(small, work, until=60.0, order=QueueOrder.FCFS)
    clock = _run(small, work, until=60.0)

    assert strict.tasks["state"].tolist() == [RUNNING, WAITING, WAITING]
    assert clock.tasks["state"].tolist() == [RUNNING, WAITING, RUNNING]


def _history(small: ClusterSpec) -> Workload:
    # What EASY and SJF know of sizes: two take 20 s, four 200 s, twelve 100 s.
    sizes = np.tile([2.0, 4.0, 12.0], 4)
    seconds = np.tile([20.0, 200.0, 100.0], 4)
    return tasks(np.linspace(0.0, 3000.0, 12), seconds, gpus=sizes)


def test_easy_backfills_what_ends_before_the_blocked_task_can_start_and_nothing_else(small: ClusterSpec) -> None:
    # Twelve are taken for 100 s; sixteen are asked for next. Two for 20 s fit in between, four for 200 s do not.
    queue = tasks([5000.0, 5005.0, 5010.0, 5011.0], [100.0, 50.0, 20.0, 200.0], gpus=[12.0, 16.0, 2.0, 4.0])

    scheduler = _run(small, merge(_history(small), queue), until=5040.0, order=QueueOrder.EASY)
    early = scheduler.tasks["state"][12:].tolist()
    scheduler.advance(6000.0)

    assert early == [RUNNING, WAITING, COMPLETED, WAITING]
    started = scheduler.tasks["started"][12:]
    assert started[1] < started[3]


def test_shortest_first_goes_by_the_history_of_the_like(small: ClusterSpec) -> None:
    queue = tasks([5000.0, 5005.0, 5006.0], [100.0, 200.0, 20.0], gpus=[16.0, 4.0, 2.0], patience_seconds=9000.0)
    blocker = tasks([4990.0], 300.0, gpus=16.0)

    scheduler = _run(small, merge(_history(small), blocker, queue), until=8000.0, order=QueueOrder.SJF)

    started = scheduler.tasks["started"][12:]
    assert started[3] <= started[2]
    assert started[2] < started[1]


def test_a_gang_that_waited_long_is_no_longer_overtaken(small: ClusterSpec) -> None:
    # Four are always taken by a stream of small gangs; sixteen can start only when the stream is held back.
    stream = tasks(np.arange(0.0, 4000.0, 20.0), 60.0, gpus=2.0)
    large = tasks([100.0], 50.0, gpus=16.0, patience_seconds=9000.0)

    scheduler = _run(small, merge(stream, large), until=2000.0)

    index = int(np.argmax(scheduler.tasks["gpus"] == 16.0))
    assert scheduler.tasks["state"][index] == COMPLETED
    assert scheduler.tasks["started"][index] - 100.0 > 600.0


def test_tasks_are_given_up_exactly_when_their_patience_ends(small: ClusterSpec) -> None:
    work = tasks([0.0, 1.0, 2.0], 100.0, gpus=16.0, patience_seconds=[10.0, 30.0, 500.0])

    scheduler = _run(small, work, until=600.0)

    done = scheduler.tasks
    assert done["state"].tolist() == [COMPLETED, ABANDONED, COMPLETED]
    assert done["ends"][1] == pytest.approx(31.0)
    assert scheduler.snapshot().abandoned_tasks.tolist() == [0, 1, 0]


def test_new_tasks_are_looked_at_at_once_however_many_wait_before_them(small: ClusterSpec) -> None:
    # A thousand cannot be placed; what comes then is still considered by the next decision.
    stuck = tasks(np.linspace(0.0, 10.0, 1000), 5000.0, gpus=0.9)
    late = tasks([100.0], 1.0, gpus=0.05)

    scheduler = _run(small, merge(stuck, late), until=110.0)

    assert scheduler.tasks["seen"].all()
    assert scheduler.snapshot().scheduling_latency.quantile(1.0) < 5.0


def test_gangs_that_ask_for_more_get_it_beside_those_they_have(ideal: PhysicalConstants, small: ClusterSpec) -> None:
    constants = {name: getattr(ideal, name) for name in ideal.__dataclass_fields__} | {"grow_share": 1.0}
    scheduler = ReferenceScheduler(
        small,
        tasks([0.0], 120.0, gpus=2.0),
        settings=ClockSettings(**OPEN),
        seed=1,
        constants=PhysicalConstants(**constants),
    )

    scheduler.advance(70.0)
    held = np.flatnonzero(scheduler._engine.gpu["owner"] == 0)
    scheduler.advance(200.0)

    # Half of the work with two, the other half with three.
    assert held.tolist() == [0, 1, 2]
    ran = float(scheduler.tasks["ends"][0] - scheduler.tasks["started"][0])
    assert ran == pytest.approx(60.0 + 40.0, abs=1.0)
    assert (scheduler._engine.gpu["owner"] == -1).all()


def test_efficiency_changes_half_way_where_it_does(ideal: PhysicalConstants, small: ClusterSpec) -> None:
    constants = {name: getattr(ideal, name) for name in ideal.__dataclass_fields__} | {"phase_change_share": 1.0}
    work = merge(tasks([0.0], 100.0, gpus=2.0), tasks([0.0], 100.0, gpus=0.2))
    scheduler = ReferenceScheduler(
        small, work, settings=ClockSettings(**OPEN), seed=1, constants=PhysicalConstants(**constants)
    )

    scheduler.advance(300.0)

    done = scheduler.tasks
    mean = (done["efficiency"] + done["efficiency_after"]) / 2
    assert (done["efficiency"] != done["efficiency_after"]).all()
    assert scheduler.snapshot().useful_seconds == pytest.approx(float((100.0 * np.array([2, 1]) * mean).sum()))


def test_deferrable_work_is_held_until_the_best_window_but_not_for_ever(small: ClusterSpec) -> None:
    work = tasks(np.full(3, 10.0), 50.0, gpus=0.1, priority=[0, 0, 1], patience_seconds=[1000.0, 200.0, 1000.0])
    scheduler = ReferenceScheduler(small, work, settings=ClockSettings(**OPEN), seed=1)
    scheduler.set_forecast(DemandForecast(at_seconds=0.0, window_start_seconds=300.0, window_end_seconds=600.0))

    scheduler.advance(700.0)

    # The first waits for the window, the second for half its patience, the third is not deferrable.
    assert scheduler.tasks["started"].tolist() == pytest.approx([300.0, 110.0, 10.5], abs=1.0)


def test_a_stale_forecast_holds_nothing(small: ClusterSpec) -> None:
    work = tasks([2000.0], 50.0, gpus=0.1, priority=Priority.LOW)
    scheduler = ReferenceScheduler(small, work, settings=ClockSettings(**OPEN), seed=1)
    scheduler.set_forecast(DemandForecast(at_seconds=0.0, window_start_seconds=2500.0, window_end_seconds=2600.0))

    scheduler.advance(2100.0)

    assert scheduler.tasks["state"][0] == COMPLETED
