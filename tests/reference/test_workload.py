import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from tuner.errors import ChangeRejected, ConfigError, TraceError
from tuner.reference.cluster import PRESETS, ClusterSpec
from tuner.reference.demand import DemandForecast
from tuner.reference.settings import LIMITS, ClockSettings, QueueOrder
from tuner.reference.synthetic import bursts, merge, poisson, popularity, tasks
from tuner.reference.workload import TaskKind, Workload
from tuner.values.knobs import DESIGN_RANGES, KnobValues, Role, SchedulerMode, middle


def _columns(**changed: Any) -> dict[str, Any]:
    return dict(tasks([0.0, 5.0], 10.0).columns()) | changed


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"submit_seconds": [5.0, 0.0]}, "submit_seconds must ascend, broken first by task 1"),
        ({"submit_seconds": [-1.0, 0.0]}, "submit_seconds must be finite and 0 or more"),
        ({"service_seconds": [1.0, 0.0]}, "service_seconds must be finite and over 0, broken first by task 1"),
        ({"service_seconds": [math.nan, 1.0]}, "service_seconds must be finite and over 0, broken first by task 0"),
        ({"gpus": [-1.0, 1.0]}, "gpus must be finite and 0 or more"),
        ({"gpus": [0.0, 1.0]}, "training and inference must ask for gpus"),
        ({"kind": [3, 1]}, "kind must be 0..2"),
        ({"kind": [TaskKind.PREPROCESSING, 1]}, "pre-processing must ask for 0 gpus"),
        ({"kind": [2, 2], "gpus": [1.0, 2.0]}, "inference must ask for at most 1 gpu, broken first by task 1"),
        ({"priority": [1, 3]}, "priority must be 0, 1 or 2"),
        ({"patience_seconds": [0.0, math.inf]}, "patience_seconds must be over 0"),
        ({"model": [-2, 0]}, "model must be -1 or more"),
        ({"zone": [-1, 0]}, "zone must be 0 or more"),
        ({"zone": [0]}, r"zone has shape \(1,\), must be \(2,\)"),
        ({"submit_seconds": [[0.0]]}, "must have one dimension"),
    ],
)
def test_a_workload_that_cannot_be_replayed_is_refused_by_rule_and_task(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(TraceError, match=told):
        Workload(**_columns(**changed))


def test_a_workload_keeps_read_only_copies() -> None:
    submit = np.array([0.0, 5.0])

    work = Workload(**_columns(submit_seconds=submit))
    submit[0] = 99.0

    assert work.submit_seconds[0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        work.submit_seconds[0] = 1.0


def test_demand_counts_whole_accelerators_for_gangs_and_shares_alike() -> None:
    work = merge(tasks([0, 0, 0], 10.0, gpus=[0.25, 1.0, 2.5]), tasks([1.0], 10.0, kind=TaskKind.PREPROCESSING))

    assert work.demand_seconds().tolist() == [10.0, 10.0, 30.0, 0.0]
    assert (len(work), work.span_seconds, work.models) == (4, 1.0, 0)


def test_synthetic_arrivals_have_the_rate_that_was_asked_for() -> None:
    rng = np.random.default_rng(1)

    steady = poisson(rng, per_second=2.0, span_seconds=5000.0)
    swinging = bursts(rng, per_second=2.0, span_seconds=5000.0, period_seconds=1000.0, contrast=0.8)

    # Four standard errors of a count of 10,000.
    assert steady.size == pytest.approx(10_000, abs=400)
    assert swinging.size == pytest.approx(10_000, abs=400)
    phase = swinging % 1000.0
    assert (phase < 500.0).mean() > 0.65
    assert (np.diff(steady) >= 0).all()


def test_popular_models_are_asked_for_most() -> None:
    counts = np.bincount(popularity(np.random.default_rng(1), models=5, size=5000))

    assert (np.diff(counts) < 0).all()


@pytest.mark.parametrize("role", list(Role))
def test_settings_outside_what_the_scheduler_can_run_with_are_refused(role: Role) -> None:
    low, high = LIMITS[role]

    for value in (low * 0.9 - 0.01, high * 1.1, math.nan, math.inf):
        with pytest.raises(ChangeRejected, match=f"{role.value} is {value}"):
            ClockSettings(**{role.value: value})  # type: ignore[arg-type]


def test_all_problems_of_a_setting_are_told_at_once() -> None:
    with pytest.raises(ChangeRejected, match=r"base_slice_seconds is 9.0.*; reservation_ratio is 2.0"):
        ClockSettings(base_slice_seconds=9.0, reservation_ratio=2.0)


def test_the_default_setting_is_the_middle_of_the_recommended_ranges() -> None:
    assert not ClockSettings().knobs.differs(middle(DESIGN_RANGES.values()))


def test_knobs_are_replaced_and_the_rest_stays() -> None:
    unoptimised = ClockSettings.unoptimised()

    changed = unoptimised.with_knobs(KnobValues.of({Role.BASE_SLICE: 0.09}))

    assert changed.base_slice_seconds == 0.09
    assert changed == dataclasses.replace(unoptimised, base_slice_seconds=0.09)


def test_the_unoptimised_scheduler_has_nothing_of_clock_control() -> None:
    setting = ClockSettings.unoptimised()

    assert (setting.order, setting.reservation_ratio, setting.mode) == (QueueOrder.FCFS, 0.0, SchedulerMode.FULL)
    assert [setting.adaptive_slice, setting.prewarm, setting.tiers] == [False] * 3


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"zone_nodes": ()}, "needs at least one zone"),
        ({"zone_nodes": (2, 0)}, "of at least one node each"),
        ({"gpus_per_node": 0}, "gpus_per_node is 0"),
        ({"numa_domains_per_node": 3}, "must divide 8 gpus_per_node"),
        ({"cpu_slots_per_node": -1}, "cpu_slots_per_node is -1"),
        ({"residents_per_gpu": 9}, "residents_per_gpu is 9, must be 1..8"),
        ({"zone_speeds": (1.0, 2.0)}, "zone_speeds has 2 entries, must be 1"),
        ({"link_factor": math.nan}, "link_factor is nan"),
    ],
)
def test_impossible_clusters_are_refused(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        ClusterSpec(**({"name": "odd", "zone_nodes": (1,)} | changed))


@pytest.mark.parametrize("cluster", PRESETS.values(), ids=list(PRESETS))
def test_presets_count_their_parts(cluster: ClusterSpec) -> None:
    assert cluster.gpus == cluster.nodes * cluster.gpus_per_node
    assert len(set(cluster.node_names)) == cluster.nodes
    assert 0 < cluster.capacity <= cluster.gpus


def test_the_reference_cluster_has_64_nodes_of_8_accelerators() -> None:
    assert (PRESETS["reference"].nodes, PRESETS["reference"].gpus) == (64, 512)


@pytest.mark.parametrize("nodes", [1, 2, 7, 48, 100])
def test_a_resized_cluster_keeps_its_proportions(nodes: int) -> None:
    cluster = PRESETS["multicloud"].sized(nodes)

    assert cluster.nodes == nodes
    assert list(cluster.zone_nodes) == sorted(cluster.zone_nodes, reverse=True) or nodes < 7
    assert set(cluster.zone_speeds) <= {1.0, 0.8, 0.6}


@pytest.mark.parametrize(
    "changed",
    [
        {"at_seconds": math.nan},
        {"step_seconds": 0.0},
        {"inference_arrivals_per_second": [1.0, -1.0]},
        {"inference_arrivals_per_second": [[1.0]]},
        {"window_start_seconds": 5.0},
        {"window_start_seconds": 5.0, "window_end_seconds": 4.0},
    ],
)
def test_forecasts_that_cannot_be_planned_with_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ChangeRejected):
        DemandForecast(**({"at_seconds": 0.0} | changed))
