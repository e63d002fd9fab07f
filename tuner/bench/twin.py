"""`clocktuner bench twin`: how quick the twin is, and how well it foretells the reference scheduler.

Accuracy is measured as the twin is used. A reference scheduler runs for a day under the untouched setting, but for a
few hours in which each knob once moves by one change either way; the calibrator watches. At several times of the day
the run is copied, each copy gets one of several random settings for a quarter of an hour, and the twin, which is
calibrated on what was observed until then, foretells each. It is told what will arrive, so that its errors are its own
and not the forecast's; it has never seen the settings, and nothing was ever fitted on these workloads. All of it is
done within the recommended and within the wide bounds.

What is ranked are the settings of one case, a workload in bounds, by their mean score against the untouched setting.
One quarter of an hour is a poor judge of that: whether one gang finds its place decides what comes after it, and two
such quarters, though all settings meet the same tasks, agree little about the order. A twin without any error would
agree with one of them no better. So the truth is a mean: over all times of the day, and over several fates, which are
runs of the same jobs under the same physics with other requests. Fates are added until the truth repeats
(`twin_truth.repeatability` of `REPEATABLE` at least) or there are `MAX_FATES`; whether the twin agrees plays no part in
it. The goal holds for the cases whose truth repeats. Printed beside: the agreement interval by interval, the
repeatability, and the agreement that a twin without any error would reach.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import numpy as np

from tuner.bench.cases import BOUND_SETS, RECOMMENDED, BoundSet, own
from tuner.bench.results import Results
from tuner.bench.twin_cells import aggregation_error, crowd
from tuner.bench.twin_trials import Fate, live, random_settings
from tuner.bench.twin_truth import Ranking, rank
from tuner.errors import TraceError
from tuner.reference.trace import DAY_SECONDS
from tuner.reference.workloads import NamedWorkload, build
from tuner.twin.calibration import knob_row
from tuner.twin.model import evaluate, warm_up
from tuner.twin.parameters import PARAMETER_COUNT, TwinParameters
from tuner.values.knobs import KnobValues
from tuner.values.metrics import FLOORS, METRIC_INDEX
from tuner.values.stages import FloatArray

WORKLOADS: Final = ("itp02", "openb", "joined")
"""Three unlike ones, on none of which the twin was developed."""
JUDGED: Final = (
    "queue_wait_seconds",
    "accelerator_utilization_ratio",
    "scheduling_latency_seconds",
    "switch_overhead_ratio",
)
"""Metrics that the error is a median over."""

REPEATABLE: Final = 0.9
"""Repeatability from which on a measured order counts as the truth."""
FIRST_FATES: Final = 2
MAX_FATES: Final = 4
HOURS: Final = (8, 11, 14, 17, 20, 23)
SETTINGS: Final = 20

SIZES: Final = ((64, 3_500, 500.0), (1_000, 50_000, 150.0), (10_000, 500_000, None))
"""Nodes, tasks in the horizon, and the goal of candidates a second."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is examined.

    Attributes:
        hours: Times of the trials.
        settings: How many settings are tried at each.
        fates: Smallest and largest number of fates a case.
        seed: Of workloads, constants and settings.
    """

    hours: Sequence[int]
    settings: int
    fates: tuple[int, int]
    seed: int


def run(
    *,
    quick: bool = False,
    workloads: Sequence[str] = WORKLOADS,
    seed: int = 1,
    trace: Path | None = None,
    plot: Path | None = None,
) -> Results:
    """Measure speed and accuracy.

    Args:
        quick: Fewer settings, times, fates and repetitions, recommended bounds only: for a first look.
        workloads: Names of the workloads to examine the twin on.
        seed: Of workloads, constants and settings.
        trace: Plain CSV trace of somebody's own to examine the twin on, instead of the workloads; at least a day long,
            because the trials lie in its first 24 hours.
        plot: PNG file to write response curves of twin and reference to.

    Raises:
        TraceError: The trace cannot be read, or is too short.
    """
    results = Results("twin", setting={"quick": quick, "seed": seed, "workloads": list(workloads)})
    warm_up()
    for nodes, tasks, goal in SIZES:
        speed = candidates_per_second(nodes=nodes, tasks=tasks, repetitions=3 if quick else 9)
        results.add(f"twin_candidates_per_second_{nodes}_nodes", speed, at_least=goal)
    results.add("twin_aggregation_error_median_ratio_10000_nodes", aggregation_error(nodes=10_000, tasks=500_000))
    plan = Plan((9, 12), 8, (1, 1), seed) if quick else Plan(HOURS, SETTINGS, (FIRST_FATES, MAX_FATES), seed)
    makers = _makers(workloads, trace)
    cases = [(maker, bounds) for bounds in ((RECOMMENDED,) if quick else BOUND_SETS) for maker in makers]
    # Copying a scheduler holds the interpreter lock, so each case has a process of its own.
    with ProcessPoolExecutor(min(os.cpu_count() or 1, 2), mp_context=get_context("spawn")) as pool:
        examined = list(pool.map(partial(examine, plan=plan), *zip(*cases, strict=True)))
    _report(
        results, {f"{name}_{bounds.name}": fates for (name, fates), (_, bounds) in zip(examined, cases, strict=True)}
    )
    if plot is not None:
        from tuner.bench.twin_curves import draw

        draw(makers, plot, quick=quick, seed=seed)
    return results


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes the workload of a case for a seed, in whatever process.

    Attributes:
        name: One of the shipped workloads.
        trace: File of somebody's own, which goes before the name.
    """

    name: str
    trace: Path | None = None

    def __call__(self, seed: int) -> NamedWorkload:
        """Return the workload for a seed."""
        return build(self.name, seed=seed) if self.trace is None else own(self.trace, "csv")(seed)


