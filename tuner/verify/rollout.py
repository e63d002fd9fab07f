"""The rollout: what to do with a change on trial, from what it has shown so far.

The comparison is before/after against the forecast of what would have been: it cannot tell the change from anything
else that began at the same time, so it asks for much before it promotes and for little before it undoes.

| what the newest look finds                            | outcome      | step      |
| ----------------------------------------------------- | ------------ | --------- |
| nothing arrives                                       | inconclusive | wait      |
| no usable data                                        | error        | wait      |
| no usable data, `max_errors` times in a row           | error        | roll back |
| washing out, or fewer than `min_samples`              | inconclusive | wait      |
| a safety metric beyond its limit in `min_samples`     | failed       | roll back |
| worse than `harm_ratio`, likely                       | failed       | roll back |
| a window ends: better, certain                        | successful   | promote   |
| a window ends: worse, likely                          | failed       | roll back |
| a window ends: neither, extensions left               | inconclusive | wait      |
| a window ends: neither, none left, believed better    | inconclusive | keep      |
| a window ends: neither, none left                     | inconclusive | roll back |

"Likely" is one standard error, 84 % one-sided: being wrong about harm costs only a gain. "Certain" is 95 % for all
ends of windows together, and only they are looked at, so that looking often promotes nothing.

Inconclusive is never success. Most true gains are smaller than the noise of a quarter of an hour, so undoing all that
is uncertain would undo nearly everything. What is uncertain stays only where the twin's expectation, corrected by what
was measured metric by metric (`belief`), is still on the good side; it is then kept, but neither remembered as
verified nor fallen back to.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuner.values.metrics import METRIC_NAMES, METRICS, SIGNS
from tuner.values.stages import Outcome, Step, Verification
from tuner.verify.belief import believe
from tuner.verify.statistics import Estimate, Samples, estimate, means
from tuner.verify.trial import Trial

HARM_CONFIDENCE: Final = 0.84
"""Confidence, one-sided, at which harm is believed: one standard error."""

FALSE_PROMOTION_RATIO: Final = 0.05
"""Share of changes without effect that may be promoted, over all ends of windows of a trial."""


@dataclass(frozen=True, slots=True)
class _Result:
    outcome: Outcome
    step: Step
    reason: str


def verify(trial: Trial, *, cycle_id: int) -> Verification:
    """Say what a change on trial has done so far, and what to do with it.

    Args:
        trial: The trial as it is after its newest look (`advance`).
        cycle_id: Number of the cycle that looks.
    """
    compared = _compared(trial)
    result = _early(trial) or _harm(trial, compared) or _end(trial, compared)
    return _verification(trial, cycle_id, compared, result)


def abandon(trial: Trial, *, cycle_id: int, reason: str) -> Verification:
    """Say that a trial ends without a result and without a write, because the settings are no longer ours to judge.

    For a scheduler that restarted, or a person or controller that set a knob, while the trial ran: what is observed is
    no longer the change, and undoing would overwrite somebody else's. The caller drops the trial.
    """
    result = _Result(Outcome.ERROR, Step.WAIT, f"trial abandoned, nothing written: {reason}")
    return _verification(trial, cycle_id, _compared(trial), result)


def _compared(trial: Trial, *, newest: int = 0) -> Estimate:
    """Return the mean score against the counterfactual, of all samples or of the newest ones."""
    scores = trial.scores()
    recent = Samples(scores.times_seconds[-newest:], scores.values[-newest:])
    return estimate(recent, trial.noise(), span_seconds=trial.span_seconds)


def _early(trial: Trial) -> _Result | None:
    """Return the result where there is nothing to compare yet."""
    terms, samples = trial.terms, len(trial.times_seconds)
    if trial.errors >= terms.max_errors:
        return _Result(Outcome.ERROR, Step.ROLL_BACK, f"no usable data at {trial.errors} looks in a row; undone unseen")
    if trial.idle:
        reason = f"nothing arrives: the comparison stands still at {samples} samples"
        return _Result(Outcome.INCONCLUSIVE, Step.WAIT, reason)
    if trial.errors:
        return _Result(Outcome.ERROR, Step.WAIT, f"no usable data at {trial.errors} of {terms.max_errors} looks")
    if trial.compared_seconds < 0:
        reason = f"washing out, {-trial.compared_seconds:.0f} s to go"
        return _Result(Outcome.INCONCLUSIVE, Step.WAIT, reason)
    return None


def _harm(trial: Trial, compared: Estimate) -> _Result | None:
    """Return the result where the change does harm that is likely enough to undo it at once."""
    terms = trial.terms
    if compared.samples < terms.min_samples:
        return None
    broken = _beyond_limits(trial)[-terms.min_samples :].all(axis=0)
    if broken.any():
        index = int(np.flatnonzero(broken)[0])
        recent = float(trial.observed[-terms.min_samples :, index].mean())
        limit = f"{trial.limits[index]:.3g} {METRICS[index].unit}"
        return _failed(f"{METRIC_NAMES[index]} is {recent:.3g}, beyond its limit of {limit}, and would not have been")
    # The newest samples by themselves, too: harm that begins late must not hide behind a good start.
    newest = _compared(trial, newest=terms.min_samples)
    for part in (compared, newest):
        if part.lower(HARM_CONFIDENCE) > terms.harm_ratio:
            return _failed(f"harm: {_told(part)}, likely over {terms.harm_ratio * 100:.0f} %")
    return None


def _end(trial: Trial, compared: Estimate) -> _Result:
    """Return the result at the end of a window, or that there is more to wait for."""
    terms = trial.terms
    if not trial.ending:
        left = terms.window_seconds * (trial.extensions + 1) - trial.compared_seconds
        return _Result(Outcome.INCONCLUSIVE, Step.WAIT, f"{_told(compared)} so far, {left:.0f} s to go")
    if compared.samples >= terms.min_samples:
        confidence = 1.0 - FALSE_PROMOTION_RATIO / (1 + terms.max_inconclusive)
        if compared.upper(confidence) < 0:
            return _Result(
                Outcome.SUCCESSFUL, Step.PROMOTE, f"{_told(compared)}, surely better ({confidence * 100:.1f} %)"
            )
        if compared.lower(HARM_CONFIDENCE) > 0:
            return _failed(f"worse at the end: {_told(compared)}")
    told = _told(compared) if compared.samples >= terms.min_samples else _too_few(compared, terms.min_samples)
    if trial.extensions < terms.max_inconclusive:
        return _Result(Outcome.INCONCLUSIVE, Step.WAIT, f"{told}: extended by another {terms.window_seconds:.0f} s")
    believed = believe(trial)
    if compared.samples >= terms.min_samples and believed.mean < 0:
        reason = f"{told}: not certain, kept on the belief of {_percent(believed)} better, without calling it verified"
        return _Result(Outcome.INCONCLUSIVE, Step.KEEP, reason)
    return _Result(Outcome.INCONCLUSIVE, Step.ROLL_BACK, f"{told}: not shown to help, so undone")


def _failed(reason: str) -> _Result:
    return _Result(Outcome.FAILED, Step.ROLL_BACK, reason)


def _beyond_limits(trial: Trial) -> NDArray[np.bool_]:
    """Say of each sample which safety metrics are beyond their limits because of the change, shape (n, 13).

    Where they would have been beyond without it, too, what would have been is the limit, with `harm_ratio` on top:
    the change did not bring them there. Needs no errors, because a limit is a limit whatever the noise.
    """
    without = trial.counterfactual * (1.0 + SIGNS * trial.terms.harm_ratio)
    limit = np.where(SIGNS > 0, np.fmax(trial.limits, without), np.fmin(trial.limits, without))
    beyond: NDArray[np.bool_] = np.isfinite(trial.limits) & (SIGNS * (trial.observed - limit) > 0)
    return beyond


def _told(compared: Estimate) -> str:
    if not compared.samples:
        return "no samples"
    word = "better" if compared.mean < 0 else "worse"
    return f"{_percent(compared)} {word} in {compared.samples} samples"


def _percent(estimated: Estimate) -> str:
    return f"{abs(estimated.mean) * 100:.1f} % ± {estimated.error * 100:.1f} %"


def _too_few(compared: Estimate, needed: int) -> str:
    return f"{compared.samples} of {needed} samples needed"


def _verification(trial: Trial, cycle_id: int, compared: Estimate, result: _Result) -> Verification:
    return Verification(
        cycle_id=cycle_id,
        change_cycle_id=trial.change_cycle_id,
        outcome=result.outcome,
        step=result.step,
        samples=compared.samples,
        expected_score=trial.expected_score,
        observed_score=compared.mean,
        score_error=compared.error,
        observed=means(trial.observed),
        counterfactual=means(trial.counterfactual),
        reason=result.reason,
    )
