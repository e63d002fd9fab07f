"""Hold-backs: times in which the untouched setting is put back in force, to measure what tuning is worth.

Time is cut into blocks so long that one window in each is the share that the policy asks for. Where in its block a
window begins is drawn from a hash of the seed and the number of the block: every process agrees on it without keeping
anything, every hour of the day has its turn, and nobody who waits for a good moment can choose it.
"""

import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import stdtrit

from tuner.control.maintenance import Span

CONFIDENCE: Final = 0.95
"""Of the interval that is reported."""

MAX_RATIO: Final = 0.2
"""Largest share: at a fifth, three of five windows of a block are free to be held back or to be compared with."""

_DRAWS: Final = 16
"""Places that are tried in a block. With half of the time closed, all but one block in 65,000 find one."""


def hold_back(
    at_seconds: float,
    *,
    ratio: float,
    window_seconds: float,
    seed: str,
    closed: Callable[[Span], bool] = lambda _: False,
) -> Span | None:
    """Return the window in which the untouched setting is to be in force at an instant; None where it is not.

    Between the end of one window and the start of the next there is at least the length of one, so that each has
    neighbours to be compared with. A block in which maintenance leaves no room has none.

    Args:
        at_seconds: The instant.
        ratio: Share of the time, 0 to `MAX_RATIO`; 0 for none.
        window_seconds: Length of a window, with its wash-out; over 0.
        seed: What no other tuner has: the fingerprint of the policy.
        closed: Whether nothing may be changed at some time within a span; must give the same for the same span.

    Raises:
        ValueError: The share is negative, or leaves too little room for neighbours.
    """
    if not 0 <= ratio <= MAX_RATIO:
        raise ValueError(f"hold_back_ratio is {ratio:g}, must be 0 to {MAX_RATIO:g}")
    if ratio == 0:
        return None
    plan = _Plan(block_seconds=window_seconds / ratio, window_seconds=window_seconds, seed=seed, closed=closed)
    block = math.floor(at_seconds / plan.block_seconds)
    windows = (plan.window(number) for number in (block, block - 1))
    return next((window for window in windows if window is not None and at_seconds in window), None)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where the windows lie."""

    block_seconds: float
    window_seconds: float
    seed: str
    closed: Callable[[Span], bool]

    def window(self, block: int) -> Span | None:
        """Return the window that begins in a block; None where none does."""
        for draw in range(_DRAWS):
            start = (block + _uniform(f"{self.seed}/{block}/{draw}")) * self.block_seconds
            window = Span(start, start + self.window_seconds)
            if not self.closed(window) and not self._too_near(window, block):
                return window
        return None

    def _too_near(self, window: Span, block: int) -> bool:
        if window.start_seconds >= block * self.block_seconds + 2 * self.window_seconds:
            return False  # Whatever begins in the block before is over for long enough, and need not be drawn.
        before = self.window(block - 1)
        return before is not None and window.start_seconds - before.end_seconds < self.window_seconds


def _uniform(text: str) -> float:
    """Return a number in 0..1 that a text stands for, the same on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2**64


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What tuning is worth.

    Attributes:
        score: Mean log-ratio of tuned against untouched; -0.05 reads as 5 % better. NaN without a pair.
        error: Its standard error; NaN with fewer than two pairs.
        lower: End of the 95 % interval on the side of the better; NaN with fewer than two pairs.
        upper: The other end.
        pairs: Pairs that were compared.
    """

    score: float
    error: float
    lower: float
    upper: float
    pairs: int


def value(log_ratios: Iterable[float]) -> Value:
    """Return what tuning is worth, from pairs of a hold-back and the tuned time beside it.

    Pairs lie hours apart, and each is its own comparison under one load, so they are taken to be independent: mean,
    standard error, and Student's interval.

    Args:
        log_ratios: Score of the tuned time against its hold-back, one a pair; NaN where it could not be told.
    """
    known = np.array([ratio for ratio in log_ratios if math.isfinite(ratio)])
    count = len(known)
    score = float(known.mean()) if count else math.nan
    if count < 2:
        return Value(score=score, error=math.nan, lower=math.nan, upper=math.nan, pairs=count)
    error = float(known.std(ddof=1)) / math.sqrt(count)
    reach = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2)) * error
    return Value(score=score, error=error, lower=score - reach, upper=score + reach, pairs=count)
