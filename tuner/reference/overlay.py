"""Transformations of traces. Each returns a new trace that says what was done to it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tuner.errors import ConfigError
from tuner.reference.trace import Trace
from tuner.reference.workload import NO_MODEL, Priority, TaskKind, Workload

JITTER_SECONDS: Final = 60.0
"""How far after its original a copied task may be submitted: within one sample of the metrics (assumption)."""


def check_positive(name: str, value: float) -> None:
    """Refuse a factor or length that is not over 0, or not a number.

    Raises:
        ConfigError: It is not.
    """
    if not value > 0:
        raise ConfigError(f"{name} is {value}, must be over 0")


def overlay(base: Trace, *others: Trace) -> Trace:
    """Return the tasks of several traces, submitted side by side.

    The base says how long the result is: what others submit later is left out.
    """
    traces = (base, *(_until(other, base.span_seconds) for other in others))
    names = " + ".join(", ".join(dict.fromkeys(part.source for part in trace.parts)) for trace in traces)
    return Trace(
        workload=_merge([trace.workload for trace in traces]),
        span_seconds=base.span_seconds,
        parts=tuple(part for trace in traces for part in trace.parts),
        told=frozenset.intersection(*(trace.told for trace in traces)),
        notes=(*_all_notes(traces), f"overlaid, not observed together: {names}"),
    )


def join(*traces: Trace) -> Trace:
    """Return traces one after the other, each starting where the span of the one before it ends."""
    starts = np.cumsum([0.0, *(trace.span_seconds for trace in traces)])
    shifted = [_shift(trace.workload, start) for trace, start in zip(traces, starts, strict=False)]
    return Trace(
        workload=_merge(shifted),
        span_seconds=float(starts[-1]),
        parts=tuple(
            replace(part, at_seconds=part.at_seconds + start)
            for trace, start in zip(traces, starts.tolist(), strict=False)
            for part in trace.parts
        ),
        told=frozenset.intersection(*(trace.told for trace in traces)),
        notes=(*_all_notes(traces), f"joined from {len(traces)} traces, one after the other"),
    )


def repeat(trace: Trace, times: int) -> Trace:
    """Return a trace played several times in a row.

    Raises:
        ConfigError: `times` is under 1.
    """
    if times < 1:
        raise ConfigError(f"times is {times}, must be 1 or more")
    work = trace.workload
    columns = {name: np.tile(column, times) for name, column in work.columns().items()}
    columns["submit_seconds"] += np.repeat(np.arange(times) * trace.span_seconds, len(work))
    return replace(
        trace,
        workload=Workload(**columns),
        span_seconds=trace.span_seconds * times,
        notes=(*trace.notes, f"repeated {times} times"),
    )


def fold(trace: Trace, times: int) -> Trace:
    """Return a trace cut into stretches of equal length that are laid over each other: more load in less time.

    Raises:
        ConfigError: `times` is under 1, or a stretch holds no task.
    """
    if times < 1:
        raise ConfigError(f"times is {times}, must be 1 or more")
    length = trace.span_seconds / times
    stretches = [slice_time(trace, index * length, (index + 1) * length) for index in range(times)]
    return replace(
        overlay(*stretches), told=trace.told, notes=(*trace.notes, f"folded: {times} stretches of it at once")
    )


def select(trace: Trace, keep: NDArray[np.bool_], *, note: str) -> Trace:
    """Return the tasks that a mask keeps, with a note that says which."""
    return replace(trace, workload=_take(trace.workload, np.flatnonzero(keep)), notes=(*trace.notes, note))


def compress_time(trace: Trace, factor: float) -> Trace:
    """Return a time-lapse: submissions, run times and patience all divided by a factor, so that the load stays.

    Raises:
        ConfigError: The factor is not over 0.
    """
    check_positive("factor", factor)
    work = trace.workload
    return replace(
        trace,
        workload=replace(
            work,
            submit_seconds=work.submit_seconds / factor,
            service_seconds=work.service_seconds / factor,
            patience_seconds=work.patience_seconds / factor,
        ),
        span_seconds=trace.span_seconds / factor,
        parts=tuple(
            replace(part, compression=part.compression * factor, at_seconds=part.at_seconds / factor)
            for part in trace.parts
        ),
    )


def slice_time(trace: Trace, start_seconds: float, end_seconds: float) -> Trace:
    """Return the tasks submitted in [start, end), with times from the start.

    Raises:
        ConfigError: The stretch is empty, begins before the trace, or holds no task.
    """
    if not 0 <= start_seconds < end_seconds:
        raise ConfigError(f"stretch is {start_seconds} to {end_seconds} s, must begin at 0 or later and end after that")
    work = trace.workload
    first, last = np.searchsorted(work.submit_seconds, (start_seconds, end_seconds))
    if first == last:
        raise ConfigError(
            f"no task is submitted from {start_seconds} to {end_seconds} s; the trace spans {trace.span_seconds} s"
        )
    return replace(
        trace,
        workload=_shift(_take(work, slice(first, last)), -start_seconds),
        span_seconds=end_seconds - start_seconds,
        parts=tuple(left for part in trace.parts if (left := part.between(start_seconds, end_seconds))),
    )


def scale_rate(trace: Trace, factor: float, *, seed: int) -> Trace:
    """Return a trace with another number of tasks of the same kind.

    Below 1 tasks are left out at random. Above 1 tasks are copied, and copies submitted up to `JITTER_SECONDS` later.

    Raises:
        ConfigError: The factor is not over 0.
    """
    check_positive("factor", factor)
    random = np.random.default_rng(seed)
    work = trace.workload
    copies = int(factor) + (random.random(len(work)) < factor % 1.0)
    chosen = np.repeat(np.arange(len(work)), copies)
    is_copy = np.diff(chosen, prepend=-1) == 0
    delay = is_copy * random.uniform(0.0, JITTER_SECONDS, len(chosen))
    taken = _take(work, chosen)
    submit = np.minimum(taken.submit_seconds + delay, max(trace.span_seconds, work.span_seconds))
    columns = {**taken.columns(), "submit_seconds": submit}
    order = np.argsort(submit, kind="stable")
    return replace(
        trace,
        workload=Workload(**{name: column[order] for name, column in columns.items()}),
        notes=(*trace.notes, f"number of tasks scaled by {factor:g}"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What tasks are like where their trace does not tell. All of it is assumed.

    Attributes:
        high_ratio: Share of tasks that are protected, by class in the order of `TASK_CLASSES`, 0..1.
        low_ratio: Share of tasks that can wait, by class; with the shares above at most 1.
        patience_seconds: Median patience, by class; infinity for "for ever".
        patience_runs: Patience is at least so many times the task's own run time.
        patience_spread: Standard deviation of the logarithm of patience.
        models: Models that inference requests without one are spread over, popularity falling as 1/rank.
        zones: Zones that tasks are at home in, evenly.
    """

    high_ratio: tuple[float, float, float] = (0.0, 0.05, 0.7)
    low_ratio: tuple[float, float, float] = (0.5, 0.25, 0.0)
    patience_seconds: tuple[float, float, float] = (1800.0, 7200.0, 60.0)
    patience_runs: float = 4.0
    patience_spread: float = 0.5
    models: int = 16
    zones: int = 4

    def __post_init__(self) -> None:
        """Refuse shares that are none.

        Raises:
            ConfigError: A share or count is out of its range.
        """
        for high, low in zip(self.high_ratio, self.low_ratio, strict=True):
            if not (high >= 0 and low >= 0 and high + low <= 1):
                raise ConfigError(f"high_ratio {high} and low_ratio {low} must be 0 or more, and together at most 1")
        if min(self.models, self.zones) < 1:
            raise ConfigError(f"models is {self.models} and zones is {self.zones}, both must be 1 or more")
        for median in self.patience_seconds:
            check_positive("patience_seconds", median)

    def describe(self) -> str:
        """Return the assumptions in one sentence."""
        return (
            f"assumed per class ({', '.join(kind.name.lower() for kind in TaskKind)}): "
            f"high priority {_percents(self.high_ratio)}, deferrable {_percents(self.low_ratio)}, "
            f"median patience {'/'.join(f'{value:g}' for value in self.patience_seconds)} s and at least "
            f"{self.patience_runs:g} run times, homes in {self.zones} zones"
        )


