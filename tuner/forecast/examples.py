"""Examples: what the network learns from. Made of training parts only, or of windows that closed in life."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuner.forecast.batch import HOUR_STEPS, WINDOW_STEPS, Batch, IntArray, join, scale_of
from tuner.forecast.features import HORIZON_STEPS, STATIC_FEATURES, encode, hide_covariates, hide_typical
from tuner.forecast.origins import WEEK_STEPS, batch_at, truths_at
from tuner.forecast.traces import TrainingPart
from tuner.values.stages import FloatArray

STILL_SHARE: Final = 0.25
"""Chance of a window in which nothing moved, against 1 of the others. It depends on the inputs alone, so that the
quantiles given the inputs stay what they are."""

NODE_TRACES: Final = ("surf",)
"""Traces whose windows count twice, most of them described as a node's, with an hour of memory and yesterday at 5
minutes: most series are nodes in life."""

YOUNG_SHARE: Final = 0.1
"""Share of windows that are described by a tuner that was just started."""

YOUNG_STEPS: Final = 120
"""What such a tuner remembers: two hours."""

HIDE_TYPICAL: Final = 0.25
"""Share of the others that forget all but yesterday: a tuner that has just been restarted knows one day."""

HIDE_COVARIATES: Final = 0.3
"""Share of windows that forget their covariates: most policies map only some."""


@dataclass(frozen=True, slots=True)
class Examples:
    """Inputs and truths, one row a window, float32.

    Attributes:
        sequence: See `Features`.
        static: See `Features`.
        unit: Size of one unit of change, over the normal size of the series' changes, shape (windows,).
        target: Changes from the last value over that same size, shape (windows, HORIZON_STEPS); NaN where unknown.
    """

    sequence: NDArray[np.float32]
    static: NDArray[np.float32]
    unit: NDArray[np.float32]
    target: NDArray[np.float32]

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.unit)

    def take(self, rows: IntArray | slice) -> "Examples":
        """Return some of the windows."""
        return Examples(*(getattr(self, field.name)[rows] for field in fields(self)))

    def save(self, path: Path) -> None:
        """Write them as npz, without pickle."""
        np.savez(path, **{field.name: getattr(self, field.name) for field in fields(self)})

    @classmethod
    def load(cls, path: Path) -> "Examples":
        """Read what `save` wrote.

        Raises:
            ValueError: The file is not of this form.
        """
        with np.load(path, allow_pickle=False) as data:
            parts = [np.asarray(data[field.name], dtype=np.float32) for field in fields(cls)]
        if parts[1].shape[1:] != (STATIC_FEATURES,):
            raise ValueError(f"{path}: static inputs have shape {parts[1].shape}, must be (windows, {STATIC_FEATURES})")
        return cls(*parts)


def concatenated(parts: Iterable[Examples]) -> Examples:
    """Return one set of several."""
    listed = list(parts)
    return Examples(*(np.concatenate([getattr(one, field.name) for one in listed]) for field in fields(Examples)))


def examples_of(batch: Batch, actual: FloatArray, size: FloatArray) -> Examples:
    """Return the examples of windows whose truth is known.

    Args:
        batch: One row a window.
        actual: Truths, shape (windows, up to HORIZON_STEPS).
        size: Normal size of the series' changes, shape (windows,), > 0: what the loss is counted in.
    """
    features = encode(batch)
    target = np.full((len(batch), HORIZON_STEPS), np.nan)
    target[:, : actual.shape[1]] = (actual - batch.last[:, None]) / size[:, None]
    return Examples(
        features.sequence, features.static, (features.unit / size).astype(np.float32), target.astype(np.float32)
    )


def sample(parts: Sequence[TrainingPart], *, windows: int, rng: np.random.Generator) -> Examples:
    """Return random windows, as many of each trace and equally many of each of its series.

    Args:
        parts: What may be trained on.
        windows: Windows a trace.
        rng: Source of all randomness.
    """
    return concatenated(
        _sample_series(part, row, count, rng, as_node=as_node)
        for part in parts
        for as_node, share in _descriptions(part.name)
        for row, count in enumerate(_counts(len(part.series), round(windows * share), rng))
        if count and len(part.series[row]) > HOUR_STEPS + HORIZON_STEPS + 1
    )


def _descriptions(name: str) -> tuple[tuple[bool, float], ...]:
    return ((False, 0.5), (True, 1.5)) if name in NODE_TRACES else ((False, 1.0),)


def _counts(series: int, windows: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return np.bincount(rng.integers(0, series, windows), minlength=series)


def _sample_series(part: TrainingPart, row: int, count: int, rng: np.random.Generator, *, as_node: bool) -> Examples:
    values = part.series[row]
    candidates = np.arange(HOUR_STEPS, len(values) - HORIZON_STEPS)
    moves = np.concatenate([[0], np.cumsum(np.nan_to_num(np.diff(values)) != 0)])
    moving = moves[candidates] > moves[candidates - WINDOW_STEPS + 1]
    chance = np.where(moving, 1.0, STILL_SHARE)
    origins = rng.choice(candidates, size=count, p=chance / chance.sum())
    young = rng.random(count) < YOUNG_SHARE
    origins = np.concatenate([origins[~young], origins[young]])
    old = int(count - young.sum())
    batch = join(
        [
            batch_at(
                values,
                some,
                horizon=HORIZON_STEPS,
                as_node=as_node,
                ceiling=part.ceiling,
                past=values,
                memory_steps=memory,
                covariates=part.covariates[row] if part.covariates else None,
            )
            for some, memory in ((origins[:old], WEEK_STEPS), (origins[old:], YOUNG_STEPS))
        ]
    )
    size = max(float(scale_of(values[None])[0]), 1e-9)
    examples = examples_of(batch, truths_at(values, origins, horizon=HORIZON_STEPS), np.full(count, size))
    hide_typical(examples.sequence, examples.static, rng.random(count) < HIDE_TYPICAL)
    hide_covariates(examples.static, rng.random(count) < HIDE_COVARIATES)
    return examples
