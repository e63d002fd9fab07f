"""A change on trial: all that must survive a restart, and how it grows by a sample.

The counterfactual of a sample is what the setting before the change would have given at the load that was observed:
the twin's answer for that setting and load, anchored to how far the twin was off before the change.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tuner.settings.model import VerifySettings
from tuner.values.knobs import KnobValues
from tuner.values.metrics import FLOORS, METRIC_COUNT, METRICS, MetricVector, score_terms, sum_terms
from tuner.values.stages import MIN_ANCHORS, STEP_SECONDS, FloatArray, Receipt
from tuner.verify.encoding import from_json, to_json
from tuner.verify.statistics import Samples, known

MIN_WEIGHT_RATIO: Final = 0.8
"""Smallest share of the score's weight that a sample must bring (assumption): one metric of ordinary weight may be
missing, for instance where no protected task started; the heaviest, or two, may not."""

_UPPERS: Final = np.array([spec.upper for spec in METRICS])


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one look at the cluster brought.

    Attributes:
        at_seconds: Time of the look.
        observed: Metrics, shape (13,); NaN where there is no sample.
        untouched: What the twin gives for the setting before the change at the observed load, shape (13,).
        arriving: Whether work arrived; without it there is nothing to compare.
    """

    at_seconds: float
    observed: MetricVector
    untouched: MetricVector
    arriving: bool = True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trial:
    """A change on trial.

    Attributes:
        change_cycle_id: Cycle that made the change.
        before: Setting before it, to which a failure leads back.
        after: Setting on trial.
        effective_at_seconds: When the setting was seen to be in force.
        settle_seconds: Time after which samples count: the wash-out, and the time over which each sample is a mean.
        span_seconds: Time over which each sample is a mean: samples closer than that share data.
        expected_score: Score that the twin predicted.
        expected_terms: What each metric was to add to it, shape (13,); NaN where nothing was predicted.
        terms: The limits under which the trial began, whatever the policy says since.
        weights: Weights of the score, shape (13,).
        limits: Limits of the safety metrics, shape (13,); NaN where there is none.
        residual: Logarithm of observed over twin before the change, shape (13,); NaN where it is not known.
        before_terms: What each metric adds to the score of each sample before the change against its own
            counterfactual, shape (m, 13): the noise.
        before_times_seconds: Times of those samples from the first one on; only their distances matter.
        times_seconds: Times of the usable samples, shape (n,).
        observed: Their metrics, shape (n, 13).
        counterfactual: What they would have been without the change, shape (n, 13).
        last_at_seconds: Time of the newest look.
        idle_seconds: Time in which nothing arrived: the clock of the trial stands still in it.
        idle: Whether nothing arrived at the newest look.
        errors: Consecutive looks without usable data.
        extensions: Windows that ended without a result.
    """

    change_cycle_id: int
    before: KnobValues
    after: KnobValues
    effective_at_seconds: float
    settle_seconds: float
    span_seconds: float
    expected_score: float
    expected_terms: MetricVector
    terms: VerifySettings
    weights: MetricVector
    limits: MetricVector
    residual: MetricVector
    before_terms: FloatArray
    before_times_seconds: FloatArray
    times_seconds: FloatArray
    observed: FloatArray
    counterfactual: FloatArray
    last_at_seconds: float
    idle_seconds: float = 0.0
    idle: bool = False
    errors: int = 0
    extensions: int = 0

    @property
    def compared_seconds(self) -> float:
        """Time over which was compared so far; negative while washing out."""
        return self.last_at_seconds - self.effective_at_seconds - self.idle_seconds - self.settle_seconds

    @property
    def ending(self) -> bool:
        """Whether the newest look is the one at which a window is judged."""
        over = self.compared_seconds >= self.terms.window_seconds * (self.extensions + 1)
        return over and not self.errors and not self.idle

    def scores(self) -> Samples:
        """Return the score of each usable sample against its counterfactual."""
        return Samples(self.times_seconds, sum_terms(self.sample_terms()))

    def noise(self) -> Samples:
        """Return the score of each sample before the change against its own counterfactual."""
        return Samples(self.before_times_seconds, sum_terms(self.before_terms))

    def sample_terms(self) -> FloatArray:
        """Return what each metric adds to the score of each usable sample, shape (n, 13)."""
        return score_terms(self.observed, self.counterfactual, weights=self.weights)

    def to_json(self) -> str:
        """Return the trial as strict JSON: numbers survive exactly, NaN becomes null."""
        return to_json(self)

    @classmethod
    def from_json(cls, text: str) -> "Trial":
        """Return the trial that `to_json` wrote.

        Raises:
            ValueError: The text is not a trial, or of another version.
        """
        return from_json(cls, text)


