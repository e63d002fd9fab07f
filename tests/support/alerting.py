"""A whole chain of alerting for tests: pages, a real Prometheus, a real Alertmanager, and somebody who is notified."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import requests
import yaml

from tests.support.commands import until
from tests.support.faulty import FaultyServer, Handler, Request, answer, faulty_server
from tests.support.servers import require_program, running_prometheus
from tuner import assets
from tuner.alerts.lint.rules import duration_seconds
from tuner.alerts.render import rules_text
from tuner.alerts.site import Site, duration
from tuner.alerts.thresholds import thresholds
from tuner.demo.leash import start_leashed, stop
from tuner.demo.prometheus_server import free_port, wait_until_ready
from tuner.settings.loading import load_policy

SPEED: Final = 60.0
"""How many times faster than in life all windows and waits run: a minute becomes a second."""

GROUP_WAIT_SECONDS: Final = 2.0
"""Longer than an evaluation, as it must be in life, though 45 s would become less than one."""

PROMETHEUS: Final = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
alerting:
  alertmanagers: [{{static_configs: [{{targets: ["{alertmanager}"]}}]}}]
scrape_configs:
  - job_name: clocktuner
    static_configs: [{{targets: {targets}}}]
"""


@dataclass(frozen=True, slots=True)
class Notification:
    """What a receiver was told.

    Attributes:
        receiver: Name of the receiver.
        status: Of the notification as a whole: `firing` or `resolved`.
        alerts: Names of the alerts in it, each with its own status.
        body: All of it.
        at_seconds: When it came, by the monotonic clock.
    """

    receiver: str
    status: str
    alerts: frozenset[tuple[str, str]]
    body: Mapping[str, Any]
    at_seconds: float

    def about(self, **labels: str) -> bool:
        """Say whether it is about alerts that all have some labels."""
        common: Mapping[str, str] = self.body["commonLabels"]
        return labels.items() <= common.items()


@dataclass
class Inbox:
    """All notifications, in the order in which they came."""

    notifications: list[Notification] = field(default_factory=list)
    chats: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    """Messages to chats, with the name of the receiver."""

    def reply(self, handler: Handler, request: Request) -> None:
        """Take in what Alertmanager sends."""
        body, (kind, receiver) = json.loads(request.body), request.path.strip("/").split("/")
        if kind == "chat":
            self.chats.append((receiver, body))
        else:
            alerts = frozenset((alert["labels"]["alertname"], alert["status"]) for alert in body["alerts"])
            self.notifications.append(Notification(receiver, body["status"], alerts, body, time.monotonic()))
        answer(handler, 200, b"ok", Content_Type="text/plain")

    def told(self, name: str, status: str, *, receiver: str | None = None, **labels: str) -> list[Notification]:
        """Return the notifications that tell of an alert with a status."""
        return [
            notification
            for notification in list(self.notifications)
            if (name, status) in notification.alerts
            and notification.about(**labels)
            and receiver in {None, notification.receiver}
        ]

    def heartbeats(self) -> list[float]:
        """Return when the dead-man switch was called."""
        return [beat.at_seconds for beat in list(self.notifications) if beat.receiver == "dead-man"]


@dataclass(frozen=True)
class Stack:
    """The running chain.

    Attributes:
        prometheus: Base URL.
        alertmanager: Base URL.
        inbox: What receivers were told.
    """

    prometheus: str
    alertmanager: str
    inbox: Inbox

    def value(self, expression: str) -> float | None:
        """Return the value of an expression that has one answer; None where it has none."""
        found = requests.get(f"{self.prometheus}/api/v1/query", params={"query": expression}, timeout=5).json()
        series = found["data"]["result"]
        return float(series[0]["value"][1]) if series else None

    def firing(self, name: str, **labels: str) -> bool:
        """Say whether an alert fires in Prometheus."""
        matchers = "".join(f', {label}="{value}"' for label, value in labels.items())
        return self.value(f'ALERTS{{alertname="{name}", alertstate="firing"{matchers}}}') is not None

    def wait(self, condition: Callable[[], Any], *, what: str) -> Any:
        """Wait for a condition; says what was told where it does not come."""
        try:
            return until(condition, what=what)
        except AssertionError as error:
            told = [(item.receiver, item.status, sorted(item.alerts)) for item in self.inbox.notifications]
            raise AssertionError(f"{error}; told so far: {told}") from error

    def wait_told(self, name: str, status: str) -> None:
        """Wait until somebody is told of an alert with a status."""
        self.wait(lambda: self.inbox.told(name, status), what=f"{name} {status}")

    def settle(self, *, beats: int = 2) -> None:
        """Wait until Alertmanager has looked at all its groups again, which shows in the dead-man switch."""
        seen = len(self.inbox.heartbeats())
        self.wait(lambda: len(self.inbox.heartbeats()) >= seen + beats, what=f"{beats} more heartbeats")


