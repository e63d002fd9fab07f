"""Trials of the twin against the reference scheduler: what each shows of settings that the twin has never seen."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.bench.cases import BoundSet
from tuner.bench.observing import Recorder
from tuner.reference.physics import PhysicalConstants
from tuner.reference.scheduler import ReferenceScheduler
from tuner.reference.settings import ClockSettings
from tuner.reference.workloads import NamedWorkload
from tuner.twin.calibration import Calibrator, knob_row
from tuner.twin.model import evaluate, out_of_range
from tuner.twin.parameters import TwinParameters
from tuner.twin.records import Record, record_interval
from tuner.twin.workload import HORIZON_SECONDS
from tuner.values.knobs import KnobValues, Role
from tuner.values.metrics import METRIC_COUNT
from tuner.values.stages import FloatArray, Observation

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
class Fate:
    """What one run of a workload showed, and what the twin said of it; H times, the default first of 1 + S settings.

    Attributes:
        foretold: Shape (H, 1 + S, 13).
        came: Shape (H, 1 + S, 13); NaN where there was no sample.
        outside: Whether the twin said that it was beyond what it knows, shape (H, 1 + S).
        parameters: The twin as it was calibrated at the end.
    """

    foretold: FloatArray
    came: FloatArray
    outside: np.ndarray[tuple[int, int], np.dtype[np.bool_]]
    parameters: TwinParameters


def random_settings(bounds: BoundSet, count: int, *, seed: int) -> tuple[KnobValues, ...]:
    """Return settings spread over the bounds, on their grids (Sobol points)."""
    from scipy.stats import qmc

    # Sobol points keep their balance in powers of two only.
    points = qmc.Sobol(len(Role), seed=seed).random_base2(max(count - 1, 1).bit_length())[:count]
    return tuple(
        KnobValues.of(
            {
                spec.role: spec.snap(spec.low + share * (spec.high - spec.low))
                for spec, share in zip(bounds.specs, point, strict=True)
            }
        )
        for point in points
    )


def live(
    workload: NamedWorkload,
    bounds: BoundSet,
    *,
    hours: Sequence[int],
    settings: Sequence[KnobValues],
    seed: int,
    physics: int,
) -> Fate:
    """Calibrate the twin on one run of a workload, and compare what it foretells with what comes.

    Args:
        workload: What runs where.
        bounds: Its untouched setting is in force, and one change of each of its knobs is an excursion.
        hours: Times of the trials, hours after the start; after the excursions.
        settings: What is tried.
        seed: Of what the scheduler draws for each task.
        physics: Seed of the scheduler's constants.
    """
    calibrator = Calibrator()
    foretold, came, outside = [], [], []
    scheduler = ReferenceScheduler(
        workload.cluster,
        workload.trace.workload,
        settings=bounds.settings,
        seed=seed,
        constants=PhysicalConstants.draw(physics),
    )
    for trial in trials(scheduler, excursions(bounds), hours=hours, settings=settings, calibrator=calibrator):
        parameters = calibrator.parameters(trial.before.at_seconds)
        knobs = np.stack([trial.default.knobs, *(record.knobs for record in trial.tried)])
        foretold.append(evaluate(knobs, trial.default.scenario, parameters)[:, 0])
        came.append(np.stack([record.observed[:METRIC_COUNT] for record in (trial.default, *trial.tried)]))
        outside.append(out_of_range(knobs, trial.default.scenario, parameters))
    return Fate(np.array(foretold), np.array(came), np.array(outside), calibrator.parameters(0.0))


def trials(
    scheduler: ReferenceScheduler,
    plan: dict[int, ClockSettings],
    *,
    hours: Sequence[int],
    settings: Sequence[KnobValues],
    calibrator: Calibrator,
) -> Iterator[Trial]:
    """Run a scheduler with its excursions, let a calibrator watch, and yield the trials on the way."""
    recorder = Recorder()
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


def excursions(bounds: BoundSet) -> dict[int, ClockSettings]:
    """Return which setting takes force at which minute: each knob one change down, one up, and back in between."""
    default = bounds.settings
    plan, minute = {}, EXCURSIONS_FROM
    for spec in bounds.specs:
        for change in (-spec.slew, spec.slew):
            moved = {**default.knobs, spec.role: spec.snap(default.knobs[spec.role] + change)}
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
