import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from tuner.forecast.batch import (
    change_quantiles,
    fill_gaps,
    mean_rows,
    reach_of,
    scale_of,
    still_of,
    usable,
    whole_of,
    whole_rows,
)
from tuner.values.stages import FloatArray

NAN = np.nan

anything = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=12), elements=st.floats(width=64))


def test_what_cannot_be_a_sample_becomes_nan() -> None:
    values = np.array([[1.0, np.inf, -np.inf, NAN, 1e16, -1e300, 1e15]])

    np.testing.assert_array_equal(usable(values), [[1.0, NAN, NAN, NAN, NAN, NAN, 1e15]])


@pytest.mark.parametrize(
    ("row", "filled"),
    [
        ([1.0, NAN, NAN, 4.0], [1.0, 1.0, 1.0, 4.0]),
        ([NAN, NAN, 3.0, NAN], [3.0, 3.0, 3.0, 3.0]),
        ([NAN, NAN, NAN, NAN], [0.0, 0.0, 0.0, 0.0]),
        ([5.0, 6.0, 7.0, 8.0], [5.0, 6.0, 7.0, 8.0]),
    ],
)
def test_gaps_take_the_sample_before_them_or_the_first_one(row: list[float], filled: list[float]) -> None:
    np.testing.assert_array_equal(fill_gaps(np.array([row])), [filled])


@given(anything)
def test_filled_series_are_finite_whatever_came(values: FloatArray) -> None:
    assert np.isfinite(fill_gaps(usable(values))).all()


def test_the_scale_of_a_line_is_its_slope_times_the_mean_distance() -> None:
    line = np.arange(100.0)[None]

    assert scale_of(line)[0] == pytest.approx((1 + 2 + 4 + 8 + 15) / 5)


def test_scale_and_reach_pass_over_gaps() -> None:
    line = np.arange(100.0)[None]
    holes = line.copy()
    holes[0, ::7] = NAN

    assert scale_of(holes)[0] == pytest.approx(scale_of(line)[0])
    assert reach_of(holes)[0] == 15.0
    assert reach_of(holes[:, :10])[0] == 0.0


def test_still_is_the_share_of_steps_without_a_change() -> None:
    assert still_of(np.array([[1.0, 1.0, 2.0, 2.0, 2.0]]))[0] == 0.75
    assert still_of(np.array([[1.0]]))[0] == 1.0


def test_change_quantiles_are_those_of_the_changes_by_distance() -> None:
    values = np.random.default_rng(1).normal(size=(2, 400)).cumsum(axis=1)

    low, high = change_quantiles(values, horizon=3)

    changes = values[1, 3:] - values[1, :-3]
    assert low[1, 2] == pytest.approx(np.quantile(changes, 0.1))
    assert high[1, 2] == pytest.approx(np.quantile(changes, 0.9))


def test_change_quantiles_grow_like_a_random_walk_where_history_ends() -> None:
    values = np.random.default_rng(1).normal(size=(1, 24)).cumsum(axis=1)

    low, _ = change_quantiles(values, horizon=20)

    assert low[0, 19] == pytest.approx(low[0, 3] * np.sqrt(20 / 4))


def test_a_band_always_holds_no_change() -> None:
    rising = np.arange(200.0)[None]

    low, high = change_quantiles(rising, horizon=5)

    assert (low == 0).all()
    np.testing.assert_allclose(high[0], [1, 2, 3, 4, 5])


@pytest.mark.parametrize(
    ("row", "whole"),
    [([0.0, 1.0, 2.0], True), ([0.5, 1.0, 2.0], False), ([0.0, 0.0, 0.0], False), ([NAN, 3.0, NAN], True)],
)
def test_only_series_of_whole_numbers_that_move_off_zero_count_things(row: list[float], *, whole: bool) -> None:
    assert whole_of(np.array([row]))[0] == whole


def test_days_that_are_mostly_missing_are_no_guide() -> None:
    mostly = np.array([[1.0, NAN, 3.0, 4.0, 5.0], [NAN, NAN, 3.0, 4.0, 5.0]])

    np.testing.assert_array_equal(whole_rows(mostly), [[1.0, 1.0, 3.0, 4.0, 5.0], [NAN] * 5])


def test_a_typical_day_is_the_mean_of_the_days_that_are_known() -> None:
    days = [np.array([[1.0], [NAN]]), np.array([[3.0], [NAN]]), np.array([[NAN], [NAN]])]

    np.testing.assert_array_equal(mean_rows(days), [[2.0], [NAN]])
