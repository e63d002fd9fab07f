"""The decision loop: look at the queue, think, dispatch, pause.

A decision sees the tasks that were waiting when it began. It takes time, the more the longer the queue and the more
machines it compares, and only then do its placements take effect. The next one begins a period after this one began,
but not before it has ended: that is how latency explodes under load.
"""

import math

from tuner.reference.engine.compilation import compiled
from tuner.reference.engine.heaps import push_event, sort
from tuner.reference.engine.placement import (
    NOWHERE,
    choose_beside,
    choose_first,
    choose_gang,
    count_free,
    find_shared,
    find_slot,
    find_warm,
    memory_needed,
    most_room,
)
from tuner.reference.engine.queues import consider, enqueue, look_at_end, look_from_start, look_next, observe, waiting
from tuner.reference.engine.state import (
    ABANDON,
    DECISION,
    DEPTH,
    EASY,
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
    Record,
    Records,
)
from tuner.reference.engine.timing import pause, reslice, schedule, sync
from tuner.reference.engine.work import grow, start_gang, start_processing, start_shared
from tuner.reference.workload import NO_MODEL, Priority, TaskKind

RELAX_SECONDS = 300.0
"""Waiting time after which a gang takes scattered accelerators (assumption, after Jeon et al., USENIX ATC 2019)."""

BYPASS_SECONDS = 600.0
"""Waiting time after which a blocked gang is no longer overtaken by other gangs (assumption)."""

GROW_SECONDS = 600.0
"""Time that a gang goes on asking for more accelerators (assumption)."""

UNKNOWN_SECONDS = 3600.0
"""Run time that is expected of tasks without history (assumption: a usual default time limit)."""

NO, BY_TIME, BY_SPACE = range(3)

CRUMB = 1e-12
"""Memory that does not count: a task that failed keeps those out that need as much."""


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
        if task["state"] != RUNNING or c["now"] > (task["started"] + task["ends"]) / 2.0 + GROW_SECONDS:
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
        while i >= 0 and _dispatch(s, i):
            i = look_next(c, s.task, by_priority)
    else:
        look_from_start(s, lowest, DEPTH, GANG_DEPTH)
        i = look_next(c, s.task, by_priority)
        while i >= 0:
            if s.task[i]["seen"] == 0:
                consider(s, i)
            if not _is_hopeless(c, s.task[i], s.model):
                _dispatch(s, i)
            i = look_next(c, s.task, by_priority)


@compiled
def _is_hopeless(c: Record, task: Record, models: Records) -> bool:
    """Say whether it is known that a task fits nowhere, without trying: a shortcut for long queues."""
    if task["exclusive"] == 1:
        return bool(c["gang_stop"] == 1)
    if task["kind"] == TaskKind.PREPROCESSING:
        return False
    p = task["priority"]
    room = min(c["room"][p], c["room"][p + 3])
    if task["model"] == NO_MODEL:
        return bool(task["memory"] > room)
    model = models[task["model"]]
    full = model["full"][1 if p == Priority.HIGH else 0] == c["releases"]
    return bool(full and task["memory"] + model["memory"] > room)


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
        _dispatch(s, s.scratch[j]["number"])


@compiled
def _consider_all(s: Engine) -> None:
    """Book that a decision has looked at every task that was waiting when it began."""
    c = s.clock[0]
    for i in range(c["considered"], c["known"]):
        if s.task[i]["state"] == WAITING:
            consider(s, i)
    c["considered"] = c["known"]


@compiled
def expected_seconds(s: Engine, i: int) -> float:
    """Return the run time that a task's history predicts."""
    group = s.group[s.task[i]["group"]]
    return float(group["service"]) if group["count"] > 0.0 else UNKNOWN_SECONDS


@compiled
def _dispatch(s: Engine, i: int) -> bool:
    """Start a task if it fits; say whether it was started, or is held back on purpose."""
    task = s.task[i]
    if is_held(s, i):
        return True
    if task["kind"] == TaskKind.PREPROCESSING:
        n = find_slot(s, i)
        if n != NOWHERE:
            start_processing(s, i, n)
        return n != NOWHERE
    if task["exclusive"] == 1:
        return _dispatch_gang(s, i)
    return _dispatch_shared(s, i)


@compiled
def is_held(s: Engine, i: int) -> bool:
    """Say whether a deferrable task is held until the best window that a fresh forecast names.

    It is held for half its patience at most, and never longer than a prediction window.
    """
    c = s.clock[0]
    task = s.task[i]
    window = s.settings[0]["window"]
    if task["priority"] != Priority.LOW or s.settings[0]["mode"] != FULL or s.settings[0]["order"] != PRIORITY:
        return False
    if not c["now"] < c["window_start"] or c["now"] > c["forecast_at"] + window:
        return False
    return bool(c["now"] - task["submit"] < min(task["patience"] / 2.0, window))


