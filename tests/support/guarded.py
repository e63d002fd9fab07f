"""Records as guard ticks and people's orders write them: nothing but a decision, its reason, and what was written."""

from dataclasses import replace

from tests.support.records import MIDDLE, MIDNIGHT
from tuner.control.orders import Order, OrderKind, new_id
from tuner.values.knobs import KnobValues, SchedulerMode
from tuner.values.stages import CycleRecord, Receipt


def receipt(
    cycle_id: int, *, before: KnobValues = MIDDLE, after: KnobValues = MIDDLE, mode: SchedulerMode | None = None
) -> Receipt:
    """Return the receipt of a write that went well."""
    return Receipt(
        cycle_id=cycle_id,
        before=before,
        after=after,
        revision="r",
        effective_at_seconds=MIDNIGHT,
        applied=True,
        detail="in force",
        mode=mode,
    )


def act(
    cycle_id: int,
    after_seconds: float,
    decision: str,
    reason: str = "why",
    *,
    mode: SchedulerMode | None = None,
    after: KnobValues | None = None,
) -> CycleRecord:
    """Return what a guard tick notes, some seconds after midnight."""
    record = CycleRecord(cycle_id=cycle_id, at_seconds=MIDNIGHT + after_seconds, decision=decision, reason=reason)
    if mode is None and after is None:
        return record
    return replace(record, receipt=receipt(cycle_id, after=MIDDLE if after is None else after, mode=mode))


def order(
    cycle_id: int,
    after_seconds: float,
    kind: OrderKind,
    *,
    decision: str = "order",
    said: str = "done",
    reason: str = "",
    until_seconds: float | None = None,
) -> CycleRecord:
    """Return what is noted of an order: its own words, and what came of it."""
    at = MIDNIGHT + after_seconds
    given = Order(order_id=new_id(at), kind=kind, at_seconds=at, by="alice", reason=reason, until_seconds=until_seconds)
    return act(cycle_id, after_seconds, decision, f"{given.describe()}: {said}")
