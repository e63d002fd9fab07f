"""The waiting tasks: one linked list a priority, in order of submission; and what is counted of tasks."""

from tuner.reference.engine.compilation import compiled
from tuner.reference.engine.state import Engine, Measure, State


@compiled
def observe(s: Engine, measure: int, value: float) -> None:
    """Book a value in a histogram."""
    low, high = 0, s.bounds.size
    while low < high:
        middle = (low + high) // 2
        if s.bounds[middle] < value:
            low = middle + 1
        else:
            high = middle
    s.counts[measure, low] += 1
    s.totals[measure] += value


@compiled
def enqueue(s: Engine, i: int) -> None:
    """Let a task wait."""
    c = s.clock[0]
    task = s.task[i]
    p = task["priority"]
    tail = c["tail"][p]
    task["state"] = State.WAITING
    task["previous"] = tail
    task["next"] = -1
    if tail >= 0:
        s.task[tail]["next"] = i
    else:
        c["head"][p] = i
    c["tail"][p] = i
    c["waiting"][p] += 1
    c["waiting_kind"][task["kind"]] += 1
    c["pending"] += task["gpus"]


@compiled
def dequeue(s: Engine, i: int) -> None:
    """Take a task out of the queue, wherever it stands."""
    c = s.clock[0]
    task = s.task[i]
    p = task["priority"]
    before, after = task["previous"], task["next"]
    if before >= 0:
        s.task[before]["next"] = after
    else:
        c["head"][p] = after
    if after >= 0:
        s.task[after]["previous"] = before
    else:
        c["tail"][p] = before
    c["waiting"][p] -= 1
    c["waiting_kind"][task["kind"]] -= 1
    # Sums of floats drift; an empty queue is the moment to forget that.
    c["pending"] = c["pending"] - task["gpus"] if waiting(s) > 0 else 0.0


@compiled
def waiting(s: Engine) -> int:
    """Return the number of waiting tasks."""
    c = s.clock[0]
    return int(c["waiting"][0] + c["waiting"][1] + c["waiting"][2])


@compiled
def consider(s: Engine, i: int) -> None:
    """Book that a decision has looked at a task, if it is the first."""
    task = s.task[i]
    if task["seen"] == 0:
        task["seen"] = 1
        observe(s, Measure.LATENCY, s.clock[0]["now"] - task["submit"])
