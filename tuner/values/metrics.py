"""The catalogue of metrics, and the one score that is made of them.

A set of metric values is a float64 vector in catalogue order (`MetricVector`, shape (13,)); arrays of more
dimensions keep the metrics last. NaN means "no sample": it is never zero, and it never scores.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

MetricVector: TypeAlias = NDArray[np.float64]


class Better(StrEnum):
    """In which direction a metric improves."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """What is known of a metric before any sample is read.

    Attributes:
        name: Name with its unit as suffix; series on /metrics are `clocktuner_observed_<name>`.
        unit: Unit in words, for tables and plots.
        better: Direction of improvement.
        objective: Whether it enters the score.
        safety: Whether a candidate may be refused, or a change undone, for it alone.
        per_node: Whether the policy's query answers with one series per node.
        optional: Whether a policy may leave it out without being told of it.
        weight: Default weight in the score; 0 for metrics that are not objectives.
        floor: Value below which differences no longer count, in the metric's unit; > 0 for objectives.
        upper: Largest value that is possible, in the metric's unit; infinity where there is none.
        tolerance_ratio: Relative change that tables flag as worse.
        summary: One sentence for people.
    """

    name: str
    unit: str
    better: Better
    summary: str
    objective: bool = False
    safety: bool = False
    per_node: bool = False
    optional: bool = False
    weight: float = 0.0
    floor: float = 1e-9
    upper: float = float("inf")
    tolerance_ratio: float = 0.01


# The weights sum to 1, so that a score of -0.05 reads as "5 % better". Waiting weighs most because it is what
# users of a cluster feel; the shares are a judgement, not a measurement, and policies may set their own.
# Floors are the smallest values that an operator would care to tell apart (assumptions).
METRICS: Final[tuple[MetricSpec, ...]] = (
    MetricSpec(
        name="scheduling_latency_seconds",
        unit="s",
        better=Better.LOWER,
        objective=True,
        safety=True,
        weight=0.15,
        floor=0.05,
        summary="Time from a task being ready to its scheduling decision (p99, else mean).",
    ),
    MetricSpec(
        name="resource_idle_ratio",
        unit="ratio",
        better=Better.LOWER,
        objective=True,
        weight=0.10,
        floor=0.02,
        upper=1.0,
        summary="Share of the accelerators that is not allocated.",
    ),
    MetricSpec(
        name="accelerator_utilization_ratio",
        unit="ratio",
        better=Better.HIGHER,
        objective=True,
        per_node=True,
        weight=0.15,
        floor=0.05,
        upper=1.0,
        summary="Share of accelerator time spent on useful work.",
    ),
    MetricSpec(
        name="queue_length",
        unit="tasks",
        better=Better.LOWER,
        summary="Tasks that wait to be placed.",
    ),
    MetricSpec(
        name="queue_wait_seconds",
        unit="s",
        better=Better.LOWER,
        objective=True,
        weight=0.25,
        floor=1.0,
        summary="Time that tasks wait before they start (p95, else mean by Little's law).",
    ),
    MetricSpec(
        name="tasks_completed_per_second",
        unit="1/s",
        better=Better.HIGHER,
        objective=True,
        weight=0.10,
        floor=0.001,
        summary="Throughput in completed tasks.",
    ),
    MetricSpec(
        name="task_abandonment_ratio",
        unit="ratio",
        better=Better.LOWER,
        safety=True,
        floor=0.001,
        upper=1.0,
        summary="Share of submitted tasks that were given up before they completed.",
    ),
    MetricSpec(
        name="running_task_remaining_seconds",
        unit="s",
        better=Better.NEITHER,
        summary="Mean remaining run time of the running tasks.",
    ),
    MetricSpec(
        name="node_temperature_celsius",
        unit="°C",
        better=Better.LOWER,
        safety=True,
        per_node=True,
        floor=20.0,
        upper=150.0,
        summary="Temperature of the hottest accelerator of a node.",
    ),
    MetricSpec(
        name="node_power_watts",
        unit="W",
        better=Better.LOWER,
        per_node=True,
        floor=50.0,
        summary="Power drawn by a node.",
    ),
    MetricSpec(
        name="pending_demand_ratio",
        unit="ratio",
        better=Better.LOWER,
        summary="Accelerators asked for by waiting tasks, over all accelerators; may exceed 1.",
    ),
    MetricSpec(
        name="switch_overhead_ratio",
        unit="ratio",
        better=Better.LOWER,
        objective=True,
        weight=0.10,
        floor=0.01,
        upper=1.0,
        summary="Share of accelerator time lost to switching and warming up.",
    ),
    MetricSpec(
        name="high_priority_wait_seconds",
        unit="s",
        better=Better.LOWER,
        objective=True,
        safety=True,
        optional=True,
        weight=0.15,
        floor=0.25,
        summary="Time that tasks of the protected class spend waiting (p95).",
    ),
)

METRIC_COUNT: Final = len(METRICS)
METRIC_NAMES: Final[tuple[str, ...]] = tuple(spec.name for spec in METRICS)
METRIC_INDEX: Final[Mapping[str, int]] = {name: index for index, name in enumerate(METRIC_NAMES)}
FLOORS: Final[MetricVector] = np.array([spec.floor for spec in METRICS])
DEFAULT_WEIGHTS: Final[MetricVector] = np.array([spec.weight for spec in METRICS])
SIGNS: Final[MetricVector] = np.array([-1.0 if spec.better is Better.HIGHER else 1.0 for spec in METRICS])


def metric_vector(values: Mapping[str, float]) -> MetricVector:
    """Return the values in catalogue order, NaN where none is given.

    Raises:
        KeyError: A name is not in the catalogue.
    """
    vector = np.full(METRIC_COUNT, np.nan)
    for name, value in values.items():
        vector[METRIC_INDEX[name]] = value
    return vector


def score_terms(
    metrics: ArrayLike, baseline: ArrayLike, *, weights: ArrayLike = DEFAULT_WEIGHTS
) -> NDArray[np.float64]:
    """Return each metric's contribution to the score; shape (..., 13).

    NaN where either side has no sample, and for metrics without weight.

    Args:
        metrics: Shape (..., 13).
        baseline: The same metrics under the untouched setting at the same load; broadcast against `metrics`.
        weights: Shape (13,), >= 0.
    """
    weight = np.asarray(weights, dtype=np.float64)
    ratio = np.log(np.maximum(metrics, FLOORS)) - np.log(np.maximum(baseline, FLOORS))
    terms: NDArray[np.float64] = np.where(weight > 0, weight * SIGNS * ratio, np.nan)
    return terms


def score(metrics: ArrayLike, baseline: ArrayLike, *, weights: ArrayLike = DEFAULT_WEIGHTS) -> NDArray[np.float64]:
    """Score metrics against a baseline; lower is better, 0 is equal, -0.05 reads as "5 % better".

    The score is `sum_i w_i * sign_i * ln(max(metric_i, floor_i) / max(baseline_i, floor_i))`. A metric without a
    sample on either side is left out: it neither helps nor harms.

    Args:
        metrics: Shape (..., 13).
        baseline: The same metrics under the untouched setting at the same load; broadcast against `metrics`.
        weights: Shape (13,), >= 0.

    Returns:
        Shape (...). NaN where no weighted metric has a sample on both sides.
    """
    return sum_terms(score_terms(metrics, baseline, weights=weights))


def sum_terms(terms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the score that is made of contributions: those without a sample are left out.

    Args:
        terms: Contributions by metric, as of `score_terms`, shape (..., 13).

    Returns:
        Shape (...). NaN where no metric contributes.
    """
    usable = np.isfinite(terms)
    total: NDArray[np.float64] = np.where(usable, terms, 0.0).sum(axis=-1)
    return np.where(usable.any(axis=-1), total, np.nan)


def worsened(metrics: MetricVector, baseline: MetricVector) -> tuple[str, ...]:
    """Name every metric with a direction that got worse by more than its tolerance, whatever its weight."""
    change = SIGNS * (np.log(np.maximum(metrics, FLOORS)) - np.log(np.maximum(baseline, FLOORS)))
    return tuple(
        spec.name
        for spec, delta in zip(METRICS, change, strict=True)
        if spec.better is not Better.NEITHER and delta > np.log1p(spec.tolerance_ratio)
    )
