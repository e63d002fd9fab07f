"""The switchback: what to do with a change on trial, from the pairs of legs so far.

| what the newest look finds                              | outcome      | step                 |
| ------------------------------------------------------- | ------------ | -------------------- |
| a safety metric beyond its limit on trial, not before   | failed       | roll back, harm      |
| it has cost more than it may                            | failed       | roll back, harm      |
| within a leg: far worse than the setting before         | failed       | roll back, harm      |
| a pair ends: worse, likely                              | failed       | roll back, harm      |
| a pair ends: better, certain                            | successful   | promote              |
| a pair ends: the twin is not proven, and was contradicted | failed, or inconclusive | roll back     |
| the last pair ends, or hardly any more could promote    | inconclusive | keep, or roll back   |
| no data, or a refused query, `max_errors` times in a row | error       | roll back            |
| more than `max_errors` restarts of the scheduler        | error        | roll back            |
| a refused query, or no data                             | error        | wait                 |
| nothing arrives, another mode, a restart, washing out   | inconclusive | wait                 |
| a leg ends, the other setting has yet to come           | inconclusive | switch               |

Safety metrics can only fail a change, and the score alone promotes it. "Certain" is an e-value of `1 / alpha`, so that
looking often promotes nothing (`sequential`); what `alpha` a trial may take, the budget of the day says (`budget`).
"Likely" is a fourth over all pairs. A query that is refused is wrong, and tells nothing of the change: it never counts
as harm. What is left uncertain is kept only where the twin's expectation, corrected metric by metric by what the pairs
showed, is on the good side (`belief`); it is then neither remembered as verified nor fallen back to. While no verified
change has borne the twin out, its expectation counts for nothing there: the pairs alone must speak for the change, and
what it costs to ask them is limited.

To promote or keep is to leave the setting on trial in force: it has to be put in force again where the other one is.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import stdtrit

from tuner.values.metrics import METRIC_NAMES, METRICS, SIGNS, MetricVector
from tuner.values.stages import Outcome, Step, Verification
from tuner.verify.belief import combine, corrected
from tuner.verify.legs import Leg, Look, Seen, Switchback, advance, begin, learned_wash_out, switched
from tuner.verify.sequential import Noise, deviation, evidence, past_noise
from tuner.verify.statistics import Estimate, means

__all__ = [
    "Leg",
    "Look",
    "Seen",
    "Switchback",
    "abandon",
    "advance",
    "begin",
    "learned_wash_out",
    "switched",
    "verify",
]

SUDDEN_ALPHA: Final = 0.03
"""Chance that a change without effect is undone within a leg, over all legs: a tenth of what harm stops may err."""

LIKELY: Final = 0.84
"""Confidence, one-sided, at which a change that is not certain is taken for worse: one standard error."""

USUAL_NOISE: Final = 0.1
"""Deviation of a metric from pair to pair that is usual, as a relative change (assumption): what one or two pairs tell
of it is too little to go by alone."""

USUAL_DEGREES: Final = 2.0
"""How many pairs that is worth (assumption): the fewest with which an error can be told."""

MIN_FUTILE_PAIRS: Final = 2
"""Fewest pairs before a comparison is given up: with the first two, an even drift drops out."""


@dataclass(frozen=True, slots=True)
class _Result:
    outcome: Outcome
    step: Step
    reason: str
    harm: bool = False


def verify(trial: Switchback, *, cycle_id: int) -> Verification:
    """Say what a change on trial has done so far, and what to do with it.

    Args:
        trial: The trial as it is after its newest look (`advance`).
        cycle_id: Number of the cycle that looks.
    """
    result = _harm(trial) or _end(trial) or _broken(trial) or _under_way(trial)
    return _verification(trial, cycle_id, result)


def abandon(trial: Switchback, *, cycle_id: int, reason: str) -> Verification:
    """Say that a trial ends without a result and without a write, because the settings are no longer ours to judge.

    For a person or controller that set a knob while the trial ran: undoing would overwrite somebody else's. The caller
    drops the trial.
    """
    return _verification(
        trial, cycle_id, _Result(Outcome.ERROR, Step.WAIT, f"trial abandoned, nothing written: {reason}")
    )


def compared(trial: Switchback) -> Estimate:
    """Return the mean score of the change over its pairs, negative is better, with its error."""
    differences = trial.differences()
    spread, degrees = deviation(differences, trial.noise)
    if not trial.pairs:
        return Estimate(np.nan, np.nan, 0, 1.0)
    error = spread / np.sqrt(trial.pairs)
    return Estimate(float(differences.mean()), float(error), trial.pairs, max(degrees, 1.0))


def believe(trial: Switchback) -> Estimate:
    """Return the believed score of a change: the twin's expectation, corrected by the pairs metric by metric."""
    terms = trial.pair_terms()
    measured = {
        int(index): _measured(terms[:, index], trial.noise_terms[:, index])
        for index in np.flatnonzero(trial.weights > 0)
    }
    promised = corrected(trial.expected_terms, trial.expected_score)
    return combine(promised, measured, weights=trial.weights, samples=trial.pairs)


