from collections.abc import Callable

import numpy as np
import pytest

from tuner.twin.load import ASSUMED_BRIEF_SHARE, ASSUMED_COLD_SECONDS, ASSUMED_DEMAND, ASSUMED_MIX, read_load
from tuner.values.context import CONTEXT_NAMES
from tuner.values.stages import Observation

MakeObservation = Callable[..., Observation]
NOTHING_MAPPED = dict.fromkeys(CONTEXT_NAMES)


def test_takes_what_is_observed_as_it_is(make_observation: MakeObservation) -> None:
    load = read_load(make_observation())

    assert load.arrivals_per_second.tolist() == [0.2, 0.004, 4.0]
    assert load.service_seconds == pytest.approx([30.0, 2400.0, 2.0])
    assert load.running_tasks.tolist() == [6.0, 9.6, 10.0]
    assert load.waiting_tasks.tolist() == [0.0, 1.0, 0.0]
    assert (load.accelerators_count, load.cold_start_seconds) == (64.0, 8.0)
    assert load.high_share_ratio == pytest.approx(0.3)
    assert load.spread_arrivals == 0.0
    assert not load.spread_service.any()


def test_training_occupies_what_is_seen_to_be_allocated(make_observation: MakeObservation) -> None:
    load = read_load(make_observation(resource_idle_ratio=0.25))

    held = load.running_tasks[1] * load.demand_accelerators[1] + load.running_tasks[2] * load.spread_ratio
    assert held == pytest.approx(0.75 * 64.0)
    assert load.demand_accelerators[2] == 0.25


def test_tells_from_history_how_far_inference_is_spread(make_observation: MakeObservation) -> None:
    observation = make_observation()
    history, generator = observation.history, np.random.default_rng(1)
    history["running_tasks:training"][:] = generator.uniform(2.0, 8.0, 120)
    history["running_tasks:inference"][:] = generator.uniform(10.0, 40.0, 120)
    held = 3.0 * history["running_tasks:training"] + 0.4 * history["running_tasks:inference"]
    history["resource_idle_ratio"][:] = 1.0 - held / 64.0

    assert read_load(observation).spread_ratio == pytest.approx(0.4, abs=0.02)


def test_an_occupation_that_cannot_be_is_believed_within_a_factor_of_four(make_observation: MakeObservation) -> None:
    load = read_load(make_observation(**{"running_tasks:training": 1.0, "resource_idle_ratio": 0.0}))

    assert load.demand_accelerators[1] == 16.0


def test_arrivals_follow_from_completions_and_the_growing_queue(make_observation: MakeObservation) -> None:
    observation = make_observation(**NOTHING_MAPPED)
    queue = observation.history["queue_length"]
    queue[-5:] = [10.0, 16.0, 22.0, 28.0, 34.0]

    load = read_load(observation)

    assert load.arrivals_per_second == pytest.approx((4.2 + 6.0 / 60.0) * ASSUMED_MIX)
    assert load.spread_arrivals > 0


def test_without_context_every_assumption_is_finite_and_has_a_spread(make_observation: MakeObservation) -> None:
    load = read_load(make_observation(**NOTHING_MAPPED))

    assert load.demand_accelerators[[0, 2]].tolist() == ASSUMED_DEMAND[[0, 2]].tolist()
    assert load.cold_start_seconds == ASSUMED_COLD_SECONDS
    assert load.service_seconds == pytest.approx(np.full(3, 900.0))
    assert (load.spread_service > 0).all()
    assert load.waiting_tasks.sum() == pytest.approx(4.0)
    assert load.running_tasks @ load.demand_accelerators == pytest.approx(0.75 * load.accelerators_count)
    assert load.high_share_ratio > 0


def test_run_times_follow_from_littles_law(make_observation: MakeObservation) -> None:
    load = read_load(make_observation(**{"service_seconds:training": None}))

    assert load.service_seconds[1] == pytest.approx(9.6 / 0.004)
    assert 0 < load.spread_service[1] < 0.5


def test_a_cluster_that_does_not_tell_priorities_apart_has_no_protected_work(make_observation: MakeObservation) -> None:
    load = read_load(make_observation(high_priority_share_ratio=None, high_priority_wait_seconds=None))

    assert load.high_share_ratio == 0.0


def test_tells_brief_training_from_long_by_what_left_in_the_last_hours(make_observation: MakeObservation) -> None:
    observation = make_observation(steps=180)
    arrivals = np.random.default_rng(1).gamma(0.5, 8.0, 180)
    running = np.empty(180)
    running[0] = 100.0
    for minute in range(1, 180):
        # Half of what arrives is gone at once; the rest stays an hour.
        running[minute] = running[minute - 1] + 0.5 * arrivals[minute] - running[minute - 1] / 60.0
    observation.history["arrivals_per_second:training"][:] = arrivals / 60.0
    observation.history["running_tasks:training"][:] = running

    load = read_load(observation)

    assert load.brief_share_ratio == pytest.approx(0.5, abs=0.05)
    assert load.training_stay_seconds == pytest.approx(3600.0, rel=0.2)


def test_assumes_how_long_training_stays_where_history_is_too_short(make_observation: MakeObservation) -> None:
    load = read_load(make_observation(steps=3, running_task_remaining_seconds=5000.0))

    assert load.training_stay_seconds == 5000.0
    assert load.brief_share_ratio == ASSUMED_BRIEF_SHARE


def test_looks_back_into_history(make_observation: MakeObservation) -> None:
    observation = make_observation()
    observation.history["arrivals_per_second:inference"][:60] = 9.0
    observation.history["running_tasks:training"][40] = np.nan

    then = read_load(observation, back=60)

    assert then.arrivals_per_second[2] == 9.0
    assert then.running_tasks[1] == 9.6
    assert read_load(observation).arrivals_per_second[2] == 4.0


def test_long_run_times_are_means_of_hours(make_observation: MakeObservation) -> None:
    observation = make_observation(steps=300)
    row = observation.history["service_seconds:preprocessing"]
    row[:] = np.nan
    row[[200, 250]] = [1000.0, 2000.0]

    assert read_load(observation).service_seconds[0] == 1500.0
    row[[200, 250]] = np.nan
    row[10] = 700.0
    assert read_load(observation).service_seconds[0] == 700.0


def test_an_idle_cluster_reads_as_idle(make_observation: MakeObservation) -> None:
    nothing = {f"{name}:{kind}": 0.0 for name in ("arrivals_per_second", "running_tasks", "waiting_tasks")
               for kind in ("preprocessing", "training", "inference")}  # fmt: skip

    load = read_load(make_observation(**nothing, resource_idle_ratio=1.0))

    assert load.offered_accelerators == 0.0
    assert load.running_tasks.sum() == 0.0
