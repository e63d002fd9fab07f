"""Gangs: work that holds whole accelerators, alone and to its end."""

import math

from tuner.reference.engine.books import begin, complete, move_input, useful_rate
from tuner.reference.engine.compilation import compiled
from tuner.reference.engine.heaps import push_event
from tuner.reference.engine.models import make_room
from tuner.reference.engine.state import END, FIRST, FREE, LAST, MIDDLE, Engine
from tuner.reference.engine.timing import sync
from tuner.reference.workload import TaskKind


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
    begin(s, i)
    speed = math.inf
    for j in range(count):
        speed = min(speed, s.zone[s.gpu[s.gpu[j]["chosen"]]["zone"]]["speed"])
    penalty = move_input(s, i, first["zone"]) * (1.0 + task["remote"] * k["numa_penalty_ratio"])
    if spread >= 2:
        penalty *= 1.0 + k["node_penalty_ratio"]
    if spread >= 3:
        penalty *= 1.0 + k["link_penalty_ratio"] * s.clock[0]["link_factor"]
        _flow(s, count * k["gang_bytes_per_second"])
    task["penalty"] = penalty / speed
    task["place"] = s.gpu[0]["chosen"]
    task["held"] = count
    evicted = _seize(s, i, count)
    warming = c["now"] + (k["evict_seconds"] if evicted else 0.0)
    for j in range(count):
        s.gpu[s.gpu[j]["chosen"]]["warming_until"] = warming
    run_seconds = task["service"] * task["penalty"]
    task["ends"] = warming + run_seconds
    push_event(s, task["ends"], END, i)
    if task["changes"] == 1 or task["grows"] == 1:
        task["middle"] = warming + run_seconds / 2.0
        push_event(s, task["middle"], MIDDLE, i)


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
def _seize(s: Engine, i: int, count: int) -> bool:
    """Take `chosen[:count]` for a gang; say whether models had to go."""
    evicted = 0
    for j in range(count):
        g = s.gpu[j]["chosen"]
        sync(s, g)
        evicted += make_room(s, g, 1.0 - 1e-9, 0)
        s.gpu[g]["owner"] = i
        s.gpu[g]["rate"] = useful_rate(s, i, FIRST)
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
                s.gpu[g]["rate"] = useful_rate(s, i, LAST)
    if s.task[i]["grows"] == 1:
        s.task[c["growing"]]["growing"] = i
        c["growing"] += 1


@compiled
def grow(s: Engine, i: int, count: int) -> None:
    """Give a running gang `chosen[:count]` on top; what is left of its run shortens in proportion."""
    c = s.clock[0]
    task = s.task[i]
    held = task["held"]
    _seize(s, i, count)
    if task["changes"] == 1:
        for j in range(count):
            s.gpu[s.gpu[j]["chosen"]]["rate"] = useful_rate(s, i, LAST)
    task["held"] = held + count
    task["ends"] = c["now"] + (task["ends"] - c["now"]) * held / (held + count)
    push_event(s, task["ends"], END, i)


@compiled
def end(s: Engine, i: int) -> None:
    """End a task that ran alone: a gang, or one on a CPU slot."""
    task = s.task[i]
    if task["kind"] == TaskKind.PREPROCESSING:
        s.node[task["place"]]["cpu_free"] += 1
        complete(s, i)
        return
    release_gang(s, i)
    complete(s, i)


@compiled
def release_gang(s: Engine, i: int) -> None:
    """Give back all that a gang holds."""
    if _spans_zones(s, i):
        _flow(s, -s.task[i]["held"] * s.constants[0]["gang_bytes_per_second"])
    for g in range(s.gpu.size):
        if s.gpu[g]["owner"] == i:
            sync(s, g)
            s.gpu[g]["owner"] = FREE
