"""Readers of job traces: each turns one published format into a `Trace`.

What a format does not tell is left at its default and not invented here; `overlay.assume` does that, with a seed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tuner.errors import TraceError
from tuner.reference.tables import REMEDY, Table, open_text, read_table
from tuner.reference.trace import Trace, make_trace
from tuner.reference.workload import PRIORITY_NAMES, Priority, TaskKind
from tuner.values.context import TASK_CLASSES

SWF_FIELDS: Final = 18
"""Fields a line in the standard workload format, version 2.2 (Feitelson)."""

PRIORITIES: Final[Mapping[str, int]] = {
    word: priority for priority in Priority for word in (PRIORITY_NAMES[priority], str(priority.value))
}
CLASSES: Final[Mapping[str, int]] = {name: index for index, name in enumerate(TASK_CLASSES)}

PLAIN_REQUIRED: Final = ("submit_seconds", "duration_seconds", "gpus")
PLAIN_OPTIONAL: Final = ("priority", "class")

QOS_PRIORITY: Final[Mapping[str, int]] = {
    "LS": Priority.HIGH,
    "Guaranteed": Priority.NORMAL,
    "Burstable": Priority.NORMAL,
    "BE": Priority.LOW,
}
"""Kubernetes and Koordinator quality classes: latency-sensitive work is protected, best effort can wait."""


def read_plain(path: Path) -> Trace:
    """Read the plain format: a CSV or parquet file with `submit_seconds,duration_seconds,gpus[,priority,class]`.

    `priority` is low, normal or high (or 0, 1, 2), `class` preprocessing, training or inference. Without a class, tasks
    without accelerators are preprocessing and all others training.

    Raises:
        TraceError: The file cannot be read, has another column, or a value breaks the format.
    """
    table = read_table(path)
    table.require(*PLAIN_REQUIRED)
    allowed = PLAIN_REQUIRED + PLAIN_OPTIONAL
    for name in table.columns:
        if name not in allowed:
            raise TraceError(
                f"{path}: column {name!r} is unknown, must be one of {', '.join(allowed)}; rename or drop it"
            )
    gpus = _gpus(table, "gpus")
    kind = table.words("class", CLASSES) if "class" in table else _kind(gpus)
    _check_demand(table, gpus, kind)
    told: dict[str, Any] = {"priority": table.words("priority", PRIORITIES)} if "priority" in table else {}
    return make_trace(
        path.name,
        submit_seconds=table.numbers("submit_seconds", low=0),
        service_seconds=table.numbers("duration_seconds", low=0, above=True),
        gpus=gpus,
        kind=kind,
        **told,
    )


def _check_demand(table: Table, gpus: NDArray[np.float64], kind: NDArray[np.int64]) -> None:
    """Refuse accelerators that do not go with the class, while file and line are still known."""
    rules = {
        "0 for preprocessing": (kind == TaskKind.PREPROCESSING) & (gpus > 0),
        "over 0 for training and inference": (kind != TaskKind.PREPROCESSING) & (gpus == 0),
        "at most 1 for inference": (kind == TaskKind.INFERENCE) & (gpus > 1),
    }
    for wanted, broken in rules.items():
        if broken.any():
            raise table.error(int(np.argmax(broken)), "gpus", wanted)


def write_plain(trace: Trace, path: Path) -> None:
    """Write a trace in the plain format, as text that reads back to the same numbers."""
    tasks = trace.workload
    rows = zip(
        tasks.submit_seconds.tolist(),
        tasks.service_seconds.tolist(),
        tasks.gpus.tolist(),
        tasks.priority.tolist(),
        tasks.kind.tolist(),
        strict=True,
    )
    lines = [f"{s!r},{d!r},{g!r},{PRIORITY_NAMES[p]},{TASK_CLASSES[k]}\n" for s, d, g, p, k in rows]
    path.write_text(",".join(PLAIN_REQUIRED + PLAIN_OPTIONAL) + "\n" + "".join(lines), encoding="utf-8")


def read_swf(path: Path, *, processors_per_gpu: float = 1.0) -> Trace:
    """Read the standard workload format of the Parallel Workloads Archive.

    Jobs whose run time or number of processors is unknown (-1) or zero never ran, and are left out. The processors
    allocated count, and where they are unknown those asked for.

    Args:
        path: File, with `;` comments.
        processors_per_gpu: Processors that stand for one accelerator, over 0.

    Raises:
        TraceError: The file cannot be read, a line has fewer than 18 fields, or a value is no number.
    """
    table = _swf_table(path)
    run, allocated = table.numbers("run_time", low=-1), table.numbers("allocated_processors", low=-1)
    processors = np.where(allocated > 0, allocated, table.numbers("requested_processors", low=-1))
    ran = (run > 0) & (processors > 0)
    if not ran.any():
        raise TraceError(f"{path}: no job has a run time and processors; give a trace of jobs that ran")
    return make_trace(
        path.name,
        submit_seconds=table.numbers("submit_time", low=0)[ran],
        service_seconds=run[ran],
        gpus=processors[ran] / processors_per_gpu,
        notes=(
            f"{processors_per_gpu:g} processors stand for one accelerator",
            *_left_out(ran, "without run time or processors"),
        ),
    )


def _swf_table(path: Path) -> Table:
    rows, lines = [], []
    with open_text(path) as file:
        for number, line in enumerate(file, start=1):
            fields = line.split(";", 1)[0].split()
            if not fields:
                continue
            if len(fields) < SWF_FIELDS:
                message = f"{path}: line {number}: has {len(fields)} fields, must have {SWF_FIELDS}; {REMEDY}"
                raise TraceError(message)
            rows.append((fields[1], fields[3], fields[4], fields[7]))
            lines.append(number)
    names = ("submit_time", "run_time", "allocated_processors", "requested_processors")
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    table = Table(path, dict(zip(names, columns, strict=True)), lines)
    table.require(*names)
    return table


def read_itp(path: Path, *, cluster: str | None = None) -> Trace:
    """Read the ITP format: `submission_time,duration,num_gpu`, with `cluster` where several clusters share a file.

    Raises:
        TraceError: The file cannot be read, a value breaks the format, or the file holds several clusters and none, or
            one that it does not hold, was asked for.
    """
    table = read_table(path)
    table.require("submission_time", "duration", "num_gpu")
    if "cluster" in table:
        table = _one_cluster(table, cluster)
    elif cluster is not None:
        raise TraceError(f"{path}: has no column cluster, so {cluster} cannot be chosen; leave the cluster out")
    gpus = _gpus(table, "num_gpu")
    return make_trace(
        path.name if cluster is None else f"{path.name}:{cluster}",
        submit_seconds=table.numbers("submission_time", low=0),
        service_seconds=table.numbers("duration", low=0, above=True),
        gpus=gpus,
        kind=_kind(gpus),
    )


def _one_cluster(table: Table, cluster: str | None) -> Table:
    owners = table.texts("cluster")
    found = sorted(set(owners.tolist()))
    if cluster is None and len(found) == 1:
        return table
    if cluster not in found:
        raise TraceError(f"{table.path}: cluster is {cluster}, must be one of {', '.join(found)}; choose one of them")
    return table.where(owners == cluster)


def read_openb(path: Path) -> Trace:
    """Read the pod list of Alibaba's openb cluster.

    Run time counts from `scheduled_time`; pods that were never scheduled are left out. Pods without GPUs are
    preprocessing, latency-sensitive pods on a share of a GPU inference, all others training (assumption: the trace does
    not tell). Priority follows the quality class.

    Raises:
        TraceError: The file cannot be read or a value breaks the format.
    """
    table = read_table(path)
    table.require("num_gpu", "gpu_milli", "qos", "creation_time", "scheduled_time", "deletion_time")
    scheduled = table.numbers("scheduled_time", low=0, empty=-1.0)
    run = table.numbers("deletion_time", low=0) - scheduled
    count, share = _gpus(table, "num_gpu"), table.numbers("gpu_milli", low=0, high=1000) / 1000.0
    ran = (scheduled >= 0) & (run > 0)
    gpus = np.where(count > 1, count, count * share)
    priority = table.words("qos", QOS_PRIORITY)
    kind = np.where((gpus > 0) & (gpus < 1) & (priority == Priority.HIGH), TaskKind.INFERENCE, _kind(gpus))
    return make_trace(
        path.name,
        submit_seconds=table.numbers("creation_time", low=0)[ran],
        service_seconds=run[ran],
        gpus=gpus[ran],
        kind=kind[ran],
        priority=priority[ran],
        notes=(
            "latency-sensitive pods on a share of a GPU are taken for inference",
            *_left_out(ran, "never scheduled"),
        ),
    )


def read_helios(path: Path) -> Trace:
    """Read a job log in the style of SenseTime Helios: `submit_time,duration,gpu_num`, times as timestamps.

    Jobs without a run time never ran, and are left out; times count from the first submission.

    Raises:
        TraceError: The file cannot be read or a value breaks the format.
    """
    table = read_table(path)
    table.require("submit_time", "duration", "gpu_num")
    submit, run = table.timestamps("submit_time"), table.numbers("duration", low=0, empty=0.0)
    gpus, ran = _gpus(table, "gpu_num"), run > 0
    if not ran.any():
        raise TraceError(f"{path}: no job has a duration; give a trace of jobs that ran")
    return make_trace(
        path.name,
        submit_seconds=submit[ran] - submit.min(),
        service_seconds=run[ran],
        gpus=gpus[ran],
        kind=_kind(gpus[ran]),
        notes=_left_out(ran, "without a run time"),
    )


def read_surf(path: Path) -> Trace:
    """Read jobs of the SURF format: `submit_s,duration_s`; each holds one accelerator (in life a 16-core share).

    Raises:
        TraceError: The file cannot be read or a value breaks the format.
    """
    table = read_table(path)
    table.require("submit_s", "duration_s")
    return make_trace(
        path.name,
        submit_seconds=table.numbers("submit_s", low=0),
        service_seconds=table.numbers("duration_s", low=0, above=True),
        gpus=1.0,
        notes=("a 16-core share of a node stands for one accelerator",),
    )


def read_helios_demand(path: Path) -> Trace:
    """Read Helios occupancy by virtual cluster, and return jobs that ask for just that.

    The file tells GPUs busy and asked for, not jobs: `vc,minute,running_gpu_num,pending_gpu_num`, with a row a minute
    or a row a change. A rise of their sum is a job submitted, a fall ends the oldest jobs of that virtual cluster, in
    parts where it must. So the jobs ask for what was observed; what stands open at the end is left out.

    Raises:
        TraceError: The file cannot be read or a value breaks the format.
    """
    table = read_table(path)
    table.require("vc", "minute", "running_gpu_num", "pending_gpu_num")
    minute = table.numbers("minute", low=0)
    demand = _gpus(table, "running_gpu_num") + _gpus(table, "pending_gpu_num")
    owners = table.texts("vc")
    jobs: list[tuple[float, float, float]] = []
    for owner in sorted(set(owners.tolist())):
        mine = np.flatnonzero(owners == owner)
        mine = mine[np.argsort(minute[mine], kind="stable")]
        jobs += _jobs_of_demand(minute[mine] * 60.0, demand[mine])
    if not jobs:
        raise TraceError(f"{path}: demand never falls, so no job ends; give a longer stretch")
    start, end, gpus = np.array(jobs).T
    return make_trace(
        path.name,
        submit_seconds=start,
        service_seconds=end - start,
        gpus=gpus,
        notes=("jobs are made from the demand of virtual clusters: first in, first out",),
    )


def _jobs_of_demand(at_seconds: NDArray[np.float64], demand: NDArray[np.float64]) -> list[tuple[float, float, float]]:
    """Return (start, end, accelerators) of the jobs behind a demand, first in, first out."""
    open_jobs: list[tuple[float, float]] = []
    jobs = []
    for moment, change in zip(at_seconds.tolist(), np.diff(demand, prepend=0.0).tolist(), strict=True):
        if change > 0:
            open_jobs.append((moment, change))
        falling = -change
        while falling > 0:
            start, gpus = open_jobs.pop(0)
            ended = min(gpus, falling)
            jobs.append((start, moment, ended))
            falling -= ended
            if gpus > ended:
                open_jobs.insert(0, (start, gpus - ended))
    return jobs


def _gpus(table: Table, field: str) -> NDArray[np.float64]:
    return table.numbers(field, low=0)


def _kind(gpus: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return what tasks are where only their accelerators are known: without any they are work for CPUs."""
    return np.where(gpus > 0, TaskKind.TRAINING, TaskKind.PREPROCESSING)


def _left_out(kept: NDArray[np.bool_], why: str) -> tuple[str, ...]:
    count = int((~kept).sum())
    return (f"{count} of {len(kept)} jobs left out: {why}",) if count else ()
