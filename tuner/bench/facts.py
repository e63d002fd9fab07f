"""What else a replay tells, beside the metrics: the figures in which the source document makes its claims."""

from collections.abc import Mapping
from typing import Final

from tuner.reference.snapshot import Snapshot

CROWDED_TASKS: Final = 100
"""Tasks that run or wait from which on the source document speaks of many concurrent ones."""


class Ledger:
    """Gathers snapshots of one scheduler, at equal distances, and sums up what the metrics do not tell."""

    def __init__(self) -> None:
        self._first: Snapshot | None = None
        self._last: Snapshot | None = None
        self._latency = {False: [0.0, 0.0], True: [0.0, 0.0]}
        self._memory_sum = 0.0
        self._samples = 0

    def add(self, snapshot: Snapshot) -> None:
        """Take the next snapshot."""
        if self._first is None or self._last is None:
            self._first = self._last = snapshot
            return
        crowded = int(snapshot.running_tasks.sum() + snapshot.waiting_tasks.sum()) >= CROWDED_TASKS
        since = snapshot.scheduling_latency.since(self._last.scheduling_latency)
        self._latency[crowded][0] += since.total
        self._latency[crowded][1] += since.count
        self._memory_sum += snapshot.memory_latency_ratio
        self._samples += 1
        self._last = snapshot

    def facts(self) -> Mapping[str, float]:
        """Return the figures, over the time between the first and the last snapshot.

        Returns:
            `lost_ratio`: share of busy accelerator time that went into switching and warming. `mean_wait_seconds`:
            submission to start. `latency_quiet_seconds`, `latency_crowded_seconds`: mean scheduling latency in minutes
            that end with fewer than, and with at least, `CROWDED_TASKS` running or waiting. `decision_seconds`: mean
            time of a decision. `cross_zone_bytes`, `memory_latency_ratio` (mean over time). NaN without samples.
        """
        first, last = self._first, self._last
        if first is None or last is None:
            return {}
        useful = last.useful_seconds - first.useful_seconds
        lost = last.switch_seconds - first.switch_seconds + last.warmup_seconds - first.warmup_seconds
        return {
            "lost_ratio": _ratio(lost, useful + lost),
            "mean_wait_seconds": last.queue_wait.since(first.queue_wait).mean,
            "latency_quiet_seconds": _ratio(*self._latency[False]),
            "latency_crowded_seconds": _ratio(*self._latency[True]),
            "decision_seconds": last.decision_duration.since(first.decision_duration).mean,
            "cross_zone_bytes": last.cross_zone_bytes - first.cross_zone_bytes,
            "memory_latency_ratio": _ratio(self._memory_sum, self._samples),
        }


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else float("nan")
