"""The rollout: its table, how a trial grows, and how often it errs in simulation."""

import json
import math
from collections import Counter
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.settings.model import VerifySettings
from tuner.values.knobs import DESIGN_RANGES, KnobValues, Role, middle
from tuner.values.metrics import DEFAULT_WEIGHTS, METRIC_INDEX, METRICS, MetricVector, metric_vector
from tuner.values.stages import FloatArray, Outcome, Receipt, Step, Verification
from tuner.verify.rollout import abandon, verify
from tuner.verify.trial import Sample, Trial, advance, begin

BEFORE = middle(DESIGN_RANGES.values())
AFTER = KnobValues.of({**BEFORE, Role.BASE_SLICE: 0.1})
USUAL = metric_vector(
    {
        "scheduling_latency_seconds": 0.3,
        "resource_idle_ratio": 0.2,
        "accelerator_utilization_ratio": 0.7,
        "queue_wait_seconds": 12.0,
        "tasks_completed_per_second": 2.0,
        "task_abandonment_ratio": 0.02,
        "switch_overhead_ratio": 0.07,
        "high_priority_wait_seconds": 1.5,
    }
)
UNKNOWN = np.full(13, np.nan)
WAIT = METRIC_INDEX["queue_wait_seconds"]
ONLY_WAIT = metric_vector({"queue_wait_seconds": 1.0})
ONLY_WAIT[np.isnan(ONLY_WAIT)] = 0.0
TERMS = VerifySettings(wash_out_seconds=120, window_seconds=600, min_samples=5, max_inconclusive=1, max_errors=3)
# Washing out, and five minutes that each sample looks back over.
SETTLE = 420.0


def metrics(score: float = 0.0, **others: float) -> MetricVector:
    """Metrics whose queue wait is worse than usual by a score of its own."""
    result = USUAL.copy()
    result[WAIT] *= math.exp(score)
    for name, value in others.items():
        result[METRIC_INDEX[name]] = value
    return result


def trial(
    noise: FloatArray | None = None,
    *,
    effective_at_seconds: float = 0.0,
    settle_seconds: float = SETTLE,
    **changes: Any,
) -> Trial:
    receipt = Receipt(
        cycle_id=3,
        before=BEFORE,
        after=AFTER,
        revision="4",
        effective_at_seconds=effective_at_seconds,
        applied=True,
        detail="",
    )
    scores = np.tile([0.01, 0.0, -0.01, 0.0], 8) if noise is None else noise
    given: dict[str, Any] = {
        "expected_score": -0.05,
        "terms": TERMS,
        "weights": ONLY_WAIT,
        "limits": UNKNOWN,
        "before_observed": np.array([metrics(score) for score in scores]),
        "before_untouched": np.tile(USUAL, (len(scores), 1)),
    }
    return begin(receipt, settle_seconds=settle_seconds, **{**given, **changes})


def look(at_seconds: float, observed: MetricVector, *, arriving: bool = True) -> Sample:
    return Sample(at_seconds=at_seconds, observed=observed, untouched=USUAL, arriving=arriving)


def live(start: Trial, *observed: MetricVector, first_at_seconds: float = SETTLE, step_seconds: float = 60.0) -> Trial:
    """The trial after looks at every minute."""
    for number, values in enumerate(observed):
        start = advance(start, look(first_at_seconds + number * step_seconds, values))
    return start


def around(score: float, *, count: int, spread: float = 0.01) -> list[MetricVector]:
    """Metrics that go up and down around a score."""
    return [metrics(score + spread * (-1) ** number) for number in range(count)]


FIRST_WINDOW = 11
"""Looks from the end of washing out to the end of the first window, both counted."""
BOTH_WINDOWS = 21
SPREAD = 0.2
"""Noise in which five per cent cannot be seen."""

NOISY = np.tile([SPREAD, -SPREAD], 16)

