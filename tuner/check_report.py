"""What a check of a policy found, and how it is shown."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType


class Status(StrEnum):
    """What a row says."""

    OK = "ok"
    ABSENT = "absent"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What was found of one thing.

    Attributes:
        area: `source`, `score`, `metrics`, `context`, `actuator` or `knobs`.
        name: Name in its catalogue.
        status: How it stands.
        detail: What is wrong and what to do about it; why it is absent; empty where all is well.
        value: Value now, in `unit`; the mean where there are several series; NaN where there is none.
        unit: Unit of the value.
        series: Number of series in the answer; None where nothing was asked.
        age_seconds: Age of the newest sample behind the value; NaN where it is not known.
    """

    area: str
    name: str
    status: Status
    detail: str = ""
    value: float = math.nan
    unit: str = ""
    series: int | None = None
    age_seconds: float = math.nan


@dataclass(frozen=True, slots=True)
class CheckReport:
    """All rows, in the order of the policy's catalogues."""

    rows: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed; the command's exit status is 0 then, else 1."""
        return self.count(Status.FAILED) == 0

    def count(self, status: Status) -> int:
        """Return the number of rows of a status."""
        return sum(row.status is status for row in self.rows)


_MARKS: Final = {
    Status.OK: "[green]ok[/green]",
    Status.ABSENT: "[dim]absent[/dim]",
    Status.WARNING: "[yellow]warning[/yellow]",
    Status.FAILED: "[red]failed[/red]",
}


def render(report: CheckReport) -> "RenderableType":
    """Return the report as a table with a closing line, for a console."""
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "what", "value", "series", "age"):
        table.add_column(column, justify="right" if column in {"value", "series", "age"} else "left", overflow="fold")
    area = ""
    for row in report.rows:
        if row.area != area:
            area = row.area
            table.add_row("", f"[bold]{area}[/bold]")
        table.add_row(
            _MARKS[row.status],
            f"  {escape(row.name)}",
            f"{row.value:.4g} {row.unit}".strip() if math.isfinite(row.value) else "",
            "" if row.series is None else str(row.series),
            f"{row.age_seconds:.0f} s" if math.isfinite(row.age_seconds) else "",
        )
    return Group(table, "", *_findings(report), _summary(report))


def _findings(report: CheckReport) -> "Iterator[RenderableType]":
    """Say what was found, the worst last, where a person looks first; names that share a finding share its line."""
    from rich.markup import escape

    for status in Status:
        named: dict[str, list[str]] = {}
        for row in report.rows:
            if row.status is status and row.detail:
                named.setdefault(row.detail, []).append(row.name)
        for detail, names in named.items():
            yield f"{_MARKS[status]} {escape(', '.join(names))}: {escape(detail)}"
        if named:
            yield ""


def _summary(report: CheckReport) -> str:
    counts = ", ".join(f"{report.count(status)} {status}" for status in Status if report.count(status))
    return f"{'The policy fits.' if report.ok else 'The policy does not fit yet.'} {counts}."
