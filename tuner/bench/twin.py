"""`clocktuner bench twin`: how quick the twin is, and how well it foretells the reference scheduler.

Accuracy is measured as the twin is used. A reference scheduler runs for a day under the default setting, but for a few
hours in which each knob once moves by one change either way; the calibrator watches. At several times of the day the
run is copied, each copy gets one of several random settings for a quarter of an hour, and the twin, which is calibrated
on what was observed until then, foretells each. It is told what will arrive, so that its errors are its own and not the
forecast's; it has never seen the settings, and nothing was ever fitted on these workloads.
"""

import copy
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tuner.bench.cases import own
from tuner.bench.observing import Recorder
from tuner.bench.results import Results
from tuner.errors import TraceError
from tuner.reference.scheduler import ReferenceScheduler
from tuner.reference.settings import ClockSettings
from tuner.reference.trace import DAY_SECONDS
from tuner.reference.workloads import NamedWorkload, build
from tuner.twin.calibration import Calibrator, knob_row
from tuner.twin.model import evaluate, warm_up
from tuner.twin.parameters import PARAMETER_COUNT, TwinParameters
from tuner.twin.records import Record, record_interval
from tuner.twin.workload import HORIZON_SECONDS, STEP_SECONDS, STEPS, Scenarios
from tuner.values.knobs import DESIGN_RANGES, KnobValues, Role
from tuner.values.metrics import FLOORS, METRIC_COUNT, METRIC_INDEX, score
from tuner.values.stages import FloatArray, Observation

WORKLOADS: Final = ("itp02", "openb", "joined")
"""Three unlike ones, on none of which the twin was developed."""
JUDGED: Final = (
    "queue_wait_seconds",
    "accelerator_utilization_ratio",
    "scheduling_latency_seconds",
    "switch_overhead_ratio",
)
"""Metrics that the error is a median over."""

MINUTE_SECONDS: Final = 60.0
OBSERVED_FROM: Final = 60
"""Minute of the first observation: the cluster has filled."""
OBSERVED_EVERY: Final = 5
"""Minutes between two observations."""
EXCURSIONS_FROM: Final = 120
"""Minute at which the first knob is moved."""
EXCURSION_MINUTES: Final = 25
REST_MINUTES: Final = 5
TRIAL_MINUTES: Final = int(HORIZON_SECONDS / MINUTE_SECONDS)

SCENARIOS: Final = 6
"""Three forecast quantiles with two draws: what a candidate counts for when it is scored on."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What the twin is examined on: settings tried at one time.

    Attributes:
        before: What was known then.
        default: The interval under the default setting.
        tried: The same interval under each of the settings.
    """

    before: Observation
    default: Record
    tried: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Examination:
    """What one workload showed.

    Attributes:
        errors: Relative errors, shape (times, settings, judged metrics); NaN where there was no sample.
        agreement: Kendall's tau of the settings by their mean score, twin against reference.
        repeatability: Mean Kendall's tau of the settings by score between any two times, reference against itself: how
            far an order at one time tells that at another, chance and the moving optimum together; NaN for one time.
        fidelity_ratio: What the twin said of itself at the end.
    """

    errors: FloatArray
    agreement: float
    repeatability: float
    fidelity_ratio: float


def run(
    *, quick: bool = False, workloads: Sequence[str] = WORKLOADS, seed: int = 1, trace: Path | None = None
) -> Results:
    """Measure speed and accuracy.

    Args:
        quick: Fewer settings, times and repetitions: for a first look.
        workloads: Names of the workloads to examine the twin on.
        seed: Of workloads, constants and settings.
        trace: Plain CSV trace of somebody's own to examine the twin on, instead of the workloads; at least a day long,
            because the trials lie in its first 24 hours.

    Raises:
        TraceError: The trace cannot be read, or is too short.
    """
    results = Results("twin", setting={"quick": quick, "seed": seed, "workloads": list(workloads)})
    warm_up()
    for nodes, tasks, goal in ((64, 3_500, 500.0), (1000, 50_000, 150.0)):
        speed = candidates_per_second(nodes=nodes, tasks=tasks, repetitions=3 if quick else 9)
        results.add(f"twin_candidates_per_second_{nodes}_nodes", speed, at_least=goal)
    hours, settings = ((9, 12), 8) if quick else ((8, 11, 14, 17, 20, 23), 20)
    examined = {
        workload.name: examine(workload, hours=hours, settings=random_settings(settings, seed=seed), seed=seed)
        for workload in _examined(workloads, trace, seed=seed)
    }
    errors = np.concatenate([one.errors.reshape(-1, len(JUDGED)) for one in examined.values()])
    results.add("twin_error_median_ratio", float(np.nanmedian(errors)), at_most=0.10)
    results.add("twin_rank_agreement", float(np.mean([one.agreement for one in examined.values()])), at_least=0.8)
    for index, metric in enumerate(JUDGED):
        results.add(f"twin_error_median_ratio_{metric}", float(np.nanmedian(errors[:, index])))
    for name, one in examined.items():
        results.add(f"twin_error_median_ratio_{name}", float(np.nanmedian(one.errors)))
        results.add(f"twin_rank_agreement_{name}", one.agreement)
        results.add(f"twin_rank_repeatability_of_reference_{name}", one.repeatability)
        results.add(f"twin_fidelity_ratio_{name}", one.fidelity_ratio)
    return results


