"""What the sweeps promise: in which direction each knob acts, and how that moves with its condition."""

from pathlib import Path

import numba
import numpy as np
import pytest

from tuner.bench import sweeps
from tuner.bench.sweeps import SWEEPS, Curve, measure, smallest_for
from tuner.values.knobs import DESIGN_RANGES, Role
from tuner.values.metrics import METRIC_COUNT, METRIC_INDEX

# Without numba's cache the first test compiles the engine.
pytestmark = pytest.mark.timeout(300)

quick = pytest.mark.skipif(
    bool(getattr(numba.config, "DISABLE_JIT", 0)), reason="hours of a cluster are too much for plain Python"
)

Curves = dict[str, Curve]


def _curves(role: Role, values: tuple[float, ...], names: tuple[str, ...], seeds: tuple[int, ...] = (1, 2)) -> Curves:
    sweep = next(sweep for sweep in SWEEPS if sweep.role is role)
    return {
        condition.name: measure(condition, role, values, seeds)
        for condition in sweep.conditions
        if condition.name in names
    }


def _metric(curve: Curve, name: str) -> list[float]:
    values: list[float] = curve.metrics[:, METRIC_INDEX[name]].tolist()
    return values


@quick
def test_longer_slices_lose_less_to_switching_and_pay_off_more_the_longer_the_tasks() -> None:
    curves = _curves(Role.BASE_SLICE, (0.04, 0.115, 0.3, 0.5), ("short", "long"))

    for curve in curves.values():
        lost = _metric(curve, "switch_overhead_ratio")
        assert lost == sorted(lost, reverse=True)
    # Short protected tasks wait for the slices of others; beyond some length that costs more than switching.
    waits = _metric(curves["short"], "high_priority_wait_seconds")
    assert waits[3] > waits[2]
    assert curves["short"].best < curves["long"].best


@quick
def test_models_that_are_asked_for_rarely_need_a_longer_window() -> None:
    curves = _curves(Role.PREDICTION_WINDOW, (120.0, 900.0), ("short", "long"))

    for curve in curves.values():
        short, long = _metric(curve, "high_priority_wait_seconds")
        assert short > long
    assert curves["long"].scores[0] > 0.03


@quick
def test_a_short_period_pays_off_less_the_larger_the_cluster() -> None:
    curves = _curves(Role.DECISION_PERIOD, (0.1, 0.75), ("4_nodes", "160_nodes"), (1,))

    gains = {name: curve.scores[1] - curve.scores[0] for name, curve in curves.items()}
    assert gains["4_nodes"] > gains["160_nodes"]
    # Decisions about a large cluster take longer than such a period.
    assert _metric(curves["160_nodes"], "scheduling_latency_seconds")[0] > 0.4


@quick
def test_a_stricter_promise_and_burstier_work_need_a_larger_reserve() -> None:
    curves = _curves(Role.RESERVATION, (0.0, 0.1, 0.15, 0.2, 0.25, 0.35, 0.5), ("steady", "bursty"))

    for curve in curves.values():
        needed = [smallest_for(curve, seconds) for seconds in (2.9, 6.0, 12.0)]
        assert needed == sorted(needed, reverse=True)
        assert needed[0] > needed[2]
    assert smallest_for(curves["bursty"], 6.0) > smallest_for(curves["steady"], 6.0)
    # A reserve that nobody needs stands idle.
    useful = _metric(curves["steady"], "accelerator_utilization_ratio")
    assert useful[-1] < useful[2] - 0.1


def test_every_knob_is_swept_over_its_recommended_range_and_beyond() -> None:
    assert {sweep.role for sweep in SWEEPS} == set(Role)
    for sweep in SWEEPS:
        spec = DESIGN_RANGES[sweep.role]
        inside = [value for value in sweep.values if spec.low <= value <= spec.high]
        assert (inside[0], inside[-1]) == (spec.low, spec.high)
        assert sweep.values[0] < spec.low
        assert sweep.values[-1] > spec.high
        assert list(sweep.values) == sorted(sweep.values)
        assert len(sweep.conditions) == 3


def test_results_name_best_spread_and_needed_reserve_and_plots_are_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def made_up(condition: object, role: Role, values: tuple[float, ...], seeds: tuple[int, ...]) -> Curve:
        scores = np.array(values) / max(values)
        metrics = np.tile(20.0 * (1.0 - scores)[:, None], METRIC_COUNT)
        return Curve(np.array(values), scores, np.full(scores.size, np.nan), metrics)

    monkeypatch.setattr(sweeps, "measure", made_up)

    results = sweeps.run(plots=tmp_path / "plots", quick=True)

    assert results.figures["sweep_slice_best_short"] == 0.02
    assert 0.0 < results.figures["sweep_period_spread_ratio_4_nodes"] < 1.0
    assert results.figures["sweep_reservation_for_12_seconds_steady"] == 0.18
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == [
        "sweep-period.png",
        "sweep-reservation.png",
        "sweep-slice.png",
        "sweep-window.png",
    ]


def test_a_promise_that_no_value_keeps_needs_an_unknown_reserve() -> None:
    curve = Curve(np.array([0.1]), np.zeros(1), np.zeros(1), np.full((1, METRIC_COUNT), 50.0))

    assert np.isnan(smallest_for(curve, 12.0))
