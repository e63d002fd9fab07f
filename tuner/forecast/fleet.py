"""A fleet: all series of one kind, forecast together, with what was learned of each of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tuner.errors import ForecastFailed
from tuner.forecast.batch import SCORED_STEPS, Batch, BoolArray, IntArray
from tuner.forecast.calibration import Calibration
from tuner.forecast.forecaster import Forecaster
from tuner.forecast.naive import LastValue
from tuner.forecast.selection import Choice, Selection
from tuner.values.rounding import significant
from tuner.values.stages import FloatArray

DIGITS: Final = 5
"""Significant digits that changes from the last value keep: vector units differ in later ones, decisions must not."""


PRIOR_RATIOS: Final = {"lstm": (0.9, 0.85), "damped_trend": (1.05, 1.02)}
"""Loss of median and spread over last value's that a member is believed to have before it has shown its own (rounded
from the training parts of the shipped traces); 1 for the others."""


@dataclass(frozen=True, slots=True)
class Served:
    """What a fleet hands out for one origin.

    Attributes:
        quantiles: Shape (series, horizon, 3): ordered, finite.
        median: Member that the median is from, shape (series,); the first where the chosen one had no answer.
        spread: The same of the outer quantiles.
        answered: Whether each member answered for any series.
    """

    quantiles: FloatArray
    median: IntArray
    spread: IntArray
    answered: tuple[bool, ...]


@dataclass(slots=True)
class _Pending:
    """Forecasts whose truth is not known yet."""

    step: int
    batch: Batch
    members: FloatArray
    raw: FloatArray
    served: FloatArray


class Fleet:
    """Members, choice, calibration and open windows of a set of series.

    Attributes:
        selection: The rolling choice.
        calibration: The factors on the spread.
    """

    def __init__(self, members: Sequence[Forecaster], *, series: int = 0) -> None:
        """Start with nothing learned.

        Args:
            members: The first is last value, to which rows without an answer fall.
            series: Number of series.
        """
        self.members = tuple(members)
        names = tuple(member.name for member in members)
        prior = np.array([PRIOR_RATIOS.get(name, (1.0, 1.0)) for name in names])
        self.selection = Selection(names, series=series, prior=prior)
        self.calibration = Calibration()
        self._pending: _Pending | None = None

    def reindex(self, before: IntArray) -> None:
        """Follow the series to new rows; -1 marks new ones. Open windows of series that went are dropped."""
        if np.array_equal(before, np.arange(len(self.selection.drifted))):
            return
        self.selection.reindex(before)
        if self._pending is not None:
            # Windows of no series at all have nothing to be moved from.
            self._pending = _moved(self._pending, before) if len(self._pending.batch) else None

    def due_at(self, step: int) -> int | None:
        """Return the origin of the windows that can be closed now; None where nothing is due.

        Windows that were opened later than now, by a clock that was set back since, are dropped.
        """
        if self._pending is not None and step < self._pending.step:
            self._pending = None
        if self._pending is not None and step - self._pending.step >= SCORED_STEPS:
            return self._pending.step
        return None

    def close(self, actual: FloatArray) -> Batch | None:
        """Learn from the open windows, and return them; None where there are none.

        Args:
            actual: What followed their origin, shape (series, SCORED_STEPS); NaN where no sample was had.
        """
        pending = self._pending
        if pending is None:
            return None
        self._pending = None
        self.selection.close(pending.members, actual, pending.served)
        self.calibration.close(pending.served, pending.raw, actual, pending.batch.whole)
        return pending.batch

    def forecast(self, batch: Batch, *, step: int, answers: Sequence[FloatArray | None] | None = None) -> Served:
        """Return the quantiles for a batch, one row a series of the fleet.

        Args:
            batch: The series at their origins.
            step: Number of the origin; while no windows are open, those of this origin are kept for learning.
            answers: What the members say, where it is known already; they are asked where absent.
        """
        if answers is None:
            answers = [ask(member, self._without_stale_profile(batch)) for member in self.members]
        shape = (len(batch), batch.horizon, 3)
        members = np.stack([np.full(shape, np.nan) if one is None else one for one in answers], axis=1)
        answered = np.isfinite(members[:, :, 0, 0])
        choice = self.selection.choose().among(answered)
        raw = combine(members, choice, batch)
        served = finish(self.calibration.apply(raw, batch.whole), batch, count_margin=self.calibration.count_margin)
        if self._pending is None:
            self._pending = _Pending(step, batch, members, raw, served)
        return Served(served, choice.median, choice.spread, tuple(bool(one) for one in answered.any(axis=0)))

    def _without_stale_profile(self, batch: Batch) -> Batch:
        """Hide yesterday from series whose behaviour has just changed: it is no guide to today."""
        drifted = self.selection.drifted[:, None]
        if not drifted.any():
            return batch
        yesterday, typical = (np.where(drifted, np.nan, day) for day in (batch.yesterday, batch.typical))
        return replace(batch, yesterday=yesterday, typical=typical)


def ask(member: Forecaster, batch: Batch) -> FloatArray | None:
    """Return a member's answer with rows that are not finite turned to NaN throughout; None where it has none."""
    if len(batch) == 0:
        return np.empty((0, batch.horizon, 3))
    try:
        answer = member.forecast(batch)
    except ForecastFailed:
        return None
    good: BoolArray = np.all(np.isfinite(answer), axis=(1, 2))
    if member.name != LastValue.name:
        good &= batch.trusted
    return np.where(good[:, None, None], answer, np.nan) if not good.all() else answer


