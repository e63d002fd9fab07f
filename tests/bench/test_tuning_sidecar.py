import json
import math
from pathlib import Path

import numpy as np
import pytest

from tests.bench.tuning_world import small
from tuner.apply.actuator import Actuator
from tuner.bench import sidecar
from tuner.bench.cases import RECOMMENDED, WIDE, BoundSet
from tuner.bench.replays import replay
from tuner.bench.sidecar import Clocktuner, DirectActuator, MinuteSource, hand_over, policy_for
from tuner.bench.tuners import Site
from tuner.demo.world import START_AT_SECONDS
from tuner.errors import ChangeConflicted, ChangeRejected
from tuner.observe.observer import Observer
from tuner.observe.source import Source
from tuner.reference.demand import DemandForecast
from tuner.reference.scheduler import ReferenceScheduler
from tuner.reference.snapshot import Snapshot
from tuner.settings.model import Policy
from tuner.values.context import CONTEXT_NAMES
from tuner.values.knobs import KnobValues, Role, SchedulerMode
from tuner.values.metrics import METRIC_INDEX, METRICS
from tuner.values.stages import CycleRecord, Forecast

SITE = Site(specs=RECOMMENDED.specs, start=RECOMMENDED.start, seed=1)


def _scheduler(*, minutes: float = 20.0) -> ReferenceScheduler:
    workload = small(minutes=minutes, per_minute=20)
    return ReferenceScheduler(workload.cluster, workload.trace.workload, settings=RECOMMENDED.settings, seed=1)


def _watched(minutes: int) -> tuple[MinuteSource, list[Snapshot]]:
    scheduler, source = _scheduler(minutes=minutes), MinuteSource(window_seconds=300.0)
    snapshots = []
    for minute in range(minutes + 1):
        scheduler.advance(minute * 60.0)
        snapshots.append(scheduler.snapshot())
        source.push(snapshots[-1])
    return source, snapshots


def test_rates_and_quantiles_are_taken_over_the_recent_window(tmp_path: Path) -> None:
    source, snapshots = _watched(12)
    before, now = snapshots[7], snapshots[12]
    at = START_AT_SECONDS + 720.0

    observation = Observer(source, policy_for(SITE, journal=tmp_path / "j")).observe(cycle_id=1, at_seconds=at)

    def seen(name: str) -> float:
        return float(observation.metrics[METRIC_INDEX[name]])

    assert seen("queue_wait_seconds") == pytest.approx(now.queue_wait.since(before.queue_wait).quantile(0.95))
    done = (now.completed_tasks - before.completed_tasks).sum()
    assert seen("tasks_completed_per_second") == pytest.approx(done / 300.0)
    allocated = np.mean([each.accelerators_allocated for each in snapshots[8:13]])
    assert seen("resource_idle_ratio") == pytest.approx(1 - allocated / now.accelerators)
    assert seen("node_temperature_celsius") == pytest.approx(now.node_temperature_celsius.max())
    useful = (now.node_useful_seconds - before.node_useful_seconds) / (now.node_accelerators * 300.0)
    assert seen("accelerator_utilization_ratio") == pytest.approx(useful.mean())


def test_everything_that_the_policy_maps_is_seen_with_its_history(tmp_path: Path) -> None:
    source, _ = _watched(12)

    observation = Observer(source, policy_for(SITE, journal=tmp_path / "j")).observe(
        cycle_id=1, at_seconds=START_AT_SECONDS + 720.0
    )

    assert not observation.problems
    assert np.isfinite(observation.metrics).all()
    assert (observation.ages_seconds == 0).all()
    assert observation.coverage_ratio.min() == 1.0
    waits = observation.history["queue_wait_seconds"]
    assert np.isfinite(waits[-12:]).all()
    assert np.isnan(waits[:-12]).all()
    assert {spec.name for spec in METRICS if spec.per_node} == set(observation.nodes)
    assert len(observation.nodes["node_power_watts"].names) == 2
    # The small workload has no preprocessing, so that nothing is known of its run time and demand.
    missing = set(CONTEXT_NAMES) - set(observation.context)
    assert missing == {"service_seconds:preprocessing", "demand_accelerators:preprocessing"}


def test_an_answer_never_looks_into_the_future() -> None:
    source, snapshots = _watched(12)

    past = source.instant("queue_length", at_seconds=START_AT_SECONDS + 330.0)
    answer = source.range(
        "queue_length",
        start_seconds=START_AT_SECONDS - 120.0,
        end_seconds=START_AT_SECONDS + 1500.0,
        step_seconds=60.0,
    )

    assert past.series[0].times_seconds.tolist() == [START_AT_SECONDS + 300.0]
    assert past.series[0].values.tolist() == [snapshots[5].queue_length]
    (series,) = answer.series
    # From the first minute that has a rate until the last sample is too old to stand for now.
    assert series.times_seconds[0] == START_AT_SECONDS + 60.0
    assert series.times_seconds[-1] == START_AT_SECONDS + 720.0 + 240.0


def test_what_is_not_known_is_not_answered() -> None:
    source, _ = _watched(2)

    assert len(source.instant("no_such_metric", at_seconds=START_AT_SECONDS + 60.0)) == 0
    assert len(source.instant("queue_length", at_seconds=START_AT_SECONDS)) == 0


