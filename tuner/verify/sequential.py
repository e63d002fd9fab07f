"""A sequential test for few pairs: how strong the evidence is after each, however often it is looked at.

Planned are t-tests, one at the end of each pair, whose error probabilities add up to `alpha`. The evidence is the
chance, were there no effect, that one of them rejects, given all pairs so far, over the same chance before the first:

    e_n = sum_m P(test m rejects | pairs 1..n, no effect) / alpha

Without an effect this is a martingale with mean 1 (conditional chances always are: Doob), so `P(any e_n >= 1 / alpha)
<= alpha` by Ville's inequality at whatever times and however often it is looked at. It is an e-value; a test that
rejects has chance 1, so the evidence is at least `1 / alpha` then, and it may be so earlier, where the tests that are
left would reject all but surely. A mixture SPRT promises the same for endless sequences, and pays for the endlessness:
of true gains of 1.4 standard deviations it misses half as many again within five pairs. (Koning, "Anytime Validity is
Free: Inducing Sequential Tests", 2025; conditional chances of tests: Mueller and Schaefer, "Adaptive group sequential
designs for clinical trials", Biometrics 57, 2001.)

The variance is not known. It is told from the pairs, and from pairs of the same kind before the change that compare
equal with equal, whose mean is known to be 0. The chances are those of Student's distribution, and depend on ratios
alone: the smaller the numbers, the more it takes.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from scipy.special import betaincinv, stdtr, stdtrit

from tuner.values.stages import FloatArray

LEAST_LOG: Final = -20.0
"""Logarithm of the least e-value that is told: a finite one, for what is 0."""

LEAST_SQUARES: Final = 1e-12
"""Sum of squares up to which values are equal but for rounding: differences of a millionth tell nothing."""

SHARED_LEG_RATIO: Final = 2.0 / 3.0
"""What differences of successive legs are worth, of as many independent ones: neighbours share a leg, which correlates
them by -1/2, so that the variance told by k of them is as sure as that of `k / (1 + 2 / 4)`."""

MAX_PAST_DEGREES: Final = 4.0
"""How many differences the past is worth at most, however long it was, because the noise of the hours to come is not
that of the hours before: the loads that the reference scheduler was recorded under come in bursts (kurtosis 6). With 4,
half as many changes without effect are promoted there as may be; with more, the short pasts come near (measured)."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How the error probability is spent over the pairs.

    Attributes:
        alpha: Chance, without an effect, that any test rejects, 0..1, exclusive.
        pairs: Pairs at most.
        power: `alpha * (n / pairs) ** power` is spent by the end of pair n (Kim and DeMets, "Design and analysis of
            group sequential tests based on the type I error spending rate function", Biometrika 74, 1987): over 1 keeps
            it for the end, when most is known; under 1 spends it early.
    """

    alpha: float
    pairs: int
    power: float

    @property
    def enough(self) -> float:
        """Logarithm of the e-value that decides, short of what rounding may take away."""
        return -float(np.log(self.alpha)) - 1e-9

    def ratios(self, degrees: float) -> FloatArray:
        """Return the least sum over the root of the sum of squares at which each test rejects, shape (pairs,).

        Args:
            degrees: Values before the first pair from which the variance is known. Tests for which fewer than two
                values would tell it do not take place, and leave their share to the others.
        """
        return _ratios(self.alpha, self.pairs, self.power, degrees)


@dataclass(frozen=True, slots=True)
class Noise:
    """What was known of the variance of pairs before the first.

    Attributes:
        squares: Sum of squares of differences that are 0 in the mean.
        degrees: How many independent ones that is worth; need not be whole.
    """

    squares: float = 0.0
    degrees: float = 0.0


def evidence(values: FloatArray, noise: Noise, plan: Plan) -> float:
    """Return the logarithm of the e-value that the mean of values is over 0; `log(1 / alpha)` is enough.

    Args:
        values: Pairs so far, shape (n,), in order; n at most `plan.pairs`.
        noise: What was known before.
        plan: The tests.
    """
    done, ratios = len(values), plan.ratios(noise.degrees)
    planned = np.isfinite(ratios)
    sums = np.cumsum(values)
    squares = noise.squares + np.cumsum(values**2)
    if not done or squares[-1] <= LEAST_SQUARES:
        return 0.0
    bounds = np.where(planned, ratios, 0.0)[:done] * np.sqrt(squares)
    chance = float(np.count_nonzero(planned[:done] & (sums > 0) & (sums >= bounds)))
    degrees = noise.degrees + done
    for number in range(done, plan.pairs):
        if planned[number]:
            ahead = number + 1 - done
            chance += _chance(float(sums[-1]), float(squares[-1]), degrees, ahead, float(ratios[number]))
    return max(float(np.log(chance / plan.alpha)), LEAST_LOG) if chance > 0 else LEAST_LOG


def deviation(values: FloatArray, noise: Noise) -> tuple[float, float]:
    """Return the standard deviation of a single pair and its degrees of freedom; NaN where it cannot be told.

    Args:
        values: Pairs so far, shape (n,).
        noise: What was known before.
    """
    around = float(((values - values.mean()) ** 2).sum()) if len(values) else 0.0
    degrees = noise.degrees + max(len(values) - 1, 0)
    return (float(np.sqrt((noise.squares + around) / degrees)) if degrees > 0 else np.nan), degrees


def past_noise(differences: FloatArray) -> Noise:
    """Return what differences of successive legs under one setting tell of the variance of pairs.

    Args:
        differences: Shape (k,); NaN where there is none.
    """
    found = differences[np.isfinite(differences)]
    if not len(found):
        return Noise()
    degrees = min(SHARED_LEG_RATIO * len(found), MAX_PAST_DEGREES)
    return Noise(squares=float((found**2).mean()) * degrees, degrees=degrees)


@lru_cache(maxsize=256)
def _ratios(alpha: float, pairs: int, power: float, degrees: float) -> FloatArray:
    number = np.arange(1, pairs + 1, dtype=np.float64)
    shares = np.diff(number**power, prepend=0.0)
    usable = degrees + number >= 2.0
    freedom = np.maximum(degrees + number - 1.0, 1.0)
    if not usable.any():
        return np.full(pairs, np.inf)
    spent = alpha * np.where(usable, shares, 0.0) / shares[usable].sum()
    critical = -stdtrit(freedom, np.where(usable, spent, 0.5))
    ratios = np.sqrt(number) * critical / np.sqrt(freedom + critical**2)
    return np.where(usable, ratios, np.inf)


def _chance(total: float, squares: float, degrees: float, ahead: int, ratio: float) -> float:
    """Return the chance, without an effect, that the sum after some more values is `ratio` times the root of squares.

    The mean of what is ahead and the squares around it are independent. Given the squares around it, which are to all
    squares as a beta variable says, the mean is Student's (Box and Tiao, "Bayesian Inference in Statistical Analysis",
    section 2.4: what is to come of a normal whose variance has been told by so many squares).
    """
    spread = squares / _shares(degrees, ahead)
    freedom = degrees + ahead - 1
    # It rejects where total + step * z >= ratio * sqrt(spread + z * z), z being the mean ahead times the root of its
    # number: from one value of z on, or between two where so large a z would speak of a larger variance instead.
    step = np.sqrt(ahead)
    slope = ahead - ratio**2
    inside = total**2 + slope * spread
    possible = inside >= 0 if total > 0 else np.full(len(spread), slope > 0)
    root = ratio * np.sqrt(np.maximum(inside, 0.0))
    if total > 0:
        low = (ratio**2 * spread - total**2) / (total * step + root)
    else:
        low = (root - total * step) / slope if slope > 0 else np.zeros(len(spread))
    high = (total * step + root) / -slope if slope < 0 else np.full(len(spread), np.inf)
    scale = np.sqrt(spread / freedom)
    chances = np.where(possible, stdtr(freedom, -low / scale) - stdtr(freedom, -high / scale), 0.0)
    return float(_WEIGHTS @ chances / 2.0) if ahead > 1 else float(chances[0])


@lru_cache(maxsize=4096)
def _shares(degrees: float, ahead: int) -> FloatArray:
    """Return the squares so far over those with what lies ahead, at equally likely points, shape (points,)."""
    if ahead == 1:
        return np.ones(1)
    return np.asarray(betaincinv(degrees / 2.0, (ahead - 1) / 2.0, (_NODES + 1.0) / 2.0))
