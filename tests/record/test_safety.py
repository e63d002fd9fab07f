"""What guard and people did is joined to events: when, why, what was done, and how long it lasted."""

import math
from dataclasses import replace

import pytest

from tests.support.guarded import act, order
from tests.support.records import MIDDLE, MIDNIGHT, applied, failed, finding, simplest
from tuner.control.drill import Exercise, result
from tuner.control.orders import Direction, Order, OrderKind, new_id
from tuner.record.safety import Event, Kind, Protection, ordered
from tuner.values.knobs import KnobValues, Role, SchedulerMode
from tuner.values.safety import Rung
from tuner.values.stages import CycleRecord, Outcome, StageFailure, Step, Verification

FULL, SIMPLIFIED, PRIORITY = SchedulerMode.FULL, SchedulerMode.SIMPLIFIED, SchedulerMode.PRIORITY_ONLY


def events(*records: CycleRecord) -> tuple[Event, ...]:
    return Protection.of(records).events


def only(*records: CycleRecord) -> Event:
    (event,) = events(*records)
    return event


def test_an_opening_with_its_probes_is_one_event_until_the_breaker_closes() -> None:
    event = only(
        act(1, 0, "simplify", "too slow", mode=SIMPLIFIED),
        act(2, 120, "probe", mode=FULL),
        act(3, 180, "simplify", mode=SIMPLIFIED),
        act(4, 420, "probe", mode=FULL),
        act(5, 500, "recover", "fast again"),
    )

    assert (event.kind, event.cycle_id, event.why) == (Kind.BREAKER, 1, "too slow")
    assert event.lasted_seconds == 500
    assert "2 probes, of which 1 failed" in event.done
    assert "fast again" in event.done
    assert not event.goes_on


def test_a_second_opening_counts_its_own_probes() -> None:
    once = [act(1, 0, "simplify", mode=SIMPLIFIED), act(2, 120, "probe", mode=FULL), act(3, 200, "recover")]
    again = [replace(record, cycle_id=record.cycle_id + 3, at_seconds=record.at_seconds + 600) for record in once]

    first, second = events(*once, *again)

    assert "1 probe," in first.done
    assert "1 probe," in second.done


def test_what_is_open_at_the_end_goes_on() -> None:
    event = only(act(1, 0, "simplify", mode=SIMPLIFIED), simplest(2, MIDNIGHT + 300))

    assert event.goes_on
    assert math.isnan(event.lasted_seconds)


def test_what_began_before_the_period_is_told_first_and_without_a_length() -> None:
    found = events(act(7, 0, "heal", after=MIDDLE), act(8, 10, "recover"), act(9, 20, "release", mode=FULL))

    assert [event.kind for event in found] == [Kind.BREAKER, Kind.DEGRADATION, Kind.HEAL]
    assert math.isnan(found[0].at_seconds)
    assert math.isnan(found[0].lasted_seconds)
    assert "began before" in found[0].why


def test_a_degradation_lasts_until_all_work_is_served() -> None:
    event = only(act(1, 0, "protect", "tight", mode=PRIORITY), act(2, 300, "release", "eased", mode=FULL))

    assert (event.kind, event.why, event.lasted_seconds) == (Kind.DEGRADATION, "tight", 300)
    assert "eased" in event.done


def test_a_degradation_under_an_open_breaker_ends_with_the_full_policy() -> None:
    found = events(
        act(1, 0, "protect", mode=PRIORITY),
        act(2, 60, "simplify", mode=SIMPLIFIED),
        act(3, 180, "probe", mode=FULL),
        act(4, 240, "recover"),
    )

    assert {event.kind: event.lasted_seconds for event in found} == {Kind.DEGRADATION: 180, Kind.BREAKER: 180}


@pytest.mark.parametrize("decision", ["heal", "roll_back"])
def test_what_is_put_back_tells_what_moved(decision: str) -> None:
    event = only(act(1, 0, decision, after=KnobValues.of({**MIDDLE, Role.RESERVATION: 0.22})))

    assert event.kind is (Kind.HEAL if decision == "heal" else Kind.UNDONE)
    assert event.done == "reservation 20 % → 22 %"


@pytest.mark.parametrize(
    "ends",
    [order(3, 900, OrderKind.RESUME), order(3, 900, OrderKind.ADOPT, decision="adopted", said="adopted: x")],
    ids=["resume", "adopt"],
)
def test_a_freeze_lasts_until_a_person_ends_it(ends: CycleRecord) -> None:
    found = events(act(1, 0, "frozen", "edited"), act(2, 300, "frozen", "edited"), ends)

    assert sorted(event.kind for event in found) == sorted([Kind.CONTEST, Kind.FREEZE, Kind.CONTEST, Kind.ORDER])
    (freeze,) = (event for event in found if event.kind is Kind.FREEZE)
    assert (freeze.cycle_id, freeze.lasted_seconds) == (1, 900)
    assert "alice" in freeze.done


def test_an_order_does_not_end_a_freeze_unless_it_says_so() -> None:
    found = events(act(1, 0, "frozen"), order(2, 60, OrderKind.PAUSE))

    assert [event.kind for event in found if event.goes_on] == [Kind.FREEZE, Kind.PAUSE]


@pytest.mark.parametrize(
    ("until_seconds", "later", "lasted"),
    [
        (None, order(2, 600, OrderKind.RESUME), 600),
        (MIDNIGHT + 3600, simplest(2, MIDNIGHT + 7200), 3600),
        (MIDNIGHT + 3600, order(2, 600, OrderKind.RESUME), 600),
    ],
    ids=["resumed", "run out", "resumed before"],
)
def test_a_pause_lasts_until_it_is_ended_or_has_run_out(
    until_seconds: float | None, later: CycleRecord, lasted: float
) -> None:
    paused = order(1, 0, OrderKind.PAUSE, reason="new racks", until_seconds=until_seconds)

    event = next(event for event in events(paused, later) if event.kind is Kind.PAUSE)

    assert event.lasted_seconds == lasted
    assert "new racks" in event.why


