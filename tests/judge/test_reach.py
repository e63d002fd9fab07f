"""How far a search may look."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.judge.test_guards import MIDDLE, SPECS, case, proposal
from tuner.judge import guards
from tuner.judge.change_breaker import ChangeBreaker
from tuner.judge.ladder import Ladder
from tuner.judge.reach import reach
from tuner.twin.trust import UNPROVEN_REGION
from tuner.values.knobs import KnobValues, limit_slew
from tuner.values.safety import BreakerState, Rung


@pytest.mark.parametrize(
    ("rung", "state", "expected"),
    [
        (Rung.NORMAL, BreakerState.CLOSED, 0.5),
        (Rung.NO_LSTM, BreakerState.CLOSED, 0.5),
        (Rung.CAUTIOUS, BreakerState.CLOSED, 0.25),
        # Nothing is changed there: what would be done is told as it would be done.
        (Rung.OBSERVE_ONLY, BreakerState.CLOSED, 0.5),
        (Rung.FROZEN, BreakerState.OPEN, 0.5),
        (Rung.NORMAL, BreakerState.HALF_OPEN, 1e-9),
    ],
)
def test_doubt_and_harm_shorten_the_reach(rung: Rung, state: BreakerState, expected: float) -> None:
    wrong_once = UNPROVEN_REGION / 2

    assert reach(wrong_once, ladder=Ladder(rung=rung), change_breaker=ChangeBreaker(state=state)) == expected


@pytest.mark.parametrize(("region", "expected"), [(1.0, 1.0), (UNPROVEN_REGION, 1.0), (UNPROVEN_REGION / 8, 0.125)])
def test_a_twin_that_has_shown_nothing_may_ask_for_full_steps_and_one_that_was_wrong_for_less(
    region: float, expected: float
) -> None:
    assert reach(region, ladder=Ladder(), change_breaker=ChangeBreaker()) == expected


@given(
    rung=st.sampled_from(list(Rung)),
    state=st.sampled_from(list(BreakerState)),
    region=st.floats(0.01, 1.0),
    shares=st.lists(st.floats(0.0, 1.0), min_size=8, max_size=8),
)
def test_what_is_within_reach_is_not_stopped_for_its_size(
    rung: Rung, state: BreakerState, region: float, shares: list[float]
) -> None:
    ladder, breaker = Ladder(rung=rung), ChangeBreaker(state=state)
    here, wanted = (
        KnobValues.of(
            {
                spec.role: spec.snap(spec.low + share * (spec.high - spec.low))
                for spec, share in zip(SPECS, part, strict=True)
            }
        )
        for part in (shares[:4], shares[4:])
    )
    factor = reach(region, ladder=ladder, change_breaker=breaker)
    found = proposal(incumbent=here, candidate=limit_slew(wanted, here, SPECS, trust=factor))

    given_case = case(proposal=found, region=region, ladder=ladder, change_breaker=breaker)

    assert guards.slew(given_case).passed
    assert guards.change_breaker(given_case).passed is (state is not BreakerState.OPEN)


def test_a_move_of_one_step_is_always_within_reach() -> None:
    low = replace(ChangeBreaker(), state=BreakerState.HALF_OPEN)
    target = KnobValues.of({spec.role: spec.high for spec in SPECS})

    reached = limit_slew(target, MIDDLE, SPECS, trust=reach(0.01, ladder=Ladder(), change_breaker=low))

    assert [round((reached[spec.role] - MIDDLE[spec.role]) / spec.step, 6) for spec in SPECS] == [1.0] * 4
