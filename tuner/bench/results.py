"""What every benchmark gives back: named figures, the goals they are held against, and the setting they came from."""

import json
import math
import os
import platform
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tuner import __version__
from tuner.files import explained


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound that a figure should keep.

    Attributes:
        value: The bound, in the figure's unit.
        at_least: Whether the figure must reach it (True) or stay at or under it (False).
    """

    value: float
    at_least: bool

    def met_by(self, value: float) -> bool:
        """Say whether a figure keeps the goal; NaN never does."""
        return value >= self.value if self.at_least else value <= self.value


@dataclass(slots=True)
class Results:
    """Figures of one run of a benchmark, in the order in which they were added.

    Attributes:
        name: Name of the benchmark.
        setting: What was run on what; JSON-serialisable.
        figures: Value by name.
        goals: Goal by name of figure.
    """

    name: str
    setting: dict[str, object] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    goals: dict[str, Goal] = field(default_factory=dict)

    def add(self, name: str, value: float, *, at_most: float | None = None, at_least: float | None = None) -> None:
        """Add a figure, with a goal where there is one.

        Raises:
            ValueError: Both an upper and a lower goal are given.
        """
        if at_most is not None and at_least is not None:
            raise ValueError(f"{name}: a figure has one goal")
        self.figures[name] = float(value)
        if at_most is not None:
            self.goals[name] = Goal(at_most, at_least=False)
        if at_least is not None:
            self.goals[name] = Goal(at_least, at_least=True)

    def to_json(self) -> dict[str, object]:
        """Return figures, goals and setting in the form that is written to files; NaN becomes null."""
        return {
            "benchmark": self.name,
            "figures": {name: _finite(value) for name, value in self.figures.items()},
            "goals": {
                name: {
                    "value": _finite(self.figures[name]),
                    "goal": goal.value,
                    "kind": "at least" if goal.at_least else "at most",
                    "met": goal.met_by(self.figures[name]),
                }
                for name, goal in self.goals.items()
            },
            "setting": {**machine(), **self.setting},
        }

    def write(self, path: Path) -> None:
        """Write the JSON form to a file.

        Raises:
            ConfigError: It cannot be written.
        """
        with explained(path):
            path.write_text(json.dumps(self.to_json(), indent=2, allow_nan=False) + "\n", encoding="utf-8")

    def print(self, console: Console) -> None:
        """Print the figures with their goals."""
        table = Table("figure", "value", "goal", "met", title=f"bench {self.name}", title_justify="left")
        table.columns[1].justify = table.columns[2].justify = "right"
        for name, value in self.figures.items():
            goal = self.goals.get(name)
            if goal is None:
                table.add_row(name, f"{value:.4g}", "", "")
                continue
            met = goal.met_by(value)
            bound = f"{'≥' if goal.at_least else '≤'} {goal.value:g}"
            table.add_row(name, f"{value:.4g}", bound, "[green]yes[/]" if met else "[red]no[/]")
        console.print(table)


def machine() -> dict[str, object]:
    """Describe where a benchmark ran, without naming the machine."""
    return {
        "version": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