def witnessed(trial: Switchback) -> Estimate:
    """Return the score that is believed of a change from its pairs alone, metric by metric; NaN without any.

    The sum of the metrics is as noisy as the noisiest of them. Here each counts by how sharply it was measured, against
    the belief that it did not change; what was promised says how far it may have, and not which way.
    """
    if not trial.pairs:
        return Estimate(np.nan, np.nan, 0, 1.0)
    terms = trial.pair_terms()
    measured = {
        int(index): _measured(terms[:, index], trial.noise_terms[:, index], usual=USUAL_NOISE * trial.weights[index])
        for index in np.flatnonzero(trial.weights > 0)
    }
    return combine(trial.expected_terms, measured, weights=trial.weights, samples=trial.pairs, promised=False)


def _measured(terms: MetricVector, noise: MetricVector, *, usual: float = 0.0) -> Estimate:
    """Return what one metric was measured to add to the score; its error is infinite where few values would tell it.

    Args:
        terms: What each pair shows, shape (n,).
        noise: What was known of the noise before.
        usual: Deviation that is taken for the usual one of a pair, on top of what is known; 0 for none.
    """
    terms = terms[np.isfinite(terms)]
    if not len(terms):
        return Estimate(np.nan, np.nan, 0, 1.0)
    known = past_noise(noise)
    if usual > 0:
        known = Noise(known.squares + USUAL_DEGREES * usual**2, known.degrees + USUAL_DEGREES)
    spread, degrees = deviation(terms, known)
    # The variance of Student's distribution, which has none at two degrees of freedom and under.
    error = spread * np.sqrt(degrees / (degrees - 2) / len(terms)) if degrees > 2 else np.inf
    return Estimate(float(terms.mean()), float(error), len(terms), max(degrees, 1.0))


def _harm(trial: Switchback) -> _Result | None:
    """Return the result where the change does harm."""
    unsafe = _unsafe(trial)
    if unsafe is not None:
        return _Result(Outcome.FAILED, Step.ROLL_BACK, unsafe, harm=True)
    if trial.cost > trial.allowance + _cost_error(trial) and trial.in_force is Leg.AFTER:
        return _Result(Outcome.FAILED, Step.ROLL_BACK, _too_dear(trial), harm=True)
    sudden = _sudden(trial)
    if sudden is not None:
        return _Result(Outcome.FAILED, Step.ROLL_BACK, sudden, harm=True)
    if trial.harm_evidence >= trial.harm_plan.enough:
        reason = f"harm: {_told(trial)}, {_strength(trial.harm_evidence)} against {np.exp(trial.harm_plan.enough):.3g}"
        return _Result(Outcome.FAILED, Step.ROLL_BACK, reason, harm=True)
    return None


def _unsafe(trial: Switchback) -> str | None:
    """Say which safety metric is beyond its limit because of the change: in its newest leg, or `min_samples` looks.

    Where it was beyond under the setting before, too, that is the limit, with `harm_ratio` on top: the change did not
    bring it there.
    """
    count = trial.terms.min_samples
    if trial.in_force is Leg.AFTER and len(trial.looked) >= count:
        looked = trial.looked[-count:]
    elif trial.in_force is Leg.AFTER and trial.wanted is Leg.BEFORE:
        looked = trial.partner[None]
    else:
        looked = trial.pairs_after[-1:]
    if not len(looked):
        return None
    untouched = np.where(np.isfinite(trial.untouched()), trial.untouched(), trial.glimpse)
    without = untouched * (1.0 + SIGNS * trial.terms.harm_ratio)
    limit = np.where(SIGNS > 0, np.fmax(trial.limits, without), np.fmin(trial.limits, without))
    beyond = (np.isfinite(trial.limits) & (SIGNS * (looked - limit) > 0)).all(axis=0)
    if not beyond.any():
        return None
    index = int(np.flatnonzero(beyond)[0])
    value, bound = float(looked[:, index].mean()), f"{limit[index]:.3g} {METRICS[index].unit}"
    before = f"was {untouched[index]:.3g} before" if np.isfinite(untouched[index]) else "is not known from before"
    return f"{METRIC_NAMES[index]} is {value:.3g} on trial, beyond {bound}, and {before}"


