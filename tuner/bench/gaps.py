"""The verdicts of `bench tuning`: pure functions of scores against the untouched run, one a seed; lower is better."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

LEAST_GAIN: Final = 0.05
"""Gain of the best fixed setting from which on there is a gap worth closing: five per cent."""
CONFIDENCE: Final = 0.95
"""Chance with which the cost of an arm lies at or under the bound that is told."""
LEAST_ERRORS: Final = 3.0
"""The same in paired standard errors."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean of paired differences, and how sure it is.

    Attributes:
        mean: Mean over the seeds.
        error: Its standard error; NaN for a single seed.
    """

    mean: float
    error: float

    @classmethod
    def of(cls, scores: Sequence[float]) -> "Spread":
        """Return mean and error of scores, one a seed; each is a paired difference, for untouched is 0 by definition.

        Raises:
            ValueError: There is none.
        """
        if not scores:
            raise ValueError("a mean needs a score")
        error = float(np.std(scores, ddof=1)) / math.sqrt(len(scores)) if len(scores) > 1 else math.nan
        return cls(float(np.mean(scores)), error)

    @classmethod
    def worst_ratio(cls, scores: Sequence[float]) -> float:
        """Return the upper 95 % bound of the cost against untouched, as a ratio: 1.02 reads as "at worst 2 % dearer".

        The bound is one-sided, of Student's distribution over the seeds; NaN for a single one, which bounds nothing.
        """
        from scipy.special import stdtrit

        spread = cls.of(scores)
        return math.exp(spread.mean + float(stdtrit(max(len(scores) - 1, 1), CONFIDENCE)) * spread.error)


def has_gap(fixed: Sequence[float]) -> bool:
    """Say whether hindsight gains enough over untouched, and surely enough; a single seed is never sure.

    Args:
        fixed: Scores of the best fixed setting.
    """
    spread = Spread.of(fixed)
    return -spread.mean >= LEAST_GAIN and -spread.mean >= LEAST_ERRORS * spread.error


def gap_closed_ratio(tuned: Sequence[float], fixed: Sequence[float]) -> float:
    """Return (untouched - tuned) / (untouched - best fixed), each the mean over seeds; untouched scores 0.

    1 is as good as hindsight, 0 as doing nothing, below 0 is harm. NaN where hindsight gains nothing.
    """
    gain = -Spread.of(fixed).mean
    return -Spread.of(tuned).mean / gain if gain > 0 else math.nan


def regret_ratio(tuned: Sequence[float], live: Sequence[Sequence[float]], fixed: Sequence[float]) -> float:
    """Return the regret of the tuned runs over that of the best live method; regret is score less that of best fixed.

    Below 0 where the tuned runs are better than the best fixed setting. NaN where the best live method is, for then
    there is nothing to compare with.
    """
    hindsight = Spread.of(fixed).mean
    regret = min(Spread.of(scores).mean for scores in live) - hindsight
    return (Spread.of(tuned).mean - hindsight) / regret if regret > 0 else math.nan
