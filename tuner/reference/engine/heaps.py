"""Two binary heaps: events of tasks on the wall clock, and accelerators by their next milestone on the service clock."""

from tuner.reference.engine.compilation import compiled
from tuner.reference.engine.state import Engine


@compiled
def _earlier(s: Engine, a: int, b: int) -> bool:
    # Ties are broken by kind and task, so that the order does not depend on the heap's history.
    if s.event_at[a] != s.event_at[b]:
        return bool(s.event_at[a] < s.event_at[b])
    if s.event_what[a] != s.event_what[b]:
        return bool(s.event_what[a] < s.event_what[b])
    return bool(s.event_whom[a] < s.event_whom[b])


@compiled
def _swap(s: Engine, a: int, b: int) -> None:
    s.event_at[a], s.event_at[b] = s.event_at[b], s.event_at[a]
    s.event_what[a], s.event_what[b] = s.event_what[b], s.event_what[a]
    s.event_whom[a], s.event_whom[b] = s.event_whom[b], s.event_whom[a]


@compiled
def push_event(s: Engine, at: float, what: int, whom: int) -> None:
    """Add an event."""
    i = s.clock[0]["events"]
    s.event_at[i] = at
    s.event_what[i] = what
    s.event_whom[i] = whom
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
    s.queue[i] = g
    s.gpu[g]["slot"] = i


@compiled
def reorder(s: Engine, g: int) -> None:
    """Restore the heap of accelerators after the due time of `g` has changed."""
    size = s.queue.size
    i = s.gpu[g]["slot"]
    while i > 0:
        parent = (i - 1) // 2
        if not _sooner(s, g, s.queue[parent]):
            break
        _put(s, i, s.queue[parent])
        i = parent
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and _sooner(s, s.queue[child + 1], s.queue[child]):
            child += 1
        if not _sooner(s, s.queue[child], g):
            break
        _put(s, i, s.queue[child])
        i = child
    _put(s, i, g)
