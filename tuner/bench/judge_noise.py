"""Noise for `bench judge`: what the metrics of the reference scheduler do by themselves, under one setting.

Recorded anew for every run of the benchmark, in lock-step, and cut into stretches as long as a trial with its past:
whole stretches keep whatever resembles what in them, so a trial meets the bursts and quiet hours of a load as they come
(a block bootstrap whose blocks are as long as what is tested; Kuensch, "The jackknife and the bootstrap for general
stationary observations", Annals of Statistics 17, 1989).
"""

import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.reference import workloads
from tuner.reference.scheduler import ReferenceScheduler, warm_up
from tuner.reference.settings import ClockSettings
from tuner.reference.snapshot import Snapshot
from tuner.reference.tally import Tally
from tuner.values.metrics import DEFAULT_WEIGHTS, FLOORS, SIGNS
from tuner.values.stages import STEP_SECONDS, FloatArray

WINDOW_STEPS: Final = 5
"""Minutes that each look is a mean of: the default of policies."""

LEG_STEPS: Final = 10
"""Length of a leg in minutes, by default."""

WASH_OUT_STEPS: Final = 5
"""Minutes between two legs, by default."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What the metrics of one run did by themselves.

    Attributes:
        name: Workload and seed.
        logs: Logarithm of each metric, less its mean over the run, at each minute, shape (minutes, 13); NaN where there
            was no sample.
        noise_ratio: Noise of the score of a leg: the standard deviation of the difference of neighbouring legs, over
            the root of two.
    """

    name: str
    logs: FloatArray
    noise_ratio: float

    def scaled(self, noise_ratio: float) -> FloatArray:
        """Return the logarithms with another noise, all metrics by one factor; shape (minutes, 13)."""
        return self.logs * (noise_ratio / self.noise_ratio)


def record(names: Sequence[str], seeds: Sequence[int], *, hours: float) -> tuple[Recording, ...]:
    """Record the untouched setting on each workload and seed.

    Raises:
        ConfigError: There is no such workload.
    """
    warm_up()
    runs = [(name, seed) for name in names for seed in seeds]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:  # The kernels release the interpreter lock.
        return tuple(pool.map(lambda run: record_run(*run, hours=hours), runs))


def record_run(name: str, seed: int, *, hours: float) -> Recording:
    """Record one run."""
    workload = workloads.build(name, seed=seed, hours=hours)
    settings = ClockSettings()
    scheduler = ReferenceScheduler(workload.cluster, workload.trace.workload, settings=settings, seed=seed)
    recent: deque[Snapshot] = deque([scheduler.snapshot()], maxlen=WINDOW_STEPS + 1)
    rows = []
    for step in range(1, round(hours * 3600 / STEP_SECONDS) + 1):
        scheduler.advance(step * STEP_SECONDS)
        recent.append(scheduler.snapshot())
        if len(recent) > WINDOW_STEPS:
            tally = Tally()
            for snapshot in recent:
                tally.add(snapshot)
            rows.append(tally.metrics())
    return recording(f"{name}/{seed}", np.array(rows))


def recording(name: str, metrics: FloatArray) -> Recording:
    """Return what metrics did by themselves.

    Args:
        name: Where they come from.
        metrics: At each minute, shape (minutes, 13).
    """
    logs = np.log(np.maximum(metrics, FLOORS))
    known = np.isfinite(logs)
    logs = logs - np.where(known, logs, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    scores = (DEFAULT_WEIGHTS * SIGNS * np.where(np.isfinite(logs), logs, 0.0)).sum(axis=1)
    # A leg's looks are those whose windows lie in it: the windows of its first minutes begin before it.
    count = LEG_STEPS - WINDOW_STEPS + 1
    legs = np.convolve(scores, np.full(count, 1.0 / count), mode="valid")
    apart = LEG_STEPS + WASH_OUT_STEPS
    return Recording(name, logs, float(np.std(legs[apart:] - legs[:-apart]) / np.sqrt(2.0)))
