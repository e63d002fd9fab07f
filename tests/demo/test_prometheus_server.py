"""Our own Prometheus leaves nothing behind, however we end."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import requests

from tests.support.servers import require_program, running_prometheus
from tuner.demo.leash import start_leashed, stop
from tuner.demo.prometheus_server import prometheus_server
from tuner.errors import SourceUnavailable

ROOT = Path(__file__).parents[2]

HOLDER = """
import sys, time
from tuner.demo.prometheus_server import prometheus_server
with prometheus_server() as server:
    print(server.pid, server.folder, flush=True)
    time.sleep(60)
"""


def gone(pid: int, *, within_seconds: float = 15.0) -> bool:
    """Wait until a process does not exist, or is only waiting for its parent to notice that it ended."""
    end = time.monotonic() + within_seconds
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


@pytest.mark.e2e
def test_it_serves_without_jobs_or_rules_and_takes_remote_writes() -> None:
    with running_prometheus() as server:
        targets = requests.get(f"{server.url}/api/v1/targets", timeout=5).json()["data"]["activeTargets"]
        flags = requests.get(f"{server.url}/api/v1/status/flags", timeout=5).json()["data"]
        folder = server.folder
        assert targets == []
        assert flags["storage.tsdb.retention.time"] == "30d"
        assert flags["web.enable-remote-write-receiver"] == "true"
        assert flags["web.listen-address"].startswith("127.0.0.1:")

    assert gone(server.pid)
    assert not folder.exists()


@pytest.mark.e2e
def test_an_error_in_the_block_ends_it_too() -> None:
    with pytest.raises(KeyboardInterrupt), running_prometheus() as server:
        raise KeyboardInterrupt

    assert gone(server.pid)
    assert not server.folder.exists()


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("number", "tidy"),
    [(signal.SIGINT, True), (signal.SIGTERM, True), (signal.SIGKILL, False)],
    ids=str,
)
def test_it_ends_with_us_however_we_are_ended(number: signal.Signals, tidy: bool) -> None:
    require_program("prometheus")
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        pid, folder = holder.stdout.readline().split()
        holder.send_signal(number)
        holder.wait(timeout=20)
    finally:
        holder.kill()
        holder.communicate()

    assert gone(int(pid))
    assert Path(folder).exists() is not tidy
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.e2e
def test_one_that_does_not_start_is_told_with_its_log() -> None:
    require_program("prometheus")

    with pytest.raises(SourceUnavailable, match="unknown_section"), prometheus_server(config="unknown_section: {}\n"):
        pytest.fail("it has started")


@pytest.mark.e2e
def test_an_interrupt_while_it_starts_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    require_program("prometheus")
    started: list[int] = []

    def interrupted(_: str, *, child: subprocess.Popen[bytes]) -> bool:
        started.append(child.pid)
        raise KeyboardInterrupt

    monkeypatch.setattr("tuner.demo.prometheus_server.wait_until_ready", interrupted)
    with pytest.raises(KeyboardInterrupt), prometheus_server():
        pytest.fail("it has started")

    assert gone(started[0])


def test_there_is_none_where_there_is_no_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with prometheus_server() as server:
        assert server is None


def test_a_handler_of_the_program_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from tuner.demo.prometheus_server import sigterm_raises

    before = signal.getsignal(signal.SIGTERM)
    with sigterm_raises(), pytest.raises(SystemExit) as ended:
        os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before

    own = lambda *_: None  # noqa: E731
    signal.signal(signal.SIGTERM, own)
    try:
        with sigterm_raises():
            assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_child_that_does_not_listen_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.demo.leash._STOP_SECONDS", 0.2)
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    )
    log = tmp_path / "log"
    child = start_leashed([sys.executable, "-c", deaf], log=log)
    while "ready" not in log.read_text():
        assert child.poll() is None
        time.sleep(0.01)

    stop(child)

    assert child.returncode == -signal.SIGKILL
    stop(child)
