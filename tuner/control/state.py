"""What stands of what people have said: a pause, directions that are barred, approvals, and which orders are done.

Pure. The journal keeps a `Control` as it keeps every other state; `applied` is how an order changes it.
"""

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Final

from tuner.control.orders import Direction, Order, OrderKind
from tuner.values.knobs import Role

STATE_NAME: Final = "control"
"""Name under which the journal keeps it."""

KEPT_ORDERS: Final = 500
"""Orders that are remembered as done, the newest: more than can wait at once, so that none is obeyed twice."""

KEPT_APPROVALS: Final = 20
"""Approvals that are remembered, the newest: one is used by the next cycle, or not at all."""

UNMOVED: Final = "nowhere"
"""Stands for a knob that may move neither up nor down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A person's yes to the change that a cycle recommended.

    Attributes:
        cycle_id: That cycle.
        by: Who said it.
        at_seconds: When.
    """

    cycle_id: int
    by: str
    at_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """What stands of what people have said.

    Attributes:
        paused_by: Who has paused the tuner; empty where nobody has.
        paused_at_seconds: When; NaN where nobody has.
        paused_until_seconds: When the pause ends by itself; NaN where only a person ends it.
        reason: Why, in that person's words; may be empty.
        barred: Directions in which a knob may not move, in the order in which that was said.
        approvals: Changes that a person has said yes to, oldest first.
        done: Identities of the orders that were obeyed or refused, oldest first.
    """

    paused_by: str = ""
    paused_at_seconds: float = math.nan
    paused_until_seconds: float = math.nan
    reason: str = ""
    barred: tuple[tuple[Role, Direction], ...] = ()
    approvals: tuple[Approval, ...] = ()
    done: tuple[str, ...] = ()

    def paused(self, at_seconds: float) -> bool:
        """Say whether a person's pause is on at a time."""
        return bool(self.paused_by) and not at_seconds >= self.paused_until_seconds

    def knows(self, order: Order) -> bool:
        """Say whether an order was obeyed or refused already."""
        return order.order_id in self.done

    def approval(self, cycle_id: int) -> Approval | None:
        """Return a person's yes to the change that a cycle recommended; None where nobody has said it."""
        return next((approval for approval in self.approvals if approval.cycle_id == cycle_id), None)

    def directions(self) -> Mapping[Role, str]:
        """Return, for the knobs that people have barred, where they may still move: `up`, `down` or `nowhere`."""
        ways = {role: {way for named, way in self.barred if named is role} for role in Role}
        return {role: _left(barred) for role, barred in ways.items() if barred}


def _left(barred: Set[Direction]) -> str:
    free = [direction.value for direction in Direction if direction not in barred]
    return free[0] if free else UNMOVED


def applied(control: Control, order: Order) -> Control:
    """Return what stands once an order is done; the same, where it was done before.

    Orders to do something (`orders.ACTING`) are noted as done, and an approval as given; doing it is for the loop.
    Keep what is returned in the transaction of the journal that notes what came of the order.
    """
    return control if control.knows(order) else noted(_changed(control, order), order)


def noted(control: Control, order: Order) -> Control:
    """Return the same with an order noted as done: for one that was refused, or that failed."""
    return replace(control, done=(*control.done, order.order_id)[-KEPT_ORDERS:])


def _changed(control: Control, order: Order) -> Control:
    match order.kind:
        case OrderKind.PAUSE:
            until = math.nan if order.until_seconds is None else order.until_seconds
            return replace(
                control,
                paused_by=order.by,
                paused_at_seconds=order.at_seconds,
                paused_until_seconds=until,
                reason=order.reason,
            )
        case OrderKind.RESUME:
            return Control(barred=control.barred, approvals=control.approvals, done=control.done)
        case OrderKind.FREEZE if order.role is not None and order.direction is not None:
            barred = (order.role, order.direction)
            return control if barred in control.barred else replace(control, barred=(*control.barred, barred))
        case OrderKind.THAW:
            freed = {(order.role, direction) for direction in Direction if order.direction in (None, direction)}
            return replace(control, barred=tuple(item for item in control.barred if item not in freed))
        case OrderKind.APPROVE if order.cycle_id is not None:
            given = Approval(cycle_id=order.cycle_id, by=order.by, at_seconds=order.at_seconds)
            others = tuple(approval for approval in control.approvals if approval.cycle_id != order.cycle_id)
            return replace(control, approvals=(*others, given)[-KEPT_APPROVALS:])
    return control
