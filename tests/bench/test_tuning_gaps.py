import math

import pytest

from tuner.bench.gaps import Spread, gap_closed_ratio, has_gap, regret_ratio


@pytest.mark.parametrize(
    ("fixed", "expected"),
    [
        ((-0.10, -0.11, -0.09), True),
        ((-0.049, -0.049, -0.049), False),  # Sure, but under 5 %.
        ((-0.05, -0.05, -0.05), True),
        ((-0.30, -0.02, -0.01), False),  # Large, but one seed's doing.
        ((-0.50,), False),  # A single seed is never sure.
        ((0.10, 0.10, 0.10), False),
    ],
)
def test_a_gap_is_large_and_sure(fixed: tuple[float, ...], expected: bool) -> None:
    assert has_gap(fixed) is expected


@pytest.mark.parametrize(
    ("tuned", "fixed", "expected"),
    [
        ((-0.08, -0.08), (-0.10, -0.10), 0.8),
        ((-0.10, -0.06), (-0.12, -0.08), 0.8),  # Of means, not the mean of ratios.
        ((0.0, 0.0), (-0.10, -0.10), 0.0),
        ((0.05, 0.05), (-0.10, -0.10), -0.5),
        ((-0.20, -0.20), (-0.10, -0.10), 2.0),
    ],
)
def test_the_closed_gap_is_the_tuned_gain_over_that_of_hindsight(
    tuned: tuple[float, ...], fixed: tuple[float, ...], expected: float
) -> None:
    assert gap_closed_ratio(tuned, fixed) == pytest.approx(expected)


def test_without_a_gain_in_hindsight_there_is_no_gap_to_close() -> None:
    assert math.isnan(gap_closed_ratio((-0.1,), (0.0,)))


@pytest.mark.parametrize(
    ("tuned", "live", "fixed", "expected"),
    [
        ((-0.05,), ((0.05,), (0.20,)), (-0.10,), 1 / 3),
        ((-0.10,), ((0.05,),), (-0.10,), 0.0),
        ((-0.20,), ((0.00,),), (-0.10,), -1.0),
        ((0.10,), ((0.00,),), (-0.10,), 2.0),
    ],
)
def test_regret_is_measured_against_the_best_live_method(
    tuned: tuple[float, ...], live: tuple[tuple[float, ...], ...], fixed: tuple[float, ...], expected: float
) -> None:
    assert regret_ratio(tuned, live, fixed) == pytest.approx(expected)


def test_a_live_method_without_regret_leaves_nothing_to_compare_with() -> None:
    assert math.isnan(regret_ratio((-0.2,), ((-0.1,),), (-0.1,)))


def test_the_error_is_that_of_the_mean_of_paired_differences() -> None:
    spread = Spread.of((-0.1, -0.2, -0.3))

    assert spread.mean == pytest.approx(-0.2)
    assert spread.error == pytest.approx(0.1 / math.sqrt(3))


def test_no_scores_have_no_mean() -> None:
    with pytest.raises(ValueError, match="needs a score"):
        Spread.of(())
