"""Rule files as the linter sees them: every rule with its lines and its parsed expression."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from tuner.alerts.lint.promql import Expr, Labels, parse, result_labels, selectors
from tuner.errors import ConfigError
from tuner.settings.documents import Document, read_document

_DURATION: Final = re.compile(r"(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?")
_SECONDS: Final = (31_536_000.0, 604_800.0, 86_400.0, 3600.0, 60.0, 1.0, 0.001)


def duration_seconds(text: str) -> float | None:
    """Return a span of time as Prometheus writes it, in seconds; None where it is none."""
    if text == "0":
        return 0.0
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        return None
    return sum(int(part or 0) * size for part, size in zip(match.groups(), _SECONDS, strict=True))


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with a rule.

    Attributes:
        check: Name of the check.
        path: The file.
        line: The line, counted from 1.
        rule: Name of the rule; empty where the file as a whole is meant.
        message: What is wrong.
        remedy: What to do.
    """

    check: str
    path: Path
    line: int
    rule: str
    message: str
    remedy: str

    def __str__(self) -> str:
        """Return it as one line for people and editors."""
        named = f"{self.rule}: " if self.rule else ""
        return f"{self.path}:{self.line}: [{self.check}] {named}{self.message}; {self.remedy}"


@dataclass(frozen=True)
class Rule:
    """One rule of a file.

    Attributes:
        path: The file.
        group: Name of its group.
        name: Name of the alert, or of the recorded series.
        alerting: Whether it is an alert.
        text: Its expression.
        waits: `for` and `keep_firing_for`, as they stand.
        labels: Labels that it adds.
        annotations: What it tells a person.
        lines: Line of each of its keys, and of the rule itself under the empty name.
    """

    path: Path
    group: str
    name: str
    alerting: bool
    text: str
    waits: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def expression(self) -> Expr | None:
        """The parsed expression; None where it is not PromQL, of which a check of its own speaks."""
        try:
            return parse(self.text)
        except ValueError:
            return None

    @property
    def for_seconds(self) -> float:
        """How long it has to be active; 0 where that is not given or not understood."""
        return duration_seconds(self.waits.get("for", "0")) or 0.0

    def line(self, key: str = "") -> int:
        """Return the line of one of its keys, such as `expr` or `labels.severity`."""
        return self.lines.get(key, self.lines.get(key.partition(".")[0], self.lines.get("", 1)))


@dataclass(frozen=True, slots=True)
class Options:
    """What files alone do not tell.

    Attributes:
        scrape_seconds: Longest distance of two scrapes.
        retention_seconds: How far back Prometheus remembers.
        external_labels: Labels that Prometheus puts on everything that leaves it.
        keep_labels: Labels that no aggregation in an alert may lose.
        metrics: Names of all series that exist; None where that is not known.
    """

    scrape_seconds: float = 60.0
    retention_seconds: float = 15 * 86_400.0
    external_labels: frozenset[str] = frozenset()
    keep_labels: frozenset[str] = frozenset()
    metrics: frozenset[str] | None = None


@dataclass(frozen=True)
class Book:
    """All rules that are looked at together, and how."""

    rules: Sequence[Rule]
    options: Options = field(default_factory=Options)

    @cached_property
    def recorded(self) -> Mapping[str, Rule]:
        """The rules that record a series, by its name."""
        return {rule.name: rule for rule in self.rules if not rule.alerting}

    @cached_property
    def recorded_labels(self) -> Mapping[str, Labels]:
        """Labels of the recorded series whose rule tells them, by name."""
        known: dict[str, Labels] = {}
        for name, rule in self.recorded.items():
            if rule.expression is not None:
                labels = result_labels(rule.expression, known)
                known[name] = labels.plus(rule.labels)
        return known

    def labels_of(self, expression: Expr) -> Labels:
        """Return the labels of an expression's answers, as far as they can be told."""
        return result_labels(expression, self.recorded_labels)

    def uses(self, rule: Rule) -> Iterator[str]:
        """Yield the names of the recorded series that a rule reads."""
        if rule.expression is not None:
            yield from (
                name for selector in selectors(rule.expression) if (name := selector.name or "") in self.recorded
            )


def read_rules(path: Path) -> tuple[Rule, ...]:
    """Return the rules of a file: of Prometheus itself, or a PrometheusRule of Kubernetes.

    Raises:
        ConfigError: The file cannot be read, or is no file of rules.
    """
    document = read_document(path, what="a file of Prometheus rules", remedy="check its name")
    at: tuple[str | int, ...] = ("spec", "groups") if "spec" in document.data else ("groups",)
    spec = document.data.get("spec", document.data)
    groups = spec.get("groups") if isinstance(spec, dict) else None
    if not isinstance(groups, list):
        raise ConfigError(f"{path}: has no list of groups, must be a file of Prometheus rules; check its name")
    return tuple(
        _rule(path, document, group, raw, (*at, number, "rules", index))
        for number, group in enumerate(groups)
        for index, raw in enumerate(_rules_of(path, group))
    )


def _rules_of(path: Path, group: object) -> Sequence[object]:
    rules = group.get("rules") if isinstance(group, dict) else None
    if not isinstance(rules, list):
        raise ConfigError(f"{path}: a group has no list of rules; give it one")
    return rules


def _rule(path: Path, document: Document, group: object, raw: object, at: tuple[str | int, ...]) -> Rule:
    line = document.lines.get(at, 1)
    if not isinstance(raw, dict) or not ({"alert", "record"} & raw.keys()) or "expr" not in raw:
        raise ConfigError(f"{path}:{line}: a rule must have alert or record, and expr; add what is missing")
    lines = {
        ".".join(map(str, key[len(at) :])): number for key, number in document.lines.items() if key[: len(at)] == at
    }
    return Rule(
        path=path,
        group=str(group["name"]) if isinstance(group, dict) and "name" in group else "",
        name=str(raw.get("alert", raw.get("record"))),
        alerting="alert" in raw,
        text=str(raw["expr"]),
        waits={key: str(raw[key]) for key in ("for", "keep_firing_for") if key in raw},
        labels=_texts(raw.get("labels")),
        annotations=_texts(raw.get("annotations")),
        lines=lines,
    )


def _texts(raw: object) -> Mapping[str, str]:
    return {str(key): str(value) for key, value in raw.items()} if isinstance(raw, dict) else {}
