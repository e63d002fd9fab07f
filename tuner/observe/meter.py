"""A source that is watched: what a cycle asked, what it cost, and what the answers said against themselves."""

import math
import time
from collections.abc import Callable
from typing import Final

from tuner.errors import TunerError
from tuner.observe.source import Answer, Source

MAX_QUERIES: Final = 14
"""Requests that one cycle or guard tick may cost the metrics server, as long as nothing has to be read anew."""


class MeteredSource:
    """Passes questions on to a source and keeps count until it is reset.

    Attributes:
        queries: Requests since the last reset.
        bytes_read: Bytes of answers since the last reset.
        seconds: Time that each question took.
        warnings: What sources said against their answers.
        duplicates: Samples that came twice.
        clock_offset_seconds: Newest known difference of the clocks; NaN where none is known.
    """

    def __init__(self, source: Source, *, max_seconds: float = math.inf) -> None:
        """Start to count.

        Args:
            source: What is watched.
            max_seconds: Time after a reset in which questions may be asked; see `remaining`.
        """
        self._source: Final = source
        self._max_seconds: Final = max_seconds
        self.fuses: Final = source.fuses
        self.reset()

    def reset(self) -> None:
        """Start to count for a new cycle."""
        self._started = time.perf_counter()
        self.queries = 0
        self.bytes_read = 0
        self.seconds: list[float] = []
        self.warnings: dict[str, None] = {}
        self.duplicates = 0
        self.clock_offset_seconds = math.nan

    @property
    def remaining(self) -> int:
        """Requests that are left in this cycle: none once its time is used up."""
        if time.perf_counter() - self._started >= self._max_seconds:
            return 0
        return max(MAX_QUERIES - self.queries, 0)

    def range(self, expression: str, *, start_seconds: float, end_seconds: float, step_seconds: float) -> Answer:
        """Evaluate over a range; see `Source`."""
        return self._watch(
            lambda: self._source.range(
                expression, start_seconds=start_seconds, end_seconds=end_seconds, step_seconds=step_seconds
            )
        )

    def instant(self, expression: str, *, at_seconds: float) -> Answer:
        """Evaluate at one time; see `Source`."""
        return self._watch(lambda: self._source.instant(expression, at_seconds=at_seconds))

    def _watch(self, ask: Callable[[], Answer]) -> Answer:
        started = time.perf_counter()
        try:
            answer = ask()
        except TunerError:
            self.queries += 1
            raise
        finally:
            self.seconds.append(time.perf_counter() - started)
        self.queries += answer.queries
        self.bytes_read += answer.bytes_read
        self.warnings |= dict.fromkeys(answer.warnings)
        self.duplicates += answer.duplicates
        if not math.isnan(answer.clock_offset_seconds):
            self.clock_offset_seconds = answer.clock_offset_seconds
        return answer
