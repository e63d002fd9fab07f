"""The source document's own headline figures, beside what the simulation gives.

They are claims about real clusters; the simulation was not made to agree with them, and does not always. Each row says
how the figure is taken. What depends on the scheduler alone is the mean over all workloads and seeds within the
recommended bounds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tuner.bench.replays import Outcome
from tuner.reference.settings import ClockSettings
from tuner.values.metrics import METRIC_INDEX

ADAPTIVE_SLICE_ONLY: Final = replace(ClockSettings.unoptimised(), adaptive_slice=True)
"""The unoptimised scheduler with nothing but slices that adapt."""

Reader = Callable[[Outcome], float]
"""Takes one figure from an outcome."""


def metric(name: str) -> Reader:
    """Return what reads a metric of the whole replay."""
    index = METRIC_INDEX[name]
    return lambda outcome: float(outcome.metrics[index])


def fact(name: str) -> Reader:
    """Return what reads a fact; see `tuner.bench.facts`."""
    return lambda outcome: outcome.facts[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """One figure that the source document claims.

    Attributes:
        name: Name in figures.
        claim: What the document says.
        how: How it is taken from the simulation.
        read: Takes it from an outcome.
    """

    name: str
    claim: str
    how: str
    read: Reader


HEADLINES: Final = (
    Headline(
        name="utilization_ratio",
        claim="62 % -> 81 %; adaptive slice alone +18 %",
        how="useful accelerator time over all of it",
        read=metric("accelerator_utilization_ratio"),
    ),
    Headline(
        name="lost_ratio",
        claim="30 % unoptimised",
        how="switching and warming over busy accelerator time",
        read=fact("lost_ratio"),
    ),
    Headline(
        name="completed_per_second",
        claim="+28 % to +45 %",
        how="tasks completed a second",
        read=metric("tasks_completed_per_second"),
    ),
    Headline(
        name="mean_wait_seconds",
        claim="12 min -> 3.8 min",
        how="submission to start, mean over started tasks",
        read=fact("mean_wait_seconds"),
    ),
    Headline(
        name="latency_quiet_seconds",
        claim="50 ms unoptimised, few tasks",
        how="mean scheduling latency in minutes with fewer than 100 tasks in the system",
        read=fact("latency_quiet_seconds"),
    ),
    Headline(
        name="latency_crowded_seconds",
        claim="2.3 s unoptimised, 100+ tasks",
        how="the same in minutes with 100 tasks or more",
        read=fact("latency_crowded_seconds"),
    ),
    Headline(
        name="decision_seconds",
        claim="2.7 s -> 420 ms",
        how="mean time of a scheduling decision",
        read=fact("decision_seconds"),
    ),
    Headline(
        name="cross_zone_gigabytes",
        claim="-41 %",
        how="moved between zones",
        read=lambda outcome: outcome.facts["cross_zone_bytes"] / 1e9,
    ),
    Headline(
        name="memory_latency_ratio",
        claim="-29 %",
        how="memory latency of running tasks over that of tasks bound to their NUMA domain, mean over time",
        read=fact("memory_latency_ratio"),
    ),
    Headline(
        name="abandonment_ratio",
        claim="-67 %",
        how="tasks given up over tasks submitted",
        read=metric("task_abandonment_ratio"),
    ),
)
"""All figures that can be read from a replay, in the order of the source document."""


def averaged(headline: Headline, outcomes: Sequence[Outcome]) -> float:
    """Return the mean of a figure over replays that have a sample of it; NaN where none has."""
    values = np.array([headline.read(outcome) for outcome in outcomes])
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")


def figures(arms: Mapping[str, Sequence[Outcome]]) -> Mapping[str, float]:
    """Return every figure of every arm, as `headline_FIGURE_ARM`."""
    return {
        f"headline_{headline.name}_{arm}": averaged(headline, outcomes)
        for headline in HEADLINES
        for arm, outcomes in arms.items()
    }


def cells(values: Sequence[float]) -> list[str]:
    """Return values as they stand in a table: each with its change from the first; empty where there is none."""
    first = values[0]
    told = [f"{first:.4g}"]
    for value in values[1:]:
        change = f" ({value / first - 1:+.0%})" if first > 0 else ""
        told.append(f"{value:.4g}{change}" if np.isfinite(value) else "")
    return told


def smallest(sizes: Sequence[int], good: Callable[[int], bool]) -> int | None:
    """Return the smallest good size by bisection, taking it that all above a good one are good; None without any.

    Args:
        sizes: Candidates, ascending.
        good: Whether a size will do.
    """
    low, high = 0, len(sizes)
    while low < high:
        middle = (low + high) // 2
        if good(sizes[middle]):
            high = middle
        else:
            low = middle + 1
    return sizes[low] if low < len(sizes) else None
