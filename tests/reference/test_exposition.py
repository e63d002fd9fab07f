from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tuner.reference.exposition import Exposition, families
from tuner.reference.families import FAMILIES, Family
from tuner.reference.settings import ClockSettings
from tuner.reference.snapshot import Histogram, Snapshot
from tuner.values.context import TASK_CLASSES
from tuner.values.knobs import Role, SchedulerMode
from tuner.values.metrics import METRIC_COUNT, METRICS

NODES = ("z0-n00", "z0-n01", "z1-n00")


def histogram(*counts: int, total: float = 1.0) -> Histogram:
    return Histogram(np.array([0.25, 1.0, 10.0]), np.array(counts), total)


def snapshot(**changes: Any) -> Snapshot:
    values: dict[str, Any] = {
        "now_seconds": 120.0,
        "finished": False,
        "node_names": NODES,
        "accelerators": 24,
        "accelerators_allocated": 20,
        "node_accelerators": np.array([8, 8, 8]),
        "node_useful_seconds": np.array([100.5, 200.0, 300.0]),
        "node_temperature_celsius": np.array([50.0, 60.0, 70.0]),
        "node_power_watts": np.array([1000.0, 2000.0, 3000.0]),
        "queue_length": 6,
        "waiting_tasks": np.array([1, 2, 3]),
        "running_tasks": np.array([4, 5, 6]),
        "running_remaining_seconds": np.nan,
        "submitted_tasks": np.arange(9).reshape(3, 3),
        "completed_tasks": np.array([10, 11, 12]),
        "abandoned_tasks": np.array([0, 1, 0]),
        "put_back_tasks": np.array([0, 0, 2]),
        "demand_accelerators": np.array([0.0, 40.0, 2.5]),
        "scheduling_latency": histogram(5, 3, 1, 1, total=20.5),
        "decision_duration": histogram(1, 0, 0, 0),
        "queue_wait": histogram(2, 0, 0, 0),
        "high_priority_wait": histogram(3, 0, 0, 0),
        "service": (histogram(0, 0, 0, 0, total=0.0), histogram(0, 0, 2, 0, total=9.0), histogram(4, 0, 0, 0)),
        "settings": ClockSettings(reservation_ratio=0.18, mode=SchedulerMode.SIMPLIFIED),
        "recent": np.arange(METRIC_COUNT, dtype=float),
        "recent_node_utilization_ratio": np.array([0.5, 0.6, 0.7]),
    }
    rest = {item.name: index for index, item in enumerate(fields(Snapshot), start=1000) if item.name not in values}
    return Snapshot(**{**rest, **values, **changes})


def parsed(text: str) -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append(sample)
    return samples


def value(samples: dict[str, list[Sample]], name: str, **labels: str) -> float:
    (found,) = (sample.value for sample in samples[name] if sample.labels == labels)
    return float(found)


def test_the_page_reads_back_with_the_parser_of_prometheus_and_holds_every_value() -> None:
    shot = snapshot()
    exposition = Exposition(shot)

    samples = parsed(exposition.text(shot))

    expected = {tuple(sorted(labels)): number for labels, number in exposition.samples(shot)}
    found = {
        tuple(sorted([("__name__", sample.name), *sample.labels.items()])): sample.value
        for group in samples.values()
        for sample in group
    }
    assert found == expected


def test_every_family_has_its_type_and_one_sentence_of_help_on_the_page() -> None:
    page = list(text_string_to_metric_families(Exposition(snapshot()).text(snapshot())))

    assert len({family.name for family in page}) == len(FAMILIES)
    for family in page:
        assert family.type in {"counter", "gauge", "histogram"}
        assert family.documentation.endswith(".")


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("reference_accelerators", {}, 24),
        ("reference_node_useful_seconds_total", {"node": "z0-n00"}, 100.5),
        ("reference_node_temperature_celsius", {"node": "z1-n00"}, 70),
        ("reference_waiting_tasks", {"class": "training"}, 2),
        ("reference_tasks_submitted_total", {"class": "training", "priority": "high"}, 5),
        ("reference_tasks_submitted_total", {"class": "inference", "priority": "low"}, 6),
        ("reference_demand_accelerators_total", {"class": "inference"}, 2.5),
        ("reference_setting", {"knob": "reservation_ratio"}, 0.18),
        ("reference_mode", {"mode": "simplified"}, 1),
        ("reference_mode", {"mode": "full"}, 0),
        ("reference_recent_accelerator_utilization_ratio", {"node": "z0-n01"}, 0.6),
        ("reference_recent_queue_wait_seconds", {}, 4),
        ("reference_recent_high_priority_wait_seconds", {}, 12),
    ],
)
def test_values_stand_under_their_labels(name: str, labels: dict[str, str], expected: float) -> None:
    shot = snapshot()

    assert value(parsed(Exposition(shot).text(shot)), name, **labels) == expected


