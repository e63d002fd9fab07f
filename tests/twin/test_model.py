import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.bench.twin_cells import crowd
from tuner.twin.model import evaluate, from_started_log, out_of_range, started_log, warm_up
from tuner.twin.parameters import PARAMETER_COUNT, PARAMETER_NAMES, PRIOR, TwinParameters
from tuner.twin.workload import Scenarios, joined
from tuner.values.knobs import SchedulerMode
from tuner.values.metrics import METRIC_INDEX
from tuner.values.stages import FloatArray

MakeScenarios = Callable[..., Scenarios]
MIDDLE = np.array([[0.115, 900.0, 0.75, 0.2]])
LEVELLED = [METRIC_INDEX["node_temperature_celsius"], METRIC_INDEX["node_power_watts"]]

compiled = pytest.mark.skipif(
    os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="hundreds of runs of the kernel take minutes uncompiled"
)
quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def certain(**values: float) -> TwinParameters:
    """Return parameters without uncertainty, some of them set."""
    logs = PRIOR.copy()
    for name, value in values.items():
        logs[PARAMETER_NAMES.index(name)] = math.log(value)
    return TwinParameters(log_values=logs, log_errors=np.zeros(PARAMETER_COUNT))


SHARERS: Final[Mapping[str, Any]] = {
    "arrivals_per_second": np.array([0.0, 0.05, 0.0]),
    "demand_accelerators": np.array([0.0, 0.7, 0.25]),
    "running_tasks": np.array([0.0, 60.0, 0.0]),
    "high_share_ratio": 0.0,
}
"""Training alone, of which many tasks share."""


def one(scenarios: Scenarios, metric: str, *, knobs: FloatArray = MIDDLE, **values: float) -> float:
    return float(evaluate(knobs, scenarios, certain(**values))[0, 0, METRIC_INDEX[metric]])


def setting(
    *, base_slice: float = 0.115, window: float = 900.0, period: float = 0.75, reserve: float = 0.2
) -> FloatArray:
    return np.array([[base_slice, window, period, reserve]])


def test_gives_one_row_a_candidate_and_scenario_finite_but_for_unknown_levels(
    make_scenarios: MakeScenarios, grid: FloatArray
) -> None:
    scenarios = joined([make_scenarios(), make_scenarios(accelerators_count=80.0)])

    outcome = evaluate(grid, scenarios, TwinParameters())

    assert outcome.shape == (12, 2, 13)
    assert np.isnan(outcome[..., LEVELLED]).all()
    assert np.isfinite(np.delete(outcome, LEVELLED, axis=-1)).all()


def test_refuses_candidates_of_another_shape(make_scenarios: MakeScenarios) -> None:
    with pytest.raises(ValueError, match=r"shape \(4,\), must be \(candidates, 4\)"):
        evaluate(MIDDLE[0], make_scenarios(), TwinParameters())


def test_repeats_bit_for_bit_and_does_not_depend_on_the_company_of_other_candidates(
    make_scenarios: MakeScenarios, grid: FloatArray
) -> None:
    parameters = replace(TwinParameters(), knobs=MIDDLE[0])
    together = evaluate(grid, make_scenarios(), parameters)

    assert np.array_equal(together, evaluate(grid, make_scenarios(), parameters), equal_nan=True)
    assert np.array_equal(together[3:4], evaluate(grid[3:4], make_scenarios(), parameters), equal_nan=True)


def more(
    make_scenarios: MakeScenarios, *, extra: float, gangs: float, waiting: float, rate: float
) -> tuple[Scenarios, Scenarios]:
    """Return the same load on 64 accelerators, and on some more."""
    load = {
        "arrivals_per_second": np.array([0.1, 0.004, rate]),
        "running_tasks": np.array([1.0, gangs, rate]),
        "waiting_tasks": np.array([0.0, waiting, 0.0]),
    }
    return make_scenarios(**load), make_scenarios(**load, accelerators_count=64.0 + extra)


