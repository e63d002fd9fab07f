"""What is booked when a task starts, ends, loses its place or is given up, and what is learned from it."""

import math

from tuner.reference.engine.compilation import compiled
from tuner.reference.engine.heaps import push_event
from tuner.reference.engine.queues import dequeue, observe, requeue
from tuner.reference.engine.state import (
    ABANDON,
    ABANDONED,
    COMPLETED,
    HIGH_WAIT,
    LAST,
    RECENT,
    RUNNING,
    SERVICE,
    WAIT,
    WAITING,
    Engine,
)
from tuner.reference.workload import NO_MODEL, Priority, TaskKind

HISTORY = 50
"""Tasks after which a group's history forgets as fast as it learns (assumption)."""


@compiled
def begin(s: Engine, i: int) -> None:
    """Book the start of a task, whatever it runs on."""
    c = s.clock[0]
    task = s.task[i]
    dequeue(s, i)
    task["state"] = RUNNING
    task["started"] = c["now"]
    observe(s, WAIT, c["now"] - task["since"])
    c["running_kind"][task["kind"]] += 1
    s.group[task["group"]]["running"] += 1.0
    if task["kind"] != TaskKind.PREPROCESSING:
        c["running_gpu_tasks"] += 1
        c["running_remote"] += task["remote"]
        c["remote_starts"] += task["remote"]


@compiled
def move_input(s: Engine, i: int, zone: int) -> float:
    """Book the data of a task that runs away from home; return the factor by which distance slows it."""
    k = s.constants[0]
    if zone == s.task[i]["zone"]:
        return 1.0
    inference = s.task[i]["kind"] == TaskKind.INFERENCE
    s.clock[0]["cross_bytes"] += k["inference_input_bytes"] if inference else k["training_input_bytes"]
    return float(1.0 + k["link_penalty_ratio"] * s.clock[0]["link_factor"])


@compiled
def useful_rate(s: Engine, i: int, stage: int) -> float:
    """Return the useful part of a task's accelerator time in a stage: waiting for distant data is not useful."""
    task = s.task[i]
    efficiency = task["efficiency_after"] if stage == LAST else task["efficiency"]
    speed = s.zone[s.gpu[task["place"]]["zone"]]["speed"]
    return float(efficiency / (task["penalty"] * speed))


@compiled
def complete(s: Engine, i: int) -> None:
    """Book the completion of a task, whatever it ran on."""
    c = s.clock[0]
    task = s.task[i]
    task["state"] = COMPLETED
    task["ends"] = c["now"]
    c["gone"] += 1
    c["completed"][task["kind"]] += 1
    c["running_kind"][task["kind"]] -= 1
    c["releases"] += 1
    c["dirty"] = 1
    observe(s, SERVICE + task["kind"], task["service"])
    if task["priority"] == Priority.HIGH:
        observe(s, HIGH_WAIT, max(c["now"] - task["submit"] - task["service"], 0.0))
    if task["kind"] != TaskKind.PREPROCESSING:
        c["running_gpu_tasks"] -= 1
        c["running_remote"] -= task["remote"]
        _remember_efficiency(s, i)
    if task["model"] != NO_MODEL:
        model = s.model[task["model"]]
        model["ended"] += 1.0
        model["sojourn"] += (c["now"] - task["started"] - model["sojourn"]) / min(model["ended"], HISTORY)
    group = s.group[task["group"]]
    group["running"] -= 1.0
    group["count"] += 1.0
    weight = 1.0 / min(group["count"], HISTORY)
    group["service"] += weight * (task["service"] - group["service"])
    group["square"] += weight * (task["service"] * task["service"] - group["square"])


@compiled
def _remember_efficiency(s: Engine, i: int) -> None:
    """Learn a completed task's efficiency, useful over allotted time, for its group and among the last 100."""
    c = s.clock[0]
    task = s.task[i]
    change = (task["efficiency_after"] - task["efficiency"]) / 2.0 if task["changes"] == 1 else 0.0
    speed = s.zone[s.gpu[task["place"]]["zone"]]["speed"]
    seen = (task["efficiency"] + change) / (task["penalty"] * speed)
    group = s.group[task["group"]]
    group["efficiency"] += (seen - group["efficiency"]) / min(group["count"] + 1.0, HISTORY)
    at = c["recent_count"] % RECENT
    if c["recent_count"] >= RECENT:
        c["recent_sum"] -= c["recent"][at]
    c["recent"][at] = seen
    c["recent_sum"] += seen
    c["recent_count"] += 1


@compiled
def lose(s: Engine, i: int) -> None:
    """Book that a task has lost what it ran on: it waits again, from now on, and will begin anew."""
    c = s.clock[0]
    task = s.task[i]
    c["put_back"][task["kind"]] += 1
    c["running_kind"][task["kind"]] -= 1
    s.group[task["group"]]["running"] -= 1.0
    if task["kind"] != TaskKind.PREPROCESSING:
        c["running_gpu_tasks"] -= 1
        c["running_remote"] -= task["remote"]
    requeue(s, i)
    await_end_of_patience(s, i)


@compiled
def await_end_of_patience(s: Engine, i: int) -> None:
    """Note when a task that has begun to wait will be given up."""
    task = s.task[i]
    if task["patience"] < math.inf:
        push_event(s, task["since"] + task["patience"], ABANDON, i)


@compiled
def abandon(s: Engine, i: int) -> None:
    """Give up a task that still waits, unless it has begun to wait anew since that was planned."""
    c = s.clock[0]
    if s.task[i]["state"] != WAITING or s.task[i]["since"] + s.task[i]["patience"] > c["now"]:
        return
    dequeue(s, i)
    s.task[i]["state"] = ABANDONED
    s.task[i]["ends"] = c["now"]
    c["gone"] += 1
    c["abandoned"][s.task[i]["kind"]] += 1
