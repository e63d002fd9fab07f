"""The switchback: how it grows by looks and switches, and every row of its table."""

import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.verify.test_rollout import AFTER, BEFORE, ONLY_WAIT, UNKNOWN, USUAL, metrics
from tuner.settings.model import VerifySettings
from tuner.values.knobs import KnobValues, Role
from tuner.values.metrics import DEFAULT_WEIGHTS, METRIC_INDEX, MetricVector, metric_vector, score_terms
from tuner.values.stages import FloatArray, Outcome, Receipt, Step, Verification
from tuner.verify.legs import HARM_ALPHA
from tuner.verify.past import leg_terms, neighbours, past_legs
from tuner.verify.switchback import (
    Leg,
    Look,
    Seen,
    Switchback,
    abandon,
    advance,
    begin,
    believe,
    compared,
    learned_wash_out,
    switched,
    verify,
    witnessed,
)

MINUTE = 60.0
WINDOW = 120.0
TERMS = VerifySettings(
    leg_seconds=600, wash_out_seconds=300, max_pairs=5, max_errors=3, max_inconclusive=1, harm_ratio=0.05, min_samples=5
)
# Neighbours that differ by 2 % in turns.
NOISE = np.tile(np.where(ONLY_WAIT > 0, 0.02, np.nan), (12, 1)) * np.resize([1, -1], 12)[:, None]


def receipt(knobs: KnobValues, at_seconds: float) -> Receipt:
    return Receipt(
        cycle_id=3, before=BEFORE, after=knobs, revision="4", effective_at_seconds=at_seconds, applied=True, detail=""
    )


def trial(*, effective_at_seconds: float = 0.0, **changes: Any) -> Switchback:
    given: dict[str, Any] = {
        "expected_score": -0.1,
        "expected_terms": np.where(ONLY_WAIT > 0, -0.1, np.nan),
        "terms": TERMS,
        "weights": ONLY_WAIT,
        "limits": UNKNOWN,
        "recent_window_seconds": WINDOW,
        "queue_wait_seconds": math.nan,
        "alpha": 0.03,
        "first_before": Look(at_seconds=effective_at_seconds, metrics=metrics()),
        "noise": NOISE,
    }
    return begin(receipt(AFTER, effective_at_seconds), **{**given, **changes})


def look(at_seconds: float, score: float = 0.0, **others: Any) -> Look:
    return Look(at_seconds=at_seconds, metrics=others.pop("metrics", metrics(score)), **others)


class Driver:
    """Drives a trial as a cycle does: looks once a minute, and switches where it is asked to."""

    def __init__(self, running: Switchback, *, effect: float = 0.0, wobble: float = 0.0, seed: int = 0) -> None:
        self.trial = running
        self.effect = effect
        self.wobble = wobble
        self.said: list[Verification] = []
        self._rng = np.random.default_rng(seed)

    @property
    def last(self) -> Verification:
        return self.said[-1]

    def look(self, **others: Any) -> Verification:
        at_seconds = self.trial.last_at_seconds + MINUTE
        effect = self.effect if self.trial.in_force is Leg.AFTER else 0.0
        given = {"metrics": metrics(effect + self.wobble * self._rng.normal()), **others}
        self.trial = advance(self.trial, Look(at_seconds=at_seconds, **given))
        self.said.append(verify(self.trial, cycle_id=len(self.said)))
        return self.last

    def minutes(self, count: int, **others: Any) -> Verification:
        for _ in range(count):
            if self.look(**others).step is Step.SWITCH:
                self.switch()
        return verify(self.trial, cycle_id=len(self.said))

    def switch(self) -> None:
        knobs = AFTER if self.trial.wanted is Leg.AFTER else BEFORE
        self.trial = switched(self.trial, receipt(knobs, self.trial.last_at_seconds))

    def to_end(self, most: int = 300) -> Verification:
        for _ in range(most):
            step = self.look().step
            if step is Step.SWITCH:
                self.switch()
            elif step is not Step.WAIT:
                return self.last
        raise AssertionError(f"no end within {most} minutes: {self.last.reason}")


def test_no_metric_counts_by_more_than_a_factor_of_e_in_a_pair() -> None:
    weights = np.where(ONLY_WAIT > 0, 0.25, 0.0)
    calm, wild = metrics(0.0), metrics(0.0)
    wild[ONLY_WAIT > 0] = calm[ONLY_WAIT > 0] * 100.0

    assert np.nansum(leg_terms(wild, calm, weights=weights)) == 0.25
    assert np.nansum(leg_terms(calm, wild, weights=weights)) == -0.25
    assert np.nansum(leg_terms(calm * 1.5, calm, weights=weights)) == pytest.approx(0.25 * math.log(1.5))


