"""Nodes that fail and come back.

What ran on a failed node waits again and begins anew: nothing is checkpointed, and useful time that was booked for lost
work stays booked. A gang loses everything with any of its accelerators. Models in the memory of the node are gone.
"""

from tuner.reference.engine.books import lose
from tuner.reference.engine.compilation import compiled
from tuner.reference.engine.gangs import release_gang
from tuner.reference.engine.models import drop_instance
from tuner.reference.engine.state import DOWN, FREE, RUNNING, Engine
from tuner.reference.engine.timing import schedule, sync
from tuner.reference.workload import TaskKind


@compiled
def fail_node(s: Engine, n: int) -> None:
    """Take a node out, with all that runs on it; one that is out already stays so."""
    first = s.node[n]["first"]
    if s.gpu[first]["owner"] == DOWN:
        return
    for g in range(first, first + s.clock[0]["gpus_per_node"]):
        sync(s, g)
        gang = s.gpu[g]["owner"]
        if gang >= 0:
            release_gang(s, gang)
            lose(s, gang)
        _clear(s, g)
        s.gpu[g]["owner"] = DOWN
    for i in range(s.clock[0]["arrived"]):
        task = s.task[i]
        if task["kind"] == TaskKind.PREPROCESSING and task["state"] == RUNNING and task["place"] == n:
            lose(s, i)
    s.node[n]["cpu_free"] = 0
    _tell_change(s)


@compiled
def repair_node(s: Engine, n: int, slots: int) -> None:
    """Put a failed node back, empty and with so many CPU slots; one that has not failed stays as it is."""
    first = s.node[n]["first"]
    if s.gpu[first]["owner"] != DOWN:
        return
    for g in range(first, first + s.clock[0]["gpus_per_node"]):
        sync(s, g)
        s.gpu[g]["owner"] = FREE
    s.node[n]["cpu_free"] = slots
    _tell_change(s)


@compiled
def _clear(s: Engine, g: int) -> None:
    """Take away the residents of a shared accelerator, and all that lies in its memory."""
    gpu = s.gpu[g]
    for slot in range(gpu["n"]):
        if gpu["task"][slot] >= 0:
            lose(s, gpu["task"][slot])
    gpu["n"] = 0
    gpu["turn"] = 0
    gpu["lead"] = 0.0
    gpu["quantum"] = 0.0
    for k in range(gpu["models"] - 1, -1, -1):
        drop_instance(s, g, k)
    gpu["memory"] = 1.0
    gpu["idle_memory"] = 0.0
    schedule(s, g)


@compiled
def _tell_change(s: Engine) -> None:
    """Let the next decision look again at what did not fit."""
    s.clock[0]["dirty"] = 1
    s.clock[0]["releases"] += 1
