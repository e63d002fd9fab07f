from pathlib import Path

import numpy as np
import pytest

from tuner.bench import twin, twin_curves
from tuner.bench.cases import BOUND_SETS, RECOMMENDED, WIDE, BoundSet
from tuner.bench.twin import Plan, candidates_per_second
from tuner.bench.twin_cells import SCENARIOS, aggregation_error, crowd
from tuner.bench.twin_trials import EXCURSION_MINUTES, EXCURSIONS_FROM, Fate, excursions, random_settings
from tuner.bench.twin_truth import attainable, kendall, rank, repeatability
from tuner.reference.workloads import NamedWorkload, build
from tuner.twin.parameters import TwinParameters
from tuner.twin.workload import HORIZON_SECONDS
from tuner.values.knobs import KnobValues, Role
from tuner.values.metrics import METRIC_COUNT, METRIC_INDEX
from tuner.values.stages import FloatArray


def scattered(truth: FloatArray, *, intervals: int, noise: float, seed: int = 1) -> FloatArray:
    return truth + noise * np.random.default_rng(seed).standard_normal((intervals, truth.size))


def test_a_crowd_has_as_many_tasks_as_it_says() -> None:
    scenarios = crowd(nodes=64, tasks=3_500)

    assert len(scenarios) == SCENARIOS
    assert scenarios.arrivals_per_second.sum(axis=2).mean() * HORIZON_SECONDS == pytest.approx(3_500)
    assert scenarios.accelerators_count.tolist() == [512.0] * SCENARIOS


def test_cells_alike_are_seen_as_the_whole_and_unlike_ones_less_well() -> None:
    alike, unlike = (aggregation_error(nodes=400, tasks=20_000, cells=4, scatter=scatter) for scatter in (0.0, 0.3))

    assert alike < 0.05
    assert unlike > alike


@pytest.mark.parametrize("bounds", BOUND_SETS, ids=lambda bounds: bounds.name)
def test_random_settings_lie_on_the_grids_and_repeat_with_the_seed(bounds: BoundSet) -> None:
    settings = random_settings(bounds, 8, seed=3)

    assert settings == random_settings(bounds, 8, seed=3)
    assert settings != random_settings(bounds, 8, seed=4)
    specs = {spec.role: spec for spec in bounds.specs}
    for setting in settings:
        assert all(specs[role].snap(value) == value for role, value in setting.items())


@pytest.mark.parametrize("bounds", BOUND_SETS, ids=lambda bounds: bounds.name)
def test_excursions_move_one_knob_at_a_time_by_one_change_and_return(bounds: BoundSet) -> None:
    plan, slews = excursions(bounds), {spec.role: spec.slew for spec in bounds.specs}

    assert len(plan) == 4 * len(Role)
    for minute, settings in plan.items():
        moved = settings.knobs.differs(bounds.start)
        returns = (minute - EXCURSIONS_FROM) % 30 == EXCURSION_MINUTES
        assert len(moved) == (0 if returns else 1)
        for role in moved:
            assert abs(settings.knobs[role] - bounds.start[role]) <= slews[role] + 1e-9


def test_rank_agreement_is_one_for_the_same_order_and_less_for_the_reverse() -> None:
    values = np.array([0.3, -0.1, 0.2])

    assert kendall(values, 2.0 * values) == 1.0
    assert kendall(values, -values) == -1.0


@pytest.mark.parametrize(("noise", "intervals"), [(1.0, 8), (2.0, 32)])
def test_repeatability_is_the_share_of_the_variance_of_means_that_is_not_chance(noise: float, intervals: int) -> None:
    truth = np.random.default_rng(5).standard_normal(400)

    found = repeatability(scattered(truth, intervals=intervals, noise=noise))

    assert found == pytest.approx(1.0 / (1.0 + noise**2 / intervals), abs=0.03)


def test_repeatability_of_one_interval_is_not_known_and_of_pure_chance_is_none() -> None:
    nothing = np.zeros(400)

    assert np.isnan(repeatability(scattered(nothing, intervals=1, noise=1.0)))
    assert repeatability(scattered(nothing, intervals=8, noise=1.0)) < 0.2


def test_what_is_attainable_is_what_the_truth_itself_would_reach() -> None:
    truth = np.random.default_rng(5).standard_normal(2_000)
    measured = scattered(truth, intervals=4, noise=1.0)

    assert attainable(repeatability(measured)) == pytest.approx(kendall(truth, measured.mean(axis=0)), abs=0.03)
    assert attainable(1.0) == pytest.approx(1.0)


def test_a_twin_that_is_right_agrees_with_the_mean_better_than_with_each_interval() -> None:
    settings, wait = 40, METRIC_INDEX["queue_wait_seconds"]
    truth = np.exp(0.5 * np.random.default_rng(2).standard_normal(settings))
    foretold = np.full((12, 1 + settings, METRIC_COUNT), 10.0)
    foretold[:, 1:, wait] *= truth
    came = foretold.copy()
    came[:, 1:, wait] *= np.exp(scattered(np.zeros(settings), intervals=12, noise=0.5))
    outside = np.zeros((12, 1 + settings), dtype=np.bool_)

    ranking = rank(
        [
            Fate(foretold[:6], came[:6], outside, TwinParameters()),
            Fate(foretold[6:], came[6:], outside, TwinParameters()),
        ]
    )

    assert ranking.agreement > 0.8
    assert ranking.raw < 0.7
    assert ranking.repeatability > 0.85


def test_speed_is_a_rate() -> None:
    assert candidates_per_second(nodes=2, tasks=20, repetitions=1, candidates=2) > 0


def test_the_untouched_setting_lies_within_the_bounds() -> None:
    assert all(spec.contains(RECOMMENDED.start[spec.role]) for spec in RECOMMENDED.specs)


@pytest.fixture(scope="module")
def workload() -> NamedWorkload:
    return build("surf", hours=0.1)


def test_curves_are_drawn_for_every_knob_and_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workload: NamedWorkload
) -> None:
    tried: list[KnobValues] = []

    def shown(*_: object, settings: list[KnobValues], **__: object) -> Fate:
        tried[:] = settings
        metrics = np.full((3, 1 + len(settings), METRIC_COUNT), 10.0)
        return Fate(metrics, metrics, np.zeros(metrics.shape[:2], dtype=np.bool_), TwinParameters())

    monkeypatch.setattr(twin_curves, "live", shown)
    path = tmp_path / "curves.png"

    twin_curves.draw([lambda _: workload], path, quick=True, seed=1)

    assert path.read_bytes().startswith(b"\x89PNG")
    moved = [setting.differs(WIDE.start) for setting in tried]
    assert {role for roles in moved for role in roles} == set(Role)
    assert all(len(roles) <= 1 for roles in moved)


@pytest.mark.parametrize(("steady", "expected"), [(True, 2), (False, 5)])
def test_examining_takes_fates_until_the_truth_repeats(
    monkeypatch: pytest.MonkeyPatch, workload: NamedWorkload, steady: bool, expected: int
) -> None:
    def shown(*_: object, seed: int, **__: object) -> Fate:
        order = np.arange(5.0) if steady else np.random.default_rng(seed).standard_normal(5)
        metrics = np.tile(np.exp(order)[:, None], (1, 1, METRIC_COUNT))
        return Fate(metrics, metrics, np.zeros(metrics.shape[:2], dtype=np.bool_), TwinParameters())

    monkeypatch.setattr(twin, "live", shown)

    name, fates = twin.examine(lambda _: workload, RECOMMENDED, plan=Plan((8,), 4, (2, 5), 1))

    assert (name, len(fates)) == ("surf", expected)
