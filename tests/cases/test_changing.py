"""What changes did to others: trials that could not fail, values that came late, schedulers that died of a change."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cases.front import EAGER, Front, PrometheusSimulation, propose, watched_world
from tests.loop.harness import Simulation, Wires, simulation, simulation_of
from tuner import wiring
from tuner.apply.actuator import Current
from tuner.apply.http import HttpActuator
from tuner.errors import ActuatorUnavailable
from tuner.observe.scrape import ScrapeSource
from tuner.values.knobs import KnobValues, Role, SchedulerMode
from tuner.values.safety import BreakerState, SettingsState
from tuner.values.stages import CycleRecord, Decision, Outcome, Step

pytestmark = pytest.mark.timeout(180)

METHODS = {
    "switchback": {"method": "switchback", "leg_seconds": 600, "wash_out_seconds": 300},
    "before_after": {"method": "before_after", "wash_out_seconds": 300, "window_seconds": 900, "min_samples": 3},
}
TARGET = 0.12


def broken(front: Front) -> None:
    front.status = 500


def emptied(front: Front) -> None:
    front.empty = True


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("fault", [broken, emptied])
def test_a_change_that_nobody_could_measure_is_never_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, fault: Any
) -> None:
    """argoproj/argo-rollouts#4479, #1466: a run was successful though every measurement had failed or was empty."""
    propose(monkeypatch, base_slice_seconds=TARGET)
    with watched_world(tmp_path, verify=METHODS[method]) as world:
        before = _applied(world)
        fault(world.front)

        looks = world.cycles(5)

        ended = [record for record in looks if record.decision == Step.ROLL_BACK]
        assert len(ended) == 1
        assert ended[0].verification is not None
        assert ended[0].verification.outcome is Outcome.ERROR
        assert not ended[0].verification.harm
        assert not {record.decision for record in looks} & {Step.PROMOTE, Step.KEEP}
        assert world.in_force == before
        assert world.parts.writer.standing.known_good == before
        assert world.exported("promotions_total") == 0
        assert world.exported("verifications_total", outcome="passed") in (0, None)


def _applied(world: PrometheusSimulation) -> KnobValues:
    """Let a change be made; returns the setting before it."""
    before = world.in_force
    world.until(Decision.APPLY, most=8)
    assert world.in_force != before
    return before


# A value that shows late.


class SlowWires(Wires):
    """A scheduler that takes up what is written after a while, as a file that is mounted into its container shows.

    Attributes:
        lag_seconds: After how long.
        waiting: What was written and is not in force yet, and from when on it is.
    """

    def __init__(self, world: "SlowSimulation", settings: Any) -> None:
        actuator = HttpActuator(settings, world.policy.knobs, clock=lambda: world.seconds, sleep=world.tick_along)
        super().__init__(ScrapeSource(world.policy.source), actuator)
        self.lag_seconds = 90.0
        self.waiting: list[tuple[KnobValues, float]] = []
        self._world = world

    def take_up(self) -> None:
        due = [knobs for knobs, at in self.waiting if at <= self._world.seconds]
        self.waiting = [(knobs, at) for knobs, at in self.waiting if at > self._world.seconds]
        for knobs in due:
            super().write(knobs, expected_revision=None)

    def write(self, knobs: KnobValues, *, expected_revision: str | None, mode: SchedulerMode | None = None) -> Current:
        del expected_revision, mode
        self.waiting.append((knobs, self._world.seconds + self.lag_seconds))
        return self.read()


class SlowSimulation(Simulation):
    """A scheduler whose settings show late; the tuner's clock is that of the simulation."""

    wires: SlowWires

    def _wire(self) -> Wires:
        return SlowWires(self, self.policy.actuator)

    def _assemble(self) -> wiring.Parts:
        return wiring.assemble(self.policy, source=self.wires, actuator=self.wires, clock=lambda: self.seconds)

    def tick_along(self, seconds: float) -> None:
        """Let time pass for the scheduler."""
        self.seconds += seconds
        self.run.advance(np.array([self.seconds]))
        self.wires.take_up()


@contextmanager
def slow_world(folder: Path, *, patience_seconds: float) -> Iterator[SlowSimulation]:
    actuator = {"kind": "http", "effective_within_seconds": patience_seconds}
    sections: dict[str, Any] = {"cycle": EAGER, "verify": METHODS["switchback"], "actuator": actuator}
    with simulation_of(SlowSimulation, folder, **sections) as world:
        yield world


def test_the_clock_of_a_trial_starts_when_the_value_is_seen_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kubernetes/kubernetes#115946: a mounted file shows a change only after 20 to 120 seconds."""
    propose(monkeypatch, base_slice_seconds=TARGET)
    with slow_world(tmp_path, patience_seconds=180.0) as world:
        applied = world.until(Decision.APPLY, most=8)

        assert applied.receipt is not None
        late = applied.receipt.effective_at_seconds - applied.at_seconds
        assert 90.0 <= late <= 92.0
        trial = world.parts.cycle.memory.on_trial
        assert trial is not None
        assert trial.in_force == world.in_force
        assert world.in_force[Role.BASE_SLICE] == TARGET


