"""Reading an engine: from its arrays to a snapshot."""

import numpy as np
from numpy.typing import NDArray

from tuner.reference.cluster import ClusterSpec
from tuner.reference.construction import settings_from
from tuner.reference.engine.loop import settle
from tuner.reference.engine.state import (
    BUCKETS,
    DECISION,
    DOWN,
    HIGH_WAIT,
    LATENCY,
    RECENT_MEASURES,
    RING,
    SERVICE,
    WAIT,
    Engine,
    Records,
)
from tuner.reference.histograms import fine, shown
from tuner.reference.snapshot import Histogram, Snapshot
from tuner.values.metrics import MetricVector, metric_vector


def read(engine: Engine, cluster: ClusterSpec) -> Snapshot:
    """Return a snapshot of an engine, which is not changed by it."""
    # Bringing the books up to now cuts the turns at hand in two, and rounding could tell: it is done on copies.
    seen = engine._replace(gpu=engine.gpu.copy(), node=engine.node.copy(), clock=engine.clock.copy())
    settle(seen)
    clock = seen.clock[0]
    reading = seen.ring[RING]
    up = ~_down(seen, cluster)
    utilization = _recent_node_utilization(seen, cluster)
    remaining = _remaining(seen)
    settings = seen.settings[0]
    return Snapshot(
        now_seconds=float(clock["now"]),
        uptime_seconds=float(clock["now"]),
        finished=int(clock["gone"]) == seen.task.size,
        node_names=cluster.node_names,
        nodes=int(up.sum()),
        accelerators=int(up.sum()) * cluster.gpus_per_node,
        accelerators_allocated=int(((seen.gpu["owner"] >= 0) | (seen.gpu["n"] > 0)).sum()),
        node_accelerators=np.where(up, cluster.gpus_per_node, 0),
        node_useful_seconds=seen.node["useful"].copy(),
        node_temperature_celsius=np.where(up, seen.node["celsius"], np.nan),
        node_power_watts=np.where(up, seen.node["watts"], np.nan),
        useful_seconds=float(reading["useful"]),
        switch_seconds=float(reading["switch"]),
        warmup_seconds=float(reading["warmup"]),
        idle_seconds=float(reading["idle"]),
        down_seconds=float(reading["down"]),
        queue_length=int(clock["waiting"].sum()),
        waiting_tasks=clock["waiting_kind"].copy(),
        running_tasks=clock["running_kind"].copy(),
        pending_accelerators=float(clock["pending"]),
        running_remaining_seconds=remaining,
        submitted_tasks=clock["submitted"].reshape(3, 3).copy(),
        completed_tasks=clock["completed"].copy(),
        abandoned_tasks=clock["abandoned"].copy(),
        put_back_tasks=clock["put_back"].copy(),
        demand_accelerators=clock["asked"].copy(),
        scheduling_latency=_histogram(seen, LATENCY),
        decision_duration=_histogram(seen, DECISION),
        queue_wait=_histogram(seen, WAIT),
        high_priority_wait=_histogram(seen, HIGH_WAIT),
        service=tuple(_histogram(seen, SERVICE + kind) for kind in range(3)),
        decisions=int(clock["decisions"]),
        cold_starts=int(clock["cold"]),
        warm_starts=int(clock["warm"]),
        prewarms=int(clock["prewarms"]),
        evictions=int(clock["evictions"]),
        warm_instances=int(seen.model["places"].sum()),
        cold_start_seconds=float(clock["cold_seconds"]),
        cross_zone_bytes=float(clock["cross_bytes"]),
        numa_remote_tasks=int(clock["remote_starts"]),
        memory_latency_ratio=_memory_latency(seen),
        settings=settings_from(settings),
        config_generation=max(int(settings["generation"]), 0),
        recent=_recent(seen, cluster, up, utilization, remaining),
        recent_node_utilization_ratio=np.where(up, utilization, np.nan),
    )


def _histogram(engine: Engine, measure: int) -> Histogram:
    return shown(measure, engine.measure["counts"][measure], float(engine.measure["total"][measure]))


