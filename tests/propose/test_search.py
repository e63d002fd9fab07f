"""The search against an analytic stand-in of the twin, whose optimum, flats, cliffs and limits are known."""

import io
import itertools
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.propose import search as search_module
from tuner.propose.inputs import SearchInputs
from tuner.propose.objective import assess
from tuner.propose.search import search
from tuner.propose.space import Space, rows
from tuner.settings.model import SearchSettings
from tuner.twin.parameters import TwinParameters
from tuner.twin.residual import Residual, displacement, fit
from tuner.twin.trust import Evidence
from tuner.twin.workload import Scenarios
from tuner.values.knobs import DESIGN_RANGES, KnobSpec, KnobValues, Role, limit_slew, middle
from tuner.values.metrics import DEFAULT_WEIGHTS, METRIC_INDEX, metric_vector
from tuner.values.stages import FloatArray, Proposal

SPECS = tuple(DESIGN_RANGES.values())
NO_LIMITS = np.full(13, np.nan)
LOW = KnobValues.of({spec.role: spec.low for spec in SPECS})
MIDDLE = middle(SPECS)
UNTOUCHED = metric_vector(
    {
        "scheduling_latency_seconds": 0.3,
        "resource_idle_ratio": 0.2,
        "accelerator_utilization_ratio": 0.7,
        "queue_wait_seconds": 12.0,
        "tasks_completed_per_second": 2.0,
        "task_abandonment_ratio": 0.02,
        "switch_overhead_ratio": 0.07,
        "high_priority_wait_seconds": 1.5,
    }
)


def scenarios(count: int, seed: int) -> Scenarios:
    """Loads around one, the only thing that the stand-in reads."""
    load = np.random.default_rng(seed).normal(1.0, 0.1, size=count)
    read = {"arrivals_per_second": np.repeat(load, 8).reshape(count, 2, 4), "weights": np.full(count, 1.0 / count)}
    return Scenarios.from_arrays({name: read.get(name, np.ones(count)) for name in Scenarios.__slots__})


def inputs(**changes: Any) -> SearchInputs:
    given: dict[str, Any] = {
        "cycle_id": 7,
        "specs": SPECS,
        "incumbent": LOW,
        "scenarios": scenarios(6, seed=1),
        "confirm_scenarios": scenarios(24, seed=2),
        "parameters": replace(TwinParameters(), fidelity_ratio=0.8),
        "weights": DEFAULT_WEIGHTS,
        "limits": NO_LIMITS,
        "warm_starts": (),
        "trust": 1.0,
        "seed": 3,
        "settings": SearchSettings(),
    }
    return SearchInputs(**{**given, **changes})


def positions(knobs: FloatArray) -> FloatArray:
    """Where the knobs lie in the design ranges, 0..1; NaN where absent."""
    return np.array([[spec.position(value) for spec, value in zip(SPECS, row, strict=True)] for row in knobs])


@dataclass
class Bowl:
    """Queue wait grows with the distance from an optimum that moves with the load; the rest stays."""

    optimum: tuple[float, float, float, float] = (0.4, 0.3, 0.6, 0.2)
    steepness: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0)
    shape: Callable[[FloatArray, FloatArray], None] | None = None
    calls: list[FloatArray] = field(default_factory=list)

    def __call__(self, knobs: FloatArray, scenarios: Scenarios, parameters: TwinParameters) -> FloatArray:
        self.calls.append(knobs)
        load = scenarios.arrivals_per_second.mean(axis=(1, 2))
        away = np.nan_to_num(positions(knobs) - np.array(self.optimum))[:, None, :] + 0.2 * (load[:, None] - 1.0)
        metrics = np.tile(UNTOUCHED, (len(knobs), len(load), 1))
        metrics[..., METRIC_INDEX["queue_wait_seconds"]] *= np.exp((away**2 * self.steepness).sum(axis=-1)) * load
        if self.shape is not None:
            self.shape(positions(knobs), metrics)
        return metrics


CROWD = (8.0, 6.0, 9.0, 5.0, 0.1, 0.5)


