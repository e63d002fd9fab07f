"""The command that breaks things."""

import json as encoder
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from tuner.cli.options import JsonFile
from tuner.files import explained


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(chaos)


def chaos(
    *,
    only: Annotated[str | None, typer.Option(help="Only what has this text in its name.")] = None,
    json: JsonFile = None,
) -> None:
    """Kill a tuner at every numbered step, break what it stands on, and tell what came of it. Needs no cluster."""
    from tuner import logs
    from tuner.chaos.run import run, show

    logs.configure(level="critical")
    rows = run(only)
    show(rows, Console())
    if json is not None:
        with explained(json):
            json.write_text(
                encoder.dumps([asdict(row) for row in rows], indent=2, allow_nan=False) + "\n", encoding="utf-8"
            )
    if any(row.violations or row.resumed_after < 0 for row in rows):
        raise typer.Exit(1)
