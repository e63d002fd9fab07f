"""The waiting tasks, in lanes of linked lists, each in order of submission; and what is counted of tasks."""

from tuner.reference.engine.compilation import compiled
from tuner.reference.engine.state import LANES, LATENCY, WAITING, Engine, Record, Records
from tuner.reference.engine.tables import BOUNDS


@compiled
def observe(s: Engine, measure: int, value: float) -> None:
    """Book a value in a histogram."""
    low, high = 0, BOUNDS.size
    while low < high:
        middle = (low + high) // 2
        if BOUNDS[middle] < value:
            low = middle + 1
        else:
            high = middle
    s.measure[measure]["counts"][low] += 1
    s.measure[measure]["total"] += value


@compiled
def lane_of(s: Engine, i: int) -> int:
    """Return the lane of a task: two a priority, gangs in the odd ones."""
    return int(2 * s.task[i]["priority"] + s.task[i]["exclusive"])


@compiled
def enqueue(s: Engine, i: int) -> None:
    """Let a task wait."""
    c = s.clock[0]
    task = s.task[i]
    lane = lane_of(s, i)
    tail = c["tail"][lane]
    task["state"] = WAITING
    task["since"] = task["submit"]
    task["previous"] = tail
    task["next"] = -1
    if tail >= 0:
        s.task[tail]["next"] = i
    else:
        c["head"][lane] = i
    c["tail"][lane] = i
    c["unseen"][lane] += 1
    if c["fresh"][lane] < 0:
        c["fresh"][lane] = i
    c["waiting"][lane] += 1
    c["waiting_kind"][task["kind"]] += 1
    c["pending"] += task["gpus"]


@compiled
def requeue(s: Engine, i: int) -> None:
    """Let a task that ran wait again, at its place by submission: among those that a decision has looked at."""
    c = s.clock[0]
    task = s.task[i]
    lane = lane_of(s, i)
    before, after = -1, c["head"][lane]
    while 0 <= after < i:
        before, after = after, s.task[after]["next"]
    task["state"] = WAITING
    task["since"] = c["now"]
    task["previous"] = before
    task["next"] = after
    if before >= 0:
        s.task[before]["next"] = i
    else:
        c["head"][lane] = i
    if after >= 0:
        s.task[after]["previous"] = i
    else:
        c["tail"][lane] = i
    c["waiting"][lane] += 1
    c["waiting_kind"][task["kind"]] += 1
    c["pending"] += task["gpus"]


@compiled
def dequeue(s: Engine, i: int) -> None:
    """Take a task out of the queue, wherever it stands."""
    c = s.clock[0]
    task = s.task[i]
    lane = lane_of(s, i)
    before, after = task["previous"], task["next"]
    if before >= 0:
        s.task[before]["next"] = after
    else:
        c["head"][lane] = after
    if after >= 0:
        s.task[after]["previous"] = before
    else:
        c["tail"][lane] = before
    c["waiting"][lane] -= 1
    c["unseen"][lane] -= 1 - task["seen"]
    if c["fresh"][lane] == i:
        c["fresh"][lane] = after
    c["waiting_kind"][task["kind"]] -= 1
    # Sums of floats drift; an empty queue is the moment to forget that.
    c["pending"] = c["pending"] - task["gpus"] if waiting(s) > 0 else 0.0


@compiled
def waiting(s: Engine) -> int:
    """Return the number of waiting tasks."""
    return int(s.clock[0]["waiting"].sum())


@compiled
def look_from_start(s: Engine, lowest: int, limit: int, gang_limit: int) -> None:
    """Begin to go through the queue: no priority below `lowest`, and so many gangs and other tasks at most."""
    c = s.clock[0]
    for lane in range(LANES):
        c["cursor"][lane] = c["head"][lane] if lane >= 2 * lowest else -1
    c["looked"][0] = 0
    c["looked"][1] = 0
    c["limit"][0] = limit
    c["limit"][1] = gang_limit


@compiled
def look_next(c: Record, tasks: Records, by_priority: int) -> int:
    """Return the next task in the queue, -1 at its end: by priority, then submission, or by submission alone.

    Tasks that were submitted after the decision began are beyond its end; a task's number is its rank by submission.
    When the limit is reached, only tasks follow that no decision has looked at. It is told clock and tasks alone,
    because it is called most of all, and passing a whole engine costs more than what it does.
    """
    best, best_lane = -1, -1
    for lane in range(LANES - 1, -1, -1):
        i = c["cursor"][lane]
        if i >= 0 and tasks[i]["seen"] == 1 and c["looked"][lane % 2] >= c["limit"][lane % 2]:
            i = c["fresh"][lane]
            if i >= 0 and tasks[i]["seen"] == 1:
                i = -1
            c["cursor"][lane] = i
        if 0 <= i < c["known"] and (best < 0 or (i < best and (by_priority == 0 or lane // 2 == best_lane // 2))):
            best, best_lane = i, lane
    if best >= 0:
        c["cursor"][best_lane] = tasks[best]["next"]
        c["looked"][best_lane % 2] += tasks[best]["seen"]
    return int(best)


@compiled
def look_at_end(s: Engine) -> None:
    """Let the fresh tasks begin after those that a decision has looked at."""
    c = s.clock[0]
    for lane in range(LANES):
        i = c["fresh"][lane]
        while i >= 0 and s.task[i]["seen"] == 1:
            i = s.task[i]["next"]
        c["fresh"][lane] = i


@compiled
def consider(s: Engine, i: int) -> None:
    """Book that a decision has looked at a task, if it is the first."""
    task = s.task[i]
    if task["seen"] == 0:
        task["seen"] = 1
        s.clock[0]["unseen"][lane_of(s, i)] -= 1
        observe(s, LATENCY, s.clock[0]["now"] - task["submit"])
