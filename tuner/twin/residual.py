"""The residual: what verified changes say of the twin's promises, as a correction of the next ones.

A ridge regression of `realised - promised` on what was promised, on where each knob went, and on the load. It is
Bayesian in its mean: every coefficient is believed to be 0 within a stated spread, so that nothing is corrected without
evidence. A measurement far beyond its error counts less (Student's t with `DEGREES` degrees of freedom, by reweighting;
Lange, Little & Taylor, "Robust statistical modeling using the t distribution", JASA 84, 1989): one wild trial moves
little, several that agree move all of it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np

from tuner.twin.trust import CONTEXT_COMPONENTS, Evidence
from tuner.values.knobs import KnobSpec, KnobValues, Role
from tuner.values.stages import FloatArray

_ROLES: Final = len(Role)
FEATURES: Final = 2 + _ROLES + CONTEXT_COMPONENTS
"""One for every change, what the twin promised, each knob's move, each component of the load."""

OPTIMISM_SPREAD: Final = 0.02
"""Believed spread of what is added to every change alike (assumption): two per cent of the score."""
PROMISE_SPREAD: Final = 0.35
"""Believed spread of the share of its promise by which the twin is off (assumption): a third of it. With one half, one
clear contradiction would keep a good twin from trying anything for weeks."""
MOVE_SPREAD: Final = 0.1
"""Believed spread of what a knob's way over its whole range adds (assumption): ten per cent of the score."""
CONTEXT_SPREAD: Final = 0.02
"""Believed spread of what a load larger by a factor of e adds (assumption)."""
MISFIT: Final = 0.02
"""Spread of realised scores around any such model, on top of their noise (assumption): no two trials are alike."""
DEGREES: Final = 4.0
"""Degrees of freedom of the errors, a usual choice for data with some wild values (Lange, Little & Taylor)."""

_ROUNDS: Final = 20
_SPREADS: Final[FloatArray] = np.array(
    [OPTIMISM_SPREAD, PROMISE_SPREAD, *[MOVE_SPREAD] * _ROLES, *[CONTEXT_SPREAD] * CONTEXT_COMPONENTS]
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Residual:
    """A fitted correction; the default corrects nothing.

    Attributes:
        centre: Mean load of the evidence, shape (6,); NaN for components that it never knew.
        coefficients: Of each feature, shape (12,).
    """

    centre: FloatArray = field(default_factory=lambda: np.full(CONTEXT_COMPONENTS, np.nan))
    coefficients: FloatArray = field(default_factory=lambda: np.zeros(FEATURES))

    def __post_init__(self) -> None:
        """Refuse what cannot be applied.

        Raises:
            ValueError: A shape is wrong, or a coefficient is not finite.
        """
        shapes = (self.centre.shape, self.coefficients.shape)
        if shapes != ((CONTEXT_COMPONENTS,), (FEATURES,)):
            raise ValueError(f"a residual has arrays of shapes {shapes}")
        if not np.isfinite(self.coefficients).all():
            raise ValueError("a residual has a coefficient that is not finite")

    def correct(self, scores: FloatArray, moved: FloatArray, context: Sequence[float] = ()) -> FloatArray:
        """Return what is to be added to scores, shape (C,).

        A promise is only ever taken down. That one change brought more than was promised is no promise of the next:
        the first steps bring most, and a correction upwards would buy more changes with it. What does not move is not
        corrected. How unsure the correction is does not count: after one noisy trial that would forbid the next, and
        what a trial may cost is bounded elsewhere.

        Args:
            scores: What the twin says, shape (C,); NaN is not corrected.
            moved: How far each knob moves, in units of its range, shape (C, 4).
            context: Load, as of `Evidence`.
        """
        rows = _features(scores, moved, context, self.centre)
        rows[~(moved != 0.0).any(axis=1)] = 0.0
        # Summed in an order that no linear-algebra library chooses, so that a decision can be repeated bit for bit.
        correction: FloatArray = np.maximum((rows * self.coefficients).sum(axis=1), 0.0)
        return correction

    def to_arrays(self) -> dict[str, FloatArray]:
        """Return the arrays by name."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> "Residual":
        """Return what `to_arrays` gave.

        Raises:
            ValueError: The arrays are not those of a residual.
        """
        if set(arrays) != {item.name for item in fields(cls)}:
            raise ValueError(f"a residual has no such arrays: {', '.join(sorted(arrays))}")
        return cls(**arrays)


def fit(evidence: Iterable[Evidence], *, at_seconds: float) -> Residual:
    """Return the correction that verified changes suggest at a time; evidence fades as it does for trust."""
    known = [one for one in evidence if math.isfinite(one.twin_score)]
    if not known:
        return Residual()
    faded = np.array([one.faded(at_seconds) for one in known])
    contexts = np.array([one.context or (math.nan,) * CONTEXT_COMPONENTS for one in known])
    centre = _means(contexts, faded)
    promised = np.array([one.twin_score for one in known])
    moved = np.array([one.moved for one in known])
    rows = np.vstack(
        [_features(promised[[row]], moved[[row]], tuple(contexts[row]), centre) for row in range(len(known))]
    )
    excess = np.array([one.observed_score for one in known]) - promised
    errors = np.hypot([one.noise for one in known], MISFIT)
    return Residual(centre=centre, coefficients=_regress(rows, excess, errors, faded))


def displacement(before: KnobValues, after: KnobValues, specs: Iterable[KnobSpec]) -> FloatArray:
    """Return how far each knob moves in units of its range, shape (4,), in the order of `Role`; 0 where absent."""
    roles, moved = list(Role), np.zeros(_ROLES)
    for spec in specs:
        if spec.role in before and spec.role in after:
            moved[roles.index(spec.role)] = (after[spec.role] - before[spec.role]) / (spec.high - spec.low)
    return moved


def _regress(rows: FloatArray, excess: FloatArray, errors: FloatArray, faded: FloatArray) -> FloatArray:
    """Return the coefficients, from features, what was off, its errors, and the weights."""
    prior = np.diag(_SPREADS**-2)
    coefficients = np.zeros(FEATURES)
    for _ in range(_ROUNDS):
        wild = ((excess - rows @ coefficients) / errors) ** 2
        robust = (DEGREES + 1.0) / (DEGREES + wild)
        weights = faded * robust / errors**2
        learned = (rows.T * weights) @ rows
        coefficients[:] = np.linalg.solve(learned + prior, rows.T @ (weights * excess))
    return coefficients


def _features(scores: FloatArray, moved: FloatArray, context: Sequence[float], centre: FloatArray) -> FloatArray:
    """Return the features of changes, shape (C, 12), each bounded by what evidence can have been like."""
    load = np.array(context or (math.nan,) * CONTEXT_COMPONENTS)
    away = np.nan_to_num(np.clip(load - centre, -1.0, 1.0))
    promise = np.nan_to_num(scores)[:, None]
    count = len(scores)
    return np.hstack([np.ones((count, 1)), promise, np.clip(moved, -1.0, 1.0), np.tile(away, (count, 1))])


def _means(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the weighted mean of each column, over what is known of it; NaN where nothing is."""
    known = np.isfinite(values)
    total = (known * weights[:, None]).sum(axis=0)
    sums = (np.where(known, values, 0.0) * weights[:, None]).sum(axis=0)
    means: FloatArray = np.divide(sums, total, out=np.full(values.shape[1], np.nan), where=total > 0)
    return means