def assume(trace: Trace, assumptions: Assumptions, *, seed: int) -> Trace:
    """Return a trace whose untold priorities, patience, models and zones are drawn; what it tells stays."""
    work = trace.workload
    random = np.random.default_rng(seed)
    drawn: dict[str, Any] = {
        "priority": _draw_priority(work, assumptions, random),
        "patience_seconds": _draw_patience(work, assumptions, random),
        "model": _draw_model(work, assumptions, random),
        "zone": random.integers(assumptions.zones, size=len(work)),
    }
    return replace(
        trace,
        workload=replace(work, **{name: column for name, column in drawn.items() if name not in trace.told}),
        told=trace.told | frozenset(drawn),
        notes=(*trace.notes, assumptions.describe()),
    )


def _draw_priority(work: Workload, assumed: Assumptions, random: np.random.Generator) -> NDArray[np.int64]:
    high, low = np.array(assumed.high_ratio)[work.kind], np.array(assumed.low_ratio)[work.kind]
    draw = random.random(len(work))
    return np.select([draw < high, draw < high + low], [Priority.HIGH, Priority.LOW], Priority.NORMAL)


def _draw_patience(work: Workload, assumed: Assumptions, random: np.random.Generator) -> NDArray[np.float64]:
    factor = np.exp(assumed.patience_spread * random.standard_normal(len(work)))
    median = np.maximum(np.array(assumed.patience_seconds)[work.kind], assumed.patience_runs * work.service_seconds)
    patience: NDArray[np.float64] = median * factor
    return patience


def _draw_model(work: Workload, assumed: Assumptions, random: np.random.Generator) -> NDArray[np.int64]:
    popularity = 1.0 / np.arange(1, assumed.models + 1)
    drawn = random.choice(assumed.models, size=len(work), p=popularity / popularity.sum())
    return np.where(work.kind == TaskKind.INFERENCE, drawn, NO_MODEL)


def _take(work: Workload, which: slice | NDArray[np.int64]) -> Workload:
    return Workload(**{name: column[which] for name, column in work.columns().items()})


def _shift(work: Workload, seconds: float) -> Workload:
    # Rounding may carry the first submission just below the start.
    return replace(work, submit_seconds=np.maximum(work.submit_seconds + seconds, 0.0))


def _until(trace: Trace, seconds: float) -> Trace:
    return trace if trace.span_seconds <= seconds else slice_time(trace, 0.0, seconds)


def _merge(works: Sequence[Workload]) -> Workload:
    columns = {name: np.concatenate([work.columns()[name] for work in works]) for name in works[0].columns()}
    order = np.argsort(columns["submit_seconds"], kind="stable")
    return Workload(**{name: column[order] for name, column in columns.items()})


def _all_notes(traces: Sequence[Trace]) -> tuple[str, ...]:
    # A note that several traces share is said once, where it stands first.
    return tuple(dict.fromkeys(note for trace in traces for note in trace.notes))


def _percents(ratios: Sequence[float]) -> str:
    return "/".join(f"{ratio * 100:g}" for ratio in ratios) + " %"
