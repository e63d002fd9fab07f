"""What `history` prints: one line a cycle, act of the guard, or order."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from rich.console import RenderableType
from rich.markup import escape
from rich.text import Text

from tuner.record.journal import Journal
from tuner.record.summary import kind_of, of_guard
from tuner.record.terminal import style, titled_table, who, word
from tuner.record.wording import count, signed_percent, when
from tuner.values.stages import CycleRecord, Decision, Step

_OF_ACTS: Final = 2000
"""Newest records among which acts are looked for where fewer were asked for: a week of cycles of five minutes."""


def history(journal: Journal, *, limit: int = 20, acts: bool = False) -> RenderableType:
    """Return the newest cycles, acts of the guard and orders, the newest last.

    One line each; cycles in a row that held for the same reason, but for its numbers, share one.

    Args:
        journal: Of the tuner.
        limit: How many records.
        acts: Only those that changed something, or a state: what was written, ended, ordered, or failed.
    """
    records = journal.records(limit=max(limit, _OF_ACTS) if acts else limit)
    if not records:
        return Text("Nothing has been recorded yet.")
    shown = [record for record in records if is_act(record)][-limit:] if acts else records
    if not shown:
        return Text(f"Of the newest {count(len(records), 'record')} none changed anything.")
    table = titled_table("cycle", "at (UTC)", "decision", "score", "why")
    table.caption = "score: predicted where a change is proposed, measured where one is on trial; negative is better"
    for column in table.columns[:-1]:
        column.no_wrap = True
    for same in _alike(shown):
        first, last = same[0], same[-1]
        numbers = str(last.cycle_id) if first is last else f"{first.cycle_id}–{last.cycle_id}"
        times = f" {len(same)} ×" if len(same) > 1 else ""
        table.add_row(
            f"{numbers}{f' {who(last)}' if of_guard(last) else ''}",
            when(last.at_seconds)[5:16],
            Text(f"{word(last.decision)}{times}", style=style(last)),
            _score(last),
            escape(last.reason),
        )
    return table


def is_act(record: CycleRecord) -> bool:
    """Say whether a record tells of more than looking, holding and waiting."""
    waits = record.decision in (Decision.HOLD, Step.WAIT)
    return of_guard(record) or not waits or record.receipt is not None or record.failure is not None


def _alike(records: Sequence[CycleRecord]) -> Iterator[list[CycleRecord]]:
    """Yield cycles in a row that held for the same reason together, all others alone."""
    for _, same in groupby(records, key=_alikeness):
        yield list(same)


def _alikeness(record: CycleRecord) -> tuple[object, ...]:
    quiet = record.decision == Decision.HOLD and record.receipt is None and record.failure is None
    if quiet and record.proposal is None and not of_guard(record):
        return ("", kind_of(record.reason))
    return (record.cycle_id, "")


def _score(record: CycleRecord) -> str:
    if record.verification is not None:
        return signed_percent(record.verification.observed_score)
    return "" if record.proposal is None else signed_percent(record.proposal.score)
