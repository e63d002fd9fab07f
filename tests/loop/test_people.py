"""What people say is done, once, and told; what they forbid is not done."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.loop.harness import Simulation, simulation
from tests.loop.test_loop import EAGER, proposing
from tuner.control import spool
from tuner.control.orders import Direction, Order, OrderKind, new_id
from tuner.control.permission import stop_file
from tuner.values.knobs import KnobValues, Role
from tuner.values.safety import Rung
from tuner.values.stages import Decision, Step

pytestmark = pytest.mark.timeout(180)

QUICK = {"wash_out_seconds": 300, "leg_seconds": 300}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Simulation]:
    with simulation(tmp_path, cycle=EAGER, verify=QUICK) as started:
        yield started


def ask(world: Simulation, kind: OrderKind, **details: object) -> Order:
    """Leave an order as the command line does."""
    order = Order(order_id=new_id(world.now), kind=kind, at_seconds=world.now, by="alice", **details)  # type: ignore[arg-type]
    spool.leave(folder(world), order)
    return order


def folder(world: Simulation) -> Path:
    return spool.folder_of(Path(world.policy.journal.path))


def answer(world: Simulation, order: Order) -> spool.Answer:
    found = spool.answer_of(folder(world), order.order_id)
    assert found is not None
    return found


def test_a_pause_stops_tuning_until_somebody_resumes_it(world: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    world.cycles(2)
    proposing(monkeypatch, base_slice_seconds=0.12)
    paused = ask(world, OrderKind.PAUSE, reason="upgrade")
    (noted,) = world.ticks(1)
    held = world.cycles(10)
    ask(world, OrderKind.RESUME)
    world.ticks(1)
    world.until(Decision.APPLY)

    assert noted.decision == "order"
    assert "alice" in noted.reason
    assert answer(world, paused).outcome is spool.Outcome.DONE
    assert all(record.receipt is None for record in held)
    assert any("paused by alice" in record.reason and "upgrade" in record.reason for record in held)


def test_the_kill_switch_stops_every_write_even_one_that_would_mend(world: Simulation) -> None:
    world.cycles(2)
    switch = stop_file(Path(world.policy.journal.path))
    switch.write_text("hands off")
    world.edit({Role.BASE_SLICE: 4.9})
    world.ticks(5)
    stopped = world.in_force
    switch.unlink()
    world.ticks(2)

    assert stopped[Role.BASE_SLICE] == 4.9
    assert world.in_force[Role.BASE_SLICE] == 0.115


def test_a_recommendation_is_carried_out_once_a_person_says_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with simulation(tmp_path, mode="recommend", cycle=EAGER, verify=QUICK) as world:
        world.cycles(2)
        before = world.in_force
        proposing(monkeypatch, base_slice_seconds=0.12)
        recommended = next(record for record in world.cycles(12) if "would have applied" in record.reason)
        order = ask(world, OrderKind.APPROVE, cycle_id=recommended.cycle_id)
        world.ticks(1)
        applied = world.cycle()
        settled = next(
            record for record in iter(world.cycle, None) if record.decision in (Step.PROMOTE, Step.KEEP, Step.ROLL_BACK)
        )

        assert answer(world, order).outcome is spool.Outcome.DONE
        assert applied.decision == Decision.APPLY
        assert "approved by alice" in applied.reason
        assert settled.verification is not None
        assert world.in_force in (before, applied.receipt.after)  # type: ignore[union-attr]


def test_a_knob_that_may_not_go_up_is_not_moved_up(world: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    world.cycles(2)
    proposing(monkeypatch, base_slice_seconds=0.12)
    ask(world, OrderKind.FREEZE, role=Role.BASE_SLICE, direction=Direction.UP)
    world.ticks(1)
    held = world.cycles(10)

    assert all(record.receipt is None for record in held)
    judged = [finding for record in held if record.verdict for finding in record.verdict.findings]
    assert any(finding.guard == "direction" and not finding.passed for finding in judged)


def test_a_person_goes_back_to_a_known_good_setting_by_hand_and_a_trial_ends(
    world: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.cycles(2)
    before = world.in_force
    proposing(monkeypatch, base_slice_seconds=0.12)
    world.until(Decision.APPLY)
    order = ask(world, OrderKind.ROLL_BACK)
    world.ticks(1)
    back = world.in_force
    cycle = world.cycle()

    assert answer(world, order).outcome is spool.Outcome.DONE
    assert back == before
    assert cycle.verification is not None
    assert world.parts.cycle.memory.on_trial is None


def test_adopting_ends_a_freeze(tmp_path: Path) -> None:
    with simulation(tmp_path, guard={"healing": {"on_contest": "freeze"}}) as world:
        world.cycles(2)
        world.edit({Role.RESERVATION: 0.23})
        world.ticks(1)
        world.cycle()
        frozen = world.parts.cycle.memory.caution.ladder.rung
        ask(world, OrderKind.ADOPT)
        world.ticks(1)
        world.cycle()

        assert frozen is Rung.FROZEN
        assert world.parts.cycle.memory.caution.ladder.rung < Rung.FROZEN
        assert world.parts.writer.standing.known_good == world.in_force


def test_a_drill_makes_a_small_change_and_undoes_it(world: Simulation) -> None:
    world.cycles(2)
    before = world.in_force
    order = ask(world, OrderKind.DRILL)
    (noted,) = world.ticks(1)
    following = world.cycle()

    assert noted.decision == "drill"
    assert "and back" in noted.reason
    assert answer(world, order).outcome is spool.Outcome.DONE
    assert world.in_force == before
    assert following.decision == "hold"  # The drill is no edit of somebody else's.
    assert world.parts.journal.open_intents() == ()


def test_drills_come_by_the_schedule(tmp_path: Path) -> None:
    with simulation(tmp_path, control={"drill_every_seconds": 3600}) as world:
        world.cycles(2)
        noted = world.ticks(300, every=30.0)

        drills = [record for record in noted if record.decision == "drill"]
        assert len(drills) == 3
        assert all("by the schedule" in record.reason for record in drills)


def test_no_drill_disturbs_a_trial(world: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    world.cycles(2)
    proposing(monkeypatch, base_slice_seconds=0.12)
    world.until(Decision.APPLY)
    order = ask(world, OrderKind.DRILL)
    world.ticks(1)

    assert answer(world, order).outcome is spool.Outcome.REFUSED
    assert "on trial" in answer(world, order).sentence


def test_an_order_is_done_once_though_the_process_ends_before_it_is_answered(
    world: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    world.cycles(2)
    target = KnobValues.of({**world.in_force, Role.RESERVATION: 0.22})
    order = ask(world, OrderKind.ROLL_BACK, known_good=1, knobs=target)
    with monkeypatch.context() as patch:
        patch.setattr(spool, "done", die)
        with pytest.raises(Killed):
            world.ticks(1)
    world.restart()
    world.edit({Role.RESERVATION: 0.24})
    world.ticks(1)

    assert answer(world, order).outcome is spool.Outcome.DONE
    assert world.in_force[Role.RESERVATION] == 0.24


def test_a_maintenance_window_stops_tuning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    window = {"maintenance": [{"start": "00:00", "end": "12:00"}]}
    with simulation(tmp_path, cycle=EAGER, control=window) as world:
        world.cycles(2)
        proposing(monkeypatch, base_slice_seconds=0.12)
        held = world.cycles(10)

        assert all(record.receipt is None for record in held)
        assert any("maintenance window is open until" in record.reason for record in held)


def test_a_recommendation_that_nobody_follows_is_told_what_it_would_have_gained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with simulation(tmp_path, mode="recommend", cycle={**EAGER, "max_searches": 1}) as world:
        world.cycles(2)
        proposing(monkeypatch, base_slice_seconds=0.12)
        recommended = next(record for record in world.cycles(10) if "would have applied" in record.reason)
        later = world.cycles(16)

        told = [
            record for record in later if f"cycle {recommended.cycle_id} recommended and nobody made" in record.reason
        ]
        assert len(told) == 1
        assert "by the twin, over the 4 quarters of an hour" in told[0].reason
        assert "± " in told[0].reason
        assert told[0].at_seconds - recommended.at_seconds >= 3600
