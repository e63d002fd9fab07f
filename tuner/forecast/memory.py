"""Memory of the samples that were seen: one ring of steps a series, whatever history an observation brings along."""

from typing import Final

import numpy as np

from tuner.forecast.batch import IntArray, usable
from tuner.values.stages import FloatArray, SeriesFrame

FORGET_ROWS: Final = 30_000
"""Series that are kept at most, the present ones first: nodes that come and go must not fill the memory."""

JITTER_STEPS: Final = 2
"""Steps that a frame may end before the newest and still only be late; beyond, the clock was set back."""


class Memory:
    """The last steps of every series that was seen, oldest first.

    Attributes:
        names: Series, in the order of the rows; the newest frame's come first.
        values: Shape (series, steps); NaN where no sample was had.
        end_step: Number of the last column: its time over `step_seconds`; -1 while nothing was seen.
    """

    def __init__(self, *, steps: int, step_seconds: float) -> None:
        self.names: tuple[str, ...] = ()
        self.values: FloatArray = np.empty((0, steps))
        self.end_step = -1
        self._steps = steps
        self._step_seconds = step_seconds

    def merge(self, frame: SeriesFrame) -> IntArray:
        """Take in a frame: new steps are appended, known steps only filled where a sample was missing.

        Args:
            frame: Series on this memory's grid of steps. A frame that ends a little before the newest step only fills
                gaps. After one that ends long before it (a clock that was set back) what lay beyond is forgotten:
                the newest sample would else stay what a wrong clock called the newest.

        Returns:
            For each row as it is now, the row that held the same series before; -1 for new ones.
        """
        before = self._adopt(frame.names)
        end_step = round(frame.end_at_seconds / self._step_seconds)
        if end_step > self.end_step:
            self._shift(end_step - self.end_step)
            self.end_step = end_step
        if self.end_step - end_step > JITTER_STEPS:
            self._rewind(self.end_step - end_step)
            self.end_step = end_step
        back = self.end_step - end_step
        columns = min(frame.values.shape[1], self._steps - back)
        if columns > 0:
            target = self.values[: len(frame.names), self._steps - back - columns : self._steps - back]
            fresh = usable(frame.values[:, frame.values.shape[1] - columns :])
            np.copyto(target, fresh, where=np.isfinite(fresh))
        return before

    def _adopt(self, names: tuple[str, ...]) -> IntArray:
        if names == self.names[: len(names)]:
            return np.arange(len(self.names))
        rows = {name: row for row, name in enumerate(self.names)}
        present = set(names)
        absent = [name for name, row in rows.items() if name not in present and np.isfinite(self.values[row]).any()]
        self.names = (*names, *absent[: max(FORGET_ROWS - len(names), 0)])
        before = np.array([rows.get(name, -1) for name in self.names], dtype=np.int64)
        values = np.full((len(self.names), self._steps), np.nan)
        values[before >= 0] = self.values[before[before >= 0]]
        self.values = values
        return before

    def _shift(self, steps: int) -> None:
        kept = max(self._steps - steps, 0)
        if self.end_step >= 0 and kept:
            self.values[:, :kept] = self.values[:, self._steps - kept :].copy()
        self.values[:, kept if self.end_step >= 0 else 0 :] = np.nan

    def _rewind(self, steps: int) -> None:
        kept = max(self._steps - steps, 0)
        self.values[:, self._steps - kept :] = self.values[:, :kept].copy()
        self.values[:, : self._steps - kept] = np.nan
