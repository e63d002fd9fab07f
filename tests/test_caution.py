"""Which events of the loop move the change breaker and the ladder."""

import math
from dataclasses import replace

import pytest

from tuner.caution import Caution, charge, counted, credit, learned, opened, stepped, waited
from tuner.judge.change_breaker import ChangeBreaker
from tuner.judge.ladder import Doubt
from tuner.judge.limits import MIN_TRUST
from tuner.settings.safety import ChangeBreakerSettings
from tuner.twin.trust import Trust
from tuner.values.knobs import KnobValues, Role
from tuner.values.metrics import metric_vector
from tuner.values.safety import BreakerState, Rung
from tuner.values.stages import CycleRecord, Outcome, StageFailure, Step, Verification

BEFORE, AFTER = (KnobValues.of({Role.BASE_SLICE: seconds}) for seconds in (0.1, 0.12))
SETTINGS = ChangeBreakerSettings(harmful_changes=2, cool_down_seconds=600)
NOTHING = metric_vector({})


def look(step: Step, *, harm: bool = False) -> Verification:
    return Verification(
        cycle_id=5,
        change_cycle_id=1,
        outcome=Outcome.FAILED if harm else Outcome.INCONCLUSIVE,
        step=step,
        samples=4,
        expected_score=-0.1,
        observed_score=0.1,
        score_error=0.02,
        observed=NOTHING,
        counterfactual=NOTHING,
        reason="seen",
        harm=harm,
    )


def record(decision: str, at: float = 1000.0, **parts: object) -> CycleRecord:
    return CycleRecord(cycle_id=5, at_seconds=at, decision=decision, reason="a test", **parts)  # type: ignore[arg-type]


def after(*records: CycleRecord, caution: Caution | None = None, began: float = 900.0) -> ChangeBreaker:
    now = caution or Caution()
    for one in records:
        now = learned(now, one, began_at_seconds=began, settings=SETTINGS)
    return now.change_breaker


HARM = record("roll_back", verification=look(Step.ROLL_BACK, harm=True))
UNDONE = record("roll_back", verification=look(Step.ROLL_BACK))
KEPT = record("keep", verification=look(Step.KEEP))
HALF = Caution(
    change_breaker=ChangeBreaker(state=BreakerState.HALF_OPEN, opened_at_seconds=800.0, cool_down_seconds=60)
)


def test_harm_that_was_undone_counts_and_doubt_that_was_undone_does_not() -> None:
    assert after(HARM).state is BreakerState.CLOSED
    assert after(HARM, HARM).state is BreakerState.OPEN
    assert after(UNDONE, UNDONE, UNDONE).state is BreakerState.CLOSED


@pytest.mark.parametrize(
    "broken",
    [
        record("failed", failure=StageFailure(stage="apply", reason="internal", detail="a bug")),
        record("failed", verification=look(Step.ROLL_BACK, harm=True)),
        record(
            "failed",
            verification=look(Step.ROLL_BACK),
            failure=StageFailure(stage="apply", reason="actuator_unavailable", detail="gone"),
        ),
    ],
    ids=["an unexpected error while changing", "a roll-back that was refused", "a roll-back nobody answered"],
)
def test_what_must_not_happen_opens_the_breaker_at_once(broken: CycleRecord) -> None:
    assert after(broken).state is BreakerState.OPEN


def test_a_scheduler_that_falls_silent_over_a_change_counts_as_harm() -> None:
    silent = StageFailure(stage="apply", reason="actuator_unavailable", detail="no answer within 5 s")

    assert after(record("failed", failure=silent)).state is BreakerState.CLOSED
    opened = after(record("failed", failure=silent), record("failed", failure=silent))
    assert opened.state is BreakerState.OPEN
    assert "fell silent when it was changed" in opened.reason


def test_an_error_that_has_nothing_to_do_with_a_change_opens_nothing() -> None:
    bug = record("failed", failure=StageFailure(stage="forecast", reason="internal", detail="a bug"))
    refused = record("failed", failure=StageFailure(stage="apply", reason="change_rejected", detail="no"))

    assert after(bug, refused).state is BreakerState.CLOSED


def test_the_small_trial_proves_only_if_it_began_after_the_breaker_had_opened() -> None:
    assert after(KEPT, caution=HALF, began=900.0).state is BreakerState.CLOSED
    assert after(KEPT, caution=HALF, began=700.0).state is BreakerState.HALF_OPEN


def test_the_cool_down_passes() -> None:
    broken = learned(
        Caution(), record("failed", verification=look(Step.ROLL_BACK)), began_at_seconds=0, settings=SETTINGS
    )

    assert waited(broken, at_seconds=1500.0, settings=SETTINGS).change_breaker.state is BreakerState.OPEN
    assert waited(broken, at_seconds=1600.0, settings=SETTINGS).change_breaker.state is BreakerState.HALF_OPEN


