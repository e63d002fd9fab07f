"""The budget of false promotions: it is never overspent, and first trials keep their power."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.values.stages import Outcome, Step, Verification
from tuner.verify.budget import DAY_SECONDS, LEAST_ALPHA, SHARE, Spending, next_alpha, used_alpha

RATIO = 0.05


def ended(step: Step, evidence: float) -> Verification:
    return Verification(
        cycle_id=2,
        change_cycle_id=1,
        outcome=Outcome.INCONCLUSIVE,
        step=step,
        samples=0,
        expected_score=0.0,
        observed_score=0.0,
        score_error=0.0,
        observed=np.zeros(13),
        counterfactual=np.zeros(13),
        reason="it ended",
        evidence=evidence,
    )


def test_the_first_trial_of_a_day_takes_its_share_of_all() -> None:
    assert next_alpha([], ratio=RATIO, at_seconds=0.0) == pytest.approx(SHARE * RATIO)


def test_a_trial_takes_its_share_of_what_the_last_day_has_left() -> None:
    spent = [Spending(at_seconds=0.0, alpha=0.04), Spending(at_seconds=100.0, alpha=0.02)]

    assert next_alpha(spent, ratio=RATIO, at_seconds=DAY_SECONDS - 1) == LEAST_ALPHA
    assert next_alpha(spent, ratio=RATIO, at_seconds=DAY_SECONDS) == pytest.approx(SHARE * 0.03)
    assert next_alpha(spent, ratio=RATIO, at_seconds=DAY_SECONDS + 100) == pytest.approx(SHARE * RATIO)


@pytest.mark.parametrize(
    ("step", "evidence", "used"),
    [
        (Step.PROMOTE, math.log(50), 1.0),
        (Step.ROLL_BACK, math.log(0.3), 0.7),
        (Step.KEEP, math.log(4.0), 0.0),
        (Step.ROLL_BACK, 0.0, 0.0),
        (Step.ROLL_BACK, math.nan, 1.0),
    ],
)
def test_a_trial_used_what_its_evidence_does_not_give_back(step: Step, evidence: float, used: float) -> None:
    assert used_alpha(0.02, ended(step, evidence)) == pytest.approx(0.02 * used)


@given(
    st.lists(
        st.tuples(
            st.floats(60.0, 40_000.0), st.sampled_from([Step.PROMOTE, Step.KEEP, Step.ROLL_BACK]), st.floats(-9, 4)
        ),
        max_size=40,
    )
)
def test_no_day_uses_more_than_its_budget(trials: Sequence[tuple[float, Step, float]]) -> None:
    spent: list[Spending] = []
    at_seconds = 0.0

    for pause, step, evidence in trials:
        at_seconds += pause
        alpha = next_alpha(spent, ratio=RATIO, at_seconds=at_seconds)
        assert 0 < alpha <= SHARE * RATIO
        spent.append(Spending(at_seconds=at_seconds, alpha=used_alpha(alpha, ended(step, evidence))))

    for first in spent:
        day = [each.alpha for each in spent if 0 <= each.at_seconds - first.at_seconds < DAY_SECONDS]
        assert sum(day) <= RATIO + LEAST_ALPHA * len(day)


def test_trials_without_effect_promote_no_more_often_in_a_day_than_the_budget_says() -> None:
    """Bets of the worst kind: each ends at once with `1 / alpha` at the chance that it may, else with nothing."""
    rng = np.random.default_rng(1)
    days = 4000

    wrong = 0
    for _ in range(days):
        spent: list[Spending] = []
        for number in range(12):
            alpha = next_alpha(spent, ratio=RATIO, at_seconds=60.0 * number)
            # Half of the wealth is kept, and the other half is bet.
            promoted = rng.random() < alpha / 2
            step, left = (Step.PROMOTE, 1 / alpha) if promoted else (Step.ROLL_BACK, 0.5)
            wrong += promoted
            spent.append(Spending(at_seconds=60.0 * number, alpha=used_alpha(alpha, ended(step, math.log(left)))))

    assert wrong / days <= RATIO + 3 * math.sqrt(RATIO / days)
    assert wrong / days > RATIO / 2
