"""The objective: what the twin predicts, turned into scores and broken limits.

Everything is paired: a candidate is compared with the setting in force in the same scenario, so that what the load
does to both cancels out. Safety comes first: a candidate that breaks a limit ranks below every one that does not,
whatever its score.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuner.twin.residual import Residual
from tuner.values.metrics import FLOORS, METRIC_NAMES, SIGNS, MetricVector, score
from tuner.values.stages import FloatArray

INFEASIBLE: Final = 1e6
"""Added to the violation of a candidate that breaks a limit: far above any score, which is a sum of logarithms."""

MAX_VIOLATION: Final = 1e6
"""Where violations are cut off, because samplers want finite numbers; an unknown metric counts as this."""

TAIL_QUANTILE: Final = 0.9
"""Part of the scenarios that the tail guard leaves out: the worst tenth decides."""

_ROUNDING: Final = 1e-9
"""Relative excess that is rounding, not a broken limit."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """How candidates compare with the setting in force; one entry a candidate.

    Attributes:
        score: Mean score over the scenarios, corrected by what past changes taught, shape (C,); negative is better;
            NaN where nothing could be compared.
        error: Standard error of that mean over the scenarios, shape (C,); NaN for a single scenario.
        tail: The 0.9 quantile of the scores over the scenarios, shape (C,): how bad it is where it is worst.
        excess: Largest excess over each safety limit in any scenario, relative to the limit, shape (C, 13);
            0 where kept, infinity where the twin gave no value to compare.
        predicted: Mean metrics over the scenarios, as the twin says them, shape (C, 13).
        correction: What was added to the twin's score, shape (C,).
    """

    score: FloatArray
    error: FloatArray
    tail: FloatArray
    excess: FloatArray
    predicted: FloatArray
    correction: FloatArray

    @property
    def violation(self) -> FloatArray:
        """Return the sum of all excesses, shape (C,), finite; 0 where a candidate is feasible."""
        total: FloatArray = np.minimum(self.excess.sum(axis=-1), MAX_VIOLATION)
        return np.where(np.isfinite(self.score), total, MAX_VIOLATION)

    @property
    def feasible(self) -> NDArray[np.bool_]:
        """Return whether a candidate keeps every limit and could be compared, shape (C,)."""
        return np.asarray(self.violation == 0.0)

    @property
    def rank_value(self) -> FloatArray:
        """Return what a sampler without constraints shall minimise, shape (C,): feasibility, violation, score."""
        return np.where(self.feasible, self.score, INFEASIBLE + self.violation)

    def corrected(self, residual: Residual, moved: FloatArray, context: Sequence[float]) -> "Assessment":
        """Return the same with what past changes taught of the twin's promises.

        Args:
            residual: What they taught.
            moved: How far each candidate moves each knob, as of `displacement`, shape (C, 4).
            context: Load, as of `context_vector`.
        """
        correction = residual.correct(self.score, moved, context)
        return replace(
            self,
            score=self.score + correction,
            tail=self.tail + correction,
            correction=correction,
        )

    def violations(self, candidate: int) -> tuple[str, ...]:
        """Name the safety metrics that one candidate breaks."""
        return tuple(name for name, excess in zip(METRIC_NAMES, self.excess[candidate], strict=True) if excess > 0)


def assess(
    metrics: FloatArray,
    incumbent: FloatArray,
    *,
    weights: MetricVector,
    limits: MetricVector,
    scenario_weights: FloatArray,
) -> Assessment:
    """Compare candidates with the setting in force, scenario by scenario.

    Args:
        metrics: Predicted metrics of the candidates, shape (C, S, 13).
        incumbent: The same of the setting in force, shape (S, 13), on the same scenarios.
        weights: Weights of the score, shape (13,).
        limits: Limits of the safety metrics in their units, shape (13,); NaN where there is none.
        scenario_weights: Weight of each scenario in a mean, shape (S,); sum 1.

    Returns:
        The comparison. The standard error treats the scenarios as independent; they are strata of the forecast, so
        it states the spread over plausible loads rather than the error of the twin.
    """
    metrics = np.where(np.isfinite(metrics), metrics, np.nan)  # An infinite prediction is none.
    scores = score(metrics, incumbent, weights=weights)
    # A metric that the twin lost for the candidate alone would drop out of the score and flatter it.
    lost = (np.isfinite(incumbent) & ~np.isfinite(metrics) & (weights > 0)).any(axis=-1)
    scores = np.where(lost, np.nan, scores)
    mean = _weighted(scores, scenario_weights)
    return Assessment(
        score=mean,
        error=_standard_error(scores - mean[:, None], scenario_weights),
        tail=np.quantile(scores, TAIL_QUANTILE, axis=1),
        excess=_excess(metrics, incumbent, limits),
        predicted=_weighted(np.moveaxis(metrics, 1, -1), scenario_weights),
        correction=np.zeros(len(mean)),
    )


def _weighted(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the weighted mean over the last axis, summed in an order that no linear-algebra library chooses."""
    mean: FloatArray = (values * weights).sum(axis=-1)
    return mean


def _standard_error(deviations: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the standard error of weighted means, shape (C,); NaN for a single scenario.

    With equal weights it is the usual one. Unequal ones count as `1 / sum(w^2)` samples (Kish, "Survey Sampling",
    1965, section 11.7).
    """
    concentration = float((weights**2).sum())
    if concentration >= 1.0:
        return np.full(len(deviations), np.nan)
    error: FloatArray = np.sqrt(_weighted(deviations**2, weights) * concentration / (1.0 - concentration))
    return error


def _excess(metrics: FloatArray, incumbent: FloatArray, limits: MetricVector) -> FloatArray:
    """Return the largest relative excess over the limits, shape (C, 13).

    Where the setting in force breaks a limit itself, it is the limit: the way back may be short of safe, but it
    must not lead further away. A metric that the twin cannot give for the setting in force either is left to the
    guards that watch the cluster itself.
    """
    limit = np.where(SIGNS > 0, np.fmax(limits, incumbent), np.fmin(limits, incumbent))
    relative = SIGNS * (metrics - limit) / np.maximum(np.abs(limit), FLOORS)
    # Written as "not <=", so that a value that the twin could not give for the candidate counts as broken.
    broken = np.isfinite(limits) & np.isfinite(incumbent) & ~(relative <= _ROUNDING)
    excess = np.where(broken, np.where(np.isnan(relative), np.inf, relative), 0.0)
    return np.asarray(excess.max(axis=1))
