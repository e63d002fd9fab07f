"""Trying to start one waiting task: where it may go, what it must leave to others, and whether it is held back."""

import math

from tuner.reference.engine.compilation import compiled
from tuner.reference.engine.gangs import start_gang
from tuner.reference.engine.heaps import sort
from tuner.reference.engine.placement import (
    NOWHERE,
    choose_first,
    choose_gang,
    count_free,
    find_shared,
    find_slot,
    find_warm,
    memory_needed,
    most_room,
)
from tuner.reference.engine.sharers import start_processing, start_shared
from tuner.reference.engine.state import EASY, FREE, FULL, PRIORITY, SIMPLIFIED, Engine, Record, Records
from tuner.reference.workload import NO_MODEL, Priority, TaskKind

RELAX_SECONDS = 300.0
"""Waiting time after which a gang takes scattered accelerators (assumption, after Jeon et al., USENIX ATC 2019)."""

BYPASS_SECONDS = 600.0
"""Waiting time after which a blocked gang is no longer overtaken by other gangs (assumption)."""

UNKNOWN_SECONDS = 3600.0
"""Run time that is expected of tasks without history (assumption: a usual default time limit)."""

NO, BY_TIME, BY_SPACE = range(3)
"""Whether a task may take whole accelerators past a blocked gang: it ends early, or leaves enough."""

CRUMB = 1e-12
"""Memory that does not count: a task that failed keeps those out that need as much."""


@compiled
def is_hopeless(c: Record, task: Record, models: Records) -> bool:
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
def expected_seconds(s: Engine, i: int) -> float:
    """Return the run time that a task's history predicts."""
    group = s.group[s.task[i]["group"]]
    return float(group["service"]) if group["count"] > 0.0 else UNKNOWN_SECONDS


@compiled
def dispatch(s: Engine, i: int) -> bool:
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
        if s.gpu[g]["reserved"] == 0 and owner == FREE and s.gpu[g]["n"] == 0:
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