def begin(
    receipt: Receipt,
    *,
    expected_score: float,
    settle_seconds: float,
    terms: VerifySettings,
    weights: MetricVector,
    limits: MetricVector,
    before_observed: FloatArray,
    before_untouched: FloatArray,
    before_spacing_seconds: float = STEP_SECONDS,
    span_seconds: float = 0.0,
    expected_terms: MetricVector | None = None,
) -> Trial:
    """Return the trial of a change that has become effective.

    Args:
        receipt: What was written, and when it was seen to be in force.
        expected_score: Score that the twin predicted.
        settle_seconds: Wash-out plus the time over which each sample is a mean.
        terms: Limits of the comparison.
        weights: Weights of the score, shape (13,).
        limits: Limits of the safety metrics, shape (13,); NaN where there is none.
        before_observed: Metrics before the change, oldest first, shape (m, 13).
        before_untouched: What the twin gives for the same setting and loads, shape (m, 13).
        before_spacing_seconds: Distance of two of them.
        span_seconds: Time over which each sample, before and after, is a mean; 0 where samples share no data.
        expected_terms: What each metric was to add to the score, shape (13,); None where that was not predicted.

    Raises:
        ValueError: The change was never seen to be in force.
    """
    if not np.isfinite(receipt.effective_at_seconds):
        raise ValueError(f"change of cycle {receipt.cycle_id} was not seen to be in force; nothing to try")
    residual = _residual(before_observed, before_untouched)
    return Trial(
        change_cycle_id=receipt.cycle_id,
        before=receipt.before,
        after=receipt.after,
        effective_at_seconds=receipt.effective_at_seconds,
        settle_seconds=settle_seconds,
        span_seconds=span_seconds,
        expected_score=expected_score,
        expected_terms=np.full(METRIC_COUNT, np.nan) if expected_terms is None else expected_terms,
        terms=terms,
        weights=weights,
        limits=limits,
        residual=residual,
        before_terms=score_terms(before_observed, _anchored(before_untouched, residual), weights=weights),
        before_times_seconds=before_spacing_seconds * np.arange(len(before_observed), dtype=np.float64),
        times_seconds=np.empty(0),
        observed=np.empty((0, METRIC_COUNT)),
        counterfactual=np.empty((0, METRIC_COUNT)),
        last_at_seconds=receipt.effective_at_seconds,
    )


def advance(trial: Trial, sample: Sample) -> Trial:
    """Return the trial with one more look; one that is not newer than the last changes nothing.

    A look at which nothing arrives stops the clock. One that lacks what the score needs counts as an error. One from
    the time of washing out is not compared.
    """
    if not sample.at_seconds > trial.last_at_seconds:
        return trial
    looked = replace(
        trial,
        last_at_seconds=sample.at_seconds,
        idle=not sample.arriving,
        # The window that ended with the last look had no result, or there would be no further one.
        extensions=trial.extensions + trial.ending,
    )
    if not sample.arriving:
        return replace(looked, idle_seconds=trial.idle_seconds + sample.at_seconds - trial.last_at_seconds)
    counterfactual = _anchored(sample.untouched, trial.residual)
    if not _usable(trial, sample.observed, counterfactual):
        return replace(looked, errors=trial.errors + 1)
    if looked.compared_seconds < 0:
        return replace(looked, errors=0)
    return replace(
        looked,
        errors=0,
        times_seconds=np.append(trial.times_seconds, sample.at_seconds),
        observed=np.vstack((trial.observed, known(sample.observed))),
        counterfactual=np.vstack((trial.counterfactual, counterfactual)),
    )


def _usable(trial: Trial, observed: MetricVector, counterfactual: MetricVector) -> bool:
    """Say whether a sample brings enough of what could be compared before the change."""
    comparable = np.isfinite(trial.residual)
    usable = comparable & np.isfinite(observed) & np.isfinite(counterfactual)
    return bool(trial.weights[usable].sum() >= MIN_WEIGHT_RATIO * trial.weights[comparable].sum() > 0)


def _residual(observed: FloatArray, untouched: FloatArray) -> MetricVector:
    """Return the mean logarithm of observed over twin, shape (13,); NaN where too few samples have both."""
    ratio = np.log(np.maximum(known(observed), FLOORS)) - np.log(np.maximum(known(untouched), FLOORS))
    counts = np.isfinite(ratio).sum(axis=0)
    mean = np.nansum(ratio, axis=0) / np.maximum(counts, 1)
    return np.where(counts >= MIN_ANCHORS, mean, np.nan)


def _anchored(untouched: FloatArray, residual: MetricVector) -> FloatArray:
    """Return what the twin gives, corrected by how far it was off, shape as `untouched`."""
    corrected: FloatArray = np.minimum(np.maximum(known(untouched), FLOORS) * np.exp(residual), _UPPERS)
    return corrected
