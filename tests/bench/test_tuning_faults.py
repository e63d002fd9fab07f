import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from tests.bench.tuning_world import Sets, small
from tuner.bench import sidecar, tuning
from tuner.bench.arms import Case, Laboratory, Outcomes
from tuner.bench.cases import RECOMMENDED, UNTOUCHED, WIDE
from tuner.bench.faults import (
    DEVICE_METRICS,
    FAULT_ARMS,
    FAULTS,
    LARGEST_SURPRISE,
    ExporterAway,
    WrongForecasting,
    WrongTwin,
    away,
)
from tuner.bench.gaps import Spread
from tuner.bench.remembered import Remembered
from tuner.bench.replays import Outcome, replay
from tuner.bench.safety import mean_ratio, worst_ratio
from tuner.bench.selection import Arms
from tuner.bench.sidecar import Clocktuner, MinuteSource, policy_for
from tuner.bench.tuners import Site
from tuner.demo.world import START_AT_SECONDS
from tuner.forecast.stage import Forecasting
from tuner.observe.observer import Observer
from tuner.reference.scheduler import ReferenceScheduler
from tuner.settings.model import Policy
from tuner.twin.model import evaluate, from_started_log, started_log
from tuner.twin.parameters import TwinParameters
from tuner.twin.workload import build_scenarios
from tuner.values.metrics import METRIC_COUNT, METRIC_INDEX, METRICS, metric_vector
from tuner.values.stages import CycleRecord, Observation

SITE = Site(specs=WIDE.specs, start=WIDE.start, seed=1)
IN_FORCE = np.array([[0.1, 900.0, 0.75, 0.2]])
LATENCY = METRIC_INDEX["scheduling_latency_seconds"]
MOVED = np.array([[0.05, 900.0, 0.75, 0.2], [0.1, 400.0, 2.0, 0.1]])


def _source(kind: type[MinuteSource], *, minutes: int) -> MinuteSource:
    workload = small(minutes=minutes, per_minute=20)
    scheduler = ReferenceScheduler(workload.cluster, workload.trace.workload, settings=WIDE.settings, seed=1)
    source = kind(window_seconds=300.0)
    for minute in range(minutes + 1):
        scheduler.advance(minute * 60.0)
        source.push(scheduler.snapshot())
    return source


def test_a_third_of_the_metrics_vanishes_at_once_for_half_of_every_hour_and_comes_back() -> None:
    source = _source(ExporterAway, minutes=70)

    def seen(name: str, minute: float) -> bool:
        return bool(source.instant(name, at_seconds=START_AT_SECONDS + 60.0 * minute).series)

    for name in (*DEVICE_METRICS, "queue_length", "scheduling_latency_seconds"):
        gone = name in DEVICE_METRICS
        assert [seen(name, minute) for minute in (10, 29, 30, 59, 60, 70)] == [
            True,
            True,
            not gone,
            not gone,
            True,
            True,
        ]
    past = source.range(
        "resource_idle_ratio",
        start_seconds=START_AT_SECONDS + 600.0,
        end_seconds=START_AT_SECONDS + 4200.0,
        step_seconds=60.0,
    )
    assert not any(away(at) for at in past.series[0].times_seconds)
    assert len(past.series[0].times_seconds) == 31
    assert len(DEVICE_METRICS) == pytest.approx(len(METRICS) / 3, abs=0.5)


def test_a_wrong_forecast_expects_a_rush_where_there_will_be_calm(tmp_path: Path) -> None:
    policy, observation = _small_loop(SITE, journal=tmp_path / "j"), _observed(tmp_path)

    right = Forecasting(policy.forecast).forecast(observation)
    wrong = WrongForecasting(policy.forecast).forecast(observation)

    compared = 0
    for name in right.names:
        past = observation.history[name] if name in observation.history else np.empty(0)
        usual = float(np.nanmean(past)) if np.isfinite(past).any() else 0.0
        if usual <= 0 or (right[name] <= 0).any():
            continue
        expected, turned = right[name][:, 1] / usual, wrong[name][:, 1] / usual
        np.testing.assert_allclose(turned, np.clip(1 / expected, 1 / LARGEST_SURPRISE, LARGEST_SURPRISE))
        compared += 1
    assert compared > 5
    assert (np.diff(wrong.values, axis=-1) >= 0).all()


