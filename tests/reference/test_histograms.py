import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.reference.engine.state import DECISION, HIGH_WAIT, LATENCY, SERVICE, WAIT
from tuner.reference.engine.tables import BOUNDS
from tuner.reference.histograms import fine, shown
from tuner.reference.snapshot import Histogram


def _count(values: list[float]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.bincount(np.searchsorted(BOUNDS, values, side="left"), minlength=BOUNDS.size + 1)


@pytest.mark.parametrize("measure", [LATENCY, WAIT, HIGH_WAIT, DECISION, SERVICE, SERVICE + 2])
@given(values=st.lists(st.floats(0.0, 1e7), max_size=50))
def test_merging_buckets_for_show_loses_no_observation(measure: int, values: list[float]) -> None:
    histogram = shown(measure, _count(values), sum(values))

    assert histogram.count == len(values)
    for bound, cumulated in zip(histogram.bounds, histogram.cumulative(), strict=False):
        assert cumulated == sum(value <= bound for value in values)


def test_a_quantile_lies_within_a_bucket_of_the_true_one() -> None:
    values = np.random.default_rng(1).exponential(3.0, 4000)

    estimate = fine(_count(values.tolist())).quantile(0.95)

    assert estimate == pytest.approx(float(np.quantile(values, 0.95)), rel=0.06)


def test_a_quantile_is_interpolated_in_its_bucket() -> None:
    histogram = Histogram(np.array([1.0, 2.0]), np.array([5, 5, 0]), 10.0)

    assert histogram.quantile(0.5) == pytest.approx(1.0)
    assert histogram.quantile(0.75) == pytest.approx(1.5)


def test_a_quantile_beyond_all_bounds_is_the_largest_bound() -> None:
    assert Histogram(np.array([1.0]), np.array([0, 3]), 30.0).quantile(0.5) == 1.0


def test_nothing_observed_has_no_quantile_and_no_mean() -> None:
    empty = Histogram(np.array([1.0]), np.array([0, 0]), 0.0)

    assert np.isnan(empty.quantile(0.9))
    assert np.isnan(empty.mean)


def test_the_difference_of_two_readings_is_what_came_between() -> None:
    early, late = (
        Histogram(np.array([1.0]), np.array(counts), total) for counts, total in (([1, 0], 0.5), ([3, 1], 5.0))
    )

    between = late.since(early)

    assert between.counts.tolist() == [2, 1]
    assert between.mean == pytest.approx(1.5)
