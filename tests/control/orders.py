"""Orders for tests."""

from itertools import count
from typing import Any

from tuner.control.orders import Order, OrderKind

NOON = 1_767_268_800.0
"""2026-01-01 12:00 UTC."""

_numbers = count()


def order(kind: OrderKind, *, at_seconds: float = NOON, **details: Any) -> Order:
    """Return an order that anna gives at noon."""
    identity = f"{round(at_seconds * 1000):014d}-{next(_numbers):08x}"
    return Order(**{"order_id": identity, "kind": kind, "at_seconds": at_seconds, "by": "anna", **details})
