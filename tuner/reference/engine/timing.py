"""Time on one accelerator: bringing its books up to now, and finding its next milestone."""

import math

from tuner.reference.engine.compilation import compiled
from tuner.reference.engine.heaps import reorder
from tuner.reference.engine.sharing import next_milestone, run
from tuner.reference.engine.state import DOWN, RECENT, SIMPLIFIED, Engine

SLICE_GAIN = 0.3
"""Weight of a task's efficiency in its slice; the source document's."""

SMALLEST_SLICE = 0.1
"""Least share of the base slice that a resident gets, however inefficient (assumption)."""


@compiled
def service_clock(s: Engine) -> float:
    """Return V(now): the time that shared accelerators were not paused."""
    c = s.clock[0]
    return float(max(c["now"], c["frozen_until"]) - c["paused"])


@compiled
def pause(s: Engine, seconds: float) -> None:
    """Stop the slicing of all shared accelerators for a time from now on."""
    c = s.clock[0]
    c["frozen_until"] = max(c["now"], c["frozen_until"]) + seconds
    c["paused"] += seconds


@compiled
def sync(s: Engine, g: int) -> None:
    """Book an accelerator's time up to now."""
    c = s.clock[0]
    gpu = s.gpu[g]
    now = c["now"]
    service = service_clock(s)
    wall = now - gpu["last"]
    shared = min(max(service - gpu["last_service"], 0.0), wall)
    gpu["last"] = now
    gpu["last_service"] = service
    if wall <= 0.0:
        return
    if gpu["owner"] >= 0:
        warming = min(max(gpu["warming_until"] - (now - wall), 0.0), wall)
        gpu["warmup"] += warming
        gpu["useful"] += (wall - warming) * gpu["rate"]
        gpu["idle"] += (wall - warming) * (1.0 - gpu["rate"])
        gpu["allocated"] += wall
    elif gpu["owner"] == DOWN:
        gpu["down"] += wall
    elif gpu["n"] == 0:
        gpu["idle"] += wall
    else:
        gpu["allocated"] += wall
        gpu["switch"] += wall - shared
        run(gpu, shared)


@compiled
def schedule(s: Engine, g: int) -> None:
    """Find the next milestone of an accelerator whose books are up to now."""
    gpu = s.gpu[g]
    gpu["due"] = math.inf if gpu["n"] == 0 else gpu["last_service"] + next_milestone(gpu)
    reorder(s, g)


@compiled
def slice_of(s: Engine, group: int) -> float:
    """Return the slice of a task: `base * (1 + 0.3 * (efficiency - mean) / mean)`.

    The efficiency is the one predicted for its group from history, the mean that of the last 100 tasks.
    """
    c = s.clock[0]
    setting = s.settings[0]
    base = float(setting["base_slice"])
    fixed = setting["adaptive"] == 0 or setting["mode"] == SIMPLIFIED
    if fixed or c["recent_count"] == 0 or s.group[group]["count"] == 0.0:
        return base
    mean = c["recent_sum"] / min(c["recent_count"], RECENT)
    factor = 1.0 + SLICE_GAIN * (s.group[group]["efficiency"] - mean) / mean
    return float(base * max(factor, SMALLEST_SLICE))


@compiled
def group_of_code(s: Engine, code: int) -> int:
    """Return the group of a resident: a task's own; a model that is loading by itself has that of its requests."""
    return int(s.task[code]["group"]) if code >= 0 else -2 - code


@compiled
def reslice(s: Engine, g: int) -> None:
    """Give the residents the slices that are right by now; a turn that has begun keeps the slice it was granted."""
    gpu = s.gpu[g]
    for i in range(gpu["n"]):
        gpu["slice"][i] = slice_of(s, group_of_code(s, gpu["task"][i]))
