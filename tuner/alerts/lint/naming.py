"""Checks of rules as a whole: their names, labels, links, and how they hang together."""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from tuner.alerts.lint.alerting import Problem
from tuner.alerts.lint.rules import Book, Rule, duration_seconds

SEVERITIES: Final = ("critical", "warning", "info", "none")
RESERVED: Final = frozenset({"alertname", "alertstate", "__name__"})
LONGEST_WAIT_SECONDS: Final = 86_400.0
"""An alert that waits for more than a day is a report."""


def conflict(rule: Rule, book: Book) -> Iterator[Problem]:
    """A rule does not set labels that Prometheus sets."""
    for name in sorted(rule.labels):
        if name in RESERVED:
            yield Problem(f"labels.{name}", f"sets the label {name}, which is Prometheus's own", "name it otherwise")
        if name in book.options.external_labels:
            yield Problem(
                f"labels.{name}",
                f"sets the label {name}, which the external label of that name overrides",
                "leave it out",
            )


def dependency(rule: Rule, book: Book) -> Iterator[Problem]:
    """What a rule reads is recorded before it, where both stand in one group: rules run in the order of the file."""
    own = [other for other in book.rules if (other.path, other.group) == (rule.path, rule.group)]
    position = next(index for index, other in enumerate(own) if other is rule)
    later = {other.name for other in own[position:] if not other.alerting}
    for name in sorted(set(book.uses(rule)) & later):
        yield Problem("expr", f"reads {name}, which is recorded after it: one evaluation old", "record it before")


def duplicate(rule: Rule, book: Book) -> Iterator[Problem]:
    """No two rules write the same series, or are the same alert."""
    for other in book.rules:
        if other is rule:
            return  # Those before have been seen.
        same = (other.alerting, other.name, dict(other.labels)) == (rule.alerting, rule.name, dict(rule.labels))
        if same and (not rule.alerting or other.text == rule.text or _same_series(rule, other)):
            where = f"{other.path.name}:{other.line()}"
            yield Problem("", f"stands already at {where}", "remove one of the two, or give it a label of its own")


def _same_series(rule: Rule, other: Rule) -> bool:
    return rule.group == other.group


def link(rule: Rule, _: Book) -> Iterator[Problem]:
    """A link leads somewhere: to an address, or to a file above the rules."""
    for name, text in rule.annotations.items():
        if not name.endswith("_url") or "{{" in text.partition("?")[0]:
            continue
        parts = urlsplit(text)
        if parts.scheme:
            if parts.scheme not in {"http", "https"} or not parts.netloc:
                yield Problem(f"annotations.{name}", f"is no address: {text!r}", "write http(s)://host/path")
        elif name == "runbook_url":
            above = [rule.path.resolve().parent, *rule.path.resolve().parent.parents]
            if not any((folder / parts.path).is_file() for folder in above):
                yield Problem(f"annotations.{name}", f"leads nowhere: {text!r}", "write the file, or mend the link")


def name(rule: Rule, _: Book) -> Iterator[Problem]:
    """An alert is named in CamelCase, a recorded series as level:metric:operation."""
    if rule.alerting:
        if not re.fullmatch(r"[A-Z][A-Za-z0-9]+", rule.name):
            yield Problem("alert", f"the name {rule.name!r} is not in CamelCase", "name it as in HighLatency")
    elif not re.fullmatch(r"[a-z_][\w]*:[a-zA-Z_]\w*:\w+", rule.name):
        yield Problem(
            "record", f"the name {rule.name!r} is not level:metric:operation", "name it as in job:errors:rate5m"
        )


def label(rule: Rule, _: Book) -> Iterator[Problem]:
    """An alert has a severity by which it is routed."""
    if not rule.alerting:
        return
    severity = rule.labels.get("severity")
    if severity is None:
        yield Problem("labels", "has no severity", f"add one of {', '.join(SEVERITIES)}")
    elif severity not in SEVERITIES:
        yield Problem("labels.severity", f"has the severity {severity!r}", f"use one of {', '.join(SEVERITIES)}")


def wait(rule: Rule, _: Book) -> Iterator[Problem]:
    """An alert does not wait for days."""
    for key, text in rule.waits.items():
        if (duration_seconds(text) or 0.0) > LONGEST_WAIT_SECONDS:
            yield Problem(key, f"{key} is {text}, over a day", "look at a longer window instead")
