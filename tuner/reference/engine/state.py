"""The engine's state: structured arrays, one record a thing, and how they are made.

Task   waiting in one of six linked lists, resident on a shared accelerator, in a gang, on a CPU slot, or gone
Gpu    owned by one gang, or shared by `n` residents in a ring of turns, or empty, or down with its node; warm models
       lie in its memory
Clock  everything that there is one of
"""

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tuner.reference.engine.tables import BOUNDS

Records: TypeAlias = NDArray[Any]
"""A structured array."""

Record: TypeAlias = Any
"""One element of a structured array, through which it is read and written."""

RESIDENTS: Final = 8
"""Most residents of an accelerator."""

INSTANCES: Final = 16
"""Most models in the memory of an accelerator: the smallest takes more than a sixteenth."""

DEPTH: Final = 256
"""Waiting tasks, gangs aside, that one decision looks at again; new ones are always looked at (assumption: like the
queue of unschedulable pods of kube-scheduler, or the bound on Slurm's backfill)."""

GANG_DEPTH: Final = 64
"""Waiting gangs that one decision looks at again. FCFS knows no bounds and looks at all, always."""

LANES: Final = 6
"""Queues: two a priority, one for tasks that share accelerators or run on CPUs, one for gangs."""

RING: Final = 5
"""Readings kept for the values over the last minute: one now and four ticks of 15 s back."""

RECENT: Final = 100
"""Completed tasks over which the mean efficiency is taken; the source document's."""

TICK_SECONDS: Final = 15.0
"""Time between two readings of temperature, power and the values over the last minute."""

PLAN_TICKS: Final = 2
"""Warm models are planned every second tick, 30 s (assumption: an autoscaler's usual pace)."""

PLAN_SLOTS: Final = 242
"""Plans remembered: enough for the longest prediction window, 7,200 s."""


# Plain numbers, and all integers of 64 bits: numba compiles a function once for every type of its arguments.
COMING, WAITING, RUNNING, COMPLETED, ABANDONED = range(5)
"""States of a task."""

LOADING, FIRST, LAST = range(3)
"""Stages of a resident: cold start, then its work, in two halves where its efficiency changes."""

END, MIDDLE, ABANDON = range(3)
"""Kinds of event on the wall clock."""

FREE, DOWN = -1, -2
"""Owners of an accelerator that no gang owns: it is open to all, or its node has failed."""

LATENCY, WAIT, HIGH_WAIT, DECISION, SERVICE = range(5)
"""Rows of histograms; service takes three, one a class."""

PRIORITY, FCFS, EASY, SJF = range(4)
"""Orders of the queue, as numbered by `QueueOrder`."""

FULL, SIMPLIFIED, PRIORITY_ONLY = range(3)
"""Modes, as numbered by `SchedulerMode`."""

MEASURES: Final = SERVICE + 3
RECENT_MEASURES: Final = 3
"""Histograms that values over the last minute are made of: the first ones."""

BUCKETS: Final = BOUNDS.size + 1
"""Buckets of a histogram, with the one over all bounds."""

_F, _I, _B = np.float64, np.int64, np.int8

