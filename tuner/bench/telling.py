"""What is told of an arm of `bench tuning`."""

import numpy as np

from tuner.bench.arms import Outcomes
from tuner.bench.cases import UNTOUCHED
from tuner.bench.gaps import Spread
from tuner.values.metrics import METRIC_NAMES, MetricVector, worsened


def told(found: Outcomes, arm: str) -> dict[str, object]:
    """Return all that is told of an arm: means over the seeds, and the scores one by one."""
    outcomes, untouched = found.outcomes[arm], found.outcomes[UNTOUCHED]
    spread = Spread.of(found.scores(arm))
    metrics = mean_metrics(found, arm)
    harmful = [outcome.harmful_minutes(other) for outcome, other in zip(outcomes, untouched, strict=True)]
    return {
        "score": spread.mean,
        "score_error": _or_none(spread.error),
        "scores": list(found.scores(arm)),
        "window_scores": [_or_none(value) for value in found.window_scores(arm)],
        "metrics": {name: _or_none(value) for name, value in zip(METRIC_NAMES, metrics.tolist(), strict=True)},
        "worse": list(worsened(metrics, mean_metrics(found, UNTOUCHED))),
        "changes": float(np.mean([outcome.changes for outcome in outcomes])),
        "rollbacks": float(np.mean([outcome.rollbacks for outcome in outcomes])),
        "harmful_minutes": float(np.mean(harmful)),
    }


def mean_metrics(found: Outcomes, arm: str) -> MetricVector:
    """Return the mean of each metric over the seeds that have a sample of it, shape (13,)."""
    values = np.array([outcome.metrics for outcome in found.outcomes[arm]])
    known = np.isfinite(values)
    sums = np.where(known, values, 0.0).sum(axis=0)
    means: MetricVector = np.divide(sums, known.sum(axis=0), out=np.full(sums.size, np.nan), where=known.any(axis=0))
    return means


def _or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None
