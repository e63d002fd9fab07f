"""Scores over fixed origins: the same windows for every model, and the whole ensemble rolled over them as in life."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuner.forecast.batch import SCORED_STEPS, Batch, join
from tuner.forecast.fleet import Fleet, ask
from tuner.forecast.forecaster import Forecaster
from tuner.forecast.origins import batch_at, truths_at
from tuner.forecast.selection import pinball
from tuner.forecast.traces import Trace
from tuner.values.stages import FloatArray

SPACING_STEPS: Final = SCORED_STEPS
"""Distance of two origins: windows do not overlap."""


@dataclass(frozen=True, slots=True)
class Windows:
    """All windows of a trace's last 30 %, series after series.

    Attributes:
        batch: One row a window; each knows only what came before it.
        actual: Truths, shape (windows, SCORED_STEPS).
        starts: Row of each series' first window, and the number of rows at the end; shape (series + 1,).
    """

    batch: Batch
    actual: FloatArray
    starts: NDArray[np.int64]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of windows, one a series."""
        return np.diff(self.starts)


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores by series; shapes (series,).

    Attributes:
        mae: Mean absolute error of the median.
        ql: Mean of 2 x pinball loss over the three quantiles.
        coverage: Share of truths between the outer quantiles.
    """

    mae: FloatArray
    ql: FloatArray
    coverage: FloatArray

    def relative_to(self, base: "Scores") -> tuple[float, float]:
        """Return relMAE and relQL: geometric means over series of the ratio to another model's scores."""
        return _geometric_mean(self.mae / base.mae), _geometric_mean(self.ql / base.ql)


def windows_of(trace: Trace, *, horizon: int = SCORED_STEPS, as_node: bool = False) -> Windows:
    """Return the windows at the fixed origins: first forecast steps train_steps, train_steps + 15, ..."""
    batches, truths, counts = [], [], []
    for row, (values, train_steps) in enumerate(zip(trace.series, trace.train_steps, strict=True)):
        origins = np.arange(train_steps - 1, len(values) - SCORED_STEPS, SPACING_STEPS)
        batches.append(
            batch_at(
                values,
                origins,
                horizon=horizon,
                as_node=as_node,
                ceiling=trace.ceiling,
                past=values[:train_steps],
                covariates=trace.covariates[row] if trace.covariates else None,
            )
        )
        truths.append(truths_at(values, origins, horizon=SCORED_STEPS))
        counts.append(len(origins))
    return Windows(join(batches), np.concatenate(truths), np.concatenate([[0], np.cumsum(counts)]))


def score(quantiles: FloatArray, windows: Windows) -> Scores:
    """Score forecasts of all windows, shape (windows, horizon, 3), by series."""
    told = quantiles[:, :SCORED_STEPS]
    known = np.isfinite(windows.actual)
    loss = pinball(told, windows.actual)
    inside = (windows.actual >= told[..., 0]) & (windows.actual <= told[..., 2]) & known
    return Scores(
        mae=_by_series(loss[:, 1], windows),
        ql=_by_series(loss.mean(axis=1), windows),
        coverage=_by_series(inside.sum(axis=1) / np.maximum(known.sum(axis=1), 1), windows),
    )


def answers_of(members: Sequence[Forecaster], windows: Windows) -> dict[str, FloatArray]:
    """Return what each member says in every window, shape (windows, horizon, 3); NaN rows where it has no answer."""
    answers = {}
    for member in members:
        answer = ask(member, windows.batch)
        shape = (len(windows.batch), windows.batch.horizon, 3)
        answers[member.name] = np.full(shape, np.nan) if answer is None else answer
    return answers


def roll(
    members: Sequence[Forecaster], answers: Mapping[str, FloatArray], windows: Windows
) -> tuple[FloatArray, Fleet]:
    """Roll the ensemble over the windows as in life: forecast, wait until the window has closed, learn, forecast.

    Returns:
        Quantiles of all windows, shape (windows, horizon, 3), and the fleet as it is at the end.
    """
    counts = windows.counts
    fleet = Fleet(members, series=len(counts))
    served = np.empty_like(next(iter(answers.values())))
    actual = np.full((len(counts), SCORED_STEPS), np.nan)
    for turn in range(int(counts.max())):
        fleet.close(actual)
        rows = windows.starts[:-1] + np.minimum(turn, counts - 1)
        said = [answers[member.name][rows] for member in members]
        told = fleet.forecast(windows.batch.take(rows), step=turn * SPACING_STEPS, answers=said)
        running = turn < counts
        served[rows[running]] = told.quantiles[running]
        actual = np.where(running[:, None], windows.actual[rows], np.nan)
    return served, fleet


def by_class(names: Sequence[str], ratios: FloatArray) -> dict[str, float]:
    """Return geometric means by class of series: what follows the last slash of their names, all alike without one."""
    classes: dict[str, list[float]] = {}
    for name, ratio in zip(names, ratios, strict=True):
        classes.setdefault(name.rpartition("/")[2] if "/" in name else "", []).append(float(ratio))
    return {kind: _geometric_mean(np.array(values)) for kind, values in classes.items()}


def _by_series(values: FloatArray, windows: Windows) -> FloatArray:
    known = np.isfinite(values)
    total = np.add.reduceat(np.where(known, values, 0.0), windows.starts[:-1])
    return total / np.maximum(np.add.reduceat(known.astype(np.float64), windows.starts[:-1]), 1)


def _geometric_mean(ratios: FloatArray) -> float:
    usable = ratios[np.isfinite(ratios) & (ratios > 0)]
    return float(np.exp(np.log(usable).mean())) if len(usable) else float("nan")
