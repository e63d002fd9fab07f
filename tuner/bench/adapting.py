"""Does adapting beat the best fixed setting? On a workload whose load changes its character, and when."""

from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from tuner.bench.arms import KINDS, Case, Compared
from tuner.bench.cases import CLOCKTUNER, UNTOUCHED
from tuner.bench.gaps import Spread
from tuner.bench.replays import Outcome
from tuner.bench.results import Results
from tuner.values.metrics import score

CHANGING: Final = "joined"
"""The workload whose load changes its character, twice in a day."""
PARTS: Final = 3
"""Its parts, of equal length."""


def adapting(results: Results, case: Case, found: Compared) -> None:
    """Add what adapting gains over the best fixed setting, and print it by the parts of the day."""
    if case.name != CHANGING:
        return
    name = f"{case.name}_{case.bounds.name}"
    for kind in KINDS:
        gain = Spread.of(kind.scores(found, kind.best)).mean - Spread.of(kind.scores(found, CLOCKTUNER)).mean
        results.add(f"tuning_adapting_gain{kind.suffix}_{name}", gain, at_least=0.0)
    title = f"{case.name}, {case.bounds.name} bounds: mean score of the windows in each third of the day (simulated)"
    table = Table("", *(f"{8 * part}-{8 * part + 8} h" for part in range(PARTS)), title=title, title_justify="left")
    for arm in (*(kind.best for kind in KINDS), CLOCKTUNER):
        outcomes = zip(found.outcomes[arm], found.outcomes[UNTOUCHED], strict=True)
        means = np.mean([by_part(outcome, untouched) for outcome, untouched in outcomes], axis=0)
        table.add_row(arm, *(f"{mean:+.3f}" for mean in means.tolist()))
    Console(width=180).print(table)


def by_part(outcome: Outcome, untouched: Outcome, parts: int = PARTS) -> tuple[float, ...]:
    """Return the mean score of the windows in each part of a replay, against the same windows untouched."""
    pieces = np.array_split(score(outcome.windows, untouched.windows), parts)
    return tuple(float(np.nanmean(piece)) if np.isfinite(piece).any() else float("nan") for piece in pieces)