@compiled
def _dispatch_gang(s: Engine, i: int) -> bool:
    c = s.clock[0]
    task = s.task[i]
    need = math.ceil(task["gpus"])
    waited = c["now"] - task["submit"]
    relaxed = waited > RELAX_SECONDS
    count_free(s)
    backfill = _may_backfill(s, i, need) if c["gang_stop"] == 0 else NO
    if backfill != NO:
        tiers = s.settings[0]["tiers"] == 1 and s.settings[0]["mode"] != SIMPLIFIED
        if choose_gang(s, need, task["zone"], relaxed) if tiers else choose_first(s, need):
            start_gang(s, i, need)
            c["extra"] -= need if backfill == BY_SPACE else 0
            return True
    if c["gang_blocked"] == 0:
        c["gang_blocked"] = 1
        if s.settings[0]["order"] == EASY:
            _cast_shadow(s, need)
    if waited > BYPASS_SECONDS and s.settings[0]["order"] == PRIORITY:
        c["gang_stop"] = 1
    return False


@compiled
def _may_backfill(s: Engine, i: int, need: int) -> int:
    """Say whether a task may take whole accelerators now, although a gang before it is blocked.

    Under EASY it may when it is expected to end before the blocked gang can start, or when it takes accelerators that
    the gang will not need. Other orders let gangs pass (bounded by `BYPASS_SECONDS`).
    """
    c = s.clock[0]
    if s.settings[0]["order"] != EASY or c["gang_blocked"] == 0:
        return BY_TIME
    if c["now"] + expected_seconds(s, i) <= c["shadow"]:
        return BY_TIME
    return BY_SPACE if need <= c["extra"] else NO


@compiled
def _cast_shadow(s: Engine, need: int) -> None:
    """Find when the blocked gang is expected to start, and how many accelerators will then be left over.

    Lifka, "The ANL/IBM SP scheduling system" (1995). Where gangs lie is ignored; those that overrun their prediction
    are expected to take half of their age again.
    """
    c = s.clock[0]
    free, busy = 0, 0
    for g in range(s.gpu.size):
        owner = s.gpu[g]["owner"]
        if s.gpu[g]["reserved"] == 0 and owner < 0 and s.gpu[g]["n"] == 0:
            free += 1
        elif s.gpu[g]["reserved"] == 0 and owner >= 0:
            age = c["now"] - s.task[owner]["started"]
            left = expected_seconds(s, owner) * s.task[owner]["penalty"] - age
            s.scratch[busy]["key"] = c["now"] + max(left, age / 2.0)
            s.scratch[busy]["number"] = g
            busy += 1
    if free + busy < need:
        # It waits for shared accelerators, whose end nobody predicts: nothing may be opened meanwhile.
        c["shadow"] = -math.inf
        c["extra"] = 0
        return
    sort(s, busy)
    at = max(need - free, 0)
    c["shadow"] = s.scratch[at - 1]["key"] if at > 0 else c["now"]
    while at < busy and s.scratch[at]["key"] <= c["shadow"]:
        at += 1
    c["extra"] = free + at - need


@compiled
def _dispatch_shared(s: Engine, i: int) -> bool:
    c = s.clock[0]
    task = s.task[i]
    p = task["priority"]
    warm = find_warm(s, i) if task["model"] != NO_MODEL else NOWHERE
    if warm != NOWHERE and not _prefers_cold(s, i, s.gpu[warm]["n"], 0):
        start_shared(s, i, warm)
        return True
    need = memory_needed(s, i)
    g = NOWHERE
    # A blocked gang comes first on empty accelerators, except that protected tasks wait for nobody.
    backfill = BY_TIME if c["gang_blocked"] == 0 or p == Priority.HIGH else NO
    if backfill == NO and s.settings[0]["order"] == EASY:
        backfill = _may_backfill(s, i, 1)
    if need <= min(c["room"][p], c["room"][p + 3]):
        g = find_shared(s, i, backfill != NO)
        if g == NOWHERE:
            # Nothing makes room but a release, unless it was only this model or a blocked gang that stood in the way.
            lasting = backfill != NO and (task["model"] == NO_MODEL or s.model[task["model"]]["places"] == 0)
            c["room"][p if lasting else p + 3] = min(most_room(s, p, backfill != NO), need - CRUMB)
    if warm != NOWHERE and (g == NOWHERE or not _prefers_cold(s, i, s.gpu[warm]["n"], s.gpu[g]["n"])):
        g = warm
    if g == NOWHERE:
        return False
    if backfill == BY_SPACE and s.gpu[g]["n"] == 0:
        c["extra"] -= 1
    start_shared(s, i, g)
    return True


@compiled
def _prefers_cold(s: Engine, i: int, warm_residents: int, cold_residents: int) -> bool:
    """Say whether a request is expected to end sooner by a cold start among few than warm among many.

    Every resident that is there already delays a request by about its own run time, a cold start by loading, which is
    shared, too. Schedulers without tiers do not compare: they take what is warm.
    """
    setting = s.settings[0]
    if setting["tiers"] == 0 or setting["mode"] == SIMPLIFIED:
        return False
    seconds = expected_seconds(s, i)
    loading = s.model[s.task[i]["model"]]["loading"]
    return bool((cold_residents + 1) * (seconds + loading) < (warm_residents + 1) * seconds)


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
    if task["patience"] < math.inf:
        push_event(s, task["submit"] + task["patience"], ABANDON, i)