def _trial(promised: float, came: float, moved: tuple[float, ...]) -> Evidence:
    return Evidence(
        predicted_score=promised,
        observed_score=came,
        noise=0.02,
        twin_score=promised,
        moved=moved,
        context=CROWD,
    )


def learned(comes_of: Callable[[float], float]) -> Residual:
    """What a dozen changes of all sizes taught."""
    generator = np.random.default_rng(5)
    evidence = [
        _trial(promised, comes_of(promised), tuple(generator.uniform(0.0, 0.3, 4).tolist()))
        for promised in generator.uniform(-0.3, -0.02, 12).tolist()
    ]
    return fit(evidence, at_seconds=0.0)


def run(twin: Bowl, **changes: Any) -> Proposal:
    return search(inputs(**changes), evaluate=twin)


def best_reachable(given: SearchInputs, twin: Bowl) -> float:
    """The best true score by trying everything."""
    space = Space.around(given.incumbent, given.specs, trust=given.trust, choices=given.choices)
    knobs = rows([given.incumbent, *map(space.values, space.points())])
    metrics = twin(knobs, given.confirm_scenarios, given.parameters)
    assessment = assess(
        metrics[1:],
        metrics[0],
        weights=given.weights,
        limits=given.limits,
        scenario_weights=given.confirm_scenarios.weights,
    )
    return float(assessment.rank_value.min())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("incumbent", [LOW, MIDDLE, KnobValues.of({spec.role: spec.high for spec in SPECS})])
def test_comes_within_half_a_percent_of_the_best_setting_that_one_change_may_reach(
    seed: int, incumbent: KnobValues
) -> None:
    given = inputs(seed=seed, incumbent=incumbent)

    found = search(given, evaluate=Bowl())

    assert found.score <= best_reachable(given, Bowl()) + search_module.IDLE_MOVE_SCORE + 0.005
    assert found.trials == 100


def test_a_small_space_is_tried_out_in_full_and_its_best_is_found() -> None:
    given = inputs(incumbent=MIDDLE, trust=0.01)

    found = search(given, evaluate=Bowl())

    assert found.trials == 3**4
    assert found.score <= best_reachable(given, Bowl()) + search_module.IDLE_MOVE_SCORE


@pytest.mark.parametrize(("trials", "generation"), [(8, 20), (8, 4), (26, 50), (300, 50)])
def test_any_budget_is_used_to_the_last_candidate(trials: int, generation: int) -> None:
    # 3 x 3 x 3 reachable settings for the smaller budgets, thousands for the largest.
    small = {"specs": SPECS[:3], "incumbent": middle(SPECS[:3]), "trust": 0.01} if trials < 27 else {}

    found = run(Bowl(), settings=SearchSettings(trials=trials, generation=generation), **small)

    assert found.trials == trials


def test_the_setting_in_force_is_kept_where_it_is_best() -> None:
    optimum = KnobValues.of({spec.role: spec.at(2) for spec in SPECS})
    twin = Bowl(optimum=tuple(positions(rows([optimum]))[0]), steepness=(5.0,) * 4)

    kept = run(twin, incumbent=optimum)

    assert not kept.changes
    assert (kept.score, kept.score_error, kept.feasible) == (0.0, 0.0, True)
    assert kept.reason.startswith("no candidate of 100 beats the setting in force: ")


def test_a_flat_twin_moves_nothing() -> None:
    kept = run(Bowl(steepness=(0.0,) * 4))

    assert not kept.changes


def test_a_knob_in_whose_direction_the_twin_is_flat_stays_where_it_is() -> None:
    found = run(Bowl(steepness=(2.0, 0.0, 2.0, 0.0)), incumbent=MIDDLE)

    assert set(found.candidate.differs(found.incumbent)) <= {Role.BASE_SLICE, Role.DECISION_PERIOD}
    assert found.changes


def test_equal_inputs_give_equal_proposals_and_other_seeds_need_not() -> None:
    first, second = run(Bowl()), run(Bowl())

    assert _same(first, second)
    assert any(not np.array_equal(a, b) for a, b in zip(_asked(seed=3), _asked(seed=4), strict=False))


