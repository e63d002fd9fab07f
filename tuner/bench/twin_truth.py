"""How far two orders of settings agree, and how far a measured order can be trusted."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.bench.twin_trials import Fate
from tuner.values.metrics import score
from tuner.values.stages import FloatArray

SPLITS: Final = 200
"""Random splits that repeatability is a mean over."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """How well the twin puts settings in order.

    Attributes:
        agreement: Kendall's tau of the settings by mean score, twin against reference, both over all intervals.
        raw: The same interval by interval, in the mean: what one quarter of an hour shows, its chance and all.
        repeatability: Of the reference's mean scores, as of `repeatability`.
        attainable: The tau that a twin without any error would reach in the mean, as of `attainable`.
    """

    agreement: float
    raw: float
    repeatability: float
    attainable: float


def rank(fates: list[Fate]) -> Ranking:
    """Return how well the twin ranks the settings of one case, over all times of all its fates."""
    came = np.concatenate([score(fate.came[:, 1:], fate.came[:, :1]) for fate in fates])
    foretold = np.concatenate([score(fate.foretold[:, 1:], fate.foretold[:, :1]) for fate in fates])
    repeats = repeatability(came)
    return Ranking(
        agreement=kendall(foretold.mean(axis=0), came.mean(axis=0)),
        raw=float(np.nanmean([kendall(said, was) for said, was in zip(foretold, came, strict=True)])),
        repeatability=repeats,
        attainable=attainable(repeats),
    )


def repeatability(scores: FloatArray) -> float:
    """Return how well mean scores would repeat, were all of it done again: split halves, stepped up to the whole.

    The correlation `c` of the means of two random halves, in the mean over many splits, becomes `2 c / (1 + c)` for
    the whole (Spearman, "Correlation calculated from faulty data", and Brown, "Some experimental results in the
    correlation of mental abilities", British Journal of Psychology 3, 1910). Times of the day are split like fates, so
    that what holds at one load only counts as chance.

    Args:
        scores: Shape (intervals, settings).

    Returns:
        0..1; NaN for fewer than two intervals.
    """
    count = len(scores)
    if count < 2:
        return float("nan")
    generator = np.random.default_rng(0)
    found = []
    for _ in range(SPLITS):
        order = generator.permutation(count)
        one, other = scores[order[: count // 2]].mean(axis=0), scores[order[count // 2 :]].mean(axis=0)
        found.append(float(np.corrcoef(one, other)[0, 1]))
    half = max(float(np.mean(found)), 0.0)
    return 2.0 * half / (1.0 + half)


def attainable(repeatability: float) -> float:
    """Return Kendall's tau between the truth and a measurement of it of that repeatability, if both are normal.

    A measurement of repeatability `q` correlates `sqrt(q)` with the truth, and `tau = 2/pi asin(correlation)` (Kruskal,
    "Ordinal measures of association", Journal of the American Statistical Association 53, 1958).
    """
    return float(2.0 / np.pi * np.arcsin(np.sqrt(repeatability)))


def kendall(one: FloatArray, other: FloatArray) -> float:
    """Return Kendall's rank correlation (tau-b)."""
    from scipy.stats import kendalltau

    return float(kendalltau(one, other).statistic)
