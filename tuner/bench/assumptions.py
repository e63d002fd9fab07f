"""The assumptions of the simulation that drive the headline figures, and how each is moved.

An assumption is moved alone, with all else held still: the same tasks, the same seed, the same draw of the other
constants. Levels go well beyond what is taken for likely, so that a claim which no level reaches is told as such.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from tuner.reference.cluster import ClusterSpec
from tuner.reference.physics import PhysicalConstants
from tuner.reference.workload import Workload
from tuner.reference.workloads import NamedWorkload


@dataclass(frozen=True, slots=True)
class World:
    """What a replay meets.

    Attributes:
        workload: Tasks and machines.
        constants: The physics.
    """

    workload: NamedWorkload
    constants: PhysicalConstants


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """One assumption.

    Attributes:
        name: Name in figures.
        words: What is moved, with its unit.
        levels: Where to, ascending.
        usual: The level that the workload has by itself; NaN where it is drawn for each seed.
        move: Returns the world at a level.
        proportional: Whether levels are read as factors, and drawn on a log scale.
    """

    name: str
    words: str
    levels: tuple[float, ...]
    usual: float
    move: Callable[[World, float], World]
    proportional: bool = True


def _loaded(world: World, factor: float) -> World:
    nodes = max(1, round(world.workload.cluster.nodes / factor))
    return _on(world, world.workload.cluster.sized(nodes))


def _zoned(world: World, zones: float) -> World:
    cluster, count = world.workload.cluster, int(zones)
    edges = [cluster.nodes * place // count for place in range(count + 1)]
    sizes = tuple(high - low for low, high in pairwise(edges))
    return _on(world, replace(cluster, zone_nodes=sizes, zone_speeds=()))


def _on(world: World, cluster: ClusterSpec) -> World:
    return replace(world, workload=replace(world.workload, cluster=cluster))


def _patient(world: World, factor: float) -> World:
    workload = world.workload
    columns = dict(workload.trace.workload.columns())
    columns["patience_seconds"] = np.asarray(columns["patience_seconds"]) * factor
    trace = replace(workload.trace, workload=Workload(**columns))
    return replace(world, workload=replace(workload, trace=trace))


def _scaled(*names: str) -> Callable[[World, float], World]:
    """Return what multiplies some constants."""

    def move(world: World, factor: float) -> World:
        moved = {name: getattr(world.constants, name) * factor for name in names}
        return replace(world, constants=replace(world.constants, **moved))

    return move


def _remote_memory(world: World, ratio: float) -> World:
    return replace(world, constants=replace(world.constants, numa_latency_ratio=ratio))


LOAD: Final = Assumption(
    name="load",
    words="load offered, as a factor on the workload's own",
    levels=(0.6, 0.8, 1.0, 1.25, 1.6),
    usual=1.0,
    move=_loaded,
)
DECISION_COST: Final = Assumption(
    name="decision_cost",
    words="time that the scheduler takes to look at a task and a node, as a factor",
    levels=(0.1, 0.3, 1.0, 3.0, 10.0),
    usual=1.0,
    move=_scaled("decision_base_seconds", "decision_node_seconds", "decision_candidate_seconds"),
)
SWITCH_COST: Final = Assumption(
    name="switch_cost",
    words="time lost by a switch of tasks on an accelerator, as a factor",
    levels=(0.3, 1.0, 3.0, 10.0, 30.0),
    usual=1.0,
    move=_scaled("context_switch_seconds", "training_refill_seconds", "inference_refill_seconds"),
)
COLD_START: Final = Assumption(
    name="cold_start",
    words="time to load a model onto an accelerator, as a factor",
    levels=(0.3, 1.0, 3.0, 10.0),
    usual=1.0,
    move=_scaled("init_seconds", "load_seconds"),
)
PATIENCE: Final = Assumption(
    name="patience",
    words="how long a task waits before it is given up, as a factor",
    levels=(0.25, 0.5, 1.0, 2.0, 4.0),
    usual=1.0,
    move=_patient,
)
ZONES: Final = Assumption(
    name="zones",
    words="zones that the same nodes are spread over",
    levels=(2.0, 4.0, 8.0, 16.0),
    usual=np.nan,
    move=_zoned,
)
REMOTE_MEMORY: Final = Assumption(
    name="remote_memory",
    words="latency of another socket's memory over that of one's own",
    levels=(1.2, 1.5, 1.8, 2.1, 3.0),
    usual=np.nan,
    move=_remote_memory,
    proportional=False,
)
