import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.forecast.batch import IntArray
from tuner.forecast.selection import DRIFT_WARM_UP, Choice, Selection, pinball
from tuner.values.stages import FloatArray

MEMBERS = ("last_value", "smoothing", "lstm")


def quantiles(median: float, spread: float) -> list[list[float]]:
    return [[median - spread, median, median + spread]] * 15


def run(rolling: Selection, forecasts: list[tuple[float, float]], *, truth: float = 0.0, windows: int = 1) -> None:
    """Close windows of one series in which each member said (median, spread), and the first was handed out."""
    said = np.array([[quantiles(*one) for one in forecasts]])
    for _ in range(windows):
        rolling.close(said, np.full((1, 15), truth), said[:, 0])


def chosen(rolling: Selection) -> tuple[str, str]:
    choice = rolling.choose()
    return rolling.members[choice.median[0]], rolling.members[choice.spread[0]]


@pytest.mark.parametrize(
    ("forecasts", "expected"),
    [
        ([(1.0, 2.0), (1.0, 2.0), (1.0, 2.0)], ("last_value", "last_value")),
        ([(1.0, 2.0), (0.99, 1.99), (1.0, 2.0)], ("last_value", "smoothing")),
        ([(1.0, 2.0), (1.0, 2.0), (0.5, 1.0)], ("lstm", "lstm")),
        ([(1.0, 2.0), (1.0, 2.0), (1.0, 1.1)], ("last_value", "lstm")),
        ([(1.0, 2.0), (0.5, 3.0), (1.3, 1.4)], ("smoothing", "lstm")),
        ([(1.0, 2.0), (np.nan, np.nan), (3.0, 9.0)], ("last_value", "last_value")),
    ],
    ids=[
        "all equal",
        "too small a gain in the median",
        "clearly better",
        "spread only",
        "each for its part",
        "no answer",
    ],
)
def test_choice_after_thirty_closed_windows(forecasts: list[tuple[float, float]], expected: tuple[str, str]) -> None:
    rolling = Selection(MEMBERS, series=1)

    run(rolling, forecasts, windows=30)

    assert chosen(rolling) == expected


def test_the_prior_decides_before_anything_has_closed() -> None:
    prior = np.array([[1.0, 1.0], [1.0, 1.0], [0.99, 0.8]])

    assert chosen(Selection(MEMBERS, series=1, prior=prior)) == ("last_value", "lstm")
    assert chosen(Selection(MEMBERS, series=1)) == ("last_value", "last_value")


def test_what_the_fleet_has_shown_speaks_for_a_series_that_has_shown_nothing() -> None:
    rolling = Selection(MEMBERS, series=2)
    said = np.array([[quantiles(1, 2), quantiles(1, 2), quantiles(0.2, 0.5)]] * 2)
    truth = np.zeros((2, 15))
    truth[1] = np.nan

    for _ in range(40):
        rolling.close(said, truth, said[:, 0])

    np.testing.assert_array_equal(rolling.choose().median, [2, 2])
    assert np.isnan(rolling.error_ratio()[1])


def test_a_busy_series_does_not_speak_for_the_quiet_ones() -> None:
    rolling = Selection(MEMBERS, series=3)
    # The first moves a thousand times as much, and the network is bad at it alone.
    sizes = np.array([1000.0, 1.0, 1.0])[:, None, None, None]
    said = np.array(
        [[quantiles(1, 2), quantiles(1, 2), quantiles(3, 6)]] + [[quantiles(1, 2)] * 2 + [quantiles(0.2, 1)]] * 2
    )

    for _ in range(40):
        rolling.close(said * sizes, np.zeros((3, 15)), (said * sizes)[:, 0])

    np.testing.assert_array_equal(rolling.choose().median, [0, 2, 2])


def test_windows_without_truth_teach_nothing() -> None:
    rolling = Selection(MEMBERS, series=1)
    before = rolling.ratios()

    run(rolling, [(1.0, 2.0), (0.1, 0.2), (0.1, 0.2)], truth=np.nan, windows=5)

    np.testing.assert_array_equal(rolling.ratios(), before)


def test_partly_known_windows_count_by_what_is_known() -> None:
    forecast = np.array(quantiles(0.0, 1.0))
    truth = np.array([2.0] + [np.nan] * 14)

    np.testing.assert_allclose(pinball(forecast, truth), [2 * 0.1 * 3, 2.0, 2 * 0.9 * 1])


def test_a_jump_of_the_error_makes_a_series_forget() -> None:
    rolling = Selection(MEMBERS, series=1)
    run(rolling, [(1.0, 2.0), (1.0, 2.0), (0.5, 1.0)], windows=DRIFT_WARM_UP + 20)
    assert chosen(rolling) == ("lstm", "lstm")

    run(rolling, [(1.0, 2.0), (1.0, 2.0), (0.5, 1.0)], truth=300.0, windows=6)

    assert rolling.drifted[0]
    assert np.isnan(rolling.error_ratio()[0])


def test_a_single_freak_is_no_shift() -> None:
    rolling = Selection(MEMBERS, series=1)
    run(rolling, [(1.0, 2.0)] * 3, windows=DRIFT_WARM_UP + 20)
    run(rolling, [(1.0, 2.0)] * 3, truth=1e6)
    run(rolling, [(1.0, 2.0)] * 3, windows=5)

    assert not rolling.drifted[0]


def test_a_shift_is_recent_for_two_windows() -> None:
    rolling = Selection(MEMBERS, series=1)
    run(rolling, [(1.0, 2.0)] * 3, windows=DRIFT_WARM_UP + 20)
    run(rolling, [(1.0, 2.0)] * 3, truth=300.0, windows=6)
    recent = []
    for _ in range(3):
        recent.append(bool(rolling.drifted[0]))
        run(rolling, [(1.0, 2.0)] * 3, truth=300.0)

    assert recent == [True, True, False]


def test_series_take_their_record_along_to_new_rows() -> None:
    rolling = Selection(MEMBERS, series=2)
    said = np.array([[quantiles(1, 2)] * 2 + [quantiles(0.2, 1)], [quantiles(1, 2)] * 2 + [quantiles(5, 9)]])
    for _ in range(60):
        rolling.close(said, np.zeros((2, 15)), said[:, 0])
    ratios = rolling.ratios()

    rolling.reindex(np.array([1, -1, 0]))

    np.testing.assert_allclose(rolling.ratios()[[0, 2]], ratios[[1, 0]])
    assert np.isnan(rolling.error_ratio()[1])


def test_members_without_an_answer_are_replaced_by_the_first() -> None:
    choice = Choice(np.array([2, 2]), np.array([1, 2]))
    answered = np.array([[True, False, True], [True, True, False]])

    again = choice.among(answered)

    np.testing.assert_array_equal(again.median, [2, 0])
    np.testing.assert_array_equal(again.spread, [0, 0])


@given(st.integers(0, 2**32 - 1))
def test_the_order_of_the_series_does_not_matter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    said = np.sort(rng.normal(size=(5, 3, 15, 3)), axis=-1)
    order = rng.permutation(5).astype(np.int64)

    def rolled(rows: IntArray) -> FloatArray:
        rolling = Selection(MEMBERS, series=5)
        for turn in range(4):
            truth = np.random.default_rng(turn).normal(size=(5, 15))[rows]
            rolling.close(said[rows], truth, said[rows, 0])
        return rolling.ratios()

    np.testing.assert_allclose(rolled(order), rolled(np.arange(5, dtype=np.int64))[order], rtol=1e-9)
