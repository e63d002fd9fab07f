"""Checks of expressions: can they have an answer, can they always have one, and is it the answer that is meant?"""

import math
from collections.abc import Iterator
from typing import Final

from tuner.alerts.lint.alerting import Problem
from tuner.alerts.lint.promql import (
    COMPARISONS,
    SET_OPERATORS,
    AggregateExpr,
    BinaryExpr,
    Call,
    Expr,
    MatrixSelector,
    bare,
    calls,
    children,
    is_on,
    is_scalar,
    number,
    operator,
    parse,
    result_labels,
    selectors,
    span_seconds,
    walk,
)
from tuner.alerts.lint.rules import Book, Rule

COUNTER_SUFFIXES: Final = ("_total", "_bucket", "_count", "_sum")
OF_COUNTERS: Final = frozenset(
    {"rate", "irate", "increase", "resets", "absent", "absent_over_time", "present_over_time", "count_over_time"}
    | {"changes", "last_over_time", "timestamp"}
)
OF_GAUGES: Final = frozenset({"delta", "idelta", "deriv", "predict_linear"})


def syntax(rule: Rule, _: Book) -> Iterator[Problem]:
    """An expression is PromQL."""
    try:
        parse(rule.text)
    except ValueError as error:
        yield Problem("expr", f"is not PromQL: {' '.join(str(error).split())}", "correct the expression")


def aggregate(rule: Rule, book: Book) -> Iterator[Problem]:
    """An aggregation in an alert keeps labels, so that the alert can say of whom it speaks."""
    if rule.expression is None or not rule.alerting:
        return
    labels = book.labels_of(rule.expression)
    named = any(selectors(rule.expression)) and not any(calls(rule.expression, "absent", "absent_over_time"))
    if named and labels.only == frozenset():
        yield Problem("expr", "aggregates all labels away", "aggregate by the labels that name what is affected")
        return
    for name in sorted(book.options.keep_labels):
        if not labels.may_have(name) and name not in rule.labels:
            yield Problem("expr", f"loses the label {name}", f"aggregate by {name} as well")


def counter(rule: Rule, _: Book) -> Iterator[Problem]:
    """A counter is read by its growth: as it stands, it only tells when the process started."""
    if rule.expression is None:
        return
    for selector, around in _with_calls(rule.expression, ()):
        name = selector.name or ""
        if name.endswith(COUNTER_SUFFIXES) and ":" not in name and not (OF_COUNTERS & set(around)):
            yield Problem("expr", f"reads the counter {name} as it stands", "use rate() or increase()")


def fragile(rule: Rule, _: Book) -> Iterator[Problem]:
    """An alert does not hang on which series happen to be the largest, or on labels that come and go."""
    if rule.expression is None or not rule.alerting:
        return
    for part in walk(rule.expression):
        name = operator(part)
        if isinstance(part, AggregateExpr) and name in {"topk", "bottomk", "limitk", "limit_ratio"}:
            yield Problem(
                "expr", f"uses {name}(), whose series change from one look to the next", "compare with a limit"
            )
        if isinstance(part, BinaryExpr) and any(_is_without(side) for side in children(part)):
            yield Problem(
                "expr",
                "combines an aggregation by `without`: a label that is new on one side breaks it",
                "aggregate both sides by the labels that are to match",
            )


def impossible(rule: Rule, _: Book) -> Iterator[Problem]:
    """No part of an expression is always false, or always true."""
    if rule.expression is None:
        return
    for part in walk(rule.expression):
        if not isinstance(part, BinaryExpr):
            continue
        left, right = number(part.lhs), number(part.rhs)
        if operator(part) in COMPARISONS and left is not None and right is not None:
            yield Problem("expr", f"compares two numbers, {left:g} {operator(part)} {right:g}", "compare with a series")
        if operator(part) == "and" and _contradict(part.lhs, part.rhs):
            yield Problem("expr", "asks one series to be on two sides at once", "mend the limits")


def nan(rule: Rule, _: Book) -> Iterator[Problem]:
    """A division in an alert is guarded: 0/0 is NaN, which is never over a limit, and x/0 is infinite, which is."""
    if rule.expression is None:
        return
    for part in walk(rule.expression):
        if isinstance(part, BinaryExpr) and operator(part) in {"/", "%"} and not _never_zero(part.rhs):
            yield Problem("expr", "divides by what may be 0", "write x / (y > 0), which then has no answer")


def range_query(rule: Rule, book: Book) -> Iterator[Problem]:
    """A window is no longer than Prometheus remembers."""
    if rule.expression is None:
        return
    most = book.options.retention_seconds
    for part in walk(rule.expression):
        back = span_seconds(part)
        if back > most:
            yield Problem(
                "expr",
                f"looks back {back / 86_400:g} days of {most / 86_400:g} that are kept",
                "shorten the window, or record an aggregate",
            )


