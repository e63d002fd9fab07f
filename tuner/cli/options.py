"""Options that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer


class Level(StrEnum):
    """Levels of the log, the most talkative first."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


PolicyFile: TypeAlias = Annotated[Path, typer.Option("--policy", help="Policy file of the scheduler.")]
PrometheusUrl: TypeAlias = Annotated[
    str | None, typer.Option("--prometheus", help="Read here instead of where the policy says.")
]
JournalFile: TypeAlias = Annotated[Path, typer.Option("--journal", help="Journal file.")]
TraceFormat: TypeAlias = Annotated[
    str,
    typer.Option(
        "--format",
        help="Format of the trace: csv, swf, openb, itp, surf, helios, helios-demand, azure, mooncake, servegen.",
    ),
]
JsonFile: TypeAlias = Annotated[Path | None, typer.Option("--json", help="Also write the figures to this file.")]
Quick: TypeAlias = Annotated[bool, typer.Option("--quick", help="A smaller run, to see that it works.")]
LogLevel: TypeAlias = Annotated[Level, typer.Option("--log-level", help="Lowest level that is logged.")]

DEFAULT_JOURNAL = Path("clocktuner.sqlite")
