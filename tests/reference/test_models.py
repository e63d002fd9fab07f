"""Warm models: cold starts, keeping, loading ahead, and giving way."""

from typing import Any

import numpy as np
import pytest

from tuner.reference.cluster import ClusterSpec
from tuner.reference.demand import DemandForecast
from tuner.reference.physics import PhysicalConstants
from tuner.reference.scheduler import ReferenceScheduler
from tuner.reference.settings import ClockSettings
from tuner.reference.synthetic import merge, tasks
from tuner.reference.workload import TaskKind, Workload
from tuner.values.knobs import SchedulerMode

ONE = ClusterSpec(name="one", zone_nodes=(1,), gpus_per_node=1, numa_domains_per_node=1)
FOUR = ClusterSpec(name="four", zone_nodes=(1,), gpus_per_node=4)


def _requests(submit: Any, *, seconds: float = 1.0, model: Any = 0) -> Workload:
    return tasks(submit, seconds, kind=TaskKind.INFERENCE, model=model)


def _run(cluster: ClusterSpec, work: Workload, *, until: float, **settings: Any) -> ReferenceScheduler:
    setting = ClockSettings(**({"reservation_ratio": 0.0} | settings))
    scheduler = ReferenceScheduler(cluster, work, settings=setting, seed=1)
    scheduler.advance(until)
    return scheduler


def test_the_first_request_starts_cold_and_the_next_warm() -> None:
    scheduler = _run(ONE, _requests([0.0, 60.0]), until=120.0)

    seen, done = scheduler.snapshot(), scheduler.tasks
    loading = float(scheduler._engine.model["loading"][0])
    assert (seen.cold_starts, seen.warm_starts, seen.warm_instances) == (1, 1, 1)
    assert seen.cold_start_seconds == pytest.approx(loading)
    assert seen.warmup_seconds == pytest.approx(loading)
    ran = done["ends"] - done["started"]
    assert ran[0] - ran[1] == pytest.approx(loading, abs=0.2)


@pytest.mark.parametrize(("window", "cold"), [(300.0, 2), (700.0, 1)])
def test_an_idle_model_is_kept_for_a_prediction_window(window: float, cold: int) -> None:
    scheduler = _run(ONE, _requests([0.0, 500.0]), until=600.0, prediction_window_seconds=window)

    assert scheduler.snapshot().cold_starts == cold


def test_without_prediction_an_idle_model_is_dropped_at_once() -> None:
    scheduler = _run(ONE, _requests([0.0, 60.0]), until=120.0, prewarm=False)

    assert (scheduler.snapshot().cold_starts, scheduler.snapshot().warm_instances) == (2, 0)


def test_turning_prediction_off_drops_what_was_kept() -> None:
    scheduler = _run(ONE, _requests([0.0]), until=60.0)

    scheduler.configure(ClockSettings(prewarm=False))
    scheduler.advance(120.0)

    assert scheduler.snapshot().warm_instances == 0


def test_models_are_loaded_ahead_of_demand_that_recurs() -> None:
    # Two short requests a second nearly fill the one accelerator that is warm: a second instance is planned for.
    submit = np.concatenate([[0.0], np.arange(60.0, 600.0, 0.5)])

    planned = _run(FOUR, _requests(submit, seconds=0.45), until=600.0)
    simplified = _run(FOUR, _requests(submit, seconds=0.45), until=600.0, mode=SchedulerMode.SIMPLIFIED)

    assert planned.snapshot().prewarms > 0
    assert simplified.snapshot().prewarms == 0


def test_a_forecast_of_more_demand_loads_more_models() -> None:
    work = _requests(np.arange(0.0, 600.0, 10.0), seconds=4.0)
    counts = []
    for growth in (1.0, 20.0):
        scheduler = _run(FOUR, work, until=300.0)
        rates = np.full(30, 0.1 * growth)
        scheduler.set_forecast(DemandForecast(at_seconds=300.0, inference_arrivals_per_second=rates))
        scheduler.advance(400.0)
        counts.append(scheduler.snapshot().warm_instances)

    assert counts[0] < counts[1]


def test_a_forecast_that_has_run_out_changes_nothing() -> None:
    work = _requests(np.arange(0.0, 3000.0, 10.0), seconds=4.0)
    scheduler = _run(FOUR, work, until=1.0)
    scheduler.set_forecast(DemandForecast(at_seconds=0.0, inference_arrivals_per_second=np.full(2, 100.0)))
    other = _run(FOUR, work, until=1.0)

    for each in (scheduler, other):
        each.advance(2900.0)

    # What was loaded for it has expired by then.
    assert scheduler.snapshot().warm_instances == other.snapshot().warm_instances


def test_idle_models_give_way_to_a_gang_which_waits_for_that() -> None:
    work = merge(_requests([0.0]), tasks([60.0], 100.0, gpus=4.0))

    scheduler = _run(FOUR, work, until=100.0)
    seen = scheduler.snapshot()
    scheduler.advance(300.0)

    done = scheduler.tasks
    evict = float(scheduler._engine.constants["evict_seconds"][0])
    assert (seen.evictions, seen.warm_instances) == (1, 0)
    assert done["ends"][1] - done["started"][1] == pytest.approx(100.0 + evict)


def test_the_longest_idle_model_is_evicted_first() -> None:
    models = np.arange(30)

    # Simplified, so that nothing that was evicted is loaded again ahead of demand.
    scheduler = _run(ONE, _requests(models * 20.0, model=models), until=700.0, mode=SchedulerMode.SIMPLIFIED)

    kept = scheduler._engine.gpu[0]["model"][: scheduler._engine.gpu[0]["models"]]
    assert scheduler.snapshot().evictions > 0
    assert sorted(kept.tolist()) == list(range(30 - kept.size, 30))


def test_deferrable_work_evicts_nothing(ideal: PhysicalConstants) -> None:
    big = {name: getattr(ideal, name) for name in ideal.__dataclass_fields__} | {"model_memory_ratio": 0.6}
    work = merge(_requests([0.0]), tasks([60.0, 60.0], 10.0, gpus=0.75, priority=[0, 1], patience_seconds=200.0))
    scheduler = ReferenceScheduler(
        ONE, work, settings=ClockSettings(reservation_ratio=0.0), seed=1, constants=PhysicalConstants(**big)
    )

    scheduler.advance(62.0)

    # 0 inference, 1 the deferrable one, 2 the one that may.
    assert scheduler.tasks["state"][1:].tolist() == [1, 2]


def test_a_request_prefers_a_cold_start_to_a_long_queue_behind_a_warm_model() -> None:
    # Requests of a minute teach the history; three at once are then better off on accelerators of their own.
    past = np.arange(0.0, 600.0, 100.0)

    scheduler = _run(FOUR, _requests(np.concatenate([past, np.full(3, 900.0)]), seconds=60.0), until=910.0)

    assert len(set(scheduler.tasks["place"][-3:].tolist())) == 3


def test_requests_without_a_model_never_start_cold() -> None:
    scheduler = _run(ONE, _requests([0.0, 10.0], model=-1), until=60.0)

    assert (scheduler.snapshot().cold_starts, scheduler.snapshot().warmup_seconds) == (0, 0.0)
    assert scheduler.finished
