"""Trials of changes: what a cycle shows the verification, and what it says.

The verification itself is pure and knows neither the twin nor the loop; here they are brought together. A change is
compared in turns with the setting before it (`switchback`), or with the twin's forecast of what would have been
(`before_after`), which is what a change gets that cannot be made and undone several times.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from tuner.memory import OnTrial
from tuner.settings.model import Policy, VerifySettings
from tuner.twin.calibration import SPACING_SECONDS, Calibrator
from tuner.twin.counterfactual import counterfactual
from tuner.twin.trust import UNPROVEN_REGION
from tuner.twin.workload import HORIZON_SECONDS
from tuner.values.knobs import KnobValues, SchedulerMode
from tuner.values.metrics import METRIC_COUNT, METRIC_INDEX, METRIC_NAMES, METRICS, score_terms
from tuner.values.stages import FloatArray, Observation, Proposal, Receipt, Verification
from tuner.verify import legs, rollout, switchback
from tuner.verify import trial as trials
from tuner.verify.legs import Look, Switchback
from tuner.verify.trial import Sample, Trial

ANCHORS: Final = 12
"""Past intervals that tell how far the twin is off without the change: an hour's, at their usual distance."""

HOLD_BACK_PAIRS: Final = 2
"""Pairs of a hold-back: tuned, untouched, untouched, tuned, so that an even drift drops out."""

PROBE_PAIRS: Final = 2
"""Pairs of a trial while the twin is not proven, for the same reason: enough to tell the way of a change that matters,
and short enough that it costs little where that is the wrong one."""

MOST_WRONG: Final = 0.3
"""Score beyond which a promise is not taken for what a change may have cost (assumption): in a jam the twin promises
that waits of minutes vanish, and the opposite of that would be felt at once."""

_NEVER: Final = 1e-9
"""Chance of a false promotion that a hold-back takes: it promotes nothing, whatever it shows."""

_WAIT: Final = METRIC_INDEX["queue_wait_seconds"]


def begin(
    receipt: Receipt,
    *,
    proposal: Proposal,
    observation: Observation,
    calibrator: Calibrator,
    context: FloatArray,
    policy: Policy,
    alpha: float,
    instance: str,
    steady_since_seconds: float,
) -> OnTrial:
    """Put a change on trial.

    Args:
        receipt: The change, as it was seen to be in force.
        proposal: What was expected of it.
        observation: What was seen just before it.
        calibrator: The twin, as it is known before the change.
        context: Load that the change was made for.
        policy: How to compare, and limits and weights.
        alpha: Chance of a false promotion that the trial may take.
        instance: Identity of the scheduler's process.
        steady_since_seconds: Since when the setting before was in force; NaN where that is not known to have changed.
    """
    moved = receipt.after.differs(receipt.before)
    disruptive = any(spec.disruptive for spec in policy.knob_specs() if spec.role in moved)
    trial: Trial | Switchback
    if policy.verify.method == "before_after" or disruptive:
        trial = _before_after(receipt, proposal, calibrator, policy)
    else:
        past = _past_legs(observation, policy, steady_since_seconds=steady_since_seconds)
        allowance = np.nan if calibrator.proven else allowed_cost(policy.verify, calibrator.region_ratio)
        if np.isfinite(allowance):
            policy = _with_pairs(policy, min(PROBE_PAIRS, policy.verify.max_pairs))
        trial = _switchback(receipt, proposal, observation, policy, past=past, alpha=alpha, allowance=allowance)
    return OnTrial(
        trial=trial,
        parameters=calibrator.parameters(observation.at_seconds),
        context=tuple(context.tolist()),
        instance=instance,
        began_at_seconds=observation.at_seconds,
    )


def hold_back(
    receipt: Receipt,
    *,
    observation: Observation,
    calibrator: Calibrator,
    context: FloatArray,
    policy: Policy,
    instance: str,
    steady_since_seconds: float,
) -> OnTrial:
    """Compare the tuned setting with the untouched one, which a receipt has put back in force: one A B | B A.

    Args:
        receipt: The untouched setting, as it was seen to be in force; before it, the tuned one was.
        observation: What was seen just before it.
        calibrator: The twin, kept only because a trial has one.
        context: Load at the time.
        policy: How to compare, and limits and weights.
        instance: Identity of the scheduler's process.
        steady_since_seconds: Since when the tuned setting was in force.
    """
    twice = _with_pairs(policy, HOLD_BACK_PAIRS)
    past = _past_legs(observation, twice, steady_since_seconds=steady_since_seconds)
    return OnTrial(
        trial=_switchback(receipt, None, observation, twice, past=past, alpha=_NEVER),
        parameters=calibrator.parameters(observation.at_seconds),
        context=tuple(context.tolist()),
        instance=instance,
        began_at_seconds=observation.at_seconds,
        hold_back=True,
    )


