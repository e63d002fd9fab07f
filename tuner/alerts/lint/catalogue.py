"""All checks, and how they are run over files."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tuner.alerts.lint import alerting, naming, querying, selecting
from tuner.alerts.lint.alerting import Problem
from tuner.alerts.lint.rules import Book, Finding, Options, Rule, read_rules


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name, as pint has it, and what it asks."""

    name: str
    ask: Callable[[Rule, Book], Iterator[Problem]]


CHECKS: Final = (
    Check("promql/syntax", querying.syntax),
    Check("alerts/absent", alerting.absent),
    Check("alerts/annotation", alerting.annotation),
    Check("alerts/comparison", alerting.comparison),
    Check("alerts/count", alerting.count),
    Check("alerts/external_labels", alerting.external_labels),
    Check("alerts/for", alerting.waits),
    Check("alerts/template", alerting.template),
    Check("labels/conflict", naming.conflict),
    Check("promql/aggregate", querying.aggregate),
    Check("promql/counter", querying.counter),
    Check("promql/fragile", querying.fragile),
    Check("promql/impossible", querying.impossible),
    Check("promql/nan", querying.nan),
    Check("promql/range_query", querying.range_query),
    Check("promql/rate", querying.rate),
    Check("promql/regexp", selecting.regexp),
    Check("promql/selector", selecting.selector),
    Check("promql/series", selecting.series),
    Check("promql/vector_matching", querying.vector_matching),
    Check("rule/dependency", naming.dependency),
    Check("rule/duplicate", naming.duplicate),
    Check("rule/label", naming.label),
    Check("rule/link", naming.link),
    Check("rule/name", naming.name),
    Check("rule/for", naming.wait),
)


def lint(paths: Iterable[Path], options: Options | None = None) -> tuple[Finding, ...]:
    """Return all that is wrong with the rules of some files, in the order of the files and their lines.

    The files are looked at together: a series that one of them records is known to the others.

    Raises:
        ConfigError: A file cannot be read, or is no file of rules.
    """
    rules = tuple(rule for path in paths for rule in read_rules(path))
    book = Book(rules, options or Options())
    found = {
        Finding(check.name, rule.path, rule.line(problem.key), rule.name, problem.message, problem.remedy): None
        for rule in rules
        for check in CHECKS
        for problem in check.ask(rule, book)
    }
    return tuple(sorted(found, key=lambda finding: (str(finding.path), finding.line)))
