"""The command line as a person meets it: real processes, started and stopped by their own id."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

WAIT_SECONDS = 60.0
"""Longest wait for anything: kernels may have to compile, on a busy machine."""

STOP_SECONDS = 10.0
"""What a process may take to end after SIGTERM."""


def clocktuner(*arguments: str, timeout_seconds: float = WAIT_SECONDS) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end; its output is not wrapped."""
    return subprocess.run(
        [sys.executable, "-m", "tuner", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        env={**os.environ, "COLUMNS": "240"},
        check=False,
    )


def until(condition: Callable[[], Any], *, what: str, alive: Callable[[], bool] = lambda: True) -> Any:
    """Wait for a condition and return what it gives, once that counts as true."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        found = condition()
        if found:
            return found
        assert alive(), f"it ended while waiting for {what}"
        assert time.monotonic() < deadline, f"waited {WAIT_SECONDS:g} s for {what}"
        time.sleep(0.05)


class RunningDaemon:
    """A `clocktuner run` under way, and what it has logged."""

    def __init__(self, child: "subprocess.Popen[bytes]", log: Path) -> None:
        self.child = child
        self._log = log

    def text(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def lines(self) -> list[dict[str, Any]]:
        """Return the whole lines of its log; each must be strict JSON."""
        whole = self.text().rpartition("\n")[0].splitlines()
        return [json.loads(line, parse_constant=_refuse) for line in whole]

    def events(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["event"] == name]

    def wait(self, condition: Callable[[], Any], *, what: str) -> Any:
        try:
            return until(condition, what=what, alive=lambda: self.child.poll() is None)
        except AssertionError as error:
            raise AssertionError(f"{error}; its log:\n{self.text()}") from error

    @property
    def url(self) -> str:
        """Base URL of its page, which it logs."""
        return str(self.wait(lambda: self.events("page_served"), what="its page")[0]["url"])

    def status(self, path: str) -> int:
        return requests.get(self.url + path, timeout=10).status_code

    def cycles(self, count: int, *, decision: str = "") -> list[dict[str, Any]]:
        """Wait for so many cycles, of one decision if so wanted, and return the lines that tell of them."""

        def ended() -> list[dict[str, Any]]:
            found = [line for line in self.events("cycle_ended") if not decision or line["decision"] == decision]
            return found if len(found) >= count else []

        found: list[dict[str, Any]] = self.wait(ended, what=f"{count} cycles {decision}")
        return found

    def terminate(self) -> float:
        """End it by SIGTERM and return how long that took."""
        started = time.monotonic()
        self.child.send_signal(signal.SIGTERM)
        self.child.wait(WAIT_SECONDS)
        return time.monotonic() - started

    def left_behind(self) -> bool:
        """Say whether any process of its group still lives."""
        try:
            os.killpg(self.child.pid, 0)
        except ProcessLookupError:
            return False
        return True


@contextmanager
def running_daemon(*arguments: str, log: Path) -> Iterator[RunningDaemon]:
    """Run `clocktuner run` for the length of a `with` block, in a process group of its own."""
    with log.open("wb") as sink:
        child = subprocess.Popen(
            [sys.executable, "-m", "tuner", "run", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    daemon = RunningDaemon(child, log)
    try:
        yield daemon
    finally:
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(2 * STOP_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
