"""Fitting the twin: regularised, robust least squares on a log scale (Gauss-Newton with priors).

The model of record r and metric m is `started_log(observed) = started_log(twin) + level_m + noise`. Parameters have
the priors of `parameters`, levels a prior around 0: what the twin cannot explain by physics it may explain by a level,
but not for nothing. Large residuals weigh less, and the wildest next to nothing (Cauchy's loss; Holland and Welsch,
"Robust regression using iteratively reweighted least-squares", Communications in Statistics A6, 1977). Errors are
those of the Laplace approximation.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.twin.model import EXTRAS, simulate_records, started_log
from tuner.twin.parameters import HIGH, LOW, PARAMETER_COUNT, PRIOR, SPREAD, unknown_levels
from tuner.twin.records import Memory
from tuner.values.metrics import METRIC_COUNT, METRIC_NAMES, MetricVector
from tuner.values.stages import FloatArray

# How far a metric of one interval lies from its expectation, on the log scale, when the model is right (assumptions).
_NOISE: Final = {
    "scheduling_latency_seconds": 0.08,
    "resource_idle_ratio": 0.2,
    "accelerator_utilization_ratio": 0.05,
    "queue_length": 0.3,
    "queue_wait_seconds": 0.3,
    "tasks_completed_per_second": 0.1,
    "task_abandonment_ratio": 0.5,
    "running_task_remaining_seconds": 0.3,
    "node_temperature_celsius": 0.05,
    "node_power_watts": 0.05,
    "pending_demand_ratio": 0.4,
    "switch_overhead_ratio": 0.05,
    "high_priority_wait_seconds": 0.3,
    "decision_seconds": 0.1,
    "cold_start_ratio": 0.1,
}
NOISE: Final[FloatArray] = np.array([_NOISE[name] for name in (*METRIC_NAMES, *EXTRAS)])

LEVEL_SPREAD: Final[FloatArray] = np.concatenate([np.where(np.isnan(unknown_levels()), 20.0, 0.5), [0.1, 0.1]])
"""Spread of the levels: free for metrics of which the twin knows only the shape, narrow for what it means exactly."""

_OUTPUTS: Final = METRIC_COUNT + len(EXTRAS)

HALF_LIFE_SECONDS: Final = 4 * 3600.0
"""Age at which a record counts half: constants of a cluster drift over hours, its load within minutes."""
LEVEL_HALF_LIFE_SECONDS: Final = 1200.0
"""The same for levels, which follow what is now."""

CAUCHY: Final = 2.385
"""Deviations at which a residual counts half: 95 % efficient where the noise is normal (Holland and Welsch, 1977)."""
DIFFERENCE: Final = 0.05
"""Step of the difference quotients, on the log scale: far above rounding, small against every spread."""
MAX_STEP: Final = 0.7
"""Largest change of a parameter in one iteration, on the log scale."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Parameters and levels that were fitted.

    Attributes:
        log_values: Shape (P,).
        log_errors: Shape (P,).
        levels: Shape (13,); NaN where nothing was observed and the twin has no level of its own.
        level_errors: Shape (13,).
    """

    log_values: FloatArray
    log_errors: FloatArray
    levels: MetricVector
    level_errors: MetricVector


def fit(memory: Memory, start: FloatArray, *, iterations: int) -> Fit:
    """Return parameters fitted to a memory that is not empty.

    Args:
        memory: What was observed.
        start: Where to begin, shape (P,).
        iterations: Largest number of Gauss-Newton steps; each costs one simulation a record and parameter.
    """
    problem = _Problem(memory)
    values, levels = start.copy(), problem.levels(start)
    errors = SPREAD.copy()
    for _ in range(iterations):
        step, errors = problem.step(values, levels)
        better = _descend(problem, values, levels, step)
        if better is None:
            break
        values, levels = better
    return Fit(values, errors, *problem.recent_levels(values))


def _descend(
    problem: "_Problem", values: FloatArray, levels: FloatArray, step: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """Return the first of the step, its half and its quarter that lowers the loss; None where none does."""
    before = problem.loss(values, levels)
    for factor in (1.0, 0.5, 0.25):
        tried = np.clip(values + factor * np.clip(step[:PARAMETER_COUNT], -MAX_STEP, MAX_STEP), LOW, HIGH)
        tried_levels = levels + factor * step[PARAMETER_COUNT:]
        if problem.loss(tried, tried_levels) < before:
            return tried, tried_levels
    return None


class _Problem:
    """The least-squares problem of one memory."""

    def __init__(self, memory: Memory) -> None:
        self._knobs, self._scenarios = memory.knobs, memory.scenarios
        self._target = started_log(memory.observed)
        self._known = np.isfinite(self._target)
        self._ages = memory.at_seconds[-1] - memory.at_seconds
        recency = np.exp2(-np.maximum(self._ages, 0.0) / HALF_LIFE_SECONDS)
        self._weights = np.where(self._known, recency[:, None] / NOISE**2, 0.0)

    def residuals(self, values: FloatArray) -> FloatArray:
        """Return what variants of the parameters, shape (V, P), leave unexplained: (V, R, 15), 0 where unknown."""
        raw = started_log(simulate_records(self._knobs, self._scenarios, values))
        return np.where(self._known, self._target - raw, 0.0)

    def levels(self, values: FloatArray) -> FloatArray:
        """Return the levels that explain most, given the parameters, shape (15,)."""
        residual = self.residuals(values[None])[0]
        levels: FloatArray = (self._weights * residual).sum(axis=0) / (self._weights.sum(axis=0) + LEVEL_SPREAD**-2.0)
        return levels

    def loss(self, values: FloatArray, levels: FloatArray) -> float:
        """Return the penalised robust loss."""
        residual = np.where(self._known, self.residuals(values[None])[0] - levels, 0.0)
        robust = 0.5 * CAUCHY**2 * np.log1p((residual / (CAUCHY * NOISE)) ** 2)
        penalty = (((values - PRIOR) / SPREAD) ** 2).sum() + ((levels / LEVEL_SPREAD) ** 2).sum()
        return float((robust * self._weights * NOISE**2).sum() + 0.5 * penalty)

    def step(self, values: FloatArray, levels: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the Gauss-Newton step of parameters and levels, shape (P + 15,), and errors of the parameters."""
        variants = np.vstack([values, values + DIFFERENCE * np.eye(PARAMETER_COUNT)])
        residual = self.residuals(variants)
        slopes = np.moveaxis((residual[:1] - residual[1:]) / DIFFERENCE, 0, -1)
        left = residual[0] - levels
        weights = self._weights / (1.0 + (left / (CAUCHY * NOISE)) ** 2)
        levelled = np.broadcast_to(np.eye(_OUTPUTS), (*left.shape, _OUTPUTS))
        design = np.concatenate([slopes, levelled], axis=-1).reshape(left.size, -1)
        weighted = design * weights.reshape(-1, 1)
        prior = np.concatenate([SPREAD, LEVEL_SPREAD]) ** -2.0
        curvature = weighted.T @ design + np.diag(prior)
        pull = prior * np.concatenate([values - PRIOR, levels])
        step = np.linalg.solve(curvature, weighted.T @ left.ravel() - pull)
        return step, np.sqrt(np.diag(np.linalg.inv(curvature))[:PARAMETER_COUNT])

    def recent_levels(self, values: FloatArray) -> tuple[MetricVector, MetricVector]:
        """Return the levels of now, and the deviation of what remains; records at the present setting weigh most."""
        known = self._known[:, :METRIC_COUNT]
        residual = self.residuals(values[None])[0, :, :METRIC_COUNT]
        same = np.isclose(self._knobs, self._knobs[-1], equal_nan=True).all(axis=1)
        recency = np.exp2(-np.maximum(self._ages, 0.0) / LEVEL_HALF_LIFE_SECONDS) * np.where(same, 1.0, 0.25)
        weights = np.where(known, recency[:, None], 0.0)
        total = weights.sum(axis=0)
        levels = unknown_levels()
        for metric in np.flatnonzero(total > 0):
            levels[metric] = _weighted_median(residual[:, metric], weights[:, metric])
        left = np.where(known, residual - levels, 0.0)
        # One more observation's worth of the assumed noise keeps a single record from looking certain.
        variance = ((weights * left**2).sum(axis=0) + NOISE[:METRIC_COUNT] ** 2) / (total + 1.0)
        # A level that jumps about is believed less: what it was is no guide to what it will be.
        prior = LEVEL_SPREAD[:METRIC_COUNT] ** 2
        return levels * prior / (prior + variance / np.maximum(total, 1e-9)), np.sqrt(variance)


def _weighted_median(values: FloatArray, weights: FloatArray) -> float:
    """Return the value with half of the weight on either side: one wild interval does not move it."""
    order = np.argsort(values)
    return float(np.interp(0.5, (np.cumsum(weights[order]) - 0.5 * weights[order]) / weights.sum(), values[order]))
