"""Made-up workloads: for tests, and for sweeps that must hold all but one thing still."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tuner.reference.workload import NO_MODEL, Priority, TaskKind, Workload

FloatArray = NDArray[np.float64]


def tasks(
    submit_seconds: ArrayLike,
    service_seconds: ArrayLike,
    *,
    kind: int = TaskKind.TRAINING,
    gpus: ArrayLike | None = None,
    priority: ArrayLike = Priority.NORMAL,
    patience_seconds: ArrayLike = np.inf,
    model: ArrayLike = NO_MODEL,
    zone: ArrayLike = 0,
) -> Workload:
    """Return tasks of one kind in order of submission; single values stand for all.

    Without `gpus` a task asks for one accelerator, a tenth of one where it is inference, none where it is
    pre-processing.

    Raises:
        TraceError: A value is out of its range.
    """
    usual = {TaskKind.PREPROCESSING: 0.0, TaskKind.TRAINING: 1.0, TaskKind.INFERENCE: 0.1}[TaskKind(kind)]
    submit = np.asarray(submit_seconds, dtype=np.float64)
    order = np.argsort(submit, kind="stable")

    def column(value: ArrayLike) -> NDArray[np.float64]:
        return np.broadcast_to(np.asarray(value, dtype=np.float64), submit.shape)[order]

    return Workload(
        submit_seconds=submit[order],
        service_seconds=column(service_seconds),
        gpus=column(usual if gpus is None else gpus),
        kind=np.full(submit.size, int(kind)),
        priority=column(priority).astype(np.int64),
        patience_seconds=column(patience_seconds),
        model=column(model).astype(np.int64),
        zone=column(zone).astype(np.int64),
    )


def merge(*parts: Workload) -> Workload:
    """Return all tasks of several workloads, in order of submission; earlier parts first where times are equal."""
    order = np.argsort(np.concatenate([part.submit_seconds for part in parts]), kind="stable")
    columns = {name: np.concatenate([part.columns()[name] for part in parts])[order] for name in parts[0].columns()}
    return Workload(**columns)


def poisson(rng: np.random.Generator, *, per_second: float, span_seconds: float) -> FloatArray:
    """Return the times of a Poisson process, ascending."""
    count = rng.poisson(per_second * span_seconds)
    return np.sort(rng.random(count) * span_seconds)


def bursts(
    rng: np.random.Generator, *, per_second: float, span_seconds: float, period_seconds: float, contrast: float
) -> FloatArray:
    """Return the times of a Poisson process whose rate swings like a sine, ascending.

    Args:
        rng: Where randomness comes from.
        per_second: Mean rate.
        span_seconds: Length.
        period_seconds: Length of a swing.
        contrast: Swing over mean rate, 0..1.
    """
    times = poisson(rng, per_second=per_second * (1.0 + contrast), span_seconds=span_seconds)
    rate = 1.0 + contrast * np.sin(2.0 * np.pi * times / period_seconds)
    kept: FloatArray = times[rng.random(times.size) * (1.0 + contrast) < rate]
    return kept


def popularity(rng: np.random.Generator, *, models: int, size: int, exponent: float = 1.0) -> NDArray[np.int64]:
    """Return the models of requests, drawn by Zipf's law; model 0 is the most popular."""
    weights = np.arange(1, models + 1) ** -exponent
    return rng.choice(models, size=size, p=weights / weights.sum())
