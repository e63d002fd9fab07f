"""What the guard does between the cycles: the scheduler and its protected work come first, people before all."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.loop.harness import Simulation, simulation
from tuner.errors import ChangeRejected
from tuner.values.knobs import KnobValues, Role, SchedulerMode
from tuner.values.safety import BreakerState
from tuner.values.stages import CycleRecord

pytestmark = pytest.mark.timeout(180)

LATENCY = "reference_recent_scheduling_latency_seconds"
IDLE = "reference_recent_resource_idle_ratio"
PENDING = "reference_recent_pending_demand_ratio"
WAIT = "reference_recent_high_priority_wait_seconds"

BREAKER = {"samples": 3, "cool_down_seconds": 120, "probe_samples": 4}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Simulation]:
    with simulation(tmp_path, guard={"latency_breaker": BREAKER, "degradation": {"dwell_seconds": 60}}) as started:
        started.wires.shown |= {LATENCY: 0.2, IDLE: 0.3, PENDING: 0.1, WAIT: 5.0}
        yield started


def decided(records: list[CycleRecord]) -> list[str]:
    return [record.decision for record in records]


def mode(world: Simulation) -> SchedulerMode:
    return world.wires.read().mode


def test_a_quiet_scheduler_is_looked_at_and_nothing_is_noted(world: Simulation) -> None:
    assert world.ticks(20) == []
    assert world.journal == ()


def test_a_scheduler_that_cannot_keep_up_is_simplified_probed_and_gets_its_policy_back(world: Simulation) -> None:
    world.ticks(5)
    world.wires.shown[LATENCY] = 4.5
    opened = world.ticks(8)
    simplified = mode(world)
    world.wires.shown[LATENCY] = 0.1
    healed = world.ticks(30)

    assert decided(opened) == ["simplify"]
    assert "over 3 s" in opened[0].reason
    assert simplified is SchedulerMode.SIMPLIFIED
    assert decided(healed) == ["probe", "recover"]
    assert healed[0].at_seconds - opened[0].at_seconds >= 120
    assert mode(world) is SchedulerMode.FULL
    assert world.parts.guard.state.breaker.state is BreakerState.CLOSED
    assert world.parts.journal.open_intents() == ()


def test_a_probe_that_fails_doubles_the_pause(world: Simulation) -> None:
    world.ticks(5)
    world.wires.shown[LATENCY] = 4.5
    noted = world.ticks(60)

    steps = [record for record in noted if record.decision in {"simplify", "probe"}]
    assert decided(steps)[:4] == ["simplify", "probe", "simplify", "probe"]
    assert steps[3].at_seconds - steps[2].at_seconds >= 2 * (steps[1].at_seconds - steps[0].at_seconds) - 15


def test_one_noisy_sample_trips_nothing(world: Simulation) -> None:
    for _ in range(10):
        world.wires.shown[LATENCY] = 60.0
        world.ticks(1)
        world.wires.shown[LATENCY] = 0.2
        world.ticks(4)

    assert world.journal == ()


def test_protected_work_comes_first_where_resources_are_tight_and_all_work_again_when_they_are_not(
    world: Simulation,
) -> None:
    world.ticks(5)
    world.wires.shown |= {IDLE: 0.0, PENDING: 2.0, WAIT: 90.0}
    tight = world.ticks(8)
    protected = mode(world)
    world.wires.shown |= {WAIT: 5.0}
    still = world.ticks(20)
    world.wires.shown |= {IDLE: 0.4, PENDING: 0.0}
    eased = world.ticks(20)

    assert decided(tight) == ["protect"]
    assert protected is SchedulerMode.PRIORITY_ONLY
    assert still == []  # A short wait under protection says nothing of what would come back.
    assert decided(eased) == ["release"]
    assert mode(world) is SchedulerMode.FULL


def test_the_tuning_stands_still_while_the_scheduler_runs_another_policy(world: Simulation) -> None:
    world.cycles(6)
    world.wires.shown[LATENCY] = 4.5
    world.ticks(10)

    record = world.cycle()

    assert mode(world) is SchedulerMode.SIMPLIFIED
    assert record.receipt is None
    assert record.decision in {"hold", "wait"}


def test_a_policy_mode_that_a_person_has_chosen_is_left_alone(world: Simulation) -> None:
    world.ticks(5)
    current = world.wires.read()
    world.wires.write(KnobValues(()), expected_revision=current.revision, mode=SchedulerMode.PRIORITY_ONLY)
    adopted = world.ticks(2)
    world.wires.shown[LATENCY] = 4.5
    tripped = world.ticks(10)

    assert decided(adopted) == ["adopted"]
    assert "policy mode" in adopted[0].reason
    assert decided(tripped) == []
    assert mode(world) is SchedulerMode.PRIORITY_ONLY
    assert world.parts.guard.state.breaker.state is BreakerState.OPEN


def test_a_scheduler_that_refuses_the_mode_is_asked_again_after_a_pause(
    world: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.ticks(5)
    world.wires.shown[LATENCY] = 4.5

    def refuse(*_: object, **__: object) -> None:
        raise ChangeRejected("not now")

    with monkeypatch.context() as patch:
        patch.setattr(world.wires, "write", refuse)
        refused = world.ticks(10)
    later = world.ticks(2)

    assert set(decided(refused)) == {"failed"}
    assert 2 <= len(refused) <= 4
    assert "could not simplify" in refused[0].reason
    assert decided(later)[0] == "simplify"


def test_a_restart_of_the_tuner_remembers_an_open_breaker(world: Simulation) -> None:
    world.ticks(5)
    world.wires.shown[LATENCY] = 4.5
    world.ticks(8)
    world.restart()
    world.wires.shown[LATENCY] = 0.1

    noted = world.ticks(30)

    assert decided(noted) == ["probe", "recover"]
    assert mode(world) is SchedulerMode.FULL


@pytest.mark.parametrize("tuner_mode", ["observe", "recommend"])
def test_a_tuner_that_may_not_act_says_once_what_it_would_do(tmp_path: Path, tuner_mode: str) -> None:
    with simulation(tmp_path, mode=tuner_mode, guard={"latency_breaker": BREAKER}) as world:
        world.wires.shown[LATENCY] = 4.5
        noted = world.ticks(10)

        assert [record.reason.split(":")[0] for record in noted] == ["would simplify"]
        assert mode(world) is SchedulerMode.FULL


def test_an_outage_of_the_metrics_changes_nothing_and_drift_is_mended_all_the_same(world: Simulation) -> None:
    world.ticks(5)
    before = world.in_force
    world.wires.down = True
    blind = world.ticks(10)
    world.edit({Role.BASE_SLICE: 4.9})
    healed = world.ticks(1)

    assert blind == []
    assert decided(healed) == ["heal"]
    assert world.in_force == before


def test_where_the_scheduler_has_no_policy_modes_the_breaker_only_watches_and_says_so(tmp_path: Path) -> None:
    with simulation(tmp_path, guard={"latency_breaker": BREAKER}, actuator={"mode_key": None}) as world:
        world.wires.shown[LATENCY] = 4.5
        revision = world.wires.read().revision

        noted = world.ticks(20)

        assert decided(noted) == ["hold", "hold"], "once for each opening, the first and that after the failed probe"
        assert all("would simplify" in record.reason for record in noted)
        assert all("no policy modes (actuator.mode_key)" in record.reason for record in noted)
        assert world.parts.guard.state.breaker.state is not BreakerState.CLOSED
        assert world.wires.read().revision == revision


def test_drift_is_mended_within_a_tick_and_the_cycle_knows(world: Simulation) -> None:
    world.cycles(2)
    world.edit({Role.BASE_SLICE: 4.9})

    (healed,) = world.ticks(1)
    cycle = world.cycle()

    assert healed.decision == "heal"
    assert cycle.decision == "hold"
    assert cycle.failure is None