def _examined(names: Sequence[str], trace: Path | None, *, seed: int) -> Iterator[NamedWorkload]:
    if trace is None:
        yield from (build(name, seed=seed) for name in names)
        return
    workload = own(trace, "csv")(seed)
    if workload.trace.span_seconds < DAY_SECONDS:
        raise TraceError(f"{trace}: spans {workload.trace.span_seconds / 3600:.1f} h, must span 24 h at least")
    yield workload


def candidates_per_second(*, nodes: int, tasks: int, repetitions: int = 9, candidates: int = 200) -> float:
    """Return how many candidates are scored on all scenarios in a second, the median of several calls."""
    knobs = np.array([knob_row(setting) for setting in random_settings(candidates, seed=1)])
    scenarios = crowd(nodes=nodes, tasks=tasks)
    seconds = []
    for _ in range(repetitions):
        begin = time.perf_counter()
        evaluate(knobs, scenarios, TwinParameters())
        seconds.append(time.perf_counter() - begin)
    return candidates / float(np.median(seconds))


def crowd(*, nodes: int, tasks: int) -> Scenarios:
    """Return scenarios of a busy cluster of nodes with 8 accelerators that meets so many tasks in the horizon."""
    accelerators = 8.0 * nodes
    rate = tasks / HORIZON_SECONDS
    arrivals = rate * np.array([0.05, 0.005, 0.005, 0.6, 0.34])
    service = np.array([60.0, 120.0, 0.6 * accelerators / (0.005 * rate) / 4.0, 10.0, 10.0])
    load = np.linspace(0.8, 1.2, SCENARIOS)
    return Scenarios(
        arrivals_per_second=load[:, None, None] * np.tile(arrivals, (SCENARIOS, STEPS, 1)),
        recent_per_second=np.tile(arrivals, (SCENARIOS, 1)),
        running_tasks=np.tile(arrivals * service, (SCENARIOS, 1)),
        waiting_tasks=np.tile(0.02 * arrivals * service, (SCENARIOS, 1)),
        service_seconds=np.tile(service, (SCENARIOS, 1)),
        demand_accelerators=np.tile(np.array([0.0, 4.0, 4.0, 0.25, 0.25]), (SCENARIOS, 1)),
        accelerators_count=np.full(SCENARIOS, accelerators),
        cold_start_seconds=np.full(SCENARIOS, 8.0),
        spread_ratio=np.full(SCENARIOS, 0.5),
        parameter_draws=np.zeros((SCENARIOS, PARAMETER_COUNT)),
        weights=np.full(SCENARIOS, 1.0 / SCENARIOS),
        step_seconds=np.array(STEP_SECONDS),
    )


def random_settings(count: int, *, seed: int) -> tuple[KnobValues, ...]:
    """Return settings spread over the recommended ranges, on their grids (Sobol points)."""
    from scipy.stats import qmc

    # Sobol points keep their balance in powers of two only.
    points = qmc.Sobol(len(Role), seed=seed).random_base2(max(count - 1, 1).bit_length())[:count]
    return tuple(
        KnobValues.of(
            {
                spec.role: spec.snap(spec.low + share * (spec.high - spec.low))
                for spec, share in zip(DESIGN_RANGES.values(), point, strict=True)
            }
        )
        for point in points
    )


