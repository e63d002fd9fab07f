import numpy as np
import pytest

from tests.forecast.builders import batch_of
from tuner.forecast.batch import WINDOW_STEPS
from tuner.forecast.forecaster import Forecaster
from tuner.forecast.naive import DampedTrend, LastValue, LocalTrend, Smoothing

MEMBERS = [LastValue(), Smoothing(), DampedTrend(), LocalTrend()]


def test_last_value_repeats_it_with_the_spread_of_the_series_own_changes() -> None:
    batch = batch_of(np.arange(30.0)[None], spread=2.0)

    answer = LastValue().forecast(batch)

    np.testing.assert_array_equal(answer[0], np.tile([27.0, 29.0, 31.0], (15, 1)))


def test_smoothing_finds_the_mean_under_noise() -> None:
    rng = np.random.default_rng(1)
    window = 10 + rng.normal(size=(200, WINDOW_STEPS))

    error = np.abs(Smoothing().forecast(batch_of(window))[:, 0, 1] - 10).mean()

    assert error < 0.6 * np.abs(window[:, -1] - 10).mean()


def test_smoothing_becomes_last_value_where_the_level_has_stepped() -> None:
    window = np.where(np.arange(WINDOW_STEPS) < 20, 0.0, 8.0)[None]

    assert Smoothing().forecast(batch_of(window))[0, 0, 1] == pytest.approx(8.0)


def test_a_damped_trend_follows_a_line_and_then_flattens() -> None:
    median = DampedTrend().forecast(batch_of(np.arange(30.0)[None]))[0, :, 1]

    assert 29.5 < median[0] < 30.5
    assert 0 < median[-1] - median[-2] < 0.5 * (median[1] - median[0])


def test_a_local_trend_runs_on_without_end() -> None:
    median = LocalTrend().forecast(batch_of(np.arange(30.0)[None]))[0, :, 1]

    assert np.diff(median) == pytest.approx(np.diff(median)[0])
    assert np.diff(median)[0] > 0.8


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_a_flat_series_is_forecast_flat(member: Forecaster) -> None:
    answer = member.forecast(batch_of(np.full((3, WINDOW_STEPS), 7.0)))

    np.testing.assert_allclose(answer[..., 1], 7.0)


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_every_series_is_forecast_on_its_own(member: Forecaster) -> None:
    window = np.random.default_rng(2).normal(size=(6, WINDOW_STEPS)).cumsum(axis=1)

    together = member.forecast(batch_of(window))
    alone = member.forecast(batch_of(window[4:5]))

    np.testing.assert_allclose(together[4], alone[0], rtol=1e-12)