def test_source_and_actuator_are_the_ports_of_the_loop() -> None:
    source: Source = MinuteSource(window_seconds=300.0)
    actuator: Actuator = DirectActuator(_scheduler())

    assert not source.fuses
    assert actuator.read().knobs == RECOMMENDED.start


def test_the_actuator_compares_and_sets() -> None:
    scheduler = _scheduler()
    actuator = DirectActuator(scheduler)
    wanted = KnobValues.of({**RECOMMENDED.start, Role.DECISION_PERIOD: 0.5})
    first = actuator.read()

    written = actuator.write(wanted, expected_revision=first.revision)

    assert written.knobs == scheduler.settings.knobs == wanted
    assert written.revision != first.revision
    with pytest.raises(ChangeConflicted):
        actuator.write(RECOMMENDED.start, expected_revision=first.revision)
    assert actuator.write(wanted, expected_revision=first.revision) == written
    with pytest.raises(ChangeRejected):
        actuator.write(KnobValues.of({Role.RESERVATION: 0.99}), expected_revision=written.revision)
    assert actuator.read() == written


def test_the_actuator_sets_the_mode() -> None:
    scheduler = _scheduler()
    actuator = DirectActuator(scheduler)

    actuator.write(RECOMMENDED.start, expected_revision="0", mode=SchedulerMode.SIMPLIFIED)

    assert scheduler.settings.mode is SchedulerMode.SIMPLIFIED
    assert scheduler.settings.knobs == RECOMMENDED.start


def test_a_forecast_arrives_in_the_time_of_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = _scheduler()
    received: list[DemandForecast] = []
    monkeypatch.setattr(scheduler, "set_forecast", received.append)
    values = np.broadcast_to(np.array([1.0, 2.0, 3.0]), (1, 20, 3))

    hand_over(
        Forecast(
            cycle_id=1,
            at_seconds=START_AT_SECONDS + 600.0,
            names=("arrivals_per_second:inference",),
            values=values,
            models=("last_value",),
            error_ratio=np.array([math.nan]),
        ),
        scheduler,
    )

    (forecast,) = received
    assert forecast.at_seconds == 600.0
    assert forecast.inference_arrivals_per_second.tolist() == [2.0] * 20


@pytest.mark.parametrize("bounds", [RECOMMENDED, WIDE], ids=lambda bounds: bounds.name)
def test_the_policy_keeps_the_bounds_of_the_site(bounds: BoundSet, tmp_path: Path) -> None:
    site = Site(specs=bounds.specs, start=bounds.start, seed=7)

    policy = policy_for(site, journal=tmp_path / "journal.sqlite")

    assert policy.knob_specs() == bounds.specs
    assert policy.search.seed == 7
    assert policy.journal.path == str(tmp_path / "journal.sqlite")


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[CycleRecord]:
    """Make the loop small, and keep its records."""
    kept: list[CycleRecord] = []

    def made(site: Site, *, journal: Path) -> Policy:
        document = policy_for(site, journal=journal).model_dump(mode="json")
        document["search"] |= {"trials": 8, "generation": 4, "draws": 1, "confirm_draws": 2}
        document["forecast"] |= {"lstm": False, "statistical": False}
        return Policy.model_validate(document)

    close = Clocktuner.close

    def closing(self: Clocktuner) -> None:
        kept.extend(self.parts.journal.records())
        close(self)

    monkeypatch.setattr(sidecar, "policy_for", made)
    monkeypatch.setattr(Clocktuner, "close", closing)
    return kept


def test_the_loop_runs_a_cycle_at_each_decision_point(records: list[CycleRecord]) -> None:
    # Long enough for three intervals of history, before which nothing is searched for.
    outcome = replay(small(minutes=40, per_minute=20), RECOMMENDED.settings, site=SITE, tuner=Clocktuner)

    assert [record.at_seconds - START_AT_SECONDS for record in records] == [300.0 * number for number in range(1, 8)]
    assert all(record.failure is None for record in records)
    assert all(record.forecast is not None for record in records)
    assert any(record.proposal is not None for record in records)
    changed = [record.receipt for record in records if record.receipt is not None and record.receipt.applied]
    assert outcome.changes == len(changed)
    assert outcome.rollbacks == sum(record.decision == "roll_back" for record in records)


def test_the_loop_decides_the_same_for_a_seed(records: list[CycleRecord]) -> None:
    workload = small(minutes=20, per_minute=20)

    outcomes = [replay(workload, RECOMMENDED.settings, site=SITE, tuner=Clocktuner) for _ in range(2)]

    np.testing.assert_array_equal(outcomes[0].windows, outcomes[1].windows)
    half = len(records) // 2
    told = [
        json.dumps([(record.decision, record.reason) for record in part]) for part in (records[:half], records[half:])
    ]
    assert told[0] == told[1]


def test_a_loop_leaves_nothing_on_the_disk(
    records: list[CycleRecord], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    replay(small(minutes=10), RECOMMENDED.settings, site=SITE, tuner=Clocktuner)

    assert records
    assert not list(tmp_path.iterdir())


def test_a_loop_that_met_no_scheduler_says_so() -> None:
    loop = Clocktuner(SITE)
    try:
        with pytest.raises(RuntimeError, match="attached"):
            loop.ask()
    finally:
        loop.close()