def _observed(folder: Path) -> Observation:
    policy = _small_loop(SITE, journal=folder / "j")
    return Observer(_source(MinuteSource, minutes=60), policy).observe(cycle_id=1, at_seconds=START_AT_SECONDS + 3600.0)


def _small_loop(site: Site, *, journal: Path) -> Policy:
    document = policy_for(site, journal=journal).model_dump(mode="json")
    document["search"] |= {"trials": 8, "generation": 4, "draws": 1, "confirm_draws": 2}
    document["forecast"] |= {"lstm": False, "statistical": False}
    # Without limits to keep there is always something to propose.
    for mapping in document["metrics"].values():
        mapping["limit"] = None
    return Policy.model_validate(document)


@pytest.mark.parametrize("factor", [3.0, -1.0])
def test_a_wrong_twin_multiplies_effects_and_is_right_about_the_setting_in_force(factor: float, tmp_path: Path) -> None:
    observation = _observed(tmp_path)
    forecast = Forecasting(_small_loop(SITE, journal=tmp_path / "j").forecast).forecast(observation)
    load = build_scenarios(observation, forecast, draws=1, seed=1)
    parameters = TwinParameters(knobs=IN_FORCE[0], levels=np.zeros(METRIC_COUNT))

    in_force, right = evaluate(IN_FORCE, load, parameters), evaluate(MOVED, load, parameters)
    wrong = WrongTwin(factor)(MOVED, load, parameters)

    effects = started_log(right) - started_log(in_force)
    np.testing.assert_allclose(wrong, from_started_log(started_log(in_force) + factor * effects))
    np.testing.assert_allclose(WrongTwin(factor)(IN_FORCE, load, parameters), in_force, atol=1e-9)
    # With long periods between decisions, those take longer to come; the wrong twin says by thrice, or the opposite.
    was, now = (each[1, :, LATENCY] / in_force[0, :, LATENCY] for each in (right, wrong))
    assert (was > 1.1).all()
    assert ((now > was) if factor > 0 else (now < 1.0)).all()


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[CycleRecord]:
    """Make the loop small, and keep its records."""
    kept: list[CycleRecord] = []
    close = Clocktuner.close

    def closing(self: Clocktuner) -> None:
        kept.extend(self.parts.journal.records())
        close(self)

    monkeypatch.setattr(sidecar, "policy_for", _small_loop)
    monkeypatch.setattr(Clocktuner, "close", closing)
    return kept


@pytest.mark.parametrize("arm", list(FAULT_ARMS))
def test_every_fault_reaches_the_loop_and_breaks_no_cycle(arm: str, records: list[CycleRecord]) -> None:
    workload = small(minutes=50, per_minute=20)
    replay(workload, WIDE.settings, site=SITE, tuner=Clocktuner)
    plain = [*records]
    records.clear()

    replay(workload, WIDE.settings, site=SITE, tuner=FAULT_ARMS[arm])

    assert len(records) == len(plain)
    assert all(record.failure is None for record in records)
    assert [record.reason for record in records] != [record.reason for record in plain]


def test_faults_have_an_arm_each_and_one_thing_wrong_each() -> None:
    shipped = sidecar.Instead()
    for name, fault in FAULTS.items():
        parts = [
            part for part in ("evaluate", "forecasting", "source") if getattr(fault, part) != getattr(shipped, part)
        ]
        assert len(parts) == 1, name
    assert set(FAULT_ARMS) == set(FAULTS)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ((0.0, 0.0, 0.0), 1.0),
        ((0.01, 0.01), math.exp(0.01)),
        # Mean 0.01, standard error 0.01, and 2.92 of them for three seeds.
        ((-0.01 * math.sqrt(3) + 0.01, 0.01, 0.01 * math.sqrt(3) + 0.01), math.exp(0.01 + 2.92 * 0.01)),
        ((0.01,), math.nan),
    ],
)
def test_the_worst_cost_is_the_upper_bound_over_the_seeds(scores: tuple[float, ...], expected: float) -> None:
    assert Spread.worst_ratio(scores) == pytest.approx(expected, rel=1e-4, nan_ok=True)


