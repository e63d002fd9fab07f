import numpy as np
import pytest

from tuner.forecast.window import best_window
from tuner.values.stages import Forecast

STEPS = 20


def forecast(**medians: list[float]) -> Forecast:
    values = np.repeat(np.array(list(medians.values())).reshape(len(medians), STEPS, 1), 3, axis=2)
    names = tuple(medians)
    return Forecast(
        cycle_id=1, at_seconds=600.0, names=names, values=values, models=names, error_ratio=np.full(len(names), np.nan)
    )


def bump(low: float, high: float, start: int) -> list[float]:
    return [high if start <= step < start + 5 else low for step in range(STEPS)]


@pytest.mark.parametrize("start", [0, 7, 15])
def test_the_window_lies_where_most_is_free(start: int) -> None:
    window = best_window(forecast(resource_idle_ratio=bump(0.1, 0.6, start)))

    assert window is not None
    assert window.start_at_seconds == 600.0 + 60 * start
    assert window.end_at_seconds - window.start_at_seconds == 300.0
    assert window.headroom_ratio == pytest.approx(0.6)


def test_utilisation_stands_in_for_the_idle_share() -> None:
    window = best_window(forecast(accelerator_utilization_ratio=bump(0.9, 0.3, 10)))

    assert window is not None
    assert window.headroom_ratio == pytest.approx(0.7)


def test_work_that_waits_takes_its_share_first() -> None:
    window = best_window(forecast(resource_idle_ratio=bump(0.3, 0.5, 3), pending_demand_ratio=bump(0.1, 0.45, 3)))

    assert window is not None
    assert window.start_at_seconds > 600.0 + 60 * 3
    assert window.headroom_ratio == pytest.approx(0.2)


def test_nothing_is_sent_into_the_future_for_nothing() -> None:
    flat = [0.4 + 1e-12 * step for step in range(STEPS)]

    window = best_window(forecast(resource_idle_ratio=flat))

    assert window is not None
    assert window.start_at_seconds == 600.0


@pytest.mark.parametrize(("spread", "start"), [(0.05, 10), (0.6, 0)])
def test_work_is_not_sent_into_the_future_for_what_the_forecast_itself_is_unsure_of(spread: float, start: int) -> None:
    unsure = forecast(resource_idle_ratio=bump(0.1, 0.3, 10))
    unsure.values[..., 0] -= spread / 2
    unsure.values[..., 2] += spread / 2

    window = best_window(unsure)

    assert window is not None
    assert window.start_at_seconds == 600.0 + 60 * start


def test_headroom_is_never_negative() -> None:
    window = best_window(forecast(resource_idle_ratio=[0.0] * STEPS, pending_demand_ratio=[3.0] * STEPS))

    assert window is not None
    assert window.headroom_ratio == 0.0


def test_without_idle_share_and_utilisation_there_is_no_window() -> None:
    assert best_window(forecast(queue_length=[1.0] * STEPS)) is None
