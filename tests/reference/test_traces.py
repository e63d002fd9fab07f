import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from tuner.errors import TraceError
from tuner.reference import readers
from tuner.reference.cluster import ClusterSpec
from tuner.reference.trace import make_trace
from tuner.reference.traces import FORMATS, HEADERS, SHIPPED, describe, detect_format, offered_load, read_trace
from tuner.reference.workload import Priority, TaskKind

PLAIN = "submit_seconds,duration_seconds,gpus,priority,class\n"
SWF_JOB = "{number} {submit} 0 {run} {allocated} -1 -1 {asked} -1 -1 1 1 1 1 1 1 -1 -1\n"


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def _write(name: str, text: str) -> Path:
        path = tmp_path / name
        data = text.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return _write


def test_plain_rows_come_sorted_by_submission_and_keep_all_their_fields(write: Callable[[str, str], Path]) -> None:
    path = write("jobs.csv", PLAIN + "20,3.5,2,low,training\n10,0.25,0.5,high,inference\n15,9,0,normal,preprocessing\n")

    work = read_trace(path).workload

    assert work.submit_seconds.tolist() == [10, 15, 20]
    assert work.service_seconds.tolist() == [0.25, 9, 3.5]
    assert work.gpus.tolist() == [0.5, 0, 2]
    assert work.priority.tolist() == [Priority.HIGH, Priority.NORMAL, Priority.LOW]
    assert work.kind.tolist() == [TaskKind.INFERENCE, TaskKind.PREPROCESSING, TaskKind.TRAINING]
    assert np.isinf(work.patience_seconds).all()


def test_a_plain_file_without_classes_takes_work_without_accelerators_for_preprocessing(
    write: Callable[[str, str], Path],
) -> None:
    trace = read_trace(write("jobs.csv", "submit_seconds,duration_seconds,gpus\n0,1,0\n1,1,4\n"))

    assert trace.workload.kind.tolist() == [TaskKind.PREPROCESSING, TaskKind.TRAINING]
    assert trace.told == frozenset()


def test_packed_text_and_parquet_read_like_plain_text(write: Callable[[str, str], Path], tmp_path: Path) -> None:
    text = "submit_seconds,duration_seconds,gpus,priority\n0,1.5,1,high\n7,2,3,low\n"
    columns = {
        "submit_seconds": [0.0, 7.0],
        "duration_seconds": [1.5, 2.0],
        "gpus": [1, 3],
        "priority": ["high", "low"],
    }
    parquet.write_table(pa.table(columns), tmp_path / "jobs.parquet")

    expected = read_trace(write("jobs.csv", text)).workload
    for path in (write("jobs.csv.gz", text), tmp_path / "jobs.parquet"):
        found = read_trace(path).workload
        for name, column in expected.columns().items():
            assert column.tolist() == found.columns()[name].tolist()


tasks = st.tuples(
    st.floats(min_value=0, max_value=1e7),
    st.floats(min_value=1e-6, max_value=1e7),
    st.sampled_from([(0.0, 0), (1.0, 1), (8.0, 1), (0.25, 2), (1 / 3, 1)]),
    st.integers(min_value=0, max_value=2),
)


