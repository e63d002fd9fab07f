import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.observe.window import Window, last_full_step
from tuner.values.stages import FloatArray

END = 1_796_067_600.0


def window(columns: int = 5, *, names: tuple[str, ...] = ("a", "b")) -> Window:
    made = Window(columns, names=names)
    made.advance(END)
    return made


def place(into: Window, name: str, *samples: tuple[float, float]) -> None:
    """Place samples given as seconds after `END` and value."""
    into.place(
        into.rows([name] * len(samples)),
        END + np.array([offset for offset, _ in samples]),
        np.array([value for _, value in samples]),
    )


@pytest.mark.parametrize(
    ("at_seconds", "expected"), [(END, END), (END + 0.001, END), (END + 59.999, END), (END + 60, END + 60)]
)
def test_the_grid_ends_at_the_last_full_minute(at_seconds: float, expected: float) -> None:
    assert last_full_step(at_seconds) == expected


def test_a_column_holds_the_newest_sample_of_the_minute_that_ends_there() -> None:
    filled = window()

    place(filled, "a", (-60, 1.0), (-59, 2.0), (-1, 3.0), (0, 4.0), (-30, 2.5))

    np.testing.assert_array_equal(filled.frame()["a"], [1.0, 4.0])


def test_what_came_after_the_end_or_before_the_start_is_ignored() -> None:
    filled = window()

    place(filled, "a", (1, 9.0), (61, 9.0), (-241, 5.0), (-300, 9.0))

    np.testing.assert_array_equal(filled.frame()["a"], [5.0, np.nan, np.nan, np.nan, np.nan])


def test_no_sample_never_wipes_one_out() -> None:
    filled = window()

    place(filled, "a", (0, 4.0))
    place(filled, "a", (0, np.nan))

    assert filled.frame()["a"][-1] == 4.0


def test_moving_on_keeps_what_is_still_inside() -> None:
    filled = window()
    place(filled, "a", (-240, 1.0), (-60, 2.0), (0, 3.0))

    filled.advance(END + 120)

    np.testing.assert_array_equal(filled.frame()["a"], [2.0, 3.0, np.nan, np.nan])
    assert filled.frame().end_at_seconds == END + 120


@pytest.mark.parametrize("shift_seconds", [-60, 300, 86_400])
def test_moving_back_or_far_ahead_forgets_everything(shift_seconds: float) -> None:
    filled = window()
    place(filled, "a", (-240, 1.0), (0, 3.0))

    filled.advance(END + shift_seconds)

    assert np.isnan(filled.frame()["a"]).all()


def test_a_frame_is_a_copy_that_later_samples_do_not_reach() -> None:
    filled = window()
    place(filled, "a", (0, 1.0))
    frame = filled.frame()

    place(filled, "a", (0, 2.0))
    filled.advance(END + 60)

    assert frame["a"].tolist() == [1.0]


def test_an_empty_window_has_a_frame_of_one_unknown_column() -> None:
    assert np.isnan(window().frame().values).all()
    assert window().frame().values.shape == (2, 1)
    assert Window(5).frame().values.shape == (0, 1)


def test_rows_appear_in_order_of_their_names_and_go_when_nothing_is_left_of_them() -> None:
    nodes = window(names=())
    nodes.add_rows(["n2", "n1", "n2"])
    place(nodes, "n2", (-240, 2.0))
    place(nodes, "n1", (0, 1.0))

    nodes.add_rows(["n0", "n1"])
    assert nodes.names == ("n0", "n1", "n2")
    np.testing.assert_array_equal(nodes.frame().values[:, -1], [np.nan, 1.0, np.nan])
    assert nodes.frame()["n2"][0] == 2.0

    nodes.advance(END + 60)
    nodes.drop_empty_rows()
    assert list(nodes.names) == ["n1"]
    np.testing.assert_array_equal(nodes.frame()["n1"], [1.0, np.nan])


def test_coverage_counts_the_columns_with_a_sample() -> None:
    filled = window()
    place(filled, "a", (-240, 1.0), (-120, 1.0), (0, 1.0))

    assert filled.coverage_ratio(5).tolist() == [0.6, 0.0]
    assert filled.coverage_ratio(1).tolist() == [1.0, 0.0]


def test_the_newest_sample_is_told_with_its_time() -> None:
    filled = window()
    place(filled, "a", (-240, 1.0), (-120, 2.0))

    values, times = filled.newest()

    np.testing.assert_array_equal(values, [2.0, np.nan])
    np.testing.assert_array_equal(times, [END - 120, np.nan])


samples = st.lists(
    st.tuples(
        st.floats(min_value=-2000, max_value=700, allow_nan=False).map(lambda offset: round(offset, 3)),
        st.floats(min_value=0, max_value=1e6) | st.just(math.nan),
    ),
    max_size=60,
)


def expected(all_samples: list[tuple[float, float]], *, end: float, columns: int) -> FloatArray:
    """Return the last columns by the definition: the newest number of the minute that ends at each grid point."""
    row = np.full(columns, np.nan)
    for column in range(columns):
        at = end - 60.0 * (columns - 1 - column)
        inside = [(time, value) for time, value in all_samples if at - 60 < time <= at and not math.isnan(value)]
        if inside:
            newest = max(time for time, _ in inside)
            row[column] = [value for time, value in inside if time == newest][-1]
    return row


@given(before=samples, after=samples, shift=st.integers(min_value=0, max_value=15))
def test_random_samples_with_gaps_and_duplicates_land_where_the_definition_says(
    before: list[tuple[float, float]], after: list[tuple[float, float]], shift: int
) -> None:
    # Samples within a millisecond after a grid point count to it, because times travel as text.
    before, after = ([(o, v) for o, v in part if not 0 < o % 60 <= 0.1] for part in (before, after))
    filled = window(columns=10, names=("a",))
    place(filled, "a", *before)
    filled.advance(END + 60 * shift)
    place(filled, "a", *after)

    row = np.full(10, np.nan)
    frame = filled.frame()
    row[10 - frame.values.shape[1] :] = frame["a"]

    known = expected(before, end=0.0, columns=10)
    kept = np.concatenate([known[min(shift, 10) :], np.full(min(shift, 10), np.nan)])
    placed = expected(after, end=60.0 * shift, columns=10)
    np.testing.assert_array_equal(row, np.where(np.isnan(placed), kept, placed))


def test_the_last_columns_of_one_series_can_be_forgotten() -> None:
    window = Window(3, names=["a", "b"])
    window.advance(180.0)
    window.place(window.rows(["a", "a", "b"]), np.array([60.0, 180.0, 180.0]), np.array([1.0, 2.0, 3.0]))

    window.forget("a", 2)

    np.testing.assert_array_equal(window.frame().values, [[1, np.nan, np.nan], [np.nan, np.nan, 3]])
