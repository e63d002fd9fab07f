"""What went wrong in the bad hour is told with what was done about it, and with what was not."""

import math

from tests.support.guarded import act
from tests.support.records import MIDNIGHT
from tuner.demo.incidents import Incident, answered, table
from tuner.demo.view import console

SURGE = Incident(title="a surge", answers=("simplify", "probe", "recover"), at_seconds=MIDNIGHT + 60.0)


def test_an_answer_counts_after_the_one_before_it_and_not_before_the_incident() -> None:
    records = [
        act(1, 30.0, "simplify"),
        act(2, 75.0, "probe"),
        act(3, 90.0, "simplify"),
        act(4, 200.0, "probe"),
        act(5, 300.0, "recover"),
    ]

    row = answered(SURGE, records, state="well")

    assert [record.cycle_id for record in row.records] == [3, 4, 5]
    assert row.complete
    assert row.at_seconds == MIDNIGHT + 60.0


def test_an_answer_that_never_came_is_missing() -> None:
    row = answered(SURGE, [act(1, 90.0, "simplify"), act(2, 200.0, "recover")], state="badly")

    assert [record.decision for record in row.records] == ["simplify"]
    assert not row.complete


def test_what_begins_with_its_first_answer_is_timed_from_there() -> None:
    change = Incident(title="a harmful change", answers=("apply", "roll_back"))

    row = answered(change, [act(1, 600.0, "apply"), act(2, 1500.0, "roll_back")], state="undone")

    assert row.at_seconds == MIDNIGHT + 600.0
    assert math.isnan(answered(change, [], state="").at_seconds)


def test_the_table_says_how_long_each_answer_took_and_which_never_came() -> None:
    screen = console()
    rows = (
        answered(SURGE, [act(1, 60.0, "simplify"), act(2, 150.0, "probe")], state="policy simplified"),
        answered(Incident(title="a ghost", answers=("heal",)), [], state="as it was"),
    )

    with screen.capture() as told:
        screen.print(table(rows))

    text = told.get()
    assert "simplify at once, probe 90 s, no recover" in text
    assert "00:01:00" in text
    assert "never" in text
    assert "policy simplified" in text
