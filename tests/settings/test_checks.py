from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tuner.errors import ConfigError
from tuner.settings import safety_checks
from tuner.settings.loading import load_policy

Raw = dict[str, Any]
GOOD = Path(__file__).parent / "policies" / "good"
SMALLEST: Raw = yaml.safe_load((GOOD / "smallest.yaml").read_text())
WRITING: Raw = yaml.safe_load((GOOD / "native_units.yaml").read_text())


def put(path: str, value: object) -> Callable[[Raw], None]:
    """Return an edit that sets one value; None removes the key."""

    def edit(raw: Raw) -> None:
        *above, last = path.split("/")
        for key in above:
            raw = raw.setdefault(key, {})
        if value is None:
            del raw[last]
        else:
            raw[last] = value

    return edit


def complaints(base: Raw, *edits: Callable[[Raw], None], folder: Path) -> list[str]:
    raw = deepcopy(base)
    for edit in edits:
        edit(raw)
    path = folder / "policy.yaml"
    path.write_text(yaml.safe_dump(raw))
    try:
        load_policy(path)
    except ConfigError as error:
        return [line.split(": ", 1)[1] for line in str(error).splitlines()]
    return []


def maintenance(**changes: object) -> Callable[[Raw], None]:
    """Return an edit that adds a maintenance window."""
    return put("control/maintenance", [{"start": "01:00", "end": "05:00", **changes}])


BLIND = deepcopy(SMALLEST)
BLIND["metrics"]["scheduling_latency_seconds"] = {"absent": "not measured"}

SLICE = "knobs/base_slice_seconds"
WINDOW = "knobs/prediction_window_seconds"
RESERVE = "knobs/reservation_ratio"

