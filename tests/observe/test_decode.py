from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import QueryRejected
from tuner.observe.decode import decode, join, merge
from tuner.observe.source import Answer, Series


def series(*samples: tuple[float, float], **labels: str) -> Series:
    return Series(labels, np.array([time for time, _ in samples]), np.array([value for _, value in samples]))


def item(*pairs: tuple[float, str], **labels: str) -> dict[str, Any]:
    return {"metric": labels, "values": [list(pair) for pair in pairs]}


def test_instants_and_ranges_become_series() -> None:
    found, duplicates = decode([{"metric": {"a": "b"}, "value": [1.5, "2"]}, item((1, "3"), (2, "NaN"))])

    assert [each.labels for each in found] == [{"a": "b"}, {}]
    np.testing.assert_array_equal(found[0].times_seconds, [1.5])
    np.testing.assert_array_equal(found[1].values, [3.0, np.nan])
    assert duplicates == 0


def test_nothing_becomes_nothing() -> None:
    assert decode([]) == ((), 0)
    found, _ = decode([item(), item((1, "2"), a="b"), item(c="d")])
    assert [len(each.values) for each in found] == [0, 1, 0]


@pytest.mark.parametrize("key", ["histogram", "histograms"])
def test_native_histograms_are_refused(key: str) -> None:
    with pytest.raises(QueryRejected, match="histogram_quantile"):
        decode([{"metric": {}, key: [1, {"count": "3"}]}])


def test_of_samples_for_one_instant_the_last_stays() -> None:
    found, duplicates = decode([item((2, "1"), (1, "0"), (2, "3"), a="b"), item((3, "9"), (1, "7"), a="b")])

    (one,) = found
    assert list(zip(one.times_seconds.tolist(), one.values.tolist(), strict=True)) == [
        (1.0, 7.0),
        (2.0, 3.0),
        (3.0, 9.0),
    ]
    assert duplicates == 2


labels = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["x", "y"]), max_size=2)
samples = st.lists(st.tuples(st.integers(min_value=0, max_value=6).map(float), st.floats(0, 9)), max_size=6)


@given(st.lists(st.tuples(labels, samples), max_size=6))
def test_merged_series_are_unique_ascending_and_complete(parts: list[tuple[dict[str, str], Any]]) -> None:
    found, duplicates = merge(series(*each, **names) for names, each in parts)

    expected: dict[tuple[frozenset[tuple[str, str]], float], float] = {}
    for names, each in parts:
        expected |= {(frozenset(names.items()), time): value for time, value in each}
    got = [
        ((frozenset(each.labels.items()), time), value)
        for each in found
        for time, value in zip(each.times_seconds.tolist(), each.values.tolist(), strict=True)
    ]
    assert dict(got) == expected
    assert len(got) == len(expected), "each instant once"
    assert len({frozenset(each.labels.items()) for each in found}) == len(found)
    assert all((np.diff(each.times_seconds) > 0).all() for each in found)
    assert duplicates == sum(len(each) for _, each in parts) - len(expected)


def test_pieces_of_a_range_are_joined_with_all_that_they_cost() -> None:
    first = Answer(series=(series((1, 1.0)),), warnings=("w",), duplicates=1, bytes_read=10, clock_offset_seconds=0.1)
    second = Answer(series=(series((2, 2.0)), series((2, 5.0), a="b")), warnings=("w", "v"), queries=2, bytes_read=5)

    whole = join([first, second], queries=1)

    assert [each.values.tolist() for each in whole] == [[1.0, 2.0], [5.0]]
    assert (whole.warnings, whole.duplicates, whole.queries, whole.bytes_read) == (("w", "v"), 1, 4, 15)
    assert whole.partial
