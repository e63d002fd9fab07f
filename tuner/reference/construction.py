"""Laying out an engine's arrays for a cluster, a workload and a draw of the constants."""

import math

import numpy as np
from numpy.typing import NDArray

from tuner.errors import ConfigError
from tuner.reference.cluster import ClusterSpec
from tuner.reference.demand import DemandForecast
from tuner.reference.engine import state
from tuner.reference.engine.state import Engine, Records
from tuner.reference.engine.tables import NOISE
from tuner.reference.physics import PhysicalConstants
from tuner.reference.population import Population, draw_population
from tuner.reference.settings import ClockSettings, QueueOrder
from tuner.reference.workload import TaskKind, Workload
from tuner.values.knobs import SchedulerMode

EVENTS = 4
"""Most events of a task: it is given up; its middle; its end, planned again when it grows."""

MODES = tuple(SchedulerMode)
ORDERS = tuple(QueueOrder)

_STREAM = 0xA11E
# Keeps the random stream of sensors and rooms apart from the others.


def build_engine(
    cluster: ClusterSpec, workload: Workload, *, settings: ClockSettings, constants: PhysicalConstants, seed: int
) -> Engine:
    """Return an engine at time 0.

    Raises:
        ConfigError: A task can never run, because it asks for more than the cluster has.
    """
    _check_fits(cluster, workload)
    people = draw_population(workload, cluster, constants=constants, seed=seed)
    rng = np.random.default_rng([seed, _STREAM])
    # In force is a generation before the first, so that the first decision takes the settings over, and reserves.
    records = np.concatenate([settings_record(settings, generation=number) for number in (-1, 0)])
    return Engine(
        constants=constants.as_array(),
        settings=records,
        clock=_clock(cluster),
        task=_tasks(workload, people, cluster, constants),
        gpu=_gpus(cluster),
        node=_nodes(cluster, constants, rng),
        zone=_zones(cluster),
        model=_models(people, constants),
        group=np.zeros(people.groups, dtype=state.GROUP),
        places=np.zeros((people.model_memory.size, cluster.gpus), dtype=np.int64),
        event=np.zeros(EVENTS * len(workload) + 16, dtype=state.EVENT),
        measure=np.zeros(state.MEASURES, dtype=state.MEASURE),
        ring=np.zeros(state.RING + 1, dtype=state.READING),
        scratch=np.zeros(max(len(workload), cluster.gpus), dtype=state.SCRATCH),
        forecast=np.zeros(0),
    )


def settings_record(settings: ClockSettings, *, generation: int) -> Records:
    """Return settings as the engine reads them, shape (1,)."""
    record = np.zeros(1, dtype=state.SETTINGS)
    record["base_slice"] = settings.base_slice_seconds
    record["window"] = settings.prediction_window_seconds
    record["period"] = settings.decision_period_seconds
    record["reservation"] = settings.reservation_ratio
    record["mode"] = MODES.index(settings.mode)
    record["order"] = ORDERS.index(settings.order)
    record["adaptive"] = settings.adaptive_slice
    record["prewarm"] = settings.prewarm
    record["tiers"] = settings.tiers
    record["generation"] = generation
    return record


def settings_from(record: Records) -> ClockSettings:
    """Return the settings that a record of the engine stands for."""
    return ClockSettings(
        base_slice_seconds=float(record["base_slice"]),
        prediction_window_seconds=float(record["window"]),
        decision_period_seconds=float(record["period"]),
        reservation_ratio=float(record["reservation"]),
        mode=MODES[record["mode"]],
        order=ORDERS[record["order"]],
        adaptive_slice=bool(record["adaptive"]),
        prewarm=bool(record["prewarm"]),
        tiers=bool(record["tiers"]),
    )


def with_forecast(engine: Engine, forecast: DemandForecast) -> Engine:
    """Return the engine with a forecast to plan with; all other state is shared with the old one."""
    clock = engine.clock
    clock["forecast_at"] = forecast.at_seconds
    clock["forecast_step"] = forecast.step_seconds
    clock["window_start"] = -math.inf if math.isnan(forecast.window_start_seconds) else forecast.window_start_seconds
    return engine._replace(forecast=forecast.inference_arrivals_per_second.copy())


def without_forecast(engine: Engine) -> Engine:
    """Return the engine as if no forecast had been handed over; all other state is shared with the old one."""
    engine.clock["window_start"] = -math.inf
    return engine._replace(forecast=np.zeros(0))


def with_room_for_losses(engine: Engine) -> Engine:
    """Return the engine with room for all events of all tasks that are not gone, once more; other state is shared.

    What is planned already stays in the heap until its time, though it be stale. Most of the time there is room enough.
    """
    left = engine.task.size - int(engine.clock["gone"][0])
    missing = int(engine.clock["events"][0]) + EVENTS * left - engine.event.size
    if missing <= 0:
        return engine
    return engine._replace(event=np.concatenate([engine.event, np.zeros(missing, dtype=state.EVENT)]))


