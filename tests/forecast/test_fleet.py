from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.forecast.builders import batch_of
from tuner.errors import ForecastFailed
from tuner.forecast.batch import WINDOW_STEPS, Batch
from tuner.forecast.fleet import Fleet, ask, bound, finish
from tuner.forecast.naive import LastValue, Smoothing
from tuner.values.stages import FloatArray


class Broken:
    """A member that raises, or answers nonsense."""

    name: ClassVar[str] = "broken"

    def __init__(self, answer: float | None = None) -> None:
        self._answer = answer

    def forecast(self, batch: Batch) -> FloatArray:
        if self._answer is None:
            raise ForecastFailed("out of order")
        return np.full((len(batch), batch.horizon, 3), self._answer)


def walk(count: int = 4, *, seed: int = 1) -> FloatArray:
    return np.random.default_rng(seed).normal(size=(count, WINDOW_STEPS)).cumsum(axis=1)


@pytest.mark.parametrize("answer", [None, np.nan, np.inf])
def test_a_member_that_fails_is_replaced_by_last_value(answer: float | None) -> None:
    fleet = Fleet((LastValue(), Broken(answer)), series=4)
    fleet.selection._prior[1] = 0.1  # It would be chosen for everything.
    batch = batch_of(walk())

    served = fleet.forecast(batch, step=0)

    np.testing.assert_allclose(served.quantiles, LastValue().forecast(batch), rtol=1e-4, atol=1e-4)
    assert served.answered == (True, False)
    assert not served.median.any()


def test_untrusted_rows_are_left_to_last_value() -> None:
    batch = batch_of(walk())
    batch.known[2] = 0.5

    answer = ask(Smoothing(), batch)

    assert answer is not None
    np.testing.assert_array_equal(np.isnan(answer[:, 0, 0]), [False, False, True, False])
    last = ask(LastValue(), batch)
    assert last is not None
    assert np.isfinite(last).all()


def test_forecasts_stay_within_what_is_possible_and_what_was_ever_seen() -> None:
    batch = batch_of(np.full((3, WINDOW_STEPS), 0.9))
    batch.window[:, 0] = 0.8
    batch.reach[:] = [0.5, 0.01, 0.5]
    batch.floor[:] = [0.0, -np.inf, -np.inf]
    batch.ceiling[:] = [1.0, np.inf, np.inf]

    limited = bound(np.tile([-9.0, 0.9, 9.0], (3, 15, 1)), batch)

    np.testing.assert_allclose(limited[:, 0], [[0.0, 0.9, 1.0], [0.7, 0.9, 1.1], [-0.1, 0.9, 1.9]])


def test_counts_are_whole_numbers() -> None:
    batch = batch_of(np.full((1, WINDOW_STEPS), 3.0))
    batch.whole[:] = True

    told = finish(np.tile([2.4, 3.2, 5.6], (1, 15, 1)), batch)

    np.testing.assert_array_equal(told[0, 0], [2.0, 3.0, 6.0])


def test_the_highest_count_is_rounded_up_the_less_the_larger_the_margin() -> None:
    batch = batch_of(np.full((1, WINDOW_STEPS), 3.0))
    batch.whole[:] = True
    quantiles = np.tile([2.6, 3.0, 5.6], (1, 15, 1))

    told = [finish(quantiles, batch, count_margin=margin)[0, 0].tolist() for margin in (0.0, 0.2, 0.5)]

    assert told == [[3.0, 3.0, 6.0], [3.0, 3.0, 5.0], [3.0, 3.0, 5.0]]


def test_windows_that_a_clock_in_the_future_opened_are_dropped() -> None:
    fleet = Fleet((LastValue(),), series=4)
    fleet.forecast(batch_of(walk()), step=5_000)

    assert fleet.due_at(100) is None
    fleet.forecast(batch_of(walk()), step=100)
    assert fleet.due_at(115) == 100


def test_changes_keep_five_digits_however_large_the_series() -> None:
    batch = batch_of(np.full((1, WINDOW_STEPS), 1e9))

    told = finish(1e9 + np.tile([-1.23456789, 0.0, 1.23456789], (1, 15, 1)), batch)

    np.testing.assert_allclose(told[0, 0] - 1e9, [-1.2346, 0.0, 1.2346], atol=1e-6)


@given(st.integers(0, 2**32 - 1), st.floats(1e-6, 1e6))
def test_whatever_comes_in_quantiles_are_ordered_and_finite(seed: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    batch = batch_of(walk(seed=seed) * size, spread=size)
    batch.whole[:] = rng.random(4) < 0.5
    batch.floor[:] = np.where(rng.random(4) < 0.5, 0.0, -np.inf)
    fleet = Fleet((LastValue(), Smoothing(), Broken(float(rng.normal() * size))), series=4)
    fleet.selection._prior[:] = rng.random((3, 2))

    told = fleet.forecast(batch, step=0).quantiles

    assert np.isfinite(told).all()
    assert (np.diff(told, axis=-1) >= 0).all()


def test_windows_close_once_all_fifteen_truths_are_known() -> None:
    fleet = Fleet((LastValue(),), series=4)
    fleet.forecast(batch_of(walk()), step=100)

    assert [fleet.due_at(step) for step in (100, 114, 115)] == [None, None, 100]
    closed = fleet.close(np.zeros((4, 15)))
    assert closed is not None
    assert len(closed) == 4
    assert fleet.due_at(200) is None
    assert fleet.close(np.zeros((4, 15))) is None


def test_a_series_that_came_after_a_forecast_is_not_judged_by_it() -> None:
    fleet = Fleet((LastValue(),), series=2)
    fleet.forecast(batch_of(walk(2)), step=0)

    fleet.reindex(np.array([1, -1]))
    closed = fleet.close(np.zeros((2, 15)))

    assert closed is not None
    np.testing.assert_array_equal(closed.trusted, [True, False])
    np.testing.assert_array_equal(np.isnan(fleet.selection.error_ratio()), [False, True])


def test_a_series_that_has_just_shifted_is_forecast_without_its_past_days() -> None:
    seen: list[Batch] = []

    class Watching(LastValue):
        def forecast(self, batch: Batch) -> FloatArray:
            seen.append(batch)
            return super().forecast(batch)

    fleet = Fleet((Watching(),), series=2)
    fleet.selection._recent[1] = 2
    batch = batch_of(walk(2))
    batch.yesterday[:] = 1.0
    batch.typical[:] = 1.0

    fleet.forecast(batch, step=0)

    np.testing.assert_array_equal(np.isnan(seen[0].yesterday[:, 0]), [False, True])
    np.testing.assert_array_equal(np.isnan(seen[0].typical[:, 0]), [False, True])


def test_series_may_come_to_a_fleet_that_had_none() -> None:
    fleet = Fleet((LastValue(),), series=0)
    fleet.forecast(batch_of(np.empty((0, WINDOW_STEPS))), step=0)

    fleet.reindex(np.array([-1, -1]))

    assert fleet.due_at(15) is None
    assert len(fleet.forecast(batch_of(walk(2)), step=15).quantiles) == 2
