"""Named workloads: what the demonstration and the benchmarks replay, made of shipped traces.

Forecasters may have been trained on the first 70 % of a trace, so only what came later is replayed. Each workload is a
job trace with inference requests laid over it, on a cluster near the knee of its load curve. The knee is set by offered
load alone (`traces.offered_load`): 0.75 to 0.85 of the accelerator time is asked for on average. What is missing to 1
is what a scheduler cannot hand out: a reserve, the gaps that gangs leave, switching and warming. So there are idle
hours and, where a trace has its peaks, hours in which work queues.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from tuner.errors import ConfigError
from tuner.reference import overlay, readers
from tuner.reference.cluster import PRESETS, ClusterSpec
from tuner.reference.inference import (
    LLAMA2_70B_H100,
    Requests,
    read_azure,
    read_mooncake,
    read_servegen,
    request_trace,
    sample_arrivals,
    with_tokens,
)
from tuner.reference.trace import DAY_SECONDS, Part, Trace
from tuner.reference.traces import REQUEST_SHARE, SHIPPED, describe, offered_load
from tuner.reference.workload import TaskKind

HOUR_SECONDS: Final = 3600.0

HELD_OUT_FROM_SECONDS: Final[Mapping[str, float]] = {
    "itp_jobs.parquet": 42 * DAY_SECONDS,  # 70 % of 60 days.
    "openb_pods.csv.gz": 12_194_827.0,  # 70 % of the pods: nearly all were created in the last quarter of the time.
    "surf_jobs.parquet": 105.25 * DAY_SECONDS,  # 70 % of 124 days is day 87, but forecasters see days 98 to 105.
    "servegen_rates.parquet": 9.8 * DAY_SECONDS,  # 70 % of 14 days.
    "helios_earth_demand.csv.gz": 21.7 * DAY_SECONDS,  # 70 % of 31 days.
}
"""Where the part begins, in each trace's own time, that no forecaster was trained on."""

HELD_OUT_RATIO: Final = 0.7
"""The same for traces of an hour (Azure, Mooncake), as a share of their time."""

SERVEGEN_FROM_SECONDS: Final = 10 * DAY_SECONDS
"""Where request rates begin: the first midnight in the held-out part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedWorkload:
    """A trace and the cluster that it is made for.

    Attributes:
        name: Name.
        trace: The tasks, with origin, changes and assumptions.
        cluster: Where they run.
    """

    name: str
    trace: Trace
    cluster: ClusterSpec

    @property
    def offered_load(self) -> float:
        """Accelerator time asked for over what there is."""
        return offered_load(self.trace, self.cluster)

    def describe(self) -> str:
        """Return what it holds and where it comes from, one fact a line."""
        return f"{self.name} on {self.cluster.name}: " + describe(self.trace, cluster=self.cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Inference requests of a stretch of time.

    Attributes:
        per_second: Requests a second, on average over the stretch.
        tokens: Makes the real requests whose tokens are drawn, one source a model in turn.
    """

    per_second: float
    tokens: Sequence[Callable[[], Requests]]


def held_out(source: str, trace: Trace) -> Trace:
    """Return the part of a shipped job trace that no forecaster was trained on."""
    return overlay.slice_time(trace, HELD_OUT_FROM_SECONDS[source], np.nextafter(trace.span_seconds, np.inf))


def build(name: str, *, seed: int = 1, hours: float = 24.0) -> NamedWorkload:
    """Return a workload.

    Args:
        name: One of `NAMES`.
        seed: Seed of arrivals, tokens and all that is assumed; jobs are the same for every seed.
        hours: How much of it, from the start; over 0 to 24.

    Raises:
        ConfigError: There is no workload of that name, or `hours` is out of range.
    """
    if name not in _RECIPES:
        raise ConfigError(f"workload is {name!r}, must be one of {', '.join(NAMES)}")
    if not 0 < hours <= 24:
        raise ConfigError(f"hours is {hours}, must be over 0 to 24")
    make, cluster = _RECIPES[name]
    trace = make(cluster.zones, seed)
    if hours < 24:
        trace = overlay.slice_time(trace, 0.0, hours * HOUR_SECONDS)
    return NamedWorkload(name=name, trace=trace, cluster=cluster)


def _itp(cluster: str, demand: Demand, zones: int, seed: int) -> Trace:
    jobs = held_out("itp_jobs.parquet", readers.read_itp(SHIPPED / "itp_jobs.parquet", cluster=cluster))
    return overlay.overlay(
        _jobs(jobs, 24, zones, seed), _jobs(_cpu_pods(), 24, zones, seed + 1), _requests(demand, 24, zones, seed)
    )


def _openb(demand: Demand, zones: int, seed: int) -> Trace:
    return overlay.overlay(_jobs(overlay.fold(_pods(), 4), 24, zones, seed), _requests(demand, 24, zones, seed))


def _surf(first: int, last: int, demand: Demand, zones: int, seed: int) -> Trace:
    return overlay.overlay(_jobs(_surf_days(first, last), 24, zones, seed), _requests(demand, 24, zones, seed))


def _edge(demand: Demand, zones: int, seed: int) -> Trace:
    """Return requests, and what prepares data for them: no training."""
    return overlay.overlay(_jobs(_cpu_pods(), 24, zones, seed), _requests(demand, 24, zones, seed))


