"""The arms of `bench tuning` with something badly wrong in them: what they cost at worst."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from tuner.bench.arms import Case, Laboratory, Outcomes
from tuner.bench.cases import WIDE
from tuner.bench.faults import FAULT_ARMS
from tuner.bench.gaps import Spread
from tuner.bench.results import Results
from tuner.bench.telling import told

GOAL_WORST: Final = 1.02
"""Cost against untouched that something badly wrong may have, at most."""

Scores = Callable[[Outcomes, str], Sequence[float]]
"""Takes the scores of an arm, one a seed."""

_SCORES: Final[Mapping[str, Scores]] = {"ratio": Outcomes.scores, "window_ratio": Outcomes.window_scores}
"""What cost is taken of, by the word in the figure's name."""


def safety(results: Results, laboratory: Laboratory, cases: Sequence[Case], *, quick: bool) -> None:
    """Run the arms with something wrong in them, and add the worst cost of each.

    The quick form takes the wide bounds alone, within which more can go wrong.
    """
    cases = [case for case in cases if case.bounds is WIDE or not quick]
    found = {f"{case.name}_{case.bounds.name}": laboratory.mislead(case) for case in cases}
    outcomes = list(found.values())
    for kind, scores in _SCORES.items():
        for arm in FAULT_ARMS:
            results.add(f"tuning_worst_{kind}_{arm}", worst_ratio(outcomes, arm, scores), at_most=GOAL_WORST)
    results.setting["safety"] = {name: {arm: told(one, arm) for arm in FAULT_ARMS} for name, one in found.items()}
    _print(found)


def worst_ratio(found: Sequence[Outcomes], arm: str, scores: Scores) -> float:
    """Return the highest upper bound of an arm's cost over some cases; NaN where any case has none."""
    return float(np.max([Spread.worst_ratio(scores(one, arm)) for one in found]))


def _print(found: Mapping[str, Outcomes]) -> None:
    """Print the mean costs: one column an arm."""
    title = "cost against untouched with something badly wrong: of whole replays / of their windows (simulated)"
    table = Table("workload and bounds", *FAULT_ARMS, title=title, title_justify="left")
    for name, one in found.items():
        costs = (
            " / ".join(f"{math.exp(Spread.of(scores(one, arm)).mean):.4f}" for scores in _SCORES.values())
            for arm in FAULT_ARMS
        )
        table.add_row(name, *costs)
    Console(width=180).print(table)
