"""What every actuator promises, run over all of them."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from tests.support.actuators import MIDDLE, MemoryActuator, http_scheduler
from tuner.apply.actuator import Actuator
from tuner.apply.http import HttpActuator
from tuner.errors import ActuatorUnavailable, ChangeConflicted, ChangeRejected, TemporaryError
from tuner.settings.model import HttpActuator as HttpActuatorSettings
from tuner.settings.model import KnobMapping
from tuner.values.knobs import KnobValues, Role, SchedulerMode

OTHER = KnobValues.of({**MIDDLE, Role.BASE_SLICE: 0.1, Role.RESERVATION: 0.17})
FLAT_KNOBS = {role: KnobMapping(native=role.value) for role in Role}


@dataclass(frozen=True, slots=True)
class Rig:
    """An actuator, and what can be done to the scheduler behind its back."""

    actuator: Actuator
    edit_slice: Callable[[float], None]
    break_down: Callable[[], None]
    lose_answers: Callable[[], None]
    writes: Callable[[], int]


def memory_rig() -> Iterator[Rig]:
    scheduler = MemoryActuator()
    scheduler.largest = 5000.0
    yield Rig(
        actuator=scheduler,
        edit_slice=lambda value: scheduler.edit(KnobValues.of({**scheduler.current.knobs, Role.BASE_SLICE: value})),
        break_down=lambda: setattr(scheduler, "unreachable", True),
        lose_answers=lambda: setattr(scheduler, "lose_answers", True),
        writes=lambda: scheduler.writes,
    )


def http_rig() -> Iterator[Rig]:
    with http_scheduler() as scheduler:
        settings = HttpActuatorSettings(
            url=f"{scheduler.url}/config", timeout_seconds=0.5, effective_within_seconds=0.2
        )

        yield Rig(
            actuator=HttpActuator(settings, FLAT_KNOBS),
            edit_slice=lambda value: scheduler.edit(base_slice_seconds=value),
            break_down=lambda: setattr(scheduler.faults, "get_status", 503),
            lose_answers=lambda: setattr(scheduler.faults, "put_answer_after_seconds", 1.0),
            writes=lambda: len(scheduler.puts()),
        )


@pytest.fixture(params=[memory_rig, http_rig], ids=["memory", "http"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    yield from request.param()


def test_what_was_written_is_read_back(rig: Rig) -> None:
    before = rig.actuator.read()

    written = rig.actuator.write(OTHER, expected_revision=before.revision)

    assert written.knobs == OTHER
    assert rig.actuator.read() == written
    assert written.revision != before.revision


def test_reading_changes_nothing(rig: Rig) -> None:
    assert rig.actuator.read() == rig.actuator.read()
    assert rig.writes() == 0


def test_a_write_may_be_repeated(rig: Rig) -> None:
    before = rig.actuator.read()
    once = rig.actuator.write(OTHER, expected_revision=before.revision)

    twice = rig.actuator.write(OTHER, expected_revision=before.revision)

    assert twice == once
    assert rig.writes() == 1


def test_writing_what_is_in_force_writes_nothing(rig: Rig) -> None:
    before = rig.actuator.read()

    assert rig.actuator.write(before.knobs, expected_revision=before.revision) == before
    assert rig.writes() == 0


def test_a_stale_revision_is_refused_and_the_other_s_edit_stays(rig: Rig) -> None:
    before = rig.actuator.read()
    rig.edit_slice(0.14)

    with pytest.raises(ChangeConflicted):
        rig.actuator.write(OTHER, expected_revision=before.revision)

    after = rig.actuator.read()
    assert after.knobs == KnobValues.of({**MIDDLE, Role.BASE_SLICE: 0.14})
    assert rig.writes() == 0


def test_what_the_scheduler_refuses_leaves_everything_as_it_was(rig: Rig) -> None:
    before = rig.actuator.read()

    with pytest.raises(ChangeRejected):
        rig.actuator.write(KnobValues.of({**MIDDLE, Role.PREDICTION_WINDOW: 9000.0}), expected_revision=before.revision)

    assert rig.actuator.read() == before


def test_roles_that_are_not_given_stay(rig: Rig) -> None:
    before = rig.actuator.read()

    after = rig.actuator.write(KnobValues.of({Role.RESERVATION: 0.17}), expected_revision=before.revision)

    assert after.knobs == KnobValues.of({**MIDDLE, Role.RESERVATION: 0.17})


def test_the_mode_is_changed_only_when_asked(rig: Rig) -> None:
    before = rig.actuator.read()

    simplified = rig.actuator.write(MIDDLE, expected_revision=before.revision, mode=SchedulerMode.SIMPLIFIED)
    after = rig.actuator.write(OTHER, expected_revision=simplified.revision)

    assert before.mode is SchedulerMode.FULL
    assert simplified.mode is SchedulerMode.SIMPLIFIED
    assert after.mode is SchedulerMode.SIMPLIFIED


def test_a_scheduler_that_is_down_is_a_temporary_error(rig: Rig) -> None:
    rig.break_down()

    with pytest.raises(ActuatorUnavailable) as caught:
        rig.actuator.read()

    assert isinstance(caught.value, TemporaryError)


def test_after_a_lost_answer_a_repeated_write_finds_its_work_done(rig: Rig) -> None:
    before = rig.actuator.read()
    rig.lose_answers()

    with suppress(ActuatorUnavailable):  # Or it found out by reading back, which is better still.
        rig.actuator.write(OTHER, expected_revision=before.revision)

    assert rig.actuator.write(OTHER, expected_revision=before.revision).knobs == OTHER
    assert rig.writes() == 1
