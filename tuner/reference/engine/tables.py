"""Tables that are compiled in: bucket bounds, and the noise of sensors."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

PER_DECADE: Final = 40
"""Fine buckets a decade: neighbours lie 6 % apart."""

LOWEST, HIGHEST = -3, 6
"""Powers of ten of the lowest and the highest bound."""

BOUNDS: Final[NDArray[np.float64]] = np.array(
    [float(f"{10.0 ** (LOWEST + i / PER_DECADE):.6g}") for i in range((HIGHEST - LOWEST) * PER_DECADE + 1)]
)
"""Upper bounds of histogram buckets, 1 ms to 11 days, rounded so that they are equal on every machine."""

NOISE: Final[NDArray[np.float64]] = 2.0 * np.random.default_rng(0x5E45).random(4096) - 1.0
"""Noise of sensors, -1..1; every node reads it from its own place on."""
