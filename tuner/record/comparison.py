"""Several runs of the same load side by side: what each achieved, what each step gained, and what it cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tuner.values.metrics import METRIC_COUNT, METRICS, Better, MetricVector, score, worsened
from tuner.values.stages import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRun:
    """One run of the load.

    Attributes:
        name: Short, for columns: `a`.
        title: What is special about it: `clock control, untouched`.
        metrics: Metrics over the whole run, shape (13,); NaN where it has none.
        score: Score against the run that the caller takes as the baseline; NaN where it was not told.
        times_seconds: Times of the series, shape (n,).
        series: Metrics over time, shape (13, n).
        description: A sentence or two.
    """

    name: str
    title: str
    metrics: MetricVector
    score: float
    times_seconds: FloatArray
    series: FloatArray
    description: str = ""

    def __post_init__(self) -> None:
        """Refuse runs whose shapes disagree.

        Raises:
            ValueError: A shape is not the one documented.
        """
        if self.metrics.shape != (METRIC_COUNT,):
            raise ValueError(f"run {self.name}: metrics have shape {self.metrics.shape}, must be ({METRIC_COUNT},)")
        if self.series.shape != (METRIC_COUNT, len(self.times_seconds)):
            raise ValueError(
                f"run {self.name}: series have shape {self.series.shape}, "
                f"must be ({METRIC_COUNT}, {len(self.times_seconds)})"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What one run gained over the one before it.

    Attributes:
        earlier: Name of the run before.
        later: Name of the run.
        score: Score of its metrics against those before; negative is better.
        change_ratio: Relative change of each metric, shape (13,): 0.05 is 5 % more; NaN where it cannot be said.
        worse: Names of the metrics that got worse, whatever their weight.
    """

    earlier: str
    later: str
    score: float
    change_ratio: FloatArray
    worse: tuple[str, ...]


def gains(runs: Sequence[ComparisonRun], *, weights: MetricVector) -> tuple[Gain, ...]:
    """Return the gain of each run over the one before it."""
    return tuple(_gain(earlier, later, weights) for earlier, later in pairwise(runs))


def _gain(earlier: ComparisonRun, later: ComparisonRun, weights: MetricVector) -> Gain:
    usable = np.isfinite(earlier.metrics) & np.isfinite(later.metrics) & (earlier.metrics > 0)
    ratio = np.divide(later.metrics, earlier.metrics, out=np.full(METRIC_COUNT, np.nan), where=usable)
    return Gain(
        earlier=earlier.name,
        later=later.name,
        score=float(score(later.metrics, earlier.metrics, weights=weights)),
        change_ratio=ratio - 1.0,
        worse=worsened(later.metrics, earlier.metrics),
    )


def improves(index: int, change_ratio: float) -> bool:
    """Say whether a relative change of a metric is one for the better, beyond what tables take for noise."""
    spec = METRICS[index]
    if spec.better is Better.HIGHER:
        return change_ratio > spec.tolerance_ratio
    return spec.better is Better.LOWER and change_ratio < -spec.tolerance_ratio
