"""What each part of clocktuner is worth: how much worse it is without it (`tuner.bench.ablations`)."""

from collections.abc import Mapping, Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from tuner.bench.ablations import ABLATED_ARMS
from tuner.bench.arms import KINDS, Case, Kind, Laboratory, Outcomes
from tuner.bench.cases import CLOCKTUNER
from tuner.bench.gaps import Spread
from tuner.bench.results import Results
from tuner.bench.telling import told


def parts(results: Results, laboratory: Laboratory, cases: Sequence[Case]) -> None:
    """Run clocktuner without each of its parts, and add what that costs in each case, and in the mean of all."""
    found = {f"{case.name}_{case.bounds.name}": laboratory.ablate(case) for case in cases}
    for kind in KINDS:
        for arm in ABLATED_ARMS:
            losses = {name: lost(one, arm, kind) for name, one in found.items()}
            for name, spread in losses.items():
                results.add(f"tuning_ablation{kind.suffix}_{arm}_{name}", spread.mean)
            mean = float(np.mean([spread.mean for spread in losses.values()]))
            results.add(f"tuning_ablation{kind.suffix}_{arm}", mean)
    arms = (CLOCKTUNER, *ABLATED_ARMS)
    results.setting["ablations"] = {name: {arm: told(one, arm) for arm in arms} for name, one in found.items()}
    _print(found)


def lost(found: Outcomes, arm: str, kind: Kind) -> Spread:
    """Return how much worse an arm is than clocktuner as it is, over 0 where the part is worth something."""
    pairs = zip(kind.scores(found, arm), kind.scores(found, CLOCKTUNER), strict=True)
    return Spread.of([without - whole for without, whole in pairs])


def _print(found: Mapping[str, Outcomes]) -> None:
    title = "what is lost without a part: score against the whole, and its standard error; over 0 is worse (simulated)"
    table = Table("workload and bounds", "score of", *ABLATED_ARMS, title=title, title_justify="left")
    for name, one in found.items():
        for kind in KINDS:
            spreads = [lost(one, arm, kind) for arm in ABLATED_ARMS]
            table.add_row(name, kind.words, *(f"{spread.mean:+.3f} ± {spread.error:.3f}" for spread in spreads))
    Console(width=180).print(table)
