"""What a person sees of the demonstration."""

import io

import numpy as np
from rich.console import Console

from tests.support.records import day, runs
from tuner.demo import view
from tuner.values.metrics import DEFAULT_WEIGHTS, METRIC_NAMES


def printed(width: int = 150) -> tuple[Console, io.StringIO]:
    stream = io.StringIO()
    return Console(file=stream, width=width), stream


def test_the_table_holds_every_metric_every_run_and_flags_what_got_worse() -> None:
    console, stream = printed()

    console.print(view.table(runs(), weights=DEFAULT_WEIGHTS, hours=24.0))

    text = stream.getvalue()
    assert all(name in text for name in METRIC_NAMES)
    assert "score (negative is better)" in text
    assert "worse" in text


def test_quiet_cycles_are_told_once_with_their_number_and_decisions_one_by_one() -> None:
    console, stream = printed()
    decisions = view.Decisions(console)
    records = day(cycles=60)

    for record in records:
        decisions.show(record)
    decisions.flush()

    lines = [line for line in stream.getvalue().splitlines() if line[:2].isdigit()]
    searched = [record for record in records if record.proposal is not None]
    assert len(searched) <= len(lines) < len(records)
    assert sum("before it)" in line for line in stream.getvalue().splitlines()) >= 1


def test_stages_are_named_longest_first() -> None:
    assert view.stage_times({"observe": 1.0, "simulate": 12.34}) == "simulate 12.3 s, observe 1.0 s"


def test_numbers_that_do_not_exist_are_not_shown_as_numbers() -> None:
    console, stream = printed()
    blank = list(runs())
    blank[0].metrics[:] = np.nan

    console.print(view.table(blank, weights=DEFAULT_WEIGHTS, hours=1.0))

    assert "nan" not in stream.getvalue()