def combine(members: FloatArray, choice: Choice, batch: Batch) -> FloatArray:
    """Return the median of one member with the outer quantiles of another, bounded and ordered.

    Args:
        members: Shape (series, members, horizon, 3); finite for the chosen ones.
        choice: Member in charge of each part.
        batch: The series.
    """
    rows = np.arange(len(batch))
    centre, spread = members[rows, choice.median][..., 1], members[rows, choice.spread]
    quantiles = np.stack([np.minimum(spread[..., 0], centre), centre, np.maximum(spread[..., 2], centre)], axis=-1)
    return bound(quantiles, batch)


def bound(quantiles: FloatArray, batch: Batch) -> FloatArray:
    """Keep forecasts within what is possible, and within what the series was ever seen to do."""
    window = np.ptp(batch.window, axis=1)
    reach = np.maximum(2 * window, 2 * batch.reach)[:, None, None]
    last = batch.last[:, None, None]
    inside = np.clip(quantiles, last - reach, last + reach)
    return np.clip(inside, batch.floor[:, None, None], batch.ceiling[:, None, None])


def finish(quantiles: FloatArray, batch: Batch, *, count_margin: float = 0.0) -> FloatArray:
    """Round, bound and order: what leaves the package.

    Args:
        quantiles: Shape (series, horizon, 3).
        batch: The series.
        count_margin: Taken off the highest quantile of counts before it is rounded: see `Calibration`.
    """
    last = batch.last[:, None, None]
    rounded = last + significant(quantiles - last, DIGITS)
    whole = batch.whole[:, None, None]
    rounded = np.where(whole, np.round(rounded - [0.0, 0.0, count_margin]), rounded)
    clipped = np.clip(rounded, batch.floor[:, None, None], batch.ceiling[:, None, None])
    ordered: FloatArray = np.maximum.accumulate(clipped, axis=-1)
    return ordered


def _moved(pending: _Pending, before: IntArray) -> _Pending:
    source, new = np.maximum(before, 0), before < 0
    moved = _Pending(
        pending.step,
        pending.batch.take(source),
        pending.members[source],
        pending.raw[source],
        pending.served[source],
    )
    # A series that was not there has nothing to close: NaN never counts, and what is not known is not trusted.
    moved.batch.known[new] = 0.0
    for values in (moved.members, moved.raw, moved.served):
        values[new] = np.nan
    return moved
