"""A breach that really happens: scheduler -> Prometheus -> clocktuner -> Prometheus -> Alertmanager -> somebody.

The scheduler runs in real time, sixty times faster than in life. A person sets its decision period to far too long, so
that its tasks wait for decisions: the latency breaker opens, somebody is told, once; the person sets it right, the
breaker closes on proof, and the end is told, once.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.e2e.test_daemon import Site, busy_hour, scraped
from tests.support.alerting import Stack, stack
from tests.support.commands import running_daemon
from tuner.demo.prometheus_server import free_port
from tuner.record.journal import Journal
from tuner.reference.cluster import PRESETS
from tuner.reference.server import ReferenceServer
from tuner.reference.settings import ClockSettings

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

PATIENT = {"guard_stalled_seconds": 6000.0, "cycle_stalled_seconds": 6000.0, "cycle_failing_seconds": 6000.0}
"""Out of reach: a second is long here for a busy machine."""

SLOW = {"native": "decision_period_seconds", "low": 0.5, "high": 30.5, "step": 0.5, "slew": 30.0}

GUARD = {
    "period_seconds": "1s",
    "window_seconds": "10s",
    "latency_breaker": {"cool_down_seconds": "4s", "max_cool_down_seconds": "8s", "probe_samples": 3},
    "degradation": {"enabled": False},
}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    settings = ClockSettings()
    with (
        ReferenceServer(
            busy_hour(), PRESETS["edge"], settings=settings, seed=1, listen="127.0.0.1:0", speed=60.0
        ) as server,
        scraped(server.url) as running,
    ):
        yield running


def edit(site: Site, **changes: Any) -> None:
    """Set the scheduler as a person would."""
    document, tag = site.settings()
    answer = requests.put(
        f"{site.scheduler}/config", json={**document, **changes}, headers={"If-Match": tag}, timeout=10
    )
    assert answer.ok, answer.text


def breaker(chain: Stack, state: str) -> bool:
    return chain.value(f'clocktuner_latency_breaker_state{{state="{state}"}}') == 1.0


def test_a_breach_trips_the_breaker_is_told_once_and_so_is_its_end(site: Site, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    knobs = {
        "base_slice_seconds": {"native": "base_slice_seconds"},
        "prediction_window_seconds": {"native": "prediction_window_seconds"},
        "decision_period_seconds": SLOW,
        "reservation_ratio": {"native": "reservation_ratio"},
    }
    policy = site.policy(tmp_path, mode="auto", guard=GUARD, knobs=knobs, web={"listen": address})
    arguments = ("--policy", str(policy), "--prometheus", site.prometheus)
    with (
        running_daemon(*arguments, log=tmp_path / "log") as daemon,
        stack(tmp_path, [address], limits=PATIENT) as chain,
    ):
        chain.wait(lambda: breaker(chain, "closed"), what="the first tick")
        edit(site, decision_period_seconds=20.0)
        chain.wait(lambda: breaker(chain, "open"), what="the breaker to open")
        chain.wait_told("SchedulingLatencyBudgetBurn", "firing")
        simplified = site.settings()[0]["mode"] != "full" or breaker(chain, "half_open")
        edit(site, decision_period_seconds=0.75)
        chain.wait(lambda: breaker(chain, "closed"), what="the breaker to close")
        chain.wait_told("SchedulingLatencyBudgetBurn", "resolved")
        chain.settle()
        alive = daemon.child.poll() is None
        mode = site.settings()[0]["mode"]

    told = [item for item in chain.inbox.told("SchedulingLatencyBudgetBurn", "firing") if item.status == "firing"]
    groups = [frozenset((alert["fingerprint"], alert["status"]) for alert in item.body["alerts"]) for item in told]
    assert alive
    assert simplified
    assert mode == "full"
    assert len(set(groups)) == len(groups) >= 1  # Told again only where a further alert joins, never the same twice.
    assert told[0].about(cluster="reference", severity="critical", component="latency")
    ended = chain.inbox.told("SchedulingLatencyBudgetBurn", "resolved")
    burning = range(round(told[0].at_seconds), round(ended[0].at_seconds))
    opened = chain.inbox.told("CircuitBreakerOpen", "firing")
    assert not [item for item in opened if round(item.at_seconds) in burning]  # The critical one silences the warning.
    with Journal.open_readonly(tmp_path / "journal.sqlite") as journal:
        decisions = [record.decision for record in journal.records()]
    assert decisions.count("adopted") == 2  # Both edits are a person's, and valid.
    assert {"simplify", "probe", "recover"} <= set(decisions)
    assert decisions.index("simplify") < decisions.index("probe") < decisions.index("recover")
