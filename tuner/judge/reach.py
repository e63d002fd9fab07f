"""How far a search may look, so that what it finds is not stopped by the guards on the size of a move."""

from typing import Final

from tuner.judge.change_breaker import ChangeBreaker
from tuner.judge.ladder import Ladder, trust_factor
from tuner.values.safety import BreakerState

ONE_STEP: Final = 1e-9
"""Factor on a slew limit that leaves one grid step, the least that a search may look at."""


def reach(trust: float, *, region: float = 1.0, ladder: Ladder, change_breaker: ChangeBreaker) -> float:
    """Return the factor on every slew limit with which to search; over 0 where trust is.

    Where nothing may be changed at all, the search still tells what it would do, as far as trust alone allows.

    Args:
        trust: Trust in the twin, 0..1.
        region: The trust region: the share of a full step that verified changes have earned, over 0 and up to 1.
        ladder: How far the tuner trusts itself.
        change_breaker: What became of the changes before.
    """
    if change_breaker.state is BreakerState.HALF_OPEN:
        return min(ONE_STEP, trust)
    return trust * region * (trust_factor(ladder) or 1.0)
