"""The budget of false promotions: what chance of one each trial may take, so that a day's trials stay within it.

A trial takes `SHARE` of what is left, `a`, and is charged what it used of it: all where it promotes, else
`a * (1 - min(e, 1))`, `e` being its e-value at the end. An e-value of 0.3 says that three tenths of the chance were
never at stake, and they go to the trials to come.

Why the bound holds. Without an effect an e-value is 1 in the mean at whatever end (optional stopping), and at least
`1 / a` where it promotes: `P(promoted) / a + E[e; not promoted] <= 1`, hence `P(promoted) <= E[used]`. Where there
is an effect, there is no false promotion, and `used >= 0`. What the trials of any 24 hours used is never over `ratio`,
because each took but a share of what the 24 hours before it had left. So `P(any false promotion) <= E[their number] <=
E[used by all] <= ratio`: whichever of the changes help, and however one trial led to the next.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.values.stages import Step, Verification

DAY_SECONDS: Final = 86_400.0

SHARE: Final = 0.6
"""Share of what is left that a trial takes: the first of a day most of all, so that it keeps most of its power,
and there is never nothing left (assumption)."""


LEAST_ALPHA: Final = 1e-6
"""Chance that a trial takes where nothing is left, as after the budget was lowered: it goes on, and may be undone or
kept, but is as good as never promoted. A day of such trials adds no more than 0.001."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What a trial used of the budget.

    Attributes:
        at_seconds: When the trial began.
        alpha: Chance of a false promotion that it used, >= 0; while it runs, all that it took.
    """

    at_seconds: float
    alpha: float


def next_alpha(spent: Iterable[Spending], *, ratio: float, at_seconds: float) -> float:
    """Return the chance of a false promotion that a trial may take now, at least `LEAST_ALPHA`.

    Args:
        spent: What trials used; those that began over a day ago count for nothing.
        ratio: Chance of any false promotion in a day, 0..1.
        at_seconds: Now.
    """
    used = sum(spending.alpha for spending in spent if at_seconds - spending.at_seconds < DAY_SECONDS)
    return max(SHARE * (ratio - used), LEAST_ALPHA)


def used_alpha(alpha: float, verification: Verification) -> float:
    """Return what a trial used of the chance that it took, when it ends.

    Args:
        alpha: What it took.
        verification: Its last one. Promoted, it used all; without evidence that is known, too.
    """
    if verification.step is Step.PROMOTE or not np.isfinite(verification.evidence):
        return alpha
    return alpha * (1.0 - min(float(np.exp(verification.evidence)), 1.0))
