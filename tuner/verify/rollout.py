"""The rollout: what to do with a change on trial, from what it has shown so far.

The comparison is before/after against the forecast of what would have been: it cannot tell the change from anything
else that began at the same time, so it asks for much before it promotes and for little before it undoes.

| what the newest look finds                            | outcome      | step      |
| ----------------------------------------------------- | ------------ | --------- |
| nothing arrives                                       | inconclusive | wait      |
| no usable data                                        | error        | wait      |
| no usable data, `max_errors` times in a row           | error        | roll back |
| washing out, or fewer than `min_samples`              | inconclusive | wait      |
| a safety metric beyond its limit, likely              | failed       | roll back |
| worse than `harm_ratio`, likely                       | failed       | roll back |
| a window ends: better, certain                        | successful   | promote   |
| a window ends: worse, likely; or beyond `harm_ratio`  | failed       | roll back |
| a window ends: neither, extensions left               | inconclusive | wait      |
| a window ends: neither, none left                     | inconclusive | roll back |

"Likely" is one standard error, 84 % one-sided: being wrong about harm costs only a gain. "Certain" is 95 % for all
ends of windows together, and only they are looked at, so that looking often promotes nothing. Inconclusive is never
success: a change that cannot be shown to help goes back to the last known good, even where its estimate is on the
good side, because the estimate is what it would be by chance as well.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.values.metrics import FLOORS, METRIC_NAMES, SIGNS, MetricVector
from tuner.values.stages import FloatArray, Outcome, Step, Verification
from tuner.verify.statistics import Estimate, estimate
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
    compared = estimate(trial.scores(), trial.before_scores)
    result = _early(trial) or _harm(trial, compared) or _end(trial, compared)
    return _verification(trial, cycle_id, compared, result)


def abandon(trial: Trial, *, cycle_id: int, reason: str) -> Verification:
    """Say that a trial ends without a result and without a write, because the settings are no longer ours to judge.

    For a scheduler that restarted, or a person or controller that set a knob, while the trial ran: what is observed is
    no longer the change, and undoing would overwrite somebody else's. The caller drops the trial.
    """
    result = _Result(Outcome.ERROR, Step.WAIT, f"trial abandoned, nothing written: {reason}")
    return _verification(trial, cycle_id, estimate(trial.scores(), trial.before_scores), result)


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
    excess = _excess(trial)
    for index in np.flatnonzero(np.isfinite(trial.limits)):
        beyond = estimate(excess[:, index])
        if beyond.lower(HARM_CONFIDENCE) > 0:
            return _failed(f"{METRIC_NAMES[index]} is {beyond.mean * 100:.1f} % beyond its limit")
    # The newest samples by themselves, too: harm that begins late must not hide behind a good start.
    newest = estimate(trial.scores()[-terms.min_samples :], trial.before_scores)
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
            return _Result(Outcome.SUCCESSFUL, Step.PROMOTE, f"{_told(compared)}, surely better ({confidence * 100:.1f} %)")
        if compared.lower(HARM_CONFIDENCE) > 0 or compared.mean > terms.harm_ratio:
            return _failed(f"worse at the end: {_told(compared)}")
    told = _told(compared) if compared.samples >= terms.min_samples else _too_few(compared, terms.min_samples)
    if trial.extensions < terms.max_inconclusive:
        return _Result(Outcome.INCONCLUSIVE, Step.WAIT, f"{told}: extended by another {terms.window_seconds:.0f} s")
    return _Result(Outcome.INCONCLUSIVE, Step.ROLL_BACK, f"{told}: not shown to help, so undone")


def _failed(reason: str) -> _Result:
    return _Result(Outcome.FAILED, Step.ROLL_BACK, reason)


def _excess(trial: Trial) -> FloatArray:
    """Return how far each sample is beyond the safety limits, relative to them, shape (n, 13); NaN where unlimited.

    Where the setting before would have been beyond a limit, too, that is the limit: the change did not bring it there.
    """
    cause = np.where(
        SIGNS > 0, np.fmax(trial.limits, trial.counterfactual), np.fmin(trial.limits, trial.counterfactual)
    )
    limit = np.where(np.isfinite(trial.limits), cause, np.nan)
    excess: FloatArray = SIGNS * (trial.observed - limit) / np.maximum(np.abs(limit), FLOORS)
    return excess


def _told(compared: Estimate) -> str:
    if not compared.samples:
        return "no samples yet"
    word = "better" if compared.mean < 0 else "worse"
    return f"{abs(compared.mean) * 100:.1f} % ± {compared.error * 100:.1f} % {word} in {compared.samples} samples"


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
        observed=_means(trial.observed),
        counterfactual=_means(trial.counterfactual),
        reason=result.reason,
    )


def _means(rows: FloatArray) -> MetricVector:
    """Return the mean of each column over the rows that have a value, NaN where none has."""
    counts = np.isfinite(rows).sum(axis=0)
    return np.where(counts > 0, np.nansum(rows, axis=0) / np.maximum(counts, 1), np.nan)