@contextmanager
def stack(
    tmp_path: Path,
    targets: Sequence[str],
    *,
    limits: Mapping[str, float] | None = None,
    speed: float = SPEED,
) -> Iterator[Stack]:
    """Run Prometheus with the shipped rules and Alertmanager with the shipped example, faster than in life.

    Args:
        tmp_path: Scratch folder.
        targets: HOST:PORT of clocktuner's pages.
        limits: Thresholds instead of the reference policy's.
        speed: How many times faster windows and waits run.
    """
    inbox, policy = Inbox(), load_policy(assets.folder("policies") / "reference.yaml")
    rules = tmp_path / "rules.yaml"
    rules.write_text(rules_text(Site(thresholds=thresholds(policy, limits), speed=speed)), encoding="utf-8")
    with faulty_server(inbox.reply) as receiver, running_alertmanager(tmp_path, receiver, speed=speed) as manager:
        address = manager.removeprefix("http://")
        config = PROMETHEUS.format(rules=rules, alertmanager=address, targets=json.dumps(list(targets)))
        with running_prometheus(config=config, flags=("--rules.alert.resend-delay=1s",)) as prometheus:
            yield Stack(prometheus.url, manager, inbox)


@contextmanager
def running_alertmanager(folder: Path, receiver: FaultyServer, *, speed: float = SPEED) -> Iterator[str]:
    """Run a real Alertmanager with the shipped example, whose receivers all lead to one server; yields its URL."""
    program = require_program("prometheus-alertmanager")
    example = assets.folder("alerts") / "alertmanager.example.yaml"
    config = folder / "alertmanager.yaml"
    config.write_text(yaml.safe_dump(rehearsed(yaml.safe_load(example.read_text()), receiver.url, speed=speed)))
    address = f"127.0.0.1:{free_port()}"
    argv = (
        program,
        f"--config.file={config}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
        "--log.level=warn",
    )
    child = start_leashed(argv, log=folder / "alertmanager.log")
    try:
        assert wait_until_ready(f"http://{address}/-/ready", child=child), (folder / "alertmanager.log").read_text()
        yield f"http://{address}"
    finally:
        stop(child)


def rehearsed(example: Mapping[str, Any], url: str, *, speed: float) -> Mapping[str, Any]:
    """Return the example with shorter waits, whose receivers lead to `url`/notify/NAME and chats to `url`/chat/NAME."""
    templates = os.fspath(assets.folder("alerts") / "templates" / "*.tmpl")
    return {
        "global": {"resolve_timeout": example["global"]["resolve_timeout"]},
        "templates": [templates],
        "route": _faster(example["route"], speed),
        "inhibit_rules": example["inhibit_rules"],
        "receivers": [_receiver(receiver, url) for receiver in example["receivers"]],
    }


def _faster(route: Mapping[str, Any], speed: float) -> Mapping[str, Any]:
    changed = dict(route)
    for key in ("group_wait", "group_interval", "repeat_interval"):
        if key in route:
            seconds = (duration_seconds(route[key]) or 0.0) / speed
            least = GROUP_WAIT_SECONDS if key == "group_wait" and seconds else 0.0
            changed[key] = duration(max(seconds, least)) if seconds else "0s"
    if "routes" in route:
        changed["routes"] = [_faster(child, speed) for child in route["routes"]]
    return changed


def _receiver(receiver: Mapping[str, Any], url: str) -> Mapping[str, Any]:
    name = receiver["name"]
    changed: dict[str, Any] = {"name": name}
    hooks = receiver.get("webhook_configs", [{}])
    if name != "nobody":
        changed["webhook_configs"] = [{**hook, "url": f"{url}/notify/{name}"} for hook in hooks]
    if "slack_configs" in receiver:
        chats = [
            {key: value for key, value in chat.items() if key != "api_url_file"} for chat in receiver["slack_configs"]
        ]
        changed["slack_configs"] = [{**chat, "api_url": f"{url}/chat/{name}"} for chat in chats]
    return changed


class Page:
    """A page of metrics as clocktuner of one cluster serves it, as the test wants it.

    Attributes:
        cluster: Its cluster.
        up: Whether it answers.
        scrapes: How often it was asked.
    """

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.up = True
        self.scrapes = 0
        self._values: dict[str, float] = {}
        self._guard = threading.Lock()

    def set(self, name: str, value: float, **labels: str) -> None:
        """Let a series have a value from now on; the name comes without prefix."""
        with self._guard:
            self._values[self._series(name, labels)] = value

    def scraped_since(self, scrapes: int) -> bool:
        """Say whether it was asked more often than that."""
        return self.scrapes > scrapes

    def reply(self, handler: Handler, _: Request) -> None:
        """Serve it."""
        self.scrapes += 1
        if not self.up:
            answer(handler, 503, b"", Content_Type="text/plain")
            return
        now = time.time()
        alive = {
            self._series("build_info", {"version": "1.0"}): 1.0,
            self._series("source_up", {}): 1.0,
            self._series("mode", {"mode": "auto"}): 1.0,
            self._series("cycle_last_timestamp_seconds", {}): now,
            self._series("cycle_last_success_timestamp_seconds", {}): now,
            self._series("guard_last_timestamp_seconds", {}): now,
        }
        with self._guard:
            text = "".join(f"{series} {value!r}\n" for series, value in (alive | self._values).items())
        answer(handler, 200, text.encode(), Content_Type="text/plain; version=0.0.4")

    def _series(self, name: str, labels: Mapping[str, str]) -> str:
        own = {"cluster": self.cluster, "policy": "main", **labels}
        inside = ",".join(f'{key}="{value}"' for key, value in own.items())
        return f"clocktuner_{name}{{{inside}}}"


@contextmanager
def served(page: Page) -> Iterator[str]:
    """Serve a page; yields its HOST:PORT."""
    with faulty_server(page.reply) as server:
        yield server.url.removeprefix("http://")