def _makers(names: Sequence[str], trace: Path | None) -> list[Maker]:
    if trace is None:
        return [Maker(name) for name in names]
    span = Maker("own", trace)(1).trace.span_seconds
    if span < DAY_SECONDS:
        raise TraceError(f"{trace}: spans {span / 3600:.1f} h, must span 24 h at least")
    return [Maker("own", trace)]


def examine(maker: Callable[[int], NamedWorkload], bounds: BoundSet, *, plan: Plan) -> tuple[str, list[Fate]]:
    """Return the name of a workload, and its fates within bounds: as many as it takes for the truth to repeat."""
    settings = random_settings(bounds, plan.settings, seed=plan.seed)
    fates: list[Fate] = []
    for number in range(plan.fates[1]):
        # Seeds of fates lie far apart: a workload draws from its seed and the next few.
        seed = plan.seed + 1000 * number
        workload = maker(seed)
        fates.append(live(workload, bounds, hours=plan.hours, settings=settings, seed=seed, physics=plan.seed))
        if len(fates) >= plan.fates[0] and rank(fates).repeatability >= REPEATABLE:
            break
    return workload.name, fates


def _report(results: Results, cases: dict[str, list[Fate]]) -> None:
    rankings = {name: rank(fates) for name, fates in cases.items()}
    errors = {name: np.concatenate([_errors(fate) for fate in fates]) for name, fates in cases.items()}
    outside = np.concatenate([fate.outside[:, 1:] for fates in cases.values() for fate in fates])
    every = np.concatenate(list(errors.values()))
    trusted = [one for one in rankings.values() if one.repeatability >= REPEATABLE]
    results.add("twin_error_median_ratio", float(np.nanmedian(every)), at_most=0.10)
    results.add("twin_rank_agreement", _mean([one.agreement for one in trusted]), at_least=0.8)
    results.add("twin_rank_agreement_attainable", _mean([one.attainable for one in trusted]))
    results.add("twin_rank_cases_repeatable", len(trusted))
    results.add("twin_rank_agreement_all_cases", _mean([one.agreement for one in rankings.values()]))
    results.add("twin_rank_agreement_raw", _mean([one.raw for one in rankings.values()]))
    for index, metric in enumerate(JUDGED):
        results.add(f"twin_error_median_ratio_{metric}", float(np.nanmedian(every[..., index])))
    results.add("twin_out_of_range_share", float(outside.mean()))
    for name, chosen in (("in_range", ~outside), ("out_of_range", outside)):
        results.add(f"twin_error_median_ratio_{name}", float(np.nanmedian(every[chosen])) if chosen.any() else np.nan)
    for name, fates in cases.items():
        _report_case(results, name, fates, errors[name], rankings[name])


def _report_case(results: Results, name: str, fates: list[Fate], errors: FloatArray, ranking: Ranking) -> None:
    results.add(f"twin_error_median_ratio_{name}", float(np.nanmedian(errors)))
    results.add(f"twin_rank_agreement_{name}", ranking.agreement)
    results.add(f"twin_rank_repeatability_of_reference_{name}", ranking.repeatability)
    results.add(f"twin_rank_agreement_attainable_{name}", ranking.attainable)
    results.add(f"twin_fates_{name}", len(fates))
    results.add(f"twin_fidelity_ratio_{name}", _mean([fate.parameters.fidelity_ratio for fate in fates]))
    told = [PARAMETER_COUNT - len(fate.parameters.untold) for fate in fates]
    results.add(f"twin_parameters_told_{name}", _mean(told))


def _errors(fate: Fate) -> FloatArray:
    """Return relative errors of the settings tried, shape (H, S, judged metrics); NaN where there was no sample."""
    judged = [METRIC_INDEX[name] for name in JUDGED]
    errors: FloatArray = (np.abs(fate.foretold - fate.came) / np.maximum(fate.came, FLOORS))[:, 1:, judged]
    return errors


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def candidates_per_second(*, nodes: int, tasks: int, repetitions: int = 9, candidates: int = 200) -> float:
    """Return how many candidates are scored on all scenarios in a second, the median of several calls."""
    knobs = np.array([knob_row(setting) for setting in _many(candidates)])
    scenarios = crowd(nodes=nodes, tasks=tasks)
    seconds = []
    for _ in range(repetitions):
        begin = time.perf_counter()
        evaluate(knobs, scenarios, TwinParameters())
        seconds.append(time.perf_counter() - begin)
    return candidates / float(np.median(seconds))


def _many(count: int) -> Iterator[KnobValues]:
    yield from random_settings(RECOMMENDED, count, seed=1)