def test_a_drill_tells_how_long_restoring_took() -> None:
    planned = Exercise(role=Role.RESERVATION, before=MIDDLE, during=MIDDLE)
    good = result(planned, apply_seconds=0.1, effective_seconds=0.5, restore_seconds=0.75)
    bad = result(planned, apply_seconds=0.1, effective_seconds=0.5, restore_seconds=math.nan, trouble="silent")

    passed = only(order(1, 0, OrderKind.DRILL, decision="drill", said=good.sentence))
    scheduled = only(act(1, 0, "drill", f"drill by the schedule: {good.sentence}", after=MIDDLE))
    lost = only(order(1, 0, OrderKind.DRILL, decision="drill", said=bad.sentence))

    assert (passed.kind, passed.done, passed.lasted_seconds) == (Kind.DRILL, "passed", 0.75)
    assert (scheduled.kind, scheduled.done) == (Kind.DRILL, "passed")
    assert lost.done == "failed"
    assert math.isnan(lost.lasted_seconds)


def test_a_drill_that_was_refused_is_an_order() -> None:
    event = only(order(1, 0, OrderKind.DRILL, said="a change is on trial, which a drill would disturb"))

    assert event.kind is Kind.ORDER


def test_interrupted_cycles_failures_and_what_would_have_been_done_are_told() -> None:
    lost = replace(
        act(1, 0, "failed", "the process ended"),
        failure=StageFailure(stage="record", reason="interrupted", detail="the process ended"),
    )
    refused = replace(
        act(2, 10, "failed", "could not simplify"),
        failure=StageFailure(stage="apply", reason="change_rejected", detail="no"),
    )

    found = events(lost, refused, act(3, 20, "hold", "would simplify"))

    assert [event.kind for event in found] == [Kind.INTERRUPTED, Kind.FAILED, Kind.WOULD]


def test_a_harmful_change_tells_how_long_it_was_in_force() -> None:
    made = applied(1)
    nothing = made.observation.metrics  # type: ignore[union-attr]
    look = Verification(
        cycle_id=2,
        change_cycle_id=1,
        outcome=Outcome.FAILED,
        step=Step.ROLL_BACK,
        samples=3,
        expected_score=-0.1,
        observed_score=0.2,
        score_error=0.05,
        observed=nothing,
        counterfactual=nothing,
        reason="harm: 20 % worse",
        pairs=2,
        harm=True,
    )
    undone = replace(simplest(2, MIDNIGHT + 900), decision=Step.ROLL_BACK, verification=look)

    assert only(made, undone).kind is Kind.HARM
    assert only(made, undone).lasted_seconds == 900
    assert events(made, replace(undone, verification=replace(look, harm=False))) == ()


def test_quiet_cycles_and_failed_ones_are_no_events() -> None:
    assert events(simplest(1), failed(2, MIDNIGHT + 60), applied(3, MIDNIGHT + 120)) == ()
    assert events() == ()


@pytest.mark.parametrize("kind", OrderKind)
def test_every_kind_of_order_is_known_by_its_own_words(kind: OrderKind) -> None:
    details: dict[OrderKind, dict[str, object]] = {
        OrderKind.FREEZE: {"role": Role.RESERVATION, "direction": Direction.UP},
        OrderKind.THAW: {"role": Role.RESERVATION},
        OrderKind.APPROVE: {"cycle_id": 3},
    }
    given = Order(
        order_id=new_id(MIDNIGHT),
        kind=kind,
        at_seconds=MIDNIGHT,
        by="root (alice)",
        **details.get(kind, {}),  # type: ignore[arg-type]
    )

    assert ordered(act(1, 0, "order", f"{given.describe()}: done"))


def test_a_sentence_of_the_guard_is_nobodys_order() -> None:
    assert ordered(act(1, 0, "simplify", "3 samples in a row of the scheduling latency over 3 s")) == ""
    assert ordered(replace(simplest(), reason="alice: pause: done")) == ""


def test_counts_leave_out_what_did_not_happen() -> None:
    counts = Protection.of([act(1, 0, "heal"), act(2, 10, "heal"), order(3, 20, OrderKind.DRILL)]).counts

    assert counts == (("restored", 2), ("order", 1))


def test_time_in_policy_modes_is_that_between_what_was_set_and_seen() -> None:
    found = Protection.of(
        [
            simplest(1, MIDNIGHT),
            act(2, 100, "simplify", mode=SIMPLIFIED),
            act(3, 160, "probe", mode=FULL),
            simplest(4, MIDNIGHT + 400),
        ]
    )

    assert found.modes == (("full", 340.0), ("simplified", 60.0))
    assert Protection.of([act(1, 0, "recover")]).modes == ()


def test_time_on_rungs_is_told_by_searches_and_freezes() -> None:
    def judged(cycle_id: int, after_seconds: float, rung: Rung) -> CycleRecord:
        record = applied(cycle_id, MIDNIGHT + after_seconds)
        assert record.verdict is not None
        found = replace(finding("ladder"), observed=float(rung))
        return replace(record, verdict=replace(record.verdict, findings=(found,)))

    found = Protection.of(
        [
            judged(1, 0, Rung.NORMAL),
            judged(2, 300, Rung.CAUTIOUS),
            act(3, 500, "frozen"),
            order(4, 900, OrderKind.RESUME),
            simplest(5, MIDNIGHT + 1000),
        ]
    )

    assert found.rungs == (("normal", 300.0), ("cautious", 200.0), ("observe_only", 100.0), ("frozen", 400.0))
