"""What the linter asks of PromQL expressions; the only module that knows the parser."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import promql_parser as promql

Expr: TypeAlias = Any
"""A node of the parser's tree."""

COMPARISONS: Final = frozenset({"==", "!=", ">", "<", ">=", "<="})
SET_OPERATORS: Final = frozenset({"and", "or", "unless"})

AggregateExpr: Final = promql.AggregateExpr
BinaryExpr: Final = promql.BinaryExpr
Call: Final = promql.Call
MatrixSelector: Final = promql.MatrixSelector
MatchOp: Final = promql.MatchOp
NumberLiteral: Final = promql.NumberLiteral
VectorSelector: Final = promql.VectorSelector

_NAMELESS: Final = frozenset({"vector", "scalar", "time", "pi"})


def parse(text: str) -> Expr:
    """Parse an expression.

    Raises:
        ValueError: It is not PromQL.
    """
    return promql.parse(text)


def children(node: Expr) -> tuple[Expr, ...]:
    """Return the parts of a node, in the order of the text."""
    if isinstance(node, promql.BinaryExpr):
        return node.lhs, node.rhs
    if isinstance(node, promql.Call):
        return tuple(node.args)
    if isinstance(node, promql.AggregateExpr):
        return (node.expr,)
    if isinstance(node, promql.ParenExpr | promql.UnaryExpr | promql.SubqueryExpr):
        return (node.expr,)
    if isinstance(node, promql.MatrixSelector):
        return (node.vector_selector,)
    return ()


def walk(node: Expr) -> Iterator[Expr]:
    """Yield a node and all its parts."""
    yield node
    for child in children(node):
        yield from walk(child)


def bare(node: Expr) -> Expr:
    """Return a node without the brackets around it."""
    while isinstance(node, promql.ParenExpr):
        node = node.expr
    return node


def selectors(node: Expr) -> Iterator[Expr]:
    """Yield every selector of series."""
    return (part for part in walk(node) if isinstance(part, promql.VectorSelector))


def calls(node: Expr, *names: str) -> Iterator[Expr]:
    """Yield every call of some functions."""
    return (part for part in walk(node) if isinstance(part, promql.Call) and part.func.name in names)


def operator(node: Expr) -> str:
    """Return the operator of an aggregation or of two operands; empty for other nodes."""
    return str(node.op) if isinstance(node, promql.BinaryExpr | promql.AggregateExpr) else ""


def is_scalar(node: Expr) -> bool:
    """Say whether a node is one number, without labels."""
    node = bare(node)
    if isinstance(node, promql.UnaryExpr):
        return is_scalar(node.expr)
    if isinstance(node, promql.BinaryExpr):
        return is_scalar(node.lhs) and is_scalar(node.rhs)
    if isinstance(node, promql.Call):
        return bool(node.func.return_type == promql.ValueType.Scalar)
    return isinstance(node, promql.NumberLiteral)


def number(node: Expr) -> float | None:
    """Return the number that a node always stands for; None where it depends on samples."""
    node = bare(node)
    if isinstance(node, promql.NumberLiteral):
        return float(node.val)
    if isinstance(node, promql.UnaryExpr):
        inner = number(node.expr)
        return None if inner is None else -inner
    if isinstance(node, promql.Call) and node.func.name == "vector":
        return number(node.args[0])
    return None


def window_seconds(node: Expr) -> float:
    """Return the longest span that an expression looks back over; 0 where it looks at the newest samples only."""
    return max(map(span_seconds, walk(node)))


def span_seconds(node: Expr) -> float:
    """Return the span that a node itself looks back over."""
    found = node.range if isinstance(node, promql.MatrixSelector | promql.SubqueryExpr) else None
    return 0.0 if found is None else float(found.total_seconds())


