"""The simulated world of the demonstration: several schedulers on the same trace, advanced side by side.

The runs keep in step, because a Prometheus refuses samples that lie an hour behind its newest one.
"""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.reference.cluster import ClusterSpec
from tuner.reference.exposition import Exposition
from tuner.reference.scheduler import ReferenceScheduler
from tuner.reference.settings import ClockSettings
from tuner.reference.tally import Tally
from tuner.reference.workload import Workload
from tuner.reference.workloads import NamedWorkload
from tuner.values.metrics import MetricVector
from tuner.values.stages import FloatArray

START_AT_SECONDS: Final = 1_767_571_200.0
"""2026-01-05 00:00 UTC, a Monday: simulated time begins at a midnight, the same on every machine."""

SAMPLE_SECONDS: Final = 30.0
"""Distance of two samples, as of a scrape interval of half a minute."""

CLUSTER_LABEL: Final = "reference"
"""Value of the label `cluster` of every run; the label `run` tells them apart."""


@dataclass(slots=True)
class Run:
    """One scheduler of the demonstration.

    Attributes:
        key: Value of its label `run`.
        title: Name for people.
        scheduler: The scheduler.
        exposition: Layout of its series.
        tally: What has come of it so far.
        windows: Metrics of each piece of time that it was advanced by, each of shape (13,).
    """

    key: str
    title: str
    scheduler: ReferenceScheduler
    exposition: Exposition
    tally: Tally
    windows: list[MetricVector]
    _window: Tally

    def advance(self, times_seconds: FloatArray, *, closes_window: bool = True) -> FloatArray:
        """Advance through some times, and return the values of all series at each, shape (series, times).

        Args:
            times_seconds: Simulated seconds since the start, ascending, shape (times,).
            closes_window: Whether the metrics since the last window was closed make one more of `windows`.
        """
        columns = []
        for until in times_seconds.tolist():
            self.scheduler.advance(until)
            snapshot = self.scheduler.snapshot()
            self.tally.add(snapshot)
            self._window.add(snapshot)
            columns.append(self.exposition.values(snapshot))
        if closes_window:
            self.windows.append(self._window.metrics())
            self._window = _opened(self.scheduler)
        return np.stack(columns, axis=1)


class World:
    """The runs, and the threads that advance them."""

    def __init__(self, workload: NamedWorkload, runs: Mapping[str, tuple[str, ClockSettings]], *, seed: int) -> None:
        """Build a scheduler for each run; all get the same trace and the same seed.

        Args:
            workload: Trace and cluster.
            runs: Title and settings by key.
            seed: Seed of the physical constants and of chance.
        """
        self.runs = {
            key: open_run(key, title, workload.cluster, workload.trace.workload, settings, seed=seed)
            for key, (title, settings) in runs.items()
        }
        self._pool = ThreadPoolExecutor(len(self.runs), thread_name_prefix="run")

    def start(self, key: str, times_seconds: FloatArray) -> "Future[FloatArray]":
        """Begin to advance a run in the background; the kernels release the interpreter lock."""
        return self._pool.submit(self.runs[key].advance, times_seconds)

    def close(self) -> None:
        """End the threads; work that has not begun is dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def chunks(hours: float, *, chunk_seconds: float) -> list[FloatArray]:
    """Return the times of all samples, in pieces of one tuning cycle each."""
    per_chunk = round(chunk_seconds / SAMPLE_SECONDS)
    count = round(hours * 3600 / chunk_seconds)
    steps = np.arange(1, count * per_chunk + 1) * SAMPLE_SECONDS
    return list(steps.reshape(count, per_chunk))


def open_run(
    key: str, title: str, cluster: ClusterSpec, workload: Workload, settings: ClockSettings, *, seed: int
) -> Run:
    """Return a scheduler at the start of its time, with its series laid out."""
    scheduler = ReferenceScheduler(cluster, workload, settings=settings, seed=seed)
    exposition = Exposition(scheduler.snapshot(), extra_labels={"cluster": CLUSTER_LABEL, "run": key})
    return Run(key, title, scheduler, exposition, tally=_opened(scheduler), windows=[], _window=_opened(scheduler))


def _opened(scheduler: ReferenceScheduler) -> Tally:
    tally = Tally()
    tally.add(scheduler.snapshot())
    return tally