@compiled
@quick
@given(extra=st.floats(0.0, 500.0), gangs=st.floats(0.0, 12.0), rate=st.floats(0.0, 20.0))
def test_more_accelerators_never_make_anyone_wait_longer_while_there_is_room_for_every_gang(
    make_scenarios: MakeScenarios, extra: float, gangs: float, rate: float
) -> None:
    small, large = more(make_scenarios, extra=extra, gangs=gangs, waiting=0.0, rate=rate)

    for metric in ("queue_length", "high_priority_wait_seconds", "pending_demand_ratio", "task_abandonment_ratio"):
        assert one(large, metric) <= one(small, metric) * 1.01 + 1e-6


@compiled
@quick
@given(extra=st.floats(0.0, 500.0), gangs=st.floats(0.0, 15.0), waiting=st.floats(0.0, 20.0), rate=st.floats(0.0, 20.0))
def test_more_accelerators_never_leave_a_larger_share_of_demand_waiting(
    make_scenarios: MakeScenarios, extra: float, gangs: float, waiting: float, rate: float
) -> None:
    small, large = more(make_scenarios, extra=extra, gangs=gangs, waiting=waiting, rate=rate)

    # Demand only: where gangs wait, more room lets some in, which then hold what smaller work would have had (on such
    # anomalies: R. L. Graham, "Bounds on multiprocessing timing anomalies", 1969).
    assert one(large, "pending_demand_ratio") <= one(small, "pending_demand_ratio") * 1.01 + 1e-6


@compiled
@quick
@given(low=st.floats(0.02, 0.5), factor=st.floats(1.0, 5.0), rate=st.floats(0.1, 5.0))
def test_a_longer_slice_never_switches_more(
    make_scenarios: MakeScenarios, low: float, factor: float, rate: float
) -> None:
    scenarios = make_scenarios(arrivals_per_second=np.array([0.1, 0.004, rate]))
    short, long = (
        one(scenarios, "switch_overhead_ratio", knobs=setting(base_slice=value), pause_seconds=1e-5)
        for value in (low, low * factor)
    )

    assert long <= short * 1.001 + 1e-9


@compiled
@quick
@given(low=st.floats(0.1, 2.0), factor=st.floats(1.0, 5.0))
def test_a_longer_period_never_decides_sooner_nor_pauses_more(
    make_scenarios: MakeScenarios, low: float, factor: float
) -> None:
    scenarios = make_scenarios()
    short, long = setting(period=low), setting(period=low * factor)

    assert one(scenarios, "scheduling_latency_seconds", knobs=long) >= one(
        scenarios, "scheduling_latency_seconds", knobs=short
    )
    assert (
        one(scenarios, "switch_overhead_ratio", knobs=long)
        <= one(scenarios, "switch_overhead_ratio", knobs=short) * 1.001
    )


def test_a_larger_reserve_lets_open_work_wait_longer_and_leaves_more_idle(make_scenarios: MakeScenarios) -> None:
    scenarios = make_scenarios(waiting_tasks=np.array([0.0, 6.0, 0.0]))
    now = replace(certain(), knobs=MIDDLE[0])
    small, large = evaluate(np.concatenate([setting(reserve=0.15), setting(reserve=0.30)]), scenarios, now)[:, 0]

    for name in ("pending_demand_ratio", "resource_idle_ratio"):
        assert large[METRIC_INDEX[name]] > small[METRIC_INDEX[name]]


def test_a_larger_reserve_spares_protected_work_the_company_of_others(make_scenarios: MakeScenarios) -> None:
    now = replace(certain(), knobs=MIDDLE[0])
    candidates = np.concatenate([setting(reserve=value) for value in (0.1, 0.2, 0.4)])

    waits = evaluate(candidates, make_scenarios(), now)[:, 0, METRIC_INDEX["high_priority_wait_seconds"]]

    assert waits[0] > waits[1] > waits[2]


