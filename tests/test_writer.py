"""The only hand on the scheduler: what is noted before, what after, and what is never written."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.apply.actuator import Current
from tuner.errors import ActuatorUnavailable, ChangeConflicted, JournalError
from tuner.record.journal import Journal
from tuner.settings.model import KnobMapping
from tuner.standing import Standing
from tuner.values.knobs import DESIGN_RANGES, KnobValues, Role, SchedulerMode
from tuner.values.stages import Receipt
from tuner.writer import Change, Writer

ROLES = (Role.BASE_SLICE, Role.RESERVATION)
SPECS = tuple(DESIGN_RANGES[role] for role in ROLES)
MAPPINGS = {role: KnobMapping(native=role.value) for role in ROLES}
BEFORE = KnobValues.of({Role.BASE_SLICE: 0.1, Role.RESERVATION: 0.2})
TARGET = KnobValues.of({Role.BASE_SLICE: 0.11, Role.RESERVATION: 0.2})


class Scheduler:
    """A scheduler in memory, with a hook before each write and the faults of real ones."""

    def __init__(self) -> None:
        self.current = Current(BEFORE, SchedulerMode.FULL, "r1", {})
        self.writes = 0
        self.before_write: Any = lambda: None
        self.trouble: Exception | None = None
        self.forgets: frozenset[Role] = frozenset()
        self.late: Any = None

    def read(self) -> Current:
        return self.current

    def write(self, knobs: KnobValues, *, expected_revision: str | None, mode: SchedulerMode | None = None) -> Current:
        self.before_write()
        if self.trouble is not None:
            raise self.trouble
        self.writes += 1
        taken = {role: value for role, value in knobs.items() if role not in self.forgets}
        wanted = replace(
            self.current,
            knobs=KnobValues.of({**self.current.knobs, **taken}),
            mode=mode or self.current.mode,
            revision=f"r{self.writes + 1}",
        )
        if self.late is None:
            self.current = wanted
        else:
            self.pending = wanted
        return self.current

    def await_effect(self, knobs: KnobValues, *, mode: SchedulerMode | None = None) -> Current:
        if self.late is not None:
            self.late()
            self.current = self.pending
        return self.current


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "journal.sqlite") as opened:
        yield opened


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler()


def writer_of(scheduler: Scheduler, journal: Journal, **options: Any) -> Writer:
    return Writer(scheduler, journal, specs=SPECS, mappings=MAPPINGS, **options)


def change(**changes: Any) -> Change:
    made = Change(
        cycle_id=1, at_seconds=100.0, action="apply", reason="a test", before=BEFORE, target=TARGET, revision="r1"
    )
    return replace(made, **changes)


def left(standing: Standing, receipt: Receipt) -> Standing:
    return replace(standing, knobs=receipt.after)


def test_the_intent_is_in_the_journal_before_the_scheduler_is_written(scheduler: Scheduler, journal: Journal) -> None:
    seen: list[int] = []
    scheduler.before_write = lambda: seen.extend(intent.cycle_id for intent in journal.open_intents())

    receipt = writer_of(scheduler, journal).change(change(), then=left)

    assert seen == [1]
    assert receipt.applied
    assert journal.open_intents() == ()


def test_what_was_left_in_force_is_known_to_the_next_process(scheduler: Scheduler, journal: Journal) -> None:
    writer_of(scheduler, journal).change(change(), then=left, states=lambda _: {"memory": "{}"})

    assert writer_of(scheduler, journal).standing.knobs == TARGET
    assert journal.load_state("memory") == "{}"


@pytest.mark.parametrize(
    "target",
    [KnobValues.of({Role.BASE_SLICE: 0.2}), KnobValues.of({Role.DECISION_PERIOD: 0.7})],
    ids=["out of bounds", "no knob of the policy"],
)
def test_what_no_policy_allows_is_never_written_whoever_asks(
    scheduler: Scheduler, journal: Journal, target: KnobValues
) -> None:
    mappings = {**MAPPINGS, Role.DECISION_PERIOD: KnobMapping(native="period")}
    writer = Writer(scheduler, journal, specs=SPECS, mappings=mappings)

    receipt = writer.change(change(target=target), then=left)

    assert not receipt.applied
    assert scheduler.writes == 0
    assert "nothing was written" in receipt.detail


def test_while_the_kill_switch_is_on_nothing_at_all_is_written(scheduler: Scheduler, journal: Journal) -> None:
    receipt = writer_of(scheduler, journal, stop=lambda: "the kill switch is on").change(change(), then=left)

    assert scheduler.writes == 0
    assert receipt.detail == "nothing is written: the kill switch is on"


def test_without_a_journal_nothing_is_written(scheduler: Scheduler, journal: Journal) -> None:
    writer = writer_of(scheduler, journal)
    journal.close()

    with pytest.raises(JournalError):
        writer.change(change(), then=left)
    assert scheduler.writes == 0


def test_whoever_was_quicker_wins_and_the_receipt_says_so(scheduler: Scheduler, journal: Journal) -> None:
    scheduler.trouble = ChangeConflicted("somebody else changed them")

    receipt = writer_of(scheduler, journal).change(change(), then=left)

    assert not receipt.applied
    assert "somebody else" in receipt.detail
    assert journal.open_intents() == ()


def test_half_a_change_is_put_back(scheduler: Scheduler, journal: Journal) -> None:
    both = KnobValues.of({Role.BASE_SLICE: 0.11, Role.RESERVATION: 0.22})
    scheduler.forgets = frozenset({Role.RESERVATION})

    receipt = writer_of(scheduler, journal).change(change(target=both), then=left)

    assert not receipt.applied
    assert "put back" in receipt.detail
    assert scheduler.current.knobs == BEFORE


def test_what_the_scheduler_made_of_a_change_is_put_back(scheduler: Scheduler, journal: Journal) -> None:
    def clamp() -> None:
        knobs = KnobValues.of({**scheduler.pending.knobs, Role.BASE_SLICE: 0.105})
        scheduler.pending = replace(scheduler.pending, knobs=knobs, revision=scheduler.current.revision)

    scheduler.late = clamp

    receipt = writer_of(scheduler, journal).change(change(), then=left)

    assert not receipt.applied
    assert "put back" in receipt.detail


@pytest.mark.parametrize("in_doubt", [False, True])
def test_what_somebody_else_has_set_while_a_change_was_awaited_is_left(
    scheduler: Scheduler, journal: Journal, monkeypatch: pytest.MonkeyPatch, in_doubt: bool
) -> None:
    theirs = KnobValues.of({Role.BASE_SLICE: 0.1, Role.RESERVATION: 0.23})
    scheduler.trouble = ActuatorUnavailable("no answer within 1 s") if in_doubt else None
    scheduler.late = lambda: None

    def edited(*_: object, **__: object) -> Current:
        scheduler.trouble = None
        scheduler.current = replace(scheduler.current, knobs=theirs, revision="theirs")
        return scheduler.current

    monkeypatch.setattr(scheduler, "await_effect", edited)

    receipt = writer_of(scheduler, journal).change(change(), then=left)

    assert not receipt.applied
    assert receipt.after == theirs
    assert "somebody else has set reservation_ratio, so it is left" in receipt.detail
    assert scheduler.current.knobs == theirs


def test_what_is_in_doubt_and_cannot_be_seen_leaves_the_intent_open(
    scheduler: Scheduler, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object, **__: object) -> Current:
        raise ActuatorUnavailable("no answer")

    scheduler.trouble = ActuatorUnavailable("the answer was lost")
    monkeypatch.setattr(scheduler, "await_effect", silent)
    writer = writer_of(scheduler, journal)

    with pytest.raises(ActuatorUnavailable):
        writer.change(change(), then=left)
    assert [intent.cycle_id for intent in journal.open_intents()] == [1]
    assert writer.in_flight == frozenset()


def test_the_policy_mode_can_be_set_while_a_knob_is_still_awaited(scheduler: Scheduler, journal: Journal) -> None:
    writer = writer_of(scheduler, journal)
    awaited, mode_set = threading.Event(), threading.Event()

    def wait_for_the_mode() -> None:
        awaited.set()
        assert mode_set.wait(10)
        scheduler.pending = replace(scheduler.pending, mode=scheduler.current.mode)

    scheduler.late = wait_for_the_mode
    slow = threading.Thread(target=writer.change, args=(change(),), kwargs={"then": left})
    slow.start()
    assert awaited.wait(10)
    in_flight, scheduler.late = writer.in_flight, None
    simplify = change(cycle_id=2, action="simplify", target=KnobValues(()), mode=SchedulerMode.SIMPLIFIED)

    receipt = writer.change(simplify, then=lambda standing, _: replace(standing, mode=SchedulerMode.SIMPLIFIED))
    mode_set.set()
    scheduler.late = lambda: None
    slow.join(10)

    assert in_flight == frozenset({1})
    assert receipt.applied
    assert receipt.mode is SchedulerMode.SIMPLIFIED
    assert writer.standing.mode is SchedulerMode.SIMPLIFIED
    assert journal.open_intents() == ()


def test_the_clock_of_a_trial_starts_when_the_value_was_seen_in_force(scheduler: Scheduler, journal: Journal) -> None:
    clock = iter([1000.0, 1007.5])

    receipt = writer_of(scheduler, journal, clock=lambda: next(clock)).change(change(), then=left)

    assert receipt.effective_at_seconds == 107.5


def test_a_change_that_was_given_up_is_remembered_until_another_one_is_in_force(
    scheduler: Scheduler, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_of(scheduler, journal)
    with monkeypatch.context() as patch:
        patch.setattr(scheduler, "write", lambda *_, **__: scheduler.current)
        receipt = writer.change(change(), then=left)
    remembered = writer_of(scheduler, journal).standing

    writer.change(change(cycle_id=2), then=left)

    assert receipt.detail.startswith("not effective in time: asked for slice 110 ms")
    assert (remembered.overdue, remembered.overdue_at_seconds) == (TARGET, 100.0)
    assert writer.standing.overdue is None
