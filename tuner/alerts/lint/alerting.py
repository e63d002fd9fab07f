"""Checks of what makes an alert: does it end, does it begin too soon, and does it tell a person enough?"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from tuner.alerts.lint.promql import COMPARISONS, bare, calls, operator, selectors, walk, window_seconds
from tuner.alerts.lint.rules import Book, Rule, duration_seconds

REQUIRED_ANNOTATIONS: Final = ("summary", "description", "runbook_url")

UNBOUNDED: Final = frozenset(
    {"job_id", "jobid", "pod", "pod_name", "task_id", "trial", "trial_id", "uid", "user", "user_id", "container_id"}
)
"""Labels whose values are without number: one alert for each is a flood."""

_REFERENCE: Final = re.compile(r"\$labels\.(\w+)|\.Labels\.(\w+)|\$labels\s*\"(\w+)\"")
_EXTERNAL: Final = re.compile(r"\$externalLabels\.(\w+)|\.ExternalLabels\.(\w+)")


class Problem(NamedTuple):
    """What a check has to say of a rule.

    Attributes:
        key: The part of the rule that is meant, such as `expr` or `labels.severity`.
        message: What is wrong.
        remedy: What to do.
    """

    key: str
    message: str
    remedy: str


def absent(rule: Rule, book: Book) -> Iterator[Problem]:
    """An `absent()` without a wait of two scrapes fires whenever Prometheus restarts."""
    least = 2 * book.options.scrape_seconds
    if rule.expression is None or not rule.alerting or not any(calls(rule.expression, "absent")):
        return
    if rule.for_seconds < least:
        yield Problem(
            "for",
            f"absent() with for {rule.for_seconds:g} s fires on a single lost scrape",
            f"wait for {least:g} s or more",
        )


def annotation(rule: Rule, _: Book) -> Iterator[Problem]:
    """An alert has a summary, a description and a runbook."""
    if not rule.alerting:
        return
    for name in REQUIRED_ANNOTATIONS:
        if not rule.annotations.get(name, "").strip():
            yield Problem("annotations", f"has no {name}", f"add the annotation {name}")


def comparison(rule: Rule, _: Book) -> Iterator[Problem]:
    """An alert has a condition: without one it fires as long as its series exist."""
    node = rule.expression
    if node is None or not rule.alerting or not any(selectors(node)):
        return  # What names no series, such as vector(1), always fires on purpose.
    filters = any(
        (operator(part) in COMPARISONS and not (part.modifier is not None and part.modifier.return_bool))
        or operator(part) == "unless"
        for part in walk(node)
    )
    if not filters and not any(calls(node, "absent", "absent_over_time")):
        yield Problem("expr", "compares with nothing, so it fires as long as its series exist", "compare with a limit")
    elif operator(bare(node)) in COMPARISONS and bare(node).modifier is not None and bare(node).modifier.return_bool:
        yield Problem("expr", "ends in a comparison with bool, whose 0 fires as well as its 1", "leave bool out")


def count(rule: Rule, book: Book) -> Iterator[Problem]:
    """An alert is not one for each job or pod: how many there are, nobody knows."""
    if rule.expression is None or not rule.alerting:
        return
    only = book.labels_of(rule.expression).only
    for name in sorted((only or frozenset()) & UNBOUNDED):
        yield Problem("expr", f"is one alert for each {name}, without limit to their number", f"aggregate {name} away")


def external_labels(rule: Rule, book: Book) -> Iterator[Problem]:
    """A template names only external labels that are configured."""
    for key, text in _templates(rule):
        for name in sorted(set(filter(None, (part for found in _EXTERNAL.findall(text) for part in found)))):
            if name not in book.options.external_labels:
                yield Problem(
                    key,
                    f"names the external label {name}, which is not known to be configured",
                    f"configure it and pass --external-label {name}, or leave it out",
                )


def waits(rule: Rule, _: Book) -> Iterator[Problem]:
    """An alert looks at more than one sample: by a window, or by `for`; and its spans of time are some."""
    for key, text in rule.waits.items():
        seconds = duration_seconds(text)
        if seconds is None:
            yield Problem(key, f"{key} is {text!r}, no span of time", "write it as 90s, 15m or 1h30m")
        elif seconds == 0:
            yield Problem(key, f"{key} is 0, as it would be without", f"remove {key}")
    node = rule.expression
    if node is None or not rule.alerting or not any(selectors(node)):
        return
    if (
        not rule.for_seconds
        and not window_seconds(node)
        and not any(":" in (part.name or "") for part in selectors(node))
    ):
        yield Problem("expr", "fires on a single sample", "add for, or look at a window")


def template(rule: Rule, book: Book) -> Iterator[Problem]:
    """A template is closed, names only labels that are there, and the value stays out of the labels."""
    for key, text in _templates(rule):
        if text.count("{{") != text.count("}}"):
            yield Problem(key, "has a template that is not closed", "write {{ ... }}")
        if key.startswith("labels.") and re.search(r"\$value|\.Value", text):
            yield Problem(
                key, "puts the value into a label, so that each value is another alert", "put it into an annotation"
            )
        yield from _absent_labels(rule, book, key, text)
        if key == "annotations.summary" and re.search(r"\{\{[^}]*(\$value|\.Value)", text):
            yield Problem(key, "shows the value, which changes from one notification to the next", "use description")


def _absent_labels(rule: Rule, book: Book, key: str, text: str) -> Iterator[Problem]:
    if rule.expression is None:
        return
    labels = book.labels_of(rule.expression).plus(rule.labels).plus(frozenset({"alertname"}))
    named = {part for found in _REFERENCE.findall(text) for part in found if part}
    for name in sorted(named):
        if not labels.may_have(name):
            yield Problem(
                key,
                f"names the label {name}, which the expression does not keep",
                f"aggregate by {name} as well, or leave it out",
            )


def _templates(rule: Rule) -> Iterator[tuple[str, str]]:
    for name, text in rule.annotations.items():
        yield f"annotations.{name}", text
    for name, text in rule.labels.items():
        yield f"labels.{name}", text
