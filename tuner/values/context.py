"""Optional values that describe the load, beyond the metrics.

A policy may map any of them; what it does not map is assumed by the twin, with a stated spread. Names are used as
series names in histories and forecasts, too. `<class>` is one of `TASK_CLASSES`.

    accelerators_count                    accelerators in the cluster
    nodes_count                           nodes in the cluster
    arrivals_per_second:<class>           tasks submitted
    service_seconds:<class>               mean run time of completed tasks, at full speed
    demand_accelerators:<class>           mean accelerators asked for by submitted tasks
    running_tasks:<class>                 tasks running
    waiting_tasks:<class>                 tasks waiting to be placed
    high_priority_share_ratio             share of submitted tasks that are of the protected class
    decision_seconds                      mean time one scheduling decision takes
    cold_start_ratio                      share of inference starts that found their model cold
    cold_start_seconds                    mean time a cold start takes
"""

from typing import Final

TASK_CLASSES: Final[tuple[str, ...]] = ("preprocessing", "training", "inference")
"""Kinds of task that the product tells apart: CPU work, accelerator training, accelerator inference."""

BY_CLASS: Final[tuple[str, ...]] = (
    "arrivals_per_second",
    "service_seconds",
    "demand_accelerators",
    "running_tasks",
    "waiting_tasks",
)
SCALARS: Final[tuple[str, ...]] = (
    "accelerators_count",
    "nodes_count",
    "high_priority_share_ratio",
    "decision_seconds",
    "cold_start_ratio",
    "cold_start_seconds",
)

CONTEXT_NAMES: Final[tuple[str, ...]] = SCALARS + tuple(f"{name}:{kind}" for name in BY_CLASS for kind in TASK_CLASSES)
"""Every name that a policy may map."""