# How it grows.


def test_the_first_leg_is_that_of_the_change_and_pairs_with_the_look_before_it() -> None:
    driver = Driver(trial(), effect=-0.02)

    said = driver.minutes(15)

    assert said.pairs == 1
    assert said.samples == 9  # From 300 + 120 s to 900 s.
    assert said.observed_score == pytest.approx(-0.02)
    assert said.observed == pytest.approx(metrics(-0.02), nan_ok=True)
    assert said.counterfactual == pytest.approx(USUAL, nan_ok=True)


def test_without_a_look_before_the_other_setting_comes_next() -> None:
    driver = Driver(trial(first_before=None))

    said = [driver.look() for _ in range(15)]

    assert [each.step for each in said] == [Step.WAIT] * 14 + [Step.SWITCH]
    assert driver.trial.wanted is Leg.BEFORE
    driver.switch()
    assert driver.trial.in_force is Leg.BEFORE
    assert driver.minutes(15).pairs == 1


def test_legs_run_abba_and_neighbours_of_one_setting_need_no_wash_out() -> None:
    driver = Driver(trial(), wobble=0.02)
    order: list[tuple[float, Leg]] = []

    while driver.trial.pairs < 4 and driver.look().step in {Step.WAIT, Step.SWITCH}:
        if driver.last.step is Step.SWITCH:
            order.append((driver.trial.last_at_seconds / MINUTE, driver.trial.in_force))
            driver.switch()

    # A | B B | A A | B B | A: wash-out 5, leg 10, leg 10, ...
    assert order == [(25.0, Leg.AFTER), (50.0, Leg.BEFORE), (75.0, Leg.AFTER)]
    assert driver.trial.last_at_seconds == 90 * MINUTE


def test_looks_that_reach_back_into_the_wash_out_or_the_leg_before_do_not_count() -> None:
    driver = Driver(trial())
    driver.minutes(6, metrics=metrics(3.0))  # 360 s: its window began at 240 s, in the wash-out.
    assert driver.trial.samples == 0

    said = driver.minutes(9)

    assert said.observed_score == pytest.approx(0.0)


def test_a_look_that_is_not_newer_changes_nothing() -> None:
    running = advance(trial(), look(500.0))

    assert advance(running, look(500.0, 5.0)) is running
    assert advance(running, look(400.0, 5.0)) is running


def test_sparse_looks_end_a_leg_at_the_first_one_after_its_time() -> None:
    running = trial()
    for at_seconds in (0.0, 300.0, 600.0, 900.0):
        running = advance(running, look(at_seconds))

    assert running.pairs == 1
    assert running.samples == 2


def test_an_even_drift_drops_out_of_two_pairs() -> None:
    # The leg before the change is a mean, too: of the looks from minute -8 to 0.
    driver = Driver(trial(noise=None, first_before=look(0.0, -0.004)))
    while driver.trial.pairs < 2:
        minute = 1 + driver.trial.last_at_seconds / MINUTE
        if driver.look(metrics=metrics(0.001 * minute)).step is Step.SWITCH:
            driver.switch()

    first, second = driver.trial.differences()

    assert first == pytest.approx(0.015, rel=1e-3)
    assert second == pytest.approx(-0.015, rel=1e-3)


def test_while_nothing_arrives_or_another_mode_runs_the_clock_stands_still() -> None:
    driver = Driver(trial())
    driver.minutes(8)
    idle = driver.look(arriving=False)
    other = driver.look(comparable=False)

    assert (idle.outcome, idle.step) == (Outcome.INCONCLUSIVE, Step.WAIT)
    assert "nothing arrives" in idle.reason
    assert (other.outcome, other.step) == (Outcome.INCONCLUSIVE, Step.WAIT)
    assert "full policy" in other.reason
    # Two minutes later than without, and the first looks after it reach back to it.
    assert driver.minutes(6).pairs == 0
    assert driver.trial.samples == 2 + 5
    assert driver.minutes(1).pairs == 1