def _check_fits(cluster: ClusterSpec, work: Workload) -> None:
    too_large = np.ceil(work.gpus) > cluster.gpus
    if too_large.any():
        first = int(np.argmax(too_large))
        raise ConfigError(
            f"{int(too_large.sum())} tasks can never run on cluster {cluster.name}, first task {first}: it asks for "
            f"{work.gpus[first]:g} accelerators of {cluster.gpus}; take a larger cluster or leave them out"
        )
    if cluster.cpu_slots_per_node == 0 and (work.kind == TaskKind.PREPROCESSING).any():
        raise ConfigError(f"cluster {cluster.name} has no CPU slots, but there are pre-processing tasks; give it some")


def _clock(cluster: ClusterSpec) -> Records:
    clock = np.zeros(1, dtype=state.CLOCK)
    clock["gpus_per_node"] = cluster.gpus_per_node
    clock["domains"] = cluster.numa_domains_per_node
    clock["residents"] = cluster.residents_per_gpu
    clock["link_factor"] = cluster.link_factor
    clock["next_tick"] = state.TICK_SECONDS
    clock["forecast_step"] = 1.0
    clock["window_start"] = -math.inf
    clock["releases_known"] = -1
    clock["head"] = -1
    clock["tail"] = -1
    clock["fresh"] = -1
    clock["dirty"] = 1
    return clock


def _tasks(work: Workload, people: Population, cluster: ClusterSpec, constants: PhysicalConstants) -> Records:
    task = np.zeros(len(work), dtype=state.TASK)
    task["submit"] = work.submit_seconds
    task["service"] = work.service_seconds
    task["gpus"] = work.gpus
    task["patience"] = work.patience_seconds
    task["kind"] = work.kind
    task["priority"] = work.priority
    task["model"] = work.model
    task["zone"] = work.zone % cluster.zones
    task["memory"] = people.memory
    task["efficiency"] = people.efficiency
    task["efficiency_after"] = people.efficiency_after
    refills = np.array([0.0, constants.training_refill_seconds, constants.inference_refill_seconds])
    task["refill"] = refills[work.kind]
    task["group"] = people.group
    task["exclusive"] = people.exclusive
    task["changes"] = people.changes
    task["grows"] = people.grows
    task["unbound"] = people.unbound
    task["place"] = -1
    return task


def _gpus(cluster: ClusterSpec) -> Records:
    gpu = np.zeros(cluster.gpus, dtype=state.GPU)
    number = np.arange(cluster.gpus)
    width = cluster.gpus_per_node // cluster.numa_domains_per_node
    gpu["node"] = number // cluster.gpus_per_node
    gpu["domain"] = number % cluster.gpus_per_node // width
    gpu["zone"] = _zone_of_nodes(cluster)[gpu["node"]]
    gpu["owner"] = -1
    gpu["slot"] = number
    gpu["queued"] = number
    gpu["due"] = np.inf
    gpu["memory"] = 1.0
    return gpu


def _zone_of_nodes(cluster: ClusterSpec) -> NDArray[np.int64]:
    return np.repeat(np.arange(cluster.zones), cluster.zone_nodes)


def _nodes(cluster: ClusterSpec, constants: PhysicalConstants, rng: np.random.Generator) -> Records:
    node = np.zeros(cluster.nodes, dtype=state.NODE)
    node["first"] = np.arange(cluster.nodes) * cluster.gpus_per_node
    node["zone"] = _zone_of_nodes(cluster)
    node["cpu_free"] = cluster.cpu_slots_per_node
    node["ambient"] = constants.idle_celsius + constants.node_gradient_celsius * rng.random(cluster.nodes)
    node["celsius"] = node["ambient"]
    node["phase"] = rng.integers(0, NOISE.size, cluster.nodes)
    node["watts"] = constants.node_base_watts + cluster.gpus_per_node * constants.gpu_idle_watts
    return node


def _zones(cluster: ClusterSpec) -> Records:
    zone = np.zeros(cluster.zones, dtype=state.ZONE)
    ends = np.cumsum(cluster.zone_nodes)
    zone["end_node"] = ends
    zone["first_node"] = ends - np.array(cluster.zone_nodes)
    zone["first_gpu"] = zone["first_node"] * cluster.gpus_per_node
    zone["end_gpu"] = zone["end_node"] * cluster.gpus_per_node
    zone["speed"] = cluster.zone_speeds
    return zone


def _models(people: Population, constants: PhysicalConstants) -> Records:
    model = np.zeros(people.model_memory.size, dtype=state.MODEL)
    model["memory"] = people.model_memory
    model["loading"] = people.model_loading
    model["full"] = -1
    model["refill"] = constants.inference_refill_seconds
    return model
