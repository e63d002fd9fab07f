"""What is kept of a cycle.

A cycle of a large cluster knows a day of history and thousands of node series; the metrics source keeps those. The
journal keeps what explains a decision:

* all metrics of the moment, their ages and coverage, the context, the problems: exact;
* proposal, verdict with all findings, receipt, verification, failure: exact;
* the last 30 minutes of the cluster-level history, to six significant digits;
* of the nodes, per step, the least, the mean and the greatest of the same 30 minutes;
* the forecast of the cluster-level series over its whole horizon, to six digits, and least, mean and greatest of the
  nodes'.

What a search needs to be repeated bit for bit is kept beside it, as the `inputs` that the journal takes.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from tuner.values.stages import CycleRecord, FloatArray, Forecast, Observation, SeriesFrame

KEPT_HISTORY_SECONDS: Final = 1800.0
"""Thirty minutes: what the shortest forecaster looks back on, so that its forecast can be judged by eye."""

DIGITS: Final = 6
"""Significant digits of series: far finer than they are measured, and less than half the space of exact floats."""

SUMMARY: Final = ("min", "mean", "max")
"""Rows that stand for the nodes."""


def condense(record: CycleRecord) -> CycleRecord:
    """Return a record without what the journal does not keep; condensing twice changes nothing more."""
    return replace(
        record,
        observation=None if record.observation is None else _observation(record.observation),
        forecast=None if record.forecast is None else _forecast(record.forecast),
    )


def _observation(observation: Observation) -> Observation:
    history = _recent(observation.history)
    nodes = {name: _recent(frame) for name, frame in observation.nodes.items()}
    return replace(
        observation,
        history=replace(history, values=_shorten(history.values)),
        nodes={name: _summarise_frame(frame) for name, frame in nodes.items()},
    )


def _recent(frame: SeriesFrame) -> SeriesFrame:
    steps = max(1, round(KEPT_HISTORY_SECONDS / frame.step_seconds))
    return replace(frame, values=frame.values[:, -steps:])


def _summarise_frame(frame: SeriesFrame) -> SeriesFrame:
    names, values = _summarise(frame.names, frame.values)
    return replace(frame, names=names, values=values)


def _forecast(forecast: Forecast) -> Forecast:
    nodes = {name: _summarise(names, values) for name, (names, values) in forecast.nodes.items()}
    return replace(forecast, values=_shorten(forecast.values), nodes=nodes)


def _summarise(names: tuple[str, ...], values: FloatArray) -> tuple[tuple[str, ...], FloatArray]:
    """Return least, mean and greatest over the first axis; NaN only where no node has a sample."""
    if names == SUMMARY or not names:
        return names, _shorten(values)
    seen = np.isfinite(values)
    count = seen.sum(axis=0)
    mean = np.where(seen, values, 0.0).sum(axis=0) / np.maximum(count, 1)
    least = np.where(seen, values, np.inf).min(axis=0)
    greatest = np.where(seen, values, -np.inf).max(axis=0)
    return SUMMARY, _shorten(np.where(count > 0, np.stack([least, mean, greatest]), np.nan))


def _shorten(values: FloatArray) -> FloatArray:
    """Round to `DIGITS` significant digits, by way of text: the result is the float nearest to the short decimal."""
    short = [float(f"{value:.{DIGITS}g}") for value in values.ravel().tolist()]
    return np.array(short, dtype=np.float64).reshape(values.shape)
