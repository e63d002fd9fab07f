"""From a page to a person: real Prometheus, real Alertmanager, the shipped rules and routes, a minute as a second."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import pytest
import requests

from tests.support.alerting import Inbox, Page, Stack, running_alertmanager, served, stack
from tests.support.commands import until
from tests.support.faulty import Handler, Request, answer, faulty_server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

LIMITS = {"guard_stalled_seconds": 6000.0, "cycle_stalled_seconds": 6000.0, "cycle_failing_seconds": 6000.0}
"""Out of reach: a second is long here for a busy machine."""

FLAKES = 10
"""How often scrapes come and go."""


@dataclass(frozen=True)
class Pages:
    """One cluster for each thing that goes wrong; all go wrong at once, because waiting takes long."""

    hot: Page = field(default_factory=lambda: Page("hot"))
    starved: Page = field(default_factory=lambda: Page("starved"))
    flaky: Page = field(default_factory=lambda: Page("flaky"))
    dead: Page = field(default_factory=lambda: Page("dead"))

    def all(self) -> tuple[Page, ...]:
        return self.hot, self.starved, self.flaky, self.dead

    def go_wrong(self) -> None:
        self.hot.set("observed_node_temperature_celsius", 95.0)
        self.starved.set("observed_high_priority_wait_seconds", 300.0)
        self.starved.set("observed_task_abandonment_ratio", 0.5)
        self.flaky.set("latency_breaker_state", 0.0, state="closed")
        self.dead.up = False

    def recover(self) -> None:
        self.hot.set("observed_node_temperature_celsius", 60.0)
        self.starved.set("observed_high_priority_wait_seconds", 1.0)
        self.starved.set("observed_task_abandonment_ratio", 0.0)
        self.flaky.set("latency_breaker_state", 1.0, state="closed")
        self.dead.up = True


WRONG = ("NodeTemperatureHigh", "HighPriorityStarvation", "CircuitBreakerOpen", "ClockTunerDown")


@pytest.fixture(scope="module")
def inbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inbox]:
    """What was told while all went wrong and recovered."""
    pages = Pages()
    with ExitStack() as running:
        targets = [running.enter_context(served(page)) for page in pages.all()]
        chain = running.enter_context(stack(tmp_path_factory.mktemp("alerting"), targets, limits=LIMITS))
        chain.wait(lambda: chain.value('sum(up{job="clocktuner"})') == len(targets), what="all pages to be scraped")
        pages.go_wrong()
        for name in WRONG:
            chain.wait_told(name, "firing")
        chain.wait(lambda: chain.firing("TaskAbandonmentHigh", cluster="starved"), what="the warning in Prometheus")
        flake(chain, pages.flaky)
        chain.settle()
        pages.recover()
        for name in WRONG:
            chain.wait_told(name, "resolved")
        chain.settle()
        yield chain.inbox


def flake(chain: Stack, page: Page) -> None:
    """Let scrapes fail and come again."""
    for number in range(2 * FLAKES):
        page.up = bool(number % 2)
        chain.wait(partial(page.scraped_since, page.scrapes), what="a scrape")


def about(inbox: Inbox, cluster: str) -> list[tuple[str, str, set[str]]]:
    """Return receiver, status and names of alerts of what was told of a cluster, in order."""
    return [
        (item.receiver, item.status, {name for name, _ in item.alerts})
        for item in inbox.notifications
        if item.about(cluster=cluster, policy="main")
    ]


def test_a_breach_is_told_once_and_its_end_once(inbox: Inbox) -> None:
    assert about(inbox, "hot") == [
        ("chat", "firing", {"NodeTemperatureHigh"}),
        ("chat", "resolved", {"NodeTemperatureHigh"}),
    ]


def test_a_notification_tells_where_how_bad_and_what_to_do(inbox: Inbox) -> None:
    (fired,) = inbox.told("NodeTemperatureHigh", "firing")
    (message,) = (body for receiver, body in inbox.chats if receiver == "chat" and "has 95" in str(body))

    assert fired.about(severity="warning", component="workload", team="scheduling")
    assert "hot (policy main) has 95 °C, over the limit of 85 °C" in fired.body["commonAnnotations"]["description"]
    assert message["channel"] == "#scheduling"
    (attachment,) = message["attachments"]
    assert attachment["title"] == "[WARNING] NodeTemperatureHigh on hot"
    assert attachment["color"] == "warning"
    assert "docs/runbooks/NodeTemperatureHigh.md|what to do" in attachment["text"]


def test_a_critical_alert_and_its_warning_at_once_are_one_notification(inbox: Inbox) -> None:
    assert about(inbox, "starved") == [
        ("pager", "firing", {"HighPriorityStarvation"}),
        ("pager", "resolved", {"HighPriorityStarvation"}),
    ]


def test_scrapes_that_come_and_go_are_one_notification(inbox: Inbox) -> None:
    assert about(inbox, "flaky") == [
        ("chat", "firing", {"CircuitBreakerOpen"}),
        ("chat", "resolved", {"CircuitBreakerOpen"}),
    ]


def test_a_tuner_that_does_not_answer_is_missed_by_the_name_of_its_cluster(inbox: Inbox) -> None:
    assert about(inbox, "dead") == [
        ("pager", "firing", {"ClockTunerDown"}),
        ("pager", "resolved", {"ClockTunerDown"}),
    ]


def test_the_dead_man_switch_is_called_once_a_group_interval(inbox: Inbox) -> None:
    """A repeat interval as long as the group interval would double the gap, to ten seconds."""
    beats = inbox.heartbeats()

    gaps = [later - earlier for earlier, later in pairwise(beats)]
    assert len(gaps) >= 4
    assert sorted(gaps)[len(gaps) // 2] < 8.0, "a switch that waits for 8 s would go off"
    assert all(item.status == "firing" for item in inbox.notifications if item.receiver == "dead-man")


# What silences what, asked of the real Alertmanager with the shipped rules.


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    def ignore(handler: Handler, _: Request) -> None:
        answer(handler, 200, b"ok")

    with faulty_server(ignore) as receiver, running_alertmanager(tmp_path_factory.mktemp("manager"), receiver) as url:
        yield url


def labelled(name: str, severity: str, component: str, **labels: str) -> dict[str, str]:
    return {"alertname": name, "severity": severity, "component": component, "policy": "main", **labels}


BURN = labelled("SchedulingLatencyBudgetBurn", "critical", "latency")
OPEN = labelled("CircuitBreakerOpen", "warning", "latency")
DOWN = labelled("ClockTunerDown", "critical", "sidecar")
BLIND = labelled("PrometheusUnreachableFromTuner", "warning", "source")
STARVED = labelled("HighPriorityStarvation", "critical", "workload")
FOREIGN = {"alertname": "DiskFull", "severity": "warning", "component": "latency"}


@pytest.mark.parametrize(
    ("source", "target", "silenced"),
    [
        (BURN, OPEN, True),
        (OPEN, labelled("Any", "info", "latency"), True),
        (BURN, labelled("Any", "info", "latency"), True),
        (OPEN, BURN, False),
        (BURN, labelled("DegradedModeTooLong", "warning", "workload"), False),
        (BURN, {**OPEN, "policy": "other"}, False),
        (BURN, FOREIGN, False),
        ({**BURN, "policy": ""}, FOREIGN, False),
        (DOWN, STARVED, True),
        (DOWN, labelled("TunerPaused", "info", "control"), True),
        (DOWN, labelled("ClockTunerLoopStalled", "warning", "sidecar"), True),
        (DOWN, labelled("ClockTunerAbsent", "critical", "sidecar"), False),
        (labelled("ClockTunerAbsent", "critical", "sidecar"), OPEN, True),
        ({**DOWN, "policy": ""}, FOREIGN, False),
        (BLIND, labelled("SchedulerMetricMissing", "warning", "source"), True),
        (BLIND, labelled("ForecastErrorHigh", "warning", "forecast"), True),
        (BLIND, STARVED, False),
        (BLIND, labelled("ConfigInvalid", "warning", "settings"), False),
        (BLIND, BLIND, False),
        (OPEN, labelled("ForecastErrorHigh", "warning", "forecast"), True),
        (labelled("ForecastErrorHigh", "warning", "forecast"), OPEN, False),
    ],
)
def test_inhibition_silences_what_follows_and_nothing_else(
    manager: str, request: pytest.FixtureRequest, source: dict[str, str], target: dict[str, str], silenced: bool
) -> None:
    cluster = request.node.name
    pairs = [(source, cluster), (target, cluster), (BURN, f"{cluster}-control"), (OPEN, f"{cluster}-control")]
    posted = [{"labels": {**labels, "cluster": where}} for labels, where in pairs]

    requests.post(f"{manager}/api/v2/alerts", json=posted, timeout=5).raise_for_status()
    # What was posted last is silenced, so what was posted before it has been looked at.
    until(lambda: state(manager, f"{cluster}-control", OPEN) == "suppressed", what="the control to be silenced")

    assert state(manager, cluster, target) == ("suppressed" if silenced else "active")


def state(manager: str, cluster: str, labels: dict[str, str]) -> str:
    """Return the state of an alert as Alertmanager knows it; empty where it does not know it."""
    wanted = {**{name: value for name, value in labels.items() if value}, "cluster": cluster}
    for alert in requests.get(f"{manager}/api/v2/alerts", timeout=5).json():
        if alert["labels"] == wanted:
            return "suppressed" if alert["status"]["inhibitedBy"] else "active"
    return ""
