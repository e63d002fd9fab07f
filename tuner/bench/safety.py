"""The arms of `bench tuning` with something badly wrong in them: what they cost at worst.

The goal is asked of the upper 95 % bound over the seeds, and the mean is told beside it: two seeds bound next to
nothing, for Student's factor on their standard error is 6.3, and seeds that differ by a hundredth miss the goal
whatever their mean is. A goal that a quick run misses so may be kept all the same.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from tuner.bench.arms import KINDS, Case, Laboratory, Outcomes, Scores
from tuner.bench.cases import WIDE
from tuner.bench.faults import FAULT_ARMS
from tuner.bench.gaps import Spread
from tuner.bench.results import Results
from tuner.bench.telling import told

GOAL_WORST: Final = 1.02
"""Cost against untouched that something badly wrong may have, at most."""


def safety(results: Results, laboratory: Laboratory, cases: Sequence[Case], *, quick: bool) -> None:
    """Run the arms with something wrong in them, and add the worst cost of each.

    The quick form takes the wide bounds alone, within which more can go wrong.
    """
    cases = [case for case in cases if case.bounds is WIDE or not quick]
    found = {f"{case.name}_{case.bounds.name}": laboratory.mislead(case) for case in cases}
    outcomes = list(found.values())
    for kind in KINDS:
        for arm in FAULT_ARMS:
            worst, mean = worst_ratio(outcomes, arm, kind.scores), mean_ratio(outcomes, arm, kind.scores)
            results.add(f"tuning_mean{kind.suffix}_ratio_{arm}", mean)
            results.add(f"tuning_worst{kind.suffix}_ratio_{arm}", worst, at_most=GOAL_WORST)
    results.setting["safety"] = {name: {arm: told(one, arm) for arm in FAULT_ARMS} for name, one in found.items()}
    _print(found)


def worst_ratio(found: Sequence[Outcomes], arm: str, scores: Scores) -> float:
    """Return the highest upper bound of an arm's cost over some cases; NaN where any case has none."""
    return float(np.max([Spread.worst_ratio(scores(one, arm)) for one in found]))


def mean_ratio(found: Sequence[Outcomes], arm: str, scores: Scores) -> float:
    """Return the highest mean cost of an arm over some cases."""
    return float(np.max([math.exp(Spread.of(scores(one, arm)).mean) for one in found]))


def _print(found: Mapping[str, Outcomes]) -> None:
    """Print the costs: one column an arm, one line a kind with the mean, and below it each seed."""
    title = "cost against untouched with something badly wrong: mean of the seeds, and each (simulated)"
    table = Table("workload and bounds", "cost of", *FAULT_ARMS, title=title, title_justify="left")
    for name, one in found.items():
        for kind in KINDS:
            table.add_row(name, kind.words, *(_cell(kind.scores(one, arm)) for arm in FAULT_ARMS))
    Console(width=180).print(table)


def _cell(scores: Sequence[float]) -> str:
    seeds = " ".join(f"{math.exp(score):.3f}" for score in scores)
    return f"{math.exp(Spread.of(scores).mean):.4f}\n{seeds}"
