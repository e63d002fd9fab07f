"""The demonstration against a real Prometheus: the first hours of it."""

import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import requests
from rich.console import Console

from tests.support.dashboards import answered, expressions
from tests.support.servers import require_program
from tuner.demo.replay import Stopwatch
from tuner.demo.show import opened
from tuner.demo.world import START_AT_SECONDS
from tuner.record.journal import Journal

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

HOURS = 5.0
"""Long enough for a change to be made, watched and settled."""

BUT_SAFETY = ("overview", "decisions", "forecast", "sidecar")
"""The dashboards that it fills; that of safety is filled by the bad hour."""

OF_THE_GUARD = {"Delay of guard ticks", "Metrics source", "Metrics source answers"}
"""Panels that are empty after it, because its guard does not tick."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> object:
    """Replay some hours, and leave Prometheus running for the tests."""
    require_program("prometheus")
    console = Console(file=io.StringIO(), width=150)
    output = tmp_path_factory.mktemp("demo")
    with opened(output=output, seed=1, hours=HOURS, embedded=False, console=console, watch=Stopwatch()) as demo:
        demo.replay.run(HOURS)
        yield demo


def ask(store: object, expression: str) -> list[dict[str, object]]:
    answer = requests.post(
        f"{store.server.url}/api/v1/query",  # type: ignore[attr-defined]
        data={"query": expression, "time": START_AT_SECONDS + HOURS * 3600},
        timeout=10,
    )
    assert answer.status_code == 200, answer.text
    result: list[dict[str, object]] = answer.json()["data"]["result"]
    return result


def test_the_tuner_reads_only_prometheus_and_decides_each_cycle(store: object) -> None:
    records = store.parts.journal.records()  # type: ignore[attr-defined]

    assert len(records) == HOURS * 12
    assert all(record.failure is None for record in records)
    assert records[-1].observation is not None
    assert not [problem for problem in records[-1].observation.problems if problem.reason == "rejected"]


def test_the_three_runs_lie_side_by_side_at_simulated_time(store: object) -> None:
    found = ask(store, "count by (run) (reference_node_power_watts)")

    nodes = store.workload.cluster.nodes  # type: ignore[attr-defined]
    assert {row["metric"]["run"]: float(row["value"][1]) for row in found} == dict.fromkeys("abc", nodes)  # type: ignore[index]


def test_what_the_tuner_observed_is_what_the_store_says(store: object) -> None:
    last = store.parts.journal.records()[-1]  # type: ignore[attr-defined]
    at = last.at_seconds

    (row,) = ask(store, f'sum(reference_queue_length{{run="c"}} @ {at})')

    assert float(row["value"][1]) == last.observation.metrics[3]  # type: ignore[index]


@pytest.mark.parametrize(("title", "expression"), expressions(*BUT_SAFETY))
def test_every_expression_of_the_dashboards_answers_on_the_demonstrations_store(
    store: object, title: str, expression: str
) -> None:
    url, start = store.server.url, START_AT_SECONDS  # type: ignore[attr-defined]

    found = answered(url, expression, start_seconds=start, end_seconds=start + HOURS * 3600)

    # What is only known while a change is being looked at need not be known at the end.
    assert bool(found) is (title not in OF_THE_GUARD), f"{title}: {expression}"


def test_interrupted_it_leaves_no_process_behind(tmp_path: Path) -> None:
    require_program("prometheus")
    command = [sys.executable, "-m", "tuner", "demo", "--hours", "24", "--output", str(tmp_path)]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "Prometheus at" in line:
                url = re.search(r"http://\S+:\d+", line)[0]  # type: ignore[index]
                break
        os.kill(demo.pid, signal.SIGINT)
        demo.wait(timeout=60)
    finally:
        demo.kill()
        demo.communicate()

    assert demo.returncode != 0
    with pytest.raises(requests.ConnectionError):
        requests.get(f"{url}/-/ready", timeout=5)


def test_the_journal_of_a_demonstration_can_be_read_beside_it(store: object) -> None:
    with Journal.open_readonly(store.parts.journal.path) as book:  # type: ignore[attr-defined]
        assert len(book.records()) == HOURS * 12
