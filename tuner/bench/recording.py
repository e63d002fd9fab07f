"""Recorded runs of the reference scheduler: what the network learns its covariates from.

No public series tells remaining run time, temperature, power and waiting tasks by kind together, so they are recorded
from simulated runs of real traces. Only the first 70 % of each trace is replayed here: what the demonstration and the
benchmarks replay comes later, and was never seen.

    python -m tuner.bench.recording        writes tuner/forecast/series/reference.npz anew
"""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tuner.forecast.traces import RECORDING
from tuner.reference import overlay, readers
from tuner.reference.cluster import PRESETS, ClusterSpec
from tuner.reference.inference import (
    LLAMA2_70B_H100,
    read_azure,
    read_servegen,
    request_trace,
    sample_arrivals,
    with_tokens,
)
from tuner.reference.scheduler import ReferenceScheduler, warm_up
from tuner.reference.settings import ClockSettings
from tuner.reference.snapshot import Snapshot
from tuner.reference.trace import DAY_SECONDS, Trace
from tuner.reference.traces import REQUEST_SHARE, SHIPPED
from tuner.reference.workloads import HELD_OUT_FROM_SECONDS, HELD_OUT_RATIO
from tuner.values.context import TASK_CLASSES
from tuner.values.metrics import METRICS
from tuner.values.stages import STEP_SECONDS, FloatArray

ARRIVAL_STEPS: Final = 5
"""Steps over which arrivals are counted: five minutes, as in policies."""

SERIES: Final = (
    *(spec.name for spec in METRICS),
    *(f"{name}:{kind}" for name in ("waiting_tasks", "running_tasks", "arrivals_per_second") for kind in TASK_CLASSES),
)
"""What is recorded of each run, one sample a minute."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One run to record.

    Attributes:
        cluster: ITP cluster whose jobs are replayed.
        from_days: Where in the trace the jobs begin; 18 days of them are replayed in one.
        requests_per_second: Inference requests laid over them.
        machine: Where they run.
    """

    cluster: str
    from_days: float
    requests_per_second: float
    machine: ClusterSpec

    def __post_init__(self) -> None:
        """Refuse to look at what is held out.

        Raises:
            ValueError: The jobs would reach beyond the first 70 % of the trace.
        """
        if (self.from_days + 18) * DAY_SECONDS > HELD_OUT_FROM_SECONDS["itp_jobs.parquet"]:
            raise ValueError(f"{self.cluster}: days {self.from_days:g} to {self.from_days + 18:g} are held out in part")


RUNS: Final = (
    RunSpec("cluster02", 12.0, 3.0, PRESETS["demo"].sized(20)),
    RunSpec("cluster02", 23.0, 3.0, PRESETS["demo"].sized(20)),
    RunSpec("cluster04", 23.0, 5.5, PRESETS["reference"].sized(76)),
)
"""Three days of simulated time, at offered loads of 0.6 to 0.8: below, at and about the knee."""


def record(path: Path = RECORDING, *, runs: tuple[RunSpec, ...] = RUNS, hours: float = 24.0, seed: int = 11) -> Path:
    """Replay some runs with the untouched scheduler, and write their series as npz, without pickle.

    Args:
        path: File to write.
        runs: What to replay.
        hours: How much of each.
        seed: Seed of all that is drawn; other physical constants for each run.
    """
    warm_up()
    with ThreadPoolExecutor(len(runs)) as pool:  # The kernels release the interpreter lock.
        jobs = [pool.submit(_record_run, spec, hours=hours, seed=seed + number) for number, spec in enumerate(runs)]
        recorded = [job.result() for job in jobs]
    np.savez_compressed(
        path,
        names=np.array(SERIES),
        values=np.stack([values for values, _ in recorded]).astype(np.float32),
        accelerators=np.array([count for _, count in recorded]),
    )
    return path


def training_trace(spec: RunSpec, *, seed: int) -> Trace:
    """Return 18 days of jobs in one, with a day of requests laid over them, all from the first 70 % of their traces."""
    jobs = readers.read_itp(SHIPPED / "itp_jobs.parquet", cluster=spec.cluster)
    part = overlay.slice_time(jobs, spec.from_days * DAY_SECONDS, (spec.from_days + 18) * DAY_SECONDS)
    assumptions = overlay.Assumptions(zones=spec.machine.zones)
    lapse = overlay.assume(overlay.compress_time(part, part.span_seconds / DAY_SECONDS), assumptions, seed=seed)
    return overlay.overlay(lapse, overlay.assume(_requests(spec, seed=seed), assumptions, seed=seed))


def _requests(spec: RunSpec, *, seed: int) -> Trace:
    begin = round(spec.from_days) % 9 * DAY_SECONDS
    wanted = spec.requests_per_second * DAY_SECONDS
    rates = read_servegen(SHIPPED / "servegen_rates.parquet").between(begin, begin + DAY_SECONDS).smallest(wanted)
    at_seconds, client = sample_arrivals(rates, seed=seed, scale=wanted / rates.expected())
    tokens = [read_azure(SHIPPED / f"azure_{kind}.csv.gz").between(0.0, HELD_OUT_RATIO) for kind in ("conv", "code")]
    requests = with_tokens(at_seconds, np.searchsorted(np.array(rates.clients), client), tokens, seed=seed)
    return request_trace("servegen_rates.parquet", requests, service=LLAMA2_70B_H100, share=REQUEST_SHARE)


def _record_run(spec: RunSpec, *, hours: float, seed: int) -> tuple[FloatArray, int]:
    workload = training_trace(spec, seed=seed).workload
    scheduler = ReferenceScheduler(spec.machine, workload, settings=ClockSettings(), seed=seed)
    rows = list(_samples(scheduler, steps=round(hours * 3600 / STEP_SECONDS)))
    return np.array(rows).T, scheduler.snapshot().accelerators


def _samples(scheduler: ReferenceScheduler, *, steps: int) -> Iterator[list[float]]:
    submitted = [scheduler.snapshot().submitted_tasks.sum(axis=1)]
    for step in range(1, steps + 1):
        scheduler.advance(step * STEP_SECONDS)
        snapshot = scheduler.snapshot()
        submitted = [*submitted[-ARRIVAL_STEPS:], snapshot.submitted_tasks.sum(axis=1)]
        span = STEP_SECONDS * (len(submitted) - 1)
        yield [*_metrics(snapshot), *((submitted[-1] - submitted[0]) / span)]


def _metrics(snapshot: Snapshot) -> list[float]:
    return [*snapshot.recent, *snapshot.waiting_tasks, *snapshot.running_tasks]


if __name__ == "__main__":
    sys.stdout.write(f"{record()}\n")
