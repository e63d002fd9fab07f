"""A cluster as a scenario needs it: steady metrics that follow the setting, and searches that find one thing."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tuner.observe.source import Answer, Series
from tuner.propose.inputs import SearchInputs
from tuner.propose.planted import planted
from tuner.tuning import Search
from tuner.values.knobs import Role
from tuner.values.stages import FloatArray, Proposal

PLANTED_SLICE_SECONDS: Final = 0.12
"""The slice that every search finds."""

NOISE_RATIO: Final = 0.03
"""Size of the ripple on every metric (assumption)."""

_STEADY: Final = {
    "reference_recent_scheduling_latency_seconds": 0.8,
    "reference_recent_resource_idle_ratio": 0.3,
    "reference_recent_accelerator_utilization_ratio": 0.6,
    "reference_queue_length": 12.0,
    "reference_recent_queue_wait_seconds": 20.0,
    "reference_recent_tasks_completed_per_second": 2.0,
    "reference_recent_task_abandonment_ratio": 0.01,
    "reference_running_remaining_seconds": 300.0,
    "reference_node_temperature_celsius": 55.0,
    "reference_node_power_watts": 2000.0,
    "reference_recent_pending_demand_ratio": 0.2,
    "reference_recent_switch_overhead_ratio": 0.03,
    "reference_recent_high_priority_wait_seconds": 4.0,
    "reference_accelerators": 64.0,
    "reference_nodes": 8.0,
}
_TIMES: Final = ("reference_recent_scheduling_latency_seconds", "reference_recent_queue_wait_seconds")
"""What the planted slice changes."""


@dataclass(slots=True)
class PlantedSource:
    """Metrics of a steady cluster; one thread at a time.

    Attributes:
        slice_seconds: Gives the slice in force.
        effect_ratio: Factor on waits and latencies while the planted slice is in force.
        shown: Values instead of the steady ones, by name.
        failure: What every question raises; None for none.
        answer: Answers every question about now, given the expression and the time; None for the steady cluster.
        warnings: What the source says against its own answers.
    """

    slice_seconds: Callable[[], float]
    effect_ratio: float = 1.0
    shown: dict[str, float] = field(default_factory=dict)
    failure: Exception | None = None
    answer: Callable[[str, float], Answer] | None = None
    warnings: tuple[str, ...] = ()
    fuses: bool = False

    def instant(self, expression: str, *, at_seconds: float) -> Answer:
        """Return the value now; nothing where the cluster does not have the series."""
        if self.failure is not None:
            raise self.failure
        if self.answer is not None:
            return self.answer(expression, at_seconds)
        return self._answer(expression, np.array([at_seconds]), effect=self._effect(expression))

    def range(self, expression: str, *, start_seconds: float, end_seconds: float, step_seconds: float) -> Answer:
        """Return the past, in which nobody had changed anything."""
        if self.failure is not None:
            raise self.failure
        times = np.arange(start_seconds, end_seconds + step_seconds / 2, step_seconds)
        return self._answer(expression, times, effect=1.0)

    def _effect(self, expression: str) -> float:
        planted = math.isclose(self.slice_seconds(), PLANTED_SLICE_SECONDS)
        return self.effect_ratio if planted and expression in _TIMES else 1.0

    def _answer(self, expression: str, times: FloatArray, *, effect: float) -> Answer:
        value = self.shown.get(expression, _STEADY.get(expression))
        if value is None:
            return Answer(series=())
        ripple = 1 + NOISE_RATIO * np.sin(times * 0.37 + len(expression))
        labels = {"node": "n1"} if "node_" in expression or "accelerator_utilization" in expression else {}
        return Answer(series=(Series(labels, times, value * effect * ripple),), warnings=self.warnings)


def finding(moves: Mapping[Role, float]) -> Search:
    """Return what finds one setting instead of searching, and promises much of it."""

    def search(inputs: SearchInputs, **_: object) -> Proposal:
        return planted(inputs, moves, score=-0.3, reason="planted by a scenario")

    return search


planted_search: Final = finding({Role.BASE_SLICE: PLANTED_SLICE_SECONDS})
"""Finds the planted slice."""