def test_a_reserve_spares_nobody_the_company_of_an_empty_cluster(make_scenarios: MakeScenarios) -> None:
    now = replace(certain(), knobs=MIDDLE[0])
    candidates = np.concatenate([setting(reserve=value) for value in (0.1, 0.4)])

    def gain(**load: FloatArray) -> float:
        few, many = evaluate(candidates, make_scenarios(**load), now)[:, 0, METRIC_INDEX["high_priority_wait_seconds"]]
        return math.log(few / many)

    none = np.array([0.0, 0.0, 0.0])
    alone = gain(running_tasks=none, arrivals_per_second=np.array([0.0, 0.0, 0.05]))

    assert gain() > 0.05
    assert abs(alone) < gain() / 5


def test_training_that_shares_ends_later_where_it_loses_time_to_turns(make_scenarios: MakeScenarios) -> None:
    scenarios = make_scenarios(**SHARERS)

    short, long = (
        one(scenarios, "running_task_remaining_seconds", knobs=setting(base_slice=value), switch_seconds=0.02)
        for value in (0.02, 0.5)
    )

    assert short > 1.1 * long


def test_training_that_shares_loses_time_to_switching(make_scenarios: MakeScenarios) -> None:
    scenarios = make_scenarios(**SHARERS)
    quick = {"pause_seconds": 1e-5, "switch_seconds": 0.005}

    short, long = (
        one(scenarios, "switch_overhead_ratio", knobs=setting(base_slice=value), **quick) for value in (0.05, 0.2)
    )

    assert short > 3.0 * long > 0.0


def test_the_cost_of_a_call_does_not_grow_with_tasks_or_nodes() -> None:
    small, large = crowd(nodes=64, tasks=3_500), crowd(nodes=10_000, tasks=500_000)

    # All that the kernels walk over are these arrays, and scratch of the size of steps and groups.
    assert {name: array.shape for name, array in small.to_arrays().items()} == {
        name: array.shape for name, array in large.to_arrays().items()
    }


def test_a_cluster_a_hundred_times_larger_at_the_same_load_shows_the_same_shares() -> None:
    small, large = (
        evaluate(MIDDLE, crowd(nodes=nodes, tasks=50 * nodes), certain(decision_task_seconds=1e-7))[0, 2]
        for nodes in (100, 10_000)
    )

    for name in ("resource_idle_ratio", "accelerator_utilization_ratio", "switch_overhead_ratio"):
        assert large[METRIC_INDEX[name]] == pytest.approx(small[METRIC_INDEX[name]], rel=0.05)


def test_latency_is_the_period_and_the_decision_while_decisions_are_quick(make_scenarios: MakeScenarios) -> None:
    latency = one(
        make_scenarios(waiting_tasks=np.zeros(3)),
        "scheduling_latency_seconds",
        decision_seconds=0.1,
        decision_task_seconds=1e-7,
    )

    assert latency == pytest.approx(0.99 * 0.75 + 0.1, rel=1e-3)


def test_latency_explodes_once_decisions_outlast_the_period(make_scenarios: MakeScenarios) -> None:
    crowded = make_scenarios(waiting_tasks=np.array([0.0, 400.0, 0.0]))

    assert one(crowded, "scheduling_latency_seconds", decision_task_seconds=0.01) > 4.0


def test_a_steady_underloaded_cluster_stays_where_it_is(make_scenarios: MakeScenarios) -> None:
    scenarios = make_scenarios(waiting_tasks=np.zeros(3), accelerators_count=200.0)
    training_throughput = 0.004 + 0.2 + 4.0

    assert one(scenarios, "tasks_completed_per_second") == pytest.approx(training_throughput, rel=0.05)
    assert one(scenarios, "queue_wait_seconds") < 1.0
    # Training occupies 38.4; inference offers 8 accelerators of work.
    useful = one(scenarios, "accelerator_utilization_ratio", training_useful_share=1.0)
    assert useful == pytest.approx((38.4 + 8.0) / 200.0, rel=0.1)


