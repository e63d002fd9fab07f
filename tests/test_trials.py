"""What a trial may cost while the twin is not proven, and what it is charged when it was undone."""

from dataclasses import replace

import pytest

from tests.verify.test_rollout import NOISY
from tests.verify.test_rollout import trial as compared_with_the_twin
from tests.verify.test_switchback import Driver, trial
from tuner.memory import OnTrial
from tuner.settings.model import VerifySettings
from tuner.trials import allowed_cost, cost, shown
from tuner.twin.parameters import TwinParameters
from tuner.verify.switchback import witnessed

TERMS = VerifySettings(harm_ratio=0.05, leg_seconds=600)


@pytest.mark.parametrize(("region", "allowed"), [(0.0, 30.0), (0.25, 40.0), (0.5, 60.0), (1.0, 60.0)])
def test_a_trial_may_cost_harm_for_two_legs_and_less_the_more_often_the_twin_was_wrong(
    region: float, allowed: float
) -> None:
    assert allowed_cost(TERMS, region) == pytest.approx(allowed)


def on_trial(driver: Driver) -> OnTrial:
    return OnTrial(trial=driver.trial, parameters=TwinParameters(), context=(), began_at_seconds=0.0)


@pytest.mark.parametrize(
    ("effect", "promised", "charged"), [(0.04, -0.1, 60.0), (-0.2, -0.1, 60.0), (0.2, -0.1, 120.0)]
)
def test_a_failed_trial_is_charged_what_it_cost_or_what_it_would_had_it_done_the_opposite(
    effect: float, promised: float, charged: float
) -> None:
    driver = Driver(trial(noise=None, expected_score=promised), effect=effect)
    driver.minutes(10)

    assert cost(on_trial(driver), at_seconds=600.0) == pytest.approx(charged)


def test_a_change_compared_with_the_twin_is_charged_for_all_its_time() -> None:
    running = replace(compared_with_the_twin(NOISY), expected_score=-0.1)
    watched = OnTrial(trial=running, parameters=TwinParameters(), context=(), began_at_seconds=100.0)

    assert cost(watched, at_seconds=700.0) == pytest.approx(60.0)


def test_a_trial_shows_that_by_which_it_was_decided() -> None:
    proven = Driver(trial(), effect=-0.03, wobble=0.02)
    doubted = Driver(trial(allowance=60.0), effect=-0.03, wobble=0.02)
    ends = [driver.to_end() for driver in (proven, doubted)]
    seen = witnessed(doubted.trial)

    assert shown(on_trial(proven), ends[0]) == (ends[0].observed_score, ends[0].score_error)
    assert shown(on_trial(doubted), ends[1]) == (seen.mean, seen.error)
