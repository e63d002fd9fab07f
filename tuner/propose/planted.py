"""A proposal that nobody searched for: what scenarios plant instead of a search, to see what comes of it."""

from collections.abc import Mapping

import numpy as np

from tuner.propose.inputs import SearchInputs
from tuner.values.knobs import KnobValues, Role
from tuner.values.metrics import METRIC_COUNT
from tuner.values.stages import Proposal


def planted(inputs: SearchInputs, moves: Mapping[Role, float], *, score: float, reason: str) -> Proposal:
    """Return the proposal to set some knobs, with a promise that no twin has made.

    Args:
        inputs: What a search would have been given.
        moves: Knobs with their values; all others stay as they are.
        score: What is promised; negative is better.
        reason: Who planted it, and why.
    """
    nothing = np.full(METRIC_COUNT, np.nan)
    return Proposal(
        cycle_id=inputs.cycle_id,
        incumbent=inputs.incumbent,
        candidate=KnobValues.of({**inputs.incumbent, **moves}),
        score=score,
        score_error=0.0,
        predicted=nothing,
        predicted_incumbent=nothing,
        feasible=True,
        violations=(),
        trials=1,
        seed=inputs.seed,
        fidelity_ratio=1.0,
        reason=reason,
    )
