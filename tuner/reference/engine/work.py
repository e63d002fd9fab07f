"""Starting and ending tasks: what they take, what they give back, and what is booked."""

import math

from tuner.reference.engine.compilation import compiled
from tuner.reference.engine.heaps import push_event
from tuner.reference.engine.models import (
    find_instance,
    finish_loading,
    load_instance,
    make_room,
    release_instance,
)
from tuner.reference.engine.queues import dequeue, observe
from tuner.reference.engine.sharing import join, leave
from tuner.reference.engine.state import (
    ABANDONED,
    COMPLETED,
    END,
    FIRST,
    HIGH_WAIT,
    LAST,
    LOADING,
    MIDDLE,
    RECENT,
    RUNNING,
    SERVICE,
    WAIT,
    WAITING,
    Engine,
)
from tuner.reference.engine.timing import reslice, schedule, slice_of, sync
from tuner.reference.workload import NO_MODEL, Priority, TaskKind

HISTORY = 50
"""Tasks after which a group's history forgets as fast as it learns (assumption)."""


@compiled
def _begin(s: Engine, i: int) -> None:
    """Book the start of a task, whatever it runs on."""
    c = s.clock[0]
    task = s.task[i]
    dequeue(s, i)
    task["state"] = RUNNING
    task["started"] = c["now"]
    observe(s, WAIT, c["now"] - task["submit"])
    c["running_kind"][task["kind"]] += 1
    s.group[task["group"]]["running"] += 1.0
    if task["kind"] != TaskKind.PREPROCESSING:
        c["running_gpu_tasks"] += 1
        c["running_remote"] += task["remote"]
        c["remote_starts"] += task["remote"]


@compiled
def _move_input(s: Engine, i: int, zone: int) -> float:
    """Book the data of a task that runs away from home; return the factor by which distance slows it."""
    k = s.constants[0]
    if zone == s.task[i]["zone"]:
        return 1.0
    inference = s.task[i]["kind"] == TaskKind.INFERENCE
    s.clock[0]["cross_bytes"] += k["inference_input_bytes"] if inference else k["training_input_bytes"]
    return float(1.0 + k["link_penalty_ratio"] * s.clock[0]["link_factor"])


@compiled
def start_processing(s: Engine, i: int, n: int) -> None:
    """Run a pre-processing task on a CPU slot of a node."""
    task = s.task[i]
    _begin(s, i)
    task["place"] = n
    s.node[n]["cpu_free"] -= 1
    task["penalty"] = _move_input(s, i, s.node[n]["zone"])
    task["ends"] = s.clock[0]["now"] + task["service"] * task["penalty"]
    push_event(s, task["ends"], END, i)


@compiled
def _loading_goal(s: Engine, i: int, g: int) -> float:
    """Take the memory of a task's model; return the accelerator time until it can serve, 0 when it is warm."""
    c = s.clock[0]
    gpu = s.gpu[g]
    task = s.task[i]
    model = task["model"]
    if model == NO_MODEL:
        return float(s.constants[0]["evict_seconds"] * make_room(s, g, task["memory"], 0))
    at = find_instance(s, g, model)
    if at >= 0:
        if gpu["users"][at] == 0:
            gpu["idle_memory"] -= s.model[model]["memory"]
        gpu["users"][at] += 1
        c["warm"] += 1
        return 0.0
    evicted = make_room(s, g, s.model[model]["memory"] + task["memory"], 1)
    load_instance(s, g, model, 1)
    c["cold"] += 1
    c["cold_seconds"] += s.model[model]["loading"]
    return float(s.model[model]["loading"] + s.constants[0]["evict_seconds"] * evicted)


@compiled
def start_shared(s: Engine, i: int, g: int) -> None:
    """Let a task share an accelerator that has room for it."""
    k = s.constants[0]
    task = s.task[i]
    gpu = s.gpu[g]
    sync(s, g)
    reslice(s, g)
    task["remote"] = 1 if s.settings[0]["tiers"] == 0 and task["unbound"] == 1 else 0
    _begin(s, i)
    loading = _loading_goal(s, i, g)
    gpu["memory"] -= task["memory"]
    away = _move_input(s, i, gpu["zone"])
    task["penalty"] = away * (1.0 + task["remote"] * k["numa_penalty_ratio"]) / s.zone[gpu["zone"]]["speed"]
    task["place"] = g
    stage = LOADING if loading > 0.0 else FIRST
    goal = loading if loading > 0.0 else _first_goal(s, i)
    cost = k["context_switch_seconds"] + task["refill"]
    join(gpu, i, stage, goal, _rate(s, i, stage), slice_of(s, task["group"]), cost)
    schedule(s, g)
    s.clock[0]["dirty"] = 1


