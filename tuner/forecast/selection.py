"""Whom to trust, series by series: rolling choice of members by the quantile loss of their own closed windows.

Three ideas keep the choice from doing harm:

* Median and spread are chosen separately. Queues move like martingales, so that last value's median with a learned
  spread is their usual outcome.
* A challenger's median must be 2 % better than last value, and what a series has not yet shown is filled up with
  what the fleet has shown (a prior worth twenty windows, for the spread sixty).
* When the error of a series jumps (Page-Hinkley), what was learned of it before is dropped.

All state is arrays over series, so that a step costs the same few NumPy calls for ten series or ten thousand.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.forecast.batch import SCORED_STEPS, BoolArray, IntArray
from tuner.values.stages import QUANTILES, FloatArray

DECAY: Final = 0.99
"""Weight that a closed window keeps when the next one closes: half is gone after 69 windows, about 17 hours."""

DECAY_AFTER_DRIFT: Final = 0.8
"""The same while a shift is recent: half is gone after three windows."""

PRIOR_WINDOWS: Final = (20.0, 60.0)
"""Closed windows that the fleet's mean counts for in the choice of each series, of median and spread: losses of a
spread are rare and large, so that a series needs more of them to speak for itself."""

MIN_GAIN_RATIO: Final = (0.02, 0.0)
"""A challenger must be this much better than last value, in median and spread; smaller differences of the median were
measured to be noise. The spread needs no margin: its larger prior does the same."""

DRIFT_TOLERANCE: Final = 1.0
"""Page-Hinkley: error above its mean, in means, that does not yet count towards an alarm (assumption)."""

DRIFT_CAP: Final = 6.0
"""Page-Hinkley: largest error of one window, in means: a single freak is no shift (assumption)."""

DRIFT_LIMIT: Final = 20.0
"""Page-Hinkley: accumulated excess, in means, that raises the alarm: at least six bad windows. Earlier alarms make
series with rare bursts forget what they had shown (measured on a validation part of the shipped traces)."""

DRIFT_WARM_UP: Final = 8
"""Closed windows before an error can be called unusual."""

DRIFT_WINDOWS: Final = 2
"""Windows for which a shift counts as recent: thirty minutes."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Member in charge of each series: one for the median, one for the spread; shapes (series,)."""

    median: IntArray
    spread: IntArray

    def among(self, answered: BoolArray) -> "Choice":
        """Return the choice with the first member in place of those without an answer, shape (series, members)."""
        rows = np.arange(len(answered))
        return Choice(
            np.where(answered[rows, self.median], self.median, 0), np.where(answered[rows, self.spread], self.spread, 0)
        )


def pinball(forecast: FloatArray, actual: FloatArray) -> FloatArray:
    """Return 2 x pinball loss by quantile, averaged over the steps whose truth is known.

    Args:
        forecast: Shape (..., horizon, 3).
        actual: Shape (..., horizon'), horizon' <= horizon; NaN where the truth is not known.

    Returns:
        Shape (..., 3); NaN where no truth is known.
    """
    levels = np.asarray(QUANTILES)
    error = actual[..., None] - forecast[..., : actual.shape[-1], :]
    loss = 2 * np.maximum(levels * error, (levels - 1) * error)
    known = np.isfinite(loss)
    count = known.sum(axis=-2)
    total = np.where(known, loss, 0.0).sum(axis=-2)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


