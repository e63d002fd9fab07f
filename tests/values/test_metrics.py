"""The catalogue of metrics and the score."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tuner.values.metrics import (
    DEFAULT_WEIGHTS,
    FLOORS,
    METRIC_COUNT,
    METRIC_INDEX,
    METRIC_NAMES,
    METRICS,
    Better,
    metric_vector,
    score,
    score_terms,
    worsened,
)

positive = arrays(np.float64, METRIC_COUNT, elements=st.floats(min_value=1e-3, max_value=1e5))


def baseline() -> np.ndarray:
    return np.maximum(FLOORS * 10, 0.1)


def test_the_catalogue_holds_the_twelve_metrics_in_the_order_of_the_design_and_the_optional_thirteenth() -> None:
    assert METRIC_NAMES == (
        "scheduling_latency_seconds",
        "resource_idle_ratio",
        "accelerator_utilization_ratio",
        "queue_length",
        "queue_wait_seconds",
        "tasks_completed_per_second",
        "task_abandonment_ratio",
        "running_task_remaining_seconds",
        "node_temperature_celsius",
        "node_power_watts",
        "pending_demand_ratio",
        "switch_overhead_ratio",
        "high_priority_wait_seconds",
    )
    assert [spec.name for spec in METRICS if spec.optional] == ["high_priority_wait_seconds"]


def test_only_objectives_weigh_and_the_weights_sum_to_one() -> None:
    assert all((spec.weight > 0) == spec.objective for spec in METRICS)
    assert DEFAULT_WEIGHTS.sum() == pytest.approx(1.0)


def test_the_safety_metrics_are_those_of_the_design() -> None:
    assert [spec.name for spec in METRICS if spec.safety] == [
        "scheduling_latency_seconds",
        "task_abandonment_ratio",
        "node_temperature_celsius",
        "high_priority_wait_seconds",
    ]


def test_five_per_cent_better_in_every_objective_reads_as_minus_five_hundredths() -> None:
    base = baseline()
    better = np.where([spec.better is Better.HIGHER for spec in METRICS], base * np.exp(0.05), base * np.exp(-0.05))

    assert score(better, base) == pytest.approx(-0.05)


@given(metrics=positive)
def test_a_setting_scores_zero_against_itself(metrics: np.ndarray) -> None:
    assert score(metrics, metrics) == 0.0


@given(first=positive, second=positive)
def test_the_score_is_antisymmetric_so_that_a_gain_forth_is_a_loss_back(first: np.ndarray, second: np.ndarray) -> None:
    assert score(first, second) == pytest.approx(-score(second, first), abs=1e-9)


@given(first=positive, second=positive, third=positive)
def test_scores_add_along_a_path(first: np.ndarray, second: np.ndarray, third: np.ndarray) -> None:
    assert score(third, first) == pytest.approx(score(third, second) + score(second, first), abs=1e-9)


@pytest.mark.parametrize("spec", [spec for spec in METRICS if spec.objective], ids=lambda spec: spec.name)
def test_every_objective_moves_the_score_in_its_own_direction(spec: object) -> None:
    base = baseline()
    improved = base.copy()
    index = METRIC_INDEX[spec.name]  # type: ignore[attr-defined]
    improved[index] *= 2 if spec.better is Better.HIGHER else 0.5  # type: ignore[attr-defined]

    assert score(improved, base) < 0


def test_below_its_floor_a_metric_no_longer_counts() -> None:
    base = baseline()
    idle, idler = base.copy(), base.copy()
    idle[METRIC_INDEX["queue_wait_seconds"]] = 0.5
    idler[METRIC_INDEX["queue_wait_seconds"]] = 0.001

    assert score(idler, idle) == 0.0


def test_a_missing_sample_neither_helps_nor_harms() -> None:
    base = baseline()
    missing = base.copy()
    missing[METRIC_INDEX["queue_wait_seconds"]] = np.nan

    assert score(missing, base) == 0.0
    assert np.isnan(score_terms(missing, base)[METRIC_INDEX["queue_wait_seconds"]])


def test_no_sample_at_all_gives_no_score_rather_than_a_perfect_one() -> None:
    assert np.isnan(score(np.full(METRIC_COUNT, np.nan), baseline()))


def test_scores_are_taken_over_the_last_axis() -> None:
    base = baseline()
    batch = np.stack([[base, base * 2], [base, base], [base * 2, base]])

    assert score(batch, base).shape == (3, 2)
    assert score(batch, base)[1].tolist() == [0.0, 0.0]


def test_a_worsened_metric_is_named_even_when_it_has_no_weight() -> None:
    base = baseline()
    after = base.copy()
    after[METRIC_INDEX["queue_length"]] *= 1.02
    after[METRIC_INDEX["node_power_watts"]] *= 1.005
    after[METRIC_INDEX["running_task_remaining_seconds"]] *= 3

    assert worsened(after, base) == ("queue_length",)


def test_a_vector_is_in_catalogue_order_and_refuses_unknown_names() -> None:
    vector = metric_vector({"queue_length": 3.0})

    assert vector[METRIC_INDEX["queue_length"]] == 3.0
    assert np.isnan(np.delete(vector, METRIC_INDEX["queue_length"])).all()
    with pytest.raises(KeyError, match="queue_size"):
        metric_vector({"queue_size": 3.0})