@compiled
def _first_goal(s: Engine, i: int) -> float:
    """Return the accelerator time that a task needs before it changes, or in all."""
    task = s.task[i]
    total = task["service"] * task["penalty"]
    return float(total / 2.0 if task["changes"] == 1 else total)


@compiled
def _rate(s: Engine, i: int, stage: int) -> float:
    """Return the useful part of a task's accelerator time in a stage: waiting for distant data is not useful."""
    task = s.task[i]
    efficiency = task["efficiency_after"] if stage == LAST else task["efficiency"]
    speed = s.zone[s.gpu[task["place"]]["zone"]]["speed"]
    return float(efficiency / (task["penalty"] * speed))


@compiled
def reach_milestone(s: Engine, g: int) -> None:
    """Act on the resident that is due: its model is loaded, it changes, or it is done."""
    gpu = s.gpu[g]
    sync(s, g)
    reslice(s, g)
    slot = gpu["due_slot"]
    i = gpu["task"][slot]
    stage = gpu["stage"][slot]
    if i < 0:
        finish_loading(s, g, -2 - i)
        leave(gpu, slot)
        s.clock[0]["dirty"] = 1
    elif stage == LOADING:
        if s.task[i]["model"] != NO_MODEL:
            finish_loading(s, g, s.task[i]["model"])
        gpu["stage"][slot] = FIRST
        gpu["goal"][slot] = _first_goal(s, i)
    elif stage == FIRST and s.task[i]["changes"] == 1:
        gpu["stage"][slot] = LAST
        gpu["goal"][slot] = s.task[i]["service"] * s.task[i]["penalty"] / 2.0
        gpu["efficiency"][slot] = _rate(s, i, LAST)
    else:
        leave(gpu, slot)
        gpu["memory"] += s.task[i]["memory"]
        if s.task[i]["model"] != NO_MODEL:
            release_instance(s, g, s.task[i]["model"])
        _complete(s, i)
    schedule(s, g)


@compiled
def _complete(s: Engine, i: int) -> None:
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
def start_gang(s: Engine, i: int, count: int) -> None:
    """Run a gang on `chosen[:count]`, alone and to its end; it waits for evictions on its accelerators."""
    c = s.clock[0]
    k = s.constants[0]
    task = s.task[i]
    first = s.gpu[s.gpu[0]["chosen"]]
    spread = _spread(s, count)
    fits_domain = count * s.clock[0]["domains"] <= s.clock[0]["gpus_per_node"]
    unbound = s.settings[0]["tiers"] == 0 and task["unbound"] == 1
    task["remote"] = 1 if unbound or (fits_domain and spread == 1) else 0
    _begin(s, i)
    speed = math.inf
    for j in range(count):
        speed = min(speed, s.zone[s.gpu[s.gpu[j]["chosen"]]["zone"]]["speed"])
    penalty = _move_input(s, i, first["zone"]) * (1.0 + task["remote"] * k["numa_penalty_ratio"])
    if spread >= 2:
        penalty *= 1.0 + k["node_penalty_ratio"]
    if spread >= 3:
        penalty *= 1.0 + k["link_penalty_ratio"] * s.clock[0]["link_factor"]
        _flow(s, count * k["gang_bytes_per_second"])
    task["penalty"] = penalty / speed
    task["place"] = s.gpu[0]["chosen"]
    task["held"] = count
    evicted = _seize(s, i, 0, count)
    warming = c["now"] + (k["evict_seconds"] if evicted else 0.0)
    for j in range(count):
        s.gpu[s.gpu[j]["chosen"]]["warming_until"] = warming
    run_seconds = task["service"] * task["penalty"]
    task["ends"] = warming + run_seconds
    push_event(s, task["ends"], END, i)
    if task["changes"] == 1 or task["grows"] == 1:
        push_event(s, warming + run_seconds / 2.0, MIDDLE, i)