class Selection:
    """Rolling record of every member's loss on every series, and the choice that follows from it.

    Attributes:
        members: Names of the members; the first is last value, which all others must beat.
        drifted: Whether the error of a series jumped within the last thirty minutes, shape (series,).
    """

    def __init__(self, members: tuple[str, ...], *, series: int, prior: FloatArray | None = None) -> None:
        """Start with nothing closed.

        Args:
            members: Names; the first is the one to beat.
            series: Number of series.
            prior: Expected loss ratios to the first member, shape (members, 2), for median and spread, until the
                fleet has shown its own; ones where absent.
        """
        self.members = members
        self._prior = np.ones((len(members), 2)) if prior is None else np.asarray(prior, dtype=np.float64)
        self._loss = np.zeros((series, len(members), 2))
        self._weight = np.zeros(series)
        self._mean = np.zeros(series)
        self._seen = np.zeros(series)
        self._excess = np.zeros(series)
        self._recent = np.zeros(series)
        self._earned = np.zeros((series, 2))

    @property
    def drifted(self) -> BoolArray:
        """Whether the error of a series jumped within the last thirty minutes, shape (series,)."""
        return self._recent > 0

    def reindex(self, before: IntArray) -> None:
        """Follow the series to new rows.

        Args:
            before: For each new row its old one; -1 for series that are new.
        """
        old = before >= 0
        for name in ("_loss", "_weight", "_mean", "_seen", "_excess", "_recent", "_earned"):
            values = getattr(self, name)
            moved = np.zeros((len(before), *values.shape[1:]))
            moved[old] = values[before[old]]
            setattr(self, name, moved)

    def close(self, forecasts: FloatArray, actual: FloatArray, served: FloatArray) -> None:
        """Learn from windows whose truth is now known.

        Args:
            forecasts: What each member had said, shape (series, members, horizon, 3); NaN where it had no answer.
            actual: What came, shape (series, steps); NaN where no sample was had.
            served: What was handed out, shape (series, horizon, 3).
        """
        actual = actual[:, :SCORED_STEPS]
        loss = _by_part(forecasts, actual[:, None])
        closed = np.isfinite(loss[:, 0, 0])
        # A member without an answer is taken to have been last value, which is what stood in for it.
        loss = np.where(np.isfinite(loss), loss, loss[:, :1])
        handed = _by_part(served, actual)
        decay = np.where(closed, np.where(self.drifted, DECAY_AFTER_DRIFT, DECAY), 1.0)
        self._loss = self._loss * decay[:, None, None] + np.where(closed[:, None, None], loss, 0.0)
        self._earned = self._earned * decay[:, None] + np.where(closed[:, None], handed, 0.0)
        self._weight = self._weight * decay + closed
        self._detect(handed[:, 0], closed)

    def choose(self) -> Choice:
        """Return the member in charge of each series; last value unless another is clearly better."""
        ratios = self.ratios()
        best = np.argmin(ratios, axis=1)
        gain = 1 - np.take_along_axis(ratios, best[:, None], axis=1)[:, 0]
        chosen = np.where(gain >= np.asarray(MIN_GAIN_RATIO), best, 0)
        return Choice(median=chosen[:, 0], spread=chosen[:, 1])

    def ratios(self) -> FloatArray:
        """Return expected losses over last value's, shape (series, members, 2), prior included."""
        base = self._loss[:, :1]
        shown = np.where(base > 0, self._weight[:, None, None], 0.0)
        own = self._loss / np.where(base > 0, base, 1.0)
        # Series count by what they have shown, and by ratio: a busy series must not speak for the quiet ones.
        prior = np.asarray(PRIOR_WINDOWS)
        fleet = ((shown * own).sum(axis=0) + prior * self._prior) / (shown.sum(axis=0) + prior)
        ratios: FloatArray = (shown * own + prior * fleet) / (shown + prior)
        return ratios

    def error_ratio(self) -> FloatArray:
        """Return the rolling quantile loss of what was handed out over last value's; NaN while nothing has closed."""
        base = self._loss[:, 0].sum(axis=1)
        shown = (self._weight > 0) & (base > 0)
        return np.where(shown, self._earned.sum(axis=1) / np.where(shown, base, 1.0), np.nan)

    def _detect(self, error: FloatArray, closed: BoolArray) -> None:
        """Raise the alarm of Page and Hinkley where the error of the median has jumped (Page 1954; one-sided)."""
        warm = closed & (self._seen >= DRIFT_WARM_UP) & (self._mean > 0)
        size = np.minimum(np.where(warm, error, 0.0) / np.where(self._mean > 0, self._mean, 1.0), DRIFT_CAP)
        self._excess = np.where(warm, np.maximum(self._excess + size - 1 - DRIFT_TOLERANCE, 0.0), self._excess)
        self._seen += closed
        self._mean += np.where(closed, (np.nan_to_num(error) - self._mean) / np.maximum(self._seen, 1), 0.0)
        alarm = self._excess > DRIFT_LIMIT
        self._recent = np.where(alarm, DRIFT_WINDOWS, np.maximum(self._recent - closed, 0))
        for values in (self._excess, self._mean, self._seen, self._weight, self._loss, self._earned):
            values[alarm] = 0.0


def _by_part(forecasts: FloatArray, actual: FloatArray) -> FloatArray:
    """Return the losses of median and spread, shape (..., 2)."""
    loss = pinball(forecasts, actual)
    return np.stack([loss[..., 1], loss[..., 0] + loss[..., 2]], axis=-1)
