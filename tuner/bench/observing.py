"""Observations of a reference scheduler without a server between: for benchmarks that replay many runs.

What a policy's queries would answer is computed from pairs of snapshots, over the same window. The decisions that are
benchmarked elsewhere read a real Prometheus; here it would only cost time.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from tuner.reference.snapshot import Snapshot
from tuner.reference.workload import Priority
from tuner.values.context import CONTEXT_NAMES, TASK_CLASSES
from tuner.values.metrics import METRIC_COUNT, METRIC_NAMES, metric_vector
from tuner.values.stages import FloatArray, Observation, SeriesFrame

WINDOW_STEPS: Final = 5
"""Samples that rates and quantiles are taken over: five minutes, the recent window of a cycle."""


class Recorder:
    """Turns snapshots, one a simulated minute, into observations with their history."""

    def __init__(self, *, history_steps: int = 1440) -> None:
        """Begin without history; a day of it is kept unless told otherwise."""
        self._history_steps = history_steps
        self._snapshots: list[Snapshot] = []
        self._rows: list[Mapping[str, float]] = []

    def __len__(self) -> int:
        """Return the number of minutes that are known."""
        return len(self._rows)

    def push(self, snapshot: Snapshot) -> None:
        """Take in the snapshot of the next minute."""
        self._snapshots = [*self._snapshots[-WINDOW_STEPS:], snapshot]
        if len(self._snapshots) > 1:
            self._rows = [*self._rows[1 - self._history_steps :], read(self._snapshots[0], snapshot)]

    def copy(self) -> "Recorder":
        """Return a recorder that knows the same, and may go another way from here."""
        other = Recorder(history_steps=self._history_steps)
        other._snapshots, other._rows = list(self._snapshots), list(self._rows)
        return other

    def observation(self, *, cycle_id: int = 0, start_at_seconds: float = 0.0) -> Observation:
        """Return what is known now.

        Args:
            cycle_id: Number of the cycle.
            start_at_seconds: Unix time at which the replay began.

        Raises:
            ValueError: Fewer than two snapshots were taken in.
        """
        if not self._rows:
            raise ValueError("an observation needs two snapshots")
        newest, row = self._snapshots[-1], self._rows[-1]
        names = tuple(name for name in (*METRIC_NAMES, *CONTEXT_NAMES) if any(name in known for known in self._rows))
        at_seconds = start_at_seconds + newest.now_seconds
        return Observation(
            cycle_id=cycle_id,
            at_seconds=at_seconds,
            metrics=metric_vector({name: row[name] for name in METRIC_NAMES if name in row}),
            ages_seconds=np.zeros(METRIC_COUNT),
            coverage_ratio=np.ones(METRIC_COUNT),
            context={name: row[name] for name in CONTEXT_NAMES if name in row},
            history=SeriesFrame(names, at_seconds, self._values(names)),
            knobs=newest.settings.knobs,
            revision=str(newest.config_generation),
            mode=newest.settings.mode,
            arriving=newest.submitted_tasks.sum() > self._snapshots[0].submitted_tasks.sum(),
        )

    def _values(self, names: tuple[str, ...]) -> FloatArray:
        return np.array([[row.get(name, np.nan) for row in self._rows] for name in names])


def read(before: Snapshot, now: Snapshot) -> Mapping[str, float]:
    """Return metrics and context over the time between two snapshots; what has no sample is left out."""
    seconds = now.now_seconds - before.now_seconds
    submitted = now.submitted_tasks - before.submitted_tasks
    arrived = submitted.sum(axis=1)
    capacity = now.accelerators * seconds
    lost = now.switch_seconds + now.warmup_seconds - before.switch_seconds - before.warmup_seconds
    cold, hot = now.cold_starts - before.cold_starts, now.warm_starts - before.warm_starts
    values = {
        "scheduling_latency_seconds": now.scheduling_latency.since(before.scheduling_latency).quantile(0.99),
        "resource_idle_ratio": 1.0
        - (before.accelerators_allocated + now.accelerators_allocated) / 2 / now.accelerators,
        "accelerator_utilization_ratio": min((now.useful_seconds - before.useful_seconds) / capacity, 1.0),
        "queue_length": float(now.queue_length),
        "queue_wait_seconds": now.queue_wait.since(before.queue_wait).quantile(0.95),
        "tasks_completed_per_second": float((now.completed_tasks - before.completed_tasks).sum()) / seconds,
        "task_abandonment_ratio": min(
            _ratio(float((now.abandoned_tasks - before.abandoned_tasks).sum()), float(arrived.sum())), 1.0
        ),
        "running_task_remaining_seconds": now.running_remaining_seconds,
        "node_temperature_celsius": float(now.node_temperature_celsius.mean()),
        "node_power_watts": float(now.node_power_watts.mean()),
        "pending_demand_ratio": now.pending_accelerators / now.accelerators,
        "switch_overhead_ratio": lost / capacity,
        "high_priority_wait_seconds": now.high_priority_wait.since(before.high_priority_wait).quantile(0.95),
        "accelerators_count": float(now.accelerators),
        "nodes_count": float(len(now.node_names)),
        "high_priority_share_ratio": _ratio(float(submitted[:, Priority.HIGH].sum()), float(arrived.sum())),
        "decision_seconds": now.decision_duration.since(before.decision_duration).mean,
        "cold_start_ratio": _ratio(cold, cold + hot),
        "cold_start_seconds": _ratio(now.cold_start_seconds - before.cold_start_seconds, cold),
    }
    for index, kind in enumerate(TASK_CLASSES):
        asked = float(now.demand_accelerators[index] - before.demand_accelerators[index])
        values[f"arrivals_per_second:{kind}"] = float(arrived[index]) / seconds
        values[f"service_seconds:{kind}"] = now.service[index].since(before.service[index]).mean
        values[f"demand_accelerators:{kind}"] = _ratio(asked, float(arrived[index]))
        values[f"running_tasks:{kind}"] = float(now.running_tasks[index])
        values[f"waiting_tasks:{kind}"] = float(now.waiting_tasks[index])
    return {name: float(value) for name, value in values.items() if np.isfinite(value)}


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else float("nan")
