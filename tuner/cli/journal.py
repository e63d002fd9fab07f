"""Commands that read the journal: status, history, explain, replay, report."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tuner.cli.options import DEFAULT_JOURNAL, JournalFile
from tuner.errors import ConfigError, JournalError


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (status, history, explain, replay, report):
        app.command()(command)


def status(*, journal: JournalFile = DEFAULT_JOURNAL) -> None:
    """Say in what state the tuner is, from its journal."""
    from tuner.cli.safety import points
    from tuner.cli.states import load
    from tuner.cli.why import why
    from tuner.record.journal import Journal
    from tuner.record.status import Point, Why
    from tuner.record.status import status as stands

    now = time.time()
    with Journal.open_readonly(journal) as book:
        safety: tuple[Point, ...] = ()
        reasons: tuple[Why, ...] = ()
        try:
            states = load(book, now_seconds=now)
            if states is not None:
                safety, reasons = points(states), why(states)
        except JournalError as error:
            # What can be told is told all the same: this command is for the bad days.
            safety = (Point("states", str(error), "bad"),)
        Console().print(stands(book, now_seconds=now, safety=safety, why=reasons))


def history(
    *,
    journal: JournalFile = DEFAULT_JOURNAL,
    last: Annotated[int, typer.Option(help="How many cycles, acts of the guard and orders.", min=1)] = 20,
    acts: Annotated[
        bool, typer.Option("--acts", help="Only what changed something, or a state; not what looked and held.")
    ] = False,
) -> None:
    """List the last cycles: when, what was decided, why."""
    from tuner.record.history import history as listed
    from tuner.record.journal import Journal

    with Journal.open_readonly(journal) as book:
        Console().print(listed(book, limit=last, acts=acts))


def explain(
    cycle: Annotated[int, typer.Argument(help="Number of the cycle.")], *, journal: JournalFile = DEFAULT_JOURNAL
) -> None:
    """Explain one cycle: what was seen, expected, proposed, found and done."""
    from tuner.record import text
    from tuner.record.journal import Journal

    with Journal.open_readonly(journal) as book:
        record = book.record(cycle)
        if record is None:
            raise ConfigError(f"cycle {cycle} is not in {journal}; `clocktuner history` lists those that are")
        Console().print(text.explain(record, looks=book.looks(cycle)))


def replay(
    cycle: Annotated[int, typer.Argument(help="Number of the cycle.")], *, journal: JournalFile = DEFAULT_JOURNAL
) -> None:
    """Repeat a decision from the journal and compare it bit for bit."""
    from tuner.record.journal import Journal
    from tuner.replaying import replay_decision

    with Journal.open_readonly(journal) as book:
        result = replay_decision(book, cycle)
    Console().print(result.sentence)
    if not result.equal:
        raise typer.Exit(1)


def report(
    *,
    journal: JournalFile = DEFAULT_JOURNAL,
    output: Annotated[Path, typer.Option(help="HTML file to write; a JSON file is written beside it.")] = Path(
        "clocktuner-report.html"
    ),
    hours: Annotated[float | None, typer.Option(help="Only the last hours.", min=0.1)] = None,
) -> None:
    """Write the plan-do-check-act report: one HTML page, and the same as JSON."""
    from tuner.record.journal import Journal
    from tuner.record.report import write_report

    with Journal.open_readonly(journal) as book:
        write_report(book, output, last_seconds=None if hours is None else hours * 3600)
    Console().print(f"report written to {output} and {output.with_suffix('.json')}")