def test_a_queue_waits_as_long_as_it_took_to_arrive(make_scenarios: MakeScenarios) -> None:
    scenarios = make_scenarios(
        arrivals_per_second=np.array([0.0, 0.05, 0.0]),
        service_seconds=np.array([30.0, 300.0, 2.0]),
        demand_accelerators=np.array([0.0, 1.0, 0.25]),
        running_tasks=np.array([0.0, 15.0, 0.0]),
        waiting_tasks=np.array([0.0, 10.0, 0.0]),
        accelerators_count=15.0 / 0.95 / 0.8,
        high_share_ratio=0.0,
        training_stay_seconds=300.0,
    )

    wait = one(
        scenarios,
        "queue_wait_seconds",
        burstiness=0.1,
        unusable_share=0.05,
        gang_demand_accelerators=0.2,
        pause_seconds=1e-5,
        training_patience_seconds=1e6,
    )

    # Ten tasks at 0.05 a second: 200 s, spread between half and one and a half of that.
    assert 150.0 < wait < 350.0


def test_nobody_starts_but_the_protected_in_the_degraded_mode(make_scenarios: MakeScenarios) -> None:
    scenarios = make_scenarios()
    full = evaluate(MIDDLE, scenarios, certain())[0, 0]
    degraded = evaluate(MIDDLE, scenarios, certain(), mode=SchedulerMode.PRIORITY_ONLY)[0, 0]

    assert degraded[METRIC_INDEX["queue_length"]] > 10 * full[METRIC_INDEX["queue_length"]]
    assert degraded[METRIC_INDEX["high_priority_wait_seconds"]] <= full[METRIC_INDEX["high_priority_wait_seconds"]]


@pytest.mark.parametrize("role", range(4))
def test_an_absent_role_gives_numbers_and_no_differences(make_scenarios: MakeScenarios, role: int) -> None:
    candidates = np.repeat(MIDDLE, 2, axis=0)
    candidates[:, role] = np.nan

    outcome = np.delete(evaluate(candidates, make_scenarios(), TwinParameters()), LEVELLED, axis=-1)

    assert np.isfinite(outcome).all()
    assert np.array_equal(outcome[0], outcome[1])


def test_an_empty_cluster_without_work_is_idle_and_nobody_waits(make_scenarios: MakeScenarios) -> None:
    nothing = np.zeros(3)
    scenarios = make_scenarios(arrivals_per_second=nothing, running_tasks=nothing, waiting_tasks=nothing)

    assert one(scenarios, "resource_idle_ratio") == pytest.approx(1.0)
    useful = one(scenarios, "accelerator_utilization_ratio", training_useful_share=1.0)
    assert useful == pytest.approx(0.0, abs=1e-12)
    assert one(scenarios, "queue_wait_seconds") == pytest.approx(0.0, abs=1e-12)
    assert one(scenarios, "tasks_completed_per_second") == pytest.approx(0.0, abs=1e-12)


def test_every_draw_agrees_under_the_setting_in_force_and_differs_elsewhere(make_scenarios: MakeScenarios) -> None:
    draws = np.stack([np.zeros(PARAMETER_COUNT), np.ones(PARAMETER_COUNT), -np.ones(PARAMETER_COUNT)])
    scenarios = replace(joined([make_scenarios()] * 3), parameter_draws=draws)
    parameters = replace(TwinParameters(), knobs=MIDDLE[0])

    outcome = evaluate(np.concatenate([MIDDLE, setting(base_slice=0.08)]), scenarios, parameters)
    overhead = outcome[:, :, METRIC_INDEX["switch_overhead_ratio"]]

    assert overhead[0] == pytest.approx(np.full(3, overhead[0, 0]), rel=1e-9)
    assert np.ptp(overhead[1]) > 1e-4


