"""Ring buffers of samples on a grid of whole steps.

A column is named by its time, a multiple of the step. It holds the newest sample of the step that ends there, so it
never knows more than an observer at that time could; the last column is the last full step.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuner.values.stages import STEP_SECONDS, FloatArray, SeriesFrame


def last_full_step(at_seconds: float, *, step_seconds: float = STEP_SECONDS) -> float:
    """Return the time of the last grid point at or before a time."""
    return math.floor(at_seconds / step_seconds) * step_seconds


class Window:
    """The last columns of some series; rows can be added and fade out."""

    def __init__(self, columns: int, *, names: Sequence[str] = (), step_seconds: float = STEP_SECONDS) -> None:
        """Start with no samples.

        Args:
            columns: Number of grid points kept; >= 1.
            names: Series known from the start, unique.
            step_seconds: Distance of the grid points; > 0.
        """
        self.step_seconds: Final = step_seconds
        self.end_at_seconds = -math.inf
        self._rows = {name: row for row, name in enumerate(names)}
        self._values: FloatArray = np.full((len(self._rows), columns), np.nan)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the rows, in their order."""
        return tuple(self._rows)

    @property
    def columns(self) -> int:
        """Number of grid points kept."""
        count: int = self._values.shape[1]
        return count

    @property
    def start_at_seconds(self) -> float:
        """Time of the first column."""
        return self.end_at_seconds - (self.columns - 1) * self.step_seconds

    def advance(self, end_at_seconds: float) -> None:
        """Move the last column to a grid point; what falls out is forgotten.

        Moving back forgets everything: the clock was corrected, and columns that lay ahead cannot be trusted.
        """
        shift = (end_at_seconds - self.end_at_seconds) / self.step_seconds
        if shift < 0 or shift >= self.columns:
            self._values[:] = np.nan
        elif shift > 0:
            kept = round(shift)
            self._values[:, :-kept] = self._values[:, kept:]
            self._values[:, -kept:] = np.nan
        self.end_at_seconds = end_at_seconds

    def add_rows(self, names: Sequence[str]) -> None:
        """Give rows to series that have none; rows are kept in the order of their names."""
        fresh = [name for name in dict.fromkeys(names) if name not in self._rows]
        if not fresh:
            return
        rows = {name: row for row, name in enumerate(sorted([*self._rows, *fresh]))}
        values = np.full((len(rows), self.columns), np.nan)
        values[[rows[name] for name in self._rows]] = self._values
        self._rows, self._values = rows, values

    def drop_empty_rows(self) -> None:
        """Forget series that have no sample left in the window."""
        kept = ~np.isnan(self._values).all(axis=1)
        if not kept.all():
            self._rows = {name: row for row, name in enumerate(np.array(self.names)[kept].tolist())}
            self._values = self._values[kept]

    def rows(self, names: Sequence[str]) -> NDArray[np.intp]:
        """Return the index of the row of each name; KeyError where there is none."""
        return np.fromiter((self._rows[name] for name in names), dtype=np.intp, count=len(names))

    def place(self, rows: NDArray[np.intp], times_seconds: FloatArray, values: FloatArray) -> None:
        """Put samples into their columns; of several in one column the newest stays.

        Args:
            rows: Index of the row of each sample.
            times_seconds: Shape (samples,); those outside the window are ignored.
            values: Shape (samples,); those that are NaN are ignored: no sample never wipes one out.
        """
        # A thousandth of a step is forgiven: times travel as text with milliseconds.
        ahead = np.ceil((times_seconds - self.end_at_seconds) / self.step_seconds - 1e-3)
        columns = ahead + (self.columns - 1)
        usable = (columns >= 0) & (columns < self.columns) & ~np.isnan(values)
        order = np.argsort(times_seconds[usable], kind="stable")
        # numpy keeps the last of several values for one cell, which is the newest here.
        self._values[rows[usable][order], columns[usable][order].astype(np.intp)] = values[usable][order]

    def forget(self, name: str, columns: int) -> None:
        """Forget the last columns of one series; KeyError where there is none of that name."""
        self._values[self._rows[name], -columns:] = np.nan

    def frame(self) -> SeriesFrame:
        """Return a copy of what is known, without the leading columns in which there is nothing at all."""
        known = ~np.isnan(self._values).all(axis=0)
        first = int(known.argmax()) if known.any() else self.columns - 1
        return SeriesFrame(self.names, self.end_at_seconds, self._values[:, first:].copy(), self.step_seconds)

    def coverage_ratio(self, columns: int) -> FloatArray:
        """Return the share of the last columns that hold a sample, shape (rows,)."""
        share: FloatArray = (~np.isnan(self._values[:, -columns:])).mean(axis=1)
        return share

    def newest(self) -> tuple[FloatArray, FloatArray]:
        """Return the newest value of each row and its time, both shape (rows,); NaN where there is none."""
        known = ~np.isnan(self._values)
        column = self.columns - 1 - known[:, ::-1].argmax(axis=1)
        values = self._values[np.arange(len(column)), column]
        times = self.start_at_seconds + column * self.step_seconds
        return values, np.where(known.any(axis=1), times, np.nan)
