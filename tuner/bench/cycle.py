"""`clocktuner bench cycle`: what one whole tuning cycle costs, by the size of the cluster.

A cycle observes, forecasts, searches, judges, applies and records, against a real Prometheus that holds the series of
so many nodes (`tuner.bench.fleet`), one minute after the other. Every cycle searches around the middle of the ranges:
what the cycle before remembers and has set is wiped, or the loop would hold, or watch its last change, most of the
time. The first cycle reads the history and is told apart.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Self

import numpy as np

from tuner import assets, logs, wiring
from tuner.apply.http import HttpActuator
from tuner.bench.fleet import MINUTE_SECONDS, RUN_LABEL, WORKLOAD
from tuner.bench.results import Results
from tuner.cycle import Cycle
from tuner.demo.prometheus_server import prometheus_server
from tuner.demo.world import START_AT_SECONDS
from tuner.errors import ConfigError, PermanentError, SourceUnavailable
from tuner.memory import STATE_NAME, Memory
from tuner.observe.meter import MAX_QUERIES
from tuner.observe.observer import NODE_COLUMNS, Observer
from tuner.settings.loading import load_policy
from tuner.settings.model import Policy
from tuner.values.stages import CycleRecord

GOAL_SECONDS: Final[Mapping[int, float]] = {100: 0.42, 1_000: 1.5, 10_000: 10.0}
"""Median time of a cycle that should not be exceeded, by nodes; other sizes have no goal."""
GOAL_MIB: Final[Mapping[int, float]] = {10_000: 1_024.0}
"""The same for the memory of the process."""
LEAST_CANDIDATES: Final = 100
"""Candidates that a search must score for its cycle to count."""

SHORT_MINUTES: Final = NODE_COLUMNS + 15
"""Length of the short history: what is kept a node, and then some."""
LONG_MINUTES: Final = 480
"""Length of the long one: eight hours."""
NODE_SAMPLES: Final = 5_000_000
"""Samples that the long history of the nodes may have: more take minutes to write and are never read."""

CYCLES: Final = 31
"""Cycles that are measured: two windows of forecasts close among them."""
QUICK_CYCLES: Final = 5
OBSERVATIONS: Final = 3
"""Observations over the short history that are measured, after the first."""
TIMEOUT_SECONDS: Final = 30.0
"""Deadline of a query: on a busy machine a slow answer should make a cycle long, and not a cycle without data."""
REFIT_EVERY: Final = 5
"""Cycles between two fits of the statistical models, which the daemon makes beside its cycles."""
SEED: Final = 1


@dataclass(frozen=True, slots=True)
class Spent:
    """Time on the wall, and of the processors: of this process and of Prometheus."""

    seconds: float
    cpu_seconds: float
    source_cpu_seconds: float

    @classmethod
    def now(cls, source_pid: int) -> Self:
        """Return the clocks as they stand."""
        return cls(time.perf_counter(), time.process_time(), cpu_seconds_of(source_pid))

    def since(self, start: "Spent") -> "Spent":
        """Return what was spent since an earlier reading."""
        return Spent(
            self.seconds - start.seconds,
            self.cpu_seconds - start.cpu_seconds,
            self.source_cpu_seconds - start.source_cpu_seconds,
        )


@dataclass(slots=True)
class Measured:
    """What the cycles took.

    Attributes:
        seconds: Time of each cycle.
        cpu_seconds: Processor time of each cycle in this process: unlike the first, it does not grow with what other
            programs take of the machine.
        source_cpu_seconds: The same of Prometheus.
        stages: Time of each stage, by its name, one a cycle that had it.
        queries: Requests of each cycle to Prometheus.
        bytes_read: Bytes of its answers.
        candidates: Candidates that its search scored.
        changes: Cycles that changed a setting.
        rungs: Rungs of the forecasts.
    """

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    source_cpu_seconds: list[float] = field(default_factory=list)
    stages: dict[str, list[float]] = field(default_factory=dict)
    queries: list[int] = field(default_factory=list)
    bytes_read: list[int] = field(default_factory=list)
    candidates: list[int] = field(default_factory=list)
    changes: int = 0
    rungs: set[str] = field(default_factory=set)

    def add(self, record: CycleRecord, observer: Observer, spent: "Spent") -> None:
        """Take in a cycle.

        Raises:
            PermanentError: It failed or did not search enough, so that its time says nothing.
        """
        if record.failure is not None or record.proposal is None or record.proposal.trials < LEAST_CANDIDATES:
            raise PermanentError(f"cycle {record.cycle_id} was no whole cycle: {record.decision}: {record.reason}")
        self.seconds.append(spent.seconds)
        self.cpu_seconds.append(spent.cpu_seconds)
        self.source_cpu_seconds.append(spent.source_cpu_seconds)
        for stage, seconds in record.stage_seconds.items():
            self.stages.setdefault(stage, []).append(seconds)
        self.queries.append(observer.last_queries)
        self.bytes_read.append(observer.last_bytes)
        self.candidates.append(record.proposal.trials)
        self.changes += record.receipt is not None and record.receipt.applied
        self.rungs |= set() if record.forecast is None else {record.forecast.rung}


class FleetProcess:
    """The cluster in its own process; see `tuner.bench.fleet`."""

    def __init__(self, child: "subprocess.Popen[str]") -> None:
        """Wait until it has recorded its series.

        Raises:
            PermanentError: It ended before.
        """
        self._child = child
        hello = self._hear()
        self.url = str(hello["url"])
        self.series = int(hello["series"])

    def write(self, *, until: int, nodes_from: int = 0) -> int:
        """Have it write its series up to a minute, left out; return how many samples the store has taken."""
        stdin = _pipe(self._child.stdin)
        stdin.write(json.dumps({"until": until, "nodes_from": nodes_from}, allow_nan=False) + "\n")
        stdin.flush()
        return int(self._hear()["samples"])

    def _hear(self) -> Mapping[str, Any]:
        line = _pipe(self._child.stdout).readline()
        if not line:
            raise PermanentError("the process that plays the cluster ended; what it said stands above")
        answer: Mapping[str, Any] = json.loads(line)
        return answer


def run(*, nodes: int, quick: bool) -> Results:
    """Measure cycles for a cluster of so many nodes.

    Args:
        nodes: Nodes whose series Prometheus holds.
        quick: Fewer cycles: for a first look.

    Raises:
        ConfigError: There is no Prometheus on this machine.
        PermanentError: A cycle failed.
    """
    logs.configure(level="error")
    cycles = QUICK_CYCLES if quick else CYCLES
    minutes = LONG_MINUTES + 1 + cycles
    setting: dict[str, object] = {"nodes": nodes, "cycles": cycles, "workload": WORKLOAD, "quick": quick, "seed": SEED}
    results = Results("cycle", setting=setting)
    with tempfile.TemporaryDirectory(prefix="clocktuner-bench-") as folder, prometheus_server() as server:
        if server is None:
            raise ConfigError("bench cycle needs a real Prometheus; install it (Debian: apt install prometheus)")
        with fleet_process(nodes=nodes, minutes=minutes, write_url=server.write_url) as fleet:
            policy = bench_policy(server.url, fleet.url, journal=Path(folder) / "journal.sqlite")
            short = observe_short(policy, fleet)
            fill_long(fleet)
            with open_parts(policy) as parts:
                first, measured = measure(parts, fleet, cycles=cycles, source_pid=server.pid)
            results.setting |= {
                "series": fleet.series,
                "samples": fleet.write(until=0),
                "rungs": sorted(measured.rungs),
            }
    _report(results, measured, nodes=nodes, first=first, short_bytes=short)
    return results


def observe_short(policy: Policy, fleet: FleetProcess) -> int:
    """Return the bytes that an observation reads over the short history, the first one aside."""
    with open_parts(policy) as parts:
        read = []
        for minute in range(SHORT_MINUTES, SHORT_MINUTES + 1 + OBSERVATIONS):
            fleet.write(until=minute + 1)
            parts.observer.observe(cycle_id=0, at_seconds=START_AT_SECONDS + minute * MINUTE_SECONDS)
            read.append(parts.observer.last_bytes)
    return int(np.median(read[1:]))


def fill_long(fleet: FleetProcess) -> None:
    """Write the long history: of the cluster all, of the nodes as much as is affordable."""
    affordable = max(SHORT_MINUTES, NODE_SAMPLES // fleet.series)
    fleet.write(until=LONG_MINUTES, nodes_from=max(0, LONG_MINUTES - affordable))


def measure(parts: wiring.Parts, fleet: FleetProcess, *, cycles: int, source_pid: int) -> tuple[float, Measured]:
    """Run the first cycle and those that count; return the time of the first, and the others."""
    first, measured = Measured(), Measured()
    middle = parts.actuator.read().knobs
    for index in range(1 + cycles):
        minute = LONG_MINUTES + index
        fleet.write(until=minute + 1)
        parts.actuator.write(middle, expected_revision=parts.actuator.read().revision)
        cycle = forgetful(parts)
        start = Spent.now(source_pid)
        record = cycle.run(at_seconds=START_AT_SECONDS + minute * MINUTE_SECONDS)
        spent = Spent.now(source_pid).since(start)
        (measured if index else first).add(record, parts.observer, spent)
        if index % REFIT_EVERY == 0:
            parts.forecasting.refit()
    return first.seconds[0], measured


def forgetful(parts: wiring.Parts) -> Cycle:
    """Return a cycle over the same parts that remembers no search and no change: it will search."""
    parts.journal.save_state(STATE_NAME, Memory().to_json())
    parts.writer.update(knobs=None, changed_at_seconds=math.nan, changes=())
    actuator = parts.actuator
    return Cycle(
        policy=parts.policy,
        observer=parts.observer,
        actuator=actuator,
        writer=parts.writer,
        keeper=parts.keeper,
        people=parts.people,
        forecasting=parts.forecasting,
        calibrator=parts.calibrator,
        journal=parts.journal,
        metrics=parts.metrics,
        hand_over=actuator.send_forecast if isinstance(actuator, HttpActuator) else None,
    )


@contextmanager
def open_parts(policy: Policy) -> Iterator[wiring.Parts]:
    """Put the loop together without deadlines: a search that is cut short would look quick."""
    parts = wiring.assemble(policy, clock=None)
    try:
        parts.warm_up()
        yield parts
    finally:
        parts.close()


@contextmanager
def fleet_process(*, nodes: int, minutes: int, write_url: str) -> Iterator[FleetProcess]:
    """Run the cluster's process for the length of a `with` block; it also ends when this process does."""
    argv = [sys.executable, "-m", "tuner.bench.fleet", "--nodes", str(nodes), "--minutes", str(minutes)]
    argv += ["--seed", str(SEED), "--write-url", write_url]
    child = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True, bufsize=1
    )
    try:
        yield FleetProcess(child)
    finally:
        _pipe(child.stdin).close()
        child.terminate()
        child.wait()
        _pipe(child.stdout).close()


