"""The work that a replay submits: frozen arrays, one entry a task, sorted by time of submission."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tuner.errors import TraceError
from tuner.values.context import TASK_CLASSES

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]

NO_MODEL: Final = -1
"""Model number of tasks that need none."""


class TaskKind(IntEnum):
    """Index of a task's class in `TASK_CLASSES`."""

    PREPROCESSING = TASK_CLASSES.index("preprocessing")
    TRAINING = TASK_CLASSES.index("training")
    INFERENCE = TASK_CLASSES.index("inference")


class Priority(IntEnum):
    """How much a task matters; the value is its row in per-priority arrays."""

    LOW = 0
    """Deferrable: may be held until a better time."""
    NORMAL = 1
    HIGH = 2
    """Protected: dispatched in every mode, and may use the reserve."""


PRIORITY_NAMES: Final[tuple[str, ...]] = tuple(priority.name.lower() for priority in Priority)
"""Label of each priority, in order."""

_INTEGERS: Final = ("kind", "priority", "model", "zone")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Tasks in order of submission; all arrays have shape (tasks,), and are made read-only copies.

    Attributes:
        submit_seconds: When a task is submitted and ready, seconds since the start of the replay; >= 0, ascending.
        service_seconds: Run time alone, at full speed, on what it asks for; > 0.
        gpus: Accelerators asked for: 0 for pre-processing; under 1 a share; over 1 a gang (rounded up to whole ones).
        kind: `TaskKind`.
        priority: `Priority`.
        patience_seconds: How long it waits for its start before it is given up; > 0, infinity for "for ever".
        model: Number of the model that an inference request belongs to, `NO_MODEL` for none.
        zone: Number of its home zone, where its data lies; taken modulo the zones of the cluster.
    """

    submit_seconds: FloatArray
    service_seconds: FloatArray
    gpus: FloatArray
    kind: IntArray
    priority: IntArray
    patience_seconds: FloatArray
    model: IntArray
    zone: IntArray

    def __post_init__(self) -> None:
        """Take read-only copies and refuse what cannot be replayed.

        Raises:
            TraceError: Lengths differ or a value is out of its range; the message lists every problem.
        """
        for column in _columns():
            kind = np.int64 if column in _INTEGERS else np.float64
            array = np.array(getattr(self, column), dtype=kind)
            array.setflags(write=False)
            object.__setattr__(self, column, array)
        problems = _shape_problems(self) or _value_problems(self)
        if problems:
            raise TraceError("workload cannot be replayed: " + "; ".join(problems))

    def __len__(self) -> int:
        """Return the number of tasks."""
        return int(self.submit_seconds.size)

    @property
    def span_seconds(self) -> float:
        """Time of the last submission; 0 for an empty workload."""
        return float(self.submit_seconds[-1]) if len(self) else 0.0

    @property
    def models(self) -> int:
        """Number of models: one more than the largest model number."""
        return int(self.model.max(initial=NO_MODEL)) + 1

    def demand_seconds(self) -> FloatArray:
        """Return each task's accelerator-seconds at full speed: service times accelerators, whole ones for gangs.

        A share counts as a whole accelerator for its service time: the run time of a time-shared task is what it
        needs of an accelerator's time, while its share says how much memory it holds.
        """
        held = np.where(self.gpus > 1, np.ceil(self.gpus), np.minimum(np.ceil(self.gpus), 1.0))
        demand: FloatArray = self.service_seconds * held
        return demand

    def columns(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays by name, as the constructor takes them."""
        return {column: getattr(self, column) for column in _columns()}


def _columns() -> tuple[str, ...]:
    return tuple(item.name for item in fields(Workload))


def _shape_problems(work: Workload) -> list[str]:
    shapes = {column: getattr(work, column).shape for column in _columns()}
    expected = work.submit_seconds.shape
    if len(expected) != 1:
        return [f"submit_seconds has shape {expected}, must have one dimension"]
    return [f"{name} has shape {shape}, must be {expected}" for name, shape in shapes.items() if shape != expected]


def _value_problems(work: Workload) -> list[str]:
    on_cpu = work.kind == TaskKind.PREPROCESSING
    checks = {
        "submit_seconds must be finite and 0 or more": ~(np.isfinite(work.submit_seconds) & (work.submit_seconds >= 0)),
        "service_seconds must be finite and over 0": ~(np.isfinite(work.service_seconds) & (work.service_seconds > 0)),
        "gpus must be finite and 0 or more": ~(np.isfinite(work.gpus) & (work.gpus >= 0)),
        f"kind must be 0..{len(TASK_CLASSES) - 1}": (work.kind < 0) | (work.kind >= len(TASK_CLASSES)),
        "priority must be 0, 1 or 2": (work.priority < Priority.LOW) | (work.priority > Priority.HIGH),
        "patience_seconds must be over 0 (infinity for none)": ~(work.patience_seconds > 0),
        "model must be -1 or more": work.model < NO_MODEL,
        "zone must be 0 or more": work.zone < 0,
        "pre-processing must ask for 0 gpus": on_cpu & (work.gpus != 0),
        "training and inference must ask for gpus": ~on_cpu & (work.gpus == 0),
        "inference must ask for at most 1 gpu": (work.kind == TaskKind.INFERENCE) & (work.gpus > 1),
        "submit_seconds must ascend": np.diff(work.submit_seconds, prepend=0.0) < 0,
    }
    return [f"{rule}, broken first by task {int(np.argmax(bad))}" for rule, bad in checks.items() if bad.any()]