def test_a_generation_is_one_call_and_no_setting_is_scored_twice() -> None:
    twin = Bowl()

    found = run(twin)

    searched = [knobs for knobs in twin.calls if len(knobs) > 8]
    assert [len(knobs) for knobs in searched] == [1 + 20, 20, 20, 20, 20]
    scored = np.concatenate(searched)[1:]
    assert len(np.unique(scored, axis=0)) == len(scored) == found.trials


def test_the_first_generation_holds_what_is_in_force_the_middle_and_the_warm_starts() -> None:
    warm = KnobValues.of({**LOW, Role.BASE_SLICE: 0.095, Role.RESERVATION: 0.16})
    far = KnobValues.of({spec.role: spec.high for spec in SPECS})
    twin = Bowl()

    run(twin, warm_starts=(warm, far))

    first = twin.calls[0].tolist()
    reachable = [limit_slew(values, LOW, SPECS) for values in (MIDDLE, far)]
    assert first[:2] == rows([LOW, LOW]).tolist()
    assert all(row in first for row in rows([warm, *reachable]).tolist())
    assert len(first) == 21


@given(
    shares=st.tuples(*[st.floats(0, 1)] * 4),
    trust=st.floats(0.01, 3.0),
    targets=st.lists(st.tuples(*[st.floats(0, 1)] * 4), min_size=1, max_size=5),
)
def test_no_point_of_the_space_needs_more_than_one_change(
    shares: tuple[float, ...], trust: float, targets: list[tuple[float, ...]]
) -> None:
    incumbent = KnobValues.of(
        {spec.role: spec.low + share * (spec.high - spec.low) for spec, share in zip(SPECS, shares, strict=True)}
    )
    space = Space.around(incumbent, SPECS, trust=trust, choices={})

    for values in (space.values(space.at(target)) for target in targets):
        assert limit_slew(values, incumbent, SPECS, trust=trust) == values


def test_low_trust_makes_small_steps_and_high_trust_large_ones() -> None:
    careful, bold = run(Bowl(), trust=0.3), run(Bowl(), trust=2.0)

    assert limit_slew(careful.candidate, LOW, SPECS, trust=0.3) == careful.candidate
    assert limit_slew(bold.candidate, LOW, SPECS, trust=1.0) != bold.candidate
    assert bold.score < careful.score < 0


def test_an_incumbent_off_the_grid_and_out_of_range_is_compared_as_it_is() -> None:
    odd = KnobValues.of({**MIDDLE, Role.BASE_SLICE: 0.1037, Role.RESERVATION: 0.27})
    twin = Bowl()

    found = run(twin, incumbent=odd)

    assert twin.calls[0][0].tolist() == rows([odd])[0].tolist()
    assert found.incumbent == odd
    assert all(spec.contains(found.candidate[spec.role]) for spec in SPECS)


def test_absent_roles_stay_absent() -> None:
    specs = (DESIGN_RANGES[Role.BASE_SLICE], DESIGN_RANGES[Role.DECISION_PERIOD])
    twin = Bowl()

    found = run(twin, specs=specs, incumbent=middle(specs))

    assert set(found.candidate) == {Role.BASE_SLICE, Role.DECISION_PERIOD}
    assert np.isnan(np.concatenate(twin.calls)[:, [1, 3]]).all()


def test_a_single_fine_knob_is_searched() -> None:
    spec = KnobSpec(role=Role.BASE_SLICE, low=0.08, high=0.15, step=0.0001, slew=0.03)

    found = run(Bowl(steepness=(9.0, 0, 0, 0)), specs=(spec,), incumbent=KnobValues.of({Role.BASE_SLICE: 0.08}))

    assert found.candidate[Role.BASE_SLICE] == pytest.approx(0.108, abs=0.003)


