"""What the commands print alike: tables, words and colours."""

from typing import Final

from rich import box
from rich.table import Table

from tuner.record.safety import ordered
from tuner.record.summary import Change, of_guard
from tuner.record.wording import count, e_value, moves, signed_percent, spread, tone
from tuner.values.stages import CycleRecord

STYLES: Final = {"good": "green", "trial": "yellow", "bad": "red"}
"""Colours of the tones in which a point or a decision is told."""


def titled_table(*columns: str, title: str | None = None) -> Table:
    """Return a table with its title, ruled under its head only."""
    return Table(
        *columns, title=title, title_justify="left", title_style="bold", header_style="dim", box=box.SIMPLE_HEAD
    )


def word(decision: str) -> str:
    """Return a decision as it is read."""
    return decision.replace("_", " ")


def who(record: CycleRecord) -> str:
    """Return who left a record: `cycle`, `guard`, or a person's `order`."""
    if not of_guard(record):
        return "cycle"
    return "order" if ordered(record) else "guard"


def style(record: CycleRecord) -> str:
    """Return the colour in which a record is told."""
    return STYLES.get(tone(record), "")


def came(change: Change) -> str:
    """Say what came of a change, as far as it has got."""
    if change.outcome is None:
        return f"{change.fate.value}, not looked at yet; {moves(change.before, change.after)}"
    measured = signed_percent(change.observed_score) + spread(change.score_error)
    moved = moves(change.before, change.after)
    predicted = signed_percent(change.expected_score)
    in_turns = f" in {count(change.pairs, 'pair')}, e-value {e_value(change.evidence)}" if change.pairs else ""
    return (
        f"{change.fate.value}; {moved}, predicted {predicted}, measured {measured}{in_turns}, "
        f"{change.outcome.value}: {change.reason}"
    )