def hold_back_seconds(policy: Policy) -> float:
    """Return how long the untouched setting is in force in a hold-back, for the share of time that is wanted."""
    return policy.verify.wash_out_seconds + HOLD_BACK_PAIRS * policy.verify.leg_seconds


def shown(on_trial: OnTrial, verification: Verification) -> tuple[float, float]:
    """Return the score that a trial has shown, and its standard error: that by which it was decided."""
    trial = on_trial.trial
    if isinstance(trial, Switchback) and trial.unproven and trial.pairs:
        seen = switchback.witnessed(trial)
        return seen.mean, seen.error
    return verification.observed_score, verification.score_error


def _with_pairs(policy: Policy, pairs: int) -> Policy:
    return policy.model_copy(update={"verify": policy.verify.model_copy(update={"max_pairs": pairs})})


def allowed_cost(terms: VerifySettings, region: float) -> float:
    """Return what it may cost to try a change of a twin that is not proven, in score times seconds.

    Harm for two legs before anything is known of the twin, and less the further its trust region has shrunk.

    Args:
        terms: What harm is, and how long a leg.
        region: The trust region, over 0 and up to 1.
    """
    return terms.harm_ratio * terms.leg_seconds / max(1.0 - region, UNPROVEN_REGION)


def cost(on_trial: OnTrial, *, at_seconds: float) -> float:
    """Return what it may have cost to try a change that was undone, in score times seconds.

    That is what was measured, but at least what it would be had the change done the opposite of what was promised, for
    as long as it was in force: a short measurement is mostly noise, and a twin that is wrong is wrong by as much as it
    promises.
    """
    trial = on_trial.trial
    seconds = trial.tried_seconds if isinstance(trial, Switchback) else at_seconds - on_trial.began_at_seconds
    measured = trial.cost if isinstance(trial, Switchback) else np.nan
    return float(np.fmax(measured, min(abs(trial.expected_score), MOST_WRONG) * seconds))


def worth(on_trial: OnTrial) -> tuple[float, ...]:
    """Return the score of the tuned against the untouched setting in each pair of a hold-back; negative is better."""
    if not isinstance(on_trial.trial, Switchback):
        return ()
    return tuple((-on_trial.trial.differences()).tolist())


def look(on_trial: OnTrial, observation: Observation, *, instance: str) -> OnTrial:
    """Return the trial with what the newest look shows."""
    trial = on_trial.trial
    # In another mode the scheduler runs another policy: the clock stands still, as without work.
    full = observation.mode is SchedulerMode.FULL
    if isinstance(trial, Switchback):
        restarted = bool(on_trial.instance and instance and instance != on_trial.instance)
        seen = replace(_look_of(observation), comparable=full and not _partial(observation), restarted=restarted)
        return replace(on_trial, trial=legs.advance(trial, seen), instance=instance or on_trial.instance)
    nothing = np.full(METRIC_COUNT, np.nan)
    observed, untouched = counterfactual(observation, trial.before, on_trial.parameters) or (nothing, nothing)
    arriving = observation.arriving and full
    sample = Sample(at_seconds=observation.at_seconds, observed=observed, untouched=untouched, arriving=arriving)
    return replace(on_trial, trial=trials.advance(trial, sample))


def verify(on_trial: OnTrial, *, cycle_id: int) -> Verification:
    """Say what a change on trial has done so far, and what to do with it."""
    if isinstance(on_trial.trial, Switchback):
        return switchback.verify(on_trial.trial, cycle_id=cycle_id)
    return rollout.verify(on_trial.trial, cycle_id=cycle_id)


def abandon(on_trial: OnTrial, *, cycle_id: int, reason: str) -> Verification:
    """Say that a trial ends without a result and without a write."""
    if isinstance(on_trial.trial, Switchback):
        return switchback.abandon(on_trial.trial, cycle_id=cycle_id, reason=reason)
    return rollout.abandon(on_trial.trial, cycle_id=cycle_id, reason=reason)