def test_a_restart_begins_the_leg_anew() -> None:
    driver = Driver(trial())
    driver.minutes(10)

    said = driver.look(restarted=True)

    assert (said.outcome, said.step) == (Outcome.INCONCLUSIVE, Step.WAIT)
    assert "restarted" in said.reason
    assert not len(driver.trial.looked)
    assert driver.minutes(14).pairs == 0
    assert driver.minutes(1).pairs == 1


def test_halves_that_were_torn_apart_are_no_pair() -> None:
    driver = Driver(trial())
    driver.minutes(14)
    driver.minutes(20, arriving=False)

    driver.minutes(1)
    for _ in range(3):
        driver.look()

    assert driver.trial.pairs == 0
    assert driver.trial.dropped == 1
    # The later half begins a new pair: the setting before comes next.
    assert driver.trial.wanted is Leg.BEFORE
    driver.switch()
    assert driver.minutes(15).pairs == 1


def test_a_comparison_that_is_torn_apart_too_often_ends() -> None:
    driver = Driver(trial())
    for _ in range(2):
        driver.minutes(10)
        driver.minutes(30, arriving=False)
        while driver.look().step is Step.WAIT:
            pass
        if driver.last.step is Step.SWITCH:
            driver.switch()

    assert driver.last.step is Step.ROLL_BACK
    assert driver.last.outcome is Outcome.INCONCLUSIVE
    assert "torn from their partners" in driver.last.reason


def test_a_metric_that_is_missing_is_left_out_and_one_that_weighs_too_much_is_an_error() -> None:
    running = trial(weights=DEFAULT_WEIGHTS, noise=None)
    light, heavy = USUAL.copy(), USUAL.copy()
    light[METRIC_INDEX["resource_idle_ratio"]] = math.inf
    heavy[METRIC_INDEX["queue_wait_seconds"]] = math.nan

    assert advance(running, look(60.0, metrics=light)).errors == 0
    assert advance(running, look(60.0, metrics=heavy)).errors == 1


def test_a_look_before_without_metrics_is_none() -> None:
    running = trial(first_before=Look(at_seconds=0.0, metrics=UNKNOWN))

    assert math.isnan(running.partner_at_seconds)