def test_a_knob_that_is_set_by_words_takes_only_their_values() -> None:
    choices = {Role.DECISION_PERIOD: (0.5, 0.6, 0.65, 0.9)}
    given = inputs(choices=choices, warm_starts=(MIDDLE,))
    twin = Bowl()

    found = search(given, evaluate=twin)

    tried = np.concatenate(twin.calls)[:, 2]
    assert set(tried) <= {0.5, 0.6, 0.65, 0.9}
    # 0.9 s is further away than one change may go, and is seen only as a neighbour.
    assert found.candidate[Role.DECISION_PERIOD] in {0.5, 0.6, 0.65}
    assert found.score <= best_reachable(given, Bowl()) + 0.02


def test_where_there_is_no_choice_nothing_is_proposed() -> None:
    spec = DESIGN_RANGES[Role.DECISION_PERIOD]

    kept = run(Bowl(), specs=(spec,), incumbent=middle([spec]), choices={Role.DECISION_PERIOD: (0.75,)})

    assert not kept.changes
    assert kept.reason == "no candidate of 1 beats the setting in force"


def test_a_candidate_that_breaks_a_limit_is_never_proposed_however_good_its_score() -> None:
    def latency_beyond(position: FloatArray, metrics: FloatArray) -> None:
        metrics[..., METRIC_INDEX["scheduling_latency_seconds"]] = np.where(position[:, :1] > 0.2, 0.4, 0.3)

    limits = metric_vector({"scheduling_latency_seconds": 0.35})

    free = run(Bowl(shape=latency_beyond, steepness=(9.0, 1.0, 1.0, 1.0)))
    limited = run(Bowl(shape=latency_beyond, steepness=(9.0, 1.0, 1.0, 1.0)), limits=limits)

    assert DESIGN_RANGES[Role.BASE_SLICE].position(free.candidate[Role.BASE_SLICE]) > 0.2
    assert DESIGN_RANGES[Role.BASE_SLICE].position(limited.candidate[Role.BASE_SLICE]) <= 0.2
    assert limited.feasible
    assert limited.violations == ()


def test_where_every_candidate_breaks_a_limit_the_reason_says_so() -> None:
    def broken_but_in_force(position: FloatArray, metrics: FloatArray) -> None:
        in_force = (np.abs(position) < 1e-9).all(axis=1)
        metrics[~in_force, :, METRIC_INDEX["task_abandonment_ratio"]] = 0.4

    kept = run(Bowl(shape=broken_but_in_force), limits=metric_vector({"task_abandonment_ratio": 0.1}))

    assert not kept.changes
    assert "99 broke a safety limit" in kept.reason


def test_a_candidate_on_a_cliff_is_passed_over() -> None:
    slice_spec = DESIGN_RANGES[Role.BASE_SLICE]
    edge = slice_spec.position(slice_spec.at(3)) + 1e-6

    def cliff(position: FloatArray, metrics: FloatArray) -> None:
        metrics[..., METRIC_INDEX["queue_wait_seconds"]] *= np.where(position[:, :1] > edge, 3.0, 1.0)

    found = run(Bowl(optimum=(edge, 0.0, 0.0, 0.0), steepness=(5.0, 1.0, 1.0, 1.0), shape=cliff))

    assert found.candidate[Role.BASE_SLICE] < slice_spec.at(3) - 1e-9


def test_an_edge_on_which_the_setting_in_force_stands_itself_bars_no_other_way() -> None:
    def edge(position: FloatArray, metrics: FloatArray) -> None:
        off = position[:, :1] > positions(rows([LOW]))[0, 0] + 1e-6
        metrics[..., METRIC_INDEX["queue_wait_seconds"]] *= np.where(off, 3.0, 1.0)

    found = run(Bowl(optimum=(0.0, 0.5, 0.0, 0.0), steepness=(1.0, 9.0, 1.0, 1.0), shape=edge))

    assert found.candidate.differs(LOW) == (Role.PREDICTION_WINDOW,)


def test_a_steep_way_up_to_the_best_is_no_cliff() -> None:
    found = run(Bowl(optimum=(1.0, 0.0, 0.0, 0.0), steepness=(9.0, 1.0, 1.0, 1.0)))

    assert found.candidate[Role.BASE_SLICE] == pytest.approx(0.1)


