"""Trials of changes: what a cycle shows the verification, and what it says.

The verification itself is pure and knows nothing of the twin; here the two are brought together.
"""

from typing import Final

import numpy as np

from tuner.memory import OnTrial
from tuner.settings.model import VerifySettings
from tuner.twin.calibration import SPACING_SECONDS, Calibrator
from tuner.twin.counterfactual import counterfactual
from tuner.twin.workload import HORIZON_SECONDS
from tuner.values.knobs import SchedulerMode
from tuner.values.metrics import METRIC_COUNT, MetricVector, score_terms
from tuner.values.stages import FloatArray, Observation, Proposal, Receipt
from tuner.verify import trial as trials
from tuner.verify.trial import Sample

ANCHORS: Final = 12
"""Past intervals that tell how far the twin is off without the change: an hour's, at their usual distance."""


def begin(
    receipt: Receipt,
    *,
    proposal: Proposal,
    calibrator: Calibrator,
    at_seconds: float,
    context: FloatArray,
    terms: VerifySettings,
    weights: MetricVector,
    limits: MetricVector,
) -> OnTrial:
    """Put a change on trial.

    Args:
        receipt: The change, as it was seen to be in force.
        proposal: What was expected of it.
        calibrator: The twin, as it is known before the change.
        at_seconds: Now.
        context: Load that the change was made for.
        terms: Limits of the comparison.
        weights: Weights of the score, shape (13,).
        limits: Limits of the safety metrics, shape (13,).
    """
    observed, expected = calibrator.anchors(ANCHORS)
    trial = trials.begin(
        receipt,
        expected_score=proposal.score,
        expected_terms=score_terms(proposal.predicted, proposal.predicted_incumbent, weights=weights),
        # Each sample is the mean of an interval: it must lie after the change as a whole.
        settle_seconds=terms.wash_out_seconds + HORIZON_SECONDS,
        terms=terms,
        weights=weights,
        limits=limits,
        before_observed=observed,
        before_untouched=expected,
        before_spacing_seconds=SPACING_SECONDS,
        span_seconds=HORIZON_SECONDS,
    )
    return OnTrial(trial=trial, parameters=calibrator.parameters(at_seconds), context=tuple(context.tolist()))


def look(on_trial: OnTrial, observation: Observation) -> OnTrial:
    """Return the trial with what the newest interval shows, beside what the twin says of it without the change."""
    nothing = np.full(METRIC_COUNT, np.nan)
    compared = counterfactual(observation, on_trial.trial.before, on_trial.parameters)
    observed, untouched = compared or (nothing, nothing)
    # In another mode the scheduler runs another policy than the twin knows: the clock stands still, as without work.
    comparable = observation.arriving and observation.mode is SchedulerMode.FULL
    sample = Sample(at_seconds=observation.at_seconds, observed=observed, untouched=untouched, arriving=comparable)
    return OnTrial(
        trial=trials.advance(on_trial.trial, sample), parameters=on_trial.parameters, context=on_trial.context
    )
