"""The port through which metrics are read.

An answer says not only what was found but also how complete it is and what it cost. A source never invents: what it
does not know is not in its answer, and non-finite values are passed on for the reader to judge.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tuner.values.stages import FloatArray


@dataclass(frozen=True, slots=True)
class Series:
    """Samples of one series.

    Attributes:
        labels: Its labels; `__name__` where the expression keeps it.
        times_seconds: Shape (samples,), Unix seconds, strictly ascending.
        values: Shape (samples,); may hold NaN and infinities.
    """

    labels: Mapping[str, str]
    times_seconds: FloatArray
    values: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a source says to one expression.

    Attributes:
        series: Each set of labels once; empty where nothing is known, which is not an error.
        warnings: What the source says against its own answer, for example that a replica did not reply.
        duplicates: Samples that came a second time for the same series and instant, and were dropped.
        queries: Requests that it took, further tries and split ranges included; 0 where it came from memory.
        bytes_read: Size of the answers, decompressed.
        clock_offset_seconds: Clock of the source less ours, to about a second; NaN where it does not tell.
    """

    series: tuple[Series, ...]
    warnings: tuple[str, ...] = ()
    duplicates: int = 0
    queries: int = 1
    bytes_read: int = 0
    clock_offset_seconds: float = field(default=np.nan)

    @property
    def partial(self) -> bool:
        """Whether something may be missing from it."""
        return bool(self.warnings)

    def __iter__(self) -> Iterator[Series]:
        """Iterate over the series."""
        return iter(self.series)

    def __len__(self) -> int:
        """Return the number of series."""
        return len(self.series)


class Source(Protocol):
    """Where metrics are read.

    Both methods raise `SourceUnavailable` where the source is down, slow or answers nonsense, `QueryRejected` where it
    refuses the expression, and `QueryTooLarge` where the answer exceeds the cap on series or on samples.
    """

    @property
    def fuses(self) -> bool:
        """Whether expressions are PromQL, so that several can be asked as one."""
        ...

    def range(self, expression: str, *, start_seconds: float, end_seconds: float, step_seconds: float) -> Answer:
        """Evaluate an expression at `start`, `start + step`, ... up to and including `end`."""
        ...

    def instant(self, expression: str, *, at_seconds: float) -> Answer:
        """Evaluate an expression at one time; each series of the answer has one sample."""
        ...