TASK: Final = np.dtype(
    [
        ("submit", _F),
        ("service", _F),
        ("gpus", _F),
        ("patience", _F),
        ("memory", _F),
        ("efficiency", _F),
        ("efficiency_after", _F),
        ("refill", _F),
        ("since", _F),
        ("started", _F),
        ("middle", _F),
        ("ends", _F),
        ("penalty", _F),
        ("kind", _I),
        ("priority", _I),
        ("model", _I),
        ("zone", _I),
        ("group", _I),
        ("next", _I),
        ("previous", _I),
        ("place", _I),
        ("held", _I),
        ("growing", _I),
        ("state", _B),
        ("exclusive", _B),
        ("changes", _B),
        ("grows", _B),
        ("unbound", _B),
        ("seen", _B),
        ("remote", _B),
    ],
    align=True,
)
GPU: Final = np.dtype(
    [
        # What placement looks at comes first, so that it lies in one line of the cache.
        ("owner", _I),
        ("n", _I),
        ("reserved", _I),
        ("models", _I),
        ("memory", _F),
        ("idle_memory", _F),
        ("zone", _I),
        ("node", _I),
        ("domain", _I),
        ("turn", _I),
        ("due_slot", _I),
        ("slot", _I),
        ("queued", _I),
        ("chosen", _I),
        ("lead", _F),
        ("quantum", _F),
        ("due", _F),
        ("last", _F),
        ("last_service", _F),
        ("rate", _F),
        ("warming_until", _F),
        ("useful", _F),
        ("switch", _F),
        ("warmup", _F),
        ("idle", _F),
        ("allocated", _F),
        ("down", _F),
        ("active_mark", _F),
        ("task", _I, (RESIDENTS,)),
        ("stage", _I, (RESIDENTS,)),
        ("goal", _F, (RESIDENTS,)),
        ("efficiency", _F, (RESIDENTS,)),
        ("slice", _F, (RESIDENTS,)),
        ("cost", _F, (RESIDENTS,)),
        ("model", _I, (INSTANCES,)),
        ("users", _I, (INSTANCES,)),
        ("ready", _I, (INSTANCES,)),
        ("idle_since", _F, (INSTANCES,)),
    ],
    align=True,
)
NODE: Final = np.dtype(
    [
        ("first", _I),
        ("zone", _I),
        ("cpu_free", _I),
        ("free", _I),
        ("best_domain", _I),
        ("best_free", _I),
        ("taken", _I),
        ("phase", _I),
        ("celsius", _F),
        ("watts", _F),
        ("ambient", _F),
        ("useful", _F),
        ("kept", _F, (RING + 1,)),
    ],
    align=True,
)
ZONE: Final = np.dtype(
    [("first_node", _I), ("end_node", _I), ("first_gpu", _I), ("end_gpu", _I), ("speed", _F)], align=True
)
MODEL: Final = np.dtype(
    [
        ("memory", _F),
        ("loading", _F),
        ("refill", _F),
        ("arrivals", _F),
        ("sojourn", _F),
        ("ended", _F),
        ("places", _I),
        ("full", np.int64, (2,)),
        ("plans", _F, (PLAN_SLOTS,)),
    ],
    align=True,
)
GROUP: Final = np.dtype(
    [("count", _F), ("efficiency", _F), ("service", _F), ("square", _F), ("running", _F)], align=True
)
SETTINGS: Final = np.dtype(
    [
        ("base_slice", _F),
        ("window", _F),
        ("period", _F),
        ("reservation", _F),
        ("mode", np.int64),
        ("order", np.int64),
        ("adaptive", np.int64),
        ("prewarm", np.int64),
        ("tiers", np.int64),
        ("generation", np.int64),
    ],
    align=True,
)
CLOCK: Final = np.dtype(
    [
        ("gpus_per_node", np.int64),
        ("domains", np.int64),
        ("residents", np.int64),
        ("link_factor", _F),
        ("now", _F),
        ("next_tick", _F),
        ("ticks", np.int64),
        ("decision_at", _F),
        ("decision_started", _F),
        ("computing", np.int64),
        ("known", np.int64),
        ("frozen_until", _F),
        ("paused", _F),
        ("arrived", np.int64),
        ("considered", np.int64),
        ("gone", np.int64),
        ("events", np.int64),
        ("growing", np.int64),
        ("releases", np.int64),
        ("releases_known", np.int64),
        ("dirty", np.int64),
        ("gang_blocked", np.int64),
        ("gang_stop", np.int64),
        ("free", np.int64),
        ("best_free", np.int64),
        ("shadow", _F),
        ("extra", np.int64),
        ("room", _F, (6,)),
        ("head", np.int64, (LANES,)),
        ("tail", np.int64, (LANES,)),
        ("waiting", np.int64, (LANES,)),
        ("unseen", np.int64, (LANES,)),
        ("fresh", np.int64, (LANES,)),
        ("cursor", np.int64, (LANES,)),
        ("looked", np.int64, (2,)),
        ("limit", np.int64, (2,)),
        ("waiting_kind", np.int64, (3,)),
        ("running_kind", np.int64, (3,)),
        ("pending", _F),
        ("recent_sum", _F),
        ("recent_count", np.int64),
        ("recent", _F, (RECENT,)),
        ("running_gpu_tasks", np.int64),
        ("running_remote", np.int64),
        ("cross_rate", _F),
        ("cross_since", _F),
        ("cross_bytes", _F),
        ("remote_starts", np.int64),
        ("decisions", np.int64),
        ("cold", np.int64),
        ("warm", np.int64),
        ("prewarms", np.int64),
        ("evictions", np.int64),
        ("cold_seconds", _F),
        ("submitted", np.int64, (9,)),
        ("completed", np.int64, (3,)),
        ("abandoned", np.int64, (3,)),
        ("put_back", np.int64, (3,)),
        ("asked", _F, (3,)),
        ("forecast_at", _F),
        ("forecast_step", _F),
        ("window_start", _F),
    ],
    align=True,
)
READING: Final = np.dtype(
    [
        ("at", _F),
        ("useful", _F),
        ("switch", _F),
        ("warmup", _F),
        ("idle", _F),
        ("allocated", _F),
        ("down", _F),
        ("completed", _F),
        ("abandoned", _F),
        ("counts", np.int64, (RECENT_MEASURES * BUCKETS,)),
    ],
    align=True,
)
SCRATCH: Final = np.dtype([("key", _F), ("number", np.int64)], align=True)
EVENT: Final = np.dtype([("at", _F), ("what", _I), ("whom", _I)], align=True)
MEASURE: Final = np.dtype([("total", _F), ("counts", np.int64, (BUCKETS,))], align=True)


class Engine(NamedTuple):
    """All arrays of one scheduler; shapes in brackets. They are few, because every compiled call passes all of them.

    Three arrays lie in fields of records, to be read by index: `gpu[i].queued` is a heap of accelerators by due time on
    the service clock, `gpu[:count].chosen` the accelerators of a gang being placed, and `task[:growing].growing` the
    gangs that ask for more. `places[model, :model.places]` lists the accelerators that hold a model.
    """

    constants: Records  # [1] PhysicalConstants.
    settings: Records  # [2] SETTINGS: in force, and next, which a decision takes over when its generation is higher.
    clock: Records  # [1] CLOCK.
    task: Records  # [tasks] TASK.
    gpu: Records  # [gpus] GPU.
    node: Records  # [nodes] NODE.
    zone: Records  # [zones] ZONE.
    model: Records  # [models] MODEL.
    group: Records  # [groups] GROUP: tasks that resemble each other, for predictions from history.
    places: Records  # [models, gpus] int64.
    event: Records  # [4 * tasks + 16] EVENT: heap of events on the wall clock.
    measure: Records  # [MEASURES] MEASURE: histograms.
    ring: Records  # [RING + 1] READING: the last ones at ticks, and one for a look in between.
    scratch: Records  # [max(tasks, gpus)] SCRATCH: what is being sorted.
    forecast: Records  # [steps] float64: inference arrivals a second.
