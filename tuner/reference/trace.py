"""A workload together with where it came from: the value that readers make and transformations pass on.

Whatever is done to a trace - cut, compressed, overlaid, assumed - is written down in it, so that no figure is shown
without saying what it was measured on.
"""

from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tuner.reference.workload import NO_MODEL, Priority, TaskKind, Workload

DAY_SECONDS: Final = 86_400.0

UNTOLD: Final = {"priority": Priority.NORMAL, "patience_seconds": np.inf, "model": NO_MODEL, "zone": 0}
"""What a task is like where the source tells nothing: normal, endlessly patient, without a model, at home in zone 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A stretch of one source.

    Attributes:
        source: Name of the source.
        from_seconds: Where the stretch begins, in the source's own time.
        to_seconds: Where it ends.
        compression: Factor by which its time was compressed since.
        at_seconds: Where it begins in the trace that it is part of.
    """

    source: str
    from_seconds: float
    to_seconds: float
    compression: float = 1.0
    at_seconds: float = 0.0

    def between(self, start_seconds: float, end_seconds: float) -> Self | None:
        """Return what is left of it in a trace that is cut to [start, end); None where nothing is."""
        begin = self.from_seconds + max(start_seconds - self.at_seconds, 0.0) * self.compression
        end = min(self.from_seconds + (end_seconds - self.at_seconds) * self.compression, self.to_seconds)
        if end <= begin:
            return None
        return replace(self, from_seconds=begin, to_seconds=end, at_seconds=max(self.at_seconds - start_seconds, 0.0))

    def describe(self) -> str:
        """Return the stretch in words."""
        text = f"{self.source}, day {self.from_seconds / DAY_SECONDS:.2f} to {self.to_seconds / DAY_SECONDS:.2f}"
        return text if self.compression == 1.0 else f"{text}, time compressed {self.compression:.4g} times"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A workload, and where it came from.

    Attributes:
        workload: The tasks; times count from the start of the trace.
        span_seconds: Time that the trace covers; at least that of the last submission.
        parts: Stretches of sources that it is made of.
        told: Names of workload fields that the sources tell; `overlay.assume` leaves them alone.
        notes: What was changed or assumed, in order, one sentence each.
    """

    workload: Workload
    span_seconds: float
    parts: tuple[Part, ...]
    told: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def make_trace(
    source: str,
    *,
    submit_seconds: NDArray[np.float64],
    service_seconds: ArrayLike,
    gpus: ArrayLike,
    kind: ArrayLike = TaskKind.TRAINING,
    notes: tuple[str, ...] = (),
    **told: ArrayLike,
) -> Trace:
    """Return a trace of tasks in any order; what the source does not tell gets its default.

    Args:
        source: Name of the source.
        submit_seconds: When tasks are submitted, from the start of the source, shape (tasks,).
        service_seconds: Run time at full speed.
        gpus: Accelerators asked for.
        kind: `TaskKind`.
        notes: What the reader assumed.
        told: Other fields of `Workload` that the source tells.

    Raises:
        TraceError: The tasks cannot be replayed.
    """
    order = np.argsort(submit_seconds, kind="stable")
    given: dict[str, Any] = UNTOLD | {"service_seconds": service_seconds, "gpus": gpus, "kind": kind} | told
    columns = {name: np.broadcast_to(value, submit_seconds.shape)[order] for name, value in given.items()}
    workload = Workload(submit_seconds=submit_seconds[order], **columns)
    part = Part(source=source, from_seconds=0.0, to_seconds=workload.span_seconds)
    return Trace(
        workload=workload, span_seconds=workload.span_seconds, parts=(part,), told=frozenset(told), notes=notes
    )
