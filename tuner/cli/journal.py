"""Commands that read the journal: status, history, explain, replay, report."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tuner.cli.options import DEFAULT_JOURNAL, JournalFile
from tuner.errors import ConfigError


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (status, history, explain, replay, report):
        app.command()(command)


def status(*, journal: JournalFile = DEFAULT_JOURNAL) -> None:
    """Say in what state the tuner is, from its journal."""
    from tuner.record import text
    from tuner.record.journal import Journal

    with Journal.open_readonly(journal) as book:
        Console().print(text.status(book, now_seconds=time.time()))


def history(
    *,
    journal: JournalFile = DEFAULT_JOURNAL,
    last: Annotated[int, typer.Option(help="How many cycles.", min=1)] = 20,
) -> None:
    """List the last cycles: when, what was decided, why."""
    from tuner.record import text
    from tuner.record.journal import Journal

    with Journal.open_readonly(journal) as book:
        Console().print(text.history(book, limit=last))


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