def test_failures_and_blindness_are_counted_in_a_row() -> None:
    blind = record("failed", failure=StageFailure(stage="observe", reason="source_unavailable", detail="gone"))
    bad = record("failed", failure=StageFailure(stage="propose", reason="internal", detail="a bug"))

    seen = counted(counted(Caution(), blind), bad)

    assert (seen.failures_in_row, seen.blind_in_row) == (2, 0)
    assert counted(seen, record("hold")).failures_in_row == 0


def test_a_freeze_lasts_until_it_is_ended_and_then_the_ladder_is_climbed() -> None:
    frozen = stepped(Caution(), (), at_seconds=0.0, good=True, frozen="somebody set a knob")
    still = stepped(frozen, (), at_seconds=60.0, good=True, frozen="somebody set a knob")
    thawed = stepped(still, (), at_seconds=120.0, good=True, frozen="")

    assert still.ladder.rung is Rung.FROZEN
    assert Rung.NORMAL < thawed.ladder.rung < Rung.FROZEN


def test_a_doubt_leads_down_at_once_and_good_cycles_lead_up_one_by_one() -> None:
    doubt = Doubt(rung=Rung.OBSERVE_ONLY, cause="clock_skew", sentence="12 h ahead")
    down = stepped(Caution(), (doubt,), at_seconds=0.0, good=True, frozen="")
    rungs = []
    climbing = down
    for cycle in range(4):
        climbing = stepped(climbing, (), at_seconds=60.0 * (cycle + 1), good=True, frozen="")
        rungs.append(climbing.ladder.rung)

    assert down.ladder.rung is Rung.OBSERVE_ONLY
    assert rungs == [Rung.CAUTIOUS, Rung.NO_LSTM, Rung.NORMAL, Rung.NORMAL]


def test_an_opening_is_told_once() -> None:
    before = Caution()
    now = replace(before, change_breaker=replace(before.change_breaker, state=BreakerState.OPEN))

    assert opened(before, now)
    assert not opened(now, now)


def test_a_twin_that_is_always_wrong_leads_to_observing_only_and_time_leads_back() -> None:
    trust = Trust()
    for hour in range(14):
        trust.realised(-0.1, 0.1, noise=0.01, at_seconds=3600.0 * hour)

    assert trust.ratio_at(3600.0 * 14) < MIN_TRUST
    assert trust.ratio_at(14 * 86_400.0) > MIN_TRUST
    assert math.isclose(trust.ratio_at(1e9), 0.5, abs_tol=0.01)


def test_what_a_trial_cost_makes_the_breaker_rest_and_touches_nothing_else() -> None:
    before = Caution(failures_in_row=1)
    charged = charge(before, 6.0, back_to=BEFORE, at_seconds=1000.0, settings=SETTINGS)

    assert charged.change_breaker.rests_until_seconds == 1600.0
    assert charged.change_breaker.state is BreakerState.CLOSED
    assert replace(charged, change_breaker=before.change_breaker) == before


def test_a_tuner_that_has_earned_much_rests_less_and_only_under_the_setting_that_earned_it() -> None:
    caution = credit(Caution(), -0.3, 0.1, before=BEFORE, after=AFTER)
    earned = charge(caution, 6.0, back_to=AFTER, at_seconds=1000.0, settings=SETTINGS)
    elsewhere = charge(caution, 6.0, back_to=BEFORE, at_seconds=1000.0, settings=SETTINGS)

    # One per cent over time, and a quarter of the 20 % that were surely gained: 6 / 0.06.
    assert earned.change_breaker.rests_until_seconds == pytest.approx(1100.0)
    assert elsewhere.change_breaker.rests_until_seconds == 1600.0


@pytest.mark.parametrize(
    ("score", "error", "gained"), [(-0.3, 0.1, 0.2), (-0.1, 0.2, 0.0), (0.1, 0.0, 0.0), (math.nan, 0.1, 0.0)]
)
def test_only_what_a_trial_has_surely_shown_is_earned(score: float, error: float, gained: float) -> None:
    caution = credit(Caution(), score, error, before=BEFORE, after=AFTER)

    assert caution.earned.under(AFTER) == pytest.approx(gained)
    assert caution.earned.under(BEFORE) == 0.0


def test_gains_of_changes_upon_changes_add_up() -> None:
    once = credit(Caution(), -0.3, 0.1, before=BEFORE, after=AFTER)

    assert credit(once, -0.1, 0.0, before=AFTER, after=BEFORE).earned.under(BEFORE) == pytest.approx(0.3)
