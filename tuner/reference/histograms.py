"""Buckets: fine ones in which the engine counts, and coarser ones for each histogram that is shown."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuner.reference.engine.state import Measure
from tuner.reference.snapshot import Histogram

PER_DECADE: Final = 40
"""Fine buckets a decade: neighbours lie 6 % apart."""

_LOWEST, _HIGHEST = -3, 6

BOUNDS: Final[NDArray[np.float64]] = np.array(
    [float(f"{10.0 ** (_LOWEST + i / PER_DECADE):.6g}") for i in range((_HIGHEST - _LOWEST) * PER_DECADE + 1)]
)
"""Upper bounds of the fine buckets, 1 ms to 11 days, rounded so that they are equal on every machine."""

_SHOWN: Final = {
    # Measure: lowest and highest bound in powers of ten, buckets a decade.
    Measure.LATENCY: (-2, 2, 10),
    Measure.DECISION: (-3, 2, 8),
    Measure.WAIT: (-1, 5, 8),
    Measure.HIGH_WAIT: (-2, 3, 10),
}
_SHOWN_SERVICE: Final = (-1, 6, 4)


def shown(measure: int, counts: NDArray[np.int64], total: float) -> Histogram:
    """Return a histogram in the buckets in which it is shown, made of fine counts, shape (fine buckets + 1,)."""
    low, high, per_decade = _SHOWN.get(Measure(min(measure, Measure.SERVICE)), _SHOWN_SERVICE)
    picked = np.arange((low - _LOWEST) * PER_DECADE, (high - _LOWEST) * PER_DECADE + 1, PER_DECADE // per_decade)
    cumulated = np.cumsum(counts)
    merged = np.diff(np.concatenate([[0], cumulated[picked], cumulated[-1:]]))
    return Histogram(BOUNDS[picked], merged, total)


def fine(counts: NDArray[np.int64]) -> Histogram:
    """Return a histogram in the engine's own buckets; its sum is unknown."""
    return Histogram(BOUNDS, counts, float("nan"))
