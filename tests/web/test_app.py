"""The daemon's page: metrics, liveness, readiness."""

import socket

import pytest
import requests
from prometheus_client import CollectorRegistry, Gauge

from tuner.errors import ConfigError
from tuner.serving import Server, split_listen, start
from tuner.web.app import Health, build


def serve(health: Health) -> Server:
    registry = CollectorRegistry()
    Gauge("clocktuner_example_seconds", "An example.", registry=registry).set(1.5)
    return start(build(registry, lambda: health), listen="127.0.0.1:0")


@pytest.mark.parametrize(
    ("age", "status"), [(0.0, 200), (179.0, 200), (181.0, 503)], ids=["fresh", "two missed", "four missed"]
)
def test_liveness_follows_the_loop_and_nothing_else(age: float, status: int) -> None:
    server = serve(Health(age, 60.0, {"prometheus_answers": False}))
    try:
        answer = requests.get(f"{server.url}/healthz", timeout=5)
    finally:
        server.stop()

    assert answer.status_code == status
    assert answer.json()["limit_seconds"] == 180.0


def test_readiness_names_what_is_missing() -> None:
    server = serve(Health(0.0, 60.0, {"policy_valid": True, "first_read_complete": False}))
    try:
        answer = requests.get(f"{server.url}/readyz", timeout=5)
    finally:
        server.stop()

    assert answer.status_code == 503
    assert answer.json() == {"ready": False, "conditions": {"policy_valid": True, "first_read_complete": False}}


def test_metrics_are_served_in_the_format_that_prometheus_asks_for() -> None:
    server = serve(Health(0.0, 60.0, {}))
    try:
        answer = requests.get(f"{server.url}/metrics", timeout=5)
    finally:
        server.stop()

    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert "clocktuner_example_seconds 1.5" in answer.text


def test_an_address_in_use_is_an_error_that_says_so() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            start(build(CollectorRegistry(), lambda: Health(0.0, 1.0, {})), listen=f"127.0.0.1:{port}")


@pytest.mark.parametrize("listen", ["9464", "localhost", "127.0.0.1:http", "127.0.0.1:70000", ":80"])
def test_a_malformed_address_is_refused(listen: str) -> None:
    with pytest.raises(ConfigError, match="must be HOST:PORT"):
        split_listen(listen)