def test_a_candidate_that_harms_where_the_load_is_worst_is_passed_over() -> None:
    given = inputs()
    heavy = np.quantile(given.confirm_scenarios.arrivals_per_second.mean(axis=(1, 2)), 0.8)

    @dataclass
    class Fragile(Bowl):
        def __call__(self, knobs: FloatArray, scenarios: Scenarios, parameters: TwinParameters) -> FloatArray:
            metrics = super().__call__(knobs, scenarios, parameters)
            load = scenarios.arrivals_per_second.mean(axis=(1, 2))
            hurt = (positions(knobs)[:, None, 0] > 0.05) & (load[None] > heavy) & (len(scenarios) > 6)
            metrics[..., METRIC_INDEX["queue_wait_seconds"]] *= np.where(hurt, 12.0, 1.0)
            return metrics

    kept = search(given, evaluate=Fragile(steepness=(9.0, 1.0, 1.0, 1.0)))

    assert not kept.changes
    assert "5 would do harm where the load is worst" in kept.reason


def test_a_limit_that_breaks_only_on_fresh_draws_is_broken() -> None:
    @dataclass
    class Unlucky(Bowl):
        def __call__(self, knobs: FloatArray, scenarios: Scenarios, parameters: TwinParameters) -> FloatArray:
            metrics = super().__call__(knobs, scenarios, parameters)
            moved = (positions(knobs) > 1e-9).any(axis=1) & (len(scenarios) > 6)
            metrics[moved, 0, METRIC_INDEX["task_abandonment_ratio"]] = 0.4
            return metrics

    kept = search(inputs(limits=metric_vector({"task_abandonment_ratio": 0.1})), evaluate=Unlucky())

    assert not kept.changes
    assert "5 broke a safety limit on fresh draws" in kept.reason


def test_a_gain_that_only_the_search_scenarios_show_is_not_proposed() -> None:
    @dataclass
    class Lucky(Bowl):
        def __call__(self, knobs: FloatArray, scenarios: Scenarios, parameters: TwinParameters) -> FloatArray:
            metrics = super().__call__(knobs, scenarios, parameters)
            if len(scenarios) > 6:
                metrics[..., METRIC_INDEX["queue_wait_seconds"]] = 12.0 + positions(knobs).sum(axis=1)[:, None]
            return metrics

    kept = search(inputs(), evaluate=Lucky())

    assert not kept.changes
    assert "did not hold up on fresh draws" in kept.reason


def test_a_deadline_leaves_the_best_so_far_and_its_trials_repeat_it() -> None:
    looks = itertools.count(1)

    cut = search(inputs(), deadline_at=lambda: next(looks) == 2, evaluate=Bowl())
    again = search(inputs(), trials=cut.trials, evaluate=Bowl())

    assert cut.trials == 40
    assert cut.score < 0
    assert _same(cut, again)


def test_a_deadline_in_a_small_space_is_repeated_by_its_trials_too() -> None:
    cut = search(inputs(incumbent=MIDDLE, trust=0.01), deadline_at=lambda: True, evaluate=Bowl())

    assert cut.trials == 20
    assert _same(cut, search(inputs(incumbent=MIDDLE, trust=0.01), trials=20, evaluate=Bowl()))


def test_the_score_comes_from_the_fresh_draws_alone() -> None:
    given = inputs()

    found = search(given, evaluate=Bowl())

    metrics = Bowl()(rows([found.incumbent, found.candidate]), given.confirm_scenarios, given.parameters)
    expected = assess(
        metrics[1:],
        metrics[0],
        weights=given.weights,
        limits=given.limits,
        scenario_weights=given.confirm_scenarios.weights,
    )
    assert found.score == expected.score[0]
    assert found.score_error == expected.error[0] > 0
    np.testing.assert_array_equal(found.predicted, expected.predicted[0])


