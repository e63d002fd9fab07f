"""`clocktuner bench guard`: what a guard tick costs, and how late one comes while whole tuning cycles run beside it.

The store is that of `bench cycle`. First it ticks alone, every five seconds of the recorded time. Then it ticks
once a second in a thread of its own, as in the daemon, while the main thread runs one cycle after the other: what the
cycle does not give way for shows as a tick that begins late.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from tuner import logs, wiring
from tuner.bench.cycle import (
    REFIT_EVERY,
    SEED,
    SHORT_MINUTES,
    FleetProcess,
    Measured,
    Spent,
    bench_policy,
    cpu_seconds_of,
    fleet_process,
    forgetful,
    open_parts,
)
from tuner.bench.fleet import MINUTE_SECONDS, WORKLOAD
from tuner.bench.results import Results
from tuner.demo.prometheus_server import prometheus_server
from tuner.demo.world import START_AT_SECONDS
from tuner.errors import ConfigError, PermanentError
from tuner.observe.glance import GUARDED
from tuner.settings.model import Policy
from tuner.ticker import Ticker

GOAL_SECONDS: Final = 0.1
"""Median time of a tick that should not be exceeded."""
GOAL_DELAY_SECONDS: Final = 1.0
"""How much later than planned a tick may begin."""

WINDOW_SECONDS: Final = 300.0
"""Window of the guard. The store has a sample a minute, so that it holds as many as a minute holds of scrapes that are
a quarter of one apart."""
PERIOD_SECONDS: Final = 1.0
"""Distance of the ticks beside the cycles: five times as many as by default."""
STEP_SECONDS: Final = 5.0
"""The same on the recorded clock while the guard looks alone."""

TICKS: Final = 300
QUICK_TICKS: Final = 60
CYCLES: Final = 31
"""Cycles beside which it ticks: two windows of forecasts close among them."""
QUICK_CYCLES: Final = 5
STOP_WITHIN_SECONDS: Final = 30.0

Tick = Callable[[float], object]
"""One tick of the guard at a time, Unix seconds."""


@dataclass(slots=True)
class Ticked:
    """What ticks took.

    Attributes:
        seconds: Time of each.
        delays_seconds: How much later each began than planned: than its due time, or than a period after the one
            before, so that a tick that was itself held up counts as well.
        queries: Requests of each reading.
        bytes_read: Bytes of its answers.
        whole: Whether it asked for all metrics, and carried none over.
    """

    seconds: list[float] = field(default_factory=list)
    delays_seconds: list[float] = field(default_factory=list)
    queries: list[int] = field(default_factory=list)
    bytes_read: list[int] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)


class Alongside:
    """Ticks in a thread of its own, and keeps count.

    Attributes:
        at_seconds: The time that ticks are told, Unix seconds.
        ticked: What they took.
        failure: What the first tick that failed raised.
    """

    def __init__(self, tick: Tick, *, at_seconds: float, period_seconds: float = PERIOD_SECONDS) -> None:
        self.at_seconds = at_seconds
        self.ticked: Final = Ticked()
        self.failure: Exception | None = None
        self._tick = tick
        self._period = period_seconds
        self._began: float | None = None
        self._ticker = Ticker("guard", period_seconds, self._run)

    @contextmanager
    def ticking(self) -> Iterator[None]:
        """Tick for the length of a `with` block.

        Raises:
            PermanentError: A tick failed or did not end, so that the others say nothing.
        """
        self._ticker.start()
        try:
            yield
        finally:
            ended = self._ticker.stop(within_seconds=STOP_WITHIN_SECONDS)
        if self.failure is not None or not ended:
            raise PermanentError(f"a tick of the guard failed: {self.failure or 'it does not end'}") from self.failure

    def _run(self, late_seconds: float) -> None:
        began = time.perf_counter()
        if self._began is not None:
            late_seconds = max(late_seconds, began - self._began - self._period)
        self._began = began
        try:
            self._tick(self.at_seconds)
        except Exception as error:  # noqa: BLE001 - It is raised in the thread that waits.
            self.failure = self.failure or error
        self.ticked.seconds.append(time.perf_counter() - began)
        self.ticked.delays_seconds.append(late_seconds)


def run(*, nodes: int, quick: bool) -> Results:
    """Measure the guard for a cluster of so many nodes.

    Args:
        nodes: Nodes whose series Prometheus holds.
        quick: Fewer ticks and cycles: for a first look.

    Raises:
        ConfigError: There is no Prometheus on this machine.
        PermanentError: A tick or a cycle failed.
    """
    logs.configure(level="error")
    cycles, ticks = (QUICK_CYCLES, QUICK_TICKS) if quick else (CYCLES, TICKS)
    minutes = SHORT_MINUTES + 1 + cycles
    setting: dict[str, object] = {"nodes": nodes, "ticks": ticks, "cycles": cycles, "workload": WORKLOAD, "seed": SEED}
    results = Results("guard", setting={**setting, "window_seconds": WINDOW_SECONDS, "quick": quick})
    with tempfile.TemporaryDirectory(prefix="clocktuner-bench-") as folder, prometheus_server() as server:
        if server is None:
            raise ConfigError("bench guard needs a real Prometheus; install it (Debian: apt install prometheus)")
        with fleet_process(nodes=nodes, minutes=minutes, write_url=server.write_url) as fleet:
            fleet.write(until=minutes)
            policy = guarded(bench_policy(server.url, fleet.url, journal=Path(folder) / "journal.sqlite"))
            before = cpu_seconds_of(server.pid)
            with open_parts(policy) as parts:
                alone = tick_alone(parts, ticks=ticks)
                store_seconds = (cpu_seconds_of(server.pid) - before) / ticks
                beside, measured = tick_beside(parts, tick_of(parts), fleet, cycles=cycles, source_pid=server.pid)
            results.setting["series"] = fleet.series
    _report(results, alone, beside, measured, store_seconds=store_seconds)
    return results


def guarded(policy: Policy) -> Policy:
    """Return a policy whose guard looks at the recorded series."""
    guard = policy.guard.model_copy(update={"window_seconds": WINDOW_SECONDS})
    return policy.model_copy(update={"guard": guard})


def tick_of(parts: wiring.Parts) -> Tick:
    """Return what a tick does: all of it, orders, metrics, settings, breakers and the tuner's own metrics."""

    def tick(at_seconds: float) -> None:
        parts.guard.tick(at_seconds=at_seconds)
        problems = parts.guard.glance.last_problems
        if problems:
            raise PermanentError(f"the guard did not see everything: {problems[0].metric}: {problems[0].detail}")

    return tick