def test_buckets_are_cumulated_and_end_with_all_observations() -> None:
    samples = parsed(Exposition(snapshot()).text(snapshot()))
    name = "reference_scheduling_latency_seconds"

    buckets = {sample.labels["le"]: sample.value for sample in samples[f"{name}_bucket"]}

    assert buckets == {"0.25": 5, "1.0": 8, "10.0": 9, "+Inf": 10}
    assert value(samples, f"{name}_sum") == 20.5
    assert value(samples, f"{name}_count") == 10
    assert value(samples, "reference_service_seconds_sum", **{"class": "training"}) == 9
    assert value(samples, "reference_service_seconds_count", **{"class": "preprocessing"}) == 0


def test_every_metric_of_the_catalogue_is_there_over_the_last_minute_per_node_where_it_is() -> None:
    samples = parsed(Exposition(snapshot()).text(snapshot()))

    for spec in METRICS:
        labels = [sample.labels for sample in samples[f"reference_recent_{spec.name}"]]
        assert labels == ([{"node": node} for node in NODES] if spec.per_node else [{}])


def test_a_missing_sample_is_left_out_and_never_zero() -> None:
    nothing = snapshot(running_remaining_seconds=np.nan, recent=np.full(METRIC_COUNT, np.nan))
    exposition = Exposition(nothing)

    samples = parsed(exposition.text(nothing))

    assert "reference_running_remaining_seconds" not in samples
    assert "reference_recent_queue_wait_seconds" not in samples
    assert len(exposition.samples(nothing)) == len(exposition.labels) - np.isnan(exposition.values(nothing)).sum()


def test_endless_and_whole_numbers_are_written_as_prometheus_writes_them() -> None:
    shot = snapshot(pending_accelerators=np.inf, memory_latency_ratio=-np.inf, cross_zone_bytes=3e21)

    text = Exposition(shot).text(shot)

    assert "\nreference_pending_accelerators +Inf\n" in text
    assert "\nreference_memory_latency_ratio -Inf\n" in text
    assert "\nreference_accelerators 24\n" in text
    assert value(parsed(text), "reference_cross_zone_bytes_total") == 3e21


def test_every_series_bears_the_extra_labels_escaped_where_they_must_be() -> None:
    shot = snapshot()
    exposition = Exposition(shot, extra_labels={"cluster": 'a"b\\c\nd', "run": "tuned"})

    samples = parsed(exposition.text(shot))

    assert all(sample.labels["run"] == "tuned" for group in samples.values() for sample in group)
    assert all(sample.labels["cluster"] == 'a"b\\c\nd' for group in samples.values() for sample in group)
    assert all(dict(labels)["run"] == "tuned" for labels, _ in exposition.samples(shot))


def test_series_are_distinct_and_keep_their_order_from_step_to_step() -> None:
    first, later = snapshot(), snapshot(now_seconds=180.0, queue_length=9)
    exposition = Exposition(first)

    labels = [key for key, _ in exposition.samples(first)]

    assert len(set(exposition.labels)) == len(exposition.labels)
    assert [key for key, _ in exposition.samples(later)] == labels
    assert dict(exposition.samples(later))[(("__name__", "reference_queue_length"),)] == 9


def test_families_in_full_say_what_the_fast_way_says() -> None:
    shot = snapshot()
    exposition = Exposition(shot, extra_labels={"run": "a"})

    slow = [(labels, number) for *_, rows in families(shot, extra_labels={"run": "a"}) for labels, number in rows]

    assert [labels for labels, _ in slow] == [dict(labels) for labels in exposition.labels]
    np.testing.assert_array_equal([number for _, number in slow], exposition.values(shot))


def test_families_name_type_and_unit() -> None:
    rows = {name: (kind, unit) for name, kind, _, unit, _ in families(snapshot())}

    assert rows["reference_queue_wait_seconds"] == ("histogram", "seconds")
    assert rows["reference_useful_seconds_total"] == ("counter", "seconds")
    assert rows["reference_cross_zone_bytes_total"] == ("counter", "bytes")
    assert rows["reference_queue_length"] == ("gauge", "")


def test_counters_and_only_counters_end_in_total() -> None:
    for family in FAMILIES:
        is_counter = isinstance(family, Family) and family.type.value == "counter"
        assert family.name.endswith("_total") == is_counter
        assert family.name.startswith("reference_")


def test_labels_take_only_known_values() -> None:
    labels = [dict(pairs) for pairs in Exposition(snapshot()).labels]

    assert {pairs["class"] for pairs in labels if "class" in pairs} == set(TASK_CLASSES)
    assert {pairs["knob"] for pairs in labels if "knob" in pairs} == {role.value for role in Role}
    assert {key for pairs in labels for key in pairs} == {"__name__", "node", "class", "priority", "knob", "mode", "le"}


def test_a_snapshot_of_another_cluster_is_refused() -> None:
    exposition = Exposition(snapshot())
    other = replace(snapshot(), node_useful_seconds=np.zeros(4))

    with pytest.raises(ValueError, match="the snapshot is of another cluster"):
        exposition.values(other)
