"""Calibration: what share of the truths lay inside the spread, and the factor that mends it.

Split-conformal in spirit (Vovk et al. 2005): the factor on a half-width is the quantile of the closed windows' own
nonconformity, distance of the truth from the median in half-widths. It is refitted only when the coverage has left
its band, apart for counts, and it is bounded, so that calibration can never blow a forecast up.
"""

from typing import Final

import numpy as np

from tuner.forecast.batch import SCORED_STEPS, BoolArray
from tuner.values.stages import FloatArray

KEPT_WINDOWS: Final = 500
"""Closed windows that are remembered at least, of each kind; more where more close at once."""

LEAST_WINDOWS: Final = 200
"""Closed windows before the factor is fitted."""

COVERAGE_BAND: Final = (0.77, 0.83)
"""Coverage that needs no mending where values are continuous; aim 0.8."""

COVERAGE_BAND_WHOLE: Final = (0.78, 0.95)
"""The same for counts: their quantiles fall on atoms, so that 0.9 is normal."""

FACTOR_RANGE: Final = (0.7, 2.0)
"""Bounds of the factors."""

FACTOR_RANGE_WHOLE: Final = (1.0, 2.0)
"""The same for counts, which are only ever widened: while they stand still, any spread covers too much."""

COUNT_MARGINS: Final = (0.2, 0.8)
"""Bounds of the margin of counts: their highest quantile is rounded up from 0.7 of a whole one, or hardly ever."""

COUNT_MARGIN_STEP: Final = 0.02
"""Change of that margin whenever windows close."""

COVERAGE_AIM_WHOLE: Final = (0.90, 0.945)
"""Coverage of counts within which the margin stays as it is."""


class Calibration:
    """Factors on the half-widths, below and above the median, for continuous series and for counts.

    Counts that mostly stand still are covered too often, whatever the width: half a task more is rounded up to a whole
    one. They are mended by a margin that is taken off the highest quantile before it is rounded.

    Attributes:
        factors: Shape (2, 2): row 0 for continuous series, row 1 for counts; below and above.
        count_margin: What is taken off the highest quantile of counts.
    """

    def __init__(self) -> None:
        self.factors = np.ones((2, 2))
        self.count_margin = COUNT_MARGINS[0]
        self._scores: tuple[list[FloatArray], list[FloatArray]] = ([], [])
        self._inside = np.zeros(2)
        self._count = np.zeros(2)

    @property
    def coverage(self) -> FloatArray:
        """Share of truths inside the spread that was handed out, decayed, shape (2,); NaN while nothing has closed."""
        return np.where(self._count > 0, self._inside / np.maximum(self._count, 1e-12), np.nan)

    def close(self, served: FloatArray, raw: FloatArray, actual: FloatArray, whole: BoolArray) -> None:
        """Learn from closed windows.

        Args:
            served: Quantiles that were handed out, shape (series, horizon, 3).
            raw: The same before the factors.
            actual: Truths, shape (series, steps); NaN where unknown.
            whole: Whether each series counts things, shape (series,).
        """
        actual = actual[:, :SCORED_STEPS]
        served, raw = served[:, : actual.shape[1]], raw[:, : actual.shape[1]]
        known = np.isfinite(actual) & np.isfinite(served[..., 1])
        inside = known & (actual >= served[..., 0]) & (actual <= served[..., 2])
        for kind in (0, 1):
            rows = (whole == bool(kind)) & known.any(axis=1)
            if not rows.any():
                continue
            # Old windows fade with the weight of those that close now: big fleets forget as fast as small ones.
            keep = max(1 - rows.sum() / KEPT_WINDOWS, 0.0)
            self._inside[kind] = self._inside[kind] * keep + inside[rows].sum()
            self._count[kind] = self._count[kind] * keep + known[rows].sum()
            self._remember(kind, _nonconformity(raw[rows], actual[rows]))
            self._refit(kind)
            if kind:
                self._round_less_or_more()

    def apply(self, quantiles: FloatArray, whole: BoolArray) -> FloatArray:
        """Return quantiles with the half-widths mended, shape (series, horizon, 3)."""
        low, high = self.factors[whole.astype(np.int64)].T[..., None]
        median = quantiles[..., 1]
        return np.stack(
            [median - low * (median - quantiles[..., 0]), median, median + high * (quantiles[..., 2] - median)], axis=-1
        )

    def _remember(self, kind: int, scores: FloatArray) -> None:
        kept = self._scores[kind]
        kept.append(scores)
        while sum(len(one) for one in kept[1:]) >= KEPT_WINDOWS:
            kept.pop(0)

    def _refit(self, kind: int) -> None:
        low, high = (COVERAGE_BAND, COVERAGE_BAND_WHOLE)[kind]
        if low <= self.coverage[kind] <= high:
            return
        if kind and self.coverage[kind] > high:
            # Scores tell of windows with a spread alone: they may ask for more of it even though too much is covered.
            self.factors[kind] = 1.0
            return
        scores = np.concatenate(self._scores[kind])
        known = np.isfinite(scores[..., 0])
        if len(scores) >= LEAST_WINDOWS and known.any():
            fitted = np.quantile(scores[known], 0.9, axis=0)
            self.factors[kind] = np.clip(fitted, *(FACTOR_RANGE, FACTOR_RANGE_WHOLE)[kind])

    def _round_less_or_more(self) -> None:
        low, high = COVERAGE_AIM_WHOLE
        step = COUNT_MARGIN_STEP * (int(self.coverage[1] > high) - int(self.coverage[1] < low))
        self.count_margin = float(np.clip(self.count_margin + step, *COUNT_MARGINS))


def _nonconformity(raw: FloatArray, actual: FloatArray) -> FloatArray:
    """Return the distance of truths from the median in half-widths, below and above; NaN where it says nothing."""
    median = raw[..., 1]
    below, above = median - raw[..., 0], raw[..., 2] - median
    with np.errstate(invalid="ignore", divide="ignore"):
        scores = np.stack([(median - actual) / below, (actual - median) / above], axis=-1)
    return np.where((below > 0)[..., None] & (above > 0)[..., None], scores, np.nan)
