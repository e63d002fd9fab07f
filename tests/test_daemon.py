"""The daemon with a made-up loop: what it promises of health, overlap, trouble and its end."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
import requests
import structlog
from prometheus_client import CollectorRegistry

from tests.support.policies import policy_of
from tuner import daemon as daemon_module
from tuner import logs
from tuner.daemon import Daemon
from tuner.errors import ConfigError, JournalError
from tuner.settings.model import Policy

WAIT_SECONDS = 20.0


class Loop:
    """Stands in for all parts of the loop, and keeps count of what is asked of them."""

    def __init__(self) -> None:
        self.metrics = SimpleNamespace(registry=CollectorRegistry())
        self.cycle = SimpleNamespace(run=self._run)
        self.forecasting = SimpleNamespace(refit=self._refit, retrain=self._retrain, close=self._close_forecasting)
        self.guard = SimpleNamespace(tick=self._tick)
        self.people = SimpleNamespace(prepare=lambda: None)
        self.ticks: list[float] = []
        self.quiet: list[bool] = []
        self.journal = SimpleNamespace(prune=self._prune)
        self.at: list[float] = []
        self.running = 0
        self.most_running = 0
        self.closed = 0
        self.forecasting_closed = 0
        self.pruned_before: list[float] = []
        self.elapsed: list[float] = []
        self.refits = 0
        self.observes = True
        self.trouble: Exception | None = None
        self.warm_up: Callable[[], None] = lambda: None
        self.gate = threading.Event()
        self.gate.set()

    def close(self) -> None:
        self.closed += 1

    def _tick(self, *, at_seconds: float, delay_seconds: float) -> None:
        self.ticks.append(at_seconds)

    def _run(self, *, at_seconds: float, quiet: bool) -> Any:
        self.quiet.append(quiet)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.at.append(at_seconds)
        try:
            self.gate.wait(WAIT_SECONDS)
            if self.trouble is not None:
                raise self.trouble
            return SimpleNamespace(observation=object() if self.observes else None)
        finally:
            self.running -= 1

    def _refit(self) -> None:
        self.refits += 1
        if self.trouble is not None:
            raise self.trouble

    def _retrain(self, *, elapsed_seconds: float) -> str:
        self.elapsed.append(elapsed_seconds)
        return "waiting"

    def _prune(self, before_seconds: float) -> None:
        self.pruned_before.append(before_seconds)

    def _close_forecasting(self) -> None:
        self.forecasting_closed += 1


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


def policy(period: float = 60.0) -> Policy:
    return policy_of({}, cycle={"period_seconds": period}, web={"listen": "127.0.0.1:0"})


def make(loop: Loop, *, period: float = 60.0, **clocks: Callable[[], float]) -> Daemon:
    parts: Any = loop
    return Daemon(policy(period), parts, **clocks)


@contextmanager
def running(loop: Loop, *, period: float = 60.0, **clocks: Callable[[], float]) -> Iterator[Daemon]:
    made = make(loop, period=period, **clocks)
    try:
        made.start()
        yield made
    finally:
        loop.gate.set()
        made.stop()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


@pytest.fixture
def lines() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = StringIO()
    logs.configure(level="debug", stream=stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_the_first_cycle_runs_at_once_at_the_time_of_the_clock() -> None:
    loop = Loop()

    with running(loop, now=lambda: 1_700_000_000.0):
        until(lambda: len(loop.at) == 1)

    assert loop.at == [1_700_000_000.0]


def test_the_page_tells_its_address_and_serves_before_the_kernels_are_compiled() -> None:
    loop, compiling = Loop(), threading.Event()

    def warm_up() -> None:
        compiling.wait(WAIT_SECONDS)

    loop.warm_up = warm_up

    with running(loop) as made:
        answer = requests.get(f"{made.url}/readyz", timeout=5)
        alive = requests.get(f"{made.url}/healthz", timeout=5)
        compiling.set()
        until(lambda: made.health().ready)

    assert answer.status_code == 503
    assert answer.json()["conditions"] == {"kernels_compiled": False, "first_read_complete": False}
    assert alive.status_code == 200


def test_a_free_port_is_told_in_the_log(lines: Callable[[], list[dict[str, Any]]]) -> None:
    with running(Loop()) as made:
        url = made.url

    assert [line["url"] for line in lines() if line["event"] == "page_served"] == [url]
    assert url.startswith("http://127.0.0.1:")
    assert not url.endswith(":0")


def test_it_is_ready_only_after_something_was_read() -> None:
    loop = Loop()
    loop.observes = False

    with running(loop) as made:
        until(lambda: len(loop.at) == 1 and loop.running == 0)
        before = made.health()
        loop.observes = True
        made.cycle()
        after = made.health()

    assert before.conditions == {"kernels_compiled": True, "first_read_complete": False}
    assert after.ready


def test_health_ages_by_the_monotonic_clock_and_recovers_with_the_next_cycle() -> None:
    loop, clock = Loop(), Clock()

    with running(loop, monotonic=clock) as made:
        until(lambda: made.health().ready)
        clock.seconds += 179.0
        almost = made.health()
        clock.seconds += 2.0
        stuck = made.health()
        made.cycle()
        again = made.health()

    assert (almost.seconds_since_cycle, almost.live) == (179.0, True)
    assert (stuck.seconds_since_cycle, stuck.live) == (181.0, False)
    assert (again.seconds_since_cycle, again.live) == (0.0, True)


def test_a_failing_journal_lets_health_age_but_ends_nothing(lines: Callable[[], list[dict[str, Any]]]) -> None:
    loop, clock = Loop(), Clock()
    loop.trouble = JournalError("the disk is full")

    with running(loop, period=1.0, monotonic=clock) as made:
        until(lambda: len(loop.at) >= 2)
        clock.seconds += 4.0
        health = made.health()

    assert not health.live
    failed = [line for line in lines() if line["event"] == "job_failed"]
    assert failed[0]["job"] == "cycle"
    assert "the disk is full" in failed[0]["error"]
    assert "raise self.trouble" in failed[0]["traceback"]


def test_cycles_never_overlap_and_the_skipped_one_is_told(lines: Callable[[], list[dict[str, Any]]]) -> None:
    loop = Loop()
    loop.gate.clear()

    with running(loop, period=1.0):
        until(lambda: any(line["event"] == "job_skipped" for line in lines()))
        loop.gate.set()
        until(lambda: len(loop.at) >= 2)

    assert loop.most_running == 1
    assert next(line["job"] for line in lines() if line["event"] == "job_skipped") == "cycle"


def test_a_cycle_asked_for_while_another_runs_waits_for_it() -> None:
    loop = Loop()
    loop.gate.clear()

    with running(loop) as made:
        until(lambda: loop.running == 1)
        other = threading.Thread(target=made.cycle)
        other.start()
        loop.gate.set()
        other.join(WAIT_SECONDS)

    assert not other.is_alive()
    assert (len(loop.at), loop.most_running) == (2, 1)


@pytest.mark.parametrize("job", ["refit", "retrain", "prune"])
def test_trouble_beside_the_cycles_is_logged_and_ends_nothing(
    job: str, lines: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("no such luck")

    loop = Loop()
    monkeypatch.setattr(loop.journal if job == "prune" else loop.forecasting, job, fail)
    for name in ("_RETRAIN_EVERY_SECONDS", "_PRUNE_EVERY_SECONDS"):
        monkeypatch.setattr(daemon_module, name, 1.0)
    made = make(loop, period=1.0)
    often = made._policy.forecast.model_copy(update={"refit_seconds": 1.0})
    made._policy = made._policy.model_copy(update={"forecast": often})

    try:
        made.start()
        until(lambda: any(line["event"] == "job_failed" for line in lines()))
        cycles = len(loop.at)
        until(lambda: len(loop.at) > cycles)
    finally:
        made.stop()

    assert {line["job"] for line in lines() if line["event"] == "job_failed"} == {job}


def test_fine_tuning_is_told_how_much_time_has_passed() -> None:
    loop, clock = Loop(), Clock()
    made = make(loop, monotonic=clock)

    clock.seconds += 90.0
    made.retrain()
    clock.seconds += 30.0
    made.retrain()

    assert loop.elapsed == [90.0, 30.0]


def test_what_has_passed_its_retention_is_pruned() -> None:
    loop = Loop()
    made = make(loop, now=lambda: 10_000_000.0)

    made.prune()

    assert loop.pruned_before == [10_000_000.0 - 30 * 86_400.0]


def test_stopping_waits_for_the_cycle_under_way_closes_once_and_begins_nothing_more() -> None:
    loop = Loop()
    loop.gate.clear()
    made = make(loop, period=1.0)
    made.start()
    until(lambda: loop.running == 1)
    url = made.url

    threading.Timer(0.05, loop.gate.set).start()
    first, second = made.stop(), made.stop()
    made.cycle()
    made.refit()
    made.retrain()
    made.prune()

    assert (first, second) == (True, True)
    assert (loop.closed, loop.forecasting_closed, len(loop.at), loop.running) == (1, 1, 1, 0)
    assert (loop.refits, loop.elapsed, loop.pruned_before) == (0, [], [])
    with pytest.raises(requests.ConnectionError):
        requests.get(f"{url}/healthz", timeout=5)


def test_a_cycle_that_hangs_is_abandoned_and_the_journal_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_module, "STOP_WITHIN_SECONDS", 0.05)
    loop = Loop()
    loop.gate.clear()
    made = make(loop)
    made.start()
    until(lambda: loop.running == 1)

    ended = made.stop()
    loop.gate.set()
    until(lambda: loop.running == 0)

    assert not ended
    assert loop.closed == 0


def test_stopping_what_never_started_closes_the_parts() -> None:
    loop = Loop()

    assert make(loop).stop()

    assert loop.closed == 1


def test_an_address_in_use_is_an_error_at_the_start() -> None:
    with running(Loop()) as first:
        port = first.url.rpartition(":")[2]
        taken: Any = Loop()
        second = Daemon(policy_of({}, web={"listen": f"127.0.0.1:{port}"}), taken)

        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            second.start()
        second.stop()


def test_kernels_that_do_not_compile_end_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("no compiler")

    loop = Loop()
    loop.warm_up = fail
    monkeypatch.setattr("signal.signal", lambda *_: None)

    with pytest.raises(RuntimeError, match="no compiler"):
        make(loop).run()

    assert (loop.closed, loop.at) == (1, [])


def test_the_guard_ticks_while_a_cycle_takes_its_time() -> None:
    loop = Loop()
    loop.gate.clear()
    parts: Any = loop
    made = Daemon(policy_of({}, guard={"period_seconds": 0.5}, web={"listen": "127.0.0.1:0"}), parts, now=lambda: 5.0)
    try:
        made.start()
        until(lambda: loop.running == 1)
        seen = len(loop.ticks)
        until(lambda: len(loop.ticks) >= seen + 2)
        still_running = loop.running
    finally:
        loop.gate.set()
        made.stop()

    assert still_running == 1
    assert set(loop.ticks) == {5.0}


def test_the_first_cycle_of_a_process_only_looks() -> None:
    loop = Loop()
    made = make(loop)

    made.cycle()
    made.cycle()

    assert loop.quiet == [True, False]


def test_a_cycle_that_waits_for_a_clock_that_was_set_back_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, time_passed = Loop(), [0.0]
    woken: list[str] = []
    with running(loop, monotonic=lambda: time_passed[0]) as made:
        until(lambda: len(loop.at) == 1)
        monkeypatch.setattr(made._scheduler, "modify_job", lambda name, **_: woken.append(name))
        made.guard()
        early = list(woken)
        time_passed[0] = 70.0
        made.guard()

    assert early == []
    assert woken == ["cycle"]


def test_stopping_twice_says_the_same_twice() -> None:
    loop = Loop()
    with running(loop) as made:
        until(lambda: len(loop.at) == 1)

    assert made.stop() is True
