"""Means of samples that resemble each other, with honest errors.

What a scheduler shows now resembles what it showed a minute ago, and means over a quarter of an hour that are read
every minute share most of their data. Samples therefore count for less than their number; taking them for independent
is the commonest way to promote noise.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import stdtrit

from tuner.values.stages import FloatArray

MAX_PERSISTENCE: Final = 0.95
"""Largest correlation of samples without common data that is believed; beyond, twenty would count as hardly one."""

MIN_PAIRS: Final = 4
"""Fewest pairs of samples without common data from which their correlation is estimated; with fewer it is taken to be
the largest."""

_ROUNDS: Final = 20
"""Most rounds of the correction for bias; it settles within a few."""

_SETTLED: Final = 1e-3
"""Change of a persistence that no longer matters."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Values in time order.

    Attributes:
        times_seconds: Shape (n,), ascending.
        values: Shape (n,); NaN where there is no sample.
    """

    times_seconds: FloatArray
    values: FloatArray

    def known(self) -> "Samples":
        """Return those that have a value."""
        usable = np.isfinite(self.values)
        return Samples(self.times_seconds[usable], self.values[usable])


@dataclass(frozen=True, slots=True)
class Likeness:
    """How alike two samples are, by the time between them.

    Attributes:
        span_seconds: Time over which each sample is a mean; samples closer than that share data.
        persistence: Correlation of samples that share none, 0..1, at a distance of `lag_seconds`.
        lag_seconds: That distance, over 0.
    """

    span_seconds: float
    persistence: float
    lag_seconds: float

    def at(self, gap_seconds: FloatArray) -> FloatArray:
        """Return the correlation at a distance: that of common data, or the decay of a first-order process."""
        shared = np.maximum(1.0 - gap_seconds / max(self.span_seconds, 1e-9), 0.0)
        return np.maximum(shared, self.persistence ** (gap_seconds / self.lag_seconds))


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


def effective_samples(times_seconds: FloatArray, likeness: Likeness) -> float:
    """Return how many independent samples have a mean as sure as that of these, 0..n.

    `n^2 / sum_ij rho(t_i - t_j)`, which for an even grid and a first-order process is the number of Bayley and
    Hammersley, "The 'effective' number of independent observations in an autocorrelated time series", Journal of the
    Royal Statistical Society, Supplement 8 (1946).
    """
    gaps = np.abs(times_seconds[:, None] - times_seconds[None, :])
    return float(len(times_seconds) ** 2 / max(likeness.at(gaps).sum(), 1e-9))


def likeness_of(*series: Samples, span_seconds: float = 0.0) -> Likeness:
    """Return the likeness that several series have in common, each around its own mean.

    Of each sample and the next one that shares no data with it the correlation is taken. Deviations from a mean of few
    samples are too small and too unlike, by one effective sample; that is undone. Negative correlations, which would
    make samples count for more than one, are not believed.

    Args:
        series: Samples with values.
        span_seconds: Time over which each sample is a mean; 0 where they share no data.
    """
    products: list[float] = []
    lags: list[float] = []
    squares, count = 0.0, 0
    for samples in series:
        deviations = samples.values - samples.values.mean()
        first = np.arange(len(deviations))
        partner = np.maximum(np.searchsorted(samples.times_seconds, samples.times_seconds + span_seconds), first + 1)
        first, partner = first[partner < len(deviations)], partner[partner < len(deviations)]
        products.extend(deviations[first] * deviations[partner])
        lags.extend(samples.times_seconds[partner] - samples.times_seconds[first])
        squares, count = squares + float((deviations**2).sum()), count + len(deviations)
    if len(products) < MIN_PAIRS:
        return Likeness(span_seconds, MAX_PERSISTENCE, max(span_seconds, 1.0))
    lag_seconds = float(np.mean(lags))
    likeness = Likeness(span_seconds, 0.0, lag_seconds)
    if squares == 0.0:
        return likeness
    seen = float(np.mean(products)) / (squares / count)
    for _ in range(_ROUNDS):
        short = len(series) / sum(effective_samples(samples.times_seconds, likeness) for samples in series)
        corrected = min(max(seen * (1.0 - short) + short, 0.0), MAX_PERSISTENCE)
        settled = abs(corrected - likeness.persistence) < _SETTLED
        likeness = Likeness(span_seconds, corrected, lag_seconds)
        if settled:
            break
    return likeness


def estimate(after: Samples, before: Samples | None = None, *, span_seconds: float = 0.0) -> Estimate:
    """Return the mean of samples, less that of samples before that have the same noise.

    The noise and its likeness are estimated from both, each around its own mean; the uncertainty of the mean before is
    part of the error.

    Args:
        after: Samples after a change.
        before: Samples of the same quantity before it; None where the mean alone is asked for.
        span_seconds: Time over which each sample is a mean.
    """
    series = [samples.known() for samples in (after, before) if samples is not None]
    if not len(series[0].values):
        return Estimate(np.nan, np.nan, 0, 1.0)
    series = [samples for samples in series if len(samples.values)]
    means = [float(samples.values.mean()) for samples in series]
    likeness = likeness_of(*series, span_seconds=span_seconds)
    sizes = [max(effective_samples(samples.times_seconds, likeness), 1.0) for samples in series]
    # The squares around a sample mean are short by one effective sample each.
    freedom = sum(len(samples.values) * (1.0 - 1.0 / size) for samples, size in zip(series, sizes, strict=True))
    squares = sum(float(((samples.values - mean) ** 2).sum()) for samples, mean in zip(series, means, strict=True))
    variance = squares / freedom if freedom > 0 else np.nan
    return Estimate(
        mean=means[0] - (means[1] if len(means) > 1 else 0.0),
        error=float(np.sqrt(variance * sum(1.0 / size for size in sizes))),
        samples=len(series[0].values),
        degrees=max(sum(sizes) - len(sizes), 1.0),
    )


def known(values: FloatArray) -> FloatArray:
    """Return the values with NaN for what is not finite."""
    return np.where(np.isfinite(values), values, np.nan)


def means(rows: FloatArray) -> FloatArray:
    """Return the mean of each column over the rows that have a value, NaN where none has; shape (n, k) to (k,)."""
    counts = np.isfinite(rows).sum(axis=0)
    return np.where(counts > 0, np.nansum(rows, axis=0) / np.maximum(counts, 1), np.nan)