CASES = [
    # What is missing, and what only looks like a mapping.
    (SMALLEST, put("metrics/queue_length", None), "metrics.queue_length is missing, must be mapped or declared absent"),
    (SMALLEST, put("metrics/queue_length", {}), "metrics.queue_length.query is missing, must be given"),
    (SMALLEST, put("metrics/queue_length", {"query": ""}), "metrics.queue_length.query is missing, must be given"),
    (SMALLEST, put("metrics/queue_length/absent", "x"), 'query is "queue", must be left out where absent is given'),
    (SMALLEST, put("knobs/base_slice_seconds/low", 0.1), "low is 0.1, must be left out where absent is given"),
    (SMALLEST, put("knobs/slice", {"absent": "x"}), "knobs.slice is an unknown role"),
    (SMALLEST, put("context", {"node_count": {"query": "x"}}), "did you mean nodes_count?"),
    (SMALLEST, put("metrics", {1: {"query": "x"}}), "metrics.1"),
    (SMALLEST, put("metrics", "none"), 'metrics is "none", must be a mapping of keys to values'),
    # Weights and limits.
    (SMALLEST, put("metrics/queue_length/weight", 0.5), "metrics.queue_length.weight is 0.5, must be left out or 0"),
    (SMALLEST, put("metrics/queue_wait_seconds/weight", 1.5), "weight is 1.5, must be at most 1"),
    (SMALLEST, put("metrics/task_abandonment_ratio/limit", 5), "limit is 5, must be over 0 and at most 1"),
    (SMALLEST, put("metrics/scheduling_latency_seconds/limit", -1), "limit is -1, must be over 0; the unit is s"),
    (SMALLEST, put("metrics/queue_wait_seconds/limit", float("nan")), "must be a finite number"),
    # Bounds of knobs.
    (SMALLEST, put(f"{WINDOW}/low", 1300), "high is 1200, must be over low (1300)"),
    (SMALLEST, put(f"{WINDOW}/low", 0), "knobs.prediction_window_seconds.low is 0, must be over 0"),
    (SMALLEST, put(f"{WINDOW}/step", 700), "step is 700, must be at most high - low (600)"),
    (SMALLEST, put(f"{WINDOW}/slew", 30), "slew is 30, must be at least step (60)"),
    (SMALLEST, put(f"{WINDOW}/step", "60"), 'step is "60", must be a number'),
    (WRITING, put(f"{RESERVE}/low", -0.1), "low is -0.1, must be at least 0 and under 1"),
    # Native values.
    (WRITING, put(f"{SLICE}/scale", 1000), "scale is 1000, must be left out beside choices"),
    (WRITING, put(f"{SLICE}/choices", {"only": 0.1}), "must be two words or more"),
    (WRITING, put(f"{RESERVE}/round_to", 5), "step is 0.01, must be a multiple of 0.05"),
    (WRITING, put(f"{RESERVE}/native", "mode"), 'native is "mode", must be apart from actuator.mode_key (mode)'),
    (WRITING, put(f"{RESERVE}/native", "gpu"), "must be apart from knobs.base_slice_seconds.native (gpu.timeslice)"),
    (WRITING, put(f"{RESERVE}/native", "a..b"), "must be text that matches"),
    (WRITING, put("actuator/url", "ftp://x"), 'actuator.url is "ftp://x", must be text that matches'),
    (WRITING, put("actuator/kind", None), "actuator.kind is missing, must be http or none"),
    (WRITING, put("actuator", {"kind": "none"}), "mode is auto, must be observe or recommend"),
    # Where and how metrics are read.
    (SMALLEST, put("source/labels", {"run": "c"}), "must be used by a query"),
    (SMALLEST, put("source/labels", {"cluster": "c"}), "source.labels.cluster is given, must be left out"),
    (SMALLEST, put("source/labels", {"1run": "c"}), "must be letters, digits and _, not beginning with a digit"),
    (SMALLEST, put("source/kind", "scrape"), "metrics.queue_length.scrape is missing"),
    (SMALLEST, put("metrics/queue_length/query", "q[$xyz]"), "write ${name} with braces"),
    (SMALLEST, put("source/url", "http://"), 'source.url is "http://", must be an address with a host'),
    (SMALLEST, put("source/url", "http://x:port"), 'source.url is "http://x:port", must be an address with a host'),
    (WRITING, put("actuator/url", "http://[::1/config"), "must be an address with a host"),
    (
        WRITING,
        put("actuator/url", "http://me:secret@x/"),
        "actuator.url is given with credentials, must be given without",
    ),
    # Times.
    (
        SMALLEST,
        put("source/timeout_seconds", "60s"),
        "source.timeout_seconds is 60, must be under cycle.period_seconds",
    ),
    (SMALLEST, put("search/deadline_seconds", 60), "search.deadline_seconds is 60, must be under cycle.period_seconds"),
    (SMALLEST, put("verify/wash_out_seconds", "2m"), "verify.wash_out_seconds is 120, must be at least"),
    (SMALLEST, put("verify/min_samples", 16), "verify.window_seconds is 900, must be at least 960: 16 samples"),
    (SMALLEST, put("forecast/horizon_seconds", "15m"), "must be at least 1200, the largest prediction window"),
    (SMALLEST, put("search", {"trials": 10}), "search.generation is 20, must be at most search.trials (10)"),
    (
        SMALLEST,
        put("cycle", {"history_seconds": "30m", "recent_window_seconds": "20m"}),
        "cycle.history_seconds is 1800, must be at least two recent windows (2400)",
    ),
    # Switchback.
    (
        SMALLEST,
        put("verify/leg_seconds", "4m"),
        "verify.leg_seconds is 240, must be at least cycle.recent_window_seconds",
    ),
    (
        SMALLEST,
        put("verify/max_wash_out_seconds", "4m"),
        "verify.max_wash_out_seconds is 240, must be at least verify.wash_out_seconds (300)",
    ),
    # The guard tick and the breakers.
    (
        SMALLEST,
        put("guard", {"period_seconds": "60s", "window_seconds": "30s"}),
        "guard.window_seconds is 30, must be at least guard.period_seconds (60)",
    ),
    (
        BLIND,
        put("guard/latency_breaker", {"threshold_seconds": 1}),
        "guard.latency_breaker.threshold_seconds is 1, must be left out; map metrics.scheduling_latency_seconds",
    ),
    (
        SMALLEST,
        put("guard/latency_breaker", {"cool_down_seconds": "2h", "flap_window_seconds": "1d"}),
        "guard.latency_breaker.max_cool_down_seconds is 3600, must be at least cool_down_seconds (7200)",
    ),
    (
        SMALLEST,
        put("guard/latency_breaker", {"cool_down_seconds": "1h", "flap_openings": 4}),
        "guard.latency_breaker.flap_window_seconds is 3600, must be at least 10800: 4 openings cannot come sooner",
    ),
    (
        SMALLEST,
        put("guard/degradation", {"max_high_priority_wait_seconds": 30}),
        "max_high_priority_wait_seconds is 30, must be left out; map high_priority_wait_seconds",
    ),
    (
        SMALLEST,
        put("guard/healing", {"back_off_seconds": "1h"}),
        "guard.healing.max_back_off_seconds is 600, must be at least back_off_seconds (3600)",
    ),
    (
        SMALLEST,
        put("change_breaker", {"cool_down_seconds": "2d"}),
        "change_breaker.max_cool_down_seconds is 86400, must be at least cool_down_seconds (172800)",
    ),
    # What people decide.
    (SMALLEST, maintenance(timezone="Europe/Viena"), "must be the name of a time zone; did you mean Europe/Vienna?"),
    (SMALLEST, maintenance(timezone="Europe"), 'timezone is "Europe", must be the name of a time zone'),
    (
        SMALLEST,
        maintenance(timezone="../../etc/passwd"),
        "must be the name of a time zone; write it as in Europe/Vienna",
    ),
    (SMALLEST, maintenance(timezone=""), 'control.maintenance.0.timezone is "", must be the name of a time zone'),
    (SMALLEST, maintenance(start="24:00"), "control.maintenance.0.start"),
    (SMALLEST, maintenance(start="7:30"), "control.maintenance.0.start"),
    (SMALLEST, maintenance(days=["someday"]), "control.maintenance.0.days"),
    (SMALLEST, maintenance(days=[]), "control.maintenance.0.days"),
    (SMALLEST, put("control/kill_file", ""), "control.kill_file"),
    (SMALLEST, put("control/hold_back_ratio", 0.5), "control.hold_back_ratio is 0.5, must be at most 0.2"),
    (SMALLEST, put("control/max_changes_per_day", 0), "control.max_changes_per_day is 0, must be at least 1"),
]


