"""Scores, errors and broken limits, by hand-made predictions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.propose.objective import INFEASIBLE, MAX_VIOLATION, Assessment, assess
from tuner.values.metrics import DEFAULT_WEIGHTS, METRIC_INDEX, MetricVector, metric_vector
from tuner.values.stages import FloatArray

NO_LIMITS = np.full(13, np.nan)
USUAL = metric_vector(
    {
        "scheduling_latency_seconds": 0.5,
        "queue_wait_seconds": 10.0,
        "tasks_completed_per_second": 2.0,
        "task_abandonment_ratio": 0.04,
        "switch_overhead_ratio": 0.08,
    }
)
LATENCY = METRIC_INDEX["scheduling_latency_seconds"]
WAIT = METRIC_INDEX["queue_wait_seconds"]
ABANDONED = METRIC_INDEX["task_abandonment_ratio"]


def predicted(*candidates: dict[str, list[float]], scenarios: int = 2) -> FloatArray:
    """Predictions that differ from the usual in the metrics that are named, scenario by scenario."""
    result = np.tile(USUAL, (len(candidates), scenarios, 1))
    for number, changes in enumerate(candidates):
        for name, values in changes.items():
            result[number, :, METRIC_INDEX[name]] = values
    return result


def compare(
    metrics: FloatArray,
    incumbent: FloatArray | None = None,
    *,
    limits: MetricVector = NO_LIMITS,
    weights: MetricVector = DEFAULT_WEIGHTS,
    scenario_weights: FloatArray | None = None,
) -> Assessment:
    count = metrics.shape[1]
    return assess(
        metrics,
        np.tile(USUAL, (count, 1)) if incumbent is None else incumbent,
        weights=weights,
        limits=limits,
        scenario_weights=np.full(count, 1.0 / count) if scenario_weights is None else scenario_weights,
    )


def test_the_score_is_paired_by_scenario_and_weighted() -> None:
    metrics = predicted({"queue_wait_seconds": [5.0, 20.0]}, {"queue_wait_seconds": [10.0, 10.0]})

    even = compare(metrics)
    uneven = compare(metrics, scenario_weights=np.array([0.75, 0.25]))

    gain = 0.25 * math.log(2.0)
    assert even.score == pytest.approx([0.0, 0.0])
    assert uneven.score == pytest.approx([-0.5 * gain, 0.0])
    assert uneven.predicted[0, WAIT] == pytest.approx(8.75)


def test_a_load_that_moves_both_sides_alike_leaves_no_error() -> None:
    loads = np.array([1.0, 3.0, 9.0])[:, None]

    assessment = compare(predicted({}, scenarios=3) * 0.5 * loads, np.tile(USUAL, (3, 1)) * loads)

    assert assessment.error == pytest.approx([0.0], abs=1e-12)


def test_the_error_is_the_usual_one_for_equal_weights_and_unknown_for_one_scenario() -> None:
    waits = [5.0, 8.0, 12.0, 9.0]

    assessment = compare(predicted({"queue_wait_seconds": waits}, scenarios=4))

    scores = 0.25 * np.log(np.array(waits) / 10.0)
    assert assessment.score == pytest.approx([scores.mean()])
    assert assessment.error == pytest.approx([scores.std(ddof=1) / 2.0])
    assert assessment.tail == pytest.approx([np.quantile(scores, 0.9)])
    assert np.isnan(compare(predicted({}, scenarios=1)).error).all()


@pytest.mark.parametrize(
    ("candidate", "incumbent", "excess"),
    [
        ([0.04, 0.05], [0.04, 0.04], 0.0),
        ([0.05, 0.06], [0.04, 0.04], 0.2),
        # The setting in force breaks the limit itself, in one scenario: there it is the limit.
        ([0.04, 0.08], [0.04, 0.08], 0.0),
        ([0.04, 0.07], [0.04, 0.08], 0.0),
        ([0.04, 0.10], [0.04, 0.08], 0.25),
        # Breaking it is judged scenario by scenario, not on the mean.
        ([0.00, 0.06], [0.04, 0.04], 0.2),
        ([0.06, 0.08], [0.04, 0.08], 0.2),
        ([0.04, math.nan], [0.04, 0.04], math.inf),
        ([math.inf, 0.04], [0.04, 0.04], math.inf),
        # What the twin cannot say of the setting in force either is left to the live guards.
        ([math.nan, math.nan], [math.nan, math.nan], 0.0),
    ],
)
def test_a_limit_is_the_policys_or_what_is_in_force_whichever_is_further(
    candidate: list[float], incumbent: list[float], excess: float
) -> None:
    in_force = np.tile(USUAL, (2, 1))
    in_force[:, ABANDONED] = incumbent

    assessment = compare(
        predicted({"task_abandonment_ratio": candidate}),
        in_force,
        limits=metric_vector({"task_abandonment_ratio": 0.05}),
    )

    assert assessment.excess[0, ABANDONED] == pytest.approx(excess)
    assert bool(assessment.feasible[0]) is (excess == 0.0)
    assert assessment.violations(0) == (("task_abandonment_ratio",) if excess else ())


def test_a_limit_on_what_should_be_high_is_a_lower_limit() -> None:
    limits = metric_vector({"tasks_completed_per_second": 1.5})

    assessment = compare(
        predicted({"tasks_completed_per_second": [1.4, 2.0]}, {"tasks_completed_per_second": [1.6, 2.0]}), limits=limits
    )

    assert assessment.feasible.tolist() == [False, True]


def test_every_infeasible_candidate_ranks_below_every_feasible_one_and_by_violation() -> None:
    limits = metric_vector({"task_abandonment_ratio": 0.05, "scheduling_latency_seconds": 1.0})
    metrics = predicted(
        {"queue_wait_seconds": [1e9, 1e9]},
        {"queue_wait_seconds": [1.0, 1.0], "task_abandonment_ratio": [0.04, 0.3]},
        {"queue_wait_seconds": [1.0, 1.0], "task_abandonment_ratio": [0.06, 0.06]},
        {"queue_wait_seconds": [1.0, 1.0], "scheduling_latency_seconds": [math.nan, 0.1]},
    )

    assessment = compare(metrics, limits=limits)

    assert np.argsort(assessment.rank_value).tolist() == [0, 2, 1, 3]
    assert assessment.feasible.tolist() == [True, False, False, False]
    assert assessment.violation[3] == MAX_VIOLATION
    assert np.isfinite(assessment.rank_value).all()


def test_a_metric_that_is_lost_for_a_candidate_alone_does_not_flatter_it() -> None:
    metrics = predicted({"queue_wait_seconds": [math.nan, 1.0]}, {"queue_wait_seconds": [9.0, 9.0]})

    assessment = compare(metrics)

    assert math.isnan(assessment.score[0])
    assert assessment.feasible.tolist() == [False, True]
    assert assessment.rank_value[0] == INFEASIBLE + MAX_VIOLATION


def test_a_metric_without_weight_may_be_missing() -> None:
    assert compare(predicted({"queue_length": [math.nan, math.nan]})).feasible.all()


def test_nothing_to_compare_is_not_feasible() -> None:
    nothing = np.full((1, 2, 13), np.nan)

    assert not compare(nothing, nothing[0]).feasible.any()


@given(
    metric=st.sampled_from([LATENCY, ABANDONED]),
    value=st.floats(0, 10) | st.just(math.nan),
    limit=st.floats(0, 10),
    strictness=st.floats(0, 1),
)
def test_a_stricter_limit_never_makes_a_candidate_feasible(
    metric: int, value: float, limit: float, strictness: float
) -> None:
    metrics = predicted({})
    metrics[..., metric] = value
    loose, strict = NO_LIMITS.copy(), NO_LIMITS.copy()
    loose[metric], strict[metric] = limit, limit * strictness

    assert compare(metrics, limits=loose).feasible[0] or not compare(metrics, limits=strict).feasible[0]