def examine(workload: NamedWorkload, *, hours: Sequence[int], settings: Sequence[KnobValues], seed: int) -> Examination:
    """Calibrate the twin on one workload as it runs, and compare what it foretells with what comes.

    Args:
        workload: What runs where.
        hours: Times of the trials, hours after the start; after the excursions.
        settings: What is tried.
        seed: Of the scheduler's constants.
    """
    calibrator = Calibrator()
    errors, foretold, came = [], [], []
    for trial in trials(workload, hours=hours, settings=settings, seed=seed, calibrator=calibrator):
        predicted = foretell(trial, calibrator.parameters(trial.before.at_seconds))
        observed = np.stack([record.observed[:METRIC_COUNT] for record in trial.tried])
        judged = [METRIC_INDEX[name] for name in JUDGED]
        errors.append((np.abs(predicted[1:] - observed) / np.maximum(observed, FLOORS))[:, judged])
        foretold.append(score(predicted[1:], predicted[0]))
        came.append(score(observed, trial.default.observed[:METRIC_COUNT]))
    fidelity = calibrator.parameters(0.0).fidelity_ratio
    pairs = [kendall(one, other) for one, other in itertools.combinations(came, 2)]
    return Examination(
        errors=np.array(errors),
        agreement=kendall(np.mean(foretold, axis=0), np.mean(came, axis=0)),
        repeatability=float(np.mean(pairs)) if pairs else float("nan"),
        fidelity_ratio=fidelity,
    )


def foretell(trial: Trial, parameters: TwinParameters) -> FloatArray:
    """Return what the twin says of the default and of each setting tried, shape (1 + settings, 13)."""
    knobs = np.stack([trial.default.knobs, *(record.knobs for record in trial.tried)])
    return evaluate(knobs, trial.default.scenario, parameters)[:, 0]


def kendall(one: FloatArray, other: FloatArray) -> float:
    """Return Kendall's rank correlation (tau-b)."""
    from scipy.stats import kendalltau

    return float(kendalltau(one, other).statistic)


def trials(
    workload: NamedWorkload, *, hours: Sequence[int], settings: Sequence[KnobValues], seed: int, calibrator: Calibrator
) -> Iterator[Trial]:
    """Run a workload with its excursions, let a calibrator watch, and yield the trials on the way."""
    scheduler = ReferenceScheduler(workload.cluster, workload.trace.workload, seed=seed)
    recorder, plan = Recorder(), excursions()
    starts = {60 * hour for hour in hours}
    for minute in range(max(starts) + 1):
        if minute in plan:
            scheduler.configure(plan[minute])
        scheduler.advance(minute * MINUTE_SECONDS)
        recorder.push(scheduler.snapshot())
        if minute >= OBSERVED_FROM and minute % OBSERVED_EVERY == 0:
            calibrator.observe(recorder.observation())
        if minute in starts:
            yield Trial(
                before=recorder.observation(),
                default=attempt(scheduler, recorder, scheduler.settings.knobs),
                tried=tuple(attempt(scheduler, recorder, knobs) for knobs in settings),
            )


def excursions() -> dict[int, ClockSettings]:
    """Return which setting takes force at which minute: each knob one change down, one up, and back in between."""
    default = ClockSettings()
    plan, minute = {}, EXCURSIONS_FROM
    for role, spec in DESIGN_RANGES.items():
        for change in (-spec.slew, spec.slew):
            moved = {**default.knobs, role: spec.snap(default.knobs[role] + change)}
            plan[minute] = default.with_knobs(KnobValues.of(moved))
            plan[minute + EXCURSION_MINUTES] = default
            minute += EXCURSION_MINUTES + REST_MINUTES
    return plan


def attempt(scheduler: ReferenceScheduler, recorder: Recorder, knobs: KnobValues) -> Record:
    """Return what a copy of a scheduler shows in the next interval under a setting; the original is not touched.

    Raises:
        ValueError: The interval has no samples.
    """
    trial, seen = copy.deepcopy(scheduler), recorder.copy()
    trial.configure(trial.settings.with_knobs(knobs))
    for _ in range(TRIAL_MINUTES):
        trial.advance(trial.now_seconds + MINUTE_SECONDS)
        seen.push(trial.snapshot())
    record = record_interval(seen.observation(), knob_row(knobs))
    if record is None:
        raise ValueError(f"trial at {scheduler.now_seconds} s shows nothing")
    return record
