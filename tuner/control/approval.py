"""Whether a person may still say yes to what a cycle has recommended; asked when it is said, and when it is done."""

from typing import Final

from tuner.control.orders import instant
from tuner.settings.model import TunerMode
from tuner.values.stages import CycleRecord

APPROVE_WITHIN_SECONDS: Final = 3600.0
"""Age at which a recommendation is no longer of use: an hour on, the load that it was made for is another (assumption).
"""

_FOR_PEOPLE: Final = "tuner_mode"
"""The guard that holds a change because a person has not said yes."""


def approval_fault(  # noqa: PLR0911 - One return a reason reads as the list it is.
    record: CycleRecord | None, cycle_id: int, *, mode: str, at_seconds: float
) -> str:
    """Say why the change that a cycle recommended cannot be approved; empty where it can.

    Args:
        record: The cycle; None where the journal does not have it.
        cycle_id: Its number.
        mode: How far the tuner may go.
        at_seconds: Now.
    """
    if record is None:
        return f"cycle {cycle_id} is not in the journal; `clocktuner history` lists those that are"
    if record.proposal is None or not record.proposal.changes or record.verdict is None:
        return f"cycle {cycle_id} proposed no change ({record.reason})"
    if record.receipt is not None and record.receipt.applied:
        return f"the change of cycle {cycle_id} has been made"
    others = [item for item in record.verdict.findings if not item.passed and item.guard != _FOR_PEOPLE]
    if others:
        return f"cycle {cycle_id} does not recommend its change: {others[0].sentence}"
    if mode != TunerMode.RECOMMEND:
        remedy = "in auto mode changes need no approval" if mode == TunerMode.AUTO else "set `mode: recommend`"
        return f"the tuner's mode is {mode}: {remedy}"
    if at_seconds - record.at_seconds > APPROVE_WITHIN_SECONDS:
        return (
            f"cycle {cycle_id} is from {instant(record.at_seconds)}, over {APPROVE_WITHIN_SECONDS / 60:g} min ago: "
            "the load that it was for may be gone; approve a newer one"
        )
    return ""
