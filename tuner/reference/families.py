"""The families of metrics that the reference scheduler exports: names, help, labels, and where the values come from.

Families are rows of one table. What stands in `read` is evaluated once a scrape for a whole family, as an array whose
axes are those of the labels, so that thousands of nodes cost one call.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from tuner.reference.snapshot import Histogram, Snapshot
from tuner.reference.workload import PRIORITY_NAMES
from tuner.values.context import TASK_CLASSES
from tuner.values.knobs import Role, SchedulerMode
from tuner.values.metrics import METRIC_INDEX, METRICS

PREFIX: Final = "reference_"


class MetricType(StrEnum):
    """Type of a family, as Prometheus names it."""

    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Family:
    """Counters or gauges of one name.

    Attributes:
        name: Name with its prefix, unit and, for counters, `_total`.
        type: Counter or gauge.
        help: One sentence.
        axes: Names of the labels; one axis of the values each.
        read: Returns the values of a snapshot, one axis a label; NaN for "no sample".
    """

    name: str
    type: MetricType
    help: str
    axes: tuple[str, ...]
    read: Callable[[Snapshot], ArrayLike]


@dataclass(frozen=True, slots=True)
class HistogramFamily:
    """Histograms of one name.

    Attributes:
        name: Name with its prefix and unit.
        help: One sentence.
        axes: Names of the labels, none or one.
        read: Returns the histograms of a snapshot, one a label value.
    """

    name: str
    help: str
    axes: tuple[str, ...]
    read: Callable[[Snapshot], tuple[Histogram, ...]]


AnyFamily: TypeAlias = Family | HistogramFamily


def label_values(axis: str, snapshot: Snapshot) -> tuple[str, ...]:
    """Return what a label may be, in the order of the axis."""
    return snapshot.node_names if axis == "node" else _LABEL_VALUES[axis]


_LABEL_VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "class": TASK_CLASSES,
    "priority": PRIORITY_NAMES,
    "knob": tuple(role.value for role in Role),
    "mode": tuple(mode.value for mode in SchedulerMode),
}


def _gauge(name: str, text: str, read: Callable[[Snapshot], ArrayLike], *axes: str) -> Family:
    return Family(PREFIX + name, MetricType.GAUGE, text, axes, read)


def _counter(name: str, text: str, read: Callable[[Snapshot], ArrayLike], *axes: str) -> Family:
    return Family(f"{PREFIX}{name}_total", MetricType.COUNTER, text, axes, read)


def _histogram(name: str, text: str, read: Callable[[Snapshot], tuple[Histogram, ...]], *axes: str) -> HistogramFamily:
    return HistogramFamily(PREFIX + name, text, axes, read)


_NODE_METRICS: Final[Mapping[str, Callable[[Snapshot], ArrayLike]]] = {
    "accelerator_utilization_ratio": lambda s: s.recent_node_utilization_ratio,
    "node_temperature_celsius": lambda s: s.node_temperature_celsius,
    "node_power_watts": lambda s: s.node_power_watts,
}
"""Where the metrics that are per node have their values of each node."""


def _recent(name: str) -> Callable[[Snapshot], ArrayLike]:
    index = METRIC_INDEX[name]
    return lambda snapshot: snapshot.recent[index]


_RECENT: Final = tuple(
    _gauge(f"recent_{spec.name}", f"Over the last minute. {spec.summary}", _NODE_METRICS[spec.name], "node")
    if spec.per_node
    else _gauge(f"recent_{spec.name}", f"Over the last minute. {spec.summary}", _recent(spec.name))
    for spec in METRICS
)

FAMILIES: Final[tuple[AnyFamily, ...]] = (
    _histogram(
        "scheduling_latency_seconds",
        "Time from a task being ready to the end of the first decision that considers it.",
        lambda s: (s.scheduling_latency,),
    ),
    _histogram("decision_duration_seconds", "Time that a scheduling decision takes.", lambda s: (s.decision_duration,)),
    _histogram(
        "queue_wait_seconds",
        "Time from submission, or from the failure of a task's node, to its start.",
        lambda s: (s.queue_wait,),
    ),
    _histogram(
        "high_priority_wait_seconds",
        "Time in the system less own run time, of completed tasks of high priority.",
        lambda s: (s.high_priority_wait,),
    ),
    _histogram("service_seconds", "Run time at full speed of completed tasks.", lambda s: s.service, "class"),
    _gauge("uptime_seconds", "Time since the scheduler started.", lambda s: s.uptime_seconds),
    _gauge("nodes", "Nodes of the cluster that have not failed.", lambda s: s.nodes),
    _gauge("nodes_failed", "Nodes of the cluster that have failed.", lambda s: len(s.node_names) - s.nodes),
    _gauge("accelerators", "Accelerators of nodes that have not failed.", lambda s: s.accelerators),
    _gauge("accelerators_allocated", "Accelerators that hold at least one task.", lambda s: s.accelerators_allocated),
    _gauge(
        "node_accelerators", "Accelerators of a node, 0 where it has failed.", lambda s: s.node_accelerators, "node"
    ),
    _counter(
        "node_useful_seconds", "Accelerator-seconds of useful work of a node.", lambda s: s.node_useful_seconds, "node"
    ),
    _gauge(
        "node_temperature_celsius",
        "Temperature of the hottest accelerator of a node.",
        lambda s: s.node_temperature_celsius,
        "node",
    ),
    _gauge("node_power_watts", "Power drawn by a node.", lambda s: s.node_power_watts, "node"),
    _counter("useful_seconds", "Accelerator-seconds of useful work.", lambda s: s.useful_seconds),
    _counter(
        "switch_seconds",
        "Accelerator-seconds lost to switching, cache refill and dispatch pauses.",
        lambda s: s.switch_seconds,
    ),
    _counter(
        "warmup_seconds",
        "Accelerator-seconds lost to cold starts, pre-warming and evictions.",
        lambda s: s.warmup_seconds,
    ),
    _counter("idle_seconds", "All other accelerator-seconds of working nodes.", lambda s: s.idle_seconds),
    _counter("down_seconds", "Accelerator-seconds of failed nodes.", lambda s: s.down_seconds),
    _gauge("queue_length", "Tasks that wait to be placed.", lambda s: s.queue_length),
    _gauge("waiting_tasks", "Tasks that wait to be placed.", lambda s: s.waiting_tasks, "class"),
    _gauge("running_tasks", "Tasks that run.", lambda s: s.running_tasks, "class"),
    _gauge("pending_accelerators", "Accelerators asked for by waiting tasks.", lambda s: s.pending_accelerators),
    _gauge(
        "running_remaining_seconds",
        "Mean remaining run time of running tasks, estimated from the history of their class.",
        lambda s: s.running_remaining_seconds,
    ),
    _counter("tasks_submitted", "Tasks submitted.", lambda s: s.submitted_tasks, "class", "priority"),
    _counter("tasks_completed", "Tasks completed.", lambda s: s.completed_tasks, "class"),
    _counter("tasks_abandoned", "Tasks given up before they started.", lambda s: s.abandoned_tasks, "class"),
    _counter("tasks_put_back", "Tasks whose node failed, and that begin anew.", lambda s: s.put_back_tasks, "class"),
    _counter(
        "demand_accelerators", "Accelerators asked for by submitted tasks.", lambda s: s.demand_accelerators, "class"
    ),
    _counter("decisions", "Scheduling decisions.", lambda s: s.decisions),
    _counter("cold_starts", "Inference requests that found no warm instance of their model.", lambda s: s.cold_starts),
    _counter("warm_starts", "Inference requests that found a warm instance of their model.", lambda s: s.warm_starts),
    _counter(
        "cold_start_seconds", "Accelerator-seconds of loading on behalf of requests.", lambda s: s.cold_start_seconds
    ),
    _counter("prewarms", "Model instances loaded ahead of demand.", lambda s: s.prewarms),
    _counter("evictions", "Warm model instances dropped to make room.", lambda s: s.evictions),
    _gauge("warm_instances", "Model instances that are warm.", lambda s: s.warm_instances),
    _counter("cross_zone_bytes", "Bytes moved between zones.", lambda s: s.cross_zone_bytes),
    _counter("numa_remote_tasks", "Tasks started across NUMA domains.", lambda s: s.numa_remote_tasks),
    _gauge(
        "memory_latency_ratio",
        "Memory latency of running tasks over that of tasks bound to their NUMA domain.",
        lambda s: s.memory_latency_ratio,
    ),
    _gauge(
        "setting",
        "Setting in force, in the unit of the knob's name.",
        lambda s: [getattr(s.settings, role.value) for role in Role],
        "knob",
    ),
    _gauge(
        "mode",
        "Policy mode: 1 for the one in force.",
        lambda s: [float(s.settings.mode is mode) for mode in SchedulerMode],
        "mode",
    ),
    _gauge(
        "config_generation",
        "Number of reconfigurations since the start that came into force.",
        lambda s: s.config_generation,
    ),
    *_RECENT,
)
"""Every family, in the order of the page."""


def read_values(family: AnyFamily, snapshot: Snapshot) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the values of a family's series, in the order in which `exposition` lays them out.

    Histograms give, one after the other, their cumulated buckets with that of all, the sum and the count.
    """
    if isinstance(family, Family):
        return np.asarray(family.read(snapshot), dtype=np.float64).ravel()
    parts = [np.append(item.cumulative(), (item.total, item.count)) for item in family.read(snapshot)]
    return np.concatenate(parts).astype(np.float64)
