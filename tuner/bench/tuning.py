"""`clocktuner bench tuning`: clocktuner against other ways to tune, on the reference scheduler (simulated).

Every arm replays the same workloads with the same seeds from the same setting within the same bounds, and decides at
the same times (`tuner.bench.replays`). An arm's score is that of the metrics of its whole replay against the untouched
replay of the same seed; beside it stands the mean score of the windows of five minutes. The metrics of a whole replay
hold quantiles of a day. A p99 keeps the worst quarter of an hour of it however good the rest is, so that by whole
replays no tuner that begins without knowledge can come near what was right from the first minute. The windows see how
long a setting was how good. Live methods see only what a watcher of the scheduler sees (`tuner.bench.tuners`, which
also tells how a tuner of the outside takes part); the best fixed setting is what hindsight gives
(`tuner.bench.hindsight`).

Figures, for each workload and set of bounds:

    tuning_gap_closed_ratio_WORKLOAD_BOUNDS   (untouched - clocktuner) / (untouched - best fixed), where hindsight gains
                                              at least 5 % and 3 paired standard errors
    tuning_harm_ratio_WORKLOAD_BOUNDS         elsewhere: clocktuner's score; over 0 is harm
    tuning_regret_ratio_WORKLOAD_BOUNDS       clocktuner's regret over that of the best live method
    tuning_hindsight_gain_WORKLOAD_BOUNDS     gain of the best fixed setting
    tuning_..._window_..._WORKLOAD_BOUNDS     the same by the scores of windows, against the fixed setting that is best
                                              by them
    tuning_adapting_gain_WORKLOAD_BOUNDS      score of the best fixed setting less clocktuner's, where the load changes
                                              its character (`tuner.bench.adapting`)
    tuning_ablation_PART_WORKLOAD_BOUNDS      what is lost without a part of clocktuner (`tuner.bench.ablations`)

and over all of them, for each arm with something badly wrong in it (`tuner.bench.faults`):

    tuning_mean_ratio_ARM                     cost against untouched, the mean of the seeds, where that is highest
    tuning_worst_ratio_ARM                    the same of the upper 95 % bound over the seeds
    tuning_mean_window_ratio_ARM,
    tuning_worst_window_ratio_ARM             both of the mean score of the windows, which sees harm that quantiles of
                                              a whole replay do not

A whole run takes hours. Every replay is remembered as soon as it is made, so a run that was stopped goes on where it
was. What is remembered is told apart by code, workload, seed, bounds and settings.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from tuner import logs
from tuner.bench import headlines
from tuner.bench.adapting import adapting
from tuner.bench.arms import KINDS, Case, Compared, Laboratory
from tuner.bench.cases import (
    BOUND_SETS,
    CLOCKTUNER,
    LIVE_ARMS,
    RECOMMENDED,
    UNTOUCHED,
    own,
    own_name,
    shipped,
)
from tuner.bench.gaps import Spread, gap_closed_ratio, has_gap, regret_ratio
from tuner.bench.hardware import nodes_for_equal_wait
from tuner.bench.parts import parts
from tuner.bench.remembered import Remembered, default_folder
from tuner.bench.results import Results
from tuner.bench.safety import safety
from tuner.bench.selection import MAX_RUNS, Arms
from tuner.bench.telling import mean_metrics, told
from tuner.bench.tuners import TunerFactory
from tuner.reference.workloads import BENCH_NAMES, NamedWorkload
from tuner.values.metrics import METRIC_NAMES, worsened

GOAL_GAP_CLOSED: Final = 0.8
GOAL_HARM: Final = 0.01
GOAL_REGRET: Final = 0.5

QUICK_WORKLOAD: Final = "openb"
QUICK_HOURS: Final = 4.0
QUICK_SEEDS: Final = 2
QUICK_RUNS: Final = 24
"""The quick form: a few hours of the smallest workload, and a coarse search of the best fixed setting."""

Makers = Mapping[str, Callable[[int], NamedWorkload]]
"""What makes each workload for a seed, by name."""


def run(
    *,
    trace: Path | None,
    trace_format: str,
    seeds: int,
    quick: bool,
    cache: Path | None = None,
    names: Sequence[str] = BENCH_NAMES,
    others: Mapping[str, TunerFactory] | None = None,
    arms: Arms = Arms.ALL,
    replays: int = MAX_RUNS,
) -> Results:
    """Run the benchmark, print a table for each workload and set of bounds, and return the figures.

    Args:
        trace: A trace of one's own, instead of the shipped workloads.
        trace_format: Its format.
        seeds: Number of paired seeds.
        quick: A few hours of one workload, at most two seeds, and few replays for the best fixed setting.
        cache: Folder in which replays are remembered; in the user's cache directory where absent.
        names: Shipped workloads to run.
        others: Tuners of the outside that take part, by name; see `tuner.bench.tuners`.
        replays: Most replays for each best fixed setting; the quick form takes few.
        arms: Which arms to run: those that are compared, those without a part, those with something wrong, or all.

    Raises:
        TraceError: The trace cannot be read.
        ConfigError: There is no such workload, or a task of the trace can never run on the cluster.
    """
    logs.configure(level="error")
    console = Console(stderr=True)
    makers = _makers(trace, trace_format, names, quick=quick)
    chosen = tuple(range(1, (min(seeds, QUICK_SEEDS) if quick else seeds) + 1))
    budget = QUICK_RUNS if quick else replays
    memory = Remembered(cache or default_folder())
    results = Results("tuning", setting=_setting(makers, chosen, budget, quick=quick))
    _compile(console)
    cases = [
        Case(name=name, bounds=bounds, workload=maker, seeds=chosen)
        for name, maker in makers.items()
        for bounds in BOUND_SETS
    ]
    with closing(
        Laboratory(memory, say=lambda line: console.print(line, highlight=False, soft_wrap=True))
    ) as laboratory:
        if arms in (Arms.ALL, Arms.SAFETY):
            safety(results, laboratory, cases, quick=quick)
        if arms in (Arms.ALL, Arms.COMPARED):
            _comparison(results, laboratory, cases, budget=budget, others=others, quick=quick)
        if arms in (Arms.ALL, Arms.ABLATIONS):
            parts(results, laboratory, cases)
    results.setting["replays_made"] = memory.made
    results.setting["replays_remembered"] = memory.recalled
    return results


def _comparison(
    results: Results,
    laboratory: Laboratory,
    cases: Sequence[Case],
    *,
    budget: int,
    others: Mapping[str, TunerFactory] | None,
    quick: bool,
) -> None:
    """Compare clocktuner with other ways to tune, and add what comes of it."""
    compared = {}
    for case in cases:
        compared[case.name, case.bounds.name] = found = laboratory.compare(case, budget=budget, others=others)
        judge(results, case, found)
        _print(case, found)
        adapting(results, case, found)
    recommended = [case for case in cases if case.bounds is RECOMMENDED]
    _headlines(results, laboratory, recommended, compared, quick=quick)


def judge(results: Results, case: Case, found: Compared) -> None:
    """Add the figures of a case, with their goals, and what every arm did to the setting."""
    name = f"{case.name}_{case.bounds.name}"
    for kind in KINDS:
        tuned, fixed = kind.scores(found, CLOCKTUNER), kind.scores(found, kind.best)
        if has_gap(fixed):
            closed = gap_closed_ratio(tuned, fixed)
            results.add(f"tuning_gap_closed{kind.suffix}_ratio_{name}", closed, at_least=GOAL_GAP_CLOSED)
        else:
            results.add(f"tuning_harm{kind.suffix}_ratio_{name}", Spread.of(tuned).mean, at_most=GOAL_HARM)
        regret = regret_ratio(tuned, [kind.scores(found, arm) for arm in LIVE_ARMS], fixed)
        results.add(f"tuning_regret{kind.suffix}_ratio_{name}", regret, at_most=GOAL_REGRET)
        results.add(f"tuning_hindsight_gain{kind.suffix}_{name}", -Spread.of(fixed).mean)
    arms = results.setting.setdefault("arms", {})
    if isinstance(arms, dict):
        arms[name] = {arm: told(found, arm) for arm in found.outcomes}
        for kind, hindsight in zip(KINDS, (found.hindsight, found.window_hindsight), strict=True):
            arms[name][kind.best] |= {"setting": hindsight.knobs.describe(), "replays": hindsight.runs}


def _print(case: Case, found: Compared) -> None:
    """Print what came of a case: one column an arm, metrics that are worse than untouched marked."""
    columns = {arm: told(found, arm) for arm in found.outcomes}
    title = (
        f"{case.name}, {case.bounds.name} bounds, from {case.bounds.start_name}; means of {len(case.seeds)} seeds; "
        f"best fixed after {found.hindsight.runs} replays: {found.hindsight.knobs.describe()}, by windows: "
        f"{found.window_hindsight.knobs.describe()}; "
        "* worse than untouched (simulated)"
    )
    table = Table("", *columns, title=title, title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for kind in KINDS:
        spreads = [Spread.of(kind.scores(found, arm)) for arm in columns]
        table.add_row(f"score of {kind.words}", *(f"{spread.mean:+.3f}" for spread in spreads))
        table.add_row("  standard error", *(f"{spread.error:.3f}" for spread in spreads))
    untouched = mean_metrics(found, UNTOUCHED)
    for index, name in enumerate(METRIC_NAMES):
        cells = []
        for arm in columns:
            metrics = mean_metrics(found, arm)
            cells.append(f"{metrics[index]:.4g}" + ("*" if name in worsened(metrics, untouched) else ""))
        table.add_row(name, *cells)
    for count in ("changes", "rollbacks", "harmful_minutes"):
        table.add_row(count.replace("_", " "), *(f"{columns[arm][count]:g}" for arm in columns))
    Console(width=180).print(table)


def _headlines(
    results: Results,
    laboratory: Laboratory,
    cases: Sequence[Case],
    compared: Mapping[tuple[str, str], Compared],
    *,
    quick: bool,
) -> None:
    """Add and print the source document's figures beside those of the simulation."""
    arms = {
        arm: [outcome for case in cases for outcome in compared[case.name, case.bounds.name].outcomes[arm]]
        for arm in ("unoptimised", UNTOUCHED, CLOCKTUNER)
    }
    arms["adaptive_slice_only"] = [
        outcome
        for case in cases
        for outcome in laboratory.fixed(case, headlines.ADAPTIVE_SLICE_ONLY, title="adaptive slice only")
    ]
    found = headlines.figures(arms)
    for name, value in found.items():
        results.add(name, value)
    table = Table(
        "figure",
        "source document",
        *arms,
        "how it is taken",
        title="headlines (simulated); in brackets the change from unoptimised",
    )
    for headline in headlines.HEADLINES:
        values = headlines.cells([found[f"headline_{headline.name}_{arm}"] for arm in arms])
        table.add_row(headline.name, headline.claim, *values, headline.how)
    tried = (UNTOUCHED,) if quick else (UNTOUCHED, CLOCKTUNER)
    for arm in tried:
        shares = [nodes_for_equal_wait(laboratory, case, arm) for case in cases]
        results.add(f"headline_hardware_ratio_{arm}", float(np.mean(shares)))
    measured = {"unoptimised": 1.0} | {
        arm: results.figures.get(f"headline_hardware_ratio_{arm}", np.nan) for arm in tried
    }
    how = "nodes on which the mean wait is that of the unoptimised scheduler on all of them, first seed"
    cells = headlines.cells([measured.get(arm, np.nan) for arm in arms])
    table.add_row("hardware_ratio", "-19 %", *cells, how)
    Console(width=180).print(table)


def _makers(trace: Path | None, trace_format: str, names: Sequence[str], *, quick: bool) -> Makers:
    hours = QUICK_HOURS if quick else 24.0
    if trace is not None:
        return {own_name(trace): own(trace, trace_format, hours=hours)}
    return {name: shipped(name, hours=hours) for name in ((QUICK_WORKLOAD,) if quick else names)}


def _setting(makers: Makers, seeds: tuple[int, ...], budget: int, *, quick: bool) -> dict[str, object]:
    return {
        "quick": quick,
        "seeds": list(seeds),
        "hindsight_replays_at_most": budget,
        "workloads": {name: make(seeds[0]).describe() for name, make in makers.items()},
        "bounds": {
            bounds.name: {
                "start": bounds.start_name,
                "knobs": {spec.role.value: [spec.low, spec.high, spec.step] for spec in bounds.specs},
            }
            for bounds in BOUND_SETS
        },
        "simulated": "the cluster, its scheduler and the clock; the traces are real",
    }


def _compile(console: Console) -> None:
    from tuner.reference import scheduler
    from tuner.twin import model

    with console.status("compiling"):
        scheduler.warm_up()
        model.warm_up()
