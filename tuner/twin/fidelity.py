"""How far the twin may be believed: fidelity, from what it foretold; trust, from the gains that came true."""

from collections import deque
from typing import Final

import numpy as np

from tuner.values.metrics import FLOORS, METRICS, MetricVector, score

MEMORY: Final = 24
"""Forecasts that fidelity is a median over: six hours of intervals that do not overlap."""
FORGETTING: Final = 0.95
"""Weight of each earlier realised gain against the next: the last twenty count."""
PRIOR_HITS: Final = 2.0
"""Hits, and misses, that are assumed before the first: trust starts at one half and moves as evidence comes."""

_OBJECTIVES: Final = np.array([spec.objective for spec in METRICS])


class Fidelity:
    """How well the twin foretells, each time with the parameters it had before it learned the answer.

    `fidelity = (1 - median error) * (0.5 + 0.5 * hits)`: the error of a forecast is the relative one of each objective
    metric, `|predicted - observed| / max(observed, floor)`, clipped at 1; `hits` is the share of changes of setting
    after which the score moved in the direction that was foretold, with one assumed hit.
    """

    def __init__(self) -> None:
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


class Trust:
    """Whether predicted gains come true: the share of right signs, shrunk towards one half.

    `trust = (2 + hits) / (4 + trials)`; earlier trials fade by `FORGETTING` at each new one. A gain too small to tell
    from nothing counts half.
    """

    def __init__(self) -> None:
        self._hits = self._trials = 0.0

    @property
    def ratio(self) -> float:
        """Trust, 0..1; one half before the first trial."""
        return (PRIOR_HITS + self._hits) / (2.0 * PRIOR_HITS + self._trials)

    def realised(self, predicted_score: float, observed_score: float, *, noise: float = 0.0) -> float:
        """Take in the score that was predicted of a change and the one that came, and return the new trust.

        Args:
            predicted_score: Score of the candidate against the incumbent; negative is better.
            observed_score: The same, measured; NaN, where it could not be, teaches nothing.
            noise: Size of an observed score that may be nothing, e.g. its standard error; >= 0.
        """
        if np.isfinite(predicted_score) and np.isfinite(observed_score):
            hit = 0.5 if abs(observed_score) <= noise else float(predicted_score * observed_score > 0)
            self._hits = FORGETTING * self._hits + hit
            self._trials = FORGETTING * self._trials + 1.0
        return self.ratio
