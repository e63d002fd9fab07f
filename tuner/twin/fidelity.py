"""Fidelity: how well the twin foretells what is then observed."""

import json
from collections import deque
from typing import Final

import numpy as np

from tuner.values.metrics import FLOORS, METRICS, MetricVector, score

MEMORY: Final = 24
"""Forecasts that fidelity is a median over: six hours of intervals that do not overlap."""
FORGETTING: Final = 0.95
"""Weight of each earlier change against the next: the last twenty count."""

_OBJECTIVES: Final = np.array([spec.objective for spec in METRICS])


class Fidelity:
    """How well the twin foretells, each time with the parameters it had before it learned the answer.

    `fidelity = (1 - median error) * (0.5 + 0.5 * hits)`: the error of a forecast is the relative one of each objective
    metric, `|predicted - observed| / max(observed, floor)`, clipped at 1; `hits` is the share of changes of setting
    after which the score moved in the direction that was foretold, with one assumed hit.
    """

    def __init__(self) -> None:
        """Begin with nothing foretold."""
        self._errors: deque[float] = deque(maxlen=MEMORY * int(_OBJECTIVES.sum()))
        self._hits = self._changes = 0.0

    @property
    def ratio(self) -> float:
        """Fidelity, 0..1; NaN before the first forecast."""
        if not self._errors:
            return float("nan")
        hits = (1.0 + self._hits) / (1.0 + self._changes)
        return float((1.0 - np.median(self._errors)) * (0.5 + 0.5 * hits))

    def foretold(self, predicted: MetricVector, observed: MetricVector) -> None:
        """Take in what was predicted of an interval and what came of it."""
        with np.errstate(invalid="ignore"):
            errors = np.abs(predicted - observed) / np.maximum(observed, FLOORS)
        known = errors[_OBJECTIVES & np.isfinite(errors)]
        self._errors.extend(np.minimum(known, 1.0).tolist())

    def changed(
        self, predicted: tuple[MetricVector, MetricVector], observed: tuple[MetricVector, MetricVector]
    ) -> None:
        """Take in predicted and observed metrics before and after a change of setting."""
        expected, came = float(score(predicted[1], predicted[0])), float(score(observed[1], observed[0]))
        if np.isfinite(expected) and np.isfinite(came):
            self._changes = FORGETTING * self._changes + 1.0
            self._hits = FORGETTING * self._hits + (1.0 if expected * came > 0 else 0.0)

    def to_json(self) -> str:
        """Return all of it as strict JSON; numbers survive exactly."""
        return json.dumps([list(self._errors), self._hits, self._changes], allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "Fidelity":
        """Return what `to_json` wrote.

        Raises:
            ValueError: The text is damaged.
        """
        restored = cls()
        try:
            errors, hits, changes = json.loads(text)
            restored._errors.extend(float(error) for error in errors)
            restored._hits, restored._changes = float(hits), float(changes)
        except TypeError as error:
            raise ValueError(f"fidelity of the twin: {error}") from error
        numbers = np.array([*restored._errors, restored._hits, restored._changes])
        if not np.isfinite(numbers).all():
            raise ValueError("fidelity of the twin: a number is not finite")
        return restored
