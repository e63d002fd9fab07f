"""What the loop promises, told by its journal: the real parts, in simulated time."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.loop.harness import Simulation, simulation, workload
from tuner import trying, tuning
from tuner.apply.actuator import Current
from tuner.errors import ActuatorUnavailable, ChangeRejected
from tuner.propose.inputs import SearchInputs
from tuner.propose.planted import planted
from tuner.replaying import replay_decision
from tuner.settings.model import TunerMode
from tuner.trials import verify
from tuner.values.knobs import KnobValues, Role
from tuner.values.stages import CycleRecord, Decision, Outcome, Proposal, Step, Verification

pytestmark = pytest.mark.timeout(180)

EAGER = {"cooldown_seconds": 300, "context_shift": 0.0, "min_gain_ratio": 0.0, "min_fidelity_ratio": 0.0}
"""Cycle settings with which the tuner acts on whatever it finds, so that a test need not wait for a moved load."""

QUICK = {"method": "before_after", "wash_out_seconds": 300, "window_seconds": 900, "min_samples": 3}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Simulation]:
    with simulation(tmp_path, cycle=EAGER, verify=QUICK) as started:
        yield started


def proposing(monkeypatch: pytest.MonkeyPatch, **moves: float) -> None:
    """Let the search propose one setting, and promise wonders of it."""

    def search(inputs: SearchInputs, **_: object) -> Proposal:
        wanted = {Role(role): value for role, value in moves.items()}
        return planted(inputs, wanted, score=-0.5, reason="planted by a test")

    monkeypatch.setattr(tuning, "search", search)


def undone(verification: Verification) -> Verification:
    """Let a look ask for the setting before."""
    return replace(verification, outcome=Outcome.FAILED, step=Step.ROLL_BACK, reason="planted by a test")


def decisions(records: tuple[CycleRecord, ...]) -> list[str]:
    return [record.decision for record in records]


def test_a_change_is_found_made_watched_and_settled_and_every_cycle_says_why(world: Simulation) -> None:
    before = world.in_force

    applied = world.until(Decision.APPLY)
    during = world.in_force
    settled = next(
        record for record in iter(world.cycle, None) if record.decision in (Step.PROMOTE, Step.ROLL_BACK, Step.KEEP)
    )

    assert applied.proposal is not None
    assert applied.receipt is not None
    assert applied.receipt.before == before
    assert during == applied.proposal.candidate != before
    assert applied.verdict is not None
    assert all(finding.passed for finding in applied.verdict.findings)
    assert any("trust in the twin's predictions is 0.50" in finding.sentence for finding in applied.verdict.findings)
    assert settled.verification is not None
    assert settled.verification.change_cycle_id == applied.cycle_id
    assert world.in_force == (before if settled.decision == Step.ROLL_BACK else during)
    assert all(record.reason for record in world.journal)
    assert world.parts.journal.open_intents() == ()


def test_the_first_cycles_hold_because_little_is_known_of_cluster_and_twin(tmp_path: Path) -> None:
    with simulation(tmp_path, cycle={"context_shift": 0.0}) as world:
        records = world.cycles(3)

    assert {record.decision for record in records} == {Decision.HOLD}
    assert all("intervals tell how far the twin is off" in record.reason for record in records)
    assert all(record.receipt is None for record in records)


@pytest.mark.parametrize("mode", ["observe", "recommend"])
def test_a_tuner_that_may_not_act_writes_nothing_and_says_what_it_would_do(tmp_path: Path, mode: str) -> None:
    with simulation(tmp_path, mode=mode, cycle=EAGER) as world:
        before = world.in_force
        records = world.cycles(14)

        assert world.in_force == before
        assert all(record.receipt is None for record in records)
        assert any("would have applied" in record.reason for record in records)


def test_a_load_that_doubles_is_searched_for_again_and_a_steady_one_is_not(tmp_path: Path) -> None:
    # Doubled after the first search, which with such a gain to ask for finds nothing.
    steady = {"context_shift": 0.25, "min_gain_ratio": 1.0}
    with simulation(tmp_path, load=workload(6.0, step_at=4 * 3600), cycle=steady) as world:
        world.cycles(46)
        calm = [record.proposal is not None for record in world.journal[-12:]]
        world.cycles(6)
        moved = [record.reason for record in world.journal[-6:] if record.proposal is not None]

    assert not any(calm)
    assert any("load moved by" in reason for reason in moved)


def test_without_metrics_the_settings_stay_and_the_loop_goes_on(world: Simulation) -> None:
    world.cycles(3)
    before = world.in_force
    world.wires.down = True
    blind = world.cycles(3)
    during = world.in_force
    world.wires.down = False
    recovered = world.cycle()

    assert decisions(tuple(blind)) == ["failed"] * 3
    assert {record.failure.reason for record in blind if record.failure} == {"source_unavailable"}
    assert during == before
    assert recovered.failure is None


def test_an_outage_in_a_trial_ends_in_the_setting_before_it_and_is_no_success(
    world: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.cycles(2)
    before = world.in_force
    proposing(monkeypatch, base_slice_seconds=0.12)
    world.until(Decision.APPLY)
    world.wires.down = True

    settled = world.until(Step.ROLL_BACK, most=4)

    assert settled.failure is not None
    assert settled.verification is not None
    assert settled.verification.outcome is Outcome.ERROR
    assert world.in_force == before


def test_a_tuner_that_may_no_longer_act_says_what_it_would_undo_and_leaves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with simulation(tmp_path, cycle=EAGER, verify=QUICK) as world:
        world.cycles(2)
        proposing(monkeypatch, base_slice_seconds=0.12)
        world.until(Decision.APPLY)
        world.policy = world.policy.model_copy(update={"mode": TunerMode.RECOMMEND})
        world.restart()
        during = world.in_force
        world.wires.down = True
        records = world.cycles(4)

    assert any("would roll back" in record.reason for record in records)
    assert all(record.receipt is None for record in records)
    assert during[Role.BASE_SLICE] == 0.12


def test_half_a_change_is_put_back(world: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    world.cycles(2)
    before = world.in_force
    proposing(monkeypatch, base_slice_seconds=0.12)
    write = world.wires.write

    def write_something_else(knobs: KnobValues, **options: Any) -> Current:
        wanted = knobs if knobs == before else KnobValues.of({**knobs, Role.BASE_SLICE: 0.117})
        return write(wanted, **options)

    monkeypatch.setattr(world.wires, "write", write_something_else)
    monkeypatch.setattr(world.wires, "await_effect", lambda *_, **__: world.wires.read())
    refused = world.until("failed")

    assert refused.receipt is not None
    assert "put back" in refused.reason
    assert world.in_force == before
    assert world.parts.cycle.memory.on_trial is None


def test_a_scheduler_that_does_not_take_forecasts_is_tuned_all_the_same(
    world: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise ChangeRejected("no such address")

    monkeypatch.setattr(world.parts.cycle, "_hand_over", refuse)

    assert world.cycle().failure is None


def test_a_change_that_does_harm_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = {
        "decision_period_seconds": {
            "native": "decision_period_seconds",
            "low": 0.5,
            "high": 30.5,
            "step": 0.5,
            "slew": 30,
        }
    }
    knobs = {role.value: {"native": role.value} for role in Role} | wide
    with simulation(tmp_path, cycle=EAGER, verify=QUICK, knobs=knobs) as world:
        world.cycles(6)
        before = world.in_force
        proposing(monkeypatch, decision_period_seconds=15.5)
        monkeypatch.setattr(world.parts.calibrator._trust, "_ratio", 1.0, raising=False)
        applied = world.until(Decision.APPLY)

        settled = world.until(Step.ROLL_BACK, most=10)

        assert settled.verification is not None
        assert settled.verification.outcome is Outcome.FAILED
        assert settled.verification.observed_score > 0.05
        assert world.in_force == before
        assert settled.cycle_id - applied.cycle_id <= 8

        after = world.cycles(4)
        assert all(record.decision != Decision.APPLY for record in after)
        assert any("the change breaker rests for another" in record.reason for record in after)


def test_a_person_who_edits_the_scheduler_is_never_overruled(
    world: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.cycles(2)
    proposing(monkeypatch, base_slice_seconds=0.12)
    world.until(Decision.APPLY)
    world.edit({Role.RESERVATION: 0.23})
    edited = world.in_force

    adopted = world.cycle()
    world.cycles(1)

    assert adopted.decision == "adopted"
    assert "reservation_ratio" in adopted.reason
    assert adopted.verification is not None
    assert adopted.verification.outcome is Outcome.ERROR
    assert world.in_force == edited
    assert world.parts.cycle.memory.on_trial is None


def test_whoever_writes_first_wins_and_nothing_of_ours_is_half_applied(
    world: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.cycles(2)
    proposing(monkeypatch, base_slice_seconds=0.12)
    world.wires.rival = KnobValues.of({Role.RESERVATION: 0.22})

    refused = world.until("failed")

    assert refused.receipt is not None
    assert not refused.receipt.applied
    assert world.in_force[Role.RESERVATION] == 0.22
    assert world.in_force[Role.BASE_SLICE] == 0.115
    assert world.cycle().decision == "adopted"


def test_killed_before_the_receipt_the_change_is_undone_because_nobody_would_have_watched_it(
    world: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.cycles(2)
    before = world.in_force
    proposing(monkeypatch, base_slice_seconds=0.12)

    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(world.parts.journal, "end_change", die)
        with pytest.raises(Killed):
            world.until(Decision.APPLY)
    changed = world.in_force
    lost_id = world.parts.journal.open_intents()[0].cycle_id
    world.restart()
    resumed = world.cycle()

    assert changed != before
    assert resumed.decision == Step.ROLL_BACK
    assert world.in_force == before
    assert world.parts.journal.open_intents() == ()
    recovered = world.parts.journal.record(lost_id)
    assert recovered is not None
    assert recovered.failure is not None
    assert recovered.failure.reason == "interrupted"


def test_killed_after_the_receipt_the_trial_goes_on(world: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    world.cycles(2)
    proposing(monkeypatch, base_slice_seconds=0.12)

    class Killed(BaseException):
        pass

    append = world.parts.journal.append

    def die(record: CycleRecord, *rest: object, **options: Any) -> None:
        if record.decision == Decision.APPLY:
            raise Killed
        append(record, *rest, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(world.parts.journal, "append", die)
        with pytest.raises(Killed):
            world.until(Decision.APPLY)
    changed = world.in_force
    world.restart()
    resumed = world.cycle()

    assert world.in_force == changed
    assert resumed.verification is not None
    assert resumed.decision == Step.WAIT
    assert [record.failure.reason for record in world.journal if record.failure][-1] == "interrupted"


def test_a_change_whose_answer_is_lost_is_found_in_force(world: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    world.cycles(2)
    proposing(monkeypatch, base_slice_seconds=0.12)
    write = world.wires.write

    def write_and_lose(*args: object, **kwargs: object) -> None:
        write(*args, **kwargs)  # type: ignore[arg-type]
        raise ActuatorUnavailable("the answer was lost")

    monkeypatch.setattr(world.wires, "write", write_and_lose)
    applied = world.until(Decision.APPLY)

    assert applied.receipt is not None
    assert applied.receipt.applied
    assert world.in_force[Role.BASE_SLICE] == 0.12


def test_a_change_of_which_nothing_more_is_heard_is_undone_as_soon_as_it_is_seen(
    world: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.cycles(2)
    before = world.in_force
    proposing(monkeypatch, base_slice_seconds=0.12)
    world.wires.lost = True
    lost = world.until("failed")
    world.wires.lost = False
    found = world.cycle()

    assert lost.failure is not None
    assert lost.failure.reason == "actuator_unavailable"
    assert found.decision == Step.ROLL_BACK
    assert world.in_force == before


def test_a_roll_back_whose_answer_is_lost_ends_the_trial(world: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    world.cycles(2)
    before = world.in_force
    proposing(monkeypatch, base_slice_seconds=0.12)
    applied = world.until(Decision.APPLY)
    world.wires.lost = True

    with monkeypatch.context() as patch:
        patch.setattr(trying, "verify", lambda *args, **kwargs: undone(verify(*args, **kwargs)))
        world.until("failed")
    world.wires.lost = False
    found = world.cycle()

    assert world.in_force == before
    assert found.decision == Step.ROLL_BACK
    assert found.verification is not None
    assert found.verification.change_cycle_id == applied.cycle_id
    assert found.verification.outcome is Outcome.ERROR
    assert world.parts.cycle.memory.on_trial is None
    assert world.parts.journal.open_intents() == ()


def test_a_change_is_undone_though_nothing_can_be_forecast(world: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    world.cycles(2)
    before = world.in_force
    proposing(monkeypatch, base_slice_seconds=0.12)
    world.until(Decision.APPLY)
    monkeypatch.setattr(world.parts.forecasting, "forecast", lambda _: 1 / 0)
    watched = world.cycle()
    monkeypatch.setattr(trying, "verify", lambda *args, **kwargs: undone(verify(*args, **kwargs)))

    settled = world.cycle()

    assert watched.decision == Step.WAIT
    assert settled.decision == Step.ROLL_BACK
    assert settled.failure is not None
    assert settled.failure.stage == "forecast"
    assert world.in_force == before


def test_a_restart_resumes_a_trial(world: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    world.cycles(2)
    proposing(monkeypatch, base_slice_seconds=0.12)
    applied = world.until(Decision.APPLY)
    world.cycle()
    world.restart()

    resumed = world.cycle()

    assert resumed.cycle_id == applied.cycle_id + 2
    assert resumed.verification is not None
    assert resumed.verification.change_cycle_id == applied.cycle_id


def test_a_bug_in_a_stage_is_a_record_and_not_the_end(world: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    world.cycles(1)
    with monkeypatch.context() as patch:
        patch.setattr(world.parts.forecasting, "forecast", lambda _: 1 / 0)
        broken = world.cycle()

    assert broken.failure is not None
    assert (broken.failure.stage, broken.failure.reason) == ("forecast", "internal")
    assert world.cycle().failure is None


def test_every_decision_can_be_repeated_bit_for_bit_from_the_journal_alone(world: Simulation) -> None:
    world.cycles(20)
    searched = [record.cycle_id for record in world.journal if record.proposal is not None]

    assert len(searched) >= 2
    for cycle_id in searched:
        replayed = replay_decision(world.parts.journal, cycle_id)
        assert replayed.equal, replayed.sentence


def test_a_search_that_a_deadline_cut_short_is_repeated_as_far_as_it_came(
    world: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.parts.cycle._tuning, "_deadline", lambda: lambda: True)
    searched = next(record for record in iter(world.cycle, None) if record.proposal is not None)
    assert searched.proposal is not None

    replayed = replay_decision(world.parts.journal, searched.cycle_id)

    assert searched.proposal.trials < world.policy.search.trials
    assert replayed.equal, replayed.sentence


def test_the_same_seed_gives_the_same_decisions(tmp_path: Path) -> None:
    def told(folder: Path) -> list[tuple[str, str]]:
        with simulation(folder, cycle=EAGER, verify=QUICK) as world:
            return [(record.decision, record.reason) for record in world.cycles(12)]

    assert told(tmp_path / "first") == told(tmp_path / "second")


def test_no_more_searches_than_allowed(tmp_path: Path) -> None:
    with simulation(tmp_path, cycle={**EAGER, "max_searches": 2, "min_gain_ratio": 1.0}) as world:
        records = world.cycles(8)

    assert sum(record.proposal is not None for record in records) == 2
    assert "2 searches made" in records[-1].reason


def test_a_metric_that_is_missing_holds_and_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with simulation(tmp_path, cycle=EAGER) as world:
        world.cycles(2)
        observe = world.parts.observer.observe

        def half_blind(**arguments: object) -> object:
            seen = observe(**arguments)  # type: ignore[arg-type]
            metrics = seen.metrics.copy()
            metrics[4] = np.nan
            return replace(seen, metrics=metrics)

        monkeypatch.setattr(world.parts.observer, "observe", half_blind)
        held = world.cycle()

    assert held.decision == Decision.HOLD
    assert held.reason == "no value for queue_wait_seconds: `clocktuner check` names the cure"
    assert held.proposal is None
