"""When to search: because the load has moved or time has passed, never because the clock ticked."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.settings.model import CycleSettings
from tuner.twin.workload import HORIZON_SECONDS
from tuner.values.context import TASK_CLASSES
from tuner.values.metrics import METRIC_INDEX
from tuner.values.stages import MIN_ANCHORS, FloatArray, Forecast, Observation

_LOOK_AHEAD_SECONDS: Final = 900.0
"""The context is what is expected over 15 minutes, the lead at which forecasts are scored."""

_LOOK_BACK_STEPS: Final = 30
"""Samples of the past that count as much as the future: half an hour, in which single bursts level out."""

_PSEUDO_TASKS: Final = 50.0
"""Added to every count, so that the noise of a few tasks does not look like a moved load (assumption)."""

MAX_BACK_OFF: Final = 2
"""Doublings of the shift that is asked for while searches find nothing: from the second on, four times."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """Whether to search, and why.

    Attributes:
        search: Whether to search in this cycle.
        reason: One sentence with the value and the limit.
    """

    search: bool
    reason: str


def context_vector(observation: Observation, forecast: Forecast) -> FloatArray:
    """Describe the load on a log scale, so that differences read as relative changes.

    Args:
        observation: What is.
        forecast: What is expected.

    Returns:
        Shape (6,): tasks of each class in 15 minutes and tasks waiting, both between what was and what is expected;
        demand pending, share allocated; NaN for what is not known.
    """
    steps = max(1, round(_LOOK_AHEAD_SECONDS / forecast.step_seconds))

    def expected(name: str) -> float:
        if name not in forecast.names:
            return math.nan
        ahead = float(forecast[name][:steps, 1].mean())
        past = observation.history[name][-_LOOK_BACK_STEPS:] if name in observation.history else np.empty(0)
        known = past[np.isfinite(past)]
        return (ahead + float(known.mean())) / 2 if known.size else ahead

    tasks = [expected(f"arrivals_per_second:{kind}") * _LOOK_AHEAD_SECONDS for kind in TASK_CLASSES]
    if not np.isfinite(tasks).any():
        tasks[0] = expected("tasks_completed_per_second") * _LOOK_AHEAD_SECONDS
    counts = np.array([*tasks, expected("queue_length")])
    pending = observation.metrics[METRIC_INDEX["pending_demand_ratio"]]
    allocated = 1 - observation.metrics[METRIC_INDEX["resource_idle_ratio"]]
    shares = np.array([pending, allocated])
    return np.concatenate([np.log(np.maximum(counts, 0.0) + _PSEUDO_TASKS), np.log1p(np.maximum(shares, 0.0))])


def distance(first: FloatArray, second: FloatArray) -> float:
    """Return how far two contexts lie apart: the largest change of any component, as a log-ratio; >= 0.

    What either does not know tells nothing: a gap in the metrics is no change of the load.
    """
    apart = np.abs(first - second)
    return float(np.max(apart, where=np.isfinite(apart), initial=0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHistory:
    """What is remembered of searches.

    Attributes:
        searched_at_seconds: When the last one ran; NaN before the first.
        context: Context of the last one; empty before the first, and after a change was promoted.
        searches: How many ran.
        changed_at_seconds: When a setting was last changed; NaN where it never was.
        fruitless: Searches in a row that led to no change.
    """

    searched_at_seconds: float = math.nan
    context: tuple[float, ...] = ()
    searches: int = 0
    changed_at_seconds: float = math.nan
    fruitless: int = 0


def should_search(
    history: SearchHistory, context: FloatArray, *, at_seconds: float, settings: CycleSettings, intervals: int
) -> Trigger:
    """Say whether the load has moved far enough, or time enough has passed, for a new search.

    Args:
        history: What is remembered of searches.
        context: The load now.
        at_seconds: Now.
        settings: Limits of the policy.
        intervals: Intervals of the past that are recorded; without some, nothing that a search finds could be judged.
    """
    if intervals < MIN_ANCHORS:
        reason = (
            f"{intervals} intervals tell how far the twin is off without a change, at least {MIN_ANCHORS} needed: "
            f"each is {HORIZON_SECONDS / 60:g} min of load under settings left alone, and comes by itself"
        )
        return Trigger(search=False, reason=reason)
    forbidden = _forbidden(history, at_seconds=at_seconds, settings=settings)
    if forbidden:
        return Trigger(search=False, reason=forbidden)
    if math.isnan(history.searched_at_seconds):
        return Trigger(search=True, reason="first search")
    if not history.context:
        return Trigger(search=True, reason="the last change was settled; there may be more to gain")
    return _due(history, context, at_seconds=at_seconds, settings=settings)


def _forbidden(history: SearchHistory, *, at_seconds: float, settings: CycleSettings) -> str:
    if settings.max_searches is not None and history.searches >= settings.max_searches:
        return f"{history.searches} searches made, the limit is {settings.max_searches}"
    cooling = history.changed_at_seconds + settings.cooldown_seconds - at_seconds
    return f"cooling down for another {cooling:.0f} s after the last change" if cooling > 0 else ""


def _due(history: SearchHistory, context: FloatArray, *, at_seconds: float, settings: CycleSettings) -> Trigger:
    age, limit = at_seconds - history.searched_at_seconds, settings.retune_after_seconds
    if age >= limit:
        return Trigger(search=True, reason=f"last search is {age:.0f} s old, the limit is {limit:g} s")
    # Where the last searches found nothing, a small move will not have changed that.
    limit = settings.context_shift * 2 ** min(history.fruitless, MAX_BACK_OFF)
    moved = distance(context, np.array(history.context))
    if moved >= limit:
        return Trigger(search=True, reason=f"load moved by {moved:.2f} (log-ratio), over {limit:g}")
    return Trigger(search=False, reason=f"load moved by {moved:.2f} (log-ratio) since the last search, under {limit:g}")
