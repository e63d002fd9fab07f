"""Loads, settings and observations from which the tests of the twin start."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from tuner.twin.load import Load
from tuner.twin.parameters import PARAMETER_COUNT
from tuner.twin.workload import STEPS, Scenarios, scenarios_of
from tuner.values.context import TASK_CLASSES
from tuner.values.knobs import DESIGN_RANGES, KnobValues, middle
from tuner.values.metrics import METRIC_COUNT, METRIC_NAMES, metric_vector
from tuner.values.stages import FloatArray, Forecast, Observation, SeriesFrame

MIDDLE = middle(DESIGN_RANGES.values())

# 64 accelerators: 12 of 14 gangs of 4 run, and four requests a second share the rest.
LOAD: dict[str, Any] = {
    "arrivals_per_second": np.array([0.2, 0.004, 4.0]),
    "service_seconds": np.array([30.0, 2400.0, 2.0]),
    "demand_accelerators": np.array([0.0, 4.0, 0.25]),
    "running_tasks": np.array([6.0, 9.6, 10.0]),
    "waiting_tasks": np.array([0.0, 1.0, 0.0]),
    "brief_share_ratio": 0.0,
    "training_stay_seconds": 2400.0,
    "spread_ratio": 0.8,
    "accelerators_count": 64.0,
    "high_share_ratio": 0.3,
    "cold_start_seconds": 8.0,
    "spread_arrivals": 0.0,
    "spread_service": np.zeros(3),
}

METRICS: Mapping[str, float] = {
    "scheduling_latency_seconds": 0.9,
    "resource_idle_ratio": 0.25,
    "accelerator_utilization_ratio": 0.6,
    "queue_length": 4.0,
    "queue_wait_seconds": 30.0,
    "tasks_completed_per_second": 4.2,
    "task_abandonment_ratio": 0.01,
    "running_task_remaining_seconds": 900.0,
    "node_temperature_celsius": 61.0,
    "node_power_watts": 2400.0,
    "pending_demand_ratio": 0.06,
    "switch_overhead_ratio": 0.03,
    "high_priority_wait_seconds": 4.0,
}


@pytest.fixture
def make_scenarios() -> Callable[..., Scenarios]:
    """Return a maker of one scenario from `LOAD`, with some of its values changed."""

    def make(**changes: Any) -> Scenarios:
        load = Load(**{**LOAD, **changes})
        return scenarios_of(
            load,
            arrivals=np.tile(load.arrivals_per_second, (1, STEPS, 1)),
            service=load.service_seconds[None],
            parameter_draws=np.zeros((1, PARAMETER_COUNT)),
            weights=np.ones(1),
        )

    return make


@pytest.fixture
def make_observation() -> Callable[..., Observation]:
    """Return a maker of observations with a steady history of `METRICS` and of the context of `LOAD`."""

    def make(
        *, steps: int = 120, at_seconds: float = 1e9, knobs: KnobValues | None = MIDDLE, **changes: Any
    ) -> Observation:
        context = {
            f"{name}:{kind}": float(LOAD[name][index])
            for name in (
                "arrivals_per_second",
                "service_seconds",
                "demand_accelerators",
                "running_tasks",
                "waiting_tasks",
            )
            for index, kind in enumerate(TASK_CLASSES)
        }
        context |= {"accelerators_count": 64.0, "high_priority_share_ratio": 0.3, "cold_start_seconds": 8.0}
        metrics = dict(METRICS)
        context = {name: value for name, value in {**context, **changes}.items() if name not in METRIC_NAMES}
        metrics |= {name: value for name, value in changes.items() if name in METRIC_NAMES}
        values = {name: value for name, value in {**metrics, **context}.items() if value is not None}
        history = SeriesFrame(tuple(values), at_seconds, np.tile(np.array(list(values.values()))[:, None], (1, steps)))
        return Observation(
            cycle_id=1,
            at_seconds=at_seconds,
            metrics=metric_vector({name: value for name, value in metrics.items() if value is not None}),
            ages_seconds=np.zeros(METRIC_COUNT),
            coverage_ratio=np.ones(METRIC_COUNT),
            context={name: value for name, value in context.items() if value is not None},
            history=history,
            knobs=knobs,
        )

    return make


@pytest.fixture
def forecast() -> Forecast:
    """Return a forecast of inference arrivals that rises from 4 to 6 a second, between 3/4 and 5/4 of that."""
    rise = np.linspace(4.0, 6.0, 20)
    return Forecast(
        cycle_id=1,
        at_seconds=1e9,
        names=("arrivals_per_second:inference",),
        values=np.stack([0.75 * rise, rise, 1.25 * rise], axis=-1)[None],
        models=("last_value",),
        error_ratio=np.ones(1),
    )


@pytest.fixture
def grid() -> FloatArray:
    """Return twelve settings over the design ranges, shape (12, 4)."""
    generator = np.random.default_rng(7)
    low = np.array([spec.low for spec in DESIGN_RANGES.values()])
    high = np.array([spec.high for spec in DESIGN_RANGES.values()])
    settings: FloatArray = low + generator.random((12, 4)) * (high - low)
    return settings
