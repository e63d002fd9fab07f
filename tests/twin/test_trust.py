import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.twin.trust import HALF_LIFE_SECONDS, LEAST_REGION, MEMORY, UNPROVEN_REGION, Evidence, Trust

scores = st.floats(-0.5, 0.5)
trials = st.builds(
    Evidence,
    predicted_score=scores,
    observed_score=scores,
    noise=st.floats(0.0, 0.1),
    at_seconds=st.floats(0.0, 2e9),
    twin_score=st.one_of(scores, st.just(math.nan)),
    moved=st.tuples(*[st.floats(-1.0, 1.0)] * 4),
    context=st.one_of(st.just(()), st.tuples(*[st.one_of(st.floats(0.0, 10.0), st.just(math.nan))] * 6)),
)


def told(*pairs: tuple[float, float], noise: float = 0.0) -> Trust:
    """Trust after changes, each with what was predicted and what came."""
    return Trust(Evidence(predicted_score=said, observed_score=came, noise=noise) for said, came in pairs)


def test_trust_starts_at_one_half_and_follows_the_signs() -> None:
    good, bad = Trust(), Trust()
    assert good.ratio == 0.5
    for _ in range(30):
        good.realised(-0.05, -0.03)
        bad.realised(-0.05, 0.03)

    assert good.ratio > 0.85
    assert bad.ratio < 0.15


def test_one_trial_moves_trust_by_little() -> None:
    assert Trust().realised(-0.05, -0.03) == pytest.approx(3.0 / 5.0)
    assert Trust().realised(-0.05, 0.03) == pytest.approx(2.0 / 5.0)


def test_what_cannot_be_told_from_nothing_counts_half_and_the_unknown_not_at_all() -> None:
    trust = Trust()

    assert trust.realised(-0.05, 0.002, noise=0.01) == 0.5
    assert trust.realised(-0.05, math.nan) == 0.5
    assert trust.realised(math.nan, 0.05) == 0.5
    assert len(trust.evidence) == 1


def test_a_measurement_without_an_error_counts_in_full() -> None:
    assert Trust().realised(-0.05, 0.002, noise=math.nan) == pytest.approx(2.0 / 5.0)


AGREES, DISAGREES, WEAKLY, NOTHING = (-0.1, -0.05), (-0.1, 0.05), (-0.1, -0.005), (-0.1, 0.005)


@pytest.mark.parametrize(
    ("results", "region"),
    [
        ([], UNPROVEN_REGION),
        ([AGREES], 2 * UNPROVEN_REGION),
        ([AGREES] * 5, 1.0),
        ([DISAGREES], UNPROVEN_REGION / 2),
        ([AGREES] * 5 + [DISAGREES], 0.5),
        ([DISAGREES] * 20, LEAST_REGION),
        ([DISAGREES] * 20 + [AGREES] * 5, 1.0),
        # Too little to grow by, but the right way.
        ([WEAKLY], UNPROVEN_REGION),
        # Nothing that could be told from noise, so nothing learned.
        ([NOTHING], UNPROVEN_REGION),
    ],
)
def test_the_region_doubles_with_what_came_true_and_halves_with_what_did_not(
    results: list[tuple[float, float]], region: float
) -> None:
    assert told(*results, noise=0.01).region_at(0.0) == pytest.approx(region)


@given(evidence=st.lists(trials, max_size=MEMORY), at=st.floats(0.0, 4e9))
def test_the_region_stays_within_its_limits_and_an_old_one_is_that_of_the_beginning(
    evidence: list[Evidence], at: float
) -> None:
    assert LEAST_REGION <= Trust(evidence).region_at(at) <= 1.0
    assert Trust(evidence).region_at(1e12) == pytest.approx(UNPROVEN_REGION)


def test_distrust_fades_with_time_until_the_tuner_finds_back() -> None:
    trust = Trust()
    for _ in range(20):
        trust.realised(-0.05, 0.05, at_seconds=1e9)

    weeks = [trust.ratio_at(1e9 + week * HALF_LIFE_SECONDS) for week in range(8)]

    assert weeks == sorted(weeks)
    assert weeks[0] < 0.15
    assert weeks[-1] == pytest.approx(0.5, abs=0.02)