def test_what_is_said_of_a_setting_does_not_depend_on_the_others_where_that_in_force_is_unknown(
    make_scenarios: MakeScenarios,
) -> None:
    scenarios = replace(make_scenarios(), parameter_draws=np.ones((1, PARAMETER_COUNT)))
    other = setting(base_slice=0.15)

    alone = evaluate(MIDDLE, scenarios, TwinParameters())
    together = evaluate(np.concatenate([MIDDLE, other, other]), scenarios, TwinParameters())

    np.testing.assert_array_equal(together[0], alone[0])


def test_an_absent_knob_does_not_keep_the_draws_from_being_held_to_what_is_observed(
    make_scenarios: MakeScenarios,
) -> None:
    scenarios = replace(
        joined([make_scenarios()] * 2), parameter_draws=np.array([[0.0], [1.0]]) * np.ones(PARAMETER_COUNT)
    )
    without = setting(period=np.nan)

    said = evaluate(without, scenarios, replace(TwinParameters(), knobs=without[0]))

    assert said[0, 1] == pytest.approx(said[0, 0], rel=1e-9, nan_ok=True)


def test_levels_shift_what_is_said(make_scenarios: MakeScenarios) -> None:
    levels = np.zeros(13)
    levels[LEVELLED] = np.log(4000.0)
    levels[METRIC_INDEX["queue_wait_seconds"]] = np.log(2.0)
    plain, shifted = certain(), replace(certain(), levels=levels)

    before, after = (evaluate(MIDDLE, make_scenarios(), known)[0, 0] for known in (plain, shifted))

    wait = METRIC_INDEX["queue_wait_seconds"]
    assert after[wait] + 1.0 == pytest.approx(2.0 * (before[wait] + 1.0))
    assert after[METRIC_INDEX["node_power_watts"]] > 1000.0


def test_started_logarithms_round_trip_within_bounds() -> None:
    values = np.array([0.5, 0.2, 0.6, 3.0, 40.0, 2.0, 0.0, 100.0, 60.0, 2000.0, 1.5, 0.02, 0.0])

    assert from_started_log(started_log(values)) == pytest.approx(values)
    assert from_started_log(started_log(values) + 3.0)[2] == 1.0


def test_flags_candidates_and_loads_beyond_what_was_observed(make_scenarios: MakeScenarios) -> None:
    known = replace(
        certain(),
        records=3,
        knobs_low=np.array([0.1, 800.0, 0.7, 0.18]),
        knobs_high=np.array([0.12, 1000.0, 0.8, 0.22]),
        offered_low=40.0,
        offered_high=60.0,
    )
    candidates = np.concatenate([MIDDLE, setting(base_slice=0.3), setting(period=np.nan)])
    usual, unusual = make_scenarios(), make_scenarios(arrivals_per_second=np.array([0.0, 0.04, 4.0]))

    assert out_of_range(candidates, usual, known).tolist() == [False, True, False]
    assert out_of_range(candidates, unusual, known).all()
    assert out_of_range(candidates, usual, TwinParameters()).all()


def test_warming_up_twice_does_no_harm(make_scenarios: MakeScenarios) -> None:
    scenarios, parameters = make_scenarios(), TwinParameters()
    before = evaluate(MIDDLE, scenarios, parameters)

    warm_up()
    warm_up()

    np.testing.assert_array_equal(evaluate(MIDDLE, scenarios, parameters), before)


def test_a_setting_until_now_that_is_not_known_is_taken_to_be_the_candidate(make_scenarios: MakeScenarios) -> None:
    scenarios = make_scenarios(waiting_tasks=np.array([0.0, 6.0, 0.0]))
    candidate = setting(reserve=0.3)

    unknown = evaluate(candidate, scenarios, certain())
    known = evaluate(candidate, scenarios, replace(certain(), knobs=candidate[0]))

    assert np.nan_to_num(unknown) == pytest.approx(np.nan_to_num(known))
