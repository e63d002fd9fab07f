"""What is believed of a change, between expectation and measurement."""

import numpy as np
import pytest

from tests.verify.test_rollout import NOISY, SPREAD, USUAL, around, live, trial
from tuner.values.metrics import DEFAULT_WEIGHTS, METRIC_COUNT, METRIC_INDEX
from tuner.verify.belief import believe, combine
from tuner.verify.statistics import Estimate
from tuner.verify.trial import Trial

WAIT, LATENCY = METRIC_INDEX["queue_wait_seconds"], METRIC_INDEX["scheduling_latency_seconds"]


def expecting(**terms: float) -> np.ndarray:
    vector = np.full(METRIC_COUNT, np.nan)
    for name, value in terms.items():
        vector[METRIC_INDEX[name]] = value
    return vector


def both(*, wait: float, latency: float) -> Trial:
    """A trial in which the queue wait is noisy and the latency is not."""
    start = trial(NOISY, weights=DEFAULT_WEIGHTS, expected_terms=expecting(scheduling_latency_seconds=-0.02))
    looks = around(wait, count=12, spread=SPREAD)
    for number, look in enumerate(looks):
        look[LATENCY] = USUAL[LATENCY] * np.exp(latency + 0.001 * (-1) ** number)
    return live(start, *looks)


def test_before_any_sample_the_expectation_stands() -> None:
    start = trial(weights=DEFAULT_WEIGHTS, expected_terms=expecting(queue_wait_seconds=-0.03))

    assert believe(start).mean == pytest.approx(-0.03)


def test_a_sharp_measurement_overrules_the_expectation() -> None:
    expected = expecting(queue_wait_seconds=-0.05)

    seen = believe(live(trial(expected_terms=expected), *around(0.1, count=12, spread=0.001)))

    assert seen.mean == pytest.approx(0.1, abs=0.01)
    assert seen.error < 0.01


def test_a_blunt_measurement_hardly_moves_it() -> None:
    expected = expecting(queue_wait_seconds=-0.01)

    seen = believe(live(trial(10 * NOISY, expected_terms=expected), *around(0.3, count=12, spread=10 * SPREAD)))

    assert -0.015 < seen.mean < 0.0


def test_a_metric_that_is_measured_well_decides_although_the_sum_is_noise() -> None:
    worse, better = believe(both(wait=0.0, latency=0.3)), believe(both(wait=0.0, latency=-0.3))

    assert worse.mean > 0.02
    assert better.mean < -0.02


def test_what_was_not_expected_is_expected_not_to_change() -> None:
    assert believe(trial()).mean == 0.0


def test_a_promise_that_does_not_count_only_says_how_far_a_metric_may_have_moved() -> None:
    expected = expecting(queue_wait_seconds=-0.1, scheduling_latency_seconds=-0.1)
    sharp, blunt = (Estimate(mean=0.05, error=error, samples=2, degrees=4.0) for error in (0.01, 1.0))

    def combined(measured: Estimate, *, promised: bool) -> Estimate:
        wait = METRIC_INDEX["queue_wait_seconds"]
        return combine(expected, {wait: measured}, weights=DEFAULT_WEIGHTS, samples=2, promised=promised)

    assert combined(sharp, promised=False).mean == pytest.approx(0.05, rel=0.02)
    assert combined(blunt, promised=False).mean == pytest.approx(0.0, abs=0.001)
    assert combined(blunt, promised=True).mean == pytest.approx(-0.1, abs=0.005)
    assert combined(sharp, promised=False).error == combined(sharp, promised=True).error
