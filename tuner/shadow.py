"""What a tuner that may not act would have done, and what that would have gained at the load that came.

Nothing is measured here: the twin, as it was when the change was recommended, meets the work that really arrived under
both settings. Its own error is part of the answer: a twin that is trusted by a half may be wrong by as much as it says.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tuner.twin.counterfactual import counterfactual
from tuner.twin.parameters import TwinParameters
from tuner.twin.workload import HORIZON_SECONDS
from tuner.values.knobs import KnobValues
from tuner.values.metrics import MetricVector, score
from tuner.values.stages import Observation, Proposal

INTERVALS: Final = 4
"""Intervals that are looked at: an hour, in which single bursts level out (assumption)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadow:
    """A change that was recommended and not made.

    Attributes:
        cycle_id: Cycle that recommended it.
        before: Setting in force then.
        after: Setting recommended.
        expected_score: Score that was expected of it.
        parameters: The twin as it was then, as JSON.
        looked_at_seconds: When the newest interval ended, or the change was recommended.
        scores: Score of the change in each interval since.
    """

    cycle_id: int
    before: KnobValues
    after: KnobValues
    expected_score: float
    parameters: str
    looked_at_seconds: float
    scores: tuple[float, ...] = ()


def cast(proposal: Proposal, parameters: TwinParameters, *, at_seconds: float) -> Shadow:
    """Begin to follow what a recommended change would have done."""
    return Shadow(
        cycle_id=proposal.cycle_id,
        before=proposal.incumbent,
        after=proposal.candidate,
        expected_score=proposal.score,
        parameters=parameters.to_json(),
        looked_at_seconds=at_seconds,
    )


def follow(shadow: Shadow, observation: Observation, *, weights: MetricVector) -> Shadow:
    """Return it with one more interval, once one has passed since the last; weights have shape (13,)."""
    if observation.at_seconds - shadow.looked_at_seconds < HORIZON_SECONDS or observation.knobs is None:
        return shadow
    looked = replace(shadow, looked_at_seconds=observation.at_seconds)
    if not observation.arriving or shadow.before.differs(observation.knobs):
        return looked  # Under another setting, nothing would be known of what is compared with.
    parameters = TwinParameters.from_json(shadow.parameters)
    told = [counterfactual(observation, knobs, parameters) for knobs in (shadow.after, shadow.before)]
    if told[0] is None or told[1] is None:
        return looked
    difference = float(score(told[0][1], told[1][1], weights=weights))
    return replace(looked, scores=(*shadow.scores, difference)) if math.isfinite(difference) else looked


def over(shadow: Shadow) -> bool:
    """Say whether enough was seen to tell what the change would have done."""
    return len(shadow.scores) >= INTERVALS


def told(shadow: Shadow, *, trust: float) -> str:
    """Return what a recommended change would have gained, with its error.

    The error has two parts: how unlike the intervals were, and how far the twin is to be doubted: by as much as it
    says at a trust of one half, by nothing at full trust.

    Args:
        shadow: At least two intervals of it.
        trust: How far predicted gains came true, 0..1.
    """
    scores = np.array(shadow.scores)
    mean, spread = float(scores.mean()), float(scores.std(ddof=1)) / math.sqrt(len(scores))
    error = math.hypot(spread, abs(mean) * 2 * (1 - trust))
    word = "better" if mean < 0 else "worse"
    made, expected, count = shadow.after.describe(), abs(shadow.expected_score), len(scores)
    return (
        f"the change that cycle {shadow.cycle_id} recommended and nobody made ({made}) would have been "
        f"{abs(mean) * 100:.1f} % ± {error * 100:.1f} % {word}, by the twin, over the {count} quarters of an hour "
        f"since; {expected * 100:.1f} % were expected"
    )