def tick_alone(parts: wiring.Parts, *, ticks: int) -> Ticked:
    """Tick so many times, with nothing beside; the first tick, which connects, does not count."""
    tick, ticked = tick_of(parts), Ticked()
    end = START_AT_SECONDS + SHORT_MINUTES * MINUTE_SECONDS
    tick(end - ticks * STEP_SECONDS)
    for index in range(1, ticks + 1):
        started = time.perf_counter()
        tick(end + (index - ticks) * STEP_SECONDS)
        ticked.seconds.append(time.perf_counter() - started)
        ticked.queries.append(parts.guard.glance.last_queries)
        ticked.bytes_read.append(parts.guard.glance.last_bytes)
        ticked.whole.append(parts.guard.glance.last_asked == len(GUARDED))
    return ticked


def tick_beside(
    parts: wiring.Parts, tick: Tick, fleet: FleetProcess, *, cycles: int, source_pid: int
) -> tuple[Ticked, Measured]:
    """Tick while whole cycles run back to back; returns what the ticks and the cycles took.

    The first cycle, which reads the history, is beside it as well; only its time does not count among the cycles'.
    """
    measured = Measured()
    alongside = Alongside(tick, at_seconds=START_AT_SECONDS + SHORT_MINUTES * MINUTE_SECONDS)
    middle = parts.actuator.read().knobs
    with alongside.ticking():
        for index in range(1 + cycles):
            alongside.at_seconds = START_AT_SECONDS + (SHORT_MINUTES + index) * MINUTE_SECONDS
            parts.actuator.write(middle, expected_revision=parts.actuator.read().revision)
            cycle = forgetful(parts)
            start = Spent.now(source_pid)
            record = cycle.run(at_seconds=alongside.at_seconds)
            spent = Spent.now(source_pid).since(start)
            (measured if index else Measured()).add(record, parts.observer, spent)
            if index % REFIT_EVERY == 0:
                parts.forecasting.refit()
    return alongside.ticked, measured


def _report(results: Results, alone: Ticked, beside: Ticked, measured: Measured, *, store_seconds: float) -> None:
    results.add("guard_p50_seconds", float(np.median(alone.seconds)), at_most=GOAL_SECONDS)
    results.add("guard_p95_seconds", float(np.quantile(alone.seconds, 0.95)))
    whole = [seconds for seconds, all_asked in zip(alone.seconds, alone.whole, strict=True) if all_asked]
    results.add("guard_whole_p50_seconds", float(np.median(whole)))
    results.add("guard_whole_ratio", len(whole) / len(alone.seconds))
    results.add("guard_prometheus_cpu_mean_seconds", store_seconds)
    results.add("guard_queries_per_tick", max(alone.queries), at_most=1)
    results.add("guard_bytes_per_tick", float(np.median(alone.bytes_read)))
    results.add("guard_metrics", len(GUARDED))
    results.add("guard_delay_max_seconds", max(beside.delays_seconds), at_most=GOAL_DELAY_SECONDS)
    results.add("guard_delay_p95_seconds", float(np.quantile(beside.delays_seconds, 0.95)))
    results.add("guard_beside_p50_seconds", float(np.median(beside.seconds)))
    results.add("guard_beside_max_seconds", max(beside.seconds))
    results.add("guard_ticks_beside", len(beside.seconds))
    results.add("cycle_beside_p50_seconds", float(np.median(measured.seconds)))
