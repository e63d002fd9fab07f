import numpy as np
import pytest

from tuner.forecast.batch import COVARIATE_FEATURES
from tuner.forecast.covariates import SOURCES, covariates_of, normalised
from tuner.values.stages import SeriesFrame

STEPS = 40


def history(**series: float) -> SeriesFrame:
    """Return series that rise by a tenth of their last value over the window."""
    rise = np.linspace(0.9, 1.0, 30)
    values = [np.concatenate([np.full(STEPS - 30, 0.9), rise]) * last for last in series.values()]
    return SeriesFrame(tuple(name.replace("__", ":") for name in series), 6000.0, np.array(values))


def test_what_no_policy_maps_is_unknown() -> None:
    features = covariates_of(history(queue_length=3.0))

    assert features.shape == (COVARIATE_FEATURES,)
    assert np.isnan(features).all()


def test_each_covariate_enters_as_level_and_change() -> None:
    features = covariates_of(history(node_temperature_celsius=70.0))

    index = 2 * SOURCES.index("node_temperature_celsius")
    assert features[index] == pytest.approx(0.7)
    assert features[index + 1] == pytest.approx(0.07)
    assert np.isnan(features).sum() == COVARIATE_FEATURES - 2


def test_waiting_tasks_count_by_accelerator() -> None:
    small = covariates_of(history(waiting_tasks__training=80.0, accelerators_count=8.0))
    large = covariates_of(history(waiting_tasks__training=8000.0, accelerators_count=800.0))

    np.testing.assert_allclose(small, large)


def test_without_a_capacity_the_demand_of_waiting_tasks_is_unknown() -> None:
    assert np.isnan(covariates_of(history(waiting_tasks__training=80.0))).all()


def test_gaps_take_the_sample_before_them() -> None:
    frame = history(node_power_watts=900.0)
    frame.values[0, -3:] = np.nan

    assert np.isfinite(covariates_of(frame)).sum() == 2


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("value", [0.0, 1e3, 1e5])
def test_covariates_are_of_the_order_of_one(name: str, value: float) -> None:
    if name == "node_temperature_celsius":
        value = min(value, 120.0)

    assert 0 <= normalised(name, np.array([value]), 100.0)[0] < 2