def bench_policy(prometheus_url: str, page_url: str, *, journal: Path) -> Policy:
    """Return the reference policy with these addresses, willing to change settings on the least gain.

    One change may cross the whole range: a part of the usual step, which is all that a twin has earned of which nothing
    was verified yet, holds too few settings for a search of the usual size.
    """
    policy = load_policy(assets.folder("policies") / "reference.yaml")
    slews = {spec.role: {"slew": spec.high - spec.low} for spec in policy.knob_specs()}
    changed = {
        "source": policy.source.model_copy(
            update={"url": prometheus_url, "labels": {"run": RUN_LABEL}, "timeout_seconds": TIMEOUT_SECONDS}
        ),
        "actuator": policy.actuator.model_copy(
            update={"url": f"{page_url}/config", "forecast_url": f"{page_url}/forecast"}
        ),
        "cycle": policy.cycle.model_copy(update={"min_gain_ratio": 0.0, "min_fidelity_ratio": 0.0}),
        "knobs": {role: each.model_copy(update=slews[role]) for role, each in policy.knobs.items()},
        "journal": policy.journal.model_copy(update={"path": str(journal)}),
    }
    return Policy.model_validate(policy.model_copy(update=changed).model_dump())


def cpu_seconds_of(pid: int) -> float:
    """Return the processor time that a process has taken so far. Linux only (proc(5), fields 14 and 15 of stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_memory_mib() -> float:
    """Return the most memory that this process has held at once.

    Linux only. The kernel's mark of this process, not `ru_maxrss`, which begins with that of whoever started it.

    Raises:
        SourceUnavailable: The system does not tell.
    """
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise SourceUnavailable("/proc/self/status does not tell VmHWM")


def _report(results: Results, measured: Measured, *, nodes: int, first: float, short_bytes: int) -> None:
    seconds = np.array(measured.seconds)
    results.add("cycle_p50_seconds", float(np.median(seconds)), at_most=GOAL_SECONDS.get(nodes))
    results.add("cycle_p95_seconds", float(np.quantile(seconds, 0.95)))
    results.add("cycle_first_seconds", first)
    results.add("cycle_cpu_p50_seconds", float(np.median(measured.cpu_seconds)))
    results.add("cycle_prometheus_cpu_p50_seconds", float(np.median(measured.source_cpu_seconds)))
    for stage, spent in measured.stages.items():
        results.add(f"cycle_{stage}_p50_seconds", float(np.median(spent)))
    results.add("queries_per_cycle", max(measured.queries), at_most=MAX_QUERIES)
    long_bytes = float(np.median(measured.bytes_read))
    results.add("bytes_read_per_cycle", long_bytes)
    results.add("bytes_read_per_cycle_short_history", short_bytes)
    results.add("peak_memory_mib", peak_memory_mib(), at_most=GOAL_MIB.get(nodes))
    results.add("candidates_per_cycle", min(measured.candidates), at_least=LEAST_CANDIDATES)
    results.add("changes_per_cycle", measured.changes / len(seconds))


def _pipe(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise ValueError("the process was started without this pipe")
    return stream