def _sudden(trial: Switchback) -> str | None:
    """Say how far the running leg is worse than the setting before, where that is beyond what noise does.

    A part of a leg is as much noisier than the whole as it is shorter, which overstates it where neighbouring minutes
    are alike. `SUDDEN_ALPHA` is shared by all legs and the windows in them that have no data in common.
    """
    count = len(trial.looked)
    if trial.in_force is not Leg.AFTER or trial.wanted is not Leg.AFTER or not count:
        return None
    worse = trial.score(means(trial.looked), trial.untouched())
    spread, degrees = deviation(trial.differences(), trial.noise)
    if not (worse > trial.terms.harm_ratio and degrees >= 1.0):
        return None
    leg, window = trial.terms.leg_seconds, trial.recent_window_seconds
    covered = window + float(trial.looked_at_seconds[-1] - trial.looked_at_seconds[0])
    windows = trial.terms.max_pairs * np.ceil(leg / window)
    bound = -float(stdtrit(degrees, SUDDEN_ALPHA / windows)) * spread * np.sqrt((max(leg / covered, 1.0) + 1.0) / 2.0)
    if not worse > bound:
        return None
    return f"harm within the leg: {worse * 100:.1f} % worse after {covered:.0f} s of it, over {bound * 100:.1f} %"


def _cost_error(trial: Switchback) -> float:
    """Return the standard error of what a trial has cost, in score times seconds; 0 where noise is not known."""
    spread, _ = deviation(trial.differences(), trial.noise)
    return float(spread * np.sqrt(trial.tried_seconds * trial.terms.leg_seconds)) if np.isfinite(spread) else 0.0


def _too_dear(trial: Switchback) -> str:
    """Say what the change has cost and what it may, both as minutes at a score one per cent worse."""
    each = (trial.cost, _cost_error(trial), trial.allowance)
    cost, error, allowance = (score_seconds / 60 * 100 for score_seconds in each)
    return (
        f"harm: so far it cost as much as {cost:.0f} ± {error:.0f} min at a score 1 % worse, and while the twin is not "
        f"proven a trial may cost {allowance:.0f}; {_told(trial)}"
    )


def _end(trial: Switchback) -> _Result | None:
    """Return the result where the comparison has come to an end."""
    enough = trial.gain_plan.enough
    if trial.gain_evidence >= enough:
        reason = f"{_told(trial)}, {_strength(trial.gain_evidence)} of {np.exp(enough):.3g} needed: surely better"
        return _Result(Outcome.SUCCESSFUL, Step.PROMOTE, reason)
    if trial.unproven and trial.pairs and (seen := witnessed(trial)).mean > 0:
        return _contradicted(trial, seen)
    if trial.pairs >= trial.terms.max_pairs:
        return _undecided(trial, f"not certain after {trial.pairs} pairs")
    if trial.dropped > trial.terms.max_inconclusive:
        return _undecided(trial, f"{trial.dropped} legs were torn from their partners by interruptions")
    if trial.pairs >= MIN_FUTILE_PAIRS and _told_enough(trial) and _futile(trial):
        return _undecided(trial, f"the {trial.terms.max_pairs - trial.pairs} pairs left could hardly make it certain")
    return None


def _contradicted(trial: Switchback, seen: Estimate) -> _Result:
    """Return the result where what was seen speaks against a change for which nothing else speaks."""
    reason = (
        f"{_told(trial)}; weighed metric by metric {_percent(seen)} worse, against {-trial.expected_score * 100:.1f} % "
        f"better that a twin which is not proven has promised, so undone"
    )
    if seen.mean > seen.error:
        return _Result(Outcome.FAILED, Step.ROLL_BACK, f"harm: {reason}", harm=True)
    return _Result(Outcome.INCONCLUSIVE, Step.ROLL_BACK, reason)


def _told_enough(trial: Switchback) -> bool:
    """Say whether the pairs tell enough to stop short of the last: they do not where they are rather worse."""
    result = compared(trial)
    return result.mean <= 0 or result.lower(LIKELY) > 0


def _futile(trial: Switchback) -> bool:
    """Say whether all pairs left would not promote, were each as good as promised or as seen, and lucky besides.

    The better of the two is taken, and one standard error of the mean of what is left on top: of all futures that are
    as good as that, 84 % are less lucky. Twice as much luck would lengthen trials, and save no gain (measured).
    """
    left = trial.terms.max_pairs - trial.pairs
    gains = -trial.differences()
    spread, _ = deviation(gains, trial.noise)
    gain = float(np.fmax(-trial.expected_score, gains.mean())) + float(spread) / np.sqrt(left)
    future = evidence(np.append(gains, np.full(left, gain)), trial.noise, trial.gain_plan)
    return future < trial.gain_plan.enough