@given(rows=st.lists(tasks, min_size=1, max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_what_is_written_as_plain_text_reads_back_to_the_same_numbers(
    rows: list[tuple[float, float, tuple[float, int], int]], tmp_path: Path
) -> None:
    submit, service, demand, priority = zip(*rows, strict=True)
    trace = make_trace(
        "made",
        submit_seconds=np.array(submit),
        service_seconds=service,
        gpus=[gpus for gpus, _ in demand],
        kind=[kind for _, kind in demand],
        priority=priority,
    )

    readers.write_plain(trace, tmp_path / "jobs.csv")
    found = readers.read_plain(tmp_path / "jobs.csv").workload

    for name, column in trace.workload.columns().items():
        assert column.tolist() == found.columns()[name].tolist()


def test_swf_takes_allocated_processors_else_those_asked_for_and_leaves_out_what_never_ran(
    write: Callable[[str, str], Path],
) -> None:
    path = write(
        "jobs.swf",
        "; Version: 2.2\n\n"
        + SWF_JOB.format(number=1, submit=5, run=60, allocated=8, asked=16)
        + SWF_JOB.format(number=2, submit=6, run=30, allocated=-1, asked=4)
        + SWF_JOB.format(number=3, submit=7, run=-1, allocated=8, asked=8)
        + SWF_JOB.format(number=4, submit=8, run=10, allocated=-1, asked=-1),
    )

    trace = readers.read_swf(path, processors_per_gpu=4)

    assert trace.workload.submit_seconds.tolist() == [5, 6]
    assert trace.workload.gpus.tolist() == [2, 1]
    assert "2 of 4 jobs left out: without run time or processors" in trace.notes
    assert read_trace(path).workload.gpus.tolist() == [8, 4]


def test_openb_counts_from_scheduling_and_tells_classes_by_share_and_quality(write: Callable[[str, str], Path]) -> None:
    path = write(
        "pods.csv",
        "num_gpu,gpu_milli,qos,creation_time,scheduled_time,deletion_time\n"
        "1,500,LS,0,10,110\n1,500,BE,1,1,2\n0,0,BE,2,2,5\n8,1000,Guaranteed,3,3,4\n1,1000,LS,4,,9\n",
    )

    trace = read_trace(path)

    assert trace.workload.service_seconds.tolist() == [100, 1, 3, 1]
    assert trace.workload.gpus.tolist() == [0.5, 0.5, 0, 8]
    assert trace.workload.kind.tolist() == [2, 1, 0, 1]
    assert trace.workload.priority.tolist() == [Priority.HIGH, Priority.LOW, Priority.LOW, Priority.NORMAL]
    assert "1 of 5 jobs left out: never scheduled" in trace.notes
    assert trace.told == {"priority"}


def test_an_itp_file_of_several_clusters_needs_one_of_them_to_be_chosen(write: Callable[[str, str], Path]) -> None:
    path = write("itp.csv", "cluster,submission_time,duration,num_gpu\na,0,5,1\nb,3,7,2\n")

    assert read_trace(path, cluster="b").workload.service_seconds.tolist() == [7]
    for wrong in (None, "c"):
        with pytest.raises(TraceError, match=r"itp.csv: cluster is (None|c), must be one of a, b; choose"):
            read_trace(path, cluster=wrong)


def test_an_itp_file_of_one_cluster_needs_no_choice(write: Callable[[str, str], Path]) -> None:
    path = write("itp.csv", "submission_time,duration,num_gpu\n2,5,1\n")
    named = write("named.csv", "cluster,submission_time,duration,num_gpu\na,2,5,1\n")

    assert read_trace(path).workload.submit_seconds.tolist() == [2]
    assert read_trace(named).workload.submit_seconds.tolist() == [2]
    with pytest.raises(TraceError, match="has no column cluster, so a cannot be chosen"):
        read_trace(path, cluster="a")


def test_helios_times_count_from_the_first_submission(write: Callable[[str, str], Path]) -> None:
    path = write(
        "log.csv",
        "submit_time,duration,gpu_num,state\n"
        "2020-04-01 00:01:00,30,2,COMPLETED\n2020-04-01 00:00:30,60,0,FAILED\n2020-04-01 00:05:00,,8,CANCELLED\n",
    )

    trace = read_trace(path)

    assert trace.workload.submit_seconds.tolist() == [0, 30]
    assert trace.workload.kind.tolist() == [TaskKind.PREPROCESSING, TaskKind.TRAINING]
    assert "1 of 3 jobs left out: without a run time" in trace.notes


def test_jobs_made_from_demand_ask_for_just_that_demand(write: Callable[[str, str], Path]) -> None:
    rows = [("a", 0, 3, 0), ("a", 1, 3, 4), ("a", 5, 5, 0), ("a", 9, 0, 0), ("b", 2, 1, 0), ("b", 4, 0, 0)]
    text = "vc,minute,running_gpu_num,pending_gpu_num\n" + "".join(f"{','.join(map(str, row))}\n" for row in rows)

    work = read_trace(write("demand.csv", text)).workload

    def asked(minute: float) -> float:
        at = minute * 60
        running = (work.submit_seconds <= at) & (at < work.submit_seconds + work.service_seconds)
        return float(work.gpus[running].sum())

    expected = {0: 3, 1: 7, 2: 8, 4.5: 7, 5: 5, 8.9: 5, 9: 0}
    assert {minute: asked(minute) for minute in expected} == expected


def test_a_servegen_file_becomes_requests_sampled_from_its_rates(write: Callable[[str, str], Path]) -> None:
    path = write("rates.csv", "client,t_s,rate_rps,cv\n7,0,2.0,1\n7,600,4.0,1\n")

    first, again, other = (read_trace(path, seed=seed).workload for seed in (1, 1, 2))

    assert len(first) == pytest.approx(3600, rel=0.1)
    assert (first.kind == TaskKind.INFERENCE).all()
    assert (first.model == 7).all()
    assert first.service_seconds.tolist() == again.service_seconds.tolist() != other.service_seconds.tolist()


def test_surf_jobs_hold_one_accelerator_each(write: Callable[[str, str], Path]) -> None:
    trace = read_trace(write("surf.csv", "submit_s,duration_s\n3,4\n"))

    assert trace.workload.gpus.tolist() == [1]
    assert trace.notes == ("a 16-core share of a node stands for one accelerator",)


MALFORMED = {
    "text for a number": (
        "jobs.csv",
        PLAIN + "0,1,1,low,training\n5,fast,1,low,training\n",
        "line 3: duration_seconds is 'fast', must be a number over 0; correct the row",
    ),
    "negative time": (
        "jobs.csv",
        PLAIN + "-1,1,1,low,training\n",
        "line 2: submit_seconds is '-1', must be a number of at least 0",
    ),
    "no duration": (
        "jobs.csv",
        PLAIN + "0,0,1,low,training\n",
        "line 2: duration_seconds is '0', must be a number over",
    ),
    "not a number": ("jobs.csv", PLAIN + "nan,1,1,low,training\n", "line 2: submit_seconds is 'nan'"),
    "endless": ("jobs.csv", PLAIN + "0,inf,1,low,training\n", "line 2: duration_seconds is 'inf'"),
    "unknown word": (
        "jobs.csv",
        PLAIN + "0,1,1,urgent,training\n",
        "line 2: priority is 'urgent', must be one of 'low', '0', 'normal'",
    ),
    "class without accelerators": (
        "jobs.csv",
        PLAIN + "0,1,1,low,training\n\n0,1,0,low,training\n",
        "line 4: gpus is '0', must be over 0 for training and inference",
    ),
    "accelerators for CPU work": ("jobs.csv", PLAIN + "0,1,1,low,preprocessing\n", "must be 0 for preprocessing"),
    "gang for a request": ("jobs.csv", PLAIN + "0,1,2,low,inference\n", "must be at most 1 for inference"),
    "short row": ("jobs.csv", PLAIN + "0,1\n", "line 2: has 2 fields, must have 5; correct the row or leave it out"),
    "open quote": ("jobs.csv", PLAIN + '0,1,"1,low,training\n', "line 2: is not CSV"),
    "no row": ("jobs.csv", PLAIN, "holds no row"),
    "column twice": ("jobs.csv", "submit_seconds,duration_seconds,gpus,gpus\n0,1,1,1\n", "stands twice"),
    "unknown column": (
        "jobs.csv",
        "submit_seconds,duration_seconds,gpus,priorty\n0,1,1,low\n",
        "column 'priorty' is unknown, must be one of submit_seconds",
    ),
    "unknown header": ("jobs.csv", "when,how_long\n1,2\n", "belong to no known format; say which of swf, csv"),
    "empty file": ("jobs.csv", "", "belong to no known format"),
    "packing": ("jobs.csv.gz", "", "cannot be read"),
    "swf fields": ("jobs.swf", "1 0 0 5\n", "line 1: has 4 fields, must have 18"),
    "swf value": (
        "jobs.swf",
        SWF_JOB.format(number=1, submit="x", run=1, allocated=1, asked=1),
        "line 1: submit_time is 'x'",
    ),
    "swf without runs": (
        "jobs.swf",
        SWF_JOB.format(number=1, submit=0, run=-1, allocated=1, asked=1),
        "no job has a run time and processors",
    ),
    "swf empty": ("jobs.swf", "; nothing\n", "holds no row"),
    "itp": (
        "itp.csv",
        "submission_time,duration,num_gpu\n0,5,many\n",
        "line 2: num_gpu is 'many', must be a number of",
    ),
    "openb quality": (
        "pods.csv",
        "num_gpu,gpu_milli,qos,creation_time,scheduled_time,deletion_time\n1,500,XL,0,0,1\n",
        "line 2: qos is 'XL', must be one of 'LS'",
    ),
    "openb share": (
        "pods.csv",
        "num_gpu,gpu_milli,qos,creation_time,scheduled_time,deletion_time\n1,1500,LS,0,0,1\n",
        "line 2: gpu_milli is '1500', must be a number from 0 to 1000",
    ),
    "helios time": (
        "log.csv",
        "submit_time,duration,gpu_num\nyesterday,1,1\n",
        "line 2: submit_time is 'yesterday', must be a timestamp such as",
    ),
    "helios without runs": ("log.csv", "submit_time,duration,gpu_num\n2020-01-01,,1\n", "no job has a duration"),
    "demand without end": ("d.csv", "vc,minute,running_gpu_num,pending_gpu_num\na,0,1,0\n", "demand never falls"),
    "azure tokens": (
        "azure.csv",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,1.5,3\n",
        "line 2: ContextTokens is '1.5', must be a whole number of at least 0",
    ),
    "mooncake": (
        "moon.csv",
        "timestamp_ms,input_length,output_length\n-5,1,1\n",
        "line 2: timestamp_ms is '-5', must be a number of at least 0",
    ),
    "servegen window twice": (
        "rates.csv",
        "client,t_s,rate_rps,cv\n1,0,0.1,1\n1,600,0.1,1\n1,600,0.1,1\n",
        "line 4: t_s is '600', must be 600 s after",
    ),
    "servegen too large": (
        "rates.csv",
        "client,t_s,rate_rps,cv\n1,0,99999,1\n",
        "must be at most 5,000,000; leave out",
    ),
}


@pytest.mark.parametrize(("name", "text", "message"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_file_is_refused_with_file_place_value_and_remedy(
    name: str, text: str, message: str, write: Callable[[str, str], Path]
) -> None:
    path = (
        write(name, text) if name != "jobs.csv.gz" else write("plain.csv", PLAIN).rename(write("x", "").parent / name)
    )

    with pytest.raises(TraceError) as raised:
        read_trace(path)

    assert str(path) in str(raised.value)
    assert message in str(raised.value)


def test_a_missing_file_bad_parquet_and_text_that_is_none_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("no parquet")
    (tmp_path / "a.csv").write_bytes(b"submit_seconds,duration_seconds,gpus\n\xff,1,1\n")

    for name, message in (
        ("none.csv", "No such file"),
        ("a.parquet", "cannot be read as parquet"),
        ("a.csv", "is not UTF-8 text"),
    ):
        with pytest.raises(TraceError, match=message):
            read_trace(tmp_path / name, trace_format="csv")


def test_a_file_of_another_format_than_said_is_refused_with_what_is_missing(
    write: Callable[[str, str], Path],
) -> None:
    path = write("surf.csv", "submit_s,duration_s\n3,4\n")

    with pytest.raises(TraceError, match=r"column num_gpu, .* is missing \(found: submit_s, duration_s\); name"):
        read_trace(path, trace_format="openb")


def test_a_bad_parquet_value_is_named_by_its_row(tmp_path: Path) -> None:
    columns = {"submission_time": [0, 5], "duration": [3, -3], "num_gpu": [1, 1]}
    parquet.write_table(pa.table(columns), tmp_path / "itp.parquet")

    with pytest.raises(TraceError, match=r"itp.parquet: row 2: duration is .*-3.*, must be a number over 0"):
        read_trace(tmp_path / "itp.parquet")


def test_an_unknown_format_or_a_needless_cluster_is_refused(write: Callable[[str, str], Path]) -> None:
    path = write("surf.csv", "submit_s,duration_s\n3,4\n")

    with pytest.raises(TraceError, match="format is 'excel', must be one of swf, csv"):
        read_trace(path, trace_format="excel")
    with pytest.raises(TraceError, match="a cluster can only be chosen in format itp"):
        read_trace(path, cluster="a")


@pytest.mark.parametrize("name", HEADERS)
def test_every_format_is_recognised_by_its_own_columns(name: str, write: Callable[[str, str], Path]) -> None:
    header = ",".join(sorted(HEADERS[name]))

    assert detect_format(write("some.csv", header + "\n")) == name
    assert name in FORMATS


@pytest.mark.parametrize(
    ("name", "cluster", "tasks"),
    [
        ("itp_jobs.parquet", "cluster04", 15_802),
        ("openb_pods.csv.gz", None, 7_255),
        ("surf_jobs.parquet", None, 42_776),
        ("azure_conv.csv.gz", None, 19_366),
        ("azure_code.csv.gz", None, 8_819),
        ("mooncake_conversation.csv.gz", None, 12_031),
        ("helios_earth_demand.csv.gz", None, 8_457),
    ],
)
def test_every_shipped_trace_reads_without_being_told_its_format(name: str, cluster: str | None, tasks: int) -> None:
    assert len(read_trace(SHIPPED / name, cluster=cluster).workload) == tasks


def test_every_shipped_file_is_named_in_the_readme_with_a_licence_that_lies_there() -> None:
    readme = (SHIPPED / "README.md").read_text()

    for path in SHIPPED.glob("*.*[!d]"):
        assert path.name in readme
    for licence in (SHIPPED / "licences").iterdir():
        assert f"licences/{licence.name}" in readme
    assert sum(path.stat().st_size for path in SHIPPED.rglob("*") if path.is_file()) < 4e6


def test_a_description_names_counts_load_origin_and_assumptions() -> None:
    trace = make_trace(
        "made", submit_seconds=np.array([0.0, 3600.0]), service_seconds=[1800.0, 900.0], gpus=[4.0, 0.25], kind=[1, 2]
    )
    cluster = ClusterSpec(name="small", zone_nodes=(1,), gpus_per_node=4)

    text = describe(trace, cluster=cluster)

    assert offered_load(trace, cluster) == pytest.approx((1800 * 4 + 900) / (3600 * 4))
    assert "2 tasks in 1.0 h" in text
    assert "training: 1 tasks, run time 1.8e+03" in text
    assert "offered load 0.56 of 4 accelerators" in text
    assert "from made, day 0.00 to 0.04" in text
