"""What happens to settings that are not as they were left: people are yielded to, accidents are mended."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.loop.harness import Simulation, simulation
from tuner.apply.actuator import Current
from tuner.errors import ActuatorUnavailable, PermanentError
from tuner.values.knobs import KnobValues, Role
from tuner.values.safety import Rung, SettingsState

pytestmark = pytest.mark.timeout(180)

MIDDLE = 0.115


def restarted(world: Simulation, monkeypatch: pytest.MonkeyPatch, instance: str) -> None:
    """Let the scheduler say that it is another process."""
    read = world.wires.read
    monkeypatch.setattr(world.wires, "read", lambda: replace(read(), instance=instance))


def freezing(folder: Path, on_contest: str = "freeze", **healing: Any) -> Any:
    return simulation(folder, guard={"healing": {"on_contest": on_contest, **healing}})


def test_a_value_that_nobody_can_have_meant_is_replaced_by_the_last_known_good_one(tmp_path: Path) -> None:
    with simulation(tmp_path) as world:
        world.cycles(2)
        before = world.in_force
        world.edit({Role.BASE_SLICE: 4.9})

        healed = world.cycle()

        assert healed.decision == "heal"
        assert "4.9, outside 0.08..0.15" in healed.reason
        assert world.in_force == before
        assert world.cycle().decision == "hold"


def test_an_edit_is_adopted_and_the_tuner_goes_on_from_it(tmp_path: Path) -> None:
    with simulation(tmp_path) as world:
        world.cycles(2)
        world.edit({Role.RESERVATION: 0.23})
        edited = world.in_force

        adopted = world.cycle()

        assert adopted.decision == "adopted"
        assert world.in_force == edited
        assert world.parts.writer.standing.known_good == edited


def test_an_edit_freezes_everything_where_the_policy_says_so_until_a_person_thaws_it(tmp_path: Path) -> None:
    with freezing(tmp_path) as world:
        world.cycles(2)
        world.edit({Role.RESERVATION: 0.23})
        edited = world.in_force

        frozen, *later = world.cycles(3)
        rung = world.parts.cycle.memory.caution.ladder.rung
        world.edit({Role.BASE_SLICE: 4.9})
        world.cycles(2)
        wrong = world.in_force
        world.parts.writer.update(frozen_because="")
        world.edit({Role.BASE_SLICE: MIDDLE})
        world.cycles(2)

        assert frozen.decision == "frozen"
        assert "clocktuner adopt" in frozen.reason
        assert {record.decision for record in later} == {"hold"}
        assert edited[Role.RESERVATION] == 0.23
        assert rung is Rung.FROZEN
        assert wrong[Role.BASE_SLICE] == 4.9  # Frozen means that nothing is touched, not even to mend it.
        assert world.parts.cycle.memory.caution.ladder.rung < Rung.FROZEN


def test_defaults_after_a_restart_of_the_scheduler_are_no_edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with simulation(tmp_path) as world:
        restarted(world, monkeypatch, "first")
        world.edit({Role.BASE_SLICE: 0.13})
        world.cycles(2)
        before = world.in_force
        world.edit({Role.BASE_SLICE: MIDDLE})
        restarted(world, monkeypatch, "second")

        healed = world.cycle()

        assert healed.decision == "heal"
        assert "restarted" in healed.reason
        assert world.in_force == before
        assert world.parts.writer.standing.instance == "second"


def test_restoring_is_tried_with_growing_pauses_and_given_up_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with freezing(tmp_path, "adopt", max_attempts=3, back_off_seconds=300) as world:
        world.cycles(2)
        world.edit({Role.BASE_SLICE: 4.9})

        def refuse(*_: object, **__: object) -> Current:
            raise PermanentError("the file is read-only")

        monkeypatch.setattr(world.wires, "write", refuse)
        records = world.cycles(12)

        tries = [record for record in records if record.decision == "failed"]
        assert len(tries) == 3
        assert "attempt 1 of 3, again in 300 s" in tries[0].reason
        assert "attempt 3 of 3, given up" in tries[2].reason
        assert tries[2].at_seconds - tries[1].at_seconds > tries[1].at_seconds - tries[0].at_seconds
        assert world.parts.keeper.exhausted
        assert world.parts.keeper.state is SettingsState.INVALID


def test_what_was_lost_is_mended_at_once_when_the_scheduler_answers_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with simulation(tmp_path) as world:
        world.cycles(2)
        before = world.in_force
        world.edit({Role.BASE_SLICE: 4.9})

        def silent() -> Current:
            raise ActuatorUnavailable("no answer")

        with monkeypatch.context() as patch:
            patch.setattr(world.wires, "read", silent)
            deaf = world.cycle()
        healed = world.cycle()

        assert deaf.decision == "failed"
        assert healed.decision == "heal"
        assert world.in_force == before


@pytest.mark.parametrize("mode", ["observe", "recommend"])
def test_a_tuner_that_may_not_act_says_once_what_it_would_restore(tmp_path: Path, mode: str) -> None:
    with simulation(tmp_path, mode=mode) as world:
        world.cycles(2)
        world.edit({Role.BASE_SLICE: 4.9})

        told, *later = world.cycles(3)

        assert told.reason.startswith("would restore the settings")
        assert not any("would restore" in record.reason for record in later)
        assert world.in_force[Role.BASE_SLICE] == 4.9


def test_the_known_good_setting_of_a_similar_load_comes_first(tmp_path: Path) -> None:
    good = KnobValues.of({**_middle(), Role.RESERVATION: 0.24})
    with simulation(tmp_path, cycle={"context_shift": 0.0}) as world:
        world.cycles(5)
        context = world.parts.writer.standing.context
        world.parts.journal.remember(context, good, score=-0.1, at_seconds=world.now)
        world.edit({Role.BASE_SLICE: 4.9})

        world.cycle()

        assert context
        assert world.in_force == good


def _middle() -> Mapping[Role, float]:
    return {
        Role.BASE_SLICE: MIDDLE,
        Role.PREDICTION_WINDOW: 900.0,
        Role.DECISION_PERIOD: 0.75,
        Role.RESERVATION: 0.2,
    }
