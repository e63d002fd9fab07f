"""The settings that `clocktuner rollback` can go back to, as the journal knows them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from rich import box
from rich.table import Table

from tuner.record.encoding import decode
from tuner.record.journal import Journal
from tuner.record.wording import gain, when
from tuner.standing import STATE_NAME, Standing
from tuner.values.knobs import KnobValues

UNTOUCHED: Final = 0
"""Number of the setting that was found at the very first start."""

SHOWN: Final = 30
"""Verified settings that are listed, the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownGood:
    """A setting that can be gone back to.

    Attributes:
        knobs: The setting.
        at_seconds: When it was verified; NaN for the untouched one.
        score: What verifying it showed against the setting before it; NaN for the untouched one.
        unlike: How far the load that it suited is from the present one, as a log-ratio; NaN where that is not known.
    """

    knobs: KnobValues
    at_seconds: float = math.nan
    score: float = math.nan
    unlike: float = math.nan


def load(book: Journal) -> Mapping[int, KnownGood]:
    """Return the known good settings by their numbers, which stay: the untouched one, then the oldest first."""
    stored = book.load_state(STATE_NAME)
    standing = Standing() if stored is None else decode(Standing, stored)
    load_now = np.array(standing.context)
    found = {
        number: KnownGood(
            knobs=memory.knobs,
            at_seconds=memory.at_seconds,
            score=memory.score,
            unlike=memory.distance(load_now),
        )
        for number, memory in enumerate(book.memories(), start=UNTOUCHED + 1)
    }
    return found if standing.untouched is None else {UNTOUCHED: KnownGood(knobs=standing.untouched), **found}


def table(known: Mapping[int, KnownGood]) -> Table:
    """Return them as a table, the newest first, the untouched one last."""
    shown = Table("number", "verified", "was", "load then, against now", "setting", box=box.SIMPLE_HEAD)
    for number in (*sorted(known.keys() - {UNTOUCHED}, reverse=True)[:SHOWN], *(known.keys() & {UNTOUCHED})):
        item = known[number]
        verified = ("found at the first start", "–", "–")
        if number != UNTOUCHED:
            verified = (when(item.at_seconds), gain(item.score), _likeness(item.unlike))
        shown.add_row(str(number), *verified, item.knobs.describe())
    return shown


def _likeness(unlike: float) -> str:
    return f"{math.expm1(unlike) * 100:.0f} % apart" if math.isfinite(unlike) else "unknown"