def turn(on_trial: OnTrial) -> KnobValues:
    """Return the setting whose turn it is; that in force where nothing is to be switched."""
    trial = on_trial.trial
    if isinstance(trial, Switchback) and trial.wanted is legs.Leg.BEFORE:
        return trial.before
    return trial.after


def switched(on_trial: OnTrial, receipt: Receipt) -> OnTrial:
    """Return the trial with the setting of a receipt in force.

    Raises:
        TypeError: It is not a switchback.
    """
    if not isinstance(on_trial.trial, Switchback):
        raise TypeError("only a switchback switches")
    return replace(on_trial, trial=legs.switched(on_trial.trial, receipt))


def _before_after(receipt: Receipt, proposal: Proposal, calibrator: Calibrator, policy: Policy) -> Trial:
    observed, expected = calibrator.anchors(ANCHORS)
    terms, weights = policy.verify, policy.weights()
    return trials.begin(
        receipt,
        expected_score=proposal.score,
        expected_terms=score_terms(proposal.predicted, proposal.predicted_incumbent, weights=weights),
        # Each sample is the mean of an interval: it must lie after the change as a whole.
        settle_seconds=terms.wash_out_seconds + HORIZON_SECONDS,
        terms=terms,
        weights=weights,
        limits=policy.limits(),
        before_observed=observed,
        before_untouched=expected,
        before_spacing_seconds=SPACING_SECONDS,
        span_seconds=HORIZON_SECONDS,
    )


def _switchback(
    receipt: Receipt,
    proposal: Proposal | None,
    observation: Observation,
    policy: Policy,
    *,
    past: FloatArray,
    alpha: float,
    allowance: float = np.nan,
) -> Switchback:
    weights = policy.weights()
    newest = None
    if len(past) and _comparable(observation):
        newest = replace(_look_of(observation), metrics=past[-1])
    terms = None
    if proposal is not None:
        terms = score_terms(proposal.predicted, proposal.predicted_incumbent, weights=weights)
    return legs.begin(
        receipt,
        expected_score=np.nan if proposal is None else proposal.score,
        expected_terms=terms,
        terms=policy.verify,
        weights=weights,
        limits=policy.limits(),
        recent_window_seconds=policy.cycle.recent_window_seconds,
        queue_wait_seconds=float(observation.metrics[_WAIT]),
        alpha=alpha,
        first_before=newest,
        glimpse=observation.metrics,
        noise=legs.neighbours(past, weights=weights),
        allowance=allowance,
    )


def _past_legs(observation: Observation, policy: Policy, *, steady_since_seconds: float) -> FloatArray:
    """Return what past legs would have shown, under the setting before the change alone."""
    history, window = observation.history, policy.cycle.recent_window_seconds
    steps = history.values.shape[1]
    times = history.end_at_seconds - history.step_seconds * np.arange(steps, dtype=np.float64)[::-1]
    metrics = np.full((steps, METRIC_COUNT), np.nan)
    for column, name in enumerate(METRIC_NAMES):
        if name in history:
            metrics[:, column] = history[name]
    wash_out = legs.learned_wash_out(float(observation.metrics[_WAIT]), policy.verify)
    # NaN, where no change is known, leaves everything in.
    ours = ~(times < steady_since_seconds + wash_out + window)
    return legs.past_legs(
        times[ours],
        metrics[ours],
        wash_out_seconds=wash_out,
        leg_seconds=policy.verify.leg_seconds,
        recent_window_seconds=window,
    )


def _look_of(observation: Observation) -> Look:
    weighed = {spec.name for spec in METRICS if spec.objective or spec.safety}
    rejected = any(one.reason == "rejected" and one.metric in weighed for one in observation.problems)
    return Look(
        at_seconds=observation.at_seconds,
        metrics=observation.metrics,
        arriving=observation.arriving,
        rejected=rejected,
    )


def _comparable(observation: Observation) -> bool:
    return observation.arriving and observation.mode is SchedulerMode.FULL and not _partial(observation)


def _partial(observation: Observation) -> bool:
    return any(one.metric == "source" and one.reason == "partial" for one in observation.problems)
