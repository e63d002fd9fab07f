"""The daemon and its sister commands against a real scheduler in real time, scraped by a real Prometheus."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import yaml

from tests.support.commands import STOP_SECONDS, clocktuner, running_daemon, until
from tests.support.servers import running_prometheus
from tuner.record.journal import Journal
from tuner.reference.cluster import PRESETS
from tuner.reference.server import ReferenceServer
from tuner.reference.settings import ClockSettings
from tuner.reference.trace import Trace, make_trace
from tuner.reference.workload import Priority, TaskKind
from tuner.values.stages import CycleRecord

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

REFERENCE = Path(__file__).parents[2] / "policies" / "reference.yaml"

CONFIG = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: reference
    static_configs:
      - targets: ["{target}"]
        labels: {{cluster: reference}}
"""


def busy_hour() -> Trace:
    """Return tasks of all classes, some of them protected, so that every metric has something to tell."""
    random = np.random.default_rng(1)
    count = 3600
    kind = random.choice(list(TaskKind), count, p=[0.2, 0.1, 0.7])
    return make_trace(
        "busy hour",
        submit_seconds=np.arange(count, dtype=np.float64),
        service_seconds=np.where(kind == TaskKind.TRAINING, 60.0, 4.0),
        gpus=np.select([kind == TaskKind.TRAINING, kind == TaskKind.INFERENCE], [1.0, 0.25], 0.0),
        kind=kind,
        priority=np.where(kind == TaskKind.INFERENCE, Priority.HIGH, Priority.NORMAL),
        model=np.where(kind == TaskKind.INFERENCE, 0, -1),
        patience_seconds=600.0,
    )


@dataclass(frozen=True, slots=True)
class Site:
    """A scheduler, and the Prometheus that scrapes it."""

    scheduler: str
    prometheus: str

    def settings(self) -> tuple[dict[str, Any], str]:
        """Return what is set on the scheduler, and its revision."""
        answer = requests.get(f"{self.scheduler}/config", timeout=10)
        return answer.json(), answer.headers["ETag"]

    def policy(self, folder: Path, **changes: Any) -> Path:
        """Write the reference policy with these addresses and short periods."""
        document = yaml.safe_load(REFERENCE.read_text(encoding="utf-8"))
        document["source"]["timeout_seconds"] = "2s"
        document["actuator"] |= {"url": f"{self.scheduler}/config", "forecast_url": f"{self.scheduler}/forecast"}
        document |= {
            "mode": "recommend",
            "cycle": {"period_seconds": "3s", "recent_window_seconds": "30s"},
            "search": {"deadline_seconds": "2s"},
            "forecast": {"lstm": False, "statistical": False},
            "journal": {"path": "journal.sqlite"},
            **changes,
        }
        path = folder / "policy.yaml"
        path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        return path


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    with ReferenceServer(
        busy_hour(), PRESETS["edge"], settings=ClockSettings(), seed=1, listen="127.0.0.1:0", speed=60.0
    ) as server:
        yield server.url


@contextmanager
def scraped(scheduler: str) -> Iterator[Site]:
    """Run a Prometheus that has scraped the scheduler often enough for rates."""
    with running_prometheus(config=CONFIG.format(target=scheduler.partition("//")[2])) as prometheus:
        site = Site(scheduler, prometheus.url)
        counted = 'count_over_time(reference_queue_length{cluster="reference"}[1m]) >= 3'
        until(lambda: answers(site, counted), what="three scrapes")
        yield site


@pytest.fixture(scope="module")
def site(scheduler: str) -> Iterator[Site]:
    with scraped(scheduler) as running:
        yield running


def answers(site: Site, expression: str) -> list[Any]:
    answer = requests.get(f"{site.prometheus}/api/v1/query", params={"query": expression}, timeout=10)
    found: list[Any] = answer.json()["data"]["result"]
    return found


def arguments(site: Site, policy: Path) -> tuple[str, ...]:
    return "--policy", str(policy), "--prometheus", site.prometheus, "--listen", "127.0.0.1:0"


def journal_of(folder: Path) -> tuple[CycleRecord, ...]:
    with Journal.open_readonly(folder / "journal.sqlite") as journal:
        return journal.records()


