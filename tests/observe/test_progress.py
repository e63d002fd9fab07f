from collections.abc import Sequence

import pytest

from tuner.errors import SourceUnavailable
from tuner.observe.progress import Progress
from tuner.observe.window import Window

END = 1_796_067_600.0


class Asked:
    """Takes note of what is asked, in minutes relative to `END`; fails for pieces over a size."""

    def __init__(self, *, most_columns: int = 10_000) -> None:
        self.spans: list[tuple[str, int, int]] = []
        self.most_columns = most_columns

    def __call__(self, names: Sequence[str], start: float, end: float) -> None:
        self.spans.append((",".join(names), round((start - END) / 60), round((end - END) / 60)))
        if (end - start) / 60 + 1 > self.most_columns:
            raise SourceUnavailable("too slow")

    def take(self) -> list[tuple[str, int, int]]:
        spans, self.spans = self.spans, []
        return spans


def progress(columns: int = 100, *, first_columns: int = 20) -> tuple[Window, Progress]:
    window = Window(columns)
    window.advance(END)
    return window, Progress(window, first_columns=first_columns)


def always() -> bool:
    return True


def test_the_newest_piece_is_read_first_and_older_ones_double() -> None:
    _, reading = progress()
    asked = Asked()

    reading.read(["a", "b"], asked, may_ask=always)

    assert asked.take() == [("a,b", -19, 0), ("a,b", -59, -20), ("a,b", -99, -60)]


def test_afterwards_only_what_is_new_is_read_and_the_last_column_once_more() -> None:
    window, reading = progress()
    asked = Asked()
    reading.read(["a"], asked, may_ask=always)
    asked.take()

    for minute in (1, 2, 2):
        window.advance(END + 60 * minute)
        reading.read(["a"], asked, may_ask=always)

    assert asked.take() == [("a", 0, 1), ("a", 1, 2), ("a", 2, 2)]


def test_older_pieces_wait_for_another_cycle_where_no_more_may_be_asked() -> None:
    window, reading = progress()
    asked = Asked()

    reading.read(["a"], asked, may_ask=lambda: False)
    window.advance(END + 60)
    reading.read(["a"], asked, may_ask=always)

    assert asked.take() == [("a", -19, 0), ("a", 0, 1), ("a", -59, -20), ("a", -98, -60)]


def test_a_slow_source_gives_its_history_over_several_cycles() -> None:
    window, reading = progress(columns=60, first_columns=40)
    asked = Asked(most_columns=20)
    for minute in range(4):
        window.advance(END + 60 * minute)
        if minute == 0:
            with pytest.raises(SourceUnavailable):
                reading.read(["a"], asked, may_ask=always)
        else:
            reading.read(["a"], asked, may_ask=always)

    assert asked.take() == [
        ("a", -39, 0),
        ("a", -18, 1),
        ("a", -38, -19),
        ("a", -58, -39),
        ("a", 1, 2),
        ("a", 2, 3),
    ]


def test_what_was_read_before_a_failure_is_not_read_again() -> None:
    window, reading = progress(columns=60, first_columns=20)
    asked = Asked(most_columns=25)
    with pytest.raises(SourceUnavailable):
        reading.read(["a"], asked, may_ask=always)
    asked.take()

    window.advance(END + 60)
    reading.read(["a"], asked, may_ask=always)

    assert asked.take() == [("a", 0, 1), ("a", -39, -20), ("a", -58, -40)]


def test_a_short_outage_is_caught_up_with_in_one_piece() -> None:
    window, reading = progress()
    asked = Asked()
    reading.read(["a"], asked, may_ask=always)
    asked.take()

    window.advance(END + 60 * 19)
    reading.read(["a"], asked, may_ask=always)

    assert asked.take() == [("a", 0, 19)]


def test_after_a_long_outage_the_newest_piece_comes_first_again() -> None:
    window, reading = progress()
    asked = Asked()
    reading.read(["a"], asked, may_ask=always)
    asked.take()

    window.advance(END + 60 * 50)
    reading.read(["a"], asked, may_ask=always)

    assert asked.take() == [("a", 31, 50), ("a", -9, 30), ("a", -49, -10)]


def test_names_that_come_later_are_read_apart_until_they_have_caught_up() -> None:
    window, reading = progress(columns=40)
    asked = Asked()
    reading.read(["a"], asked, may_ask=always)
    asked.take()

    for minute in (1, 2, 3):
        window.advance(END + 60 * minute)
        reading.read(["a", "b"], asked, may_ask=always)

    assert asked.take() == [("a", 0, 1), ("b", -18, 1), ("b", -38, -19), ("a,b", 1, 2), ("a,b", 2, 3)]


def test_names_that_are_read_apart_wait_where_no_more_may_be_asked() -> None:
    window, reading = progress(columns=20)
    asked = Asked()
    reading.read(["a"], asked, may_ask=always)
    asked.take()

    window.advance(END + 60)
    reading.read(["a", "b"], asked, may_ask=lambda: False)
    window.advance(END + 120)
    reading.read(["a", "b"], asked, may_ask=always)

    assert asked.take() == [("a", 0, 1), ("a", 1, 2), ("b", -17, 2)]


def test_forgetting_reads_everything_anew() -> None:
    _, reading = progress()
    asked = Asked()
    reading.read(["a"], asked, may_ask=always)
    first = asked.take()

    reading.forget()
    reading.read(["a"], asked, may_ask=lambda: False)

    assert asked.take()[0][2] == first[0][2] == 0
