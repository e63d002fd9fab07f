"""The past of a switchback: what legs under one setting would have shown, and the noise that they tell."""

from typing import Final

import numpy as np

from tuner.values.metrics import METRIC_COUNT, MetricVector, score_terms
from tuner.values.stages import FloatArray
from tuner.verify.statistics import known, means

MAX_PAST_LEGS: Final = 24
"""Past legs that tell the noise: a few hours of them, because that of other hours is another one (assumption)."""

MOST_RATIO: Final = 1.0
"""Log-ratio of a metric beyond which it counts no further in a comparison (assumption): a factor of e. The tail of a
wait goes up a hundredfold by chance within minutes, and would drown what others say (Huber, "Robust estimation of a
location parameter", 1964)."""


def leg_terms(after: FloatArray, before: FloatArray, *, weights: MetricVector) -> FloatArray:
    """Return what each metric adds to the score of one leg against another, bounded at `MOST_RATIO`.

    Args:
        after: Metrics of shape (..., 13).
        before: The same of the other leg.
        weights: Weights of the score, shape (13,).

    Returns:
        Shape (..., 13); NaN where either side has no sample, and for metrics without weight.
    """
    most = MOST_RATIO * weights
    return np.clip(score_terms(after, before, weights=weights), -most, most)


def past_legs(
    times_seconds: FloatArray,
    metrics: FloatArray,
    *,
    wash_out_seconds: float,
    leg_seconds: float,
    recent_window_seconds: float,
    most: int = MAX_PAST_LEGS,
) -> FloatArray:
    """Cut looks at one setting into legs as they would have been, with a wash-out before each; the last is the newest.

    The newest one stands for the setting before a change, and all of them tell the noise (`neighbours`): their lengths
    and distances are those of the comparison, so that its noise is theirs, whatever resembles what in it.

    Args:
        times_seconds: Times of the looks, shape (m,), ascending.
        metrics: Metrics of each over the recent window, shape (m, 13).
        wash_out_seconds: Wash-out of the comparison.
        leg_seconds: Length of its legs.
        recent_window_seconds: Time over which each look is a mean.
        most: How many at most.

    Returns:
        Shape (k, 13), oldest first; NaN where a leg has no sample.
    """
    if not len(times_seconds):
        return np.empty((0, METRIC_COUNT))
    ends = times_seconds[-1] - (wash_out_seconds + leg_seconds) * np.arange(most)[::-1]
    # A look belongs to a leg where its window lies within. The first window began before the first look.
    ends = ends[ends - leg_seconds >= times_seconds[0] - recent_window_seconds]
    legs = [
        means(metrics[(times_seconds >= end - leg_seconds + recent_window_seconds) & (times_seconds <= end)])
        for end in ends.tolist()
    ]
    return np.array(legs).reshape(-1, METRIC_COUNT)


def neighbours(legs: FloatArray, *, weights: MetricVector) -> FloatArray:
    """Return what tells the noise before a change: the terms of each leg against the one before it.

    Args:
        legs: Metrics of successive legs under one setting that share no data, oldest first, shape (m, 13).
        weights: Weights of the score, shape (13,).

    Returns:
        Shape (m - 1, 13), or (0, 13) for fewer than two legs.
    """
    return leg_terms(known(legs[1:]), known(legs[:-1]), weights=weights)
