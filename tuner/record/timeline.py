"""The section of the report on safety: what happened, when, why, what was done about it, and how long it lasted."""

import math
from collections.abc import Sequence
from typing import Final

from tuner.record.blocks import section
from tuner.record.html import Markup, table, tag, words
from tuner.record.period import Period
from tuner.record.safety import Event, Kind
from tuner.record.wording import count, quantity, when

SHOWN: Final = 400
"""Events that the page lists, the newest; the JSON beside it has all."""

_TONES: Final = {
    Kind.BREAKER: "bad",
    Kind.DEGRADATION: "bad",
    Kind.FAILED: "bad",
    Kind.HARM: "bad",
    Kind.INTERRUPTED: "bad",
    Kind.FREEZE: "trial",
    Kind.CONTEST: "trial",
    Kind.PAUSE: "trial",
    Kind.UNDONE: "trial",
    Kind.WOULD: "trial",
    Kind.HEAL: "good",
    Kind.DRILL: "good",
    Kind.ORDER: "muted",
}


def safety(period: Period) -> Markup:
    """Return what kept the scheduler safe: counts, time by policy mode and rung, and the timeline."""
    protection = period.protection
    events = protection.events
    return section(
        "safety",
        "Safety",
        "What was stopped, protected and put back",
        tag("p", _summary(period)),
        tag(
            "div",
            _times(protection.modes, "policy mode", "How long the scheduler ran which policy mode"),
            _times(protection.rungs, "rung", "How far the tuner trusted itself, as searches and freezes tell"),
            class_="panels wide",
        ),
        tag(
            "div",
            table(
                ("at (UTC)", "what", words("why"), words("what was done"), "lasted"),
                [_row(event) for event in events[: -SHOWN - 1 : -1]],
                caption="What happened, the newest first",
            ),
            class_="timeline",
        )
        if events
        else None,
        tag("p", f"The JSON has {count(len(events) - SHOWN, 'older event')}.", class_="note")
        if len(events) > SHOWN
        else None,
    )


def _summary(period: Period) -> str:
    counts = period.protection.counts
    if not counts:
        return "Nothing happened that asked for protection, and nobody stepped in."
    said = ", ".join(f"{kind} {number} ×" for kind, number in counts)
    breakers = [event for event in period.protection.events if event.kind is Kind.BREAKER]
    known = [event.lasted_seconds for event in breakers if math.isfinite(event.lasted_seconds)]
    longest = f" The latency breaker took {quantity(max(known), 's')} at most to recover." if known else ""
    return f"{said[0].upper()}{said[1:]}.{longest}"


def _times(shares: Sequence[tuple[str, float]], head: str, caption: str) -> Markup | None:
    total = sum(seconds for _, seconds in shares)
    if total <= 0:
        return None
    rows = [
        [name.replace("_", " "), quantity(seconds, "s"), quantity(seconds / total, "ratio")] for name, seconds in shares
    ]
    return table((head, "time", "share"), rows, caption=caption)


def _row(event: Event) -> list[str]:
    bad = event.kind is Kind.DRILL and event.done != "passed"
    return [
        "before" if math.isnan(event.at_seconds) else when(event.at_seconds)[5:16],
        tag("span", event.kind.value, class_=f"badge {'bad' if bad else _TONES[event.kind]}"),
        words(event.why),
        words(event.done),
        _lasted(event),
    ]


def _lasted(event: Event) -> str:
    if event.goes_on:
        return "goes on"
    return "" if math.isnan(event.lasted_seconds) else quantity(event.lasted_seconds, "s")
