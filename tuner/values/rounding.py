"""Rounding to significant digits: what is below the noise of every measurement must not decide anything."""

import numpy as np

from tuner.values.stages import FloatArray

_LEAST = 1e-250


def significant(values: FloatArray, digits: int) -> FloatArray:
    """Round to a number of significant digits; what is next to nothing becomes 0, NaN and infinities stay.

    Args:
        values: Any shape.
        digits: Digits that are kept, >= 1.
    """
    finite = np.isfinite(values)
    size = np.where(finite, np.abs(values), 1.0)
    exponent = np.floor(np.log10(np.where(size > _LEAST, size, 1.0)))
    unit = 10.0 ** (exponent - digits + 1)
    rounded: FloatArray = np.where(finite, np.round(np.where(finite, values, 0.0) / unit) * unit, values)
    return rounded
