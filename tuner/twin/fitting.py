"""Fitting the twin: regularised, robust generalised least squares on a log scale (Gauss-Newton with priors).

The model of record r and metric m is `started_log(observed) = started_log(twin) + level_m(t) + noise`. Parameters have
the priors of `parameters`. The level is what physics does not explain: a Gaussian process in time, a constant plus a
drift that forgets within hours (the discrepancy of Kennedy and O'Hagan, "Bayesian calibration of computer models",
Journal of the Royal Statistical Society B 63, 2001). So the parameters are told by what happened when a setting was
changed, rather than by how the load of the evening differs from that of the morning; and records that overlap do not
count twice. Wild residuals weigh next to nothing (Cauchy's loss by reweighting; Holland and Welsch, "Robust regression
using iteratively reweighted least-squares", Communications in Statistics A6, 1977). Errors are those of the Laplace
approximation.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.twin.load import RECENT_STEPS
from tuner.twin.model import EXTRAS, simulate_records, started_log
from tuner.twin.parameters import HIGH, LOW, PARAMETER_COUNT, PRIOR, SPREAD, unknown_levels
from tuner.twin.records import Memory
from tuner.twin.workload import HORIZON_SECONDS
from tuner.values.metrics import METRIC_COUNT, METRIC_NAMES, MetricVector
from tuner.values.stages import FloatArray

# How far a metric of one interval lies from its expectation, on the log scale, when the model is right; and how far
# its level drifts (assumptions).
_NOISE: Final = {
    "scheduling_latency_seconds": (0.03, 0.05),
    "resource_idle_ratio": (0.06, 0.3),
    "accelerator_utilization_ratio": (0.02, 0.1),
    "queue_length": (0.4, 0.5),
    "queue_wait_seconds": (0.5, 0.3),
    "tasks_completed_per_second": (0.1, 0.1),
    "task_abandonment_ratio": (0.7, 0.3),
    "running_task_remaining_seconds": (0.1, 0.5),
    "node_temperature_celsius": (0.02, 0.1),
    "node_power_watts": (0.02, 0.1),
    "pending_demand_ratio": (0.6, 0.5),
    "switch_overhead_ratio": (0.06, 0.3),
    "high_priority_wait_seconds": (0.2, 0.4),
    "decision_seconds": (0.05, 0.1),
    "cold_start_ratio": (0.15, 0.4),
}
NOISE: Final[FloatArray] = np.array([_NOISE[name][0] for name in (*METRIC_NAMES, *EXTRAS)])
DRIFT: Final[FloatArray] = np.array([_NOISE[name][1] for name in (*METRIC_NAMES, *EXTRAS)])

LEVEL_SPREAD: Final[FloatArray] = np.concatenate([np.where(np.isnan(unknown_levels()), 20.0, 1.0), [0.1, 0.1]])

"""Spread of the constant levels: free for metrics of which the twin knows only the shape, narrow for what it means
exactly."""

DRIFT_SECONDS: Final = 2 * 3600.0
"""Time in which the drift of a level forgets (assumption): the mix of work changes over hours."""
OVERLAP_SECONDS: Final = HORIZON_SECONDS - RECENT_STEPS * 60.0
"""Time that each record is a mean over: nearer ones share part of their noise."""

ASSUMED_RECORDS: Final = 4.0
"""Records that the assumed noise counts for against what is seen."""

CAUCHY: Final = 2.385
"""Deviations at which a residual counts half: 95 % efficient where the noise is normal (Holland and Welsch, 1977)."""
DIFFERENCE: Final = 0.05
"""Step of the difference quotients, on the log scale: far above rounding, small against every spread."""
MAX_STEP: Final = 0.7
"""Largest change of a parameter in one iteration, on the log scale."""
DAMPINGS: Final = (0.0, 0.3, 3.0, 30.0)
"""Shares of the curvature that are added to it, one after the other, until a step helps."""
_OUTPUTS: Final = METRIC_COUNT + len(EXTRAS)


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
    problem = _Problem(memory, start)
    values, errors = start.copy(), SPREAD.copy()
    for _ in range(iterations):
        slope, curvature = problem.slopes(values)
        errors = np.sqrt(np.diag(np.linalg.inv(curvature)))
        better = _descend(problem, values, slope, curvature)
        if better is None:
            break
        values = better
    return Fit(values, errors, *problem.levels(values))


def _descend(problem: "_Problem", values: FloatArray, slope: FloatArray, curvature: FloatArray) -> FloatArray | None:
    """Return the first step that lowers the loss, damped more and more (Levenberg and Marquardt); None where none does.

    Queues have kinks, at which an undamped step may point the wrong way.
    """
    before = problem.loss(values)
    for damping in DAMPINGS:
        step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), slope)
        tried: FloatArray = np.clip(values + np.clip(step, -MAX_STEP, MAX_STEP), LOW, HIGH)
        if problem.loss(tried) < before:
            return tried
    return None


class _Problem:
    """The least-squares problem of one memory; its weights are those of the last step."""

    def __init__(self, memory: Memory, start: FloatArray) -> None:
        self._knobs, self._scenarios = memory.knobs, memory.scenarios
        self._target = started_log(memory.observed)
        self._known = np.isfinite(self._target)
        times = memory.at_seconds
        apart = np.abs(times[:, None] - times)
        self._shared = np.maximum(1.0 - apart / OVERLAP_SECONDS, 0.0)
        self._drift = np.exp(-apart / DRIFT_SECONDS)
        self._ahead = np.exp(-(times[-1] + HORIZON_SECONDS / 2.0 - times) / DRIFT_SECONDS)
        self._weights = np.ones(self._target.shape)
        self._noise = self._scatter(self.residuals(start[None])[0])
        self._factors = [self._factor(metric) for metric in range(_OUTPUTS)]

    def _scatter(self, residual: FloatArray) -> FloatArray:
        """Return the noise of each metric, shape (15,): what is assumed and what is seen between neighbours in time.

        Levels drift slowly, and so cancel between two records that follow one another; the median leaves out changes.
        """
        noise = NOISE.copy()
        fresh = 1.0 - np.diagonal(self._shared, 1)
        for metric in range(_OUTPUTS):
            both = self._known[1:, metric] & self._known[:-1, metric] & (fresh > 0.0)
            if both.any():
                steps = np.diff(residual[:, metric])[both] / np.sqrt(2.0 * fresh[both])
                seen = (np.median(np.abs(steps)) / 0.6745) ** 2
                count = float(fresh[both].sum())
                noise[metric] = np.sqrt(
                    (ASSUMED_RECORDS * NOISE[metric] ** 2 + count * seen) / (ASSUMED_RECORDS + count)
                )
        return noise

    def _factor(self, metric: int) -> FloatArray:
        """Return the inverse of the Cholesky factor of a metric's covariance over the records that know it."""
        known = self._known[:, metric]
        noise = self._noise[metric] ** 2
        covariance = (self._level(metric) + noise * self._shared)[np.ix_(known, known)]
        # What makes a record wild is its own.
        covariance[np.diag_indices_from(covariance)] += noise * (1.0 / self._weights[known, metric] - 1.0 + 1e-3)
        lower = np.linalg.cholesky(covariance)
        inverse: FloatArray = np.linalg.inv(lower)
        return inverse

    def _level(self, metric: int) -> FloatArray:
        covariance: FloatArray = LEVEL_SPREAD[metric] ** 2 + DRIFT[metric] ** 2 * self._drift
        return covariance

    def residuals(self, values: FloatArray) -> FloatArray:
        """Return what variants of the parameters, shape (V, P), leave unexplained: (V, R, 15), 0 where unknown."""
        raw = started_log(simulate_records(self._knobs, self._scenarios, values))
        return np.where(self._known, self._target - raw, 0.0)

    def _whiten(self, residual: FloatArray) -> FloatArray:
        """Return residuals of shape (V, R, 15) as uncorrelated ones of unit variance, shape (V, N)."""
        return np.concatenate(
            [residual[:, self._known[:, metric], metric] @ factor.T for metric, factor in enumerate(self._factors)],
            axis=1,
        )

    def loss(self, values: FloatArray) -> float:
        """Return the penalised loss, with the weights of the last step."""
        white = self._whiten(self.residuals(values[None]))
        return float(0.5 * (white**2).sum() + 0.5 * (((values - PRIOR) / SPREAD) ** 2).sum())

    def slopes(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the downhill slope of the loss, shape (P,), and its curvature, (P, P); sets the weights anew."""
        variants = np.vstack([values, values + DIFFERENCE * np.eye(PARAMETER_COUNT)])
        residual = self.residuals(variants)
        self._reweigh(residual[0])
        white = self._whiten(residual)
        slopes = ((white[0] - white[1:]) / DIFFERENCE).T
        return slopes.T @ white[0] - (values - PRIOR) / SPREAD**2, slopes.T @ slopes + np.diag(SPREAD**-2.0)

    def _reweigh(self, residual: FloatArray) -> None:
        """Set the weights by how far residuals of shape (R, 15) lie from what all other records say of them.

        What is left of a record by a fit that knows it would not tell: a drift may follow any single one. The formula
        is that of Sundararajan and Keerthi, "Predictive approaches for choosing hyperparameters in Gaussian processes",
        Neural Computation 13 (2001).
        """
        for metric, factor in enumerate(self._factors):
            known = self._known[:, metric]
            precision = factor.T @ factor
            own = np.diagonal(precision)
            apart = (precision @ residual[known, metric]) / own
            wild = self._noise[metric] ** 2 * (1.0 / self._weights[known, metric] - 1.0)
            spread = np.maximum(1.0 / own - wild, self._noise[metric] ** 2)
            self._weights[known, metric] = 1.0 / (1.0 + apart**2 / (CAUCHY**2 * spread))
        self._factors = [self._factor(metric) for metric in range(_OUTPUTS)]

    def levels(self, values: FloatArray) -> tuple[MetricVector, MetricVector]:
        """Return the levels of the time ahead, and the deviation of what remains (kriging)."""
        residual = self.residuals(values[None])[0]
        self._reweigh(residual)
        levels, errors = unknown_levels(), np.empty(METRIC_COUNT)
        for metric in range(METRIC_COUNT):
            known, factor = self._known[:, metric], self._factors[metric]
            ahead = LEVEL_SPREAD[metric] ** 2 + DRIFT[metric] ** 2 * self._ahead[known]
            white = factor @ ahead
            if known.any():
                levels[metric] = white @ (factor @ residual[known, metric])
            variance = LEVEL_SPREAD[metric] ** 2 + DRIFT[metric] ** 2 - white @ white
            errors[metric] = np.sqrt(max(variance, 0.0) + self._noise[metric] ** 2)
        return levels, errors
