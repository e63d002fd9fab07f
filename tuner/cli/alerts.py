"""Commands about alerts: render the rules of a site, lint rules."""

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import PolicyFile
from tuner.files import explained

app = typer.Typer(help="Alert rules: write them for a site, or look at your own.", no_args_is_help=True)


@app.command()
def render(
    policy: PolicyFile,
    *,
    cluster: Annotated[
        str | None, typer.Option(help="Cluster that the rules look at; the policy's where absent.")
    ] = None,
    every_cluster: Annotated[
        bool, typer.Option("--every-cluster", help="Look at all clusters and policies that Prometheus holds.")
    ] = False,
    threshold: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE instead of what the policy says; the head of the file lists them. Repeatable."),
    ] = None,
    job: Annotated[str, typer.Option(help="Name of the job by which Prometheus scrapes clocktuner.")] = "clocktuner",
    team: Annotated[str, typer.Option(help="Label `team` of the alerts.")] = "scheduling",
    runbook_url: Annotated[
        str, typer.Option(help="Where the runbooks are: the address that stands before /<Alert>.md.")
    ] = "docs/runbooks",
    dashboard_url: Annotated[str, typer.Option(help="Address of Grafana.")] = "",
    speed: Annotated[
        float, typer.Option(help="For rehearsals: all windows and waits are so many times shorter.", min=1, max=100)
    ] = 1.0,
    output: Annotated[Path | None, typer.Option(help="File to write; standard output where absent.")] = None,
) -> None:
    """Write the alert rules of a policy, with its limits as thresholds, for Prometheus."""
    from tuner.alerts.render import rules_text
    from tuner.alerts.site import Site
    from tuner.alerts.thresholds import parse_override, thresholds
    from tuner.errors import ConfigError
    from tuner.settings.loading import load_policy

    if every_cluster and cluster is not None:
        raise ConfigError("--cluster and --every-cluster are given, must be one of them; leave one out")
    loaded = load_policy(policy)
    site = Site(
        thresholds=thresholds(loaded, dict(map(parse_override, threshold or ()))),
        cluster=None if every_cluster else cluster or loaded.cluster,
        policy=None if every_cluster else loaded.name,
        job=job,
        team=team,
        runbook_url=runbook_url,
        dashboard_url=dashboard_url,
        speed=speed,
    )
    text = rules_text(site)
    if output is None:
        typer.echo(text, nl=False)
    else:
        with explained(output):
            output.write_text(text, encoding="utf-8")


@app.command()
def lint(
    files: Annotated[list[Path], typer.Argument(help="Files of rules; they are looked at together.")],
    *,
    scrape_interval: Annotated[str, typer.Option(help="Longest distance of two scrapes.")] = "1m",
    retention: Annotated[str, typer.Option(help="How far back Prometheus remembers.")] = "15d",
    external_label: Annotated[
        list[str] | None, typer.Option(help="A label that Prometheus adds to what leaves it. Repeatable.")
    ] = None,
    keep_label: Annotated[
        list[str] | None, typer.Option(help="A label that no alert may aggregate away. Repeatable.")
    ] = None,
    metrics: Annotated[
        list[Path] | None, typer.Option(help="A saved /metrics page; names on none of them are findings. Repeatable.")
    ] = None,
) -> None:
    """Look for rules that cannot fire, always fire, or help nobody. Exits with 1 where something is found."""
    from tuner.alerts.lint.catalogue import lint as look
    from tuner.alerts.lint.pages import read_names
    from tuner.alerts.lint.rules import Options

    options = Options(
        scrape_seconds=_seconds(scrape_interval, "--scrape-interval"),
        retention_seconds=_seconds(retention, "--retention"),
        external_labels=frozenset(external_label or ()),
        keep_labels=frozenset(keep_label or ()),
        metrics=read_names(metrics) if metrics else None,
    )
    findings = look(files, options)
    for finding in findings:
        typer.echo(str(finding))
    typer.echo(f"{len(findings)} findings in {len(files)} files", err=True)
    if findings:
        raise typer.Exit(1)


def _seconds(text: str, option: str) -> float:
    from tuner.alerts.lint.rules import duration_seconds
    from tuner.errors import ConfigError

    seconds = duration_seconds(text)
    if not seconds:
        raise ConfigError(f"{option}: {text!r}, must be a span of time; write it as 15s, 1m or 15d")
    return seconds
