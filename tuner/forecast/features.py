"""What the network is fed, and how its output becomes quantiles.

Everything is a change from the last value, in units of the series' own recent movement, squeezed by asinh: a counter
of requests and a temperature look alike, a regime shift stays within the range that was trained, and the network
works on series that it never saw.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuner.forecast.batch import COVARIATE_FEATURES, COVARIATES, LEVELS, MOVEMENTS, WINDOW_STEPS, Batch
from tuner.values.stages import FloatArray

HORIZON_STEPS: Final = 20
"""Steps ahead that the network answers: the upper bound of the prediction window."""

CLIP: Final = 5.0
"""Largest magnitude of an input: asinh(5) is 74 units of recent movement."""

SEQUENCE_FEATURES: Final = 4
"""Inputs a step: position, its first difference, yesterday's position, that of a typical day."""

RECENT_STEPS: Final = 5
"""Newest positions that reach the head directly."""

PROFILE_FEATURES: Final = HORIZON_STEPS + 2
"""Inputs of a day in the past: its next changes, how far it lay off, and whether it is known."""

COVARIATE_INPUTS: Final = COVARIATE_FEATURES + len(COVARIATES)
"""Inputs of the covariates, the last of the static ones: their values, and whether each is there."""

STATIC_FEATURES: Final = 2 * PROFILE_FEATURES + 7 + MOVEMENTS + LEVELS + COVARIATE_INPUTS
"""Inputs a window: two days in the past, seven descriptions, movements and levels in the long run, covariates and
whether each is there."""


LEAST_MOVEMENT: Final = 1e-3
"""Movement, in units, that none is taken for, so that it has a logarithm."""


@dataclass(frozen=True, slots=True)
class Features:
    """Inputs of the network.

    Attributes:
        sequence: Shape (series, WINDOW_STEPS, SEQUENCE_FEATURES), float32.
        static: Shape (series, STATIC_FEATURES), float32.
        unit: Size of one unit of change, shape (series,), > 0.
    """

    sequence: NDArray[np.float32]
    static: NDArray[np.float32]
    unit: FloatArray


def encode(batch: Batch) -> Features:
    """Describe a batch for the network; finite whatever the batch holds."""
    last = batch.last
    movement = np.abs(batch.window - last[:, None]).mean(axis=1)
    unit = np.maximum(np.maximum(batch.scale, movement), smallest_unit(batch))
    position = _squeeze((batch.window - last[:, None]) / unit[:, None])
    step = np.diff(position, axis=1, prepend=position[:, :1])
    yesterday, yesterday_profile = _profile(batch.yesterday, last, unit)
    typical, typical_profile = _profile(batch.typical, last, unit)
    bounded = np.isfinite(batch.ceiling)
    has = np.isfinite(batch.covariates[:, ::2])
    static = np.concatenate(
        [
            yesterday_profile,
            typical_profile,
            np.stack(
                [
                    np.clip(np.log(unit / np.maximum(batch.scale, 1e-3 * unit)), 0.0, CLIP),
                    batch.whole,
                    batch.still,
                    batch.held,
                    np.clip(np.log1p(np.abs(last) / unit) / 2, 0.0, CLIP),
                    bounded,
                    np.where(bounded, np.clip(last / np.where(bounded, batch.ceiling, 1.0), -0.5, 1.25), 0.0),
                ],
                axis=1,
            ),
            np.clip(np.log(batch.movements / unit[:, None] + LEAST_MOVEMENT), -CLIP, CLIP),
            np.where(np.isfinite(batch.levels), _squeeze((batch.levels - last[:, None]) / unit[:, None]), 0.0),
            np.where(np.isfinite(batch.covariates), np.clip(batch.covariates, -CLIP, CLIP), 0.0),
            has,
        ],
        axis=1,
    )
    sequence = np.stack([position, step, yesterday, typical], axis=2)
    return Features(sequence.astype(np.float32), static.astype(np.float32), unit)


def smallest_unit(batch: Batch) -> FloatArray:
    """Return the movement below which a series counts as flat, shape (series,), > 0: a millionth of its level."""
    return 1e-6 * np.maximum(np.abs(batch.last), 1e-3)


def decode(changes: FloatArray, batch: Batch, unit: FloatArray) -> FloatArray:
    """Turn the network's output, changes in squeezed units, into quantiles; shape (series, horizon, 3)."""
    quantiles: FloatArray = batch.last[:, None, None] + unit[:, None, None] * np.sinh(changes)
    return quantiles


def hide_typical(sequence: NDArray[np.float32], static: NDArray[np.float32], rows: NDArray[np.bool_]) -> None:
    """Take the typical day away from some windows, in place, as if only yesterday were known."""
    sequence[rows, :, 3] = 0.0
    static[rows, PROFILE_FEATURES : 2 * PROFILE_FEATURES] = 0.0


def hide_covariates(static: NDArray[np.float32], rows: NDArray[np.bool_]) -> None:
    """Take the covariates away from some windows, in place, as if no policy had mapped them."""
    static[rows, -COVARIATE_INPUTS:] = 0.0


def _profile(day: FloatArray, last: FloatArray, unit: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the positions over the window, and the description, of a day in the past; zeros where it is not known."""
    known = np.isfinite(day[:, 0])
    filled = np.where(known[:, None], day, 0.0)
    origin = filled[:, WINDOW_STEPS - 1]
    moved = _squeeze((filled - origin[:, None]) / unit[:, None])
    distance = np.where(known, _squeeze((last - origin) / unit), 0.0)
    ahead = _fit(moved[:, WINDOW_STEPS:], HORIZON_STEPS)
    return moved[:, :WINDOW_STEPS], np.concatenate([ahead, distance[:, None], known[:, None]], axis=1)


def _squeeze(values: FloatArray) -> FloatArray:
    squeezed: FloatArray = np.clip(np.arcsinh(values), -CLIP, CLIP)
    return squeezed


def _fit(values: FloatArray, steps: int) -> FloatArray:
    """Return the first steps; a shorter horizon is filled up with its last column."""
    if values.shape[1] >= steps:
        return values[:, :steps]
    return np.concatenate([values, np.repeat(values[:, -1:], steps - values.shape[1], axis=1)], axis=1)
