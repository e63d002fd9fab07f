"""Tasks that share: residents of accelerators, through all their stages, and pre-processing on CPU slots."""

from tuner.reference.engine.books import begin, complete, move_input, useful_rate
from tuner.reference.engine.compilation import compiled
from tuner.reference.engine.heaps import push_event
from tuner.reference.engine.models import find_instance, finish_loading, load_instance, make_room, release_instance
from tuner.reference.engine.sharing import join, leave
from tuner.reference.engine.state import END, FIRST, LAST, LOADING, Engine
from tuner.reference.engine.timing import reslice, schedule, slice_of, sync
from tuner.reference.workload import NO_MODEL


@compiled
def start_processing(s: Engine, i: int, n: int) -> None:
    """Run a pre-processing task on a CPU slot of a node."""
    task = s.task[i]
    begin(s, i)
    task["place"] = n
    s.node[n]["cpu_free"] -= 1
    task["penalty"] = move_input(s, i, s.node[n]["zone"])
    task["ends"] = s.clock[0]["now"] + task["service"] * task["penalty"]
    push_event(s, task["ends"], END, i)


@compiled
def start_shared(s: Engine, i: int, g: int) -> None:
    """Let a task share an accelerator that has room for it."""
    k = s.constants[0]
    task = s.task[i]
    gpu = s.gpu[g]
    sync(s, g)
    reslice(s, g)
    task["remote"] = 1 if s.settings[0]["tiers"] == 0 and task["unbound"] == 1 else 0
    begin(s, i)
    loading = _loading_goal(s, i, g)
    gpu["memory"] -= task["memory"]
    away = move_input(s, i, gpu["zone"])
    task["penalty"] = away * (1.0 + task["remote"] * k["numa_penalty_ratio"]) / s.zone[gpu["zone"]]["speed"]
    task["place"] = g
    stage = LOADING if loading > 0.0 else FIRST
    goal = loading if loading > 0.0 else _first_goal(s, i)
    cost = k["context_switch_seconds"] + task["refill"]
    join(gpu, i, stage, goal, useful_rate(s, i, stage), slice_of(s, task["group"]), cost)
    schedule(s, g)
    s.clock[0]["dirty"] = 1


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
def _first_goal(s: Engine, i: int) -> float:
    """Return the accelerator time that a task needs before it changes, or in all."""
    task = s.task[i]
    total = task["service"] * task["penalty"]
    return float(total / 2.0 if task["changes"] == 1 else total)


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
        gpu["efficiency"][slot] = useful_rate(s, i, LAST)
    else:
        leave(gpu, slot)
        gpu["memory"] += s.task[i]["memory"]
        if s.task[i]["model"] != NO_MODEL:
            release_instance(s, g, s.task[i]["model"])
        complete(s, i)
    schedule(s, g)
