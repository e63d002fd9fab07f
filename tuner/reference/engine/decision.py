"""The decision loop: look at the queue, think, dispatch, pause.

A decision sees the tasks that were waiting when it began. It takes time, the more the longer the queue and the more
machines it compares, and only then do its placements take effect. The next one begins a period after this one began,
but not before it has ended: that is how latency explodes under load.
"""

import math

from tuner.reference.engine.books import await_end_of_patience
from tuner.reference.engine.compilation import compiled
from tuner.reference.engine.dispatch import dispatch, expected_seconds, is_hopeless
from tuner.reference.engine.gangs import grow
from tuner.reference.engine.heaps import sort
from tuner.reference.engine.placement import choose_beside, count_free
from tuner.reference.engine.queues import (
    consider,
    enqueue,
    look_at_end,
    look_from_start,
    look_next,
    observe,
    waiting,
)
from tuner.reference.engine.state import (
    DECISION,
    DEPTH,
    FCFS,
    FULL,
    GANG_DEPTH,
    LANES,
    PRIORITY,
    PRIORITY_ONLY,
    RUNNING,
    SIMPLIFIED,
    SJF,
    WAITING,
    Engine,
)
from tuner.reference.engine.timing import pause, reslice, schedule, sync
from tuner.reference.workload import NO_MODEL, Priority

GROW_SECONDS = 600.0
"""Time that a gang goes on asking for more accelerators (assumption)."""


@compiled
def begin_decision(s: Engine) -> None:
    """Begin a decision: take over new settings, note who is waiting, and find how long it takes."""
    c = s.clock[0]
    if s.settings[1]["generation"] > s.settings[0]["generation"]:
        take_over_settings(s)
    c["computing"] = 1
    c["decision_started"] = c["now"]
    c["known"] = c["arrived"]
    c["decision_at"] = c["now"] + decision_seconds(s)


@compiled
def decision_seconds(s: Engine) -> float:
    """Return how long a decision about the tasks that wait now takes."""
    c = s.clock[0]
    k = s.constants[0]
    setting = s.settings[0]
    if setting["mode"] == SIMPLIFIED:
        return float(k["decision_base_seconds"])
    looked = waiting(s)
    if setting["order"] != FCFS or setting["mode"] != FULL:
        first = 2 * Priority.HIGH.value if setting["mode"] == PRIORITY_ONLY else 0
        new, tasks, gangs = 0, 0, 0
        for lane in range(first, LANES, 2):
            new += c["unseen"][lane] + c["unseen"][lane + 1]
            tasks += c["waiting"][lane] - c["unseen"][lane]
            gangs += c["waiting"][lane + 1] - c["unseen"][lane + 1]
        looked = new + min(tasks, DEPTH) + min(gangs, GANG_DEPTH)
    nodes = s.node.size
    # Three tiers compare zones, then the nodes of one, then the accelerators of one; a flat search compares all.
    tiers = s.zone.size + nodes / s.zone.size + s.clock[0]["gpus_per_node"]
    candidates = tiers if setting["tiers"] == 1 else float(s.gpu.size)
    per_task = candidates * k["decision_candidate_seconds"]
    return float(k["decision_base_seconds"] + nodes * k["decision_node_seconds"] + looked * per_task)


@compiled
def take_over_settings(s: Engine) -> None:
    """Put the next settings in force: reserve accelerators, and give all residents their new slices."""
    s.settings[0] = s.settings[1]
    reserve(s)
    for g in range(s.gpu.size):
        if s.gpu[g]["n"] > 0:
            sync(s, g)
            reslice(s, g)
            schedule(s, g)


@compiled
def reserve(s: Engine) -> None:
    """Mark the reserved accelerators: the last ones of each zone, in proportion, so that whole nodes are reserved."""
    ratio = s.settings[0]["reservation"]
    for z in range(s.zone.size):
        first, end = s.zone[z]["first_gpu"], s.zone[z]["end_gpu"]
        kept = math.floor(ratio * end + 1e-9) - math.floor(ratio * first + 1e-9)
        for g in range(first, end):
            s.gpu[g]["reserved"] = 1 if g >= end - kept else 0
    s.clock[0]["dirty"] = 1
    s.clock[0]["releases"] += 1


