"""Buckets: fine ones in which the engine counts, and coarser ones for each histogram that is shown."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuner.reference.engine.state import DECISION, HIGH_WAIT, LATENCY, WAIT
from tuner.reference.engine.tables import BOUNDS, LOWEST, PER_DECADE
from tuner.reference.snapshot import Histogram

_SHOWN: Final = {
    # Measure: lowest and highest bound in powers of ten, buckets a decade.
    LATENCY: (-2, 2, 10),
    DECISION: (-3, 2, 8),
    WAIT: (-1, 5, 8),
    HIGH_WAIT: (-2, 3, 10),
}
_SHOWN_SERVICE: Final = (-1, 6, 4)


def shown(measure: int, counts: NDArray[np.int64], total: float) -> Histogram:
    """Return a histogram in the buckets in which it is shown, made of fine counts, shape (fine buckets + 1,)."""
    low, high, per_decade = _SHOWN.get(measure, _SHOWN_SERVICE)
    picked = np.arange((low - LOWEST) * PER_DECADE, (high - LOWEST) * PER_DECADE + 1, PER_DECADE // per_decade)
    cumulated = np.cumsum(counts)
    merged = np.diff(np.concatenate([[0], cumulated[picked], cumulated[-1:]]))
    return Histogram(BOUNDS[picked], merged, total)


def fine(counts: NDArray[np.int64]) -> Histogram:
    """Return a histogram in the engine's own buckets; its sum is unknown."""
    return Histogram(BOUNDS, counts, float("nan"))