def test_the_reason_names_the_moves_the_gain_and_everything_that_got_worse() -> None:
    def slower(position: FloatArray, metrics: FloatArray) -> None:
        metrics[..., METRIC_INDEX["scheduling_latency_seconds"]] *= 1.0 + 0.2 * position[:, :1]

    found = run(Bowl(shape=slower, steepness=(4.0, 1.0, 1.0, 1.0)))

    assert found.reason.startswith("slice 80 ms")
    assert f"should be {-found.score * 100:.1f} % ± {found.score_error * 100:.1f} % better" in found.reason
    assert "queue wait " in found.reason
    assert "; worse: scheduling latency 0.3 -> 0.3" in found.reason


def test_what_past_changes_taught_is_added_to_the_score() -> None:
    residual = learned(lambda promised: promised / 3)
    plain, corrected = run(Bowl()), run(Bowl(), residual=residual, context=CROWD)

    fresh = inputs().confirm_scenarios
    metrics = Bowl()(rows([LOW, corrected.candidate]), fresh, TwinParameters())
    twin = assess(metrics[1:], metrics[0], weights=DEFAULT_WEIGHTS, limits=NO_LIMITS, scenario_weights=fresh.weights)
    mean = residual.correct(twin.score, displacement(LOW, corrected.candidate, SPECS)[None], CROWD)
    assert corrected.score == pytest.approx(twin.score[0] + mean[0])
    # What a few noisy trials leave open is no reason to stop trying: the trust region bounds what that may cost.
    assert corrected.score_error == pytest.approx(twin.error[0])
    assert plain.score < corrected.score < 0.0
    assert "the twin alone says" in corrected.reason
    assert "the twin alone says" not in plain.reason


def test_a_twin_whose_promises_came_out_the_other_way_round_is_not_believed() -> None:
    assert run(Bowl()).changes

    found = run(Bowl(), residual=learned(lambda promised: -promised), context=CROWD)

    assert not found.changes
    assert "did not hold up" in found.reason or found.reason.startswith("no candidate of")


def test_where_one_knob_broke_its_promises_the_others_are_moved() -> None:
    evidence = [_trial(-0.06, 0.1, (0.2, 0.0, 0.0, 0.0)), _trial(-0.06, -0.06, (0.0, 0.2, 0.2, 0.0))] * 10
    plain = run(Bowl())

    found = run(Bowl(), residual=fit(evidence, at_seconds=0.0), context=CROWD)

    assert Role.BASE_SLICE in plain.candidate.differs(LOW)
    assert found.candidate[Role.BASE_SLICE] < plain.candidate[Role.BASE_SLICE]
    assert found.changes


