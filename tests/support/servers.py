"""Real servers for tests: on free loopback ports, in scratch folders, stopped by their own process id."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tuner.demo.leash import start_leashed, stop
from tuner.demo.prometheus_server import PrometheusServer, free_port, prometheus_server, wait_until_ready


def require_program(name: str) -> str:
    """Return the path of a program; a missing one skips the test, but fails it in CI."""
    path = shutil.which(name)
    if path is None:
        message = f"{name} is not installed (Debian package of the same name)"
        if os.environ.get("CI", "").lower() in {"1", "true"}:
            pytest.fail(message)
        pytest.skip(message)
    return path


@contextmanager
def running_prometheus(*, config: str = "global: {}\n", flags: Sequence[str] = ()) -> Iterator[PrometheusServer]:
    """Run a real Prometheus that takes remote writes."""
    require_program("prometheus")
    with prometheus_server(config=config, flags=flags) as server:
        assert server is not None
        yield server


@contextmanager
def running_victoria_metrics(folder: Path) -> Iterator[str]:
    """Run a real VictoriaMetrics; yields its base URL, which takes queries and remote writes like Prometheus."""
    program = require_program("victoria-metrics")
    address = f"127.0.0.1:{free_port()}"
    argv = (
        program,
        f"-httpListenAddr={address}",
        f"-storageDataPath={folder / 'victoria'}",
        "-retentionPeriod=100y",
        "-loggerLevel=ERROR",
    )
    child = start_leashed(argv, log=folder / "victoria.log")
    try:
        assert wait_until_ready(f"http://{address}/health", child=child), (folder / "victoria.log").read_text()
        yield f"http://{address}"
    finally:
        stop(child)