def test_it_becomes_ready_cycles_and_says_why(site: Site, tmp_path: Path) -> None:
    policy = site.policy(tmp_path)

    with running_daemon(*arguments(site, policy), log=tmp_path / "log") as daemon:
        daemon.wait(lambda: daemon.status("/readyz") == 200, what="readiness")
        told = daemon.cycles(3)
        records = {record.cycle_id: record for record in journal_of(tmp_path)}
        alive = daemon.status("/healthz")
        page = requests.get(f"{daemon.url}/metrics", timeout=10).text

    assert alive == 200
    assert [line["cycle_id"] for line in told[:3]] == [1, 2, 3]
    for line in told[:3]:
        record = records[line["cycle_id"]]
        assert (line["decision"], line["reason"]) == (record.decision, record.reason)
        assert record.reason
        assert record.failure is None, record.reason
        assert record.observation is not None
    assert sum(int(value) for value in re.findall(r"^clocktuner_decisions_total{.*} (\d+)", page, re.MULTILINE)) >= 3
    assert re.search(r'^clocktuner_build_info{cluster="reference",policy="reference".*} 1', page, re.MULTILINE)
    assert re.search(r"^clocktuner_source_queries_total{.*} [1-9]", page, re.MULTILINE)


def test_sigterm_ends_it_in_time_without_a_trace_and_a_restart_goes_on_counting(site: Site, tmp_path: Path) -> None:
    policy = site.policy(tmp_path)

    with running_daemon(*arguments(site, policy), log=tmp_path / "first.log") as first:
        first.cycles(2)
        took = first.terminate()
        last = first.events("cycle_ended")[-1]["cycle_id"]
        lines = first.lines()
    with running_daemon(*arguments(site, policy), log=tmp_path / "second.log") as second:
        resumed = second.cycles(1)[0]["cycle_id"]

    assert took < STOP_SECONDS
    assert first.child.returncode == 0
    assert not first.left_behind()
    assert [line["event"] for line in lines[-2:]] == ["signal_received", "daemon_stopped"]
    assert lines[-1]["cycle_ended"] is True
    assert all({"event", "level", "timestamp"} <= line.keys() for line in lines)
    assert resumed == last + 1


def test_without_prometheus_it_cycles_on_and_leaves_the_settings_alone(scheduler: str, tmp_path: Path) -> None:
    with ExitStack() as outage:
        site = outage.enter_context(scraped(scheduler))
        policy = site.policy(tmp_path, mode="auto")
        with running_daemon(*arguments(site, policy), log=tmp_path / "log") as daemon:
            daemon.cycles(1)
            before = site.settings()
            outage.close()
            failed = daemon.cycles(3, decision="failed")
            daemon.wait(lambda: daemon.status("/healthz") == 200, what="liveness")
            after = site.settings()
            still = daemon.child.poll() is None
    records = {record.cycle_id: record for record in journal_of(tmp_path)}

    assert still
    assert after == before
    for line in failed:
        failure = records[line["cycle_id"]].failure
        assert failure is not None
        assert (failure.stage, failure.reason) == ("observe", "source_unavailable")


def test_check_finds_the_policy_in_order(site: Site, tmp_path: Path) -> None:
    policy = site.policy(tmp_path)

    done = clocktuner("check", "--policy", str(policy), "--prometheus", site.prometheus)

    assert done.returncode == 0, done.stdout
    assert "The policy fits." in done.stdout
    for name in ("queue_length", "node_power_watts", "arrivals_per_second:inference", "reservation_ratio"):
        assert re.search(rf"ok\s+{name}\s", done.stdout), done.stdout


def test_check_names_the_metric_that_cannot_be_read(site: Site, tmp_path: Path) -> None:
    metrics = yaml.safe_load(REFERENCE.read_text(encoding="utf-8"))["metrics"]
    metrics["queue_length"]["query"] = "sum(no_such_queue{$labels})"
    policy = site.policy(tmp_path, metrics=metrics)

    done = clocktuner("check", "--policy", str(policy), "--prometheus", site.prometheus)

    assert done.returncode == 1
    assert re.search(r"failed\s+queue_length\s", done.stdout), done.stdout
    assert "no series matches no_such_queue" in done.stdout
    assert "The policy does not fit yet." in done.stdout


def test_once_with_dry_run_decides_and_writes_nothing(site: Site, tmp_path: Path) -> None:
    policy = site.policy(tmp_path, mode="auto")
    before = site.settings()

    done = clocktuner("once", "--policy", str(policy), "--prometheus", site.prometheus, "--dry-run")

    assert done.returncode == 0, done.stdout + done.stderr
    assert site.settings() == before
    assert "Cycle 1" in done.stdout
    assert "hold" in done.stdout
    assert not list(tmp_path.rglob("*.sqlite"))
