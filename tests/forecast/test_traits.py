import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tuner.forecast.batch import LONG_LEVELS, LONG_MOVEMENTS
from tuner.forecast.traits import DAY_BLOCKS, DAY_LAGS, WEEK_BLOCKS, WEEK_LAGS, blocks_of, long_run_of
from tuner.values.stages import FloatArray

NAN = np.nan
RISE, FALL, DEVIATION = range(len(DAY_LAGS), len(DAY_LAGS) + 3)
HIGHEST, LOWEST = -2, -1


def test_a_block_is_the_mean_of_what_is_known_of_five_steps_and_the_last_ends_with_the_series() -> None:
    row = np.array([[9.0, 1, 2, 3, 4, 5, NAN, NAN, 6, NAN, 8, NAN, NAN, NAN, NAN, NAN]])

    np.testing.assert_array_equal(blocks_of(row), [[3.0, 7.0, NAN]])


def test_of_a_line_every_movement_is_its_slope_times_the_distance() -> None:
    line = np.linspace(0.0, 798.0, 400)[None]
    found = long_run_of(line)

    np.testing.assert_allclose(found.movements[0, : len(DAY_LAGS)], 2.0 * np.array(DAY_LAGS))
    assert found.movements[0, RISE] == pytest.approx(6.0)
    assert found.movements[0, FALL] == pytest.approx(0.0)
    assert found.held[0] == 0.0


def test_day_and_week_are_told_apart() -> None:
    quiet, loud = np.zeros(WEEK_BLOCKS - DAY_BLOCKS), np.tile([0.0, 1.0], DAY_BLOCKS // 2)

    found = long_run_of(np.concatenate([quiet, loud])[None])

    assert found.movements[0, 0] == pytest.approx(1.0)
    assert found.movements[0, -len(WEEK_LAGS) - 2] == pytest.approx(1 / 7, rel=0.01)
    np.testing.assert_allclose(found.levels[0, [2, 3]], [0.5, 0.5 / 7])
    np.testing.assert_array_equal(found.levels[0, [HIGHEST, LOWEST]], [1.0, 0.0])
    assert found.movements[0, DEVIATION] == pytest.approx(0.5)


def test_of_what_was_never_seen_nothing_is_said() -> None:
    found = long_run_of(np.full((2, DAY_BLOCKS), NAN))

    np.testing.assert_array_equal(found.movements, 0.0)
    assert np.isnan(found.levels).all()
    np.testing.assert_array_equal(found.held, 0.0)


@given(arrays(np.float64, (3, 40), elements=st.one_of(st.just(NAN), st.floats(-1e15, 1e15, allow_subnormal=False))))
def test_whatever_was_seen_sizes_are_finite_and_not_negative(blocks: FloatArray) -> None:
    found = long_run_of(blocks)

    assert found.movements.shape == (3, LONG_MOVEMENTS)
    assert found.levels.shape == (3, LONG_LEVELS)
    assert np.isfinite(found.movements).all()
    assert (found.movements >= 0).all()
    assert ((found.held >= 0) & (found.held <= 1)).all()
