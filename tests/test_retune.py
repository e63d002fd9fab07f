"""When to search."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tuner.retune import SearchHistory, context_vector, distance, should_search
from tuner.settings.model import CycleSettings
from tuner.values.metrics import METRIC_COUNT, METRIC_INDEX
from tuner.values.stages import Forecast, Observation, SeriesFrame

NOON = 1_700_000_000.0
SETTINGS = CycleSettings(cooldown_seconds=600, context_shift=0.15, retune_after_seconds=21_600, max_searches=3)
HERE = np.array([3.0, 4.0, 5.0, 3.0, 0.0, 0.5])
SEARCHED = SearchHistory(searched_at_seconds=NOON - 300, context=tuple(HERE), searches=1)


def observation(**metrics: float) -> Observation:
    vector = np.full(METRIC_COUNT, np.nan)
    for name, value in metrics.items():
        vector[METRIC_INDEX[name]] = value
    nothing = SeriesFrame((), NOON, np.empty((0, 1)))
    return Observation(
        cycle_id=1,
        at_seconds=NOON,
        metrics=vector,
        ages_seconds=vector,
        coverage_ratio=vector,
        context={},
        history=nothing,
    )


def forecast(**medians: float) -> Forecast:
    values = np.array([np.full((20, 3), value) for value in medians.values()]).reshape(len(medians), 20, 3)
    return Forecast(
        cycle_id=1,
        at_seconds=NOON,
        names=tuple(name.replace("__", ":") for name in medians),
        values=values,
        models=("last_value",) * len(medians),
        error_ratio=np.full(len(medians), np.nan),
    )


@pytest.mark.parametrize(
    ("history", "context", "search", "reason"),
    [
        (SearchHistory(), HERE, True, "first search"),
        (SEARCHED, HERE, False, "load moved by 0.00"),
        (SEARCHED, HERE + np.array([0, 0, 0.2, 0, 0, 0]), True, "load moved by 0.20 (log-ratio), over 0.15"),
        (
            replace(SEARCHED, fruitless=1),
            HERE + np.array([0, 0, 0.2, 0, 0, 0]),
            False,
            "load moved by 0.20 (log-ratio) since the last search, under 0.3",
        ),
        (
            replace(SEARCHED, fruitless=9),
            HERE + np.array([0, 0, 0.7, 0, 0, 0]),
            True,
            "load moved by 0.70 (log-ratio), over 0.6",
        ),
        (SEARCHED, HERE - np.array([0, 0, 0.2, 0, 0, 0]), True, "load moved by 0.20"),
        (replace(SEARCHED, context=()), HERE, True, "settled"),
        (replace(SEARCHED, searched_at_seconds=NOON - 21_600), HERE, True, "21600 s old"),
        (replace(SEARCHED, changed_at_seconds=NOON - 100), HERE + 1, False, "cooling down for another 500 s"),
        (replace(SEARCHED, changed_at_seconds=NOON - 600), HERE + 1, True, "load moved"),
        (replace(SEARCHED, searches=3), HERE + 1, False, "3 searches made, the limit is 3"),
    ],
)
def test_searches_when_the_load_moved_or_time_passed_but_not_too_soon_or_too_often(
    history: SearchHistory, context: np.ndarray, search: bool, reason: str
) -> None:
    trigger = should_search(history, context, at_seconds=NOON, settings=SETTINGS, intervals=3)

    assert trigger.search is search
    assert reason in trigger.reason


def test_nothing_is_searched_for_that_could_not_be_judged() -> None:
    trigger = should_search(SearchHistory(), HERE, at_seconds=NOON, settings=SETTINGS, intervals=2)

    assert not trigger.search
    assert "2 intervals tell how far the twin is off" in trigger.reason
    assert "each is 15 min of load under settings left alone" in trigger.reason


def test_twice_the_load_is_a_large_move_and_the_noise_of_few_tasks_is_not() -> None:
    quiet = context_vector(observation(), forecast(arrivals_per_second__training=1 / 900))
    noisy = context_vector(observation(), forecast(arrivals_per_second__training=3 / 900))
    busy = context_vector(observation(), forecast(arrivals_per_second__inference=1.0))
    busier = context_vector(observation(), forecast(arrivals_per_second__inference=2.0))

    assert distance(quiet, noisy) < SETTINGS.context_shift
    assert distance(busy, busier) == pytest.approx(math.log(2), abs=0.05)


def test_without_arrivals_by_class_the_throughput_tells_the_load() -> None:
    slow = context_vector(observation(), forecast(tasks_completed_per_second=1.0))
    fast = context_vector(observation(), forecast(tasks_completed_per_second=2.0))

    assert distance(slow, fast) > SETTINGS.context_shift


def test_a_full_cluster_is_another_context_than_an_empty_one_and_unknown_values_are_none() -> None:
    full = context_vector(observation(resource_idle_ratio=0.0, pending_demand_ratio=0.5), forecast())
    empty = context_vector(observation(resource_idle_ratio=1.0), forecast())
    unknown = context_vector(observation(), forecast())

    assert distance(full, empty) > SETTINGS.context_shift
    assert distance(full, unknown) == 0.0