def test_a_twin_that_does_not_know_the_setting_in_force_is_told() -> None:
    told = []

    def note(knobs: FloatArray, scenarios: Scenarios, parameters: TwinParameters) -> FloatArray:
        told.append(parameters.knobs)
        return Bowl()(knobs, scenarios, parameters)

    search(inputs(incumbent=MIDDLE), evaluate=note)

    assert all(knobs.tolist() == rows([MIDDLE])[0].tolist() for knobs in told)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"specs": ()}, "at least one knob"),
        ({"incumbent": KnobValues.of({Role.BASE_SLICE: 0.1})}, "no value for prediction_window_seconds, decision"),
        ({"weights": np.ones(12)}, r"weights has shape \(12,\), must be \(13,\)"),
        ({"limits": np.ones(1)}, r"limits has shape \(1,\), must be \(13,\)"),
        ({"choices": {Role.BASE_SLICE: ()}}, "base_slice_seconds has no choices"),
        ({"trust": 0.0}, "trust is 0.0, must be over 0"),
        ({"context": (1.0,)}, "context has 1 components, must have none or 6"),
        ({"trust": float("nan")}, "trust is nan"),
    ],
)
def test_refuses_inputs_that_cannot_be_searched(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        inputs(**changes)


@settings(max_examples=30)
@given(
    value=st.floats(0.08, 0.15),
    trust=st.floats(1e-3, 10.0),
    limit=st.floats(allow_nan=True, allow_infinity=True),
    seed=st.integers(0, 2**31),
)
def test_bytes_give_back_every_bit(value: float, trust: float, limit: float, seed: int) -> None:
    given = inputs(
        incumbent=KnobValues.of({**LOW, Role.BASE_SLICE: value}),
        limits=metric_vector({"task_abandonment_ratio": limit}),
        warm_starts=(MIDDLE,),
        trust=trust,
        seed=seed,
        settings=SearchSettings(trials=33, generation=7),
        choices={Role.DECISION_PERIOD: (0.5, value)},
        residual=learned(lambda promised: promised * trust),
        context=(value, float("nan"), *CROWD[2:]),
    )

    back = SearchInputs.from_bytes(given.to_bytes())

    assert back.to_bytes() == given.to_bytes()
    for name in ("cycle_id", "specs", "incumbent", "warm_starts", "trust", "seed", "settings", "choices"):
        assert getattr(back, name) == getattr(given, name)
    for name in ("weights", "limits"):
        np.testing.assert_array_equal(getattr(back, name), getattr(given, name))
    np.testing.assert_array_equal(back.context, given.context)
    for name, array in given.scenarios.to_arrays().items():
        np.testing.assert_array_equal(back.scenarios.to_arrays()[name], array)
    for name, array in given.residual.to_arrays().items():
        np.testing.assert_array_equal(back.residual.to_arrays()[name], array)
    assert back.parameters.to_json() == given.parameters.to_json()


def test_a_decision_is_repeated_bit_for_bit_from_its_bytes() -> None:
    given = inputs(
        limits=metric_vector({"scheduling_latency_seconds": 0.5}),
        residual=learned(lambda promised: promised / 3),
        context=CROWD,
    )

    again = search(SearchInputs.from_bytes(given.to_bytes()), evaluate=Bowl())

    assert _same(again, search(given, evaluate=Bowl()))


def test_bytes_with_an_array_that_is_stored_no_more_are_read() -> None:
    given = inputs(residual=learned(lambda promised: promised / 3), context=CROWD)
    with np.load(io.BytesIO(given.to_bytes()), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    older = io.BytesIO()
    np.savez_compressed(older, allow_pickle=False, **arrays, **{"residual.covariance": np.eye(12)})

    assert _same(search(SearchInputs.from_bytes(older.getvalue()), evaluate=Bowl()), search(given, evaluate=Bowl()))


def test_bytes_of_before_there_was_a_residual_are_read_and_correct_nothing() -> None:
    given = inputs()
    with np.load(io.BytesIO(given.to_bytes()), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files if name != "context" and "residual." not in name}
    arrays["inputs"] = np.array(json.dumps({**json.loads(arrays["inputs"].item()), "format": 1}))
    older = io.BytesIO()
    np.savez_compressed(older, allow_pickle=False, **arrays)

    back = SearchInputs.from_bytes(older.getvalue())

    assert back.context == ()
    assert not back.residual.coefficients.any()
    assert _same(search(back, evaluate=Bowl()), search(given, evaluate=Bowl()))


@pytest.mark.parametrize("data", [b"", b"no archive", inputs().to_bytes()[:200]], ids=["empty", "text", "cut"])
def test_bytes_that_are_no_inputs_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="stored search inputs cannot be read"):
        SearchInputs.from_bytes(data)


def test_bytes_of_another_version_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.propose.inputs._FORMAT", 3)
    newer = inputs().to_bytes()
    monkeypatch.undo()

    with pytest.raises(ValueError, match=r"have format 3, this version reads 1, 2"):
        SearchInputs.from_bytes(newer)


def test_a_search_leaves_the_filters_of_warnings_as_they_were() -> None:
    before = list(warnings.filters)

    run(Bowl())

    assert warnings.filters == before


def _asked(*, seed: int) -> list[FloatArray]:
    twin = Bowl()
    run(twin, seed=seed)
    return twin.calls


def _same(first: Proposal, second: Proposal) -> bool:
    names = [name for name in Proposal.__slots__ if name not in {"predicted", "predicted_incumbent"}]
    return (
        all(getattr(first, name) == getattr(second, name) for name in names)
        and np.array_equal(first.predicted, second.predicted, equal_nan=True)
        and np.array_equal(first.predicted_incumbent, second.predicted_incumbent, equal_nan=True)
    )
