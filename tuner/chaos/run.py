"""All kills and all faults, and the table of what came of them."""

import tempfile
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from tuner.chaos.faults import FAULTS
from tuner.chaos.kill import Outcome, kill, points
from tuner.chaos.scene import witnessed
from tuner.chaos.script import SCENARIOS
from tuner.chaos.troubles import TROUBLES
from tuner.twin import model

WORKERS: Final = 2
"""Scenarios at once: each is one process after the other, and mostly waits for the disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the table.

    Attributes:
        fault: What was done.
        trials: How often: kill points of the scenario, or 1.
        writes: Writes of the tuner that the scheduler saw.
        resumed_after: Most cycles that it took until a good one; -1 where none came.
        violations: What should not be.
    """

    fault: str
    trials: int
    writes: int
    resumed_after: int
    violations: tuple[str, ...]


def run(only: str | None = None) -> list[Row]:
    """Kill and break everything, or what has a text in its name."""
    model.warm_up()
    rows = []
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn"), initializer=model.warm_up) as pool:
        for name in SCENARIOS:
            if only is None or only in f"kill: {name}":
                steps = points(name)
                numbers = range(1, len(steps) + 1)
                outcomes = list(pool.map(kill, [name] * len(steps), numbers, steps, chunksize=4))
                rows.append(_row(f"kill: {name}", outcomes))
        for name, moments in TROUBLES.items():
            if only is None or only in f"over the wire: {name}":
                rows.append(_row(f"over the wire: {name}", pool.map(trouble, [name] * len(moments), moments)))
        for name, fault in FAULTS.items():
            if only is None or only in name:
                rows.append(_row(name, [fault()]))
    return rows


def trouble(name: str, moment: str) -> Outcome:
    """Break one thing over real wires at a moment, and look."""
    with tempfile.TemporaryDirectory(prefix="clocktuner-chaos-") as folder:
        play = TROUBLES[name][moment]
        came = witnessed(play.act, Path(folder), answer_within_seconds=play.answer_within_seconds)
    return Outcome(
        scenario=name,
        point=1,
        step=moment,
        writes=came.writes,
        resumed_after=came.resumed_after,
        violations=tuple(f"{found.promise}: {found.sentence}" for found in came.violations),
    )


def _row(name: str, outcomes: Iterable[Outcome]) -> Row:
    found = list(outcomes)
    resumed = [outcome.resumed_after for outcome in found]
    return Row(
        fault=name,
        trials=len(found),
        writes=sum(outcome.writes for outcome in found),
        resumed_after=-1 if min(resumed) < 0 else max(resumed),
        violations=tuple(
            f"{outcome.point} {outcome.step}: {sentence}" for outcome in found for sentence in outcome.violations
        ),
    )


def show(rows: Iterable[Row], console: Console) -> None:
    """Print the table, and every violation under it."""
    found = list(rows)
    table = Table(title="what was broken, and what came of it", title_justify="left")
    for column in ("fault", "trials", "writes", "good cycle after", "violations"):
        table.add_column(column, justify="left" if column == "fault" else "right")
    for row in found:
        after = "none came" if row.resumed_after < 0 else str(row.resumed_after)
        table.add_row(row.fault, str(row.trials), str(row.writes), after, str(len(row.violations)))
    table.add_section()
    table.add_row(
        "all",
        str(sum(row.trials for row in found)),
        str(sum(row.writes for row in found)),
        "",
        str(sum(len(row.violations) for row in found)),
    )
    console.print(table)
    for row in found:
        for sentence in row.violations:
            console.print(f"[red]{row.fault}: {sentence}[/]")
