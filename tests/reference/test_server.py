import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from tuner.errors import ConfigError
from tuner.reference import server as server_module
from tuner.reference.cluster import ClusterSpec
from tuner.reference.pacing import PacedScheduler
from tuner.reference.scheduler import ReferenceScheduler
from tuner.reference.server import ReferenceServer, serve
from tuner.reference.settings import ClockSettings
from tuner.reference.trace import Trace, make_trace

# The first test to advance the scheduler may have to compile it.
pytestmark = pytest.mark.timeout(300)

CLUSTER = ClusterSpec(name="tiny", zone_nodes=(1,), gpus_per_node=2, numa_domains_per_node=1)
WITHIN_SECONDS = 30.0


def trace(tasks: int = 40, *, every_seconds: float = 2.0) -> Trace:
    return make_trace(
        "made",
        submit_seconds=np.linspace(0.0, (tasks - 1) * every_seconds, tasks),
        service_seconds=1.0,
        gpus=1.0,
        kind=1,
        priority=1,
    )


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "the condition did not come to hold"
        time.sleep(0.01)


@pytest.fixture
def server() -> Iterator[ReferenceServer]:
    with ReferenceServer(
        trace(), CLUSTER, settings=ClockSettings(), seed=1, listen="127.0.0.1:0", speed=20.0
    ) as running:
        yield running


def get(server: ReferenceServer, path: str) -> requests.Response:
    return requests.get(server.url + path, timeout=5)


def put(server: ReferenceServer, path: str, document: Any, **headers: str) -> requests.Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return requests.put(server.url + path, data=data, headers=names, timeout=5)


