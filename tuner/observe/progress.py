"""How far a window has been read: the newest columns first, the older ones behind them until the window is full."""

import math
from collections.abc import Callable, Sequence
from typing import Final

from tuner.errors import TunerError
from tuner.observe.window import Window

_MIN_COLUMNS: Final = 15
"""Fewest columns asked at once, however slow the source is."""


class Progress:
    """Reads a window in pieces.

    A piece that fails is asked again in the next cycle, at half the size; one that succeeds is followed by one of twice
    the size. A day of minutes thus takes four queries of a healthy source, and a source that needs longer than the
    deadline for it gives its history over several cycles. Sizes never depend on the clock, so replays repeat.
    After an outage that was longer than the first piece, everything is read anew.
    """

    def __init__(self, window: Window, *, first_columns: int) -> None:
        """Start with nothing read.

        Args:
            window: The window to fill.
            first_columns: Size of the first piece.
        """
        self._window: Final = window
        self._first_columns: Final = first_columns
        self._columns = first_columns
        self._limit = window.columns
        self._reach: dict[str, tuple[float, float]] = {}

    def forget(self) -> None:
        """Take everything as unread."""
        self._reach.clear()

    def read(
        self,
        names: Sequence[str],
        ask: Callable[[Sequence[str], float, float], None],
        *,
        may_ask: Callable[[], bool],
    ) -> None:
        """Ask for what is new, then for what is older and still unread.

        Args:
            names: What to read. Those that have been read equally far are asked together.
            ask: Asks for some names from one grid point to another, both included, and places the samples.
            may_ask: Whether another question is allowed; the first one is asked in any case.

        Raises:
            TunerError: Asking failed; what was read before stays read.
        """
        groups: dict[tuple[float, float], list[str]] = {}
        for name in names:
            since, until = self._reach.get(name, (math.inf, -math.inf))
            groups.setdefault((max(since, self._window.start_at_seconds), until), []).append(name)
        complete = True
        for number, (reach, group) in enumerate(groups.items()):
            if number > 0 and not may_ask():
                return
            try:
                complete &= self._read(group, reach, ask, may_ask)
            except TunerError:
                self._limit = max(self._columns // 2, _MIN_COLUMNS)
                self._columns = self._limit
                raise
        if complete:
            self._columns, self._limit = self._first_columns, self._window.columns

    def _read(
        self,
        names: Sequence[str],
        reach: tuple[float, float],
        ask: Callable[[Sequence[str], float, float], None],
        may_ask: Callable[[], bool],
    ) -> bool:
        """Read some names; return whether nothing older is left."""
        window, step = self._window, self._window.step_seconds
        since, until = reach
        if until <= window.end_at_seconds - max(self._columns, _MIN_COLUMNS) * step:
            # Nothing is read, or the gap is longer than a piece: begin again with the newest piece.
            since = until = max(window.end_at_seconds - (self._columns - 1) * step, window.start_at_seconds)
        # The last column is read a second time, for samples of it may have come after it was read.
        ask(names, until, window.end_at_seconds)
        self._note(names, since, window.end_at_seconds)
        while since > window.start_at_seconds and may_ask():
            self._columns = min(2 * self._columns, self._limit)
            start = max(since - self._columns * step, window.start_at_seconds)
            ask(names, start, since - step)
            since = start
            self._note(names, since, window.end_at_seconds)
        return since <= window.start_at_seconds

    def _note(self, names: Sequence[str], since: float, until: float) -> None:
        self._reach |= dict.fromkeys(names, (since, until))
