"""Windows that closed in life: what fine-tuning learns from, and what decides whether it may be believed."""

from typing import Final

import numpy as np

from tuner.forecast.batch import Batch
from tuner.forecast.examples import Examples, concatenated, examples_of
from tuner.forecast.features import smallest_unit
from tuner.values.stages import FloatArray

CAPACITY: Final = 30_000
"""Windows that are kept to learn from: some 30 MB."""

JUDGED: Final = 2_000
"""Newest windows, which champion and challenger are compared on; nothing is learned from them until they age."""

SAMPLED: Final = 500
"""Windows taken at most of one fleet at once: ten thousand nodes must not crowd out the rest."""


class Reservoir:
    """A uniform sample of all windows that have closed (Vitter 1985), and the newest apart."""

    def __init__(self, *, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._newest: list[Examples] = []
        self._kept: Examples | None = None
        self._seen = 0

    def add(self, batch: Batch, actual: FloatArray) -> None:
        """Take in windows that have closed; those that are flat, not trusted or without a full truth are left out.

        Args:
            batch: One row a window.
            actual: Truths, shape (windows, steps); NaN where unknown.
        """
        rows = np.flatnonzero(np.isfinite(actual).all(axis=1) & batch.trusted & (batch.scale > smallest_unit(batch)))
        if len(rows) == 0:
            return
        if len(rows) > SAMPLED:
            rows = np.sort(self._rng.choice(rows, SAMPLED, replace=False))
        chosen = batch.take(rows)
        self._newest.append(examples_of(chosen, actual[rows], chosen.scale))
        while sum(len(one) for one in self._newest[1:]) >= JUDGED:
            self._age(self._newest.pop(0))

    def to_learn_from(self) -> Examples | None:
        """Return the sample; None while nothing has aged into it."""
        return self._kept

    def to_judge_by(self) -> Examples | None:
        """Return the newest windows; None while there are none."""
        return concatenated(self._newest) if self._newest else None

    def _age(self, examples: Examples) -> None:
        room = CAPACITY - (0 if self._kept is None else len(self._kept))
        fresh = examples.take(slice(0, room))
        self._kept = fresh if self._kept is None else concatenated([self._kept, fresh])
        self._seen += len(fresh)
        for row in range(len(fresh), len(examples)):
            self._seen += 1
            place = int(self._rng.integers(self._seen))
            if place < CAPACITY:
                for name in ("sequence", "static", "unit", "target"):
                    getattr(self._kept, name)[place] = getattr(examples, name)[row]
