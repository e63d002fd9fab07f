"""The arms of `bench tuning` with something badly wrong in them: what they cost at worst."""

import math
from collections.abc import Mapping, Sequence
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


def safety(results: Results, laboratory: Laboratory, cases: Sequence[Case], *, quick: bool) -> None:
    """Run the arms with something wrong in them, and add the worst cost of each.

    The quick form takes the wide bounds alone, within which more can go wrong.
    """
    cases = [case for case in cases if case.bounds is WIDE or not quick]
    found = {f"{case.name}_{case.bounds.name}": laboratory.mislead(case) for case in cases}
    for arm, ratio in worst_ratios(list(found.values())).items():
        results.add(f"tuning_worst_ratio_{arm}", ratio, at_most=GOAL_WORST)
    results.setting["safety"] = {name: {arm: told(one, arm) for arm in FAULT_ARMS} for name, one in found.items()}
    table = Table("workload and bounds", *FAULT_ARMS, title="cost against untouched, with something wrong (simulated)")
    for name, one in found.items():
        costs = (f"{math.exp(Spread.of(one.scores(arm)).mean):.4f}" for arm in FAULT_ARMS)
        table.add_row(name, *costs)
    Console(width=180).print(table)


def worst_ratios(found: Sequence[Outcomes]) -> Mapping[str, float]:
    """Return the highest upper bound of each arm's cost over some cases; NaN where any case has none."""
    ratios = {arm: [Spread.worst_ratio(one.scores(arm)) for one in found] for arm in FAULT_ARMS}
    return {arm: float(np.max(values)) for arm, values in ratios.items()}
