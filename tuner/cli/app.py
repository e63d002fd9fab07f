"""All commands in one application, and how errors reach a person."""

import sys
from typing import Annotated

import typer

from tuner import __version__
from tuner.cli import alerts, bench, chaos, journal, operate, people, workshop
from tuner.errors import ConfigError, PermanentError, TraceError, TunerError

EXIT_PROBLEM = 1
"""Something was looked at and found wanting."""
EXIT_CONFIG = 2
"""A policy, a trace or an argument is wrong; also what the option parser exits with."""
EXIT_UNAVAILABLE = 3
"""Something outside could not be reached; trying again may help."""

app = typer.Typer(
    help="Watch a cluster scheduler through Prometheus, forecast its load, and keep its settings right, safely.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for module in (operate, people, journal, workshop, chaos):
    module.register(app)
app.add_typer(alerts.app, name="alerts")
app.add_typer(bench.app, name="bench")


def _print_version(value: bool) -> None:  # noqa: FBT001 - the option parser calls it.
    if value:
        typer.echo(f"clocktuner {__version__}")
        raise typer.Exit


@app.callback()
def root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before a command."""


def main() -> None:
    """Run the command line; errors that clocktuner raises on purpose are messages, not tracebacks."""
    try:
        app()
    except TunerError as error:
        typer.secho(f"clocktuner: {error}", fg="red", err=True)
        sys.exit(EXIT_CONFIG if isinstance(error, ConfigError | TraceError | PermanentError) else EXIT_UNAVAILABLE)