def _joined(demands: Sequence[Demand], zones: int, seed: int) -> Trace:
    """Return three unlike thirds: long steady jobs, bursts of short ones, and shares with much inference."""
    helios = held_out("helios_earth_demand.csv.gz", readers.read_helios_demand(SHIPPED / "helios_earth_demand.csv.gz"))
    thirds = (overlay.scale_rate(helios, 0.2, seed=seed), _surf_days(108, 110), overlay.fold(_pods(), 8))
    return overlay.join(
        *(
            overlay.overlay(_jobs(third, 8, zones, seed + index), _requests(demand, 8, zones, seed, skip=8 * index))
            for index, (third, demand) in enumerate(zip(thirds, demands, strict=True))
        )
    )


def _pods() -> Trace:
    return held_out("openb_pods.csv.gz", readers.read_openb(SHIPPED / "openb_pods.csv.gz"))


def _cpu_pods() -> Trace:
    pods = _pods()
    return overlay.select(pods, pods.workload.kind == TaskKind.PREPROCESSING, note="of openb only pods without GPUs")


def _surf_days(first: int, last: int) -> Trace:
    return overlay.slice_time(readers.read_surf(SHIPPED / "surf_jobs.parquet"), first * DAY_SECONDS, last * DAY_SECONDS)


def _jobs(trace: Trace, hours: float, zones: int, seed: int) -> Trace:
    """Return a job trace compressed to so many hours, with what it does not tell assumed."""
    lapse = overlay.compress_time(trace, trace.span_seconds / (hours * HOUR_SECONDS))
    return overlay.assume(lapse, overlay.Assumptions(zones=zones), seed=seed)


def _requests(demand: Demand, hours: float, zones: int, seed: int, *, skip: float = 0.0) -> Trace:
    """Return inference requests: arrivals from real rates in real time, tokens of real requests.

    The smallest clients are taken until they send enough; each is answered by a model of its own (assumption).
    """
    start, length = SERVEGEN_FROM_SECONDS + skip * HOUR_SECONDS, hours * HOUR_SECONDS
    wanted = demand.per_second * length
    rates = read_servegen(SHIPPED / "servegen_rates.parquet").between(start, start + length).smallest(wanted)
    at_seconds, client = sample_arrivals(rates, seed=seed, scale=wanted / rates.expected())
    model = np.searchsorted(np.array(rates.clients), client)
    requests = with_tokens(at_seconds, model, [source() for source in demand.tokens], seed=seed)
    trace = request_trace("servegen_rates.parquet", requests, service=LLAMA2_70B_H100, share=REQUEST_SHARE)
    part = Part(source="servegen_rates.parquet", from_seconds=start, to_seconds=start + length)
    note = f"requests of {len(rates.clients)} clients, one model each; rates scaled by {wanted / rates.expected():.3f}"
    whole = replace(trace, span_seconds=length, parts=(part,), notes=(*trace.notes, note))
    return overlay.assume(whole, overlay.Assumptions(zones=zones), seed=seed)


def _conversation() -> Requests:
    return read_azure(SHIPPED / "azure_conv.csv.gz").between(HELD_OUT_RATIO, 1.0)


def _code() -> Requests:
    return read_azure(SHIPPED / "azure_code.csv.gz").between(HELD_OUT_RATIO, 1.0)


def _mooncake() -> Requests:
    return read_mooncake(SHIPPED / "mooncake_conversation.csv.gz").between(HELD_OUT_RATIO, 1.0)


def _azure(per_second: float) -> Demand:
    return Demand(per_second=per_second, tokens=(_conversation, _code))


_Recipe = tuple[Callable[[int, int], Trace], ClusterSpec]

_RECIPES: Final[Mapping[str, _Recipe]] = {
    "demo": (partial(_itp, "cluster04", _azure(5.5)), PRESETS["reference"].sized(70)),
    "itp02": (partial(_itp, "cluster02", _azure(3.0)), PRESETS["demo"].sized(20)),
    "itp07": (partial(_itp, "cluster07", _azure(4.0)), PRESETS["reference"].sized(44)),
    "openb": (partial(_openb, _azure(3.0)), PRESETS["demo"].sized(9)),
    "surf": (partial(_surf, 116, 122, _azure(3.0)), PRESETS["demo"].sized(25)),
    "joined": (
        partial(_joined, (_azure(1.0), _azure(3.0), Demand(per_second=6.0, tokens=(_conversation, _code, _mooncake)))),
        PRESETS["demo"].sized(19),
    ),
    "multicloud": (partial(_itp, "cluster03", _azure(6.0)), PRESETS["multicloud"]),
    "edge": (partial(_edge, _azure(3.0)), PRESETS["edge"].sized(10)),
    "hpc": (partial(_surf, 106, 123, _azure(1.0)), PRESETS["hpc"].sized(21)),
}
"""How each workload is made, and where it runs; sizes follow from the load (see above)."""

NAMES: Final[tuple[str, ...]] = tuple(_RECIPES)
"""Names of all workloads; the first is the demonstration's."""

BENCH_NAMES: Final[tuple[str, ...]] = NAMES[1:]
"""Names of the workloads of the benchmarks."""
