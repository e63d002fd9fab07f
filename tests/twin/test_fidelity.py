import numpy as np
import pytest

from tuner.twin.fidelity import Fidelity, Trust
from tuner.values.metrics import MetricVector, metric_vector


def metrics(wait: float, *, overhead: float = 0.05) -> MetricVector:
    return metric_vector({"queue_wait_seconds": wait, "switch_overhead_ratio": overhead, "queue_length": 3.0})


def test_fidelity_is_unknown_before_the_first_forecast() -> None:
    assert np.isnan(Fidelity().ratio)


def test_a_perfect_forecast_has_full_fidelity_and_a_wild_one_none() -> None:
    perfect, wild = Fidelity(), Fidelity()
    perfect.foretold(metrics(10.0), metrics(10.0))
    wild.foretold(metrics(1000.0, overhead=0.9), metrics(10.0))

    assert perfect.ratio == 1.0
    assert wild.ratio == 0.0


def test_fidelity_falls_with_the_median_relative_error_of_objectives() -> None:
    fidelity = Fidelity()
    fidelity.foretold(metrics(12.0, overhead=0.06), metrics(10.0, overhead=0.05))

    assert fidelity.ratio == pytest.approx(0.8)


def test_errors_under_the_floor_do_not_count_as_relative() -> None:
    fidelity = Fidelity()
    fidelity.foretold(metrics(0.3), metrics(0.1))

    assert fidelity.ratio == pytest.approx(1.0 - np.median([0.2, 0.0]))


def test_wrong_directions_after_a_change_halve_fidelity_in_the_end() -> None:
    fidelity = Fidelity()
    fidelity.foretold(metrics(10.0), metrics(10.0))
    for _ in range(200):
        fidelity.changed((metrics(10.0), metrics(8.0)), (metrics(10.0), metrics(12.0)))

    assert fidelity.ratio == pytest.approx(0.5, abs=0.05)


def test_right_directions_keep_it() -> None:
    fidelity = Fidelity()
    fidelity.foretold(metrics(10.0), metrics(10.0))
    fidelity.changed((metrics(10.0), metrics(8.0)), (metrics(10.0), metrics(9.0)))

    assert fidelity.ratio == 1.0


def test_trust_starts_at_one_half_and_follows_the_signs() -> None:
    good, bad = Trust(), Trust()
    assert good.ratio == 0.5
    for _ in range(30):
        good.realised(-0.05, -0.03)
        bad.realised(-0.05, 0.03)

    assert good.ratio > 0.85
    assert bad.ratio < 0.15


def test_one_trial_moves_trust_by_little() -> None:
    assert Trust().realised(-0.05, -0.03) == pytest.approx(3.0 / 5.0)
    assert Trust().realised(-0.05, 0.03) == pytest.approx(2.0 / 5.0)


def test_what_cannot_be_told_from_nothing_counts_half_and_the_unknown_not_at_all() -> None:
    trust = Trust()

    assert trust.realised(-0.05, 0.002, noise=0.01) == 0.5
    assert trust.realised(-0.05, float("nan")) == 0.5
