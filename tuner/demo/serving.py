"""`clocktuner reference`: the reference scheduler in real time, for a Prometheus to scrape and a tuner to set."""

import math
import threading
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console

from tuner.errors import TraceError
from tuner.reference import overlay, traces, workloads
from tuner.reference.cluster import PRESETS, ClusterSpec
from tuner.reference.server import serve
from tuner.reference.settings import ClockSettings
from tuner.reference.trace import Trace
from tuner.reference.workload import TaskKind

OFFERED_LOAD: Final = 0.8
"""Share of a cluster that a trace of one's own asks for: near the knee, where settings matter."""

_SCRAPE_CONFIG: Final = """\
scrape_configs:
  - job_name: reference
    scrape_interval: 5s
    static_configs:
      - targets: ["{target}"]
        labels: {{cluster: reference}}"""
"""What a Prometheus needs: the scheduler does not know in which cluster it is, and the policy asks for the label."""


def serve_reference(
    *,
    trace: Path | None,
    trace_format: str,
    listen: str,
    speed: float,
    seed: int,
    console: Console | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Serve the reference scheduler until SIGINT or SIGTERM, and say what it replays and how to watch it.

    Args:
        trace: File to replay; the demonstration's workload where absent.
        trace_format: One of `traces.FORMATS`; of no account without a file.
        listen: `HOST:PORT`; port 0 picks a free one.
        speed: Simulated seconds a second.
        seed: Seed of what the trace does not tell, and of the scheduler's constants.
        console: Where to print; standard output where absent.
        stop: Ends it when set, instead of the signals.

    Raises:
        TraceError: The file cannot be read, or the format is unknown.
        ConfigError: The address cannot be used.
    """
    out = console or Console(soft_wrap=True)
    replayed, cluster = choose(trace, trace_format=trace_format, seed=seed)
    out.print(traces.describe(replayed, cluster=cluster), highlight=False, markup=False)

    def ready(url: str) -> None:
        out.print(introduction(url, cluster=cluster, speed=speed), highlight=False, markup=False)

    serve(
        replayed,
        cluster,
        settings=ClockSettings(),
        seed=seed,
        listen=listen,
        speed=speed,
        ready=ready,
        stop=stop,
    )


def choose(path: Path | None, *, trace_format: str, seed: int) -> tuple[Trace, ClusterSpec]:
    """Return what to replay, and where it runs.

    Raises:
        TraceError: The file cannot be read, or the format is unknown.
    """
    if path is None:
        demo = workloads.build("demo", seed=seed)
        return demo.trace, demo.cluster
    read = traces.read_trace(path, trace_format=trace_format, seed=seed)
    cluster = sized_for(read)
    return overlay.assume(read, overlay.Assumptions(zones=cluster.zones), seed=seed), cluster


def sized_for(trace: Trace) -> ClusterSpec:
    """Return a cluster of which a trace asks for `OFFERED_LOAD`, on accelerators or on CPUs, and that holds its tasks.

    Raises:
        TraceError: All tasks are submitted at once, so that there is no load to speak of.
    """
    if not trace.span_seconds > 0:
        raise TraceError("all tasks are submitted at one time; give a trace that lasts")
    work, kind = trace.workload, PRESETS["demo"]
    on_cpu = work.service_seconds[work.kind == TaskKind.PREPROCESSING].sum()
    seconds = trace.span_seconds * OFFERED_LOAD
    nodes = (
        work.demand_seconds().sum() / (seconds * kind.gpus_per_node),
        on_cpu / (seconds * kind.cpu_slots_per_node),
        np.ceil(work.gpus.max()) / kind.gpus_per_node,
    )
    return kind.sized(max(1, math.ceil(max(nodes))))


def introduction(url: str, *, cluster: ClusterSpec, speed: float) -> str:
    """Return where the scheduler is served, and what to write into the configuration of a Prometheus."""
    pace = "in real time" if speed == 1 else f"{speed:g} simulated seconds a second"
    target = url.partition("//")[2]
    return (
        f"reference scheduler (simulated): {cluster.nodes} nodes, {cluster.gpus} accelerators, {pace}\n"
        f"{url}/metrics, {url}/config, {url}/forecast; end it with Ctrl-C\n"
        f"To have a Prometheus scrape it, add to its configuration:\n\n{_SCRAPE_CONFIG.format(target=target)}"
    )
