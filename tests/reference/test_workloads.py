from functools import cache

import numpy as np
import pytest
from pyarrow import parquet

from tuner.errors import ConfigError
from tuner.reference import workloads
from tuner.reference.tables import read_table
from tuner.reference.trace import DAY_SECONDS
from tuner.reference.traces import SHIPPED
from tuner.reference.workload import TaskKind
from tuner.reference.workloads import BENCH_NAMES, HELD_OUT_FROM_SECONDS, NAMES, NamedWorkload

TRAINED_RATIO = 0.7
"""Share of each trace, from its start, that forecasters may be trained on."""


@cache
def built(name: str) -> NamedWorkload:
    return workloads.build(name)


@pytest.mark.parametrize("name", NAMES)
def test_no_workload_touches_what_forecasters_may_be_trained_on(name: str) -> None:
    for part in built(name).trace.parts:
        assert part.from_seconds >= HELD_OUT_FROM_SECONDS[part.source.split(":")[0]]


def test_held_out_parts_begin_after_seven_tenths_of_each_trace() -> None:
    itp = parquet.read_table(SHIPPED / "itp_jobs.parquet")["submission_time"].to_numpy()
    pods = np.sort(read_table(SHIPPED / "openb_pods.csv.gz").numbers("creation_time", low=0))
    rates = parquet.read_table(SHIPPED / "servegen_rates.parquet")["t_s"].to_numpy()
    minutes = read_table(SHIPPED / "helios_earth_demand.csv.gz").numbers("minute", low=0)
    surf = parquet.read_table(SHIPPED / "surf_jobs.parquet")["submit_s"].to_numpy()

    ends = {
        "itp_jobs.parquet": TRAINED_RATIO * itp.max(),
        "openb_pods.csv.gz": pods[int(TRAINED_RATIO * len(pods)) - 1],
        "servegen_rates.parquet": TRAINED_RATIO * rates.max(),
        "helios_earth_demand.csv.gz": TRAINED_RATIO * minutes.max() * 60,
        "surf_jobs.parquet": TRAINED_RATIO * surf.max(),
    }

    assert ends.keys() == HELD_OUT_FROM_SECONDS.keys()
    for source, trained_until in ends.items():
        assert trained_until < HELD_OUT_FROM_SECONDS[source]


def test_the_jobs_of_the_demo_are_just_those_submitted_after_the_trained_part() -> None:
    # Counted anew from the file, so that the bookkeeping of the parts is not its own witness.
    table = read_table(SHIPPED / "itp_jobs.parquet")
    late = (table.texts("cluster") == "cluster04") & (table.numbers("submission_time", low=0) >= 42 * DAY_SECONDS)
    expected = sorted(zip(table.numbers("duration", low=0)[late], table.numbers("num_gpu", low=0)[late], strict=True))
    demo = built("demo").trace
    (part,) = (part for part in demo.parts if part.source.startswith("itp"))
    jobs = demo.workload.kind == TaskKind.TRAINING

    found = sorted(
        zip((demo.workload.service_seconds[jobs] * part.compression).round(3), demo.workload.gpus[jobs], strict=True)
    )

    assert found == expected


def test_the_demo_lasts_a_day_with_enough_jobs_and_requests_of_all_classes() -> None:
    demo = built("demo")
    kinds = np.bincount(demo.trace.workload.kind, minlength=3)

    assert demo.trace.span_seconds == pytest.approx(DAY_SECONDS)
    assert kinds[TaskKind.TRAINING] >= 3000
    assert 200_000 <= kinds[TaskKind.INFERENCE] <= 500_000
    assert kinds[TaskKind.PREPROCESSING] > 0
    assert demo.cluster.gpus == 560


def test_the_description_names_origin_factor_overlay_and_assumptions() -> None:
    text = built("demo").describe()

    for fact in (
        "offered load 0.76 of 560 accelerators",
        "from itp_jobs.parquet:cluster04, day 42.00 to 59.52, time compressed 17.52 times",
        "overlaid, not observed together: itp_jobs.parquet:cluster04 + openb_pods.csv.gz + servegen_rates.parquet",
        "assumed per class",
        "Llama-2 70B on two H100",
    ):
        assert fact in text


@pytest.mark.parametrize("name", NAMES)
def test_each_cluster_is_near_the_knee_of_its_load_curve(name: str) -> None:
    assert 0.75 <= built(name).offered_load <= 0.85


@pytest.mark.parametrize("name", BENCH_NAMES)
def test_each_bench_lays_requests_over_its_jobs_for_the_whole_day(name: str) -> None:
    trace = built(name).trace
    work = trace.workload

    assert trace.span_seconds == pytest.approx(DAY_SECONDS)
    # The edge trains nothing: what its requests lie over prepares data.
    below = TaskKind.PREPROCESSING if name == "edge" else TaskKind.TRAINING
    for kind in (below, TaskKind.INFERENCE):
        hours = np.unique(work.submit_seconds[work.kind == kind] // 3600)
        assert len(hours) == 24


def test_the_joined_workload_changes_its_character() -> None:
    work = built("joined").trace.workload
    thirds = [(work.submit_seconds // (8 * 3600)) == index for index in range(3)]
    training = work.kind == TaskKind.TRAINING

    long_jobs, short_jobs, shares = (np.median(work.service_seconds[third & training]) for third in thirds)
    requests = [int((third & ~training).sum()) for third in thirds]

    assert long_jobs > 20 * short_jobs
    assert shares > 5 * short_jobs
    assert requests[2] > 4 * requests[0]
    assert (work.gpus[thirds[2] & training] < 1).mean() > 0.1


def test_seeds_change_requests_and_assumptions_but_not_jobs() -> None:
    first, again, other = (workloads.build("surf", seed=seed, hours=2).trace.workload for seed in (1, 1, 2))
    jobs = [work.service_seconds[work.kind == TaskKind.TRAINING].tolist() for work in (first, again, other)]

    assert first.submit_seconds.tolist() == again.submit_seconds.tolist()
    assert first.submit_seconds.tolist() != other.submit_seconds.tolist()
    assert jobs[0] == jobs[1] == jobs[2]


def test_fewer_hours_are_the_start_of_the_whole() -> None:
    short = workloads.build("surf", hours=2).trace.workload
    whole = built("surf").trace.workload

    assert short.submit_seconds.tolist() == whole.submit_seconds[: len(short)].tolist()
    assert short.span_seconds < 7200


@pytest.mark.parametrize(
    ("name", "hours", "message"),
    [("nightly", 24, "workload is 'nightly', must be one of demo, itp02"), ("demo", 0, "hours is 0, must be over 0")],
)
def test_an_unknown_workload_or_length_is_refused(name: str, hours: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        workloads.build(name, hours=hours)