@compiled
def _spread(s: Engine, count: int) -> int:
    """Say how far `chosen[:count]` lie apart: 0 one NUMA domain, 1 one node, 2 one zone, 3 several."""
    first = s.gpu[s.gpu[0]["chosen"]]
    spread = 0
    for j in range(1, count):
        gpu = s.gpu[s.gpu[j]["chosen"]]
        if gpu["zone"] != first["zone"]:
            return 3
        if gpu["node"] != first["node"]:
            spread = 2
        elif gpu["domain"] != first["domain"]:
            spread = max(spread, 1)
    return spread


@compiled
def _seize(s: Engine, i: int, begin: int, end: int) -> bool:
    """Take `chosen[begin:end]` for a gang; say whether models had to go."""
    evicted = 0
    for j in range(begin, end):
        g = s.gpu[j]["chosen"]
        sync(s, g)
        evicted += make_room(s, g, 1.0 - 1e-9, 0)
        s.gpu[g]["owner"] = i
        s.gpu[g]["rate"] = _rate(s, i, FIRST)
        s.gpu[g]["warming_until"] = 0.0
    s.clock[0]["dirty"] = 1
    return evicted > 0


@compiled
def _flow(s: Engine, change: float) -> None:
    """Change the rate of traffic between zones, and book what flowed until now."""
    c = s.clock[0]
    c["cross_bytes"] += c["cross_rate"] * (c["now"] - c["cross_since"])
    c["cross_since"] = c["now"]
    c["cross_rate"] = max(c["cross_rate"] + change, 0.0)


@compiled
def settle_traffic(s: Engine) -> None:
    """Book the traffic between zones that flowed until now."""
    _flow(s, 0.0)


@compiled
def _spans_zones(s: Engine, i: int) -> bool:
    for g in range(s.gpu.size):
        if s.gpu[g]["owner"] == i and s.gpu[g]["zone"] != s.gpu[s.task[i]["place"]]["zone"]:
            return True
    return False


@compiled
def reach_middle(s: Engine, i: int) -> None:
    """Let a gang change its efficiency or ask for more accelerators, half-way."""
    c = s.clock[0]
    if s.task[i]["changes"] == 1:
        for g in range(s.gpu.size):
            if s.gpu[g]["owner"] == i:
                sync(s, g)
                s.gpu[g]["rate"] = _rate(s, i, LAST)
    if s.task[i]["grows"] == 1:
        s.task[c["growing"]]["growing"] = i
        c["growing"] += 1


@compiled
def grow(s: Engine, i: int, count: int) -> None:
    """Give a running gang `chosen[:count]` on top; what is left of its run shortens in proportion."""
    c = s.clock[0]
    task = s.task[i]
    held = task["held"]
    _seize(s, i, 0, count)
    if task["changes"] == 1:
        for j in range(count):
            s.gpu[s.gpu[j]["chosen"]]["rate"] = _rate(s, i, LAST)
    task["held"] = held + count
    task["ends"] = c["now"] + (task["ends"] - c["now"]) * held / (held + count)
    push_event(s, task["ends"], END, i)


@compiled
def end(s: Engine, i: int) -> None:
    """End a task that ran alone: a gang, or one on a CPU slot."""
    task = s.task[i]
    if task["kind"] == TaskKind.PREPROCESSING:
        s.node[task["place"]]["cpu_free"] += 1
        _complete(s, i)
        return
    if _spans_zones(s, i):
        _flow(s, -task["held"] * s.constants[0]["gang_bytes_per_second"])
    for g in range(s.gpu.size):
        if s.gpu[g]["owner"] == i:
            sync(s, g)
            s.gpu[g]["owner"] = -1
    _complete(s, i)


@compiled
def abandon(s: Engine, i: int) -> None:
    """Give up a task that still waits."""
    c = s.clock[0]
    if s.task[i]["state"] != WAITING:
        return
    dequeue(s, i)
    s.task[i]["state"] = ABANDONED
    s.task[i]["ends"] = c["now"]
    c["gone"] += 1
    c["abandoned"][s.task[i]["kind"]] += 1
