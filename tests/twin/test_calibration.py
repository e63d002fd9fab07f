import json
import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tuner.twin.calibration import Calibrator, knob_row
from tuner.twin.fitting import fit
from tuner.twin.model import EXTRAS, evaluate, simulate_records
from tuner.twin.parameters import PARAMETER_NAMES, PRIOR, SPREAD, TwinParameters
from tuner.twin.records import Memory, Record, record_interval
from tuner.twin.workload import Scenarios, build_scenarios
from tuner.values.knobs import DESIGN_RANGES, KnobValues, Role, SchedulerMode, middle
from tuner.values.metrics import METRIC_INDEX, METRIC_NAMES
from tuner.values.stages import FloatArray, Forecast, Observation

MakeObservation = Callable[..., Observation]

compiled = pytest.mark.skipif(
    os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="hundreds of runs of the kernel take minutes uncompiled"
)
MIDDLE = middle(DESIGN_RANGES.values())
OVERHEAD, WAIT = METRIC_INDEX["switch_overhead_ratio"], METRIC_INDEX["queue_wait_seconds"]


def with_slice(seconds: float) -> KnobValues:
    return KnobValues.of({**MIDDLE, Role.BASE_SLICE: seconds})


def planted(
    make_scenarios: Callable[..., Scenarios], grid: FloatArray, truth: FloatArray, *, noise: float = 0.0
) -> Memory:
    """Return a memory of what a scheduler with the true parameters would show, under every setting of the grid."""
    memory, generator = Memory(), np.random.default_rng(3)
    for index, knobs in enumerate(grid):
        # Crowded enough to share, with quick cold starts: else switching hides behind what it cannot be told from.
        scenario = make_scenarios(
            arrivals_per_second=np.array([0.2, 0.004, 6.0 + 3.0 * generator.random()]),
            running_tasks=np.array([6.0, 9.6, 20.0]),
            waiting_tasks=np.array([0.0, 3.0 * generator.random(), 0.0]),
            cold_start_seconds=0.5,
        )
        observed = simulate_records(knobs[None], scenario, truth[None])[0, 0]
        observed = observed * np.exp(noise * generator.standard_normal(observed.size))
        memory.add(Record(at_seconds=300.0 * index, knobs=knobs, scenario=scenario, observed=observed))
    return memory


@compiled
@pytest.mark.parametrize(
    ("name", "factor"),
    [("switch_seconds", 2.0), ("decision_seconds", 3.0), ("pause_seconds", 2.0), ("cold_floor_ratio", 2.5)],
)
def test_recovers_planted_parameters(
    make_scenarios: Callable[..., Scenarios], grid: FloatArray, name: str, factor: float
) -> None:
    truth = PRIOR.copy()
    place = PARAMETER_NAMES.index(name)
    truth[place] += np.log(factor)

    found = fit(planted(make_scenarios, grid, truth, noise=0.01), PRIOR, iterations=12)

    assert found.log_values[place] == pytest.approx(truth[place], abs=0.25)
    assert found.log_errors[place] < 0.5 * SPREAD[place]


@compiled
def test_what_cannot_be_told_stays_at_its_prior_with_its_spread(
    make_scenarios: Callable[..., Scenarios], grid: FloatArray
) -> None:
    memory = planted(make_scenarios, grid, PRIOR)
    blind = Memory()
    for record in memory.records:
        observed = np.full_like(record.observed, np.nan)
        observed[METRIC_INDEX["scheduling_latency_seconds"]] = record.observed[0]
        blind.add(replace(record, observed=observed))

    found = fit(blind, PRIOR, iterations=6)

    place = PARAMETER_NAMES.index("switch_seconds")
    assert found.log_values[place] == pytest.approx(PRIOR[place], abs=0.05)
    assert found.log_errors[place] > 0.9 * SPREAD[place]


