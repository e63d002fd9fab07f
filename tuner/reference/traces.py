"""Traces by format: which there are, how one is recognised, and how a trace is described to people."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from tuner.errors import TraceError
from tuner.reference import readers
from tuner.reference.cluster import ClusterSpec
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
from tuner.reference.tables import read_names
from tuner.reference.trace import Trace
from tuner.reference.workload import TaskKind

SHIPPED: Final = Path(__file__).parent / "shipped"
"""Folder of the traces in the package; its README names origins and licences."""

REQUEST_SHARE: Final = 0.25
"""Part of an accelerator's memory that a request holds: four share one (assumption)."""

MAX_REQUESTS: Final = 5_000_000
"""Most requests that are sampled from one file: about a gigabyte while they are made."""

HEADERS: Final[Mapping[str, frozenset[str]]] = {
    "csv": frozenset(readers.PLAIN_REQUIRED),
    "itp": frozenset({"submission_time", "duration", "num_gpu"}),
    "openb": frozenset({"num_gpu", "gpu_milli", "creation_time", "scheduled_time", "deletion_time"}),
    "helios": frozenset({"submit_time", "duration", "gpu_num"}),
    "helios-demand": frozenset({"vc", "minute", "running_gpu_num", "pending_gpu_num"}),
    "surf": frozenset({"submit_s", "duration_s"}),
    "azure": frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"}),
    "mooncake": frozenset({"timestamp_ms", "input_length", "output_length"}),
    "servegen": frozenset({"client", "t_s", "rate_rps", "cv"}),
}
"""Columns by which a format is recognised; `swf` has none and goes by its suffix."""

FORMATS: Final[tuple[str, ...]] = ("swf", *HEADERS)
"""Formats that can be read."""


def read_trace(path: Path, *, trace_format: str | None = None, cluster: str | None = None, seed: int = 1) -> Trace:
    """Read a trace.

    Args:
        path: A file, which may be packed with gzip or be parquet.
        trace_format: One of `FORMATS`; None to recognise it by suffix or columns.
        cluster: Which cluster of a file that holds several (format `itp`).
        seed: Seed for what is sampled (format `servegen`: arrivals and tokens).

    Raises:
        TraceError: The format is unknown, or the file breaks it; the message names file, line, field and value.
    """
    name = trace_format or detect_format(path)
    if name == "itp":
        return readers.read_itp(path, cluster=cluster)
    if cluster is not None:
        raise TraceError(f"{path}: a cluster can only be chosen in format itp, not in {name}; leave it out")
    if name == "servegen":
        return _sampled_trace(path, seed)
    if name in _REQUEST_READERS:
        return _as_tasks(path.name, _REQUEST_READERS[name](path))
    if name not in _JOB_READERS:
        raise TraceError(f"{path}: format is {name!r}, must be one of {', '.join(FORMATS)}; choose one of them")
    return _JOB_READERS[name](path)


def detect_format(path: Path) -> str:
    """Return the format of a file, by its suffix or its columns.

    Raises:
        TraceError: The file cannot be read, or none fits.
    """
    if ".swf" in path.suffixes:
        return "swf"
    names = set(read_names(path))
    for name, needed in HEADERS.items():
        if needed <= names:
            return name
    raise TraceError(
        f"{path}: its columns ({', '.join(sorted(names))}) belong to no known format; "
        f"say which of {', '.join(FORMATS)} it is"
    )


def describe(trace: Trace, *, cluster: ClusterSpec | None = None) -> str:
    """Return what a trace holds, where it came from and what was assumed, one fact a line.

    Args:
        trace: The trace.
        cluster: Cluster that it is to run on, to tell the load; None leaves the load out.
    """
    work = trace.workload
    lines = [f"{len(work):,} tasks in {trace.span_seconds / 3600:.1f} h"]
    for kind in TaskKind:
        mine = work.kind == kind
        if mine.any():
            low, middle, high = np.quantile(work.service_seconds[mine], (0.05, 0.5, 0.95))
            lines.append(
                f"  {kind.name.lower()}: {mine.sum():,} tasks, run time {low:.3g} / {middle:.3g} / {high:.3g} s "
                f"(5 % / median / 95 %), accelerators {work.gpus[mine].min():g} to {work.gpus[mine].max():g}"
            )
    if cluster is not None:
        lines.append(f"offered load {offered_load(trace, cluster):.2f} of {cluster.gpus} accelerators")
    lines += [f"from {text}" for text in dict.fromkeys(part.describe() for part in trace.parts)]
    return "\n".join([*lines, *trace.notes])


def offered_load(trace: Trace, cluster: ClusterSpec) -> float:
    """Return the accelerator-seconds that are asked for over those there are, while the trace lasts.

    Run times of tasks that share an accelerator count in full: they are times of an accelerator of their own.
    Switching, warming and what gangs leave unused come on top, so that clusters meet their knee below 1.
    """
    return float(trace.workload.demand_seconds().sum() / (trace.span_seconds * cluster.capacity))


def _as_tasks(source: str, requests: Requests) -> Trace:
    return request_trace(source, requests, service=LLAMA2_70B_H100, share=REQUEST_SHARE)


def _sampled_trace(path: Path, seed: int) -> Trace:
    rates = read_servegen(path)
    if rates.expected() > MAX_REQUESTS:
        raise TraceError(
            f"{path}: stands for {rates.expected():,.0f} requests, must be at most {MAX_REQUESTS:,}; "
            "leave out clients or windows"
        )
    at_seconds, client = sample_arrivals(rates, seed=seed)
    tokens = read_azure(SHIPPED / "azure_conv.csv.gz")
    return _as_tasks(path.name, with_tokens(at_seconds, client, [tokens], seed=seed))


_JOB_READERS: Final[Mapping[str, Callable[[Path], Trace]]] = {
    "csv": readers.read_plain,
    "swf": readers.read_swf,
    "openb": readers.read_openb,
    "helios": readers.read_helios,
    "helios-demand": readers.read_helios_demand,
    "surf": readers.read_surf,
}

_REQUEST_READERS: Final[Mapping[str, Callable[[Path], Requests]]] = {"azure": read_azure, "mooncake": read_mooncake}