def test_a_value_that_is_not_seen_in_time_is_not_judged_and_is_put_back_when_it_comes_after_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """k3s-io/k3s#3108: the change shows long after whoever made it has given up."""
    propose(monkeypatch, base_slice_seconds=TARGET)
    with slow_world(tmp_path, patience_seconds=30.0) as world:
        before = world.in_force
        given_up = world.until("failed", most=8)
        open_intents, on_trial = world.parts.journal.open_intents(), world.parts.cycle.memory.on_trial
        world.tick_along(90.0)
        came = world.in_force
        world.wires.lag_seconds = 0.0
        (healed,) = world.tick()
        world.tick_along(1.0)

        assert given_up.receipt is not None
        assert not given_up.receipt.applied
        assert "not effective in time" in given_up.reason
        assert given_up.verification is None
        assert (open_intents, on_trial) == ((), None)
        assert came[Role.BASE_SLICE] == TARGET
        assert "a change that had been given up came into force" in healed.reason
        assert world.in_force == before
        assert world.parts.writer.standing.known_good == before
        assert not any(record.decision == "adopted" for record in world.journal)


# A scheduler that dies of a change.


class Mortal:
    """Lets the scheduler of a simulation die as soon as it has taken up a change, until it is started again."""

    def __init__(self, world: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dead = False
        self.deaths = 0
        self.instance = "1"
        self._read, self._write = world.wires.read, world.wires.write
        monkeypatch.setattr(world.wires, "read", self.read)
        monkeypatch.setattr(world.wires, "write", self.write)
        monkeypatch.setattr(world.wires, "await_effect", lambda *_, **__: self.read())

    def read(self) -> Current:
        if self.dead:
            raise ActuatorUnavailable("connection refused")
        return replace(self._read(), instance=self.instance)

    def write(self, knobs: KnobValues, *, expected_revision: str | None, mode: SchedulerMode | None = None) -> Current:
        if self.dead:
            raise ActuatorUnavailable("connection refused")
        self._write(knobs, expected_revision=expected_revision, mode=mode)
        if knobs.get(Role.BASE_SLICE) == TARGET:
            self.dead = True
            self.deaths += 1
            raise ActuatorUnavailable("the connection broke")
        return self.read()

    def start_again(self) -> None:
        """Start it with the settings that it died of, for they are in its file."""
        self.dead = False
        self.instance = str(int(self.instance) + 1)


def test_a_scheduler_that_dies_of_changes_gets_its_last_good_setting_back_and_no_more_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SlinkyProject/slurm-operator#138: a reconfiguration crashed the controller, which read the same state again."""
    propose(monkeypatch, base_slice_seconds=TARGET)
    with simulation(
        tmp_path, cycle=EAGER, verify=METHODS["switchback"], change_breaker={"harmful_changes": 2}
    ) as world:
        scheduler = Mortal(world, monkeypatch)
        before = world.in_force
        restored: list[CycleRecord] = []
        for _ in range(2):
            world.until("failed", most=8)
            scheduler.start_again()
            restored += world.tick()
            assert world.in_force == before
        later = world.cycles(6)

        assert scheduler.deaths == 2
        assert [record.decision for record in restored] == ["roll_back", "roll_back"]
        assert world.parts.cycle.memory.caution.change_breaker.state is BreakerState.OPEN
        assert "fell silent when it was changed" in world.parts.cycle.memory.caution.change_breaker.reason
        assert {record.decision for record in later} == {Decision.HOLD}
        assert world.in_force == before
        assert world.parts.journal.open_intents() == ()


def test_a_scheduler_that_comes_back_with_other_settings_is_not_taken_for_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """stackhpc/ansible-role-openhpc#199: after a restart, other settings were in force than anybody had left."""
    with simulation(tmp_path) as world:
        world.cycles(2)
        before = world.in_force
        world.edit({Role.RESERVATION: 0.23})
        read = world.wires.read
        monkeypatch.setattr(world.wires, "read", lambda: replace(read(), instance="another process"))

        (healed,) = world.tick()

        assert world.parts.writer.standing.instance == "another process"
        assert healed.decision == "heal"
        assert world.in_force == before
        assert world.parts.keeper.state is SettingsState.OURS


def test_the_reference_scheduler_names_its_process_and_the_tuner_knows_it(tmp_path: Path) -> None:
    """SlinkyProject/slurm-operator#138: whether a controller restarted must be seen, not guessed."""
    with simulation(tmp_path) as first:
        first.cycle()
        one = first.parts.writer.standing.instance
    other = tmp_path / "other"
    other.mkdir()
    with simulation(other) as second:
        second.cycle()
        two = second.parts.writer.standing.instance

    assert one
    assert two
    assert one != two