@compiled
def end_decision(s: Engine) -> None:
    """End a decision: dispatch what fits, pause, and set the time of the next one."""
    c = s.clock[0]
    k = s.constants[0]
    setting = s.settings[0]
    observe(s, DECISION, c["now"] - c["decision_started"])
    c["decisions"] += 1
    c["computing"] = 0
    c["decision_at"] = max(c["decision_started"] + setting["period"], c["now"])
    _forget_failures(s)
    if c["growing"] > 0:
        _serve_growing(s)
    _dispatch_in_order(s)
    look_at_end(s)
    c["releases_known"] = c["releases"]
    simple = setting["mode"] == SIMPLIFIED
    pause(s, k["pause_base_seconds"] + (0.0 if simple else s.node.size * k["pause_node_seconds"]))


@compiled
def _forget_failures(s: Engine) -> None:
    """Forget what did not fit, where something may fit by now. Within a decision room only shrinks."""
    c = s.clock[0]
    c["gang_blocked"] = 0
    c["gang_stop"] = 0
    c["shadow"] = math.inf
    c["extra"] = 0
    for p in range(3):
        c["room"][p + 3] = math.inf
        if c["releases"] != c["releases_known"]:
            c["room"][p] = math.inf


@compiled
def _serve_growing(s: Engine) -> None:
    """Give gangs that ask for more half as many accelerators again, beside those they have; or let them ask on."""
    c = s.clock[0]
    kept = 0
    for j in range(c["growing"]):
        i = s.task[j]["growing"]
        task = s.task[i]
        # One that has lost its node asks no more until it has come as far again.
        over = c["now"] < task["middle"] or c["now"] > (task["started"] + task["ends"]) / 2.0 + GROW_SECONDS
        if task["state"] != RUNNING or over:
            continue
        need = (task["held"] + 1) // 2
        count_free(s)
        if choose_beside(s, i, need):
            grow(s, i, need)
        else:
            s.task[kept]["growing"] = i
            kept += 1
    c["growing"] = kept


@compiled
def _dispatch_in_order(s: Engine) -> None:
    """Go through the queue in its order; under strict FCFS stop at the first task that does not fit."""
    c = s.clock[0]
    setting = s.settings[0]
    full = setting["mode"] == FULL
    by_priority = 1 if setting["order"] == PRIORITY or not full else 0
    lowest = Priority.HIGH.value if setting["mode"] == PRIORITY_ONLY else Priority.LOW.value
    if full and setting["order"] == SJF:
        _dispatch_shortest(s)
    elif full and setting["order"] == FCFS:
        _consider_all(s)
        look_from_start(s, lowest, s.task.size, s.task.size)
        i = look_next(c, s.task, by_priority)
        while i >= 0 and dispatch(s, i):
            i = look_next(c, s.task, by_priority)
    else:
        look_from_start(s, lowest, DEPTH, GANG_DEPTH)
        i = look_next(c, s.task, by_priority)
        while i >= 0:
            if s.task[i]["seen"] == 0:
                consider(s, i)
            if not is_hopeless(c, s.task[i], s.model):
                dispatch(s, i)
            i = look_next(c, s.task, by_priority)


@compiled
def _dispatch_shortest(s: Engine) -> None:
    """Go through the queue by expected run time, then submission."""
    look_from_start(s, Priority.LOW.value, DEPTH, GANG_DEPTH)
    count = 0
    i = look_next(s.clock[0], s.task, 0)
    while i >= 0:
        s.scratch[count]["key"] = expected_seconds(s, i)
        s.scratch[count]["number"] = i
        count += 1
        i = look_next(s.clock[0], s.task, 0)
    sort(s, count)
    for j in range(count):
        consider(s, s.scratch[j]["number"])
        dispatch(s, s.scratch[j]["number"])


@compiled
def _consider_all(s: Engine) -> None:
    """Book that a decision has looked at every task that was waiting when it began."""
    c = s.clock[0]
    for i in range(c["considered"], c["known"]):
        if s.task[i]["state"] == WAITING:
            consider(s, i)
    c["considered"] = c["known"]


@compiled
def submit(s: Engine, i: int) -> None:
    """Book a task that has just been submitted, and when it will be given up."""
    c = s.clock[0]
    task = s.task[i]
    c["submitted"][task["kind"] * 3 + task["priority"]] += 1
    c["asked"][task["kind"]] += task["gpus"]
    if task["model"] != NO_MODEL:
        s.model[task["model"]]["arrivals"] += 1.0
    enqueue(s, i)
    await_end_of_patience(s, i)