@compiled
def test_a_change_tells_a_parameter_from_the_drift_of_the_day(
    make_scenarios: Callable[..., Scenarios], grid: FloatArray
) -> None:
    truth = PRIOR.copy()
    place = PARAMETER_NAMES.index("switch_seconds")
    truth[place] += np.log(2.0)
    memory = planted(make_scenarios, grid, truth)
    # What physics does not know doubles in an hour, as slowly as loads do.
    for record in memory.records:
        record.observed[OVERHEAD] *= np.exp2(record.at_seconds / 3600.0)

    assert fit(memory, PRIOR, iterations=12).log_values[place] == pytest.approx(truth[place], abs=0.35)


@compiled
def test_levels_of_what_is_erratic_are_believed_less(
    make_scenarios: Callable[..., Scenarios], grid: FloatArray
) -> None:
    steady, erratic = planted(make_scenarios, grid, PRIOR), planted(make_scenarios, grid, PRIOR)
    for index in range(len(grid)):
        steady.records[index].observed[WAIT] = 30.0
        erratic.records[index].observed[WAIT] = 30.0 * 8.0 ** (-1.0) ** index

    one, other = fit(steady, PRIOR, iterations=1), fit(erratic, PRIOR, iterations=1)

    assert other.level_errors[WAIT] > 1.5 * one.level_errors[WAIT]


def test_a_single_step_of_the_fit_on_a_single_interval_is_finite(make_observation: MakeObservation) -> None:
    record = record_interval(make_observation(steps=20), knob_row(MIDDLE))
    assert record is not None
    memory = Memory()
    memory.add(record)

    found = fit(memory, PRIOR, iterations=1)

    assert np.isfinite(found.log_values).all()
    assert (found.log_errors <= SPREAD * (1.0 + 1e-9)).all()
    assert np.isfinite(found.levels).all()
    assert (found.level_errors > 0).all()


@compiled
def test_an_outlier_does_not_rule_the_fit(make_scenarios: Callable[..., Scenarios], grid: FloatArray) -> None:
    truth = PRIOR.copy()
    place = PARAMETER_NAMES.index("switch_seconds")
    truth[place] += np.log(2.0)
    memory = planted(make_scenarios, grid, truth)
    memory.records[4].observed[OVERHEAD] *= 20.0

    assert fit(memory, PRIOR, iterations=12).log_values[place] == pytest.approx(truth[place], abs=0.4)


@compiled
def test_levels_anchor_the_setting_in_force_to_what_is_observed(
    make_observation: MakeObservation, forecast: Forecast
) -> None:
    calibrator = Calibrator()
    observation = make_observation()
    calibrator.observe(observation)
    parameters = calibrator.parameters(observation.at_seconds)
    # Nothing changes in the load ahead: the twin must say what was observed.
    steady = replace(forecast, names=("nothing",))
    scenarios = build_scenarios(observation, steady, draws=1, seed=1)

    said = evaluate(knob_row(MIDDLE)[None], scenarios, parameters)[0, 1]

    assert said == pytest.approx(observation.metrics, rel=0.1)


@compiled
def test_learns_from_the_history_that_the_first_observation_brings(make_observation: MakeObservation) -> None:
    calibrator = Calibrator()
    calibrator.observe(make_observation(steps=130))

    parameters = calibrator.parameters(1e9)

    assert parameters.records == 8
    assert parameters.knobs == pytest.approx(knob_row(MIDDLE))
    assert 0 < parameters.offered_low <= parameters.offered_high
    assert 0.9 < parameters.fidelity_ratio <= 1.0


@compiled
@pytest.mark.parametrize(("ago_seconds", "records"), [(1e6, 8), (2 * 900.0, 2), (2 * 900.0 - 1, 1), (0.0, 0)])
def test_history_from_before_the_last_change_is_not_taken_for_the_setting_in_force(
    make_observation: MakeObservation, ago_seconds: float, records: int
) -> None:
    observation = make_observation(steps=130)
    calibrator = Calibrator()
    calibrator.changed(observation.history.end_at_seconds - ago_seconds)

    calibrator.observe(observation)

    assert calibrator.intervals == records