def _outcomes(**scores: tuple[float, ...]) -> Outcomes:
    def outcome(score: float) -> Outcome:
        metrics = metric_vector({"queue_wait_seconds": 100.0 * math.exp(score / 0.25)})
        return Outcome(metrics=metrics, windows=metrics[None])

    given = {UNTOUCHED: (0.0, 0.0), **dict.fromkeys(FAULT_ARMS, (0.0, 0.0)), **scores}
    return Outcomes({arm: tuple(map(outcome, values)) for arm, values in given.items()})


def test_the_worst_case_of_each_arm_counts_and_one_that_is_not_known_is_not_passed_over() -> None:
    found = [_outcomes(wrong_twin_x3=(0.05, 0.05)), _outcomes(wrong_twin_sign=(0.03, 0.03))]

    for scores in (Outcomes.scores, Outcomes.window_scores):
        assert worst_ratio(found, "wrong_twin_x3", scores) == pytest.approx(math.exp(0.05))
        assert mean_ratio(found, "wrong_twin_sign", scores) == pytest.approx(math.exp(0.03))
        assert worst_ratio(found, "wrong_twin_sign", scores) == pytest.approx(math.exp(0.03))
        assert worst_ratio(found, "missing_metrics", scores) == 1.0
        assert math.isnan(worst_ratio([*found, _single()], "missing_metrics", scores))


def _single() -> Outcomes:
    return Outcomes({arm: outcomes[:1] for arm, outcomes in _outcomes().outcomes.items()})


HARMS: Final = partial(Sets, period=4.0)
"""A tuner that knows what is worse."""


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a tuner that knows what is worse stand in for every arm with something wrong."""
    for place in ("tuner.bench.arms.FAULT_ARMS", "tuner.bench.safety.FAULT_ARMS"):
        monkeypatch.setattr(place, dict.fromkeys(FAULT_ARMS, HARMS))


@pytest.fixture
def laboratory(tmp_path: Path) -> Iterator[Laboratory]:
    made = Laboratory(Remembered(tmp_path / "replays"), say=lambda _: None, threads=2)
    yield made
    made.close()


@pytest.mark.usefixtures("planted")
def test_arms_with_something_wrong_are_compared_with_untouched_on_every_seed(laboratory: Laboratory) -> None:
    def case(bounds: Any) -> Case:
        return Case(name="small", bounds=bounds, workload=lambda seed: small(seed, minutes=20), seeds=(1, 2))

    wide, recommended = laboratory.mislead(case(WIDE)), laboratory.mislead(case(RECOMMENDED))

    assert set(wide.outcomes) == {UNTOUCHED, *FAULT_ARMS}
    assert all(score > 0.05 for score in wide.scores("wrong_twin_sign"))
    assert recommended.scores("wrong_twin_sign") == (0.0, 0.0)


KINDS = ("ratio", "window_ratio")


@pytest.mark.usefixtures("planted")
def test_the_safety_arms_alone_give_their_figures_and_go_on_where_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tuning, "_makers", lambda *_, **__: {"small": lambda seed: small(seed, minutes=20)})

    first, again = (_safety(tmp_path, seeds=2) for _ in range(2))

    assert set(first.figures) == {
        f"tuning_{bound}_{kind}_{arm}" for bound in ("mean", "worst") for kind in KINDS for arm in FAULT_ARMS
    }
    assert first.figures == again.figures
    assert again.setting["replays_made"] == 0
    assert set(first.goals) == {f"tuning_worst_{kind}_{arm}" for kind in KINDS for arm in FAULT_ARMS}
    assert all(not goal.met_by(first.figures[name]) for name, goal in first.goals.items())
    assert "cost against untouched" in capsys.readouterr().out


def _safety(folder: Path, *, seeds: int) -> Any:
    return tuning.run(trace=None, trace_format="csv", seeds=seeds, quick=True, cache=folder / "cache", arms=Arms.SAFETY)
