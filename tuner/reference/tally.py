"""The thirteen metrics of a stretch of a replay, from snapshots along it: what tables and benchmarks compare."""

import numpy as np

from tuner.reference.snapshot import Snapshot
from tuner.values.metrics import METRIC_COUNT, MetricVector, metric_vector


class Tally:
    """Gathers snapshots of one scheduler, at equal distances, and sums them up.

    Counters and histograms are taken between the first and the last snapshot, so quantiles are those of all tasks of
    the stretch; gauges are averaged over the snapshots after the first. Temperature is that of the hottest node.
    """

    def __init__(self) -> None:
        self._first: Snapshot | None = None
        self._last: Snapshot | None = None
        self._gauges: list[tuple[float, ...]] = []

    def add(self, snapshot: Snapshot) -> None:
        """Take the next snapshot."""
        if self._first is None:
            self._first = snapshot
        else:
            self._gauges.append(_gauges(snapshot))
        self._last = snapshot

    def metrics(self) -> MetricVector:
        """Return the metrics of the stretch, shape (13,); NaN where nothing happened, or before the second snapshot."""
        if self._first is None or self._last is None or not self._gauges:
            return np.full(METRIC_COUNT, np.nan)
        first, last = self._first, self._last
        seconds = last.now_seconds - first.now_seconds
        lost = last.switch_seconds - first.switch_seconds + last.warmup_seconds - first.warmup_seconds
        submitted = float((last.submitted_tasks - first.submitted_tasks).sum())
        gauges = np.array(self._gauges)
        known = np.isfinite(gauges)
        sums = np.where(known, gauges, 0.0).sum(axis=0)
        means = np.divide(sums, known.sum(axis=0), out=np.full(sums.size, np.nan), where=known.any(axis=0))
        idle, queue, remaining, temperature, power, pending, accelerators = means.tolist()
        capacity = max(accelerators, 1.0) * seconds
        return metric_vector(
            {
                "scheduling_latency_seconds": last.scheduling_latency.since(first.scheduling_latency).quantile(0.99),
                "resource_idle_ratio": idle,
                "accelerator_utilization_ratio": (last.useful_seconds - first.useful_seconds) / capacity,
                "queue_length": queue,
                "queue_wait_seconds": last.queue_wait.since(first.queue_wait).quantile(0.95),
                "tasks_completed_per_second": float((last.completed_tasks - first.completed_tasks).sum()) / seconds,
                "task_abandonment_ratio": (
                    min(float((last.abandoned_tasks - first.abandoned_tasks).sum()) / submitted, 1.0)
                    if submitted
                    else np.nan
                ),
                "running_task_remaining_seconds": remaining,
                "node_temperature_celsius": temperature,
                "node_power_watts": power,
                "pending_demand_ratio": pending,
                "switch_overhead_ratio": lost / capacity,
                "high_priority_wait_seconds": last.high_priority_wait.since(first.high_priority_wait).quantile(0.95),
            }
        )


def _gauges(snapshot: Snapshot) -> tuple[float, ...]:
    up = snapshot.node_accelerators > 0
    # Where all nodes have failed there is nothing that could be idle, hot or short: no sample.
    accelerators = float(snapshot.accelerators) if up.any() else np.nan
    return (
        1 - snapshot.accelerators_allocated / accelerators,
        float(snapshot.queue_length),
        snapshot.running_remaining_seconds,
        float(snapshot.node_temperature_celsius[up].max()) if up.any() else np.nan,
        float(snapshot.node_power_watts[up].sum() / up.sum()) if up.any() else np.nan,
        snapshot.pending_accelerators / accelerators,
        float(snapshot.accelerators),
    )
