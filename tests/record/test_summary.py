"""What a day amounts to: each change with its end, each forecast with what came, each guard with its sentences."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.support.guarded import act, order
from tests.support.records import (
    MIDDLE,
    MIDNIGHT,
    PERIOD_SECONDS,
    applied,
    day,
    failed,
    forecast,
    observation,
    quiet,
    simplest,
)
from tuner.control.orders import OrderKind
from tuner.record.summary import (
    Fate,
    changes,
    cycles,
    guard_counts,
    held_reasons,
    in_force,
    observed,
    observed_in,
    of_guard,
    track,
)
from tuner.values.knobs import KnobValues, Role, SchedulerMode
from tuner.values.metrics import METRIC_INDEX
from tuner.values.stages import CycleRecord, Decision, Outcome, StageFailure, Step

DAY = day()


def test_every_change_of_a_day_is_found_with_its_end() -> None:
    found = changes(DAY)

    assert len(found) == sum(record.decision == Decision.APPLY for record in DAY)
    ends = [record for record in DAY if record.decision in (Step.PROMOTE, Step.ROLL_BACK)]
    assert [change.fate for change in found] == [
        Fate.KEPT if record.decision == Step.PROMOTE else Fate.UNDONE for record in ends
    ]
    for change, end in zip(found, ends, strict=True):
        assert end.verification is not None
        assert change.observed_score == end.verification.observed_score
        assert change.looked_at_seconds == end.at_seconds
        assert change.reason == end.verification.reason
        assert change.concluded


def test_a_change_without_a_look_is_on_trial_with_its_own_reason() -> None:
    (change,) = changes([applied()])

    assert change.fate is Fate.ON_TRIAL
    assert change.reason == applied().reason
    assert change.outcome is None
    assert math.isnan(change.observed_score)
    assert not change.came_true


def test_a_change_that_a_newer_one_follows_or_that_was_given_up_is_on_trial_no_more() -> None:
    first, second = applied(1), applied(2, MIDNIGHT + 600)
    look = next(record for record in DAY if record.decision == Step.WAIT)
    assert look.verification is not None
    given_up = replace(
        look, decision="adopted", verification=replace(look.verification, change_cycle_id=2, outcome=Outcome.ERROR)
    )

    assert [change.fate for change in changes([first, second])] == [Fate.ABANDONED, Fate.ON_TRIAL]
    assert [change.fate for change in changes([first, second, given_up])] == [Fate.ABANDONED, Fate.ABANDONED]


def looked(decision: str, step: Step, *, pairs: int = 0, **changes: object) -> CycleRecord:
    """Return a cycle that looked at the change of cycle 1."""
    record = next(record for record in DAY if record.decision == Step.WAIT)
    assert record.verification is not None
    look = replace(
        record.verification,
        change_cycle_id=1,
        step=step,
        pairs=pairs,
        evidence=0.7 * pairs,
        **changes,  # type: ignore[arg-type]
    )
    return replace(record, decision=decision, verification=look)


def test_a_trial_is_one_change_however_often_its_settings_take_turns() -> None:
    made, end = applied(1), looked(Step.PROMOTE, Step.PROMOTE, pairs=3)
    switch = replace(looked(Step.SWITCH, Step.SWITCH, pairs=1), receipt=made.receipt)

    (change,) = changes(
        [made, switch, looked(Step.WAIT, Step.WAIT, pairs=1), switch, replace(end, receipt=made.receipt)]
    )

    assert (change.cycle_id, change.fate) == (1, Fate.KEPT)
    assert (change.switches, change.pairs) == (2, 3)
    assert change.evidence == pytest.approx(2.1)
    assert change.before == made.receipt.before  # type: ignore[union-attr]
    assert change.after == made.receipt.after  # type: ignore[union-attr]


def test_a_switch_that_was_not_made_is_none() -> None:
    made = applied(1)
    assert made.receipt is not None
    refused = replace(looked(Step.SWITCH, Step.SWITCH), receipt=replace(made.receipt, applied=False))

    assert changes([made, refused])[0].switches == 0


def test_harm_is_told_of_the_change_that_did_it() -> None:
    assert changes([applied(1), looked(Step.ROLL_BACK, Step.ROLL_BACK, harm=True)])[0].harm
    assert not changes([applied(1), looked(Step.ROLL_BACK, Step.ROLL_BACK)])[0].harm


@pytest.mark.parametrize(
    ("decision", "step", "fate"),
    [
        (Step.WAIT, Step.WAIT, Fate.ON_TRIAL),
        (Step.WAIT, Step.SWITCH, Fate.ON_TRIAL),  # The switch waits for a person.
        (Step.SWITCH, Step.SWITCH, Fate.ON_TRIAL),
        ("failed", Step.SWITCH, Fate.ON_TRIAL),
        ("failed", Step.ROLL_BACK, Fate.ON_TRIAL),
        ("failed", Step.WAIT, Fate.ABANDONED),
        ("adopted", Step.WAIT, Fate.ABANDONED),
        ("frozen", Step.WAIT, Fate.ABANDONED),
        ("heal", Step.WAIT, Fate.ABANDONED),
        (Decision.HOLD, Step.SWITCH, Fate.ABANDONED),  # The tuner may not act any more.
        (Step.KEEP, Step.KEEP, Fate.UNVERIFIED),
        (Step.PROMOTE, Step.PROMOTE, Fate.KEPT),
        (Step.ROLL_BACK, Step.ROLL_BACK, Fate.UNDONE),
    ],
)
def test_the_last_look_tells_the_fate(decision: str, step: Step, fate: Fate) -> None:
    assert changes([applied(1), looked(decision, step)])[0].fate is fate


def test_hold_backs_and_what_a_guard_writes_are_no_changes() -> None:
    held_back = replace(applied(1), decision="hold_back")

    assert changes([held_back, act(2, 10, "heal", after=MIDDLE), act(3, 20, "simplify", mode=SchedulerMode.FULL)]) == ()


def test_records_of_guard_and_people_are_no_cycles() -> None:
    lost = replace(
        act(3, 20, "failed"), failure=StageFailure(stage="record", reason="interrupted", detail="the process ended")
    )
    noted = [act(1, 0, "recover"), order(2, 10, OrderKind.PAUSE), act(4, 30, "failed")]
    run = [simplest(5), failed(6), lost]

    assert all(of_guard(record) for record in noted)
    assert cycles([*noted, *run]) == tuple(run)


def test_what_a_guard_wrote_leaves_no_gap_in_what_was_observed() -> None:
    times, values = observed([simplest(1), act(2, 10, "recover"), simplest(3, MIDNIGHT + 300)], "queue_length")

    np.testing.assert_array_equal(times, [MIDNIGHT, MIDNIGHT + 300])
    assert np.isfinite(values).all()


def test_the_setting_in_force_is_that_written_or_else_that_seen() -> None:
    moved = KnobValues.of({**MIDDLE, Role.RESERVATION: 0.22})

    assert in_force(act(1, 0, "heal", after=moved)) == moved
    assert in_force(simplest()) == MIDDLE
    assert in_force(act(1, 0, "recover")) is None
    assert in_force(failed()) is None


def test_a_rollback_that_could_not_be_written_leaves_the_change_on_trial() -> None:
    made = applied(1)
    back = next(record for record in DAY if record.decision == Step.ROLL_BACK)
    assert back.verification is not None
    failing = replace(back, decision="failed", verification=replace(back.verification, change_cycle_id=1))

    assert changes([made, failing])[0].fate is Fate.ON_TRIAL


def test_a_write_that_was_not_read_back_is_no_change() -> None:
    record = applied()
    assert record.receipt is not None

    assert changes([replace(record, receipt=replace(record.receipt, applied=False))]) == ()


@pytest.mark.parametrize(
    ("observed_score", "true"), [(-0.03, True), (-0.011, True), (-0.009, False), (math.nan, False)]
)
def test_a_prediction_came_true_within_two_standard_errors(observed_score: float, true: bool) -> None:
    change = replace(changes(DAY)[0], expected_score=-0.03, observed_score=observed_score, score_error=0.01)

    assert change.came_true is true


# Forecasts.


def minute(index: int, value: float, *, ahead: float, spread: float = 0.1) -> CycleRecord:
    """Return a cycle at a minute that sees a queue and forecasts another."""
    seen, expected = observation(index, MIDNIGHT + 60.0 * index), forecast(index, MIDNIGHT + 60.0 * index)
    metrics, values = seen.metrics.copy(), expected.values.copy()
    metrics[METRIC_INDEX["queue_length"]] = value
    values[expected.names.index("queue_length")] = [ahead - spread, ahead, ahead + spread]
    return quiet(replace(seen, metrics=metrics), replace(expected, values=values))


def test_a_forecast_is_held_against_what_came_a_quarter_of_an_hour_later() -> None:
    # The queue grows by one a minute, and is forecast to be so.
    records = [minute(index, index, ahead=index + 15.0) for index in range(40)]

    found = track(records, "queue_length")

    assert found is not None
    np.testing.assert_array_equal(found.actual[:25], np.arange(15.0, 40.0))
    assert np.isnan(found.actual[25:]).all()
    assert found.coverage_ratio == 1.0
    assert found.error_ratio == 0.0
    np.testing.assert_array_equal(found.persisted, np.arange(40.0))
    assert found.model == records[-1].forecast.models[3]  # type: ignore[union-attr]


def test_a_forecast_as_good_as_last_value_has_an_error_of_one_and_misses_its_band() -> None:
    found = track([minute(index, index, ahead=float(index)) for index in range(40)], "queue_length")

    assert found is not None
    assert found.error_ratio == 1.0
    assert found.coverage_ratio == 0.0


def test_what_came_is_interpolated_but_not_over_gaps() -> None:
    kept = [minute(index, index, ahead=0.0) for index in (*range(0, 20, 2), *range(40, 60, 2))]

    found = track(kept, "queue_length")

    assert found is not None
    by_target = dict(zip((found.times_seconds - MIDNIGHT) / 60, found.actual, strict=True))
    assert by_target[15.0] == 15.0
    assert by_target[17.0] == 17.0
    assert math.isnan(by_target[25.0])


@pytest.mark.parametrize("records", [[], [failed()], [replace(simplest(), forecast=None)]])
def test_without_forecasts_there_is_no_track(records: list[CycleRecord]) -> None:
    assert track(records, "queue_length") is None


def test_a_series_that_is_not_forecast_or_not_so_far_has_no_track() -> None:
    assert track([simplest()], "nobody_forecasts_this") is None
    assert track([simplest()], "queue_length", lead_seconds=7200.0) is None


def test_a_single_cycle_has_a_forecast_and_nothing_that_came() -> None:
    found = track([simplest()], "queue_length")

    assert found is not None
    assert math.isnan(found.coverage_ratio)
    assert math.isnan(found.error_ratio)


def test_context_series_are_tracked_like_metrics() -> None:
    found = track(DAY, "arrivals_per_second:inference")

    assert found is not None
    assert np.isfinite(found.actual[:200]).mean() > 0.9
    assert 0.9 <= found.coverage_ratio <= 1


def test_what_was_not_seen_is_unknown() -> None:
    times, values = observed([simplest(), failed(2, MIDNIGHT + PERIOD_SECONDS)], "queue_length")

    np.testing.assert_array_equal(times, [MIDNIGHT, MIDNIGHT + PERIOD_SECONDS])
    assert np.isfinite(values[0])
    assert math.isnan(values[1])
    assert math.isnan(observed_in(simplest(), "nobody_maps_this"))


# Guards and reasons.


def test_guards_are_counted_and_show_a_failure_where_there_was_one() -> None:
    counts = {count.guard: count for count in guard_counts(DAY)}
    searches = sum(record.proposal is not None for record in DAY)

    assert counts["gain"].held > 0
    assert "under the limit" in counts["gain"].example
    assert "over the limit" in counts["slew"].example
    for count in counts.values():
        assert count.passed + count.held + count.rejected == searches


def test_a_rejection_is_not_counted_as_a_hold() -> None:
    held = next(record for record in DAY if record.verdict is not None and record.decision == Decision.HOLD)
    assert held.verdict is not None
    findings = tuple(replace(finding, severity=Decision.REJECT) for finding in held.verdict.findings)
    verdict = replace(held.verdict, findings=findings, decision=Decision.REJECT)

    counts = {count.guard: count for count in guard_counts([replace(held, verdict=verdict)])}

    assert (counts["gain"].passed, counts["gain"].held, counts["gain"].rejected) == (0, 0, 1)


def test_reasons_that_differ_in_numbers_alone_are_one_and_the_newest_speaks() -> None:
    records = [
        replace(simplest(index), reason=f"the load moved by 0.0{index}, less than 0.15") for index in range(1, 4)
    ]

    assert held_reasons([*records, failed()])[0] == ("the load moved by 0.03, less than 0.15", 3)
    assert len(held_reasons([*records, failed()])) == 2
    assert held_reasons([applied()]) == ()
    assert held_reasons([act(1, 0, "hold", "would simplify"), act(2, 10, "failed", "could not")]) == ()
