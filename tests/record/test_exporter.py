"""The page and the samples say the same, know nothing they were not told, and count from zero."""

import math
import subprocess
import threading
from dataclasses import replace

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.records import (
    GUARDS,
    MIDNIGHT,
    SPECS,
    applied,
    day,
    failed,
    forecast,
    simplest,
)
from tuner import errors
from tuner.record.exporter import Exporter
from tuner.record.families import DECISIONS, FAMILIES, STAGES, Kind, reasons
from tuner.record.ticks import Safety, Tick
from tuner.values.knobs import Role, SchedulerMode
from tuner.values.metrics import METRIC_NAMES, METRICS
from tuner.values.safety import BreakerState, Rung, SettingsState
from tuner.values.stages import CycleRecord, Decision, Forecast, Observation, Outcome, Problem, Step


@pytest.fixture
def exporter() -> Exporter:
    return Exporter(cluster="east", policy="reference", specs=SPECS, guards=GUARDS, mode="auto")


def page(exporter: Exporter) -> str:
    return generate_latest(exporter.registry).decode()


def value(exporter: Exporter, name: str, **labels: str) -> float | None:
    return exporter.registry.get_sample_value(
        f"clocktuner_{name}", {"cluster": "east", "policy": "reference", **labels}
    )


def seen(record: CycleRecord) -> Observation:
    assert record.observation is not None
    return record.observation


def ahead(record: CycleRecord) -> Forecast:
    assert record.forecast is not None
    return record.forecast


# The page as a whole.


def test_the_page_passes_promtool_after_a_day(exporter: Exporter) -> None:
    for record in day(60):
        exporter.update(record)

    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=page(exporter), capture_output=True, text=True, timeout=30, check=False
    )

    assert (checked.returncode, checked.stderr) == (0, "")


def ticked(**changes: object) -> Tick:
    tick = Tick(
        at_seconds=1_767_571_200.0,
        seconds=0.02,
        delay_seconds=0.001,
        result="new",
        latency_beyond=True,
        breaker=BreakerState.OPEN,
        breaker_opened_at_seconds=1_767_571_100.0,
        flapping=False,
        degraded=False,
        degraded_at_seconds=1_767_571_000.0,
        settings=SettingsState.OURS,
        kept=None,
        heal_exhausted=False,
        clock_offset_seconds=0.2,
    )
    return replace(tick, **changes)  # type: ignore[arg-type]


def stepped_back() -> Safety:
    return Safety(
        change_breaker=BreakerState.HALF_OPEN,
        change_breaker_opened=True,
        rung=Rung.CAUTIOUS,
        paused_by="maintenance",
        paused_at_seconds=1_767_571_000.0,
        rank_agreement=0.4,
        sign_hit_ratio=0.7,
    )


def looked() -> CycleRecord:
    """Return a look at a switchback."""
    record = next(record for record in day(60) if record.verification is not None)
    assert record.verification is not None
    return replace(record, verification=replace(record.verification, pairs=2, evidence=1.5))


def values(exporter: Exporter, name: str) -> dict[tuple[str, ...], float]:
    """Return the series of a family by the values of their own labels."""
    return {
        tuple(
            text for label, text in sample.labels.items() if label not in {"__name__", "cluster", "policy"}
        ): sample.value
        for sample in exporter.samples(0)
        if sample.labels["__name__"] == f"clocktuner_{name}"
    }


def test_a_tick_counts_a_sample_beyond_the_threshold_once_and_names_each_state(exporter: Exporter) -> None:
    exporter.tick(ticked())
    exporter.tick(ticked(result="nothing_new", latency_beyond=None))
    exporter.tick(ticked(latency_beyond=False, settings=SettingsState.CONTESTED, kept="adopted"))

    assert values(exporter, "scheduling_latency_samples_total") == {(): 2.0}
    assert values(exporter, "scheduling_latency_beyond_total") == {(): 1.0}
    assert values(exporter, "latency_breaker_state") == {("closed",): 0.0, ("open",): 1.0, ("half_open",): 0.0}
    assert values(exporter, "settings_state")["contested",] == 1.0
    assert values(exporter, "contested_total") == {(): 1.0}
    assert values(exporter, "source_up") == {(): 1.0}


@pytest.mark.parametrize(("done", "healed", "failed"), [("heal", 1.0, 0.0), ("failed", 0.0, 1.0)])
def test_restorations_are_counted_by_result(exporter: Exporter, done: str, healed: float, failed: float) -> None:
    exporter.tick(ticked(settings=SettingsState.INVALID, kept=done))

    assert values(exporter, "heals_total") == {("healed",): healed, ("failed",): failed}


