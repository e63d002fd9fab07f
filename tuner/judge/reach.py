"""How far a search may look, so that what it finds is not stopped by the guards on the size of a move."""

from typing import Final

from tuner.judge.change_breaker import ChangeBreaker
from tuner.judge.ladder import Ladder, trust_factor
from tuner.twin.trust import UNPROVEN_REGION
from tuner.values.safety import BreakerState

ONE_STEP: Final = 1e-9
"""Factor on a slew limit that leaves one grid step, the least that a search may look at."""


def step_ratio(region: float, ladder: Ladder) -> float:
    """Return the factor on every slew limit; over 0 and up to 1.

    A full step is a quarter of a knob's range or so. That is what a twin may ask for that has shown nothing yet; one
    that was wrong may go less far. Where nothing may be changed at all, the search still tells what it would do.

    Args:
        region: The trust region, over 0 and up to 1; see `tuner.twin.trust`.
        ladder: How far the tuner trusts itself.
    """
    # In this order, NaN stays NaN.
    return min(region / UNPROVEN_REGION, 1.0) * (trust_factor(ladder) or 1.0)


def reach(region: float, *, ladder: Ladder, change_breaker: ChangeBreaker) -> float:
    """Return the factor on every slew limit with which to search, as of `step_ratio`; after harm, one grid step."""
    return ONE_STEP if change_breaker.state is BreakerState.HALF_OPEN else step_ratio(region, ladder)