@compiled
def test_has_no_fidelity_before_it_has_foretold_anything(make_observation: MakeObservation) -> None:
    calibrator = Calibrator()
    assert np.isnan(calibrator.parameters(0.0).fidelity_ratio)
    calibrator.observe(make_observation(steps=20))

    assert calibrator.parameters(1e9).records == 1
    assert np.isnan(calibrator.parameters(1e9).fidelity_ratio)


def test_learns_nothing_without_settings_or_with_too_little_history(make_observation: MakeObservation) -> None:
    calibrator = Calibrator()
    calibrator.observe(make_observation(knobs=None))
    calibrator.observe(make_observation(steps=10))

    assert calibrator.parameters(1e9).records == 0


def test_learns_nothing_in_another_mode_or_when_nothing_arrives(make_observation: MakeObservation) -> None:
    for change in ({"mode": SchedulerMode.SIMPLIFIED}, {"arriving": False}):
        calibrator = Calibrator()
        calibrator.observe(replace(make_observation(), **change))

        assert calibrator.parameters(1e9).records == 0


@compiled
def test_an_interval_counts_only_if_the_setting_held_all_through_it(make_observation: MakeObservation) -> None:
    calibrator = Calibrator()
    calibrator.observe(make_observation(steps=20, at_seconds=1e9))
    changed = with_slice(0.08)

    for minutes, expected in ((5, 1), (10, 1), (20, 2), (22, 2), (25, 3)):
        at_seconds = 1e9 + 60.0 * minutes
        calibrator.observe(make_observation(steps=20, at_seconds=at_seconds, knobs=changed))
        assert calibrator.parameters(at_seconds).records == expected, minutes

    parameters = calibrator.parameters(1e9 + 1500.0)
    assert (parameters.knobs_low[0], parameters.knobs_high[0]) == (0.08, 0.115)
    assert parameters.knobs[0] == 0.08


@compiled
def test_follows_a_scheduler_that_gets_slower(make_observation: MakeObservation) -> None:
    calibrator = Calibrator()
    calibrator.observe(make_observation())
    before = calibrator.parameters(1e9).levels[WAIT]
    for minutes in range(15, 120, 15):
        calibrator.observe(make_observation(at_seconds=1e9 + 60.0 * minutes, queue_wait_seconds=90.0))

    assert calibrator.parameters(1e9 + 7000.0).levels[WAIT] > before + 0.5


@compiled
def test_says_the_same_again_for_the_same_observations(make_observation: MakeObservation) -> None:
    texts = []
    for _ in range(2):
        calibrator = Calibrator()
        for minutes in (0, 15, 30):
            calibrator.observe(make_observation(at_seconds=1e9 + 60.0 * minutes))
        texts.append(calibrator.parameters(1e9 + 1800.0).to_json())

    assert texts[0] == texts[1]


@compiled
def test_old_levels_are_worth_less(make_observation: MakeObservation) -> None:
    calibrator = Calibrator()
    calibrator.observe(make_observation())

    fresh, stale = calibrator.parameters(1e9 + 600.0), calibrator.parameters(1e9 + 3600.0)

    assert (stale.level_errors == 2.0 * fresh.level_errors).all()


def test_begins_with_what_an_earlier_process_learned(make_observation: MakeObservation) -> None:
    earlier = replace(TwinParameters(), records=5, fidelity_ratio=0.8)

    assert Calibrator(earlier).parameters(0.0).fidelity_ratio == 0.8


def test_trust_follows_the_gains_that_came_true() -> None:
    calibrator = Calibrator()
    assert calibrator.trust_ratio == 0.5

    assert calibrator.realised(-0.05, -0.04) > 0.5
    assert calibrator.trust_ratio > 0.5


@compiled
def test_a_restart_does_not_begin_anew(make_observation: MakeObservation) -> None:
    calibrator = Calibrator()
    calibrator.observe(make_observation(steps=130))
    _try_changes(calibrator, 8)

    back = Calibrator.from_json(calibrator.to_json())
    fidelity = back.parameters(1e9).fidelity_ratio
    back.observe(make_observation(steps=20))

    assert fidelity == calibrator.parameters(1e9).fidelity_ratio
    assert np.isfinite(back.parameters(1e9).fidelity_ratio)
    assert back.trust_ratio == calibrator.trust_ratio
    assert back.sign_hit_ratio == calibrator.sign_hit_ratio
    assert back.rank_agreement == calibrator.rank_agreement
    np.testing.assert_array_equal(back.residual.coefficients, calibrator.residual.coefficients)
    assert back.residual.coefficients.any()


