"""From the JSON of an answer to series: pure, and in bulk, because an answer may hold 20,000 of them."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from tuner.errors import QueryRejected, QueryTooLarge
from tuner.observe.source import Answer, Series
from tuner.values.rounding import significant
from tuner.values.stages import FloatArray

DIGITS: Final = 9
"""Significant digits that are believed of a sample. A store sums series in an order that it does not fix, so the last
digits of the same question may differ from answer to answer; no decision may hang on them."""


def decode(result: Sequence[Any]) -> tuple[tuple[Series, ...], int]:
    """Return the series of `data.result`, and how many samples came twice.

    Args:
        result: Objects with `metric` and either `value` (one pair) or `values` (pairs) of Unix seconds and text.

    Raises:
        QueryRejected: A series holds native histograms.
        KeyError, TypeError, ValueError, AttributeError: The answer is not of that shape.
    """
    labels: list[dict[str, str]] = []
    points: list[Sequence[Any]] = []
    ends = [0]
    for item in result:
        if "histogram" in item or "histograms" in item:
            raise QueryRejected("the answer holds native histograms; reduce them with histogram_quantile() or the like")
        pairs = item["values"] if "values" in item else (item["value"],)
        labels.append(dict(item["metric"]))
        points.extend(pairs)
        ends.append(len(points))
    times = np.array([float(time) for time, _ in points])
    values = significant(np.array([float(value) for _, value in points]), DIGITS)
    series = tuple(Series(each, times[a:b], values[a:b]) for each, (a, b) in zip(labels, pairwise(ends), strict=True))
    return merge(series)


def too_many_series(count: int, max_series: int) -> QueryTooLarge:
    """Return the error for an answer with too many series."""
    return QueryTooLarge(
        f"the answer holds {count} series, over source.max_series ({max_series}): aggregate away the label that "
        "should not be there (a job, user or task id?), or raise the limit"
    )


def merge(series: Iterable[Series]) -> tuple[tuple[Series, ...], int]:
    """Return each set of labels once with its times ascending, and how many samples were dropped as duplicates.

    Of samples for the same instant the last one stays.
    """
    series = tuple(series)
    keys = [frozenset(each.labels.items()) for each in series]
    if len(set(keys)) == len(keys) and _in_order(series):
        return series, 0
    parts: dict[frozenset[tuple[str, str]], list[Series]] = {}
    for key, each in zip(keys, series, strict=True):
        parts.setdefault(key, []).append(each)
    merged = []
    for same in parts.values():
        times, values = _ascending(
            np.concatenate([each.times_seconds for each in same]), np.concatenate([each.values for each in same])
        )
        merged.append(Series(same[0].labels, times, values))
    count = sum(len(each.times_seconds) for each in series)
    return tuple(merged), count - sum(len(each.times_seconds) for each in merged)


def _in_order(series: Sequence[Series]) -> bool:
    """Say whether the times of every series ascend; in one go, for there may be thousands of short ones."""
    if not series:
        return True
    times = np.concatenate([each.times_seconds for each in series])
    rises = times[1:] > times[:-1]
    ends = np.cumsum([len(each.times_seconds) for each in series]) - 1
    rises[ends[(ends >= 0) & (ends < len(rises))]] = True
    return bool(rises.all())


def _ascending(times: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    order = np.argsort(times, kind="stable")
    times, values = times[order], values[order]
    last = np.append(times[1:] > times[:-1], True)[: len(times)]
    return times[last], values[last]


def join(answers: Sequence[Answer], *, queries: int = 0) -> Answer:
    """Return one answer for the pieces of a range.

    Args:
        answers: The pieces, in order of time.
        queries: Requests that led to no piece.
    """
    if len(answers) == 1 and not queries:
        return answers[0]
    series, duplicates = merge(each for answer in answers for each in answer)
    return Answer(
        series=series,
        warnings=tuple(dict.fromkeys(text for answer in answers for text in answer.warnings)),
        duplicates=duplicates + sum(answer.duplicates for answer in answers),
        queries=queries + sum(answer.queries for answer in answers),
        bytes_read=sum(answer.bytes_read for answer in answers),
        clock_offset_seconds=answers[-1].clock_offset_seconds if answers else float("nan"),
    )
