"""The reference scheduler as a command: what is replayed, where, and what people are told."""

import threading
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import requests
import yaml
from rich.console import Console

from tuner.demo.serving import choose, introduction, serve_reference, sized_for
from tuner.errors import ConfigError, TraceError
from tuner.reference import workloads
from tuner.reference.cluster import PRESETS
from tuner.reference.trace import Trace, make_trace
from tuner.reference.traces import offered_load
from tuner.reference.workload import TaskKind

SWF_LINE = "{job} {submit} 0 300 8 -1 -1 8 300 -1 1 1 1 1 1 1 -1 -1\n"

FILES = {
    "csv": "submit_seconds,duration_seconds,gpus\n0,600,1\n300,1200,2\n",
    "swf": "; a comment\n" + SWF_LINE.format(job=1, submit=0) + SWF_LINE.format(job=2, submit=600),
    "openb": (
        "name,num_gpu,gpu_milli,qos,creation_time,scheduled_time,deletion_time\n"
        "a,1,500,LS,0,10,300\nb,2,1000,BE,500,510,900\n"
    ),
    "itp": "submission_time,duration,num_gpu\n0,300,1\n600,300,4\n",
    "helios": ("submit_time,duration,gpu_num\n2020-04-01 00:00:00,300,1\n2020-04-01 00:10:00,300,8\n"),
}


def steady(*, gpus: float, count: int = 100, every: float = 60.0, lasts: float = 600.0) -> Trace:
    kind = TaskKind.TRAINING if gpus else TaskKind.PREPROCESSING
    return make_trace(
        "steady",
        submit_seconds=np.arange(count, dtype=np.float64) * np.float64(every),
        service_seconds=np.full(count, lasts),
        gpus=np.full(count, gpus),
        kind=kind,
    )


def test_a_cluster_is_as_large_as_its_trace_asks_for() -> None:
    trace = steady(gpus=8.0)

    cluster = sized_for(trace)

    smaller = cluster.sized(cluster.nodes - 1)
    assert offered_load(trace, cluster) <= 0.8 < offered_load(trace, smaller)


def test_a_cluster_has_the_cpus_that_its_trace_asks_for() -> None:
    trace = steady(gpus=0.0, every=1.0, lasts=400.0)

    cluster = sized_for(trace)

    slots = cluster.nodes * cluster.cpu_slots_per_node
    load = 100 * 400.0 / trace.span_seconds / slots
    assert load <= 0.8 < load * cluster.nodes / (cluster.nodes - 1)


def test_a_cluster_holds_the_largest_gang_however_small_the_load() -> None:
    trace = steady(gpus=33.0, count=2, every=1e6, lasts=1.0)

    assert sized_for(trace).gpus == 40


def test_a_trace_that_lasts_no_time_is_refused() -> None:
    with pytest.raises(TraceError, match="submitted at one time"):
        sized_for(steady(gpus=1.0, count=3, every=0.0))


@pytest.mark.parametrize("name", FILES)
def test_every_format_that_the_command_names_is_read_and_completed(name: str, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(FILES[name], encoding="utf-8")

    trace, cluster = choose(path, trace_format=name, seed=1)

    assert len(trace.workload) == 2
    assert {"priority", "patience_seconds", "zone"} <= trace.told
    assert cluster.gpus >= trace.workload.gpus.max()


def test_without_a_file_the_demonstration_s_workload_is_replayed() -> None:
    trace, cluster = choose(None, trace_format="csv", seed=1)

    demo = workloads.build("demo", seed=1)
    assert cluster == demo.cluster
    assert trace.parts == demo.trace.parts


def test_an_unknown_format_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="format is 'xls', must be one of swf, csv, itp, openb, helios"):
        choose(tmp_path / "trace", trace_format="xls", seed=1)


def test_the_configuration_that_is_printed_scrapes_the_server_with_the_label_that_policies_ask_for() -> None:
    text = introduction("http://127.0.0.1:9465", cluster=PRESETS["edge"], speed=60.0)

    config = yaml.safe_load(text[text.index("scrape_configs:") :])
    assert config["scrape_configs"][0]["static_configs"] == [
        {"targets": ["127.0.0.1:9465"], "labels": {"cluster": "reference"}}
    ]
    assert "12 nodes, 24 accelerators, 60 simulated seconds a second" in text
    assert "in real time" in introduction("http://127.0.0.1:9465", cluster=PRESETS["edge"], speed=1.0)


def test_it_serves_what_it_says_until_it_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(FILES["csv"], encoding="utf-8")
    said, stop = StringIO(), threading.Event()
    serving = threading.Thread(
        target=serve_reference,
        kwargs={
            "trace": path,
            "trace_format": "csv",
            "listen": "127.0.0.1:0",
            "speed": 10.0,
            "seed": 1,
            "console": Console(file=said, soft_wrap=True),
            "stop": stop,
        },
    )
    serving.start()
    try:
        url = address(said, serving)
        page = requests.get(f"{url}/metrics", timeout=5).text
        settings = requests.get(f"{url}/config", timeout=5).json()
    finally:
        stop.set()
        serving.join(20)

    assert not serving.is_alive()
    assert "reference_queue_length" in page
    assert settings["reservation_ratio"] == 0.2
    assert "from trace.csv, day 0.00 to 0.00" in said.getvalue()


def test_an_address_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(FILES["csv"], encoding="utf-8")

    with pytest.raises(ConfigError, match="must be HOST:PORT"):
        serve_reference(
            trace=path,
            trace_format="csv",
            listen="nowhere",
            speed=1.0,
            seed=1,
            console=Console(file=StringIO()),
            stop=threading.Event(),
        )


def address(said: StringIO, serving: threading.Thread) -> str:
    """Return the URL that is said once the server answers."""
    waited = threading.Event()
    for _ in range(3000):
        urls = [word for word in said.getvalue().split() if word.startswith("http://")]
        if urls:
            return urls[0].removesuffix("/metrics,")
        assert serving.is_alive(), said.getvalue()
        waited.wait(0.02)
    raise AssertionError(f"it never said where it serves: {said.getvalue()}")
