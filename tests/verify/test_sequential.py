"""The sequential test: what its evidence promises, by arithmetic and by simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student

from tuner.values.stages import FloatArray
from tuner.verify.sequential import LEAST_LOG, MAX_PAST_DEGREES, Noise, Plan, deviation, evidence, past_noise

PLAN = Plan(alpha=0.05, pairs=5, power=2.0)
NOISE = Noise(squares=4 * 0.07**2, degrees=4.0)

# Scores to the thousandth: what is smaller is rounding.
values = st.lists(st.integers(-500, 500), min_size=1, max_size=4).map(lambda found: np.array(found) / 1000)
noises = st.one_of(st.just(Noise()), st.builds(Noise, squares=st.floats(1e-4, 1.0), degrees=st.floats(1.0, 30.0)))
plans = st.builds(
    Plan, alpha=st.floats(0.005, 0.3), pairs=st.integers(4, 8), power=st.sampled_from([0.5, 1.0, 2.0, 4.0])
)


def futures(seen: FloatArray, noise: Noise, count: int, seed: int) -> FloatArray:
    """Draw what may come next without an effect: Student's, for a variance that is told by what was seen."""
    degrees = noise.degrees + len(seen)
    spread = math.sqrt((noise.squares + float((seen**2).sum())) / degrees)
    # Equally likely points instead of draws: the mean over them is exact but for the tails.
    points = (np.arange(count) + np.random.default_rng(seed).random(count)) / count
    return np.asarray(spread * student.ppf(points, degrees))


@settings(max_examples=40)
@given(seen=values, noise=noises, plan=plans, seed=st.integers(0, 9))
def test_without_an_effect_the_evidence_is_a_martingale(seen: FloatArray, noise: Noise, plan: Plan, seed: int) -> None:
    seen = seen[: plan.pairs - 1]
    if not np.any(seen):
        return
    now = math.exp(evidence(seen, noise, plan))

    after = [math.exp(evidence(np.append(seen, each), noise, plan)) for each in futures(seen, noise, 400, seed)]

    # In units of the largest that it may become: a decision is worth 1.
    assert np.mean(after) * plan.alpha == pytest.approx(now * plan.alpha, abs=0.01)


def test_before_the_first_pair_there_is_no_evidence() -> None:
    assert evidence(np.empty(0), NOISE, PLAN) == 0.0
    assert evidence(np.zeros(3), Noise(), PLAN) == 0.0
    assert evidence(np.array([1e-16, 1.1e-16, 1e-16]), Noise(), PLAN) == 0.0


@settings(max_examples=60)
@given(seen=values, noise=noises, plan=plans, factor=st.floats(0.01, 100.0))
def test_the_unit_of_the_values_does_not_matter(seen: FloatArray, noise: Noise, plan: Plan, factor: float) -> None:
    scaled = Noise(noise.squares * factor**2, noise.degrees)

    assert evidence(seen * factor, scaled, plan) == pytest.approx(evidence(seen, noise, plan), abs=1e-6)


@settings(max_examples=60)
@given(seen=values, noise=noises, plan=plans)
def test_the_evidence_is_finite_and_bounded(seen: FloatArray, noise: Noise, plan: Plan) -> None:
    # All tests may reject at once, and none more than once.
    assert LEAST_LOG <= evidence(seen, noise, plan) <= math.log(plan.pairs / plan.alpha) + 1e-9


def test_the_last_test_is_the_usual_t_test_at_its_share() -> None:
    plan = Plan(alpha=0.05, pairs=1, power=1.0)
    critical = float(student.isf(0.05, NOISE.degrees))
    spread = math.sqrt(NOISE.squares / NOISE.degrees)

    just_enough, just_not = (evidence(np.array([critical * spread * near]), NOISE, plan) for near in (1.001, 0.999))

    assert just_enough >= plan.enough > just_not
    assert just_not == LEAST_LOG


def test_one_pair_without_any_knowledge_of_the_noise_decides_nothing() -> None:
    assert evidence(np.array([5.0]), Noise(), PLAN) < PLAN.enough
    assert Plan(alpha=0.05, pairs=1, power=1.0).ratios(0.0).tolist() == [math.inf]


def test_the_same_pairs_tell_less_where_less_is_known_of_the_noise() -> None:
    pairs = np.array([0.16, 0.12, 0.15])

    told = [evidence(pairs, Noise(0.07**2 * degrees, degrees), PLAN) for degrees in (1.0, 4.0, 30.0)]

    assert told == sorted(told)


def test_more_gain_is_more_evidence_and_harm_is_none() -> None:
    told = [evidence(np.full(3, gain), NOISE, PLAN) for gain in (-0.1, 0.0, 0.05, 0.1, 0.2)]

    assert told == sorted(told)
    assert told[0] < math.log(0.05)
    assert told[-1] >= PLAN.enough


@pytest.mark.parametrize("power", [0.5, 4.0])
@pytest.mark.parametrize("past", [0, 4, 11])
def test_however_often_it_is_looked_at_equals_are_told_apart_no_more_often_than_promised(
    power: float, past: int
) -> None:
    plan = Plan(alpha=0.1, pairs=5, power=power)
    rng = np.random.default_rng(past)
    trials = 1500

    found = 0
    for _ in range(trials):
        noise = past_noise(np.diff(rng.normal(0.0, 0.05, past + 1)))
        pairs = rng.normal(0.0, 0.0707, plan.pairs)
        found += any(evidence(pairs[:count], noise, plan) >= plan.enough for count in range(1, plan.pairs + 1))

    # Three standard errors of that many trials.
    assert found / trials <= plan.alpha + 3 * math.sqrt(plan.alpha * (1 - plan.alpha) / trials)
    # And it is not for want of ever deciding.
    assert found > 0


def test_a_gain_of_twice_the_noise_of_a_leg_is_found_within_five_pairs_mostly() -> None:
    plan = Plan(alpha=0.03, pairs=5, power=4.0)
    rng = np.random.default_rng(5)

    found = [
        any(evidence(pairs[:count], NOISE, plan) >= plan.enough for count in range(1, 6))
        for pairs in rng.normal(0.1, 0.0707, (400, 5))
    ]

    assert np.mean(found) > 0.65


def test_the_past_tells_the_noise_as_far_as_legs_are_shared_and_only_roughly() -> None:
    few = past_noise(np.array([0.1, -0.1, np.nan, 0.1]))
    many = past_noise(np.full(50, 0.1))

    assert few.degrees == pytest.approx(2.0)
    assert many.degrees == MAX_PAST_DEGREES
    assert few.squares / few.degrees == pytest.approx(0.01)
    assert many.squares / many.degrees == pytest.approx(0.01)
    assert past_noise(np.array([np.nan])) == Noise()


def test_the_deviation_is_pooled_from_past_and_pairs() -> None:
    spread, degrees = deviation(np.array([0.1, 0.3]), Noise(squares=0.06, degrees=3.0))

    assert degrees == 4.0
    assert spread == pytest.approx(math.sqrt((0.06 + 0.02) / 4))
    assert math.isnan(deviation(np.empty(0), Noise())[0])
    assert math.isnan(deviation(np.array([0.1]), Noise())[0])
