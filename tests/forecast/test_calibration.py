import numpy as np
import pytest

from tuner.forecast.calibration import COUNT_MARGINS, FACTOR_RANGE, FACTOR_RANGE_WHOLE, Calibration
from tuner.values.stages import FloatArray


def rolled(calibration: Calibration, *, noise: float, windows: int = 60, whole: bool = False) -> float:
    """Forecast noise with a spread that fits a size of 1; return the coverage over the last half."""
    rng = np.random.default_rng(7)
    counts = np.full(40, whole)
    raw = np.tile([-1.2816, 0.0, 1.2816], (40, 15, 1))
    inside: list[float] = []
    for _ in range(windows):
        truth: FloatArray = rng.normal(size=(40, 15)) * noise
        served = calibration.apply(raw, counts)
        inside.append(float(((truth >= served[..., 0]) & (truth <= served[..., 2])).mean()))
        calibration.close(served, raw, truth, counts)
    return float(np.mean(inside[windows // 2 :]))


def test_a_spread_that_fits_is_left_alone() -> None:
    calibration = Calibration()

    assert rolled(calibration, noise=1.0) == pytest.approx(0.8, abs=0.01)
    np.testing.assert_array_equal(calibration.factors, 1.0)


@pytest.mark.parametrize("noise", [0.8, 1.5])
def test_a_spread_that_is_off_is_mended(noise: float) -> None:
    calibration = Calibration()

    assert rolled(calibration, noise=noise) == pytest.approx(0.8, abs=0.035)
    assert calibration.factors[0] == pytest.approx([noise, noise], rel=0.1)


def test_factors_are_bounded() -> None:
    wide, narrow = Calibration(), Calibration()
    rolled(wide, noise=50.0)
    rolled(narrow, noise=0.01)

    np.testing.assert_array_equal(wide.factors[0], FACTOR_RANGE[1])
    np.testing.assert_array_equal(narrow.factors[0], FACTOR_RANGE[0])


def test_counts_are_never_narrowed() -> None:
    calibration = Calibration()
    rolled(calibration, noise=0.01, whole=True)

    np.testing.assert_array_equal(calibration.factors[1], FACTOR_RANGE_WHOLE[0])


def test_counts_and_continuous_series_learn_apart() -> None:
    calibration = Calibration()
    raw = np.tile([-1.0, 0.0, 1.0], (300, 15, 1))
    truth = np.concatenate([np.full((150, 15), 1.5), np.full((150, 15), 0.5)])
    for _ in range(4):
        calibration.close(raw, raw, truth, np.repeat([False, True], 150))

    assert calibration.factors[0, 1] == pytest.approx(1.5)
    np.testing.assert_array_equal(calibration.factors[1], 1.0)
    assert calibration.coverage == pytest.approx([0.0, 1.0])


def test_windows_without_truth_teach_nothing() -> None:
    calibration = Calibration()
    raw = np.tile([-1.0, 0.0, 1.0], (40, 15, 1))

    calibration.close(raw, raw, np.full((40, 15), np.nan), np.zeros(40, dtype=np.bool_))

    assert np.isnan(calibration.coverage).all()


def test_a_spread_of_nothing_says_nothing() -> None:
    calibration = Calibration()
    raw = np.zeros((300, 15, 3))

    calibration.close(raw, raw, np.ones((300, 15)), np.zeros(300, dtype=np.bool_))

    np.testing.assert_array_equal(calibration.factors, 1.0)


def test_counts_that_are_covered_too_often_are_not_widened() -> None:
    # Nine in ten stand still without any spread; the others miss theirs, and ask for more of it.
    calibration = Calibration()
    raw = np.zeros((400, 15, 3))
    raw[:10] = [-1.0, 0.0, 1.0]
    truth = np.zeros((400, 15))
    truth[:10] = 3.0

    for _ in range(4):
        calibration.close(raw, raw, truth, np.ones(400, dtype=np.bool_))

    assert calibration.coverage[1] > 0.95
    np.testing.assert_array_equal(calibration.factors[1], 1.0)


def test_the_margin_of_counts_follows_their_coverage_within_bounds() -> None:
    calibration = Calibration()
    raw = np.zeros((400, 15, 3))
    counts = np.ones(400, dtype=np.bool_)
    margins = []

    for truth in (0.0, 1.0):
        for _ in range(50):
            calibration.close(raw, raw, np.full((400, 15), truth), counts)
        margins.append(calibration.count_margin)

    assert margins == [COUNT_MARGINS[1], COUNT_MARGINS[0]]
