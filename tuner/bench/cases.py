"""What `bench tuning` compares on what: workloads, bounds, and the arms."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from tuner.bench.sidecar import Clocktuner
from tuner.bench.tuners import Random, TunerFactory, cmaes_live, tpe_live
from tuner.reference import overlay, workloads
from tuner.reference.cluster import PRESETS
from tuner.reference.settings import ClockSettings, QueueOrder
from tuner.reference.traces import offered_load, read_trace
from tuner.reference.workloads import NamedWorkload
from tuner.values.knobs import DESIGN_RANGES, KnobSpec, KnobValues, Role, middle

DAY_SECONDS: Final = 86_400.0

OWN_LOAD: Final = 0.8
"""Offered load that a cluster for one's own trace is sized for: the middle of that of the shipped workloads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundSet:
    """Bounds that all tuners keep, and the untouched setting that all begin with.

    Attributes:
        name: Name in figures.
        specs: The knobs.
        start: The untouched setting.
        start_name: What it is, in words.
    """

    name: str
    specs: tuple[KnobSpec, ...]
    start: KnobValues
    start_name: str

    @property
    def settings(self) -> ClockSettings:
        """The scheduler under the untouched setting."""
        return ClockSettings().with_knobs(self.start)


RECOMMENDED: Final = BoundSet(
    name="recommended",
    specs=tuple(DESIGN_RANGES.values()),
    start=middle(DESIGN_RANGES.values()),
    start_name="the middle of the recommended ranges",
)

WIDE: Final = BoundSet(
    name="wide",
    # Steps are fine enough that the best point lies near one; slews are a quarter of the range, as for any policy.
    specs=(
        KnobSpec(role=Role.BASE_SLICE, low=0.02, high=0.5, step=0.01, slew=0.12),
        KnobSpec(role=Role.PREDICTION_WINDOW, low=120.0, high=3600.0, step=60.0, slew=840.0),
        KnobSpec(role=Role.DECISION_PERIOD, low=0.1, high=5.0, step=0.1, slew=1.2),
        KnobSpec(role=Role.RESERVATION, low=0.0, high=0.5, step=0.01, slew=0.12),
    ),
    start=KnobValues.of(
        {
            Role.BASE_SLICE: 0.1,  # Linux's default for SCHED_RR.
            Role.PREDICTION_WINDOW: 900.0,  # The source document predicts 15 minutes ahead.
            Role.DECISION_PERIOD: 1.0,  # Volcano's default schedule period.
            Role.RESERVATION: 0.1,  # A round number (assumption).
        }
    ),
    start_name="a plausible operator's default: slice 100 ms, window 15 min, period 1 s, reservation 10 %",
)

BOUND_SETS: Final = (RECOMMENDED, WIDE)

UNTOUCHED: Final = "untouched"
BEST_FIXED: Final = "best_fixed"
BEST_FIXED_WINDOW: Final = "best_fixed_window"
CLOCKTUNER: Final = "clocktuner"

FIXED_ARMS: Final[Mapping[str, Callable[[BoundSet], ClockSettings]]] = {
    UNTOUCHED: lambda bounds: bounds.settings,
    "unoptimised": lambda _: ClockSettings.unoptimised(),
    # Schedulers of the kind that most clusters run: no slices that adapt, no prediction, no tiers, nothing reserved.
    "fcfs_easy": lambda _: replace(ClockSettings.unoptimised(), order=QueueOrder.EASY),
    "sjf": lambda _: replace(ClockSettings.unoptimised(), order=QueueOrder.SJF),
}
"""Schedulers that nobody tunes, by name."""

LIVE_ARMS: Final[Mapping[str, TunerFactory]] = {"random": Random, "tpe_live": tpe_live, "cmaes_live": cmaes_live}
"""Tuners that try settings live, without a twin."""

TUNED_ARMS: Final[Mapping[str, TunerFactory]] = {**LIVE_ARMS, CLOCKTUNER: Clocktuner}
"""All tuners, by name."""

ARMS: Final = (*FIXED_ARMS, *LIVE_ARMS, BEST_FIXED, BEST_FIXED_WINDOW, CLOCKTUNER)
"""Every arm, in the order of the tables."""


def shipped(name: str, *, hours: float = 24.0) -> Callable[[int], NamedWorkload]:
    """Return what makes a shipped workload for a seed; jobs are the same for every seed, requests and physics not."""

    @cache
    def make(seed: int) -> NamedWorkload:
        return workloads.build(name, seed=seed, hours=hours)

    return make


def own(path: Path, trace_format: str, *, hours: float = 24.0) -> Callable[[int], NamedWorkload]:
    """Return what makes a workload of somebody's own trace for a seed.

    The first `hours` of it are replayed as they are, without requests laid over, on as many nodes of the
    demonstration's kind as are busy for about 0.8 of the time, and at least as many as the largest gang needs.

    Raises:
        TraceError: The file cannot be read.
    """
    trace = read_trace(path, trace_format=trace_format)
    if trace.span_seconds > hours * 3600:
        trace = overlay.slice_time(trace, 0.0, hours * 3600)
    shape = PRESETS["demo"]
    nodes = round(offered_load(trace, shape) * shape.nodes / OWN_LOAD)
    gang = float(np.max(trace.workload.gpus))
    # What is not reserved must hold the largest gang.
    needed = int(np.ceil(gang / shape.gpus_per_node / (1 - WIDE.specs[-1].high)))
    cluster = shape.sized(max(nodes, needed, 1))

    @cache
    def make(seed: int) -> NamedWorkload:
        assumed = overlay.assume(trace, overlay.Assumptions(zones=cluster.zones), seed=seed)
        return NamedWorkload(name=own_name(path), trace=assumed, cluster=cluster)

    return make


def own_name(path: Path) -> str:
    """Return the name of a trace as it stands in figures: small letters, digits and underscores."""
    return re.sub(r"[^a-z0-9]+", "_", path.name.split(".")[0].lower()).strip("_") or "own"
