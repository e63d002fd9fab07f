"""Checks of selectors: do they choose what is meant, and does it exist?"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tuner.alerts.lint.alerting import Problem
from tuner.alerts.lint.promql import (
    Expr,
    MatchOp,
    selectors,
)
from tuner.alerts.lint.rules import Book, Rule
from tuner.record.families import FAMILIES, PREFIX, FamilySpec, Kind
from tuner.settings.faults import nearest

ANYBODYS: Final = re.compile(r"up|scrape_\w+|process_\w+|go_\w+|python_\w+|ALERTS\w*")
"""Series that every job has."""

_SUFFIXES: Final[Mapping[Kind, tuple[str, ...]]] = {
    Kind.HISTOGRAM: ("_bucket", "_sum", "_count"),
    Kind.SUMMARY: ("_sum", "_count"),
}
EXPORTED: Final[Mapping[str, FamilySpec]] = {
    spec.full_name + suffix: spec for spec in FAMILIES for suffix in _SUFFIXES.get(spec.kind, ("",))
}
"""What clocktuner exports, by the name of the series."""


def regexp(rule: Rule, _: Book) -> Iterator[Problem]:
    """A regular expression is one, and is needed."""
    if rule.expression is None:
        return
    for selector in selectors(rule.expression):
        for matcher in selector.matchers.matchers:
            if matcher.op in (MatchOp.Re, MatchOp.NotRe):
                yield from _pattern(matcher.name, matcher.value)


def selector(rule: Rule, _: Book) -> Iterator[Problem]:
    """A selector names a metric, and whose it is where every job has it."""
    if rule.expression is None:
        return
    for part in selectors(rule.expression):
        matchers = part.matchers.matchers
        if not part.name and not any(m.name == "__name__" and m.op == MatchOp.Equal for m in matchers):
            yield Problem("expr", "selects series without the name of a metric", "name the metric")
        elif part.name and ANYBODYS.fullmatch(part.name) and not matchers:
            yield Problem("expr", f"selects {part.name} of every job", f'choose the job: {part.name}{{job="..."}}')


def series(rule: Rule, book: Book) -> Iterator[Problem]:
    """A metric exists: in clocktuner's catalogue, among the recorded series, or on the pages that were given."""
    if rule.expression is None:
        return
    for part in selectors(rule.expression):
        name = part.name or ""
        if ":" in name:
            if name not in book.recorded:
                yield Problem(
                    "expr", f"reads {name}, which no rule here records", "record it, or lint its file as well"
                )
        elif name.startswith(PREFIX):
            yield from _own(name, part)
        elif book.options.metrics is not None and name and name not in book.options.metrics:
            yield Problem("expr", f"reads {name}, which no page exports", _meant(name, book.options.metrics))


def _pattern(name: str, pattern: str) -> Iterator[Problem]:
    try:
        re.compile(pattern)
    except re.error as error:
        yield Problem("expr", f"the pattern of {name} is none: {error}", "mend it")
        return
    if pattern.startswith("^") or (pattern.endswith("$") and not pattern.endswith("\\$")):
        yield Problem("expr", f"the pattern of {name} has ^ or $, but is always whole", "leave them out")
    if pattern in {".*", ".+"}:
        yield Problem("expr", f"the pattern {pattern} of {name} hardly chooses", 'leave it out, or write !=""')
    elif re.fullmatch(r"[\w\-:/ ]*", pattern):
        yield Problem("expr", f"the pattern {pattern!r} of {name} is plain text", "use = or !=")


def _own(name: str, part: Expr) -> Iterator[Problem]:
    spec = EXPORTED.get(name)
    if spec is None:
        yield Problem("expr", f"reads {name}, which clocktuner does not export", _meant(name, EXPORTED))
        return
    values = dict(zip(spec.labels, spec.values, strict=True))
    for matcher in part.matchers.matchers:
        known = values.get(matcher.name)
        if known and matcher.op in (MatchOp.Equal, MatchOp.NotEqual) and matcher.value not in known:
            yield Problem(
                "expr",
                f"{name} has no {matcher.name}={matcher.value!r}",
                _meant(matcher.value, known),
            )


def _meant(name: str, known: Iterable[str]) -> str:
    close = nearest(name, known)
    return f"did you mean {close}?" if close else "take one that is exported"