def rate(rule: Rule, book: Book) -> Iterator[Problem]:
    """A rate is one of a counter, over two samples or more."""
    if rule.expression is None:
        return
    least = 2 * book.options.scrape_seconds
    for call in calls(rule.expression, "rate", "irate", "increase"):
        window = bare(call.args[0])
        if not isinstance(window, MatrixSelector):
            yield Problem("expr", f"takes {call.func.name}() of a subquery, which hides resets", "aggregate the rates")
            continue
        name = window.vector_selector.name or ""
        if span_seconds(window) < least:
            yield Problem(
                "expr",
                f"takes {call.func.name}() over {span_seconds(window):g} s, which may hold a single sample",
                f"look at {least:g} s or more",
            )
        if name and not name.endswith(COUNTER_SUFFIXES):
            yield Problem("expr", f"takes {call.func.name}() of the gauge {name}", "use delta() or deriv()")
    for call in calls(rule.expression, *OF_GAUGES):
        for selector in selectors(call):
            if (selector.name or "").endswith(COUNTER_SUFFIXES):
                yield Problem("expr", f"takes {call.func.name}() of the counter {selector.name}", "use rate()")


def vector_matching(rule: Rule, book: Book) -> Iterator[Problem]:
    """The two sides of an operator have labels by which they can match."""
    if rule.expression is None:
        return
    for part in walk(rule.expression):
        if not isinstance(part, BinaryExpr) or is_scalar(part.lhs) or is_scalar(part.rhs):
            continue
        sides = [result_labels(side, book.recorded_labels) for side in children(part)]
        matching = part.modifier.matching if part.modifier is not None else None
        if matching is not None and is_on(matching):
            for name in sorted(matching.labels):
                if not all(side.may_have(name) for side in sides):
                    yield Problem("expr", f"matches on {name}, which one side has lost", f"aggregate by {name} as well")
        elif matching is None and operator(part) != "or":
            left, right = (side.only for side in sides)
            if left is not None and right is not None and left != right:
                yield Problem(
                    "expr",
                    f"combines answers by ({', '.join(sorted(left))}) with answers by ({', '.join(sorted(right))})",
                    "say on which labels they match: on (...)",
                )


def _with_calls(node: Expr, around: tuple[str, ...]) -> Iterator[tuple[Expr, tuple[str, ...]]]:
    """Yield every selector with the functions around it."""
    if isinstance(node, Call):
        around = (*around, node.func.name)
    if isinstance(node, AggregateExpr) and operator(node) in {"count", "group"}:
        around = (*around, "absent")  # How many there are does not hang on their values.
    inner = children(node)
    if not inner:
        yield from ((part, around) for part in selectors(node))
    for child in inner:
        yield from _with_calls(child, around)


def _is_without(node: Expr) -> bool:
    node = bare(node)
    if not isinstance(node, AggregateExpr) or node.modifier is None:
        return False
    return str(node.modifier.type).endswith("Without")


def _contradict(left: Expr, right: Expr) -> bool:
    """Say whether two comparisons of one and the same operand with numbers exclude each other."""
    first, second = _interval(bare(left)), _interval(bare(right))
    if first is None or second is None or first[0] != second[0]:
        return False
    return max(first[1], second[1]) > min(first[2], second[2])


def _interval(node: Expr) -> tuple[str, float, float] | None:
    """Return operand, least and greatest value of a comparison with a number; None where it is none."""
    limit = number(node.rhs) if isinstance(node, BinaryExpr) else None
    if limit is None:
        return None
    bounds = {
        ">": (math.nextafter(limit, math.inf), math.inf),
        ">=": (limit, math.inf),
        "==": (limit, limit),
        "<=": (-math.inf, limit),
        "<": (-math.inf, math.nextafter(limit, -math.inf)),
    }.get(operator(node))
    return None if bounds is None else (node.lhs.prettify(), *bounds)


def _never_zero(node: Expr) -> bool:
    node = bare(node)
    value = number(node)
    if value is not None:
        return value != 0
    if isinstance(node, BinaryExpr):
        return _excludes_zero(node) or (
            operator(node) in SET_OPERATORS | {"*"} and all(_never_zero(side) for side in children(node))
        )
    if isinstance(node, AggregateExpr):
        return operator(node) in {"count", "group"} or _never_zero(node.expr)
    if not isinstance(node, Call):
        return False
    least = number(node.args[1]) if node.func.name == "clamp_min" else None
    return node.func.name == "time" or (least is not None and least > 0)


def _excludes_zero(node: Expr) -> bool:
    """Say whether a comparison leaves no 0 among its answers."""
    limit = number(node.rhs)
    if limit is None or (node.modifier is not None and node.modifier.return_bool):
        return False
    return (operator(node) in {">", "!="} and limit >= 0) or (operator(node) == ">=" and limit > 0)
