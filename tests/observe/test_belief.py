import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.observe.belief import Problems, believable, combine, idle
from tuner.observe.questions import Question, Reduction
from tuner.observe.source import Series


def question(*, scale: float = 1.0, upper: float = np.inf) -> Question:
    return Question(
        name="queue_length",
        expression="q",
        reduction=Reduction.ONLY,
        current="q",
        current_reduction=Reduction.ONLY,
        nodes=None,
        node_label="",
        scale=scale,
        upper=upper,
    )


def series(*samples: tuple[float, float], **labels: str) -> Series:
    return Series(labels, np.array([time for time, _ in samples]), np.array([value for _, value in samples]))


@pytest.mark.parametrize(
    ("value", "upper", "expected", "reason"),
    [
        (0.5, 1.0, 0.5, None),
        (0.0, 1.0, 0.0, None),
        (1.0, 1.0, 1.0, None),
        (1.019, 1.0, 1.0, None),
        (-0.019, 1.0, 0.0, None),
        (1.03, 1.0, np.nan, "out_of_range"),
        (-0.03, 1.0, np.nan, "out_of_range"),
        (-1e-9, np.inf, np.nan, "out_of_range"),
        (1e300, np.inf, 1e300, None),
        (np.nan, 1.0, np.nan, "non_finite"),
        (np.inf, np.inf, np.nan, "non_finite"),
        (-np.inf, np.inf, np.nan, "non_finite"),
    ],
)
def test_what_is_not_a_number_or_not_possible_is_left_out_and_told(
    value: float, upper: float, expected: float, reason: str | None
) -> None:
    problems = Problems()

    found = believable(np.array([value]), question(upper=upper), problems)

    np.testing.assert_array_equal(found, [expected])
    assert [problem.reason for problem in problems.all()] == ([reason] if reason else [])


def test_problems_count_what_they_speak_of() -> None:
    problems = Problems()

    believable(np.array([1.0, np.nan, 75.0, np.inf, 0.2]), question(upper=1.0), problems)

    assert [problem.detail for problem in problems.all()] == [
        "2 of 5 samples are not numbers, such as nan",
        "1 of 5 samples lie outside 0..1, such as 75; check its scale",
    ]


def test_values_are_scaled_before_they_are_judged() -> None:
    problems = Problems()

    found = believable(np.array([75.0, 250.0]), question(scale=0.01, upper=1.0), problems)

    np.testing.assert_array_equal(found, [0.75, np.nan])


@given(st.lists(st.floats(), max_size=20), st.sampled_from([1.0, 150.0, np.inf]))
def test_nothing_is_believed_outside_its_range_and_no_number_is_invented(values: list[float], upper: float) -> None:
    given_values = np.array(values)

    found = believable(given_values, question(upper=upper), Problems())

    known = found[~np.isnan(found)]
    assert ((known >= 0) & (known <= upper)).all()
    assert np.isnan(found[~np.isfinite(given_values)]).all()


def test_a_series_that_goes_on_under_other_labels_is_one() -> None:
    problems = Problems()
    before, after = series((0, 1.0), (60, 2.0), pod="a"), series((120, 3.0), pod="b")

    times, values = combine([before, after], question(), Reduction.ONLY, problems)

    assert times.tolist() == [0.0, 60.0, 120.0]
    assert values.tolist() == [1.0, 2.0, 3.0]
    assert problems.all() == ()


def test_two_values_for_one_instant_are_both_left_out() -> None:
    problems = Problems()
    one, other = series((0, 1.0), (60, 2.0), pod="a"), series((60, 5.0), (120, 3.0), pod="b")

    _, values = combine([one, other], question(), Reduction.ONLY, problems)

    np.testing.assert_array_equal(values, [1.0, np.nan, 3.0])
    (problem,) = problems.all()
    assert problem.reason == "too_many_series"
    assert "2 series where one is expected, at 1 of 3 times" in problem.detail


@pytest.mark.parametrize(("reduction", "expected"), [(Reduction.MEAN, [2.0, 4.0]), (Reduction.MAX, [3.0, 4.0])])
def test_nodes_are_reduced_over_those_that_are_known(reduction: Reduction, expected: list[float]) -> None:
    nodes = [series((0, 1.0), (60, np.nan), node="a"), series((0, 3.0), (60, 4.0), node="b")]

    _, values = combine(nodes, question(), reduction, Problems())

    assert values.tolist() == expected


@pytest.mark.parametrize("reduction", list(Reduction))
def test_nothing_is_made_of_nothing(reduction: Reduction) -> None:
    times, values = combine([], question(), reduction, Problems())
    assert len(times) == len(values) == 0

    _, values = combine([series((0, np.nan), a="b"), series((0, np.nan))], question(), reduction, Problems())
    assert np.isnan(values).all()


RATES = "arrivals_per_second:"


@pytest.mark.parametrize(
    ("context", "metrics", "expected"),
    [
        ({RATES + "training": 0.0, RATES + "inference": 0.0}, {}, True),
        ({RATES + "training": 0.0, RATES + "inference": 0.1}, {}, False),
        ({RATES + "training": 0.0}, {"queue_length": 9.0}, True),
        ({}, {"queue_length": 0.0, "tasks_completed_per_second": 0.0}, True),
        ({}, {"queue_length": 2.0, "tasks_completed_per_second": 0.0}, False),
        ({}, {"queue_length": 0.0, "tasks_completed_per_second": np.nan}, False),
        ({}, {"queue_length": 0.0}, False),
        ({}, {}, False),
    ],
)
def test_idle_is_only_what_is_known_to_be_idle(
    context: dict[str, float], metrics: dict[str, float], expected: bool
) -> None:
    assert idle(context, metrics) is expected
