"""Tests of the alerts for `promtool test rules`, made from the example of each.

Five cases each: it fires while all is bad; it is quiet while all is well; it is resolved after all is well again; it
does not outlive its series (or, where it tells of absence, it does); and NaN, which is no value, does not make it fire.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tuner.alerts.catalogue import alerts, groups
from tuner.alerts.render import annotations, labels, quoted
from tuner.alerts.rows import Alert, Clock, Course, Gone, Input, Level
from tuner.alerts.site import FRESH_SECONDS, Site, whole_minutes

HEADER: Final = """\
# Tests of clocktuner.rules.yaml: run `promtool test rules {name}` in this folder.
# Generated from the example of each alert by `python -m tuner.alerts`: do not edit.
# All is well for the first ten minutes.
rule_files: [clocktuner.rules.yaml]
evaluation_interval: {minutes}m
tests:
"""

CASES: Final = ("fires", "is quiet", "is resolved", "stale series", "NaN")

WELL_MINUTES: Final = 10
"""All is well before anything goes wrong."""

MARGIN_EVALUATIONS: Final = 3
"""Added to every wait, for the evaluations at its ends."""

SLOW_SECONDS: Final = 3600.0
"""Alerts that wait or look back for an hour or more have a file of their own, which is evaluated less often: days take
long to pass."""

OWN_LABELS: Final[Mapping[str, str]] = {"cluster": "north", "policy": "main"}
TARGET_LABELS: Final[Mapping[str, str]] = {"job": "clocktuner", "instance": "tuner:9464"}


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of time in which all inputs are good, bad, ended, or NaN."""

    kind: str
    minutes: int


@dataclass(frozen=True, slots=True)
class CaseFile:
    """A file of tests.

    Attributes:
        name: Its name.
        minutes: Distance of evaluations.
        slow: Whether it holds the alerts that wait or look back for long, or the others.
    """

    name: str
    minutes: int
    slow: bool

    def text(self, site: Site) -> str:
        """Return it for the rules of a site that looks at all clusters."""
        rows = [alert for alert in alerts(groups(site)) if _is_slow(alert) == self.slow]
        cases = (_case(site, alert, case, evaluation_minutes=self.minutes) for alert in rows for case in CASES)
        return HEADER.format(name=self.name, minutes=self.minutes) + "".join(cases)


FILES: Final = (
    CaseFile("clocktuner.tests.yaml", minutes=1, slow=False),
    CaseFile("clocktuner.slow.tests.yaml", minutes=10, slow=True),
)


def _is_slow(alert: Alert) -> bool:
    return max(alert.window_seconds, alert.for_seconds) >= SLOW_SECONDS


def _case(site: Site, alert: Alert, case: str, *, evaluation_minutes: int) -> str:
    margin = MARGIN_EVALUATIONS * evaluation_minutes
    lasting = alert.example.bad_seconds or alert.window_seconds + alert.for_seconds
    fires_after = whole_minutes(lasting) + margin
    ends_after = whole_minutes(max(alert.window_seconds, FRESH_SECONDS) + alert.keep_seconds) + 2 * margin
    well, bad = Phase("good", WELL_MINUTES), Phase("bad", fires_after)
    phases, fires = {
        "fires": ([well, bad], True),
        "is quiet": ([well, Phase("good", fires_after)], False),
        "is resolved": ([well, bad, Phase("good", ends_after)], False),
        "stale series": ([well, bad, Phase("gone", ends_after)], alert.example.fires_when_gone),
        "NaN": ([Phase("nan", WELL_MINUTES + fires_after)], alert.example.fires_on_nan),
    }[case]
    at = sum(phase.minutes for phase in phases) - 1
    expected = _expected(site, alert) if fires or alert.example.always else ""
    told = "".join(f", {name} {value}" for name, value in alert.labels.items())
    name = quoted(f"{alert.name}{told}: {case}")
    text = f"  - name: {name}\n    interval: 1m\n"
    if alert.example.inputs:
        text += "    input_series:\n"
    for row in alert.example.inputs:
        text += f"      - series: {_quote(_selector(row))}\n        values: {_quote(_values(row, phases))}\n"
    return text + (_silent(alert, at) if alert.labels and not expected else _checked(alert, at, expected))


def _checked(alert: Alert, at: int, expected: str) -> str:
    quiet = "" if expected else " []"
    return (
        f"    alert_rule_test:\n      - alertname: {alert.name}\n        eval_time: {at}m\n"
        f"        exp_alerts:{quiet}\n{expected}"
    )


def _silent(alert: Alert, at: int) -> str:
    # Other rows of the same name may fire, so that this one has to be asked for by its labels.
    told = "".join(f', {name}="{value}"' for name, value in alert.labels.items())
    selector = f'ALERTS{{alertname="{alert.name}", alertstate="firing"{told}}}'
    return (
        f"    promql_expr_test:\n      - expr: {_quote(selector)}\n        eval_time: {at}m\n        exp_samples: []\n"
    )


def _expected(site: Site, alert: Alert) -> str:
    carried = {**({} if alert.example.bare else OWN_LABELS), **alert.example.labels}
    told = {key: _filled(text, alert, carried) for key, text in annotations(site, alert).items()}
    text = "          - exp_labels:\n"
    text += "".join(
        f"              {key}: {quoted(value)}\n" for key, value in {**labels(site, alert), **carried}.items()
    )
    text += "            exp_annotations:\n"
    return text + "".join(f"              {key}: {quoted(value)}\n" for key, value in told.items())


def _filled(text: str, alert: Alert, carried: Mapping[str, str]) -> str:
    text = re.sub(r"\{\{ if \$labels\.(\w+) \}\}(.*?)\{\{ end \}\}", lambda m: m[2] if m[1] in carried else "", text)
    text = re.sub(r"\{\{ \$labels\.(\w+)(?: \| urlquery)? \}\}", lambda match: carried[match[1]], text)
    return re.sub(r"\{\{ \$value [^}]*\}\}", lambda _: alert.example.shown, text)


def _selector(row: Input) -> str:
    own = {} if row.bare else {**OWN_LABELS, **TARGET_LABELS}
    inside = ", ".join(f'{name}="{value}"' for name, value in {**own, **row.labels}.items())
    return f"{row.name}{{{inside}}}"


def _values(row: Input, phases: Sequence[Phase]) -> str:
    return " ".join(_stretches(row, phases))


def _stretches(row: Input, phases: Sequence[Phase]) -> Iterator[str]:
    minute, last = 0, 0.0
    for phase in phases:
        more = phase.minutes - 1
        course: Course = {"good": row.good, "bad": row.bad}.get(phase.kind, Gone())
        if phase.kind == "nan":
            yield f"NaN+0x{more}"
        elif isinstance(course, Gone):
            yield f"stale _x{more - 1}"
        else:
            first, step = _course(course, minute=minute, last=last)
            yield f"{first:.10g}+{step:.10g}x{more}" if step >= 0 else f"{first:.10g}{step:.10g}x{more}"
            last = first + step * more
        minute += phase.minutes


def _course(course: Course, *, minute: int, last: float) -> tuple[float, float]:
    """Return the first value of a stretch and its growth a minute."""
    if isinstance(course, Level):
        return course.value, 0.0
    if isinstance(course, Clock):
        return 60.0 * minute - course.lag_seconds, 60.0
    assert not isinstance(course, Gone)  # noqa: S101 - the caller has dealt with it.
    return last + course.per_minute, course.per_minute


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