def test_what_it_stores_is_read_back_exactly_and_stays_small() -> None:
    calibrator = Calibrator()
    _try_changes(calibrator, 100)

    text = calibrator.to_json()

    assert Calibrator.from_json(text).to_json() == text
    assert len(text) < 65_536


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: "",
        lambda text: text[: len(text) // 2],
        lambda _: "[]",
        lambda _: "{}",
        lambda text: text.replace('"format": 1', '"format": 9'),
        lambda text: json.dumps({**json.loads(text), "trust": "null"}),
        lambda text: json.dumps({**json.loads(text), "trust": None}),
        lambda text: json.dumps({**json.loads(text), "fidelity": "[]"}),
        lambda text: json.dumps({**json.loads(text), "parameters": "{}"}),
        lambda text: json.dumps({"format": 1}),
        lambda text: text.replace('\\"records\\": 0', '\\"records\\": -1'),
        lambda text: text.replace('\\"records\\": 0', '\\"records\\": null'),
    ],
)
def test_a_damaged_text_is_refused(damage: Callable[[str], str]) -> None:
    calibrator = Calibrator()
    _try_changes(calibrator, 3)
    text = calibrator.to_json()
    assert damage(text) != text

    with pytest.raises(ValueError, match=r"."):
        Calibrator.from_json(damage(text))


def test_distrust_fades_while_nothing_is_tried(make_observation: MakeObservation) -> None:
    calibrator = Calibrator()
    calibrator.observe(make_observation(knobs=None, at_seconds=1e9))
    for _ in range(20):
        calibrator.realised(-0.05, 0.05)
    low = calibrator.trust_ratio

    calibrator.observe(make_observation(knobs=None, at_seconds=1e9 + 4 * 7 * 86_400.0))

    assert low < 0.15
    assert calibrator.trust_ratio > 0.35


def _try_changes(calibrator: Calibrator, count: int) -> None:
    generator = np.random.default_rng(2)
    for promised, came in generator.normal(0.0, 0.05, (count, 2)).tolist():
        calibrator.realised(
            promised,
            came,
            noise=0.01,
            twin_score=2 * promised,
            moved=generator.uniform(-0.2, 0.2, len(Role)).tolist(),
            context=generator.uniform(2.0, 8.0, 6).tolist(),
        )


def test_memory_keeps_what_was_tried_once_and_forgets_the_oldest_of_the_commonest(
    make_observation: MakeObservation,
) -> None:
    memory = Memory(capacity=3)
    usual, rare = knob_row(MIDDLE), knob_row(with_slice(0.08))
    for at_seconds, knobs in ((1.0, rare), (2.0, usual), (3.0, usual), (4.0, usual)):
        record = record_interval(make_observation(), knobs)
        assert record is not None
        memory.add(replace(record, at_seconds=at_seconds))

    assert memory.at_seconds.tolist() == [1.0, 3.0, 4.0]
    assert len(memory) == 3


def test_an_interval_with_too_many_gaps_has_no_sample(make_observation: MakeObservation) -> None:
    observation = make_observation(steps=20)
    observation.history["queue_wait_seconds"][-10:] = np.nan
    observation.history["queue_length"][-3:] = np.nan

    record = record_interval(observation, knob_row(MIDDLE))

    assert record is not None
    assert np.isnan(record.observed[WAIT])
    assert record.observed[METRIC_INDEX["queue_length"]] == 4.0
    assert len(record.observed) == len(METRIC_NAMES) + len(EXTRAS)


def test_an_interval_of_nothing_but_gaps_is_none(make_observation: MakeObservation) -> None:
    observation = make_observation(steps=20)
    observation.history.values[:] = np.nan

    assert record_interval(observation, knob_row(MIDDLE)) is None
