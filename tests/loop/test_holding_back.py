"""What tuning is worth is measured against the untouched setting, and the tuned one always comes back."""

from pathlib import Path

import pytest

from tests.loop.harness import Simulation, simulation
from tuner.control.holdback import value
from tuner.settings.model import TunerMode
from tuner.values.knobs import Role

pytestmark = pytest.mark.timeout(180)

SHORT = {"wash_out_seconds": 300, "leg_seconds": 300, "max_wash_out_seconds": 300}
OFTEN = {"hold_back_ratio": 0.2}
CALM = {"max_searches": 1, "min_gain_ratio": 1.0}


def tuned(world: Simulation) -> None:
    """Leave another setting than the one that was found in force."""
    world.cycles(6)
    world.edit({Role.BASE_SLICE: 0.13})
    world.cycle()


def test_the_untouched_setting_comes_back_for_a_share_of_the_time_and_is_compared_in_pairs(tmp_path: Path) -> None:
    with simulation(tmp_path, control=OFTEN, verify=SHORT, cycle=CALM) as world:
        tuned(world)
        began = world.until("hold_back")
        during = world.in_force
        over = world.until("hold_back", most=12)

        assert began.receipt is not None
        assert during[Role.BASE_SLICE] == 0.115
        assert over.verification is not None
        assert over.verification.pairs >= 1
        assert world.in_force[Role.BASE_SLICE] == 0.13
        assert len(world.parts.cycle.memory.worth) == over.verification.pairs
        assert "tuned against untouched" in over.reason


def test_each_window_is_used_once_and_what_is_known_survives_a_restart(tmp_path: Path) -> None:
    with simulation(tmp_path, control=OFTEN, verify=SHORT, cycle=CALM) as world:
        tuned(world)
        world.until("hold_back")
        world.cycles(12)
        known = world.parts.cycle.memory.worth
        world.restart()
        world.cycles(2)

        assert known
        assert world.parts.cycle.memory.worth[: len(known)] == known
        assert value(known).pairs == len(known)


def test_where_nothing_is_tuned_nothing_is_held_back(tmp_path: Path) -> None:
    with simulation(tmp_path, control=OFTEN, verify=SHORT, cycle=CALM) as world:
        records = world.cycles(30)

        assert all(record.receipt is None for record in records)


def test_a_tuner_that_may_not_act_holds_nothing_back(tmp_path: Path) -> None:
    with simulation(tmp_path, control=OFTEN, verify=SHORT, cycle=CALM, mode="recommend") as world:
        tuned(world)
        records = world.cycles(30)

        assert world.policy.mode is TunerMode.RECOMMEND
        assert all(record.receipt is None for record in records)


def test_a_person_who_edits_ends_a_hold_back(tmp_path: Path) -> None:
    with simulation(tmp_path, control=OFTEN, verify=SHORT, cycle=CALM) as world:
        tuned(world)
        world.until("hold_back")
        world.edit({Role.RESERVATION: 0.24})
        edited = world.in_force
        adopted = world.cycle()
        world.cycles(3)

        assert adopted.decision == "adopted"
        assert world.in_force == edited
        assert world.parts.cycle.memory.on_trial is None
