"""Means of autocorrelated samples, with honest errors.

What a scheduler shows now resembles what it showed a minute ago, and rates over five minutes that are read every
minute share most of their data. Samples therefore count for less than their number; taking them for independent is
the commonest way to promote noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import stdtrit

from tuner.values.stages import FloatArray

MAX_AUTOCORRELATION: Final = 0.95
"""Largest lag-1 autocorrelation that is believed; beyond, twenty samples would count as hardly more than one."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its uncertainty.

    Attributes:
        mean: The estimate; NaN where there is no sample.
        error: Its standard error; NaN where it cannot be told.
        samples: Number of samples, those without a value not counted.
        degrees: Degrees of freedom of the error, at least 1.
    """

    mean: float
    error: float
    samples: int
    degrees: float

    def lower(self, confidence: float) -> float:
        """Return the value above which the truth lies with a confidence, one-sided; NaN where unknown."""
        return self.mean - float(stdtrit(self.degrees, confidence)) * self.error

    def upper(self, confidence: float) -> float:
        """Return the value below which the truth lies with a confidence, one-sided; NaN where unknown."""
        return self.mean + float(stdtrit(self.degrees, confidence)) * self.error


def effective_samples(count: int, autocorrelation: float) -> float:
    """Return how many independent samples have a mean as sure as that of `count` autocorrelated ones.

    Bayley and Hammersley, "The 'effective' number of independent observations in an autocorrelated time series",
    Journal of the Royal Statistical Society, Supplement 8 (1946), for an autoregressive process of first order:
    `count / (1 + 2 sum_k (1 - k / count) rho^k)`.

    Args:
        count: Number of samples, >= 0.
        autocorrelation: Lag-1 autocorrelation rho, 0..1.
    """
    lags = np.arange(1, count)
    return float(count / (1.0 + 2.0 * ((1.0 - lags / max(count, 1)) * autocorrelation**lags).sum()))


def pooled_autocorrelation(*series: FloatArray) -> float:
    """Return the lag-1 autocorrelation that several series share, 0..0.95.

    Each series has its own mean; pairs across a NaN are left out. The estimate is biased downwards in short series,
    by `(1 + 3 rho) / count` (Marriott and Pope, Biometrika 41, 1954), which is undone. Negative values, which would
    make samples count for more than one, are not believed.
    """
    products = squares = 0.0
    count = groups = 0
    for values in series:
        deviations = values - _mean(values)
        pairs = deviations[1:] * deviations[:-1]
        products += float(np.nansum(pairs))
        squares += float(np.nansum(deviations**2))
        count += int(np.isfinite(deviations).sum())
        groups += bool(np.isfinite(deviations).any())
    if count <= 3 * groups:
        return MAX_AUTOCORRELATION  # Too short to tell.
    if squares == 0.0:
        return 0.0
    corrected = (count * products / squares + groups) / (count - 3 * groups)
    return min(max(corrected, 0.0), MAX_AUTOCORRELATION)


def estimate(values: Sequence[float] | FloatArray, reference: Sequence[float] | FloatArray = ()) -> Estimate:
    """Return the mean of a series, less that of a reference series that has the same noise.

    The noise and its autocorrelation are estimated from both, each around its own mean; the uncertainty of the
    reference's mean is part of the error.

    Args:
        values: Samples in time order, NaN where there is none.
        reference: Samples of the same quantity before the change; empty where the mean alone is asked for.
    """
    after, before = np.asarray(values, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    series = [part for part in (after, before) if np.isfinite(part).any()]
    samples = int(np.isfinite(after).sum())
    mean = _mean(after) - (_mean(before) if np.isfinite(before).any() else 0.0)
    if not samples:
        return Estimate(np.nan, np.nan, 0, 1.0)
    rho = pooled_autocorrelation(*series)
    counts = [int(np.isfinite(part).sum()) for part in series]
    effective = [max(effective_samples(count, rho), 1.0) for count in counts]
    # The squares around a sample mean are short by one effective sample each.
    freedom = sum(count * (1.0 - 1.0 / size) for count, size in zip(counts, effective, strict=True))
    squares = sum(float(np.nansum((part - _mean(part)) ** 2)) for part in series)
    variance = squares / freedom if freedom > 0 else np.nan
    error = float(np.sqrt(variance * sum(1.0 / size for size in effective)))
    return Estimate(mean, error, samples, max(sum(effective) - len(effective), 1.0))


def _mean(values: FloatArray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else np.nan
