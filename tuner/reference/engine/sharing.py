"""Sharing an accelerator in turns, exactly.

Residents stand in a ring. A turn is a switch (context switch and cache refill of the one that comes) and then a slice
of its own length. Between two events of an accelerator nothing else happens on it, so whole rounds are jumped in
closed form and only the turns at both ends are walked. A lone resident has no turns: it is switched in once.

A record of one accelerator is all that these functions know; `goal` counts down to the resident's next milestone.
"""

import math

from tuner.reference.engine.compilation import compiled
from tuner.reference.engine.state import LOADING, Record

CRUMB = 1e-9
"""Part of a slice for which no turn of its own is needed: rounding, not work."""


@compiled
def _grant(gpu: Record, i: int, seconds: float) -> None:
    """Book time that a resident was given."""
    gpu["goal"][i] -= seconds
    if gpu["stage"][i] == LOADING:
        gpu["warmup"] += seconds
    else:
        useful = seconds * gpu["efficiency"][i]
        gpu["useful"] += useful
        gpu["idle"] += seconds - useful


@compiled
def _walk(gpu: Record, seconds: float) -> float:
    """Spend time on the turn at hand; return what is left when it ends, or 0."""
    i = gpu["turn"]
    spent = float(min(gpu["lead"], seconds))
    gpu["lead"] -= spent
    gpu["switch"] += spent
    seconds -= spent
    if gpu["n"] == 1:
        _grant(gpu, i, seconds)
        return 0.0
    spent = float(min(gpu["quantum"], seconds))
    gpu["quantum"] -= spent
    _grant(gpu, i, spent)
    return seconds - spent


@compiled
def _next_turn(gpu: Record) -> None:
    i = (gpu["turn"] + 1) % gpu["n"]
    gpu["turn"] = i
    gpu["lead"] = gpu["cost"][i]
    gpu["quantum"] = gpu["slice"][i]


@compiled
def round_seconds(gpu: Record) -> float:
    """Return how long one turn of every resident takes."""
    total = 0.0
    for i in range(gpu["n"]):
        total += gpu["cost"][i] + gpu["slice"][i]
    return total


@compiled
def run(gpu: Record, seconds: float) -> None:
    """Let the residents share the accelerator for a time, in which none of them reaches a milestone."""
    seconds = _walk(gpu, seconds)
    if seconds <= 0.0:
        return
    rounds = math.floor(seconds / round_seconds(gpu))
    if rounds > 0:
        seconds -= rounds * round_seconds(gpu)
        for i in range(gpu["n"]):
            gpu["switch"] += rounds * gpu["cost"][i]
            _grant(gpu, i, rounds * gpu["slice"][i])
    while seconds > 0.0:
        _next_turn(gpu)
        seconds = _walk(gpu, seconds)


@compiled
def next_milestone(gpu: Record) -> float:
    """Return the time until the first resident reaches its goal, infinity without residents; note who it is."""
    n = gpu["n"]
    if n == 0:
        return math.inf
    first = gpu["turn"]
    gpu["due_slot"] = first
    if n == 1:
        return float(gpu["lead"] + max(gpu["goal"][first], 0.0))
    round_length = round_seconds(gpu)
    turn_ends = gpu["lead"] + gpu["quantum"]
    if gpu["goal"][first] <= gpu["quantum"] + CRUMB * gpu["slice"][first]:
        best = gpu["lead"] + max(gpu["goal"][first], 0.0)
    else:
        rest = gpu["goal"][first] - gpu["quantum"]
        turns = math.ceil(rest / gpu["slice"][first] - CRUMB)
        # Its last turn starts after those of the others, so the length of its own turns before stays in.
        best = turn_ends + turns * round_length - gpu["slice"][first] + (rest - (turns - 1) * gpu["slice"][first])
    starts = turn_ends
    for step in range(1, n):
        i = (first + step) % n
        turns = max(math.ceil(gpu["goal"][i] / gpu["slice"][i] - CRUMB), 1)
        inside = max(gpu["goal"][i] - (turns - 1) * gpu["slice"][i], 0.0)
        ends = starts + (turns - 1) * round_length + gpu["cost"][i] + inside
        if ends < best:
            best = ends
            gpu["due_slot"] = i
        starts += gpu["cost"][i] + gpu["slice"][i]
    return float(best)


@compiled
def _move(gpu: Record, source: int, target: int) -> None:
    gpu["task"][target] = gpu["task"][source]
    gpu["stage"][target] = gpu["stage"][source]
    gpu["goal"][target] = gpu["goal"][source]
    gpu["efficiency"][target] = gpu["efficiency"][source]
    gpu["slice"][target] = gpu["slice"][source]
    gpu["cost"][target] = gpu["cost"][source]


@compiled
def join(  # noqa: PLR0917 - numba has no keyword-only arguments.
    gpu: Record, task: int, stage: int, goal: float, efficiency: float, slice_seconds: float, cost: float
) -> None:
    """Add a resident at the end of the ring, so that all others have a turn before it."""
    n = gpu["n"]
    turn = gpu["turn"]
    at = turn if n > 0 else 0
    for i in range(n, at, -1):
        _move(gpu, i - 1, i)
    gpu["task"][at] = task
    gpu["stage"][at] = stage
    gpu["goal"][at] = goal
    gpu["efficiency"][at] = efficiency
    gpu["slice"][at] = slice_seconds
    gpu["cost"][at] = cost
    gpu["n"] = n + 1
    if n == 0:
        gpu["turn"] = 0
        gpu["lead"] = cost
        gpu["quantum"] = slice_seconds
        return
    gpu["turn"] = turn + 1
    if n == 1:
        # The one that was alone had no turns; its first begins now.
        gpu["quantum"] = gpu["slice"][turn + 1]


@compiled
def leave(gpu: Record, slot: int) -> None:
    """Remove a resident; when it was its turn, the next one is switched in."""
    n = gpu["n"] - 1
    turn = gpu["turn"]
    for i in range(slot, n):
        _move(gpu, i + 1, i)
    gpu["n"] = n
    if slot < turn:
        gpu["turn"] = turn - 1
    elif slot == turn:
        turn = turn % n if n > 0 else 0
        gpu["turn"] = turn
        gpu["lead"] = gpu["cost"][turn] if n > 0 else 0.0
        gpu["quantum"] = gpu["slice"][turn] if n > 0 else 0.0