def samples(server: ReferenceServer) -> dict[tuple[str, str], float]:
    text = get(server, "/metrics").text
    return {
        (sample.name, "".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_move_on_by_themselves(server: ReferenceServer) -> None:
    answer = get(server, "/metrics")

    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    eventually(lambda: samples(server)[("reference_tasks_completed_total", "training")] >= 3)
    assert samples(server)[("reference_accelerators", "")] == 2


def test_settings_are_read_with_an_etag_and_replaced_with_it(server: ReferenceServer) -> None:
    before = get(server, "/config")
    wanted = {**before.json(), "reservation_ratio": 0.1, "mode": "simplified"}

    answer = put(server, "/config", wanted, If_Match=before.headers["ETag"])

    assert answer.status_code == 200
    assert answer.json() == wanted
    after = get(server, "/config")
    assert after.json() == wanted
    assert after.headers["ETag"] == answer.headers["ETag"] != before.headers["ETag"]


def test_a_new_setting_comes_into_force_at_a_decision_soon_after(server: ReferenceServer) -> None:
    tag = get(server, "/config").headers["ETag"]
    wanted = {**get(server, "/config").json(), "base_slice_seconds": 0.085}

    put(server, "/config", wanted, If_Match=tag)

    eventually(lambda: samples(server)[("reference_setting", "base_slice_seconds")] == 0.085)
    assert samples(server)[("reference_config_generation", "")] == 1


def test_equal_settings_sent_twice_make_no_new_revision(server: ReferenceServer) -> None:
    before = get(server, "/config")

    answer = put(server, "/config", before.json(), If_Match=before.headers["ETag"])

    assert answer.status_code == 200
    assert answer.headers["ETag"] == before.headers["ETag"]


def test_a_stale_etag_is_refused_and_changes_nothing(server: ReferenceServer) -> None:
    first = get(server, "/config")
    put(server, "/config", {**first.json(), "reservation_ratio": 0.1}, If_Match=first.headers["ETag"])
    current = get(server, "/config")

    answer = put(server, "/config", {**first.json(), "reservation_ratio": 0.2}, If_Match=first.headers["ETag"])

    assert answer.status_code == 409
    assert current.headers["ETag"] in answer.json()["error"]
    assert get(server, "/config").json()["reservation_ratio"] == 0.1


def test_a_replacement_without_condition_is_refused(server: ReferenceServer) -> None:
    answer = put(server, "/config", get(server, "/config").json())

    assert answer.status_code == 428
    assert "If-Match is missing" in answer.json()["error"]


@pytest.mark.parametrize("form", ["*", '"other", {tag}', " {tag} "])
def test_a_star_or_a_list_that_holds_the_etag_is_a_good_condition(form: str, server: ReferenceServer) -> None:
    before = get(server, "/config")
    condition = form.format(tag=before.headers["ETag"]).strip()

    answer = put(server, "/config", {**before.json(), "reservation_ratio": 0.1}, If_Match=condition)

    assert answer.status_code == 200


@pytest.mark.parametrize("form", ["W/{tag}", "other", '""', "{bare}"])
def test_another_or_a_weak_etag_is_stale(form: str, server: ReferenceServer) -> None:
    before = get(server, "/config")
    tag = before.headers["ETag"]

    answer = put(server, "/config", before.json(), If_Match=form.format(tag=tag, bare=tag.strip('"')))

    assert answer.status_code == 409


def test_only_one_of_many_who_write_at_once_with_the_same_etag_succeeds(server: ReferenceServer) -> None:
    before = get(server, "/config")
    ratios = [0.1 + index / 100 for index in range(8)]

    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(
                lambda ratio: put(
                    server, "/config", {**before.json(), "reservation_ratio": ratio}, If_Match=before.headers["ETag"]
                ),
                ratios,
            )
        )

    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 7
    (won,) = (answer.json() for answer in answers if answer.status_code == 200)
    assert get(server, "/config").json() == won


def test_bad_values_are_refused_with_field_value_and_limit(server: ReferenceServer) -> None:
    before = get(server, "/config")

    answer = put(server, "/config", {**before.json(), "reservation_ratio": 2}, If_Match=before.headers["ETag"])

    assert answer.status_code == 400
    assert answer.json()["error"] == "reservation_ratio is 2.0, must be 0.0..0.9"
    assert get(server, "/config").headers["ETag"] == before.headers["ETag"]


def test_a_body_that_is_too_long_is_refused(server: ReferenceServer) -> None:
    answer = put(server, "/config", b" " * (server_module.MAX_BODY_BYTES + 1), If_Match="*")

    assert answer.status_code == 400
    assert "is longer than 1048576 bytes" in answer.json()["error"]


def test_a_forecast_is_taken_and_a_bad_one_refused(server: ReferenceServer) -> None:
    good = {"at_seconds": time.time(), "step_seconds": 60, "inference_arrivals_per_second": [1.0] * 20}

    assert put(server, "/forecast", good).status_code == 204
    refused = put(server, "/forecast", {**good, "step_seconds": 0})
    assert refused.status_code == 400
    assert "the step over 0" in refused.json()["error"]


def test_unknown_paths_and_methods_are_refused(server: ReferenceServer) -> None:
    assert get(server, "/none").status_code == 404
    assert requests.delete(server.url + "/config", timeout=5).status_code == 405


def test_health_tells_how_far_the_replay_is(server: ReferenceServer) -> None:
    eventually(lambda: get(server, "/healthz").json()["now_seconds"] > 5)

    health = get(server, "/healthz")

    assert health.status_code == 200
    assert health.json()["live"] is True
    assert health.json()["failure"] is None


def test_a_replay_that_broke_is_unhealthy_and_ends_serving(
    server: ReferenceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(ReferenceScheduler, "advance", broken)

    eventually(lambda: get(server, "/healthz").status_code == 503)
    assert get(server, "/healthz").json()["failure"] == "out of order"
    assert get(server, "/metrics").status_code == 200
    monkeypatch.undo()
    _fail_after_first_step(monkeypatch)
    with pytest.raises(RuntimeError, match="second step"):
        serve(trace(), CLUSTER, settings=ClockSettings(), seed=1, listen="127.0.0.1:0", stop=threading.Event())


def _fail_after_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: PacedScheduler) -> None:
        raise RuntimeError("second step")

    monkeypatch.setattr(PacedScheduler, "_step", fail)


def test_when_the_trace_ends_it_begins_again_with_the_settings_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.reference.pacing.ROUND_TASKS", 1)
    short = trace(10, every_seconds=1.0)
    with ReferenceServer(short, CLUSTER, settings=ClockSettings(), seed=1, listen="127.0.0.1:0", speed=50.0) as running:
        put(running, "/config", {**get(running, "/config").json(), "reservation_ratio": 0.5}, If_Match="*")

        eventually(lambda: get(running, "/healthz").json()["round"] >= 3)

        assert get(running, "/healthz").json()["now_seconds"] < short.span_seconds
        eventually(lambda: samples(running)[("reference_setting", "reservation_ratio")] == 0.5)


def test_a_round_repeats_a_short_trace_many_times() -> None:
    paced = PacedScheduler(trace(10), CLUSTER, settings=ClockSettings(), seed=1)

    assert paced.progress.snapshot.now_seconds == 0
    assert len(paced._scheduler.workload) == 10 * int(7 * 86_400 / 18)


def test_stopping_ends_both_threads_and_frees_the_port() -> None:
    before = threading.active_count()
    running = ReferenceServer(trace(), CLUSTER, settings=ClockSettings(), seed=1, listen="127.0.0.1:0")
    port = int(running.url.rsplit(":", 1)[1])

    running.stop()

    eventually(lambda: threading.active_count() <= before)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_serving_ends_with_its_event_after_telling_where_it_listens() -> None:
    ended, urls = threading.Event(), []

    def ready(url: str) -> None:
        urls.append(url)
        assert requests.get(url + "/healthz", timeout=5).status_code == 200
        ended.set()

    serve(trace(), CLUSTER, settings=ClockSettings(), seed=1, listen="127.0.0.1:0", ready=ready, stop=ended)

    assert urls[0].startswith("http://127.0.0.1:")


def test_serving_ends_with_a_signal() -> None:
    handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    urls: list[str] = []

    def ready(url: str) -> None:
        urls.append(url)
        assert requests.get(url + "/healthz", timeout=5).status_code == 200
        os.kill(os.getpid(), signal.SIGTERM)

    try:
        serve(
            trace(),
            CLUSTER,
            settings=ClockSettings(),
            seed=1,
            listen="127.0.0.1:0",
            ready=ready,
        )
    finally:
        signal.signal(signal.SIGTERM, handlers[0])
        signal.signal(signal.SIGINT, handlers[1])

    with pytest.raises(requests.ConnectionError):
        requests.get(urls[0] + "/healthz", timeout=5)


def test_an_address_in_use_and_a_malformed_one_are_told_apart() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for listen, message in (
            (address, f"cannot listen on {address}: Address already in use"),
            ("9465", "listen address is '9465', must be HOST:PORT"),
            ("127.0.0.1:99999", "must be HOST:PORT"),
        ):
            with pytest.raises(ConfigError, match=message):
                ReferenceServer(trace(), CLUSTER, settings=ClockSettings(), seed=1, listen=listen)


def test_a_speed_or_trace_that_makes_no_sense_is_refused_and_frees_the_port() -> None:
    with pytest.raises(ConfigError, match="speed is 0, must be over 0"):
        ReferenceServer(trace(), CLUSTER, settings=ClockSettings(), seed=1, listen="127.0.0.1:0", speed=0)
    with pytest.raises(ConfigError, match=r"span of the trace is 0\.0, must be over 0"):
        ReferenceServer(trace(1), CLUSTER, settings=ClockSettings(), seed=1, listen="127.0.0.1:0")
