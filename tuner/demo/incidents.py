"""What went wrong in the bad hour, and what clocktuner made of it: from the records, as a small table."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.table import Table

from tuner.values.stages import CycleRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One thing that goes wrong.

    Attributes:
        title: What, for people.
        answers: Decisions that answer it, in order.
        at_seconds: When it happens, Unix seconds; NaN where it begins with its first answer, as a change does.
    """

    title: str
    answers: tuple[str, ...]
    at_seconds: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An incident with what was done about it.

    Attributes:
        incident: What went wrong.
        at_seconds: When; NaN where it never did.
        records: The records that answer it, in time order; those that never came are missing.
        state: How things stand at the end, in words.
    """

    incident: Incident
    at_seconds: float
    records: tuple[CycleRecord, ...]
    state: str

    @property
    def complete(self) -> bool:
        """Whether all answers came."""
        return len(self.records) == len(self.incident.answers)


def answered(incident: Incident, records: Iterable[CycleRecord], *, state: str) -> Answered:
    """Find what was done about an incident: the first record of each answer, each after the one before."""
    at_seconds, found = incident.at_seconds, []
    wanted = list(incident.answers)
    for record in records:
        if not wanted:
            break
        if record.decision == wanted[0] and not record.at_seconds < at_seconds:
            at_seconds = record.at_seconds if math.isnan(at_seconds) else at_seconds
            found.append(record)
            del wanted[0]
    return Answered(incident=incident, at_seconds=at_seconds, records=tuple(found), state=state)


def table(rows: Sequence[Answered]) -> Table:
    """Return what went wrong, when, what was done after how long, and how things stand."""
    result = Table(title="The bad hour (simulated, made up)", title_justify="left")
    result.add_column("what went wrong")
    result.add_column("at", no_wrap=True)
    result.add_column("what clocktuner did, and how long after")
    result.add_column("at the end")
    for row in rows:
        result.add_row(row.incident.title, _clock(row.at_seconds), _told(row), row.state)
    return result


def _told(row: Answered) -> str:
    steps = [f"{record.decision} {_after(record.at_seconds - row.at_seconds)}" for record in row.records]
    missing = row.incident.answers[len(row.records) :]
    return ", ".join([*steps, *(f"no {decision}" for decision in missing)])


def _after(seconds: float) -> str:
    if seconds == 0:
        return "at once"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.3g} min"


def _clock(at_seconds: float) -> str:
    return "never" if math.isnan(at_seconds) else datetime.fromtimestamp(at_seconds, UTC).strftime("%H:%M:%S")
