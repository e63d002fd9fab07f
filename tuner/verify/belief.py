"""What is believed of a change: what the twin expected of it, corrected by what was measured, metric by metric.

A score is a sum over metrics of very unlike noise: the tail of a queue wait may double by chance within minutes, while
the share of time lost to switching hardly moves. Each metric is therefore weighed by itself: where the measurement is
sharp it decides, where it is blunt the expectation stands. Both are taken as normal, and combined by their precision
(Gelman et al., "Bayesian Data Analysis", section 2.5).
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from tuner.values.metrics import MetricVector, sum_terms
from tuner.verify.statistics import Estimate, Samples, estimate
from tuner.verify.trial import Trial

DOUBT_RATIO: Final = 0.02
"""Least deviation of what the twin expects of a metric, as a relative change: it is never surer (assumption)."""


def believe(trial: Trial) -> Estimate:
    """Return the believed score of a change that is compared with the twin, negative is better, with its error."""
    times, terms = trial.times_seconds, trial.sample_terms()
    measured = {
        int(index): estimate(
            Samples(times, terms[:, index]),
            Samples(trial.before_times_seconds, trial.before_terms[:, index]),
            span_seconds=trial.span_seconds,
        )
        for index in np.flatnonzero(trial.weights > 0)
    }
    promised = corrected(trial.expected_terms, trial.expected_score)
    return combine(promised, measured, weights=trial.weights, samples=len(times))


def corrected(expected_terms: MetricVector, expected_score: float) -> MetricVector:
    """Return what each metric was to add, after what past changes took off the promise as a whole.

    The twin tells terms, and what was learned of its promises is one number: it is taken off all terms alike. A promise
    is never raised.

    Args:
        expected_terms: What the twin says of each metric, shape (13,); NaN where nothing was predicted.
        expected_score: What was promised in the end; NaN leaves the terms as they are.
    """
    told = float(sum_terms(expected_terms))
    if not (np.isfinite(expected_score) and np.isfinite(told) and told < 0):
        return expected_terms
    return expected_terms * float(np.clip(expected_score / told, 0.0, 1.0))


def combine(
    expected_terms: MetricVector,
    measured: Mapping[int, Estimate],
    *,
    weights: MetricVector,
    samples: int,
    promised: bool = True,
) -> Estimate:
    """Return the score that is believed after an expectation was corrected by a measurement.

    An expectation is as uncertain as it is large: a twin that is wrong is wrong by as much as it promises. A metric of
    which nothing was expected is expected not to change.

    Args:
        expected_terms: What each metric was to add to the score, shape (13,); NaN where nothing was predicted.
        measured: What each weighted metric was measured to add, by its number.
        weights: Weights of the score, shape (13,).
        samples: How many samples were measured.
        promised: Whether the expectation counts; else it only tells how far a metric may have moved, either way.
    """
    mean = variance = 0.0
    for index, term in measured.items():
        expected = float(np.nan_to_num(expected_terms[index]))
        prior = max(abs(expected), DOUBT_RATIO * float(weights[index])) ** -2
        weight = _precision(term)
        mean += (prior * expected * promised + (weight * term.mean if weight else 0.0)) / (prior + weight)
        variance += 1.0 / (prior + weight)
    return Estimate(mean=mean, error=float(np.sqrt(variance)), samples=samples, degrees=np.inf)


def _precision(measured: Estimate) -> float:
    """Return the precision of a measurement; 0 where it has none."""
    known = np.isfinite(measured.mean) and np.isfinite(measured.error) and measured.error > 0
    return measured.error**-2 if known else 0.0
