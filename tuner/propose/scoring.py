"""Candidates with what the twin predicts of them: each is evaluated once, many in a call."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from tuner.propose.inputs import SearchInputs
from tuner.propose.objective import Assessment, assess
from tuner.propose.space import Point, Space, rows
from tuner.twin.parameters import TwinParameters
from tuner.twin.residual import displacement
from tuner.twin.workload import Scenarios
from tuner.values.knobs import KnobValues
from tuner.values.stages import FloatArray

IN_FORCE: Final[Point] = ()
"""Stands for the setting in force itself, which may lie off the grid."""


class Evaluate(Protocol):
    """Predicts the metrics of settings on scenarios; `tuner.twin.model.evaluate`."""

    def __call__(self, knobs: FloatArray, scenarios: Scenarios, parameters: TwinParameters) -> FloatArray:
        """Return metrics of shape (C, S, 13) for knobs of shape (C, 4) in the order of `Role`, NaN where absent."""
        ...


@dataclass(slots=True)
class Scored:
    """Candidates on one set of scenarios.

    Attributes:
        inputs: What the search may know.
        space: What its points mean.
        scenarios: The loads.
        evaluate: The twin.
        metrics: Predicted metrics by point, each of shape (S, 13); `IN_FORCE` is among them from the first call on.
    """

    inputs: SearchInputs
    space: Space
    scenarios: Scenarios
    evaluate: Evaluate
    metrics: dict[Point, FloatArray] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of candidates, the setting in force not counted."""
        return len(self.metrics) - (IN_FORCE in self.metrics)

    def values(self, key: Point) -> KnobValues:
        """Return the setting that a key stands for."""
        return self.space.values(key) if key else self.inputs.incumbent

    def measure(self, points: Sequence[Point]) -> None:
        """Evaluate what is not known yet, in one call; the setting in force goes with the first."""
        unknown = [key for key in dict.fromkeys((IN_FORCE, *points)) if key not in self.metrics]
        if not unknown:
            return
        knobs = rows(self.values(key) for key in unknown)
        predicted = self.evaluate(knobs, self.scenarios, self.inputs.parameters)
        self.metrics.update(zip(unknown, predicted, strict=True))

    def assess(self, points: Sequence[Point]) -> Assessment:
        """Compare candidates with the setting in force, in the order given."""
        self.measure(points)
        metrics = np.stack([self.metrics[key] for key in points])
        assessment = assess(
            metrics,
            self.metrics[IN_FORCE],
            weights=self.inputs.weights,
            limits=self.inputs.limits,
            scenario_weights=self.scenarios.weights,
        )
        inputs = self.inputs
        moved = [displacement(inputs.incumbent, self.values(key), inputs.specs) for key in points]
        return assessment.corrected(inputs.residual, np.array(moved), inputs.context)
