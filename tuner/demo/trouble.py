"""The made-up load of the bad hour: an ordinary day on a cluster of its own, and what goes wrong in it.

Everything here is invented, sizes and times alike. The cluster is one hall of many small nodes, so that a surge can
outrun the scheduler's decisions: each waiting task is compared with every node, and more tasks arrive while it thinks.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.reference.cluster import ClusterSpec
from tuner.reference.synthetic import merge, poisson, popularity, tasks
from tuner.reference.workload import Priority, TaskKind, Workload
from tuner.values.stages import FloatArray

NODES: Final = 200

MODELS: Final = 6
"""Models that requests ask for."""

PROTECTED_RATIO: Final = 0.5
"""Share of the requests that is protected."""

REQUEST_SECONDS: Final = 1.5
JOB_SECONDS: Final = 420.0
"""Median run times of a request, and of a training job."""

JOB_SIZES: Final = (1.0, 2.0, 4.0)
"""Accelerators of a training job, equally often."""

OFFERED_RATIO: Final = 0.4
"""Share of the accelerators that the usual training asks for."""

PROTECTED_SECONDS: Final = 40.0
PROTECTED_BUSY_RATIO: Final = 0.3
"""Median run time of long protected requests, and the share of the accelerators that they keep busy."""

_SPREAD: Final = 0.6
"""Standard deviation of the logarithm of every run time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A stretch of simulated time, in seconds from the beginning of the bad hour."""

    start_seconds: float
    end_seconds: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end_seconds - self.start_seconds


def hall() -> ClusterSpec:
    """Return the cluster."""
    return ClusterSpec(name=f"hall-{NODES}", zone_nodes=(NODES,), gpus_per_node=4, cpu_slots_per_node=4)


def usual(rng: np.random.Generator, *, seconds: float, accelerators: int) -> Workload:
    """Return the usual load: short requests over training, some of which already runs when it begins.

    Args:
        rng: Where randomness comes from.
        seconds: How long it lasts.
        accelerators: Accelerators of the cluster.
    """
    mean_seconds = JOB_SECONDS * math.exp(_SPREAD**2 / 2)
    per_second = OFFERED_RATIO * accelerators / (float(np.mean(JOB_SIZES)) * mean_seconds)
    running = np.zeros(rng.poisson(per_second * mean_seconds))
    begin = np.concatenate([running, poisson(rng, per_second=per_second, span_seconds=seconds)])
    training = tasks(
        begin,
        _lengths(rng, JOB_SECONDS, begin.size),
        gpus=rng.choice(JOB_SIZES, begin.size),
        patience_seconds=7200.0,
    )
    whole = Stretch(start_seconds=0.0, end_seconds=seconds)
    return merge(requests(rng, whole, per_second=accelerators / 200.0), training)


def requests(rng: np.random.Generator, when: Stretch, *, per_second: float) -> Workload:
    """Return short requests at an even rate; many of them in a short time are a surge."""
    times = when.start_seconds + poisson(rng, per_second=per_second, span_seconds=when.seconds)
    protected = rng.random(times.size) < PROTECTED_RATIO
    return tasks(
        times,
        _lengths(rng, REQUEST_SECONDS, times.size),
        kind=TaskKind.INFERENCE,
        gpus=0.25,
        priority=np.where(protected, Priority.HIGH, Priority.NORMAL),
        patience_seconds=600.0,
        model=popularity(rng, models=MODELS, size=times.size),
    )


def protected(rng: np.random.Generator, when: Stretch, *, accelerators: int) -> Workload:
    """Return long protected requests, as busy as a share of the accelerators, which a healthy cluster has to spare."""
    per_second = PROTECTED_BUSY_RATIO * accelerators / (PROTECTED_SECONDS * math.exp(_SPREAD**2 / 2))
    times = when.start_seconds + poisson(rng, per_second=per_second, span_seconds=when.seconds)
    return tasks(
        times,
        _lengths(rng, PROTECTED_SECONDS, times.size),
        kind=TaskKind.INFERENCE,
        gpus=0.25,
        priority=Priority.HIGH,
        patience_seconds=3600.0,
        model=popularity(rng, models=MODELS, size=times.size),
    )


def _lengths(rng: np.random.Generator, median_seconds: float, size: int) -> FloatArray:
    lengths: FloatArray = median_seconds * np.exp(_SPREAD * rng.standard_normal(size))
    return lengths
