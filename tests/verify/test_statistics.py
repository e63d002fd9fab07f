"""Errors of means: exact where theory is exact, honest where samples resemble each other."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.values.stages import FloatArray
from tuner.verify.statistics import MAX_AUTOCORRELATION, effective_samples, estimate, pooled_autocorrelation


def autoregressive(seed: int, *, runs: int, count: int, rho: float) -> FloatArray:
    """Stationary first-order autoregressive noise of variance 1, shape (runs, count)."""
    generator = np.random.default_rng(seed)
    shocks = generator.normal(size=(runs, count)) * math.sqrt(1.0 - rho**2)
    values = np.empty((runs, count))
    values[:, 0] = generator.normal(size=runs)
    for step in range(1, count):
        values[:, step] = rho * values[:, step - 1] + shocks[:, step]
    return values


@pytest.mark.parametrize(
    ("count", "rho", "expected"),
    [
        (10, 0.0, 10.0),
        (1, 0.9, 1.0),
        (2, 0.5, 2 / 1.5),
        (3, 0.5, 3 / (1 + 2 * (2 / 3 * 0.5 + 1 / 3 * 0.25))),
        (0, 0.5, 0.0),
    ],
)
def test_effective_samples_of_small_counts_are_those_of_the_formula(count: int, rho: float, expected: float) -> None:
    assert effective_samples(count, rho) == pytest.approx(expected)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8])
def test_effective_samples_foretell_the_spread_of_the_mean(rho: float) -> None:
    means = autoregressive(1, runs=4000, count=15, rho=rho).mean(axis=1)

    assert 1.0 / means.var() == pytest.approx(effective_samples(15, rho), rel=0.08)


@given(count=st.integers(1, 200), rho=st.floats(0, MAX_AUTOCORRELATION), more=st.floats(0, 0.5))
def test_more_likeness_never_makes_samples_count_for_more(count: int, rho: float, more: float) -> None:
    other = min(rho + more, MAX_AUTOCORRELATION)

    assert 1.0 - 1e-9 <= effective_samples(count, other) <= effective_samples(count, rho) + 1e-9 <= count + 1e-6


@pytest.mark.parametrize("rho", [0.0, 0.4, 0.8])
def test_autocorrelation_is_found_without_much_bias_in_short_series(rho: float) -> None:
    after, before = (autoregressive(seed, runs=600, count=count, rho=rho) for seed, count in ((1, 15), (2, 30)))

    found = np.mean([pooled_autocorrelation(*pair) for pair in zip(after, before, strict=True)])

    # Values below zero are not believed, which lifts the mean where there is no autocorrelation.
    assert found == pytest.approx(rho, abs=0.08)


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        ([], MAX_AUTOCORRELATION),
        ([1.0], MAX_AUTOCORRELATION),
        ([1.0, 2.0, 3.0], MAX_AUTOCORRELATION),
        ([1.0] * 9, 0.0),
        ([1.0, -1.0] * 9, 0.0),
        (list(range(40)), MAX_AUTOCORRELATION),
        # The pairs across the gap are left out.
        ([1.0, math.nan, -1.0, math.nan, 1.0, math.nan, -1.0], 1.0 / (4 - 3)),
    ],
    ids=["none", "one", "three", "constant", "alternating", "trend", "gaps"],
)
def test_autocorrelation_at_the_edges(series: list[float], expected: float) -> None:
    assert pooled_autocorrelation(np.array(series, dtype=np.float64)) == pytest.approx(
        min(expected, MAX_AUTOCORRELATION)
    )


def test_independent_samples_give_the_error_of_the_textbook() -> None:
    values = np.array([1.0, -1.0, 2.0, -2.0, 1.0, -1.0, 2.0, -2.0, 1.0])

    found = estimate(values)

    assert found.mean == pytest.approx(values.mean())
    assert found.error == pytest.approx(values.std(ddof=1) / 3.0)
    assert found.degrees == pytest.approx(8.0)
    # Student's t with 8 degrees of freedom: 1.8595 at 95 %.
    assert found.upper(0.95) - found.mean == pytest.approx(1.8595 * found.error, rel=1e-4)
    assert found.mean - found.lower(0.95) == pytest.approx(1.8595 * found.error, rel=1e-4)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8])
def test_a_confidence_bound_covers_as_often_as_it_says(rho: float) -> None:
    noise = autoregressive(3, runs=1000, count=60, rho=rho)

    covered = np.mean([estimate(row[45:], row[:45]).upper(0.95) > 0 for row in noise])

    assert covered == pytest.approx(0.95, abs=0.025)


def test_the_uncertainty_of_the_reference_is_part_of_the_error() -> None:
    values = np.random.default_rng(1).normal(size=60)

    assert estimate(values[:20], values[20:30]).error > estimate(values[:20], values[20:]).error
    assert estimate(values[:20], values[20:] + 5.0).mean == pytest.approx(values[:20].mean() - values[20:].mean() - 5.0)


@pytest.mark.parametrize(("values", "samples"), [([], 0), ([math.nan, math.nan], 0), ([1.0], 1), ([math.nan, 1.0], 1)])
def test_too_few_samples_have_no_error_and_no_bounds(values: list[float], samples: int) -> None:
    found = estimate(values)

    assert found.samples == samples
    assert math.isnan(found.error)
    assert math.isnan(found.upper(0.9))
    assert math.isnan(found.lower(0.9))


def test_gaps_are_left_out_not_counted_as_zero() -> None:
    values = np.random.default_rng(2).normal(loc=3.0, size=40)
    gaps = values.copy()
    gaps[::4] = math.nan

    found = estimate(gaps)

    assert found.samples == 30
    assert found.mean == pytest.approx(np.nanmean(gaps))
    assert found.error > estimate(values).error * 0.9