def test_every_family_of_the_table_is_on_the_page_after_a_day_and_nothing_else(exporter: Exporter) -> None:
    for record in day(60):
        exporter.update(record, trust_ratio=0.8)
    exporter.update(looked(), trust_ratio=0.8)
    exporter.limits({"task_abandonment_ratio": 0.05}, latency_threshold_seconds=3.0, changes_per_day=24)
    exporter.tick(ticked())
    exporter.safety(stepped_back())
    exporter.drilled(at_seconds=10.0, passed=True, restore_seconds=0.4)
    exporter.worth(holding_back=False, score=-0.02, score_error=0.01)

    listed = {spec.full_name.removesuffix("_total") for spec in FAMILIES}
    filled = {family.name for family in text_string_to_metric_families(page(exporter)) if family.samples}
    assert filled == listed


def test_every_series_has_cluster_and_policy_and_no_nan(exporter: Exporter) -> None:
    exporter.update(
        replace(simplest(), observation=replace(seen(simplest()), metrics=seen(simplest()).metrics * math.nan))
    )

    for family in text_string_to_metric_families(page(exporter)):
        for sample in family.samples:
            assert sample.labels["cluster"] == "east"
            assert sample.labels["policy"] == "reference"
            assert math.isfinite(sample.value), sample


def test_samples_are_the_page_with_a_time_of_the_callers(exporter: Exporter) -> None:
    for record in day(40):
        exporter.update(record)

    samples = exporter.samples(1_767_225_600_123)

    assert {sample.timestamp_ms for sample in samples} == {1_767_225_600_123}
    from_samples = {(*sorted(sample.labels.items()), sample.value) for sample in samples}
    from_page = {
        (*sorted({"__name__": sample.name, **sample.labels}.items()), sample.value)
        for family in text_string_to_metric_families(page(exporter))
        for sample in family.samples
    }
    assert from_samples == from_page
    assert len(samples) == len(from_samples)


def test_further_labels_stand_on_everything() -> None:
    exporter = Exporter(cluster="east", policy="reference", specs=SPECS, extra_labels={"run": "c"})

    exporter.update(applied())

    assert {sample.labels["run"] for sample in exporter.samples(0)} == {"c"}


def test_the_number_of_series_does_not_grow_with_time(exporter: Exporter) -> None:
    cycles = day(150)
    for record in cycles[:75]:
        exporter.update(record)
    before = len(exporter.samples(0))
    for record in cycles[75:]:
        exporter.update(record)

    assert len(exporter.samples(0)) == before


def test_names_follow_the_rules_of_prometheus() -> None:
    names = [spec.name for spec in FAMILIES]

    assert len(set(names)) == len(names)
    for spec in FAMILIES:
        assert spec.name.endswith("_total") == (spec.kind is Kind.COUNTER), spec.name
        assert spec.help.endswith("."), spec.name
        assert len(spec.labels) == len(spec.values), spec.name


# From the start.


def test_every_counter_starts_at_zero(exporter: Exporter) -> None:
    counters = {spec.full_name for spec in FAMILIES if spec.kind is Kind.COUNTER}

    started = [(sample.labels["__name__"], sample.value) for sample in exporter.samples(0)]

    assert counters <= {name for name, _ in started}
    assert {value for name, value in started if name in counters} == {0.0}


def test_every_enum_label_is_there_from_the_start(exporter: Exporter) -> None:
    for decision in DECISIONS:
        assert value(exporter, "decisions_total", decision=decision) == 0
    for guard in GUARDS:
        assert value(exporter, "guard_failures_total", guard=guard) == 0
    for outcome in Outcome:
        assert value(exporter, "verifications_total", outcome=outcome) == 0
    for stage in STAGES:
        assert value(exporter, "stage_duration_seconds_count", stage=stage) == 0
        for reason in reasons():
            assert value(exporter, "stage_failures_total", stage=stage, reason=reason) == 0


def test_every_kind_of_error_has_its_label() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.TunerError)]

    assert set(reasons()) == {kind.reason for kind in kinds}
    assert {item.value for item in (*Decision, *Step)} < set(DECISIONS)


def test_bounds_and_mode_are_known_before_the_first_cycle(exporter: Exporter) -> None:
    assert value(exporter, "knob_bound", knob="base_slice_seconds", bound="low") == 0.08
    assert value(exporter, "knob_bound", knob="base_slice_seconds", bound="high") == 0.15
    assert [value(exporter, "mode", mode=mode) for mode in ("observe", "recommend", "auto")] == [0, 0, 1]
    assert value(exporter, "observed_queue_length") is None

    exporter.set_mode("observe")
    assert [value(exporter, "mode", mode=mode) for mode in ("observe", "recommend", "auto")] == [1, 0, 0]


def test_a_role_that_the_scheduler_lacks_has_no_series() -> None:
    exporter = Exporter(cluster="east", policy="reference", specs=SPECS[:1])

    exporter.update(simplest())

    knobs = {
        sample.labels["knob"]
        for sample in exporter.samples(0)
        if sample.labels["__name__"].startswith("clocktuner_knob")
    }
    assert knobs == {SPECS[0].role.value}


