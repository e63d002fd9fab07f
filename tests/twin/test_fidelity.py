import numpy as np
import pytest

from tuner.twin.fidelity import Fidelity
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


def test_what_it_learned_survives_a_restart() -> None:
    fidelity = Fidelity()
    fidelity.foretold(metrics(12.0), metrics(10.0))
    fidelity.changed((metrics(10.0), metrics(8.0)), (metrics(10.0), metrics(12.0)))

    back = Fidelity.from_json(fidelity.to_json())

    assert back.ratio == fidelity.ratio
    assert back.to_json() == fidelity.to_json()


@pytest.mark.parametrize("text", ["", "{}", "[]", "[1, 2, 3]", '[["a"], 0, 0]', "[[NaN], 0, 0]", "[[], null, 0]"])
def test_a_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Fidelity.from_json(text)