# Every phase with every result: the trial, the outcome and the step, and a part of the reason.
TABLE: dict[str, tuple[Trial, Outcome, Step, str]] = {
    "before any look, no washing out": (
        trial(settle_seconds=0.0),
        Outcome.INCONCLUSIVE,
        Step.WAIT,
        "no samples so far, 600 s to go",
    ),
    "before any look": (trial(), Outcome.INCONCLUSIVE, Step.WAIT, "washing out, 420 s to go"),
    "washing out": (live(trial(), metrics(9.0), first_at_seconds=60), Outcome.INCONCLUSIVE, Step.WAIT, "360 s to go"),
    "washing out, no data": (live(trial(), UNKNOWN, first_at_seconds=60), Outcome.ERROR, Step.WAIT, "at 1 of 3 looks"),
    "washing out, no data for long": (
        live(trial(), *[UNKNOWN] * 3, first_at_seconds=60),
        Outcome.ERROR,
        Step.ROLL_BACK,
        "no usable data at 3 looks in a row",
    ),
    "washing out, idle": (
        advance(trial(), look(60, UNKNOWN, arriving=False)),
        Outcome.INCONCLUSIVE,
        Step.WAIT,
        "nothing arrives: the comparison stands still at 0 samples",
    ),
    "too few samples, terrible": (live(trial(), *around(3.0, count=4)), Outcome.INCONCLUSIVE, Step.WAIT, "worse in 4"),
    "comparing, better": (live(trial(), *around(-0.3, count=6)), Outcome.INCONCLUSIVE, Step.WAIT, "300 s to go"),
    "comparing, a little worse": (live(trial(), *around(0.04, count=6)), Outcome.INCONCLUSIVE, Step.WAIT, "worse in 6"),
    "comparing, harm": (live(trial(), *around(0.1, count=5)), Outcome.FAILED, Step.ROLL_BACK, "likely over 5 %"),
    "comparing, perhaps harm": (
        live(trial(NOISY), *around(0.06, count=5, spread=SPREAD)),
        Outcome.INCONCLUSIVE,
        Step.WAIT,
        "so far",
    ),
    "comparing, no data": (
        live(trial(), *around(0.0, count=5), UNKNOWN, UNKNOWN),
        Outcome.ERROR,
        Step.WAIT,
        "at 2 of 3 looks",
    ),
    "comparing, no data for long": (
        live(trial(), *around(-0.3, count=5), *[UNKNOWN] * 3),
        Outcome.ERROR,
        Step.ROLL_BACK,
        "undone unseen",
    ),
    "comparing, idle": (
        advance(live(trial(), *around(-0.3, count=5)), look(9e9, UNKNOWN, arriving=False)),
        Outcome.INCONCLUSIVE,
        Step.WAIT,
        "stands still at 5 samples",
    ),
    "first end, better": (
        live(trial(), *around(-0.1, count=FIRST_WINDOW)),
        Outcome.SUCCESSFUL,
        Step.PROMOTE,
        "surely better (97.5 %)",
    ),
    "first end, worse": (
        live(trial(), *around(0.04, count=FIRST_WINDOW)),
        Outcome.FAILED,
        Step.ROLL_BACK,
        "worse at the end",
    ),
    "first end, beyond harm but unsure": (
        live(trial(NOISY), *around(0.06, count=FIRST_WINDOW, spread=SPREAD)),
        Outcome.FAILED,
        Step.ROLL_BACK,
        "worse at the end",
    ),
    "first end, neither": (
        live(trial(NOISY), *around(-0.05, count=FIRST_WINDOW, spread=SPREAD)),
        Outcome.INCONCLUSIVE,
        Step.WAIT,
        "extended by another 600 s",
    ),
    "first end, too few samples": (
        live(trial(), *around(-0.3, count=4), first_at_seconds=SETTLE + 600, step_seconds=1),
        Outcome.INCONCLUSIVE,
        Step.WAIT,
        "so far",
    ),
    "first end, one sample": (
        live(trial(), metrics(-0.3), first_at_seconds=SETTLE + 600),
        Outcome.INCONCLUSIVE,
        Step.WAIT,
        "1 of 5 samples needed: extended",
    ),
    "first end, no data": (
        live(trial(), *around(-0.1, count=FIRST_WINDOW - 1), UNKNOWN),
        Outcome.ERROR,
        Step.WAIT,
        "at 1 of 3 looks",
    ),
    "extended, better but not at its end": (
        live(trial(NOISY), *around(-0.05, count=FIRST_WINDOW, spread=SPREAD), *around(-0.4, count=5)),
        Outcome.INCONCLUSIVE,
        Step.WAIT,
        "so far, 300 s to go",
    ),
    "extended, harm": (
        live(trial(), *around(0.0, count=FIRST_WINDOW), *around(0.3, count=9)),
        Outcome.FAILED,
        Step.ROLL_BACK,
        "likely over 5 %",
    ),
    "last end, better": (
        live(trial(0.75 * NOISY), *around(-0.1, count=BOTH_WINDOWS, spread=0.75 * SPREAD)),
        Outcome.SUCCESSFUL,
        Step.PROMOTE,
        "surely better",
    ),
    "last end, worse": (
        live(trial(), *around(0.0, count=FIRST_WINDOW), *around(0.03, count=BOTH_WINDOWS - FIRST_WINDOW)),
        Outcome.FAILED,
        Step.ROLL_BACK,
        "worse at the end",
    ),
    "last end, neither, measured better": (
        live(trial(NOISY), *around(-0.05, count=BOTH_WINDOWS, spread=SPREAD)),
        Outcome.INCONCLUSIVE,
        Step.KEEP,
        "without calling it verified",
    ),
    "last end, neither, measured worse than nothing was expected": (
        live(trial(NOISY), *around(0.02, count=BOTH_WINDOWS, spread=SPREAD)),
        Outcome.INCONCLUSIVE,
        Step.ROLL_BACK,
        "not shown to help, so undone",
    ),
    "last end, neither, measured worse by less than was expected better": (
        live(trial(NOISY, expected_terms=0.05 * -ONLY_WAIT), *around(0.01, count=BOTH_WINDOWS, spread=SPREAD)),
        Outcome.INCONCLUSIVE,
        Step.KEEP,
        "kept on the belief",
    ),
    "last end, too few samples": (
        live(trial(), metrics(-0.3), metrics(-0.3), first_at_seconds=SETTLE + 600, step_seconds=600),
        Outcome.INCONCLUSIVE,
        Step.ROLL_BACK,
        "2 of 5 samples needed: not shown to help",
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_each_phase_with_each_result_has_its_outcome_and_step(name: str) -> None:
    given_trial, outcome, step, part = TABLE[name]

    verification = verify(given_trial, cycle_id=9)

    assert (verification.outcome, verification.step) == (outcome, step)
    assert part in verification.reason
    assert (verification.cycle_id, verification.change_cycle_id) == (9, 3)


DOCUMENTED = {
    (Outcome.INCONCLUSIVE, Step.WAIT),
    (Outcome.INCONCLUSIVE, Step.KEEP),
    (Outcome.INCONCLUSIVE, Step.ROLL_BACK),
    (Outcome.ERROR, Step.WAIT),
    (Outcome.ERROR, Step.ROLL_BACK),
    (Outcome.FAILED, Step.ROLL_BACK),
    (Outcome.SUCCESSFUL, Step.PROMOTE),
}


def test_every_documented_pair_of_outcome_and_step_is_in_the_table() -> None:
    assert {(outcome, step) for _, outcome, step, _ in TABLE.values()} == DOCUMENTED


LOOKS = st.tuples(st.floats(1, 900), st.sampled_from(["idle", "blind", "seen"]), st.floats(-2, 2) | st.just(math.nan))


@settings(max_examples=60)
@given(looks=st.lists(LOOKS, max_size=30))
def test_any_history_ends_in_a_documented_pair_and_success_only_at_the_end_of_a_window(
    looks: list[tuple[float, str, float]],
) -> None:
    running, at_seconds = trial(), 0.0

    for step_seconds, kind, score in looks:
        at_seconds += step_seconds
        observed = UNKNOWN if kind == "blind" else metrics(score)
        running = advance(running, look(at_seconds, observed, arriving=kind != "idle"))
        verification = verify(running, cycle_id=9)
        assert (verification.outcome, verification.step) in DOCUMENTED
        if verification.step is Step.PROMOTE:
            assert running.ending
            assert verification.observed_score < 0
            assert verification.samples >= TERMS.min_samples
        if verification.step is not Step.WAIT:
            break
    # It cannot wait for ever on a clock that runs.
    over = running.compared_seconds >= TERMS.window_seconds * (TERMS.max_inconclusive + 1)
    assert not (running.extensions > TERMS.max_inconclusive and over)


def test_idle_time_stops_the_clock() -> None:
    busy = live(trial(), *around(-0.1, count=6))
    idle = advance(busy, look(busy.last_at_seconds + 5000, UNKNOWN, arriving=False))
    again = live(idle, *around(-0.1, count=5), first_at_seconds=idle.last_at_seconds + 60)

    assert idle.compared_seconds == busy.compared_seconds
    assert len(idle.times_seconds) == len(busy.times_seconds)
    assert verify(again, cycle_id=9).step is Step.PROMOTE


def test_one_usable_look_forgives_the_looks_without_data() -> None:
    running = live(trial(), UNKNOWN, UNKNOWN, metrics(), UNKNOWN, UNKNOWN)

    assert running.errors == 2
    assert verify(running, cycle_id=9).step is Step.WAIT


def test_samples_from_the_time_of_washing_out_are_thrown_away() -> None:
    running = live(trial(), *around(5.0, count=8), first_at_seconds=30)

    assert running.times_seconds.tolist() == [450.0]


@pytest.mark.parametrize("at_seconds", [SETTLE, SETTLE - 60, math.nan])
def test_a_look_that_is_not_newer_changes_nothing(at_seconds: float) -> None:
    running = live(trial(), metrics())

    assert advance(running, look(at_seconds, metrics(1.0))) is running


@pytest.mark.parametrize(
    ("missing", "usable"),
    [
        (("high_priority_wait_seconds",), True),
        (("resource_idle_ratio",), True),
        (("queue_wait_seconds",), False),
        (("high_priority_wait_seconds", "resource_idle_ratio"), False),
        (("node_power_watts", "task_abandonment_ratio"), True),
    ],
)
def test_a_sample_that_lacks_too_much_of_the_score_is_an_error(missing: tuple[str, ...], usable: bool) -> None:
    running = trial(weights=DEFAULT_WEIGHTS)

    after = live(running, metrics(**dict.fromkeys(missing, math.nan)))

    assert after.errors == (0 if usable else 1)
    assert len(after.times_seconds) == (1 if usable else 0)


def test_an_infinite_value_is_no_sample() -> None:
    assert live(trial(), metrics(queue_wait_seconds=math.inf)).errors == 1
    assert live(trial(), metrics(queue_wait_seconds=-math.inf)).errors == 1


def test_a_metric_that_was_not_seen_before_the_change_is_not_compared() -> None:
    blind = np.tile(USUAL, (10, 1))
    blind[2:, WAIT] = math.nan
    running = trial(weights=DEFAULT_WEIGHTS, before_observed=blind, before_untouched=np.tile(USUAL, (10, 1)))

    after = live(running, *around(5.0, count=6))

    assert np.isnan(after.residual[WAIT])
    assert np.allclose(after.scores().values, 0.0)


def test_a_change_after_a_time_without_any_data_cannot_be_verified_and_is_undone() -> None:
    running = trial(before_observed=np.empty((0, 13)), before_untouched=np.empty((0, 13)))

    verification = verify(live(running, *around(-0.5, count=3)), cycle_id=9)

    assert (verification.outcome, verification.step) == (Outcome.ERROR, Step.ROLL_BACK)


def test_a_twin_that_is_wrong_by_a_factor_is_anchored_to_what_was_observed_before() -> None:
    wrong = USUAL * 3.0
    running = trial(
        weights=DEFAULT_WEIGHTS, before_observed=np.tile(USUAL, (12, 1)), before_untouched=np.tile(wrong, (12, 1))
    )

    for number in range(6):
        sample = Sample(at_seconds=SETTLE + number, observed=2.0 * USUAL, untouched=2.0 * wrong)
        running = advance(running, sample)

    # Twice the load doubles both; a utilisation above one cannot be, so it is cut there.
    np.testing.assert_allclose(running.counterfactual[0], np.minimum(2.0 * USUAL, [spec.upper for spec in METRICS]))


def test_a_receipt_that_never_became_effective_starts_no_trial() -> None:
    with pytest.raises(ValueError, match="change of cycle 3 was not seen to be in force"):
        trial(effective_at_seconds=math.nan)


LIMITS = metric_vector({"task_abandonment_ratio": 0.05})


@pytest.mark.parametrize(
    ("observed", "untouched", "failed"),
    [
        (0.049, 0.02, False),
        (0.06, 0.02, True),
        # The setting before would have been there, too.
        (0.08, 0.08, False),
        (0.083, 0.08, False),
        (0.10, 0.08, True),
        (math.nan, 0.02, False),
    ],
)
def test_a_safety_limit_fails_a_change_that_leads_beyond_it_however_good_its_score(
    observed: float, untouched: float, failed: bool
) -> None:
    usual = metrics(task_abandonment_ratio=untouched)
    running = trial(limits=LIMITS, before_observed=np.tile(usual, (12, 1)), before_untouched=np.tile(usual, (12, 1)))
    for number in range(6):
        spread = 1.0 + 0.001 * (-1) ** number
        seen = metrics(-0.5, task_abandonment_ratio=observed * spread)
        running = advance(running, Sample(at_seconds=SETTLE + 60 * number, observed=seen, untouched=usual))

    verification = verify(running, cycle_id=9)

    assert (verification.outcome is Outcome.FAILED) is failed
    told = f"task_abandonment_ratio is {observed:.3g}, beyond its limit of 0.05 ratio, and would not have been"
    assert (told == verification.reason) is failed


def test_a_safety_limit_that_is_broken_now_and_then_fails_nothing_by_itself() -> None:
    running = trial(limits=LIMITS)
    seen = [metrics(-0.1, task_abandonment_ratio=value) for value in (0.06, 0.06, 0.04, 0.06, 0.06, 0.06, 0.06)]

    assert verify(live(running, *seen), cycle_id=9).step is Step.WAIT
    assert verify(live(running, *seen, seen[0]), cycle_id=9).outcome is Outcome.FAILED


def test_the_verification_holds_the_means_of_both_sides() -> None:
    verification = verify(live(trial(), metrics(0.0), metrics(math.log(2.0))), cycle_id=9)

    assert verification.samples == 2
    assert verification.observed[WAIT] == pytest.approx(18.0)
    assert verification.counterfactual[WAIT] == pytest.approx(12.0)
    assert verification.observed_score == pytest.approx(0.5 * math.log(2.0))
    assert math.isnan(verification.observed[METRIC_INDEX["node_power_watts"]])
    assert verification.expected_score == -0.05


def test_an_abandoned_trial_writes_nothing_and_is_no_success() -> None:
    verification = abandon(live(trial(), *around(-0.5, count=20)), cycle_id=9, reason="somebody set the slice")

    assert verification.outcome is Outcome.ERROR
    assert verification.step is Step.WAIT
    assert verification.reason == "trial abandoned, nothing written: somebody set the slice"


@pytest.mark.parametrize("name", TABLE)
def test_a_trial_survives_a_restart_and_decides_as_before(name: str) -> None:
    running = TABLE[name][0]

    back = Trial.from_json(running.to_json())

    assert _told(verify(back, cycle_id=9)) == _told(verify(running, cycle_id=9))
    assert back.to_json() == running.to_json()
    for item in fields(Trial):
        np.testing.assert_array_equal(getattr(back, item.name), getattr(running, item.name))


def test_a_stored_trial_of_another_version_is_refused() -> None:
    plain = json.loads(trial().to_json())
    del plain["idle"]

    with pytest.raises(ValueError, match="other fields"):
        Trial.from_json(json.dumps(plain))


def test_the_terms_are_those_under_which_the_trial_began() -> None:
    longer = TERMS.model_copy(update={"window_seconds": 86_400.0})

    assert verify(live(trial(terms=longer), *around(-0.1, count=FIRST_WINDOW)), cycle_id=9).step is Step.WAIT


def simulate(seed: int, *, effect: float, runs: int = 150, noise: float = 0.05, rho: float = 0.6) -> Counter[str]:
    """Count how trials end whose score is an effect plus autocorrelated noise."""
    terms = VerifySettings(wash_out_seconds=0)
    generator = np.random.default_rng(seed)
    results: Counter[str] = Counter()
    for _ in range(runs):
        shocks = generator.normal(size=75) * noise * math.sqrt(1.0 - rho**2)
        series = np.empty(75)
        level = generator.normal() * noise
        for place, shock in enumerate(shocks):
            series[place] = level = rho * level + shock
        running = trial(series[:45], terms=terms, settle_seconds=0.0)
        for number, value in enumerate(series[45:], start=1):
            running = advance(running, look(60.0 * number, metrics(effect + value)))
            verification = verify(running, cycle_id=9)
            if verification.step is not Step.WAIT:
                break
        early = verification.outcome is Outcome.FAILED and verification.samples < 15
        results["stopped early" if early else verification.outcome] += 1
        results["samples"] += verification.samples
    return results


def test_changes_without_effect_are_seldom_promoted_and_seldom_stopped_for_harm() -> None:
    ends = simulate(1, effect=0.0)

    # Stated: at most 5 % promoted; 150 runs tell that to about 1.8 %.
    assert ends[Outcome.SUCCESSFUL] / 150 <= 0.05 + 0.036
    assert ends["stopped early"] / 150 <= 0.10


def test_a_gain_of_a_tenth_is_mostly_promoted() -> None:
    ends = simulate(2, effect=-0.1, runs=100)

    assert ends[Outcome.SUCCESSFUL] >= 80
    assert ends[Outcome.FAILED] + ends["stopped early"] <= 1


def test_a_harm_of_a_tenth_is_found_within_a_few_samples() -> None:
    ends = simulate(3, effect=0.1, runs=100)

    # Most at once, the rest at the end of the window; none is kept.
    assert ends["stopped early"] >= 70
    assert ends["stopped early"] + ends[Outcome.FAILED] >= 97
    assert ends[Outcome.SUCCESSFUL] == 0
    assert ends["samples"] / 100 <= 8


def _told(verification: Verification) -> tuple[Any, ...]:
    return (verification.outcome, verification.step, verification.reason, verification.samples)
