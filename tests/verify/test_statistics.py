"""Errors of means: exact where theory is exact, honest where samples resemble each other."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.values.stages import FloatArray
from tuner.verify.statistics import (
    MAX_PERSISTENCE,
    Likeness,
    Samples,
    effective_samples,
    estimate,
    likeness_of,
)


def minutely(values: FloatArray | list[float]) -> Samples:
    return Samples(60.0 * np.arange(len(values), dtype=np.float64), np.asarray(values, dtype=np.float64))


def autoregressive(seed: int, *, runs: int, count: int, rho: float) -> FloatArray:
    """Stationary first-order autoregressive noise of variance 1, shape (runs, count)."""
    generator = np.random.default_rng(seed)
    shocks = generator.normal(size=(runs, count)) * math.sqrt(1.0 - rho**2)
    values = np.empty((runs, count))
    values[:, 0] = generator.normal(size=runs)
    for step in range(1, count):
        values[:, step] = rho * values[:, step - 1] + shocks[:, step]
    return values


def moving_means(seed: int, *, runs: int, count: int, span: int) -> FloatArray:
    """Means over `span` steps of independent noise, read at every step; variance 1, shape (runs, count)."""
    shocks = np.random.default_rng(seed).normal(size=(runs, count + span - 1)) / math.sqrt(span)
    means: FloatArray = np.lib.stride_tricks.sliding_window_view(shocks, span, axis=1).sum(axis=-1)
    return means


def minutes(count: int, rho: float = 0.0, *, span: int = 0) -> float:
    """Effective samples of an even grid of minutes."""
    return effective_samples(60.0 * np.arange(count, dtype=np.float64), Likeness(60.0 * span, rho, 60.0))


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
def test_effective_samples_of_an_even_grid_are_those_of_bayley_and_hammersley(
    count: int, rho: float, expected: float
) -> None:
    assert minutes(count, rho) == pytest.approx(expected)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8])
def test_effective_samples_foretell_the_spread_of_a_mean_of_autoregressive_noise(rho: float) -> None:
    means = autoregressive(1, runs=4000, count=15, rho=rho).mean(axis=1)

    assert 1.0 / means.var() == pytest.approx(minutes(15, rho), rel=0.08)


@pytest.mark.parametrize("span", [1, 3, 5, 15])
def test_effective_samples_foretell_the_spread_of_a_mean_of_overlapping_means(span: int) -> None:
    means = moving_means(1, runs=4000, count=15, span=span).mean(axis=1)

    assert 1.0 / means.var() == pytest.approx(minutes(15, span=span), rel=0.08)


@given(
    gaps=st.lists(st.floats(1, 1e4), min_size=1, max_size=30),
    rho=st.floats(0, MAX_PERSISTENCE),
    more=st.floats(0, 0.5),
    span=st.floats(0, 1e4),
)
def test_more_likeness_never_makes_samples_count_for_more(
    gaps: list[float], rho: float, more: float, span: float
) -> None:
    times = np.cumsum(gaps)

    less, alike = (
        effective_samples(times, Likeness(span, value, 60.0)) for value in (rho, min(rho + more, MAX_PERSISTENCE))
    )

    assert 1.0 - 1e-9 <= alike <= less + 1e-9 <= len(times) + 1e-6


@pytest.mark.parametrize("rho", [0.0, 0.4, 0.8])
def test_persistence_is_found_without_much_bias_in_short_series(rho: float) -> None:
    after, before = (autoregressive(seed, runs=400, count=count, rho=rho) for seed, count in ((1, 15), (2, 30)))

    found = np.mean([likeness_of(minutely(a), minutely(b)).persistence for a, b in zip(after, before, strict=True)])

    # Values below zero are not believed, which lifts the mean where there is no correlation.
    assert found == pytest.approx(rho, abs=0.1)


def test_common_data_is_not_taken_for_persistence() -> None:
    noise = moving_means(1, runs=400, count=45, span=5)

    found = np.mean([likeness_of(minutely(row), span_seconds=300.0).persistence for row in noise])

    assert found < 0.15


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0], MAX_PERSISTENCE),
        ([1.0, 2.0, 3.0, 4.0], MAX_PERSISTENCE),
        ([1.0] * 9, 0.0),
        ([1.0, -1.0] * 9, 0.0),
        (list(range(40)), MAX_PERSISTENCE),
    ],
    ids=["one", "too few pairs", "constant", "alternating", "trend"],
)
def test_persistence_at_the_edges(values: list[float], expected: float) -> None:
    assert likeness_of(minutely(values)).persistence == pytest.approx(expected)


def test_independent_samples_give_the_error_of_the_textbook() -> None:
    values = np.array([1.0, -1.0, 2.0, -2.0, 1.0, -1.0, 2.0, -2.0, 1.0])

    found = estimate(minutely(values))

    assert found.mean == pytest.approx(values.mean())
    assert found.error == pytest.approx(values.std(ddof=1) / 3.0)
    assert found.degrees == pytest.approx(8.0)
    # Student's t with 8 degrees of freedom: 1.8595 at 95 %.
    assert found.upper(0.95) - found.mean == pytest.approx(1.8595 * found.error, rel=1e-4)
    assert found.mean - found.lower(0.95) == pytest.approx(1.8595 * found.error, rel=1e-4)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8])
def test_a_bound_on_autoregressive_noise_covers_as_often_as_it_says(rho: float) -> None:
    noise = autoregressive(3, runs=600, count=60, rho=rho)

    covered = np.mean([estimate(minutely(row[45:]), minutely(row[:45])).upper(0.95) > 0 for row in noise])

    assert covered == pytest.approx(0.95, abs=0.03)


@pytest.mark.parametrize("span", [3, 5])
def test_a_bound_on_overlapping_means_covers_at_least_as_often_as_it_says(span: int) -> None:
    noise = moving_means(3, runs=600, count=60, span=span)

    covered = np.mean(
        [estimate(minutely(row[45:]), minutely(row[:45]), span_seconds=60.0 * span).upper(0.95) > 0 for row in noise]
    )

    assert covered >= 0.95 - 0.02


def test_the_uncertainty_of_the_mean_before_is_part_of_the_error() -> None:
    values = np.random.default_rng(1).normal(size=60)
    after = minutely(values[:20])

    assert estimate(after, minutely(values[20:30])).error > estimate(after, minutely(values[20:])).error
    shifted = estimate(after, minutely(values[20:] + 5.0))
    assert shifted.mean == pytest.approx(values[:20].mean() - values[20:].mean() - 5.0)


@pytest.mark.parametrize(("values", "samples"), [([], 0), ([math.nan, math.nan], 0), ([1.0], 1), ([math.nan, 1.0], 1)])
@pytest.mark.parametrize("before", [None, [], [math.nan]])
def test_too_few_samples_have_no_error_and_no_bounds(
    values: list[float], samples: int, before: list[float] | None
) -> None:
    found = estimate(minutely(values), None if before is None else minutely(before))

    assert found.samples == samples
    assert math.isnan(found.error)
    assert math.isnan(found.upper(0.9))
    assert math.isnan(found.lower(0.9))


def test_gaps_are_left_out_not_counted_as_zero() -> None:
    values = np.random.default_rng(2).normal(loc=3.0, size=40)
    gaps = values.copy()
    gaps[::4] = math.nan

    found = estimate(minutely(gaps))

    assert found.samples == 30
    assert found.mean == pytest.approx(np.nanmean(gaps))
    assert found.error > estimate(minutely(values)).error * 0.9
