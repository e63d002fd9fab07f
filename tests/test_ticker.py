"""The pace of the guard."""

import threading

from tuner.ticker import Ticker

WAIT_SECONDS = 20.0


def test_a_call_that_fails_is_not_the_last() -> None:
    calls: list[float] = []
    enough = threading.Event()

    def fail(late: float) -> None:
        calls.append(late)
        if len(calls) == 3:
            enough.set()
        raise ValueError("a bug")

    ticker = Ticker("test", 0.01, fail)
    ticker.start()
    came = enough.wait(WAIT_SECONDS)

    assert ticker.stop(within_seconds=WAIT_SECONDS)
    assert came


def test_a_late_call_is_told_how_late_it_is_and_missed_ones_are_not_made_up_for() -> None:
    clock = [0.0]
    told: list[float] = []
    done = threading.Event()

    def call(late: float) -> None:
        told.append(late)
        if len(told) == 1:
            clock[0] += 10.0  # Nine further calls would have been due.
        elif len(told) == 3:
            done.set()
        else:
            clock[0] += 1.0

    ticker = Ticker("test", 1.0, call, monotonic=lambda: clock[0])
    ticker.start()
    came = done.wait(WAIT_SECONDS)

    assert ticker.stop(within_seconds=WAIT_SECONDS)
    assert came
    assert told[:3] == [0.0, 9.0, 0.0]


def test_stopping_before_the_start_and_twice_does_no_harm() -> None:
    ticker = Ticker("test", 1.0, lambda _: None)

    assert ticker.stop(within_seconds=0.1)
    assert ticker.stop(within_seconds=0.1)
