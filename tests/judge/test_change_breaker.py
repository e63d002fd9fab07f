"""The change breaker: what opens it, and the small trial that closes it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.judge.readings import NOW
from tuner.judge.change_breaker import ChangeBreaker, charged, elapsed, failed, harmed, proven, resting_seconds
from tuner.record.encoding import decode, encode
from tuner.settings.safety import ChangeBreakerSettings
from tuner.values.safety import BreakerState

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN
SETTINGS = ChangeBreakerSettings()
HOUR, DAY = 3600.0, 86_400.0


def harm(breaker: ChangeBreaker, at: float) -> ChangeBreaker:
    return harmed(breaker, at_seconds=at, settings=SETTINGS, reason="queue wait 9 % worse, limit 5 %")


def fail(breaker: ChangeBreaker, at: float) -> ChangeBreaker:
    return failed(breaker, at_seconds=at, settings=SETTINGS, reason="the roll-back of cycle 7 failed")


def wait(breaker: ChangeBreaker, at: float) -> ChangeBreaker:
    return elapsed(breaker, at_seconds=at, settings=SETTINGS)


def opened(at: float = NOW) -> ChangeBreaker:
    breaker = harm(harm(harm(ChangeBreaker(), at - 2 * HOUR), at - HOUR), at)
    assert breaker.state is OPEN
    return breaker


def half_open(at: float = NOW) -> ChangeBreaker:
    breaker = wait(opened(at - HOUR), at)
    assert breaker.state is HALF_OPEN
    return breaker


def test_harm_within_a_day_opens_it_at_the_limit_and_says_why() -> None:
    twice = harm(harm(ChangeBreaker(), NOW), NOW + HOUR)
    assert twice.state is CLOSED

    breaker = harm(twice, NOW + 2 * HOUR)

    assert (breaker.state, breaker.opened_at_seconds, breaker.cool_down_seconds) == (OPEN, NOW + 2 * HOUR, HOUR)
    assert breaker.reason == "3 changes did harm within 24 h, limit 3; the last: queue wait 9 % worse, limit 5 %"


def test_harm_of_more_than_a_day_ago_is_forgotten() -> None:
    breaker = harm(harm(harm(ChangeBreaker(), NOW), NOW + 1.0), NOW + DAY + 0.5)

    assert breaker.state is CLOSED
    assert breaker.harms == (NOW + 1.0, NOW + DAY + 0.5)


def test_a_failed_roll_back_opens_it_at_once() -> None:
    breaker = fail(ChangeBreaker(), NOW)

    assert (breaker.state, breaker.harms) == (OPEN, ())
    assert breaker.reason == "the roll-back of cycle 7 failed"


def test_a_failure_while_it_is_open_starts_the_cool_down_again() -> None:
    breaker = fail(opened(), NOW + 3000.0)

    assert (breaker.state, breaker.cool_down_seconds) == (OPEN, HOUR)
    assert wait(breaker, NOW + 3000.0 + HOUR - 1.0).state is OPEN
    assert wait(breaker, NOW + 3000.0 + HOUR).state is HALF_OPEN


def test_harm_while_it_is_open_is_counted_and_changes_nothing_else() -> None:
    breaker = harm(opened(), NOW + 60.0)

    assert len(breaker.harms) == 4
    assert (breaker.state, breaker.opened_at_seconds) == (OPEN, NOW)


def test_after_the_cool_down_one_small_change_may_be_tried() -> None:
    assert wait(opened(), NOW + HOUR - 1.0).state is OPEN
    breaker = wait(opened(), NOW + HOUR)

    assert breaker.state is HALF_OPEN
    assert breaker.reason == "the cool-down of 3600 s has passed: one small change may be tried"


def test_a_small_trial_without_harm_closes_it() -> None:
    breaker = proven(half_open(), at_seconds=NOW + 1800.0)

    assert breaker.state is CLOSED
    assert breaker.reason == "the small trial ended without harm, 1.5 h after the change breaker opened"


def test_one_harm_in_the_small_trial_opens_it_for_twice_as_long() -> None:
    breaker = harm(half_open(), NOW + 1800.0)

    assert (breaker.state, breaker.cool_down_seconds) == (OPEN, 2 * HOUR)
    assert breaker.reason == "the small trial did harm: queue wait 9 % worse, limit 5 %"


def test_the_cool_down_has_an_upper_limit() -> None:
    breaker, at = opened(), NOW
    for _ in range(7):
        at += breaker.cool_down_seconds
        breaker = harm(wait(breaker, at), at)

    assert breaker.cool_down_seconds == DAY


def test_harms_of_the_same_day_count_on_after_it_has_closed_and_it_backs_off() -> None:
    breaker = harm(proven(half_open(), at_seconds=NOW), NOW + HOUR)

    assert (breaker.state, breaker.cool_down_seconds) == (OPEN, 2 * HOUR)


def test_a_quiet_day_forgives_the_cool_down() -> None:
    closed = proven(half_open(), at_seconds=NOW)

    assert fail(closed, NOW + DAY).cool_down_seconds == 2 * HOUR
    assert fail(closed, NOW + DAY + 1.0).cool_down_seconds == HOUR


@pytest.mark.parametrize("breaker", [ChangeBreaker(), opened()])
def test_a_trial_of_before_it_opened_proves_nothing(breaker: ChangeBreaker) -> None:
    assert proven(breaker, at_seconds=NOW) is breaker


def test_time_does_nothing_to_it_where_it_is_not_open() -> None:
    for breaker in (ChangeBreaker(), half_open()):
        assert wait(breaker, NOW + 10 * DAY) is breaker


def test_a_clock_that_is_set_back_starts_the_cool_down_again() -> None:
    breaker = wait(opened(), NOW - 30 * DAY)

    assert wait(breaker, NOW - 30 * DAY + HOUR - 1.0).state is OPEN
    assert wait(breaker, NOW - 30 * DAY + HOUR).state is HALF_OPEN


def test_a_clock_that_is_set_back_does_not_keep_a_harm_for_longer_than_a_day() -> None:
    breaker = harm(harm(ChangeBreaker(), NOW), NOW - 30 * DAY)
    assert len(breaker.harms) == 2

    assert len(harm(breaker, NOW - 28 * DAY).harms) == 1


def test_however_late_a_small_trial_that_does_harm_doubles_the_cool_down() -> None:
    assert harm(half_open(), NOW + 3 * DAY).cool_down_seconds == 2 * HOUR


def test_a_shorter_limit_of_the_policy_holds_for_a_cool_down_that_runs() -> None:
    short = ChangeBreakerSettings(max_cool_down_seconds=60.0)

    assert elapsed(opened(), at_seconds=NOW + 60.0, settings=short).state is HALF_OPEN


def test_it_returns_from_the_journal_as_it_was() -> None:
    for breaker in (ChangeBreaker(), opened(), half_open(), proven(half_open(), at_seconds=NOW)):
        assert repr(decode(ChangeBreaker, encode(breaker))) == repr(breaker)


EVENTS = st.sampled_from([harm, fail, wait, lambda breaker, at: proven(breaker, at_seconds=at)])


@given(story=st.lists(st.tuples(st.floats(-DAY, DAY), EVENTS), max_size=40))
def test_whatever_happened_a_small_trial_is_allowed_in_time_and_closes_it(story: list[tuple[float, object]]) -> None:
    breaker, at = ChangeBreaker(), NOW
    for passed, event in story:
        at += passed
        breaker = event(breaker, at)  # type: ignore[operator]
        assert breaker.state is CLOSED or math.isfinite(breaker.cool_down_seconds)
        assert not breaker.cool_down_seconds > SETTINGS.max_cool_down_seconds

    breaker = wait(wait(breaker, at), at + DAY)

    assert breaker.state is not OPEN
    assert proven(breaker, at_seconds=at + DAY).state is CLOSED


@given(story=st.lists(st.tuples(st.floats(0.0, DAY / 4), st.booleans()), max_size=40))
def test_it_is_never_closed_with_as_many_harms_within_a_day_as_open_it(story: list[tuple[float, bool]]) -> None:
    breaker, at = ChangeBreaker(), NOW
    for passed, does_harm in story:
        at += passed
        if does_harm:
            breaker = harm(breaker, at)
            assert breaker.state is OPEN or len(breaker.harms) < SETTINGS.harmful_changes


def charge(breaker: ChangeBreaker, cost: float, at: float) -> ChangeBreaker:
    return charged(breaker, cost_score_seconds=cost, at_seconds=at, settings=SETTINGS)


def test_it_rests_until_the_cost_of_a_failed_trial_is_one_per_cent_of_the_time() -> None:
    # 10 % worse for 15 min.
    breaker = charge(ChangeBreaker(), 0.1 * 900, NOW)

    assert resting_seconds(breaker, at_seconds=NOW) == pytest.approx(9000.0)
    assert resting_seconds(breaker, at_seconds=NOW + 8999.0) == pytest.approx(1.0)
    assert resting_seconds(breaker, at_seconds=NOW + 9001.0) == 0.0
    assert breaker.state is CLOSED
    assert "cost as much as 150 min at a score 1 % worse" in breaker.rest_reason


@pytest.mark.parametrize("cost", [0.0, -30.0, math.nan])
def test_what_cost_nothing_gives_no_rest(cost: float) -> None:
    assert charge(ChangeBreaker(), cost, NOW) == ChangeBreaker()
    assert resting_seconds(ChangeBreaker(), at_seconds=NOW) == 0.0


@given(
    costs=st.lists(st.floats(0.0, 50.0), min_size=1, max_size=20), pauses=st.lists(st.floats(0.0, 600.0), min_size=20)
)
def test_trials_that_fail_never_cost_more_than_their_share_of_the_time(costs: list[float], pauses: list[float]) -> None:
    breaker, at = ChangeBreaker(), NOW
    for cost, pause in zip(costs, pauses, strict=False):
        at += resting_seconds(breaker, at_seconds=at) + pause
        breaker = charge(breaker, cost, at)
    over = at + resting_seconds(breaker, at_seconds=at)

    assert sum(costs) <= SETTINGS.max_cost_ratio * (over - NOW) + 1e-6


def test_a_rest_is_never_longer_than_the_longest_cool_down_and_survives_a_restart() -> None:
    breaker = charge(ChangeBreaker(), 1e6, NOW)

    assert resting_seconds(breaker, at_seconds=NOW) == SETTINGS.max_cool_down_seconds
    assert decode(ChangeBreaker, encode(breaker)) == breaker
