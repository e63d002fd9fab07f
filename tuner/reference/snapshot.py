"""What the reference scheduler shows of itself at one instant: cumulative counters, gauges and histograms."""

from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tuner.reference.settings import ClockSettings
from tuner.values.metrics import MetricVector

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Histogram:
    """A cumulative histogram in the sense of Prometheus, counts kept apart by bucket.

    Attributes:
        bounds: Upper bounds of the finite buckets, ascending, shape (buckets,).
        counts: Observations in each bucket, not cumulated, the last over all bounds, shape (buckets + 1,).
        total: Sum of all observations.
    """

    bounds: FloatArray
    counts: IntArray
    total: float

    @property
    def count(self) -> int:
        """Number of observations."""
        return int(self.counts.sum())

    def cumulative(self) -> IntArray:
        """Return the observations at or below each bound, the last the count of all, shape (buckets + 1,)."""
        cumulated: IntArray = np.cumsum(self.counts)
        return cumulated

    @property
    def mean(self) -> float:
        """Mean of the observations; NaN without any."""
        return self.total / self.count if self.count else float("nan")

    def quantile(self, level: float) -> float:
        """Return a quantile by linear interpolation in its bucket, as PromQL's `histogram_quantile` does.

        Args:
            level: 0..1.

        Returns:
            NaN without observations; the largest bound where the quantile lies beyond it.
        """
        if not self.count:
            return float("nan")
        cumulated = self.cumulative()
        rank = level * cumulated[-1]
        bucket = int(np.searchsorted(cumulated, rank, side="left"))
        if bucket >= self.bounds.size:
            return float(self.bounds[-1])
        low = float(self.bounds[bucket - 1]) if bucket else 0.0
        before = float(cumulated[bucket - 1]) if bucket else 0.0
        inside = float(self.counts[bucket])
        return low + (float(self.bounds[bucket]) - low) * ((rank - before) / inside if inside else 0.0)

    def since(self, earlier: "Histogram") -> "Histogram":
        """Return the observations made after an earlier reading of the same histogram."""
        return Histogram(self.bounds, self.counts - earlier.counts, self.total - earlier.total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The scheduler at one instant. Class axes are in the order of `TASK_CLASSES`, node axes in that of the cluster.

    Counters only grow, from 0 when the scheduler started; accelerator-seconds are exact up to `now_seconds`, and
    `useful + switch + warmup + idle + down = accelerators of all nodes * uptime_seconds` (time that an allotted
    accelerator stalls is idle).

    Attributes:
        now_seconds: Seconds since the start of the replay.
        uptime_seconds: Time since the scheduler last started.
        finished: Whether every task is completed or abandoned.
        node_names: One a node, failed ones too.
        nodes: Nodes that have not failed.
        accelerators: Accelerators of these.
        accelerators_allocated: Those held by a gang or shared by at least one resident.
        node_accelerators: Shape (nodes,); 0 where the node has failed.
        node_useful_seconds: Accelerator-seconds of useful work, shape (nodes,); counter.
        node_temperature_celsius: Hottest accelerator, shape (nodes,); NaN where the node has failed.
        node_power_watts: Shape (nodes,); NaN where the node has failed.
        useful_seconds: Accelerator-seconds of useful work; counter.
        switch_seconds: Accelerator-seconds lost to switching, cache refill and dispatch pauses; counter.
        warmup_seconds: Accelerator-seconds lost to cold starts, pre-warming and evictions; counter.
        idle_seconds: All other accelerator-seconds of nodes that have not failed; counter.
        down_seconds: Accelerator-seconds of failed nodes; counter.
        queue_length: Tasks that wait.
        waiting_tasks: Shape (classes,).
        running_tasks: Shape (classes,).
        pending_accelerators: Accelerators asked for by waiting tasks.
        running_remaining_seconds: Mean remaining run time of running tasks, estimated from class history;
            NaN where none runs or no history is there.
        submitted_tasks: Shape (classes, priorities); counter.
        completed_tasks: Shape (classes,); counter.
        abandoned_tasks: Shape (classes,); counter.
        put_back_tasks: Tasks that lost what they ran on, shape (classes,); counter.
        demand_accelerators: Accelerators asked for by submitted tasks, shape (classes,); counter.
        scheduling_latency: Submission to the end of the first decision that considered the task.
        decision_duration: How long decisions took.
        queue_wait: Submission, or loss of what the task ran on, to start.
        high_priority_wait: Sojourn less own service of completed high-priority tasks.
        service: Run time at full speed of completed tasks, one a class.
        decisions: Decisions completed; counter.
        cold_starts: Inference requests that found no warm instance of their model; counter.
        warm_starts: Inference requests that did; counter.
        prewarms: Instances loaded ahead of demand; counter.
        evictions: Warm instances dropped to make room; counter.
        warm_instances: Models that are warm now, counted once an accelerator.
        cold_start_seconds: Accelerator-seconds of loading on behalf of requests; counter.
        cross_zone_bytes: Moved between zones; counter.
        numa_remote_tasks: Tasks started across NUMA domains; counter.
        memory_latency_ratio: Mean memory latency of running accelerator tasks over that of bound ones; 1 if none run.
        settings: What is in force.
        config_generation: Number of reconfigurations since the scheduler started that came into force.
        recent: The thirteen metrics over the last minute, shape (13,); NaN = no sample. Per-node metrics are means.
        recent_node_utilization_ratio: Accelerator utilisation over the last minute, shape (nodes,).
    """

    now_seconds: float
    uptime_seconds: float
    finished: bool
    node_names: tuple[str, ...]
    nodes: int
    accelerators: int
    accelerators_allocated: int
    node_accelerators: IntArray
    node_useful_seconds: FloatArray
    node_temperature_celsius: FloatArray
    node_power_watts: FloatArray
    useful_seconds: float
    switch_seconds: float
    warmup_seconds: float
    idle_seconds: float
    down_seconds: float
    queue_length: int
    waiting_tasks: IntArray
    running_tasks: IntArray
    pending_accelerators: float
    running_remaining_seconds: float
    submitted_tasks: IntArray
    completed_tasks: IntArray
    abandoned_tasks: IntArray
    put_back_tasks: IntArray
    demand_accelerators: FloatArray
    scheduling_latency: Histogram
    decision_duration: Histogram
    queue_wait: Histogram
    high_priority_wait: Histogram
    service: tuple[Histogram, ...]
    decisions: int
    cold_starts: int
    warm_starts: int
    prewarms: int
    evictions: int
    warm_instances: int
    cold_start_seconds: float
    cross_zone_bytes: float
    numa_remote_tasks: int
    memory_latency_ratio: float
    settings: ClockSettings
    config_generation: int
    recent: MetricVector
    recent_node_utilization_ratio: FloatArray

    def since_start(self, start: "Snapshot") -> "Snapshot":
        """Return it with counters that began at 0 when the scheduler started again.

        Args:
            start: What was seen at that moment.
        """
        counters = {name: getattr(self, name) - getattr(start, name) for name in _COUNTERS}
        histograms = {name: getattr(self, name).since(getattr(start, name)) for name in _HISTOGRAMS}
        service = tuple(now.since(then) for now, then in zip(self.service, start.service, strict=True))
        return replace(
            self,
            uptime_seconds=self.now_seconds - start.now_seconds,
            config_generation=max(self.config_generation - start.config_generation, 0),
            service=service,
            **counters,
            **histograms,
        )


_COUNTERS: Final = (
    "node_useful_seconds",
    "useful_seconds",
    "switch_seconds",
    "warmup_seconds",
    "idle_seconds",
    "down_seconds",
    "submitted_tasks",
    "completed_tasks",
    "abandoned_tasks",
    "put_back_tasks",
    "demand_accelerators",
    "decisions",
    "cold_starts",
    "warm_starts",
    "prewarms",
    "evictions",
    "cold_start_seconds",
    "cross_zone_bytes",
    "numa_remote_tasks",
)
_HISTOGRAMS: Final = ("scheduling_latency", "decision_duration", "queue_wait", "high_priority_wait")
