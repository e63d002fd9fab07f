"""Crowds of any size for the twin, as a whole and in cells: what it costs in accuracy to see only the whole."""

from typing import Final

import numpy as np

from tuner.bench.cases import RECOMMENDED
from tuner.bench.twin_trials import random_settings
from tuner.twin.calibration import knob_row
from tuner.twin.model import evaluate
from tuner.twin.parameters import PARAMETER_COUNT, TwinParameters
from tuner.twin.workload import HORIZON_SECONDS, STEP_SECONDS, STEPS, Scenarios
from tuner.values.metrics import FLOORS, METRIC_INDEX
from tuner.values.stages import FloatArray

SCENARIOS: Final = 6
"""Three forecast quantiles with two draws: what a candidate counts for when it is scored on."""

CELLS: Final = 100
SCATTER: Final = 0.1
"""Standard deviation of the load of cells, on a log scale (assumption: what balancing leaves between racks)."""

_SHARES: Final = (
    "accelerator_utilization_ratio",
    "resource_idle_ratio",
    "scheduling_latency_seconds",
    "switch_overhead_ratio",
    "queue_wait_seconds",
)


def crowd(*, nodes: int, tasks: int, load: float = 1.0) -> Scenarios:
    """Return scenarios of a busy cluster of nodes with 8 accelerators that meets so many tasks in the horizon.

    Args:
        nodes: Nodes.
        tasks: Tasks that arrive within the horizon, in the mean over the scenarios.
        load: What arrives and runs, over what it would be.
    """
    accelerators = 8.0 * nodes
    rate = tasks / HORIZON_SECONDS
    arrivals = rate * np.array([0.05, 0.005, 0.005, 0.6, 0.34])
    service = np.array([60.0, 120.0, 0.6 * accelerators / (0.005 * rate) / 4.0, 10.0, 10.0])
    arrivals = load * arrivals
    levels = np.linspace(0.8, 1.2, SCENARIOS)
    return Scenarios(
        arrivals_per_second=levels[:, None, None] * np.tile(arrivals, (SCENARIOS, STEPS, 1)),
        recent_per_second=np.tile(arrivals, (SCENARIOS, 1)),
        running_tasks=np.tile(arrivals * service, (SCENARIOS, 1)),
        waiting_tasks=np.tile(0.02 * arrivals * service, (SCENARIOS, 1)),
        service_seconds=np.tile(service, (SCENARIOS, 1)),
        demand_accelerators=np.tile(np.array([0.0, 4.0, 4.0, 0.25, 0.25]), (SCENARIOS, 1)),
        accelerators_count=np.full(SCENARIOS, accelerators),
        cold_start_seconds=np.full(SCENARIOS, 8.0),
        spread_ratio=np.full(SCENARIOS, 0.5),
        parameter_draws=np.zeros((SCENARIOS, PARAMETER_COUNT)),
        weights=np.full(SCENARIOS, 1.0 / SCENARIOS),
        step_seconds=np.array(STEP_SECONDS),
    )


def aggregation_error(*, nodes: int, tasks: int, cells: int = CELLS, scatter: float = SCATTER) -> float:
    """Return the median relative error of a twin that sees a cluster as one, against one that sees each of its cells.

    Each cell has its share of the nodes and of the tasks, its own load about the mean, and room for its own work only:
    the hardest case, in which nothing is balanced between them. What comes of the cells is their mean: of shares
    because they are of one size, of times as an approximation.

    Args:
        nodes: Nodes in all.
        tasks: Tasks in all, within the horizon.
        cells: How many parts.
        scatter: Standard deviation of the cells' loads, on a log scale.
    """
    knobs = np.array([knob_row(setting) for setting in random_settings(RECOMMENDED, 16, seed=1)])
    loads = np.exp(scatter * np.random.default_rng(1).standard_normal(cells))
    loads /= loads.mean()
    parts = [crowd(nodes=nodes // cells, tasks=tasks // cells, load=load) for load in loads]
    full = np.mean([_judged(knobs, part) for part in parts], axis=0)
    whole = _judged(knobs, crowd(nodes=nodes, tasks=tasks))
    floors = FLOORS[[METRIC_INDEX[name] for name in _SHARES]]
    return float(np.median(np.abs(whole - full) / np.maximum(full, floors)))


def _judged(knobs: FloatArray, scenarios: Scenarios) -> FloatArray:
    outcome = evaluate(knobs, scenarios, TwinParameters())
    judged: FloatArray = outcome[..., [METRIC_INDEX[name] for name in _SHARES]]
    return judged
