"""Order: two binary heaps and a sort.

The heaps hold events of tasks on the wall clock, and accelerators by their next milestone on the service clock.
"""

from tuner.reference.engine.compilation import compiled
from tuner.reference.engine.state import Engine


@compiled
def _earlier(s: Engine, a: int, b: int) -> bool:
    # Ties are broken by kind and task, so that the order does not depend on the heap's history.
    if s.event[a]["at"] != s.event[b]["at"]:
        return bool(s.event[a]["at"] < s.event[b]["at"])
    if s.event[a]["what"] != s.event[b]["what"]:
        return bool(s.event[a]["what"] < s.event[b]["what"])
    return bool(s.event[a]["whom"] < s.event[b]["whom"])


@compiled
def _swap(s: Engine, a: int, b: int) -> None:
    s.event[a]["at"], s.event[b]["at"] = s.event[b]["at"], s.event[a]["at"]
    s.event[a]["what"], s.event[b]["what"] = s.event[b]["what"], s.event[a]["what"]
    s.event[a]["whom"], s.event[b]["whom"] = s.event[b]["whom"], s.event[a]["whom"]


@compiled
def push_event(s: Engine, at: float, what: int, whom: int) -> None:
    """Add an event."""
    i = s.clock[0]["events"]
    s.event[i]["at"] = at
    s.event[i]["what"] = what
    s.event[i]["whom"] = whom
    s.clock[0]["events"] = i + 1
    while i > 0:
        parent = (i - 1) // 2
        if not _earlier(s, i, parent):
            break
        _swap(s, i, parent)
        i = parent


@compiled
def drop_event(s: Engine) -> None:
    """Remove the earliest event, which stands at index 0."""
    size = s.clock[0]["events"] - 1
    s.clock[0]["events"] = size
    _swap(s, 0, size)
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and _earlier(s, child + 1, child):
            child += 1
        if not _earlier(s, child, i):
            break
        _swap(s, child, i)
        i = child


@compiled
def _sooner(s: Engine, a: int, b: int) -> bool:
    due_a, due_b = s.gpu[a]["due"], s.gpu[b]["due"]
    if due_a != due_b:
        return bool(due_a < due_b)
    return a < b


@compiled
def _put(s: Engine, i: int, g: int) -> None:
    s.gpu[i]["queued"] = g
    s.gpu[g]["slot"] = i


@compiled
def reorder(s: Engine, g: int) -> None:
    """Restore the heap of accelerators after the due time of `g` has changed."""
    size = s.gpu.size
    i = s.gpu[g]["slot"]
    while i > 0:
        parent = (i - 1) // 2
        if not _sooner(s, g, s.gpu[parent]["queued"]):
            break
        _put(s, i, s.gpu[parent]["queued"])
        i = parent
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and _sooner(s, s.gpu[child + 1]["queued"], s.gpu[child]["queued"]):
            child += 1
        if not _sooner(s, s.gpu[child]["queued"], g):
            break
        _put(s, i, s.gpu[child]["queued"])
        i = child
    _put(s, i, g)


@compiled
def sort(s: Engine, count: int) -> None:
    """Sort the first entries of the scratch table by key, then number (Shell's sort; small, and quick to compile)."""
    gap = count // 2
    while gap > 0:
        for i in range(gap, count):
            key, number = s.scratch[i]["key"], s.scratch[i]["number"]
            j = i - gap
            while j >= 0 and (s.scratch[j]["key"], s.scratch[j]["number"]) > (key, number):
                s.scratch[j + gap]["key"] = s.scratch[j]["key"]
                s.scratch[j + gap]["number"] = s.scratch[j]["number"]
                j -= gap
            s.scratch[j + gap]["key"] = key
            s.scratch[j + gap]["number"] = number
        gap //= 2
