import promql_parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.observe.promql import NEWEST_LABEL, OR, VALUE_LABEL, fuse_row, newest_at, selectors

VALID = [
    ("up", ("up",)),
    ('up{job="a"}', ('up{job="a"}',)),
    ("up{job=\"}\",x='{'}[5m] offset 1h", ("up{job=\"}\",x='{'}",)),
    ("rate(a_total[5m])", ("a_total",)),
    ("max_over_time(rate(a_total[1m])[10m:30s])", ("a_total",)),
    ("max_over_time(a[5m:])", ("a",)),
    ("sum by (le, job) (a) / on (le) group_left (job) b", ("a", "b")),
    ("sum(a) by (node) / ignoring (x) b", ("a", "b")),
    ("sum without(instance)(a)", ("a",)),
    ("topk by (job) (3, a)", ("a",)),
    ("histogram_quantile(0.99, sum by (le) (rate(h_bucket[5m]))) >= 0", ("h_bucket",)),
    ('{__name__=~"a|b"}', ('{__name__=~"a|b"}',)),
    ("a and on () b or c unless d", ("a", "b", "c", "d")),
    ("a > bool 0 and a < inf", ("a",)),
    ("time() - a @ start()", ("a",)),
    ("1e3 * ns:job:rate5m", ("ns:job:rate5m",)),
    ("a # b, not a selector\n + c", ("a", "c")),
    ("label_replace(a, 'x', '$1', 'y', '(.*)')", ("a",)),
    ("vector(1)", ()),
    ("time()", ()),
    ("2 + 2", ()),
]
INVALID = [
    ("", ()),
    ("rate(a[5m", ("a",)),
    ('a{b="c"', ('a{b="c"',)),
]


@pytest.mark.parametrize(("expression", "expected"), VALID + INVALID)
def test_finds_the_selectors_of_an_expression(expression: str, expected: tuple[str, ...]) -> None:
    assert selectors(expression) == expected


@given(st.text(max_size=60))
def test_any_text_is_split_without_an_error(expression: str) -> None:
    for selector in selectors(expression):
        assert selector in expression


@pytest.mark.parametrize("expression", [expression for expression, found in VALID if found])
def test_the_question_of_age_is_valid_promql_for_every_valid_expression(expression: str) -> None:
    newest = newest_at(expression)

    assert newest is not None
    promql_parser.parse(expression)
    promql_parser.parse(newest)


def test_what_reads_nothing_has_no_age() -> None:
    assert newest_at("vector(1)") is None
    assert NEWEST_LABEL not in fuse_row("x", "vector(1)", age=True)


@pytest.mark.parametrize("expression", ["a", "sum(a) # why", "a or b", "a > 1", "-a", "rate(a[5m]) / (b > 0)"])
def test_rows_join_into_one_valid_expression_whatever_they_end_with(expression: str) -> None:
    rows = [fuse_row("first", expression, age=True), fuse_row("arrivals_per_second:training", expression)]

    fused = OR.join(rows)

    promql_parser.parse(fused)
    assert fused.count(f'"{VALUE_LABEL}"') == 2
    assert fused.count(f'"{NEWEST_LABEL}"') == 1
