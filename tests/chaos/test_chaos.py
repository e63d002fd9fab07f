"""Killed at every step, and with everything broken that it stands on, the tuner comes back to a known state."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tuner.chaos.faults import FAULTS
from tuner.chaos.kill import Outcome, kill, points
from tuner.chaos.script import SCENARIOS
from tuner.twin import model

pytestmark = pytest.mark.timeout(240)


def every_kill(scenario: str) -> list[Outcome]:
    """Kill a scenario at each of its steps, two at a time."""
    steps = points(scenario)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), initializer=model.warm_up) as pool:
        return list(pool.map(kill, [scenario] * len(steps), range(1, len(steps) + 1), steps, chunksize=4))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_at_any_step_nothing_is_lost_and_nothing_unknown_is_in_force(scenario: str) -> None:
    outcomes = every_kill(scenario)

    assert len(outcomes) >= 10
    assert [(one.point, one.step, one.violations) for one in outcomes if one.violations] == []
    assert all(one.resumed_after > 0 for one in outcomes)


def test_there_are_steps_enough_and_of_every_kind() -> None:
    steps = [step for scenario in SCENARIOS for step in points(scenario)]

    assert len(steps) >= 30
    for kind in ("the intent", "the receipt", "a write to the scheduler", "cycle", "an answer to an order"):
        assert any(f"before {kind}" in step for step in steps), kind
        assert any(f"after {kind}" in step for step in steps), kind


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_breaks_the_promises_hold_and_work_goes_on_afterwards(fault: str) -> None:
    outcome = FAULTS[fault]()

    assert outcome.violations == ()
    assert outcome.resumed_after > 0


def test_a_scheduler_that_the_journal_does_not_know_of_is_found_out() -> None:
    """The look itself: a write past the journal is a violation."""
    from tuner.chaos.kill import look, scene, told_by
    from tuner.chaos.script import open_stage
    from tuner.values.knobs import KnobValues, Role

    with scene() as (journal, url, settings):
        stage = open_stage(journal, url)
        stage.ticks(1)
        live = stage.parts.actuator.read()
        past = KnobValues.of({**live.knobs, Role.BASE_SLICE: 4.0})
        stage.parts.actuator.write(past, expected_revision=live.revision)
        told = told_by(stage, journal, 1)
        found = list(look(journal, settings, told))
        stage.parts.close()

    assert any("did not know of" in sentence for sentence in found)
    assert any("outside" in sentence for sentence in found)
    assert any("not the one that was left" in sentence for sentence in found)
