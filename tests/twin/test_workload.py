from collections.abc import Callable

import numpy as np
import pytest

from tuner.twin.workload import GROUPS, STEPS, Scenarios, build_scenarios, joined
from tuner.values.context import CONTEXT_NAMES
from tuner.values.stages import Forecast, Observation

MakeObservation = Callable[..., Observation]


def equal(one: Scenarios, other: Scenarios) -> bool:
    return all(np.array_equal(one.to_arrays()[name], other.to_arrays()[name]) for name in Scenarios.__slots__)


def test_has_every_quantile_with_every_draw(make_observation: MakeObservation, forecast: Forecast) -> None:
    scenarios = build_scenarios(make_observation(), forecast, draws=2, seed=1)

    assert len(scenarios) == 6
    assert scenarios.arrivals_per_second.shape == (6, STEPS, len(GROUPS))
    assert scenarios.weights == pytest.approx([0.15, 0.15, 0.2, 0.2, 0.15, 0.15])
    assert (scenarios.arrivals_per_second >= 0).all()


def test_the_same_seed_gives_the_same_scenarios_and_another_other_ones(
    make_observation: MakeObservation, forecast: Forecast
) -> None:
    first = build_scenarios(make_observation(), forecast, draws=2, seed=5)

    assert equal(first, build_scenarios(make_observation(), forecast, draws=2, seed=5))
    assert not equal(first, build_scenarios(make_observation(), forecast, draws=2, seed=6))


def test_arrivals_follow_the_forecast_quantile_by_quantile(
    make_observation: MakeObservation, forecast: Forecast
) -> None:
    scenarios = build_scenarios(make_observation(), forecast, draws=1, seed=1)
    inference = scenarios.arrivals_per_second[:, :, 3:].sum(axis=2)

    # A single draw is the centre: it has no noise but the correction of the mean.
    assert inference[0].mean() < inference[1].mean() < inference[2].mean()
    assert inference[1, -1] > inference[1, 0]
    assert inference[1].mean() == pytest.approx(4.8, rel=0.05)


def test_draws_are_opposed_so_that_chance_cancels(make_observation: MakeObservation, forecast: Forecast) -> None:
    scenarios = build_scenarios(make_observation(), forecast, draws=4, seed=3)

    for quantile in range(3):
        draws = scenarios.parameter_draws[4 * quantile : 4 * quantile + 4]
        assert draws.sum(axis=0) == pytest.approx(0.0)
        assert np.ptp(draws) > 1.0


def test_the_protected_share_of_all_tasks_is_taken_from_inference(
    make_observation: MakeObservation, forecast: Forecast
) -> None:
    scenarios = build_scenarios(make_observation(high_priority_share_ratio=0.5), forecast, draws=1, seed=1)
    arrivals = scenarios.recent_per_second[0]

    assert arrivals[4] == pytest.approx(0.5 * 4.204)
    assert arrivals[3:].sum() == pytest.approx(4.0)


def test_more_protection_than_inference_protects_all_of_it(
    make_observation: MakeObservation, forecast: Forecast
) -> None:
    everything = build_scenarios(make_observation(high_priority_share_ratio=1.0), forecast, draws=1, seed=1)

    assert everything.recent_per_second[0, 3] == 0.0


def test_what_is_not_mapped_differs_from_draw_to_draw(make_observation: MakeObservation, forecast: Forecast) -> None:
    unmapped = make_observation(**dict.fromkeys(CONTEXT_NAMES))
    scenarios = build_scenarios(unmapped, forecast, draws=2, seed=1)

    assert np.ptp(scenarios.service_seconds[:2, 2]) > 10.0
    mapped = build_scenarios(make_observation(), forecast, draws=2, seed=1)
    assert np.ptp(mapped.service_seconds, axis=0) == pytest.approx(0.0)


def test_a_class_without_forecast_keeps_its_rate_within_a_spread(
    make_observation: MakeObservation, forecast: Forecast
) -> None:
    scenarios = build_scenarios(make_observation(), forecast, draws=1, seed=1)
    training = scenarios.arrivals_per_second[:, :, 1:3].sum(axis=2).mean(axis=1)

    assert training[0] < training[1] < training[2]


def test_survives_storage_by_name(make_observation: MakeObservation, forecast: Forecast) -> None:
    scenarios = build_scenarios(make_observation(), forecast, draws=2, seed=1)

    assert equal(scenarios, Scenarios.from_arrays(scenarios.to_arrays()))


def test_joins_scenarios_in_order_with_weights_of_sum_one(
    make_observation: MakeObservation, forecast: Forecast
) -> None:
    one = build_scenarios(make_observation(), forecast, draws=1, seed=1)
    both = joined([one, build_scenarios(make_observation(accelerators_count=80.0), forecast, draws=1, seed=1)])

    assert both.accelerators_count.tolist() == [64.0] * 3 + [80.0] * 3
    assert both.weights.sum() == pytest.approx(1.0)
    assert both.offered_accelerators[0] == pytest.approx(one.offered_accelerators[0])


def test_refuses_no_draws(make_observation: MakeObservation, forecast: Forecast) -> None:
    with pytest.raises(ValueError, match="draws is 0, must be at least 1"):
        build_scenarios(make_observation(), forecast, draws=0, seed=1)
