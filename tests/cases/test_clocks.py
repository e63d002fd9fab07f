"""What clocks did to others: a clock that is set back stops nothing, and what comes late is done late."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tests.cases.front import EAGER
from tests.loop.harness import simulation
from tests.support.policies import policy_of
from tuner.daemon import Daemon

pytestmark = pytest.mark.timeout(120)

WAIT_SECONDS = 20.0
BACK = timedelta(seconds=120)


class Clock:
    """The clocks of a machine: the one on the wall can be set, the other cannot.

    Attributes:
        set_back: How far the clock on the wall is behind the true time.
        skipped_seconds: How much time has passed beyond what really has.
    """

    def __init__(self) -> None:
        self.set_back = timedelta(0)
        self.skipped_seconds = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.skipped_seconds

    def wall(self) -> float:
        return time.time() + self.skipped_seconds - self.set_back.total_seconds()

    def now(self, zone: Any = None) -> datetime:
        return datetime.now(zone) + timedelta(seconds=self.skipped_seconds) - self.set_back


class Loop:
    """Stands in for the parts of the loop, and counts."""

    def __init__(self) -> None:
        self.metrics = SimpleNamespace(registry=CollectorRegistry())
        self.cycle = SimpleNamespace(run=self._run)
        self.guard = SimpleNamespace(tick=lambda **_: self.ticks.append(1))
        self.forecasting = SimpleNamespace(refit=lambda: None, retrain=lambda **_: "waiting", close=lambda: None)
        self.people = SimpleNamespace(prepare=lambda: None)
        self.cycles: list[float] = []
        self.ticks: list[int] = []
        self.pruned: list[float] = []
        self.journal = SimpleNamespace(prune=self.pruned.append)
        self.gate = threading.Event()
        self.gate.set()

    def warm_up(self) -> None:
        """Nothing is to be compiled."""

    def close(self) -> None:
        """Nothing is open."""

    def _run(self, *, at_seconds: float, quiet: bool) -> Any:
        del quiet
        self.cycles.append(at_seconds)
        assert self.gate.wait(WAIT_SECONDS)
        return SimpleNamespace(observation=object())


@contextmanager
def running(loop: Loop, clock: Clock, *, period_seconds: float) -> Iterator[Daemon]:
    policy = policy_of(
        {}, cycle={"period_seconds": period_seconds}, guard={"period_seconds": 0.5}, web={"listen": "127.0.0.1:0"}
    )
    daemon = Daemon(policy, loop, now=clock.wall, monotonic=clock.monotonic)  # type: ignore[arg-type]
    try:
        daemon.start()
        yield daemon
    finally:
        loop.gate.set()
        daemon.stop()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def set_the_wall_clock(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Let the scheduler of jobs and the daemon see that clock."""

    class Shown(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return clock.now(tz)

    for module in ("apscheduler.schedulers.base", "apscheduler.triggers.interval", "apscheduler.executors.base"):
        monkeypatch.setattr(f"{module}.datetime", Shown)
    monkeypatch.setattr("tuner.daemon.datetime", Shown)


def test_a_wall_clock_that_is_set_back_stops_neither_cycles_nor_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """agronholm/apscheduler#351: the clock was set back by two minutes, and for two minutes nothing ran."""
    loop, clock = Loop(), Clock()
    set_the_wall_clock(monkeypatch, clock)
    with running(loop, clock, period_seconds=30.0):
        until(lambda: len(loop.cycles) == 1)
        clock.set_back = BACK
        # The next cycle is now 150 s away by the clock on the wall; 40 s pass.
        clock.skipped_seconds += 40.0
        ticked = len(loop.ticks)
        until(lambda: len(loop.cycles) == 2)
        until(lambda: len(loop.ticks) >= ticked + 2)
        clock.skipped_seconds += 40.0
        until(lambda: len(loop.cycles) == 3)

    assert loop.cycles[1] < loop.cycles[0]  # It runs at the time that the machine shows.


def test_what_was_blocked_past_its_time_runs_late_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """agronholm/apscheduler#296, #182: a job that came late by more than a second was dropped."""
    loop, clock = Loop(), Clock()
    loop.gate.clear()
    set_the_wall_clock(monkeypatch, clock)
    with running(loop, clock, period_seconds=30.0) as daemon:
        until(lambda: len(loop.cycles) == 1)
        clock.skipped_seconds += 100.0  # Three more are due meanwhile.
        daemon._scheduler.modify_job("prune", next_run_time=clock.now(UTC) - timedelta(seconds=90))
        loop.gate.set()
        until(lambda: len(loop.cycles) == 2 and len(loop.pruned) == 1)
        daemon.guard()

        assert len(loop.cycles) == 2


def test_cycles_go_on_at_a_time_that_lies_before_the_last_one(tmp_path: Path) -> None:
    """agronholm/apscheduler#351: what the loop itself makes of a clock that was set back."""
    with simulation(tmp_path, cycle=EAGER) as world:
        world.cycles(3)
        back = world.parts.cycle.run(at_seconds=world.now - 120.0)
        after = world.cycles(2)

    assert back.failure is None
    assert [record.failure for record in after] == [None, None]
