"""The `bench` commands. Each prints a table and, on request, writes its figures as JSON."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tuner.bench.results import Results
from tuner.bench.selection import MAX_RUNS, Arms
from tuner.cli.options import JsonFile, Quick

app = typer.Typer(help="Measure: twin, cycle, guard, judge, forecast, tuning, sweeps.", no_args_is_help=True)


def _finish(results: Results, json: Path | None) -> None:
    results.print(Console())
    if json is not None:
        results.write(json)


@app.command()
def twin(
    *,
    trace: Annotated[
        Path | None, typer.Option(help="Plain CSV trace to measure the error on, beside the shipped ones.")
    ] = None,
    workload: Annotated[
        list[str] | None, typer.Option(help="Shipped workload to measure the error on; may be repeated.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="PNG file to write response curves to.")] = None,
    json: JsonFile = None,
    quick: Quick = False,
) -> None:
    """Speed of the twin, and its error against the reference scheduler."""
    from tuner.bench.twin import WORKLOADS, run

    _finish(run(trace=trace, quick=quick, plot=plot, workloads=workload or WORKLOADS), json)


@app.command()
def cycle(
    *,
    nodes: Annotated[int, typer.Option(help="Nodes whose series the store holds.", min=1, max=20_000)] = 100,
    json: JsonFile = None,
    quick: Quick = False,
) -> None:
    """One whole tuning cycle against a live Prometheus."""
    from tuner.bench.cycle import run

    _finish(run(nodes=nodes, quick=quick), json)


@app.command()
def guard(
    *,
    nodes: Annotated[int, typer.Option(help="Nodes whose series the store holds.", min=1, max=20_000)] = 100,
    json: JsonFile = None,
    quick: Quick = False,
) -> None:
    """The guard tick against a live Prometheus, alone and beside whole tuning cycles."""
    from tuner.bench.guard import run

    _finish(run(nodes=nodes, quick=quick), json)


@app.command()
def forecast(
    *,
    series: Annotated[
        Path | None, typer.Option(help="CSV with series,timestamp,value to score with the shipped weights.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="PNG file to draw the worst windows to.")] = None,
    json: JsonFile = None,
    quick: Quick = False,
) -> None:
    """Forecast errors against simple models, on fixed origins of real series."""
    from tuner.bench.forecast import run

    _finish(run(series=series, plot=plot, quick=quick), json)


@app.command()
def tuning(
    *,
    trace: Annotated[Path | None, typer.Option(help="A trace of your own, instead of the shipped workloads.")] = None,
    trace_format: Annotated[
        str,
        typer.Option(
            "--format",
            help="Format of the trace: csv, swf, openb, itp, surf, helios, helios-demand, azure, mooncake, servegen.",
        ),
    ] = "csv",
    arms: Annotated[Arms, typer.Option(help="Arms to run: all, compared, ablations or safety.")] = Arms.ALL,
    workload: Annotated[
        list[str] | None, typer.Option(help="Shipped workload to run; several times for several.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Paired seeds.", min=1, max=20)] = 5,
    replays: Annotated[int, typer.Option(help="Most replays for each best fixed setting.", min=8)] = MAX_RUNS,
    cache: Annotated[Path | None, typer.Option(help="Folder in which replays are remembered.")] = None,
    json: JsonFile = None,
    quick: Quick = False,
) -> None:
    """Clocktuner against other ways to tune, on the reference scheduler (simulated)."""
    from tuner.bench.tuning import run
    from tuner.reference.workloads import BENCH_NAMES

    results = run(
        trace=trace,
        trace_format=trace_format,
        names=workload or BENCH_NAMES,
        seeds=seeds,
        replays=replays,
        quick=quick,
        cache=cache,
        arms=arms,
    )
    _finish(results, json)


@app.command()
def sweeps(
    *,
    plots: Annotated[Path | None, typer.Option(help="Folder to write the plots to.")] = None,
    json: JsonFile = None,
    quick: Quick = False,
) -> None:
    """How each knob acts on the reference scheduler (simulated)."""
    from tuner.bench.sweeps import run

    _finish(run(plots=plots, quick=quick), json)


@app.command()
def sensitivity(
    *,
    plot: Annotated[Path | None, typer.Option(help="File to draw the curves to, as PNG.")] = None,
    json: JsonFile = None,
    quick: Quick = False,
) -> None:
    """Which assumption of the simulation drives each headline figure of the source document (simulated)."""
    from tuner.bench.sensitivity import run

    _finish(run(plot=plot, quick=quick), json)


@app.command()
def judge(*, json: JsonFile = None, quick: Quick = False) -> None:
    """How often the live verification errs, on recorded noise with planted gains and harms (simulated)."""
    from tuner.bench.judge import run

    _finish(run(quick=quick), json)
