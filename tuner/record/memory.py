"""Settings that were verified, and the loads that they suited."""

from dataclasses import dataclass

import numpy as np

from tuner.values.knobs import KnobValues
from tuner.values.stages import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """A setting that was verified, and the load that it suited.

    Attributes:
        at_seconds: When it was verified.
        context: Features of the load, shape (features,); NaN for what was unknown.
        knobs: The setting.
        score: Its verified score against what was before it; lower is better.
    """

    at_seconds: float
    context: FloatArray
    knobs: KnobValues
    score: float

    def distance(self, context: FloatArray) -> float:
        """Return how unlike another load is: root mean square of the differences of the features known of both.

        Infinity where nothing is known of both, or the features are not the same ones.
        """
        if context.shape != self.context.shape:
            return np.inf
        difference = self.context - context
        known = np.isfinite(difference)
        return float(np.sqrt(np.mean(difference[known] ** 2))) if known.any() else np.inf


def nearest(memories: list[Remembered], context: FloatArray, k: int) -> tuple[Remembered, ...]:
    """Return the `k` memories of the most alike loads, the most alike first; of equals, in the order given."""
    ranked = sorted(((memory.distance(context), index) for index, memory in enumerate(memories)))
    return tuple(memories[index] for distance, index in ranked[: max(k, 0)] if np.isfinite(distance))
