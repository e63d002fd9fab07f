"""Which samples count."""

import math

import pytest

from tuner.judge.samples import Arrival, arrival


@pytest.mark.parametrize(
    ("at", "newest", "expected"),
    [
        (1000.0, math.nan, Arrival.APART),
        (1000.0, 985.0, Arrival.NEXT),
        (1000.0, 1000.0, Arrival.OLD),
        (math.nan, 1000.0, Arrival.OLD),
        (math.nan, math.nan, Arrival.OLD),
        # A replica that lags behind another repeats what was counted.
        (985.0, 1000.0, Arrival.OLD),
        (940.0, 1000.0, Arrival.OLD),
        # A clock that was set back does not.
        (939.0, 1000.0, Arrival.APART),
        (1180.0, 1000.0, Arrival.NEXT),
        (1181.0, 1000.0, Arrival.APART),
    ],
)
def test_a_sample_counts_once_and_in_a_row_only_without_a_long_gap(at: float, newest: float, expected: Arrival) -> None:
    assert arrival(at, newest_at_seconds=newest, window_seconds=60.0) is expected