# What a cycle tells.


def test_an_observation_is_shown_metric_by_metric(exporter: Exporter) -> None:
    record = simplest()

    exporter.update(record, queries=12, read_bytes=4096)

    for index, name in enumerate(METRIC_NAMES):
        assert value(exporter, f"observed_{name}") == seen(record).metrics[index]
        assert value(exporter, "observation_age_seconds", metric=name) == 12.0
        assert value(exporter, "observation_coverage_ratio", metric=name) == 1.0
    assert value(exporter, "source_queries_total") == 12
    assert value(exporter, "source_read_bytes_total") == 4096
    assert len(METRICS) == 13


def test_a_metric_without_a_sample_goes_away_and_returns(exporter: Exporter) -> None:
    record = simplest()
    without = seen(record).metrics.copy()
    without[3] = math.nan

    exporter.update(record)
    exporter.update(replace(record, observation=replace(seen(record), metrics=without)))
    assert value(exporter, "observed_queue_length") is None

    exporter.update(record)
    assert value(exporter, "observed_queue_length") == seen(record).metrics[3]


def test_a_failed_cycle_is_counted_and_takes_what_is_unknown_away(exporter: Exporter) -> None:
    exporter.update(simplest(1, MIDNIGHT))
    exporter.update(failed(2, MIDNIGHT + 60))

    assert value(exporter, "stage_failures_total", stage="observe", reason="source_unavailable") == 1
    assert value(exporter, "decisions_total", decision="failed") == 1
    assert value(exporter, "cycle_last_success_timestamp_seconds") == MIDNIGHT
    assert value(exporter, "cycle_last_timestamp_seconds") == MIDNIGHT + 60
    assert value(exporter, "observed_queue_length") is None
    assert value(exporter, "observation_coverage_ratio", metric="queue_length") == 0
    assert value(exporter, "knob_value", knob="base_slice_seconds") is None
    assert value(exporter, "forecast_value", series="queue_length", level="0.5") is None
    assert value(exporter, "best_window_headroom_ratio") is None


def test_problems_are_counted_by_reason(exporter: Exporter) -> None:
    problems = (Problem("queue_length", "stale", "old"), Problem("queue_wait_seconds", "stale", "old"))

    exporter.update(replace(simplest(), observation=replace(seen(simplest()), problems=problems)))

    assert value(exporter, "observation_problems_total", reason="stale") == 2
    assert value(exporter, "observation_problems_total", reason="missing") == 0


def test_the_mode_of_the_scheduler_is_one_of_three(exporter: Exporter) -> None:
    exporter.update(replace(simplest(), observation=replace(seen(simplest()), mode=SchedulerMode.SIMPLIFIED)))

    assert [value(exporter, "scheduler_mode", mode=mode) for mode in SchedulerMode] == [0, 1, 0]


def test_the_forecast_is_shown_a_quarter_of_an_hour_ahead(exporter: Exporter) -> None:
    record = simplest()

    exporter.update(record)

    for level, index in (("0.1", 0), ("0.5", 1), ("0.9", 2)):
        expected = ahead(record)["queue_wait_seconds"][14, index]
        assert value(exporter, "forecast_value", series="queue_wait_seconds", level=level) == expected
    assert value(exporter, "forecast_error_ratio", series=METRIC_NAMES[0]) == 0.7
    assert value(exporter, "best_window_headroom_ratio") == 0.18
    assert value(exporter, "best_window_start_timestamp_seconds") == record.at_seconds + 600
    assert value(exporter, "forecast_rung", rung="selected") == 1


def test_a_short_forecast_is_shown_at_its_end(exporter: Exporter) -> None:
    whole = forecast(1, MIDNIGHT)

    exporter.update(replace(simplest(), forecast=replace(whole, values=whole.values[:, :5])))

    assert value(exporter, "forecast_value", series="queue_length", level="0.5") == whole["queue_length"][4, 1]


def test_one_model_is_in_charge_of_a_series_and_the_former_is_not(exporter: Exporter) -> None:
    record = simplest()
    later = replace(ahead(record), models=("damped_trend",) * len(ahead(record).names))
    exporter.update(record)
    assert value(exporter, "forecast_model", series=METRIC_NAMES[0], model="lstm") == 1

    exporter.update(replace(record, forecast=later))

    assert value(exporter, "forecast_model", series=METRIC_NAMES[0], model="lstm") == 0
    assert value(exporter, "forecast_model", series=METRIC_NAMES[0], model="damped_trend") == 1


