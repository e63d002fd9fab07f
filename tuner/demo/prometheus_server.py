"""A real Prometheus of our own: empty, on a free loopback port, gone when the `with` block ends.

It has a remote-write receiver and neither scrape jobs nor rules: one live sample at wall time would close the past for
a replay that writes simulated times (samples older than an hour before the newest are refused as out of bounds).
"""

import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

import requests

from tuner.demo.leash import start_leashed, stop
from tuner.errors import SourceUnavailable

RETENTION: Final = "30d"
"""Longer than any replay, whose data must not be deleted under it."""

_READY_SECONDS: Final = 20.0
"""Limit for start-up; 0.06-0.2 s is normal, a starved machine needs a few seconds."""

_ATTEMPTS: Final = 3
"""Ports tried: between finding a free one and its use another process may take it."""


@dataclass(frozen=True, slots=True)
class PrometheusServer:
    """A running server.

    Attributes:
        url: Base URL for queries.
        pid: Process that serves it.
        folder: Scratch folder with its configuration, data and log; deleted with the server.
    """

    url: str
    pid: int
    folder: Path

    @property
    def write_url(self) -> str:
        """Return the URL that takes remote writes."""
        return f"{self.url}/api/v1/write"


def find_prometheus() -> str | None:
    """Return the path of the `prometheus` program; None where the machine has none."""
    return shutil.which("prometheus")


@contextmanager
def prometheus_server(*, config: str = "global: {}\n", flags: Sequence[str] = ()) -> Iterator[PrometheusServer | None]:
    """Run a Prometheus for the length of a `with` block; None where the machine has no such program.

    SIGTERM leaves the block like Ctrl-C does, by an exception, so that server and scratch folder are removed.

    Args:
        config: Text of its configuration file.
        flags: Further flags of the program.

    Raises:
        SourceUnavailable: It did not become ready; the message holds the end of its log.
    """
    program = find_prometheus()
    if program is None:
        yield None
        return
    with sigterm_raises(), tempfile.TemporaryDirectory(prefix="clocktuner-prometheus-") as name:
        folder = Path(name)
        child, url = _start([program, *flags], folder=folder, config=config)
        try:
            yield PrometheusServer(url=url, pid=child.pid, folder=folder)
        finally:
            stop(child)


def _start(command: Sequence[str], *, folder: Path, config: str) -> tuple[subprocess.Popen[bytes], str]:
    (folder / "prometheus.yml").write_text(config)
    for _ in range(_ATTEMPTS):
        address = f"127.0.0.1:{free_port()}"
        argv = (
            *command,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--storage.tsdb.retention.time={RETENTION}",
            f"--web.listen-address={address}",
            "--web.enable-remote-write-receiver",
            "--log.level=warn",
        )
        child = start_leashed(argv, log=folder / "prometheus.log")
        try:
            if wait_until_ready(f"http://{address}/-/ready", child=child):
                return child, f"http://{address}"
        except BaseException:
            stop(child)
            raise
        stop(child)
    tail = (folder / "prometheus.log").read_text(errors="replace")[-2000:]
    raise SourceUnavailable(f"{command[0]} did not become ready within {_READY_SECONDS:g} s; end of its log: {tail}")


def wait_until_ready(url: str, *, child: subprocess.Popen[bytes], limit_seconds: float = _READY_SECONDS) -> bool:
    """Wait until a URL answers 200; False where the child ends or time runs out first."""
    end = time.monotonic() + limit_seconds
    while child.poll() is None and time.monotonic() < end:
        try:
            if requests.get(url, timeout=1.0).status_code == requests.codes.ok:
                return True
        except requests.RequestException:
            pass
        time.sleep(0.02)
    return False


def free_port() -> int:
    """Return a loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Turn SIGTERM into `SystemExit` inside the block, unless the program has a handler of its own."""
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not ours:
        yield
        return
    signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