@given(st.lists(trials, max_size=12), st.floats(0.0, 4e9))
def test_time_brings_trust_nearer_to_one_half_and_never_beyond(evidence: list[Evidence], at: float) -> None:
    trust = Trust(evidence)

    now, later = trust.ratio_at(at) - 0.5, trust.ratio_at(at + 10 * HALF_LIFE_SECONDS) - 0.5

    assert abs(later) <= abs(now) + 1e-12
    assert later * now >= -1e-12


def test_a_clock_that_was_set_back_takes_nothing_from_the_evidence() -> None:
    trust = Trust()
    trust.realised(-0.05, 0.05, at_seconds=1e9)

    assert trust.ratio_at(0.0) == trust.ratio


def test_promises_that_rank_as_they_come_true_agree_and_others_do_not() -> None:
    assert told((-0.1, -0.03), (-0.05, -0.02), (-0.02, -0.01)).rank_agreement.tau == 1.0
    assert told((-0.1, 0.03), (-0.05, 0.02), (-0.02, 0.01)).rank_agreement.tau == -1.0
    one_of_three = told((-0.1, -0.03), (-0.05, -0.01), (-0.02, -0.02)).rank_agreement
    assert one_of_three.tau == pytest.approx(1 / 3)
    assert (one_of_three.pairs, one_of_three.changes) == (3, 3)


def test_pairs_within_their_noise_and_equal_promises_do_not_rank() -> None:
    close = told((-0.1, -0.03), (-0.05, -0.02), (-0.02, -0.2), noise=0.01).rank_agreement
    equal = told((-0.05, -0.03), (-0.05, 0.08)).rank_agreement

    assert (close.tau, close.pairs, close.changes) == (-1.0, 2, 3)
    assert math.isnan(equal.tau)
    assert (equal.pairs, equal.changes) == (0, 0)


def test_nothing_ranks_before_the_first_change() -> None:
    agreement = Trust().rank_agreement

    assert math.isnan(agreement.tau)
    assert agreement.pairs == agreement.changes == 0


def test_noise_alone_does_not_agree() -> None:
    generator = np.random.default_rng(4)
    taus = []
    for _ in range(50):
        drawn = [(float(said), float(came)) for said, came in generator.normal(0.0, 0.05, (40, 2))]
        taus.append(told(*drawn, noise=0.02).rank_agreement.tau)

    assert abs(np.mean(taus)) < 0.05


def test_signs_count_only_where_the_result_is_clear() -> None:
    assert math.isnan(told((-0.1, -0.01), noise=0.02).sign_hit_ratio)
    assert told((-0.1, -0.05), (-0.1, 0.05), (-0.1, 0.05), (-0.1, 0.01), noise=0.02).sign_hit_ratio == pytest.approx(
        1 / 3
    )


@given(st.lists(trials, max_size=MEMORY))
def test_all_of_it_survives_a_restart(evidence: list[Evidence]) -> None:
    trust = Trust(evidence)

    back = Trust.from_json(trust.to_json())

    assert back.to_json() == trust.to_json()
    assert back.ratio_at(2e9) == trust.ratio_at(2e9)


def test_it_is_bounded() -> None:
    trust = Trust()
    for number in range(MEMORY + 5):
        trust.realised(-0.05, -0.03, at_seconds=float(number))

    assert [one.at_seconds for one in trust.evidence] == [float(number) for number in range(5, MEMORY + 5)]


def _damaged(**changes: object) -> str:
    (good,) = json.loads(told((-0.1, -0.05)).to_json())
    return json.dumps([{**good, **changes}])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "{}",
        "[1]",
        "[{}]",
        _damaged(noise=-1.0),
        _damaged(noise=None),
        _damaged(observed_score="bad"),
        _damaged(moved=[0.0]),
        _damaged(moved=1.0),
        _damaged(context=[1.0]),
        _damaged(unknown=1.0),
        json.dumps(json.loads(told((-0.1, -0.05)).to_json()) * (MEMORY + 1)),
    ],
)
def test_a_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Trust.from_json(text)
