import numpy as np
import pytest

from tuner.bench.twin import (
    EXCURSION_MINUTES,
    EXCURSIONS_FROM,
    SCENARIOS,
    candidates_per_second,
    crowd,
    excursions,
    kendall,
    random_settings,
)
from tuner.reference.settings import ClockSettings
from tuner.twin.workload import HORIZON_SECONDS
from tuner.values.knobs import DESIGN_RANGES, Role


def test_a_crowd_has_as_many_tasks_as_it_says() -> None:
    scenarios = crowd(nodes=64, tasks=3_500)

    assert len(scenarios) == SCENARIOS
    assert scenarios.arrivals_per_second.sum(axis=2).mean() * HORIZON_SECONDS == pytest.approx(3_500)
    assert scenarios.accelerators_count.tolist() == [512.0] * SCENARIOS


def test_random_settings_lie_on_the_grids_and_repeat_with_the_seed() -> None:
    settings = random_settings(8, seed=3)

    assert settings == random_settings(8, seed=3)
    assert settings != random_settings(8, seed=4)
    for setting in settings:
        assert all(DESIGN_RANGES[role].snap(value) == value for role, value in setting.items())


def test_excursions_move_one_knob_at_a_time_by_one_change_and_return() -> None:
    plan, default = excursions(), ClockSettings()

    assert len(plan) == 4 * len(Role)
    for minute, settings in plan.items():
        moved = settings.knobs.differs(default.knobs)
        returns = (minute - EXCURSIONS_FROM) % 30 == EXCURSION_MINUTES
        assert len(moved) == (0 if returns else 1)
        for role in moved:
            assert abs(settings.knobs[role] - default.knobs[role]) <= DESIGN_RANGES[role].slew + 1e-9


def test_rank_agreement_is_one_for_the_same_order_and_less_for_the_reverse() -> None:
    values = np.array([0.3, -0.1, 0.2])

    assert kendall(values, 2.0 * values) == 1.0
    assert kendall(values, -values) == -1.0


def test_speed_is_a_rate() -> None:
    assert candidates_per_second(nodes=2, tasks=20, repetitions=1, candidates=2) > 0