def _down(engine: Engine, cluster: ClusterSpec) -> NDArray[np.bool_]:
    """Return which nodes have failed."""
    failed: NDArray[np.bool_] = engine.gpu["owner"][:: cluster.gpus_per_node] == DOWN
    return failed


def _mean_of(values: NDArray[np.float64], up: NDArray[np.bool_]) -> float:
    """Return the mean of the nodes that have not failed; NaN where all have."""
    return float(values[up].mean()) if up.any() else float("nan")


def _minute_ago(engine: Engine) -> int:
    """Return the index of the oldest reading kept, a minute or a little more ago, or the start."""
    return int((engine.clock[0]["ticks"] + 1) % RING)


def _recent_node_utilization(engine: Engine, cluster: ClusterSpec) -> NDArray[np.float64]:
    before = _minute_ago(engine)
    elapsed = float(engine.ring[RING]["at"] - engine.ring[before]["at"])
    if elapsed <= 0.0:
        return np.full(cluster.nodes, np.nan)
    ratio: NDArray[np.float64] = (engine.node["kept"][:, RING] - engine.node["kept"][:, before]) / (
        elapsed * cluster.gpus_per_node
    )
    return ratio


def _recent(
    engine: Engine,
    cluster: ClusterSpec,
    up: NDArray[np.bool_],
    utilization: NDArray[np.float64],
    remaining: float,
) -> MetricVector:
    clock = engine.clock[0]
    now, before = engine.ring[RING], engine.ring[_minute_ago(engine)]
    elapsed = float(now["at"] - before["at"])
    time = elapsed * cluster.gpus - float(now["down"] - before["down"])
    capacity = int(up.sum()) * cluster.gpus_per_node
    counts = (now["counts"] - before["counts"]).reshape(RECENT_MEASURES, BUCKETS)
    ended = float(now["completed"] - before["completed"])
    abandoned = float(now["abandoned"] - before["abandoned"])
    lost = float(now["switch"] - before["switch"] + now["warmup"] - before["warmup"])
    values = {
        "scheduling_latency_seconds": fine(counts[LATENCY]).quantile(0.99),
        "queue_length": float(clock["waiting"].sum()),
        "queue_wait_seconds": fine(counts[WAIT]).quantile(0.95),
        "high_priority_wait_seconds": fine(counts[HIGH_WAIT]).quantile(0.95),
        "running_task_remaining_seconds": remaining,
        "node_temperature_celsius": _mean_of(engine.node["celsius"], up),
        "node_power_watts": _mean_of(engine.node["watts"], up),
        "pending_demand_ratio": float(clock["pending"]) / capacity if capacity else float("nan"),
        "accelerator_utilization_ratio": _mean_of(utilization, up),
    }
    if elapsed > 0.0:
        values["tasks_completed_per_second"] = ended / elapsed
    if time > 0.0:
        values["resource_idle_ratio"] = 1.0 - float(now["allocated"] - before["allocated"]) / time
        values["switch_overhead_ratio"] = lost / time
    if ended + abandoned > 0.0:
        values["task_abandonment_ratio"] = abandoned / (ended + abandoned)
    return metric_vector(values)


def _remaining(engine: Engine) -> float:
    """Return the mean remaining run time of running tasks that their groups' histories predict.

    By renewal theory a task met while it runs has E[S^2] / (2 E[S]) left on average (the inspection paradox).
    """
    group: Records = engine.group[(engine.group["running"] > 0) & (engine.group["count"] > 0)]
    if group.size == 0:
        return float("nan")
    left = group["square"] / (2.0 * group["service"])
    return float((left * group["running"]).sum() / group["running"].sum())


def _memory_latency(engine: Engine) -> float:
    clock = engine.clock[0]
    if clock["running_gpu_tasks"] == 0:
        return 1.0
    remote = float(clock["running_remote"]) / float(clock["running_gpu_tasks"])
    return float(1.0 + remote * (engine.constants["numa_latency_ratio"][0] - 1.0))
