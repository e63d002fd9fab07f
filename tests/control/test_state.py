"""What stands of what people have said."""

import math
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.control.orders import NOON, order
from tests.support.records import same
from tuner.control import state
from tuner.control.orders import Direction, Order, OrderKind
from tuner.control.state import Approval, Control, applied, noted
from tuner.record.encoding import decode, encode
from tuner.values.knobs import Role

UP, DOWN = Direction.UP, Direction.DOWN


def after(*orders: Order) -> Control:
    return reduce(applied, orders, Control())


def test_at_first_nothing_is_forbidden() -> None:
    control = Control()

    assert not control.paused(NOON)
    assert control.directions() == {}
    assert control.approval(1) is None


def test_a_pause_lasts_until_somebody_resumes() -> None:
    paused = after(order(OrderKind.PAUSE, reason="audit"))

    assert paused.paused(NOON + 10 * 365 * 86_400)
    assert (paused.paused_by, paused.reason) == ("anna", "audit")
    assert math.isnan(paused.paused_until_seconds)
    assert not applied(paused, order(OrderKind.RESUME)).paused(NOON)


def test_a_pause_with_an_end_ends_by_itself() -> None:
    paused = after(order(OrderKind.PAUSE, until_seconds=NOON + 600))

    assert [paused.paused(NOON + second) for second in (0, 599, 600)] == [True, True, False]


def test_of_two_pauses_the_later_word_stands() -> None:
    paused = after(order(OrderKind.PAUSE, until_seconds=NOON + 600), order(OrderKind.PAUSE, by="ben"))

    assert paused.paused_by == "ben"
    assert paused.paused(NOON + 601)


def test_to_resume_ends_the_pause_and_nothing_else() -> None:
    frozen = order(OrderKind.FREEZE, role=Role.RESERVATION, direction=UP)
    approved = order(OrderKind.APPROVE, cycle_id=7)

    control = after(frozen, approved, order(OrderKind.PAUSE), order(OrderKind.RESUME))

    assert control.directions() == {Role.RESERVATION: "down"}
    assert control.approval(7) == Approval(cycle_id=7, by="anna", at_seconds=NOON)
    assert len(control.done) == 4


@pytest.mark.parametrize(
    ("frozen", "thawed", "left"),
    [
        ([UP], [], "down"),
        ([DOWN], [], "up"),
        ([UP, DOWN], [], "nowhere"),
        ([UP, UP], [UP], None),
        ([UP, DOWN], [DOWN], "down"),
        ([UP, DOWN], [None], None),
        ([UP], [DOWN], "down"),
        ([], [UP], None),
    ],
)
def test_a_knob_may_move_where_nobody_has_frozen_it(
    frozen: list[Direction], thawed: list[Direction | None], left: str | None
) -> None:
    said = [order(OrderKind.FREEZE, role=Role.BASE_SLICE, direction=direction) for direction in frozen]
    said += [order(OrderKind.THAW, role=Role.BASE_SLICE, direction=direction) for direction in thawed]
    other = order(OrderKind.FREEZE, role=Role.RESERVATION, direction=UP)

    control = after(other, *said)

    assert control.directions().get(Role.BASE_SLICE) == left
    assert control.directions()[Role.RESERVATION] == "down"


def test_an_order_to_act_changes_no_more_than_that_it_is_done() -> None:
    given = order(OrderKind.DRILL)

    assert same(after(given), Control(done=(given.order_id,)))


def test_an_order_that_is_refused_changes_no_more_either() -> None:
    refused = order(OrderKind.APPROVE, cycle_id=3)

    control = noted(Control(), refused)

    assert control.knows(refused)
    assert control.approval(3) is None
    assert same(applied(control, refused), control)


def test_of_approvals_and_orders_the_newest_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "KEPT_ORDERS", 3)
    monkeypatch.setattr(state, "KEPT_APPROVALS", 2)
    given = [order(OrderKind.APPROVE, cycle_id=number) for number in (1, 2, 3, 2)]

    control = after(*given)

    assert [approval.cycle_id for approval in control.approvals] == [3, 2]
    assert control.done == tuple(item.order_id for item in given[1:])


ORDERS = st.lists(
    st.sampled_from(
        [
            order(OrderKind.PAUSE),
            order(OrderKind.PAUSE, until_seconds=NOON + 60),
            order(OrderKind.RESUME),
            order(OrderKind.APPROVE, cycle_id=3),
            order(OrderKind.ROLL_BACK),
            *(order(OrderKind.FREEZE, role=role, direction=way) for role in Role for way in Direction),
            *(order(OrderKind.THAW, role=role) for role in Role),
        ]
    ),
    max_size=12,
)


@given(ORDERS)
def test_an_order_seen_twice_is_done_once(orders: list[Order]) -> None:
    once = after(*orders)

    assert same(reduce(applied, orders, once), once)
    assert len(once.done) == len({item.order_id for item in orders})


@given(ORDERS)
def test_the_journal_gives_back_what_it_was_given(orders: list[Order]) -> None:
    control = after(*orders)

    assert same(decode(Control, encode(control)), control)
