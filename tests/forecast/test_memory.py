import numpy as np

from tuner.forecast.memory import Memory
from tuner.values.stages import SeriesFrame

NAN = np.nan


def frame(names: str, end: int, values: list[list[float]]) -> SeriesFrame:
    return SeriesFrame(tuple(names), end * 60.0, np.array(values, dtype=np.float64))


def memory(steps: int = 5) -> Memory:
    return Memory(steps=steps, step_seconds=60.0)


def test_the_newest_step_is_the_last_column() -> None:
    seen = memory()
    seen.merge(frame("a", 3, [[1, 2, 3]]))

    np.testing.assert_array_equal(seen.values, [[NAN, NAN, 1, 2, 3]])
    assert seen.end_step == 3


def test_frames_that_overlap_add_only_what_is_new() -> None:
    seen = memory()
    seen.merge(frame("a", 3, [[1, 2, 3]]))
    seen.merge(frame("a", 4, [[2, 3, 4]]))

    np.testing.assert_array_equal(seen.values, [[NAN, 1, 2, 3, 4]])


def test_steps_that_no_frame_covered_stay_unknown() -> None:
    seen = memory()
    seen.merge(frame("a", 3, [[3]]))
    seen.merge(frame("a", 6, [[6]]))

    np.testing.assert_array_equal(seen.values, [[NAN, 3, NAN, NAN, 6]])


def test_a_missing_sample_never_erases_one_that_was_had() -> None:
    seen = memory()
    seen.merge(frame("a", 3, [[1, NAN, 3]]))
    seen.merge(frame("a", 3, [[NAN, 2, np.inf]]))

    np.testing.assert_array_equal(seen.values, [[NAN, NAN, 1, 2, 3]])


def test_a_frame_that_is_a_little_late_only_fills_gaps() -> None:
    seen = memory()
    seen.merge(frame("a", 10, [[10]]))
    seen.merge(frame("a", 8, [[8]]))

    np.testing.assert_array_equal(seen.values, [[NAN, NAN, 8, NAN, 10]])
    assert seen.end_step == 10


def test_a_clock_that_jumped_ahead_and_came_back_leaves_no_newest_sample_in_the_future() -> None:
    seen = memory(8)
    seen.merge(frame("a", 4, [[1, 2, 3, 4]]))
    seen.merge(frame("a", 9, [[99]]))
    seen.merge(frame("a", 5, [[5]]))

    np.testing.assert_array_equal(seen.values, [[NAN, NAN, NAN, NAN, 2, 3, 4, 5]])
    assert seen.end_step == 5


def test_a_clock_that_was_set_far_back_starts_anew() -> None:
    seen = memory()
    seen.merge(frame("a", 1000, [[10]]))
    seen.merge(frame("a", 8, [[8]]))

    np.testing.assert_array_equal(seen.values, [[NAN, NAN, NAN, NAN, 8]])
    assert seen.end_step == 8


def test_a_long_silence_forgets_everything() -> None:
    seen = memory()
    seen.merge(frame("a", 3, [[1, 2, 3]]))
    seen.merge(frame("a", 500, [[9]]))

    np.testing.assert_array_equal(seen.values, [[NAN, NAN, NAN, NAN, 9]])


def test_series_keep_their_history_when_their_order_changes() -> None:
    seen = memory(3)
    seen.merge(frame("ab", 2, [[1, 2], [10, 20]]))
    before = seen.merge(frame("cba", 3, [[7], [30], [3]]))

    np.testing.assert_array_equal(seen.values, [[NAN, NAN, 7], [10, 20, 30], [1, 2, 3]])
    np.testing.assert_array_equal(before, [-1, 1, 0])


def test_a_series_that_misses_a_frame_is_remembered_and_one_that_fell_silent_is_not() -> None:
    seen = memory(3)
    seen.merge(frame("ab", 2, [[1, 2], [10, 20]]))
    seen.merge(frame("a", 3, [[3]]))
    assert seen.names == ("a", "b")

    seen.merge(frame("a", 9, [[9]]))
    seen.merge(frame("ac", 10, [[10], [5]]))
    assert seen.names == ("a", "c")


def test_a_window_wider_than_the_memory_is_cut() -> None:
    seen = memory(2)
    seen.merge(frame("a", 4, [[1, 2, 3, 4]]))

    np.testing.assert_array_equal(seen.values, [[3, 4]])