@dataclass(frozen=True, slots=True)
class Labels:
    """Which labels an answer can have.

    Attributes:
        only: All that it can have; None where it may have any but `lost`.
        lost: Those that were aggregated away.
    """

    only: frozenset[str] | None = None
    lost: frozenset[str] = frozenset()

    def may_have(self, name: str) -> bool:
        """Say whether the label can be there."""
        return name in self.only if self.only is not None else name not in self.lost

    def plus(self, names: "frozenset[str] | Mapping[str, str]") -> "Labels":
        """Return them with further labels."""
        added = frozenset(names)
        return Labels(None if self.only is None else self.only | added, self.lost - added)

    def minus(self, names: frozenset[str]) -> "Labels":
        """Return them without some labels."""
        return Labels(None if self.only is None else self.only - names, self.lost | names)

    def either(self, other: "Labels") -> "Labels":
        """Return what can be in one or the other."""
        both = None if self.only is None or other.only is None else self.only | other.only
        return Labels(both, self.lost & other.lost)


NONE: Final = Labels(frozenset())


def result_labels(node: Expr, recorded: Mapping[str, Labels]) -> Labels:
    """Return the labels that the answers of an expression can have.

    Args:
        node: The expression.
        recorded: Labels of recorded series, by name.
    """
    node = bare(node)
    if isinstance(node, promql.VectorSelector):
        return recorded.get(node.name or "", Labels())
    if isinstance(node, promql.AggregateExpr):
        return _aggregated(node, recorded)
    if isinstance(node, promql.Call):
        return _called(node, recorded)
    if isinstance(node, promql.BinaryExpr):
        return _combined(node, recorded)
    inner = children(node)
    return result_labels(inner[0], recorded) if inner else NONE


def _aggregated(node: Expr, recorded: Mapping[str, Labels]) -> Labels:
    inside = result_labels(node.expr, recorded)
    if operator(node) in {"topk", "bottomk", "limitk", "limit_ratio"}:
        return inside
    if node.modifier is None:
        return NONE
    named = frozenset(node.modifier.labels)
    if node.modifier.type == promql.AggModifierType.Without:
        return inside.minus(named)
    return Labels(frozenset(name for name in named if inside.may_have(name)))


def _called(node: Expr, recorded: Mapping[str, Labels]) -> Labels:
    name = node.func.name
    if name in _NAMELESS:
        return NONE
    if name in {"absent", "absent_over_time"}:
        return _absent(node.args[0])
    vectors = [part for part in node.args if not isinstance(part, promql.StringLiteral) and not is_scalar(part)]
    if not vectors:
        return NONE
    found = result_labels(vectors[0], recorded)
    if name == "histogram_quantile":
        return found.minus(frozenset({"le"}))
    if name in {"label_replace", "label_join"}:
        return found.plus(frozenset({str(node.args[1].val)}))
    return found


def _absent(node: Expr) -> Labels:
    node = bare(node)
    selector = node.vector_selector if isinstance(node, promql.MatrixSelector) else node
    if not isinstance(selector, promql.VectorSelector):
        return NONE  # Only plain selectors hand their labels on.
    equal = (matcher.name for matcher in selector.matchers.matchers if matcher.op == MatchOp.Equal)
    return Labels(frozenset(equal) - {"__name__"})


def _combined(node: Expr, recorded: Mapping[str, Labels]) -> Labels:
    left, right = result_labels(node.lhs, recorded), result_labels(node.rhs, recorded)
    if is_scalar(node.lhs) or is_scalar(node.rhs):
        return right if is_scalar(node.lhs) else left
    if operator(node) in SET_OPERATORS:
        return left.either(right) if operator(node) == "or" else left
    return left if node.modifier is None else _matched(node.modifier, left, right)


def _matched(modifier: promql.BinModifier, left: Labels, right: Labels) -> Labels:
    taken = frozenset(modifier.group_labels or ())
    if modifier.card == promql.VectorMatchCardinality.ManyToOne:
        return left.plus(taken)
    if modifier.card == promql.VectorMatchCardinality.OneToMany:
        return right.plus(taken)
    if modifier.matching is None:
        return left
    named = frozenset(modifier.matching.labels)
    return Labels(named) if is_on(modifier.matching) else left.minus(named)


def is_on(matching: Expr) -> bool:
    """Say whether operands are matched on the labels named, rather than on all others."""
    return bool(matching.type == promql.LabelModifierType.Include)
