"""What of an answer is believed: pure functions from series to samples, and the problems they met."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from tuner.observe.questions import Question, Reduction
from tuner.observe.source import Series
from tuner.values.context import TASK_CLASSES
from tuner.values.stages import FloatArray, Problem

RANGE_SLACK_RATIO: Final = 0.02
"""Share by which a value may lie outside its range and is taken for the bound: `rate()` extrapolates, floats round."""


class Problems:
    """Problems of one observation, the first of each metric and reason."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Problem] = {}

    def add(self, metric: str, reason: str, detail: str) -> None:
        """Note a problem, unless one with that reason is known of the metric."""
        self._found.setdefault((metric, reason), Problem(metric, reason, detail))

    def concerns(self, metric: str) -> bool:
        """Say whether there is any problem with a metric."""
        return any(metric == name for name, _ in self._found)

    def all(self) -> tuple[Problem, ...]:
        """Return them in the order in which they were met."""
        return tuple(self._found.values())


def believable(values: FloatArray, question: Question, problems: Problems) -> FloatArray:
    """Return values in the metric's unit, NaN where they are not finite or not possible."""
    scaled = values * question.scale
    finite = np.isfinite(scaled)
    if not finite.all():
        count = len(scaled) - int(finite.sum())
        example = scaled[~finite][0]
        problems.add(
            question.name, "non_finite", f"{count} of {len(scaled)} samples are not numbers, such as {example}"
        )
    slack = RANGE_SLACK_RATIO * (question.upper if np.isfinite(question.upper) else 0.0)
    possible = finite & (scaled >= -slack) & (scaled <= question.upper + slack)
    if not possible[finite].all():
        wrong = scaled[finite & ~possible]
        detail = f"{len(wrong)} of {len(scaled)} samples lie outside 0..{question.upper:g}, such as {wrong[0]:.6g}"
        problems.add(question.name, "out_of_range", f"{detail}; check its scale")
    return np.where(possible, np.clip(scaled, 0.0, question.upper), np.nan)


def combine(
    series: Sequence[Series], question: Question, reduction: Reduction, problems: Problems
) -> tuple[FloatArray, FloatArray]:
    """Return the times and values of one series made of several; NaN where nothing is believed.

    A question with only one answer may change its labels over time, as an exporter does that restarts under a new
    name; but two values for one instant are not to be told apart, so neither is believed.
    """
    if not series:
        return np.empty(0), np.empty(0)
    times = np.concatenate([each.times_seconds for each in series])
    values = believable(np.concatenate([each.values for each in series]), question, problems)
    if len(series) == 1:
        return times, values
    instants, group = np.unique(times, return_inverse=True)
    known = ~np.isnan(values)
    count = np.bincount(group[known], minlength=len(instants))
    if reduction is Reduction.MAX:
        reduced = np.full(len(instants), -np.inf)
        np.maximum.at(reduced, group[known], values[known])
    else:
        total = np.bincount(group[known], weights=values[known], minlength=len(instants))
        reduced = total / np.maximum(count, 1)
    usable = count == 1 if reduction is Reduction.ONLY else count > 0
    if (clashes := int((count > 1).sum())) and reduction is Reduction.ONLY:
        detail = f"{int(count.max())} series where one is expected, at {clashes} of {len(instants)} times"
        problems.add(question.name, "too_many_series", f"{detail}; aggregate in its query, with sum(...) or avg(...)")
    return instants, np.where(usable, reduced, np.nan)


def idle(context: Mapping[str, float], metrics: Mapping[str, float]) -> bool:
    """Say whether it is known that no work arrived in the recent window; what is not known is not idle.

    Args:
        context: Current context values; arrival rates decide where there are any.
        metrics: Current metrics by name; else an empty queue from which nothing is completed is idle.
    """
    names = [f"arrivals_per_second:{kind}" for kind in TASK_CLASSES]
    rates = [context[name] for name in names if name in context]
    if not rates:
        rates = [metrics.get(name, np.nan) for name in ("queue_length", "tasks_completed_per_second")]
    return bool(np.nansum(rates) == 0 and not np.isnan(rates).any())