def test_whose_turn_it_is_not_is_refused() -> None:
    driver = Driver(trial(first_before=None))
    driver.minutes(1)
    with pytest.raises(ValueError, match="whose turn it is"):
        switched(driver.trial, receipt(BEFORE, 900.0))
    foreign = KnobValues.of({**BEFORE, Role.BASE_SLICE: 0.14})
    with pytest.raises(ValueError, match="slice 140 ms"):
        switched(driver.trial, receipt(foreign, 900.0))
    with pytest.raises(ValueError, match="not seen to be in force"):
        switched(driver.trial, receipt(AFTER, math.nan))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"effective_at_seconds": math.nan}, "not seen to be in force"),
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": 1.0}, "alpha"),
    ],
)
def test_a_trial_needs_a_change_in_force_and_a_chance(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trial(**changes)


@pytest.mark.parametrize(
    ("queue_wait", "wash_out"), [(math.nan, 300.0), (10.0, 300.0), (700.0, 700.0), (9000.0, 1800.0)]
)
def test_the_wash_out_is_as_long_as_work_waits(queue_wait: float, wash_out: float) -> None:
    assert learned_wash_out(queue_wait, TERMS) == wash_out
    assert trial(queue_wait_seconds=queue_wait).wash_out_seconds == wash_out


def test_a_wash_out_is_never_shorter_than_its_least() -> None:
    assert learned_wash_out(2000.0, replace_terms(wash_out_seconds=900, max_wash_out_seconds=600)) == 900.0


def replace_terms(**changes: Any) -> VerifySettings:
    return VerifySettings.model_validate({**TERMS.model_dump(), **changes})


# What the past tells.


def test_the_past_is_cut_into_legs_as_they_would_have_been() -> None:
    times = np.arange(60.0, 3601.0, 60.0)
    past = np.array([metrics(minute / 100) for minute in range(1, 61)])

    legs = past_legs(times, past, wash_out_seconds=300, leg_seconds=600, recent_window_seconds=120)

    # They end at minutes 15, 30, 45 and 60, and what counts begins eight minutes earlier.
    assert len(legs) == 4
    for leg, end in zip(legs, (15, 30, 45, 60), strict=True):
        assert leg == pytest.approx(past[end - 9 : end].mean(axis=0), nan_ok=True)


def test_no_more_of_the_past_is_taken_than_asked_for_and_none_of_none() -> None:
    times, past = np.arange(60.0, 3601.0, 60.0), np.tile(USUAL, (60, 1))

    def cut(count: int) -> FloatArray:
        return past_legs(
            times[:count], past[:count], wash_out_seconds=300, leg_seconds=600, recent_window_seconds=120, most=2
        )

    assert cut(60).shape == (2, 13)
    assert cut(8).shape == (0, 13)
    assert cut(0).shape == (0, 13)
    assert neighbours(cut(8), weights=ONLY_WAIT).shape == (0, 13)


def test_neighbours_tell_the_noise() -> None:
    legs = np.array([metrics(score) for score in (0.0, 0.03, 0.01)])

    terms = neighbours(legs, weights=ONLY_WAIT)

    assert np.nansum(terms, axis=1) == pytest.approx([0.03, -0.02])
    assert trial(noise=terms).noise.degrees == pytest.approx(4 / 3)


# What it says.


def test_a_gain_that_is_certain_is_promoted_and_no_sooner() -> None:
    driver = Driver(trial(), effect=-0.2, wobble=0.01)

    said = driver.to_end()

    assert (said.outcome, said.step) == (Outcome.SUCCESSFUL, Step.PROMOTE)
    assert not said.harm
    assert said.pairs <= 3
    assert said.evidence >= math.log(1 / 0.03) - 1e-6
    assert said.observed_score == pytest.approx(-0.2, abs=0.02)
    assert "needed: surely better" in said.reason
    assert all(each.step in {Step.WAIT, Step.SWITCH} for each in driver.said[:-1])


def test_what_was_said_at_the_end_is_said_again() -> None:
    driver = Driver(trial(), effect=-0.2, wobble=0.01)
    said = driver.to_end()

    again = driver.look(arriving=False)

    assert (again.step, again.evidence) == (said.step, said.evidence)


def test_harm_that_is_likely_is_undone_at_the_end_of_a_pair() -> None:
    driver = Driver(trial(), effect=0.06, wobble=0.005)

    said = driver.to_end()

    assert (said.outcome, said.step, said.harm) == (Outcome.FAILED, Step.ROLL_BACK, True)
    assert said.pairs == 1
    assert "worse" in said.reason
    assert f"against {1 / HARM_ALPHA:g}" in said.reason


def test_harm_beyond_all_noise_is_undone_within_the_leg() -> None:
    driver = Driver(trial(), effect=1.0)

    said = driver.to_end()

    assert (said.outcome, said.step, said.harm) == (Outcome.FAILED, Step.ROLL_BACK, True)
    assert said.pairs == 0
    assert said.samples == 1
    assert "harm within the leg" in said.reason


def test_nothing_is_beyond_a_noise_that_is_not_known() -> None:
    driver = Driver(trial(noise=None), effect=1.0)

    assert driver.minutes(14).step is Step.WAIT


def unproven(**changes: Any) -> Switchback:
    return trial(**{"allowance": 60.0, "terms": replace_terms(max_pairs=2), **changes})


def test_a_change_that_costs_more_than_it_may_is_undone_within_its_wash_out_whatever_is_known_of_the_noise() -> None:
    driver = Driver(unproven(noise=None, allowance=30.0), effect=0.2)

    said = driver.to_end()

    # 20 % worse for the two minutes that the first clean look stands for are 24, for three 36.
    assert driver.trial.last_at_seconds == 3 * MINUTE < driver.trial.leg_at_seconds
    assert (said.outcome, said.step, said.harm) == (Outcome.FAILED, Step.ROLL_BACK, True)
    assert driver.trial.cost == pytest.approx(36.0)
    assert "cost as much as 60 ± 0 min at a score 1 % worse" in said.reason
    assert "a trial may cost 50" in said.reason


def test_without_an_allowance_the_comparison_takes_its_time() -> None:
    assert Driver(trial(noise=None), effect=0.2).minutes(14).step is Step.WAIT


@given(effect=st.floats(-0.05, 0.049), minutes=st.integers(0, 120))
@settings(max_examples=40, deadline=None)
def test_only_time_under_the_setting_on_trial_is_counted_as_its_cost(effect: float, minutes: int) -> None:
    driver = Driver(trial(noise=None), effect=effect)
    tried = 0.0
    for _ in range(minutes):
        running = driver.trial
        driver.minutes(1)
        if running.in_force is Leg.AFTER and driver.trial.costed_at_seconds > running.costed_at_seconds:
            tried += driver.trial.tried_seconds - running.tried_seconds

    assert driver.trial.tried_seconds == pytest.approx(tried)
    assert driver.trial.tried_seconds <= driver.trial.last_at_seconds
    assert driver.trial.cost == pytest.approx(effect * tried, abs=1e-6)


def test_time_in_which_nothing_can_be_told_costs_nothing() -> None:
    driver = Driver(trial(), effect=0.04)
    driver.minutes(4)
    known = driver.trial.cost
    driver.minutes(10, arriving=False)

    assert driver.trial.cost == known > 0


def test_what_a_twin_that_is_not_proven_promised_does_not_keep_a_change_that_nothing_else_speaks_for() -> None:
    promise: dict[str, Any] = {
        "expected_score": -0.05,
        "expected_terms": np.where(ONLY_WAIT > 0, -0.05, np.nan),
        "noise": 3.5 * NOISE,
    }
    pairs: dict[str, Any] = {
        "pairs_before": np.array([metrics(), metrics()]),
        "pairs_after": np.array([metrics(0.06), metrics(-0.04)]),
    }
    believed = verify(replace(trial(terms=replace_terms(max_pairs=2), **promise), **pairs), cycle_id=4)
    doubted = verify(replace(unproven(**promise), **pairs), cycle_id=4)

    assert believed.step is Step.KEEP
    assert (doubted.outcome, doubted.step, doubted.harm) == (Outcome.INCONCLUSIVE, Step.ROLL_BACK, False)
    assert "a twin which is not proven" in doubted.reason


def test_what_its_pairs_speak_for_is_kept_without_the_twin() -> None:
    said = Driver(unproven(), effect=-0.03, wobble=0.02, seed=3).to_end()

    assert (said.step, said.pairs) == (Step.KEEP, 2)


def test_a_sharp_metric_speaks_louder_than_a_noisy_sum() -> None:
    """The queue wait improves by chance, within its noise; the latency is worse beyond any."""
    latency = METRIC_INDEX["scheduling_latency_seconds"]
    swings = np.resize([0.2, -0.2], 12)
    noise = np.zeros((12, len(USUAL)))
    noise[:, METRIC_INDEX["queue_wait_seconds"]] = swings
    promised = np.where(DEFAULT_WEIGHTS > 0, -0.04, np.nan)
    running = trial(weights=DEFAULT_WEIGHTS, noise=noise, expected_terms=promised, allowance=1e9)
    after = metrics(-0.5)
    after[latency] *= 1.4
    running = replace(running, pairs_before=metrics()[None], pairs_after=after[None])

    assert compared(running).mean < -0.05
    assert witnessed(running).mean > 0.02
    assert math.isnan(witnessed(replace(running, pairs_before=np.empty((0, 13)), pairs_after=np.empty((0, 13)))).mean)


def test_no_difference_is_kept_only_where_the_twin_is_believed() -> None:
    believed = Driver(trial(), wobble=0.02, seed=3).to_end()
    doubted = Driver(trial(expected_score=0.0, expected_terms=None), wobble=0.02, seed=3).to_end()

    assert believed.outcome is doubted.outcome is Outcome.INCONCLUSIVE
    assert believed.step is Step.KEEP
    assert "without calling it verified" in believed.reason
    assert not believed.harm


def test_what_is_rather_worse_is_not_kept_whatever_the_twin_says() -> None:
    running = trial(expected_score=-9.0, expected_terms=np.where(ONLY_WAIT > 0, -9.0, np.nan))
    pairs = 5
    worse = np.array([0.03, 0.01, 0.0, 0.02, -0.01])
    ended = replace(
        running,
        pairs_before=np.tile(USUAL, (pairs, 1)),
        pairs_after=np.array([metrics(score) for score in worse]),
        harm_evidence=0.0,
        gain_evidence=-3.0,
    )

    said = verify(ended, cycle_id=1)

    assert (said.outcome, said.step, said.harm) == (Outcome.INCONCLUSIVE, Step.ROLL_BACK, False)
    assert "more likely worse" in said.reason


def test_a_comparison_that_can_hardly_succeed_any_more_ends_before_its_time() -> None:
    noisy = np.tile(np.where(ONLY_WAIT > 0, 0.5, np.nan), (12, 1))
    driver = Driver(trial(noise=noisy), effect=-0.01, wobble=0.02)

    said = driver.to_end()

    assert said.pairs == 2
    assert said.outcome is Outcome.INCONCLUSIVE
    assert "could hardly make it certain" in said.reason


@pytest.mark.parametrize(
    ("others", "sentence", "end"),
    [
        ({"metrics": UNKNOWN}, "no usable data at 1 of 3 looks", "no usable data at 3 looks in a row"),
        ({"rejected": True}, "a query was refused at 1 of 3 looks", "queries refused at 3 looks in a row"),
    ],
)
def test_no_data_and_wrong_queries_are_errors_and_never_harm(others: dict[str, Any], sentence: str, end: str) -> None:
    driver = Driver(trial())

    first, second, third = driver.look(**others), driver.look(**others), driver.look(**others)

    assert (first.outcome, first.step) == (second.outcome, second.step) == (Outcome.ERROR, Step.WAIT)
    assert sentence in first.reason
    assert (third.outcome, third.step) == (Outcome.ERROR, Step.ROLL_BACK)
    assert end in third.reason
    assert not any(each.harm for each in driver.said)


def test_errors_that_do_not_last_are_forgotten() -> None:
    driver = Driver(trial())
    for _ in range(4):
        driver.minutes(2, metrics=UNKNOWN)
        driver.minutes(2, rejected=True)
        driver.minutes(1)

    assert all(each.step is Step.WAIT for each in driver.said)
    assert (driver.trial.errors, driver.trial.rejections) == (0, 0)


def test_a_scheduler_that_restarts_again_and_again_ends_the_trial() -> None:
    driver = Driver(trial())

    said = [driver.look(restarted=True) for _ in range(4)]

    assert [each.step for each in said] == [Step.WAIT] * 3 + [Step.ROLL_BACK]
    assert said[-1].outcome is Outcome.ERROR
    assert not said[-1].harm


def limits(**of: float) -> MetricVector:
    return metric_vector(of)


HOT = 95.0
COOL = 60.0


def test_a_safety_metric_beyond_its_limit_on_trial_alone_fails_the_change() -> None:
    driver = Driver(
        trial(
            first_before=look(0.0, metrics=metrics(node_temperature_celsius=COOL)),
            limits=limits(node_temperature_celsius=90.0),
        )
    )

    driver.minutes(7 + TERMS.min_samples - 2, metrics=metrics(-0.5, node_temperature_celsius=HOT))
    assert driver.last.step is Step.WAIT
    said = driver.minutes(1, metrics=metrics(-0.5, node_temperature_celsius=HOT))

    assert (said.outcome, said.step, said.harm) == (Outcome.FAILED, Step.ROLL_BACK, True)
    assert said.reason == "node_temperature_celsius is 95 on trial, beyond 90 °C, and was 60 before"


@pytest.mark.parametrize(("glimpsed", "undone"), [(HOT, False), (COOL, True)])
def test_until_a_leg_has_shown_the_setting_before_the_look_just_before_the_change_stands_for_it(
    glimpsed: float, undone: bool
) -> None:
    before = metrics(node_temperature_celsius=glimpsed)
    driver = Driver(trial(limits=limits(node_temperature_celsius=90.0), first_before=None, glimpse=before))

    said = [driver.look(metrics=metrics(node_temperature_celsius=HOT)) for _ in range(12)]

    assert any(each.step is Step.ROLL_BACK for each in said) is undone


def test_one_noisy_sample_beyond_a_limit_fails_nothing() -> None:
    driver = Driver(trial(limits=limits(node_temperature_celsius=90.0)))
    driver.minutes(9, metrics=metrics(node_temperature_celsius=COOL))
    driver.minutes(1, metrics=metrics(node_temperature_celsius=HOT))
    driver.minutes(5, metrics=metrics(node_temperature_celsius=COOL))

    assert all(each.step is Step.WAIT for each in driver.said)


def test_a_metric_that_was_beyond_its_limit_before_is_not_the_changes_doing() -> None:
    driver = Driver(
        trial(
            first_before=look(0.0, metrics=metrics(node_temperature_celsius=HOT)),
            limits=limits(node_temperature_celsius=90.0),
        )
    )

    driver.minutes(15, metrics=metrics(node_temperature_celsius=HOT + 2))

    assert all(each.step is Step.WAIT for each in driver.said)


def test_without_a_leg_before_the_limit_alone_decides() -> None:
    driver = Driver(trial(first_before=None, limits=limits(node_temperature_celsius=90.0)))

    said = [driver.look(metrics=metrics(node_temperature_celsius=HOT)) for _ in range(15)]

    undone = next(each for each in said if each.step is Step.ROLL_BACK)
    assert "is not known from before" in undone.reason


def test_a_safety_metric_never_promotes() -> None:
    driver = Driver(
        trial(
            weights=DEFAULT_WEIGHTS,
            limits=limits(node_temperature_celsius=90.0),
            first_before=look(0.0, metrics=metrics(node_temperature_celsius=HOT)),
            expected_score=0.0,
            expected_terms=None,
        )
    )

    for _ in range(25):
        temperature = COOL if driver.trial.in_force is Leg.AFTER else HOT
        if driver.look(metrics=metrics(node_temperature_celsius=temperature)).step is Step.SWITCH:
            driver.switch()

    assert not any(each.step is Step.PROMOTE for each in driver.said)
    assert driver.trial.gain_evidence <= 0


def test_abandoning_writes_nothing_and_says_why() -> None:
    said = abandon(trial(), cycle_id=9, reason="a person set the slice")

    assert (said.outcome, said.step, said.cycle_id) == (Outcome.ERROR, Step.WAIT, 9)
    assert "a person set the slice" in said.reason


def test_every_look_says_how_far_it_is() -> None:
    driver = Driver(trial())

    assert "washing out for the setting on trial, 240 s to go, no pair compared so far" in driver.look().reason
    driver.minutes(9)
    assert "looking at the setting on trial, 300 s to go" in driver.last.reason


def test_belief_follows_the_pairs_where_they_are_sharp_and_the_twin_where_they_are_not() -> None:
    running = trial()
    seen = replace(
        running,
        pairs_before=np.tile(USUAL, (4, 1)),
        pairs_after=np.array([metrics(s) for s in (0.05, 0.06, 0.05, 0.06)]),
    )
    blunt = replace(seen, noise_terms=NOISE[:0], pairs_before=seen.pairs_before[:2], pairs_after=seen.pairs_after[:2])

    assert believe(seen).mean == pytest.approx(0.055, abs=0.01)
    assert believe(blunt).mean == pytest.approx(-0.1)
    assert compared(seen).mean == pytest.approx(0.055)


# What it survives.


@settings(max_examples=25)
@given(
    seed=st.integers(0, 1000),
    minutes=st.integers(0, 80),
    effect=st.floats(-0.05, 0.03),
    odd=st.lists(st.sampled_from(["idle", "mode", "data", "refused", "restart"]), max_size=4),
)
def test_a_stored_trial_goes_on_as_if_nothing_had_happened(
    seed: int, minutes: int, effect: float, odd: list[str]
) -> None:
    kinds: dict[str, dict[str, Any]] = {
        "idle": {"arriving": False},
        "mode": {"comparable": False},
        "data": {"metrics": UNKNOWN},
        "refused": {"rejected": True},
        "restart": {"restarted": True},
    }
    driver = Driver(trial(weights=DEFAULT_WEIGHTS), effect=effect, wobble=0.03, seed=seed)
    for kind in odd:
        driver.minutes(1, **kinds[kind])
    driver.minutes(minutes)

    restored = Switchback.from_json(driver.trial.to_json())

    for item in fields(Switchback):
        kept, found = (getattr(each, item.name) for each in (driver.trial, restored))
        assert type(kept) is type(found), item.name
        if isinstance(kept, np.ndarray | float):
            assert np.array_equal(kept, found, equal_nan=True), item.name
        else:
            assert kept == found, item.name
    following = look(driver.trial.last_at_seconds + MINUTE, 0.01)
    assert advance(restored, following).to_json() == advance(driver.trial, following).to_json()
    assert repr(verify(restored, cycle_id=1)) == repr(verify(driver.trial, cycle_id=1))


def test_what_is_not_a_stored_switchback_is_refused() -> None:
    with pytest.raises(ValueError, match="stored switchback has other fields"):
        Switchback.from_json('{"change_cycle_id": 1}')


def test_a_fresh_trial_has_seen_nothing() -> None:
    fresh = trial()

    assert fresh.seen is Seen.NOTHING
    assert verify(fresh, cycle_id=1).step is Step.WAIT
    assert np.isnan(fresh.differences()).sum() == 0
    assert score_terms(fresh.pairs_after, fresh.pairs_before).shape == (0, 13)
