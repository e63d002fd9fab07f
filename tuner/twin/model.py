"""How candidates are scored: all of them, on all scenarios, in one compiled call."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuner.twin import kernels
from tuner.twin.parameters import HIGH, LOW, PARAMETER_COUNT, TwinParameters
from tuner.twin.workload import GROUPS, STEP_SECONDS, STEPS, Scenarios
from tuner.values.knobs import Role, SchedulerMode
from tuner.values.metrics import METRIC_COUNT, METRICS
from tuner.values.stages import FloatArray

RANGE_MARGIN: Final = 0.25
"""How far, on a log scale, candidates and loads may lie beyond what was observed before they count as unknown."""

UPPERS: Final[FloatArray] = np.array([spec.upper for spec in METRICS])

# Started logarithms keep a metric near zero from ruling a fit. Objectives have their floors in the catalogue.
_STARTS: Final = {
    "queue_length": 1.0,
    "task_abandonment_ratio": 0.005,
    "running_task_remaining_seconds": 1.0,
    "node_temperature_celsius": 1.0,
    "node_power_watts": 0.01,
    "pending_demand_ratio": 0.02,
}
# Behind the metrics come the two values of the context that the twin also says: decision time and cold-start share.
EXTRAS: Final = ("decision_seconds", "cold_start_ratio")
_EXTRA_STARTS: Final = (0.02, 0.02)
STARTS: Final[FloatArray] = np.array([*(_STARTS.get(spec.name, spec.floor) for spec in METRICS), *_EXTRA_STARTS])

_MODES: Final = {
    SchedulerMode.FULL: kernels.FULL,
    SchedulerMode.SIMPLIFIED: kernels.SIMPLIFIED,
    SchedulerMode.PRIORITY_ONLY: kernels.PRIORITY_ONLY,
}


def started_log(metrics: FloatArray) -> FloatArray:
    """Return `ln(value + start)`: the scale on which the twin is compared with what is observed.

    Args:
        metrics: Shape (..., 13), or (..., 15) with the `EXTRAS`.
    """
    result: FloatArray = np.log(np.maximum(metrics, 0.0) + STARTS[: metrics.shape[-1]])
    return result


def from_started_log(logs: FloatArray) -> FloatArray:
    """Return the metrics of started logarithms, shape (..., 13), within 0 and their upper bounds."""
    result: FloatArray = np.clip(np.exp(np.minimum(logs, 60.0)) - STARTS[:METRIC_COUNT], 0.0, UPPERS)
    return result


def evaluate(
    knobs: FloatArray,
    scenarios: Scenarios,
    parameters: TwinParameters,
    *,
    mode: SchedulerMode = SchedulerMode.FULL,
) -> FloatArray:
    """Return the expected metrics of every candidate on every scenario.

    Each scenario draws its own parameters from what the calibration left uncertain. Levels are anchored: under the
    setting in force every draw gives what the estimate itself gives, corrected by what was observed; so only the
    differences between candidates come from the model. Where that setting is not known, the draws keep their levels.

    Args:
        knobs: Candidates, shape (C, 4), in the order of `Role`; NaN where a role is absent (its effect is off).
        scenarios: S scenarios.
        parameters: The calibrated twin.
        mode: Policy mode of the scheduler.

    Returns:
        Shape (C, S, 13), in catalogue order; finite, but NaN for metrics of which the twin does not know the level.

    Raises:
        ValueError: `knobs` is not of shape (C, 4).
    """
    if knobs.ndim != 2 or knobs.shape[1] != len(Role):
        raise ValueError(f"knobs has shape {knobs.shape}, must be (candidates, {len(Role)})")
    estimate = np.broadcast_to(parameters.log_values, (len(scenarios), PARAMETER_COUNT))
    drawn = np.clip(estimate + scenarios.parameter_draws * parameters.log_errors, LOW, HIGH)
    raw = started_log(_simulate(knobs, parameters.knobs, scenarios, drawn, mode))
    # A knob that no candidate has is absent. Else it is in force at a value that must be known: one that were made up
    # from the candidates would let each of them change what is said of the others.
    if (np.isfinite(parameters.knobs) | np.isnan(knobs).all(axis=0)).all():
        current = parameters.knobs[None]
        shift = started_log(_simulate(current, parameters.knobs, scenarios, estimate, mode))
        shift -= started_log(_simulate(current, parameters.knobs, scenarios, drawn, mode))
        raw += shift
    return from_started_log(raw + parameters.levels)


def simulate_records(knobs: FloatArray, scenarios: Scenarios, log_values: FloatArray) -> FloatArray:
    """Return the metrics of recorded intervals under variants of the parameters, without correction of levels.

    Args:
        knobs: Setting in force in each interval, shape (R, 4).
        scenarios: One scenario an interval.
        log_values: Variants of the parameters, shape (V, P), on a log scale.

    Returns:
        Shape (V, R, 15): the metrics and the `EXTRAS`.
    """
    return _run(knobs, knobs[0], scenarios, np.exp(log_values), kernels.FULL, paired=True)


def out_of_range(knobs: FloatArray, scenarios: Scenarios, parameters: TwinParameters) -> NDArray[np.bool_]:
    """Say of each candidate whether it, or the load, lies outside what the twin was calibrated on, shape (C,).

    Everything is outside before anything was observed. A margin of `RANGE_MARGIN` on a log scale is allowed; absent
    roles are never outside.
    """
    if parameters.records == 0:
        return np.ones(knobs.shape[0], dtype=np.bool_)
    low, high = np.exp(-RANGE_MARGIN), np.exp(RANGE_MARGIN)
    below, above = knobs < parameters.knobs_low * low, knobs > parameters.knobs_high * high
    offered = float(scenarios.weights @ scenarios.offered_accelerators)
    unusual = not parameters.offered_low * low <= offered <= parameters.offered_high * high
    outside: NDArray[np.bool_] = (below | above).any(axis=1) | unusual
    return outside


def warm_up() -> None:
    """Compile the kernels, or load them from their cache; later calls are quick."""
    evaluate(np.array([[0.1, 900.0, 0.75, 0.2]]), _tiny(), TwinParameters())


def _tiny() -> Scenarios:
    groups = len(GROUPS)
    return Scenarios(
        arrivals_per_second=np.full((1, STEPS, groups), 0.1),
        recent_per_second=np.full((1, groups), 0.1),
        running_tasks=np.ones((1, groups)),
        waiting_tasks=np.ones((1, groups)),
        service_seconds=np.full((1, groups), 10.0),
        demand_accelerators=np.full((1, groups), 0.5),
        accelerators_count=np.array([8.0]),
        cold_start_seconds=np.array([5.0]),
        spread_ratio=np.array([0.5]),
        parameter_draws=np.zeros((1, PARAMETER_COUNT)),
        weights=np.ones(1),
        step_seconds=np.array(STEP_SECONDS),
    )


def _simulate(
    knobs: FloatArray, before: FloatArray, scenarios: Scenarios, log_values: FloatArray, mode: SchedulerMode
) -> FloatArray:
    played = _run(knobs, before, scenarios, np.exp(log_values), _MODES[mode], paired=False)
    return played[..., :METRIC_COUNT]


def _run(
    knobs: FloatArray, before: FloatArray, scenarios: Scenarios, theta: FloatArray, mode: int, *, paired: bool
) -> FloatArray:
    state = np.stack(
        [
            scenarios.recent_per_second,
            scenarios.running_tasks,
            scenarios.waiting_tasks,
            scenarios.service_seconds,
            scenarios.demand_accelerators,
        ],
        axis=1,
    )
    result: FloatArray = kernels.simulate_all(
        scenarios.arrivals_per_second,
        state,
        scenarios.accelerators_count,
        scenarios.cold_start_seconds,
        scenarios.spread_ratio,
        float(scenarios.step_seconds),
        np.ascontiguousarray(knobs, dtype=np.float64),
        np.ascontiguousarray(before, dtype=np.float64),
        mode,
        np.ascontiguousarray(theta),
        paired,
    )
    return result