def _undecided(trial: Switchback, why: str) -> _Result:
    """Return the result of a comparison that ends without one."""
    told = f"{_told(trial)}, {_strength(trial.gain_evidence)}: {why}"
    believed = witnessed(trial) if trial.unproven else believe(trial)
    if compared(trial).lower(LIKELY) > 0:
        return _Result(Outcome.INCONCLUSIVE, Step.ROLL_BACK, f"{told}; more likely worse than better, so undone")
    if trial.pairs and believed.mean < 0:
        reason = f"{told}; kept on the belief of {_percent(believed)} better, without calling it verified"
        return _Result(Outcome.INCONCLUSIVE, Step.KEEP, reason)
    return _Result(Outcome.INCONCLUSIVE, Step.ROLL_BACK, f"{told}; not shown to help, so undone")


def _broken(trial: Switchback) -> _Result | None:
    """Return the result where the comparison cannot go on."""
    most = trial.terms.max_errors
    if trial.errors >= most:
        return _undone(f"no usable data at {trial.errors} looks in a row; undone unseen")
    if trial.rejections >= most:
        return _undone(f"queries refused at {trial.rejections} looks in a row: the policy's queries are wrong; undone")
    if trial.restarts > most:
        return _undone(f"the scheduler restarted {trial.restarts} times during the comparison; undone unseen")
    return None


def _undone(reason: str) -> _Result:
    return _Result(Outcome.ERROR, Step.ROLL_BACK, reason)


def _under_way(trial: Switchback) -> _Result:
    """Return what is waited for."""
    most, told = trial.terms.max_errors, _told(trial)
    match trial.seen:
        case Seen.REJECTED:
            reason = f"a query was refused at {trial.rejections} of {most} looks: it is wrong, the change is not"
            return _Result(Outcome.ERROR, Step.WAIT, reason)
        case Seen.NO_DATA:
            return _Result(Outcome.ERROR, Step.WAIT, f"no usable data at {trial.errors} of {most} looks")
        case Seen.RESTARTED:
            reason = f"the scheduler restarted: the leg begins anew, {told} so far"
        case Seen.IDLE:
            reason = f"nothing arrives: the comparison stands still, {told} so far"
        case Seen.OTHER_MODE:
            reason = f"the scheduler does not run its full policy: the comparison stands still, {told} so far"
        case _ if trial.wanted is not trial.in_force:
            reason = f"the leg of the setting {_named(trial.in_force)} is over, {told} so far; the other one's turn"
            return _Result(Outcome.INCONCLUSIVE, Step.SWITCH, reason)
        case _:
            reason = f"{_clock(trial)}, {told} so far"
    return _Result(Outcome.INCONCLUSIVE, Step.WAIT, reason)


def _clock(trial: Switchback) -> str:
    passed = trial.last_at_seconds - trial.leg_at_seconds
    if passed < 0:
        return f"washing out for the setting {_named(trial.in_force)}, {-passed:.0f} s to go"
    left = max(trial.terms.leg_seconds - passed, 0.0)
    return f"looking at the setting {_named(trial.in_force)}, {left:.0f} s to go"


def _named(leg: Leg) -> str:
    return "on trial" if leg is Leg.AFTER else "before"


def _told(trial: Switchback) -> str:
    result = compared(trial)
    if not trial.pairs:
        return "no pair compared"
    word = "better" if result.mean < 0 else "worse"
    error = f" ± {result.error * 100:.1f} %" if np.isfinite(result.error) else ""
    pairs = f"{trial.pairs} of {trial.terms.max_pairs} pairs"
    return f"{abs(result.mean) * 100:.1f} %{error} {word} in {pairs}"


def _strength(log_evidence: float) -> str:
    return f"evidence {np.exp(log_evidence):.3g}"


def _percent(estimated: Estimate) -> str:
    return f"{abs(estimated.mean) * 100:.1f} % ± {estimated.error * 100:.1f} %"


def _verification(trial: Switchback, cycle_id: int, result: _Result) -> Verification:
    measured = compared(trial)
    return Verification(
        cycle_id=cycle_id,
        change_cycle_id=trial.change_cycle_id,
        outcome=result.outcome,
        step=result.step,
        samples=trial.samples,
        expected_score=trial.expected_score,
        observed_score=measured.mean,
        score_error=measured.error,
        observed=means(trial.pairs_after),
        counterfactual=means(trial.pairs_before),
        reason=result.reason,
        pairs=trial.pairs,
        evidence=trial.gain_evidence,
        harm=result.harm,
    )
