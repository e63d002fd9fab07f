"""Which samples count: each one once, in a row only without long gaps, and also after a clock was set back."""

import math
from enum import StrEnum
from typing import Final

GAP_WINDOWS: Final = 3.0
"""Windows without a sample after which what was counted before says nothing about now (assumption)."""


class Arrival(StrEnum):
    """What a sample is to the ones that were counted before it."""

    OLD = "old"
    """It was counted already, or its time is unknown."""
    NEXT = "next"
    """It follows the newest counted one."""
    APART = "apart"
    """It is new but follows nothing: the first of all, after a long gap, or after time has gone back."""


def arrival(at_seconds: float, *, newest_at_seconds: float, window_seconds: float) -> Arrival:
    """Say what a sample is to the newest one that was counted.

    A sample that is a little older than that is old: two replicas of a source that take turns in answering differ by
    as much. One that is older by more than a window can only come from a clock that was set back.

    Args:
        at_seconds: Time of the sample; NaN where there is none.
        newest_at_seconds: Time of the newest counted sample; NaN before the first.
        window_seconds: Window that the queries look back over.
    """
    since = at_seconds - newest_at_seconds
    if math.isnan(at_seconds) or -window_seconds <= since <= 0:
        return Arrival.OLD
    return Arrival.NEXT if 0 < since <= GAP_WINDOWS * window_seconds else Arrival.APART
