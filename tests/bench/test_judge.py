"""`bench judge`: that it counts what it says, on trials that run the switchback itself."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tuner.bench import judge as bench
from tuner.bench.judge_noise import LEG_STEPS, WASH_OUT_STEPS, Recording, record_run, recording
from tuner.bench.judge_trials import (
    MAX_STEPS,
    PAST_STEPS,
    TERMS,
    Case,
    Ended,
    Noise,
    day,
    simulate,
    trials,
)
from tuner.bench.results import Results
from tuner.values.metrics import DEFAULT_WEIGHTS, FLOORS, METRIC_COUNT, SIGNS
from tuner.values.stages import FloatArray
from tuner.verify.budget import SHARE

LENGTH = PAST_STEPS + MAX_STEPS
ALPHA = 0.03
FIGURES = (
    "judge_false_promotion_ratio",
    "judge_missed_gain_ratio",
    "judge_false_harm_stop_ratio",
    "judge_harmful_stop_pairs_median",
)


def quiet(seed: int = 0, deviation: float = 0.001) -> FloatArray:
    return np.random.default_rng(seed).normal(0.0, deviation, (LENGTH, METRIC_COUNT))


def ended(**changes: Any) -> Ended:
    given = {
        "promoted": False,
        "kept": False,
        "harm": False,
        "worse": False,
        "pairs": 3,
        "seconds": 4000.0,
        "on_trial_seconds": 2000.0,
        "used": 0.01,
    }
    return Ended(**{**given, **changes})


# Noise.


def test_a_recording_tells_the_noise_of_its_legs() -> None:
    """Metrics that all jump by 10 % from each leg to the one that would be its partner, and back."""
    period = LEG_STEPS + WASH_OUT_STEPS
    high = np.arange(20 * period) // period % 2
    metrics = 100 * FLOORS * np.exp(np.outer(high, np.where(DEFAULT_WEIGHTS > 0, SIGNS * 0.1, 0.0)))

    recorded = recording("made up", metrics)

    # The difference is +-0.1 wherever a leg lies within a period, and less where it lies across two.
    assert 0.7 * 0.1 <= recorded.noise_ratio * np.sqrt(2) <= 0.1
    assert np.nanmean(recorded.logs, axis=0) == pytest.approx(np.zeros(METRIC_COUNT), abs=1e-9)
    assert replace(recorded, logs=recorded.scaled(0.05)).logs == pytest.approx(
        recorded.logs * 0.05 / recorded.noise_ratio
    )


def test_a_metric_without_samples_stays_without_and_takes_no_part_in_the_noise() -> None:
    metrics = 100 * FLOORS * np.exp(quiet(deviation=0.1))
    missing = metrics.copy()
    missing[:, 12] = np.nan

    recorded = recording("made up", missing)

    assert np.isnan(recorded.logs[:, 12]).all()
    assert 0 < recorded.noise_ratio < recording("made up", metrics).noise_ratio * 1.5


def test_the_reference_scheduler_is_recorded_once_a_minute_and_the_same_each_time() -> None:
    first, second = (record_run("openb", 1, hours=1.5) for _ in range(2))

    assert first.logs.shape == (90 - 4, METRIC_COUNT)
    assert np.array_equal(first.logs, second.logs, equal_nan=True)
    assert first.noise_ratio > 0


def test_stretches_are_whole_and_as_noisy_as_asked_for() -> None:
    minutes = np.arange(LENGTH + 50, dtype=np.float64)
    run = Recording("made up", np.tile(minutes[:, None], (1, METRIC_COUNT)), noise_ratio=0.1)

    drawn = [Noise([run], 0.2).draw(np.random.default_rng(seed)) for seed in range(20)]

    assert {each.shape for each in drawn} == {(LENGTH, METRIC_COUNT)}
    assert all(np.diff(each[:, 0]) == pytest.approx(2.0) for each in drawn)
    assert len({float(each[0, 0]) for each in drawn}) > 5


# Trials.


def test_without_noise_to_speak_of_gains_are_promoted_and_harms_are_undone() -> None:
    gain = simulate(quiet(), effect=-0.1, alpha=ALPHA)
    harm = simulate(quiet(), effect=0.1, alpha=ALPHA)

    assert (gain.promoted, gain.kept, gain.worse) == (True, False, False)
    assert gain.used == ALPHA
    assert (harm.promoted, harm.kept, harm.harm, harm.worse) == (False, False, True, True)
    assert harm.on_trial_seconds == harm.seconds < gain.seconds


def test_a_trial_lasts_no_longer_than_its_pairs_take() -> None:
    longest = max(simulate(quiet(seed, 0.2), effect=-0.02, alpha=ALPHA).seconds for seed in range(5))

    legs = 2 * TERMS.max_pairs - 1  # The first one is that before the change.
    assert longest <= legs * TERMS.leg_seconds + TERMS.max_pairs * TERMS.wash_out_seconds


def test_a_trial_that_does_not_end_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="did not end"):
        simulate(quiet()[: PAST_STEPS + 10], effect=0.0, alpha=ALPHA)


def test_equal_seeds_give_equal_trials() -> None:
    noise = Noise([Recording("made up", np.vstack([quiet(1, 0.1), quiet(2, 0.1)]), 0.1)], 0.05)
    case = Case(effect=-0.05, noise_ratio=0.05, alpha=ALPHA)

    first, second = (tuple(trials(noise, case, count=3, rng=np.random.default_rng(4))) for _ in range(2))

    assert first == second


def test_a_days_trials_share_one_budget() -> None:
    noise = Noise([Recording("made up", np.vstack([quiet(1, 0.1), quiet(2, 0.1)]), 0.1)], 0.05)

    ran = tuple(day(noise, ratio=0.05, count=4, rng=np.random.default_rng(4)))

    assert len(ran) == 4
    assert all(0 <= each.used <= SHARE * 0.05 for each in ran)
    assert sum(each.used for each in ran) <= 0.05


def test_however_often_they_are_looked_at_changes_without_effect_are_promoted_no_more_often_than_promised() -> None:
    alpha, count = 0.1, 150

    promoted = [simulate(quiet(seed, 0.3), effect=0.0, alpha=alpha).promoted for seed in range(count)]

    # Three standard errors of that many.
    assert np.mean(promoted) <= alpha + 3 * np.sqrt(alpha * (1 - alpha) / count)
    assert any(promoted)


# Figures.


def test_every_error_is_counted_as_what_it_is() -> None:
    results = Results("judge")

    bench.add_errors(
        results,
        equal=[ended(promoted=True), ended(harm=True, worse=True), ended(worse=True), ended(kept=True)],
        good=[ended(promoted=True), ended(kept=True), ended(), ended(harm=True, worse=True)],
        bad=[ended(pairs=1), ended(pairs=2), ended(kept=True, pairs=5)],
        of_days=[[ended(), ended(promoted=True), ended(promoted=True)], [ended()], [ended()], [ended()]],
    )

    assert results.figures == {
        "judge_false_promotion_ratio": 0.25,
        "judge_false_promotion_per_day_ratio": 0.25,
        "judge_missed_gain_ratio": 0.75,
        "judge_false_harm_stop_ratio": 0.5,
        "judge_harmful_stop_pairs_median": 2.0,
        "judge_false_harm_found_ratio": 0.25,
        "judge_undone_gain_ratio": 0.5,
        "judge_harmful_promoted_ratio": 0.0,
        "judge_harmful_kept_ratio": pytest.approx(1 / 3),
    }
    assert set(FIGURES) < set(results.goals)


def test_a_harm_that_stays_is_not_stopped_after_any_number_of_pairs() -> None:
    results = Results("judge")

    bench.add_errors(results, equal=[], good=[], bad=[ended(kept=True, pairs=1)] * 3, of_days=[])

    assert results.figures["judge_harmful_stop_pairs_median"] == np.inf
    assert results.to_json()["figures"]["judge_harmful_stop_pairs_median"] is None  # type: ignore[index]
    assert not results.goals["judge_harmful_stop_pairs_median"].met_by(np.inf)


def test_harm_time_is_that_in_force_until_it_was_undone() -> None:
    results = Results("judge")

    bench.add_costs(
        results, equal=[ended(seconds=9.0)], good=[ended()], bad=[ended(on_trial_seconds=600.0), ended(kept=True)]
    )

    assert results.figures["judge_harm_seconds_p50"] == 600.0
    assert results.figures["judge_trial_seconds_mean_equal"] == 9.0


@pytest.mark.parametrize(("effect", "name"), [(-0.1, "gain_10"), (0.0, "equal"), (0.05, "harm_5")])
def test_cells_of_the_table_say_what_is_planted(effect: float, name: str) -> None:
    assert bench.cell(effect) == name


def test_the_whole_benchmark_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = tuple(recording(f"made_up/{seed}", 100 * FLOORS * np.exp(_long(seed))) for seed in (1, 2))

    class Here:
        """Does the work in this process."""

        def __init__(self, *_: Any, initializer: Any, initargs: Any, **__: Any) -> None:
            initializer(*initargs)

        def __enter__(self) -> "Here":
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def map(self, function: Any, works: Any, chunksize: int = 1) -> Any:
            del chunksize
            return map(function, works)

    monkeypatch.setattr(bench, "record", lambda *_, **__: runs)
    monkeypatch.setattr(bench, "ProcessPoolExecutor", Here)
    for name, value in {"QUICK_TRIALS": 12, "QUICK_DAYS": 2, "TRIALS_A_DAY": 2, "QUICK_TABLE_TRIALS": 1}.items():
        monkeypatch.setattr(bench, name, value)

    results = bench.run(quick=True)
    results.write(tmp_path / "judge.json")

    stored = SimpleNamespace(**json.loads((tmp_path / "judge.json").read_text(encoding="utf-8")))
    assert set(FIGURES) <= set(stored.goals)
    assert stored.setting["simulated"] is True
    cells = len(bench.TABLE_EFFECTS) * len(bench.TABLE_NOISES)
    assert sum(name.startswith("judge_promoted_ratio_") for name in stored.figures) == cells
    # Gains of 10 % at such a noise are mostly promoted, and such harms are undone, or nothing was planted.
    assert stored.figures["judge_missed_gain_ratio"] < 0.7
    assert stored.figures["judge_harmful_promoted_ratio"] == 0.0


def _long(seed: int) -> FloatArray:
    return np.random.default_rng(seed).normal(0.0, 0.1, (LENGTH + 200, METRIC_COUNT))
