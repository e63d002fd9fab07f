"""Commands that need no cluster: demo, reference, train, schema."""

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import Quick
from tuner.files import explained


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (demo, reference, train, schema):
        app.command()(command)


def demo(
    *,
    output: Annotated[Path, typer.Option(help="Folder for the journal and the report.")] = Path("clocktuner-out"),
    seed: Annotated[int, typer.Option(help="Seed of all randomness.", min=0)] = 1,
    hours: Annotated[float, typer.Option(help="Simulated hours.", min=1, max=24)] = 24.0,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Do not use Prometheus even where there is one.")
    ] = False,
    skip_bad_hour: Annotated[
        bool, typer.Option("--skip-bad-hour", help="Leave out the second story, in which things go wrong.")
    ] = False,
) -> None:
    """Replay real traces three times, once with clocktuner in the loop; then a bad hour (simulated clusters)."""
    from tuner.demo.show import show

    show(output=output, seed=seed, hours=hours, embedded=embedded, skip_bad_hour=skip_bad_hour)


def reference(
    *,
    trace: Annotated[Path | None, typer.Option(help="Trace to replay; the demo's workload where absent.")] = None,
    trace_format: Annotated[
        str,
        typer.Option(
            "--format",
            help="Format of the trace: csv, swf, openb, itp, surf, helios, helios-demand, azure, mooncake, servegen.",
        ),
    ] = "csv",
    listen: Annotated[str, typer.Option(help="HOST:PORT to serve on; port 0 picks a free one.")] = "127.0.0.1:9465",
    speed: Annotated[float, typer.Option(help="Simulated seconds a second.", min=0.01)] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of all randomness.", min=0)] = 1,
) -> None:
    """Run the reference scheduler in real time behind HTTP: /metrics, /config, /forecast."""
    from tuner.demo.serving import serve_reference

    serve_reference(trace=trace, trace_format=trace_format, listen=listen, speed=speed, seed=seed)


def train(
    *,
    output: Annotated[
        Path | None, typer.Option(help="Where to write the weights; the package's own place where absent.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all randomness.", min=0)] = 1,
    quick: Quick = False,
) -> None:
    """Train the forecasting network on the shipped series, their first 70 % only."""
    from tuner.forecast.training import train as run

    run(output=output, seed=seed, quick=quick)


def schema(
    *, output: Annotated[Path | None, typer.Option(help="File to write; standard output where absent.")] = None
) -> None:
    """Print the JSON schema of policies."""
    from tuner.settings.schema import schema_text

    text = schema_text()
    if output is None:
        typer.echo(text, nl=False)
    else:
        with explained(output):
            output.write_text(text, encoding="utf-8")
