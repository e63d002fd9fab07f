"""The engine's state: structured arrays, one record a thing, and how they are made.

Task   waiting in one of three linked lists, resident on a shared accelerator, in a gang, on a CPU slot, or gone
Gpu    either *owned* by one gang, or *shared* by `n` residents in a ring of turns, or empty; warm models lie in its memory
Clock  everything that there is one of
"""

from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Records = NDArray[Any]

RESIDENTS: Final = 8
"""Most residents of an accelerator."""

INSTANCES: Final = 16
"""Most models in the memory of an accelerator: the smallest takes more than a sixteenth."""

RING: Final = 5
"""Readings kept for the values over the last minute: one now and four ticks of 15 s back."""

TICK_SECONDS: Final = 15.0
"""Time between two readings of temperature, power and the values over the last minute."""

PLAN_TICKS: Final = 2
"""Warm models are planned every second tick, 30 s (assumption: an autoscaler's usual pace)."""

PLAN_SLOTS: Final = 242
"""Plans remembered: enough for the longest prediction window, 7,200 s."""

NOISE: Final = 4096
"""Length of the noise table of sensors."""


class State(IntEnum):
    """Where a task is."""

    COMING = 0
    WAITING = 1
    RUNNING = 2
    COMPLETED = 3
    ABANDONED = 4


class Stage(IntEnum):
    """What a resident is doing with its time."""

    LOADING = 0
    FIRST = 1
    LAST = 2


class Happening(IntEnum):
    """Kinds of event on the wall clock."""

    END = 0
    MIDDLE = 1
    ABANDON = 2


class Measure(IntEnum):
    """Row of each histogram."""

    LATENCY = 0
    WAIT = 1
    HIGH_WAIT = 2
    DECISION = 3
    SERVICE = 4
    """The first of three, one a class."""


MEASURES: Final = Measure.SERVICE + 3
RECENT_MEASURES: Final = 3
"""Histograms that values over the last minute are made of: the first ones."""

_F, _I, _B = np.float64, np.int32, np.int8

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
        ("started", _F),
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
        ("node", _I),
        ("domain", _I),
        ("zone", _I),
        ("reserved", _I),
        ("owner", _I),
        ("n", _I),
        ("turn", _I),
        ("due_slot", _I),
        ("slot", _I),
        ("models", _I),
        ("lead", _F),
        ("quantum", _F),
        ("due", _F),
        ("last", _F),
        ("last_service", _F),
        ("memory", _F),
        ("idle_memory", _F),
        ("rate", _F),
        ("warming_until", _F),
        ("useful", _F),
        ("switch", _F),
        ("warmup", _F),
        ("idle", _F),
        ("allocated", _F),
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
        ("celsius", _F),
        ("watts", _F),
        ("ambient", _F),
        ("useful", _F),
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
        ("unseen", np.int64),
        ("gone", np.int64),
        ("events", np.int64),
        ("growing", np.int64),
        ("releases", np.int64),
        ("releases_known", np.int64),
        ("dirty", np.int64),
        ("gang_blocked", np.int64),
        ("gang_stop", np.int64),
        ("gang_failed", np.int64),
        ("shadow", _F),
        ("extra", np.int64),
        ("share_failed", _F, (6,)),
        ("head", np.int64, (3,)),
        ("tail", np.int64, (3,)),
        ("waiting", np.int64, (3,)),
        ("waiting_kind", np.int64, (3,)),
        ("running_kind", np.int64, (3,)),
        ("pending", _F),
        ("recent_sum", _F),
        ("recent_count", np.int64),
        ("recent", _F, (100,)),
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
        ("completed", _F),
        ("abandoned", _F),
    ],
    align=True,
)


class Engine(NamedTuple):
    """All arrays of one scheduler; shapes in brackets.

    `settings` holds what is in force and what comes next; `next` is taken over at a decision when its generation is
    higher. `places[model]` lists the accelerators that hold it, `plans[model]` the arrivals counted at each plan.
    """

    constants: Records  # [1] PhysicalConstants.
    settings: Records  # [2] SETTINGS: in force, next.
    clock: Records  # [1] CLOCK.
    task: Records  # [tasks] TASK.
    gpu: Records  # [gpus] GPU.
    node: Records  # [nodes] NODE.
    zone: Records  # [zones] ZONE.
    model: Records  # [models] MODEL.
    group: Records  # [groups] GROUP: tasks that resemble each other, for predictions from history.
    shape: Records  # [8] int64: gpus per node, domains per node, residents, link factor is a constant.
    links: Records  # [1] float64: link factor.
    places: Records  # [models, gpus] int32.
    plans: Records  # [models, PLAN_SLOTS] float64.
    queue: Records  # [gpus] int32: heap of accelerators by due time on the service clock.
    event_at: Records  # [4 * tasks + 16] float64: heap of events on the wall clock.
    event_what: Records  # The same, int32: Happening.
    event_whom: Records  # The same, int32: task.
    chosen: Records  # [gpus] int32: scratch, accelerators of a gang being placed.
    growing: Records  # [tasks] int32: gangs that ask for more.
    order: Records  # [SORTED] int32: scratch, tasks to sort.
    keys: Records  # [max(SORTED, gpus)] float64: scratch, sort keys.
    bounds: Records  # [buckets] float64.
    counts: Records  # [MEASURES, buckets + 1] int64.
    totals: Records  # [MEASURES] float64.
    ring: Records  # [RING] READING.
    ring_counts: Records  # [RING, RECENT_MEASURES, buckets + 1] int64.
    ring_nodes: Records  # [RING, nodes] float64: useful accelerator-seconds.
    forecast: Records  # [steps] float64: inference arrivals a second.
    noise: Records  # [NOISE] float64: -1..1.


SORTED: Final = 1024
"""Waiting tasks that shortest-first sorts at once (assumption)."""
