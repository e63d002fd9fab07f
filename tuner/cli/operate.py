"""Commands that look after a real scheduler: run, once, check."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console

from tuner.cli.options import Level, LogLevel, PolicyFile, PrometheusUrl


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(run)
    app.command()(once)
    app.command()(check)


def run(
    policy: PolicyFile,
    *,
    prometheus: PrometheusUrl = None,
    journal: Annotated[Path | None, typer.Option(help="Journal file, instead of the policy's.")] = None,
    mode: Annotated[str | None, typer.Option(help="observe, recommend or auto, instead of the policy's.")] = None,
    listen: Annotated[str | None, typer.Option(help="HOST:PORT of the page, instead of the policy's.")] = None,
    log_level: LogLevel = Level.INFO,
) -> None:
    """Look after a scheduler until told to stop."""
    from tuner import logs, wiring
    from tuner.daemon import Daemon
    from tuner.settings.loading import load_policy, with_overrides

    logs.configure(level=log_level)
    loaded = with_overrides(load_policy(policy), prometheus_url=prometheus, mode=mode, journal=journal, listen=listen)
    Daemon(loaded, wiring.assemble(loaded)).run()


def once(
    policy: PolicyFile,
    *,
    prometheus: PrometheusUrl = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Decide, but write nothing, neither to the scheduler nor to the journal.")
    ] = False,
    journal: Annotated[Path | None, typer.Option(help="Journal file, instead of the policy's.")] = None,
) -> None:
    """Run one cycle, say what was decided and why, and stop."""
    from tuner import logs, wiring
    from tuner.record.journal import copy_journal
    from tuner.record.text import explain
    from tuner.settings.loading import load_policy, with_overrides

    logs.configure(level="warning")
    loaded = with_overrides(load_policy(policy), prometheus_url=prometheus, journal=journal)
    with TemporaryDirectory(prefix="clocktuner-") as scratch:
        if dry_run:
            # On a copy, so that neither the scheduler nor what the next real cycle remembers is touched.
            copied = copy_journal(Path(loaded.journal.path), Path(scratch) / "journal.sqlite")
            loaded = with_overrides(loaded, mode="recommend", journal=copied)
        parts = wiring.assemble(loaded)
        try:
            record = parts.cycle.run(at_seconds=time.time())
        finally:
            parts.close()
    Console().print(explain(record))
    if record.failure is not None:
        raise typer.Exit(1)


def check(policy: PolicyFile, *, prometheus: PrometheusUrl = None) -> None:
    """Tell, per metric and knob, whether it can be read, how fresh it is, and what is wrong."""
    from tuner import checking, wiring
    from tuner.settings.loading import load_policy, with_overrides

    loaded = with_overrides(load_policy(policy), prometheus_url=prometheus)
    source, actuator = wiring.source_of(loaded), wiring.actuator_of(loaded)
    report = checking.check(loaded, source, actuator, at_seconds=time.time())
    Console().print(checking.render(report))
    if not report.ok:
        raise typer.Exit(1)