def test_a_change_is_shown_from_proposal_to_knob(exporter: Exporter) -> None:
    record = applied()
    assert record.proposal is not None

    exporter.update(record, trust_ratio=0.5)

    assert value(exporter, "searches_total") == 1
    assert value(exporter, "trials_total") == 100
    assert value(exporter, "proposals_total") == 1
    assert value(exporter, "predicted_score") == record.proposal.score
    assert value(exporter, "predicted_score_error") == 0.006
    assert value(exporter, "twin_fidelity_ratio") == 0.74
    assert value(exporter, "twin_trust_ratio") == 0.5
    assert value(exporter, "changes_total") == 1
    assert value(exporter, "change_on_trial") == 1
    assert value(exporter, "last_change_timestamp_seconds") == record.at_seconds
    assert value(exporter, "last_rollback_timestamp_seconds") is None
    for role in Role:
        assert value(exporter, "knob_value", knob=role) == record.proposal.candidate[role]
        assert value(exporter, "knob_proposed", knob=role) == record.proposal.candidate[role]


def test_a_write_that_was_not_read_back_is_no_change(exporter: Exporter) -> None:
    record = applied()
    assert record.receipt is not None

    exporter.update(replace(record, receipt=replace(record.receipt, applied=False)))

    assert value(exporter, "changes_total") == 0
    assert value(exporter, "change_on_trial") == 0
    assert value(exporter, "knob_value", knob="base_slice_seconds") == record.receipt.before[Role.BASE_SLICE]


def test_failed_guards_are_counted_by_name(exporter: Exporter) -> None:
    held = next(record for record in day(60) if record.verdict is not None and record.decision == Decision.HOLD)

    exporter.update(held)

    assert value(exporter, "guard_failures_total", guard="gain") == 1
    assert value(exporter, "guard_failures_total", guard="slew") == 0


def test_a_day_is_counted_as_the_journal_tells_it(exporter: Exporter) -> None:
    cycles = day()
    for record in cycles:
        exporter.update(record)

    def count(decision: str) -> int:
        return sum(record.decision == decision for record in cycles)

    for decision in DECISIONS:
        assert value(exporter, "decisions_total", decision=decision) == count(decision)
    assert value(exporter, "changes_total") == count("apply")
    assert value(exporter, "rollbacks_total") == count("roll_back")
    assert value(exporter, "promotions_total") == count("promote")
    judged = [value(exporter, "verifications_total", outcome=outcome) or 0 for outcome in Outcome]
    assert sum(judged) == count("promote") + count("roll_back")
    assert judged[0] == count("promote")
    assert value(exporter, "cycle_duration_seconds_count") == len(cycles)
    assert value(exporter, "cycle_duration_seconds_bucket", le="+Inf") == len(cycles)


def test_a_change_stays_on_trial_while_cycles_fail_and_until_it_is_undone(exporter: Exporter) -> None:
    back = next(record for record in day() if record.decision == Step.ROLL_BACK)
    exporter.update(applied())

    exporter.update(failed())
    assert value(exporter, "change_on_trial") == 1

    exporter.update(back)
    assert value(exporter, "change_on_trial") == 0
    assert value(exporter, "last_rollback_timestamp_seconds") == back.at_seconds


def test_a_rollback_that_was_not_written_is_not_counted(exporter: Exporter) -> None:
    back = next(record for record in day() if record.decision == Step.ROLL_BACK)

    exporter.update(replace(back, receipt=None))

    assert value(exporter, "rollbacks_total") == 0
    assert sum(value(exporter, "verifications_total", outcome=outcome) or 0 for outcome in Outcome) == 0


def test_a_change_stays_on_trial_while_its_rollback_is_refused(exporter: Exporter) -> None:
    back = next(record for record in day() if record.decision == Step.ROLL_BACK)
    assert back.receipt is not None
    exporter.update(applied())

    exporter.update(replace(back, decision="failed", receipt=replace(back.receipt, applied=False)))

    assert value(exporter, "change_on_trial") == 1


def test_durations_fall_into_their_buckets(exporter: Exporter) -> None:
    exporter.update(replace(simplest(), stage_seconds={"observe": 0.2, "forecast": 0.5}))

    assert value(exporter, "cycle_duration_seconds_bucket", le="0.5") == 0
    assert value(exporter, "cycle_duration_seconds_bucket", le="1.0") == 1
    assert value(exporter, "cycle_duration_seconds_sum") == pytest.approx(0.7)
    assert value(exporter, "stage_duration_seconds_sum", stage="forecast") == 0.5


def test_the_page_can_be_read_while_cycles_come_in(exporter: Exporter) -> None:
    cycles = day(60)
    errors_seen: list[Exception] = []

    def read() -> None:
        try:
            for _ in range(10):
                page(exporter)
        except RuntimeError as error:  # A dictionary that changes while it is read.
            errors_seen.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for record in cycles:
        exporter.update(record)
    for reader in readers:
        reader.join()

    assert errors_seen == []