@pytest.mark.parametrize(("base", "edit", "message"), CASES, ids=[message[:60] for _, _, message in CASES])
def test_each_contradiction_is_told(base: Raw, edit: Callable[[Raw], None], message: str, tmp_path: Path) -> None:
    assert complaints(base, folder=tmp_path) == []

    found = complaints(base, edit, folder=tmp_path)

    assert any(message in line for line in found), found


def test_a_score_needs_at_least_one_weight(tmp_path: Path) -> None:
    weightless = [
        put(f"metrics/{name}/weight", 0)
        for name in (
            "scheduling_latency_seconds",
            "resource_idle_ratio",
            "accelerator_utilization_ratio",
            "queue_wait_seconds",
            "tasks_completed_per_second",
            "switch_overhead_ratio",
        )
    ]

    found = complaints(SMALLEST, *weightless, folder=tmp_path)

    assert found == ["metrics is without any weight, must be weighed; give a weight to at least one objective metric"]


def test_weights_need_not_sum_to_one(tmp_path: Path) -> None:
    assert complaints(SMALLEST, put("metrics/queue_wait_seconds/weight", 0.9), folder=tmp_path) == []


def test_the_prediction_window_may_live_inside_the_tuner_alone(tmp_path: Path) -> None:
    assert WRITING["knobs"]["prediction_window_seconds"] == {}
    assert complaints(WRITING, folder=tmp_path) == []


def test_without_policy_modes_no_key_is_taken_by_them(tmp_path: Path) -> None:
    def without_modes(raw: Raw) -> None:
        raw["actuator"]["mode_key"] = None

    assert complaints(WRITING, without_modes, put(f"{RESERVE}/native", "mode"), folder=tmp_path) == []


def test_a_switchback_binds_only_who_uses_it(tmp_path: Path) -> None:
    quick = put("verify", {"method": "before_after", "leg_seconds": "1m", "max_wash_out_seconds": 0})

    assert complaints(SMALLEST, quick, folder=tmp_path) == []


@pytest.mark.parametrize("enabled", [True, False])
def test_degradation_that_is_off_needs_no_metric(enabled: bool, tmp_path: Path) -> None:
    settings = put("guard/degradation", {"enabled": enabled, "max_high_priority_wait_seconds": 30})

    assert bool(complaints(SMALLEST, settings, folder=tmp_path)) is enabled


def test_sound_maintenance_windows_are_taken_as_they_are(tmp_path: Path) -> None:
    edit = put(
        "control/maintenance",
        [
            {"start": "22:00", "end": "02:00", "days": ["sat", "sun"], "timezone": "Europe/Vienna"},
            {"start": "00:00", "end": "00:00"},
        ],
    )

    assert complaints(SMALLEST, edit, folder=tmp_path) == []


def test_without_any_time_zones_the_remedy_is_to_install_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety_checks, "available_timezones", set)

    (found,) = complaints(SMALLEST, maintenance(timezone="Mars/Base"), folder=tmp_path)

    assert found.endswith("this system has no time zones: install its package tzdata")


def test_an_unsound_part_does_not_hide_faults_of_others(tmp_path: Path) -> None:
    found = complaints(
        WRITING,
        put("cycle", {"period_seconds": "soon"}),
        put("metrics/queue_length", {"query": 5}),
        put(f"{RESERVE}/native", None),
        folder=tmp_path,
    )

    assert len(found) == 3
