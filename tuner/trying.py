"""Trying: what a cycle does with a change, from its first write to its end."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from tuner.caution import charge, credit
from tuner.control.holdback import hold_back as span_at
from tuner.control.holdback import value
from tuner.control.maintenance import Span, closed_between
from tuner.draft import Draft
from tuner.errors import ActuatorUnavailable
from tuner.memory import STATE_NAME, Memory, Notebook, OnTrial
from tuner.people import People
from tuner.record.journal import Journal
from tuner.settings.model import Policy, TunerMode
from tuner.standing import Standing
from tuner.trials import begin, cost, hold_back, hold_back_seconds, look, shown, switched, turn, verify, worth
from tuner.twin.calibration import Calibrator
from tuner.twin.residual import displacement
from tuner.values.knobs import KnobValues
from tuner.values.metrics import sum_terms
from tuner.values.stages import (
    Decision,
    FloatArray,
    Observation,
    Outcome,
    Proposal,
    Receipt,
    Step,
    Verification,
)
from tuner.verify.budget import Spending, next_alpha, used_alpha
from tuner.writer import Change, Writer

MAX_WORTH: Final = 200
"""Pairs of hold-backs that are kept: months of them, and little to store."""


class Trying:
    """Tries changes out, one at a time."""

    def __init__(
        self,
        *,
        policy: Policy,
        notebook: Notebook,
        writer: Writer,
        people: People,
        calibrator: Calibrator,
        journal: Journal,
    ) -> None:
        """Take the parts; see `tuner.cycle.Cycle`."""
        self._policy = policy
        self._notebook = notebook
        self._writer = writer
        self._people = people
        self._calibrator = calibrator
        self._journal = journal

    def try_out(
        self,
        draft: Draft,
        proposal: Proposal,
        observation: Observation,
        context: FloatArray,
        *,
        approved: bool = False,
    ) -> None:
        """Make the proposed change and put it on trial."""
        ratio = self._policy.verify.false_promotion_ratio_per_day
        alpha = next_alpha(self._notebook.memory.spent, ratio=ratio, at_seconds=draft.at_seconds)
        standing = self._writer.standing

        def on_trial(receipt: Receipt) -> Memory:
            started = begin(
                receipt,
                proposal=proposal,
                observation=observation,
                calibrator=self._calibrator,
                context=context,
                policy=self._policy,
                alpha=alpha,
                instance=standing.instance,
                steady_since_seconds=standing.changed_at_seconds,
            )
            spent = (*self._notebook.memory.spent, Spending(at_seconds=draft.at_seconds, alpha=alpha))
            return replace(self._notebook.memory, on_trial=replace(started, approved=approved), spent=spent)

        reason = proposal.reason
        self._change(draft, proposal.candidate, action="apply", reason=reason, then=on_trial, approved=approved)

    def hold_back(self, draft: Draft, observation: Observation, context: FloatArray) -> bool:
        """Put the untouched setting back in force where its turn has come; returns whether that was done or tried."""
        window = self._window(draft.at_seconds)
        standing = self._writer.standing
        untouched, tuned = standing.untouched, standing.knobs
        if window is None or untouched is None or tuned is None or not untouched.differs(tuned):
            return False

        def held_back(receipt: Receipt) -> Memory:
            began = hold_back(
                receipt,
                observation=observation,
                calibrator=self._calibrator,
                context=context,
                policy=self._policy,
                instance=standing.instance,
                steady_since_seconds=standing.changed_at_seconds,
            )
            until = window.end_seconds
            return replace(self._notebook.memory, on_trial=began, held_back_until_seconds=until)

        ratio = self._policy.control.hold_back_ratio
        reason = f"the untouched setting is in force for {ratio * 100:g} % of the time, to measure what tuning is worth"
        draft.close("hold_back", reason)
        self._change(draft, untouched, action="hold_back", reason=reason, then=held_back)
        return True

    def _window(self, at_seconds: float) -> Span | None:
        """Return the window for a hold-back that is open and was not used yet."""
        control = self._policy.control
        if self._policy.mode is not TunerMode.AUTO or not self._people.permission(at_seconds).allowed:
            return None
        window = span_at(
            at_seconds,
            ratio=control.hold_back_ratio,
            window_seconds=hold_back_seconds(self._policy),
            seed=self._policy.fingerprint(),
            closed=lambda span: closed_between(control.maintenance, span),
        )
        used = window is not None and window.end_seconds <= self._notebook.memory.held_back_until_seconds
        return None if used else window

    def verify(self, draft: Draft, observation: Observation, on_trial: OnTrial) -> None:
        """Look at the change on trial, and do what that asks for: wait, switch, keep it, or undo it."""
        draft.trial_began_at = on_trial.began_at_seconds
        with draft.at("verify"):
            on_trial = look(on_trial, observation, instance=self._writer.standing.instance)
            draft.verification = verification = verify(on_trial, cycle_id=draft.cycle_id)
        self._notebook.memory = replace(self._notebook.memory, on_trial=on_trial)
        draft.close(verification.step, verification.reason)
        if verification.step is Step.WAIT:
            return
        reason = verification.reason
        if verification.step is Step.SWITCH:
            forbidden = self._people.permission(draft.at_seconds).sentence
            if forbidden:
                draft.close(Step.WAIT, f"{reason}; the switch waits: {forbidden}")
                return
            then = partial(self._switched, on_trial)
            self._change(draft, turn(on_trial), action="switch", reason=reason, then=then, approved=on_trial.approved)
            return
        if on_trial.hold_back:
            self._tuned_again(draft, on_trial)
            return
        ended = partial(self._ended, draft, on_trial, verification)
        trial = on_trial.trial
        target = trial.before if verification.step is Step.ROLL_BACK else trial.after
        if target.differs(on_trial.in_force):
            step, approved = verification.step.value, on_trial.approved
            self._change(draft, target, action=step, reason=reason, then=lambda _: ended(), approved=approved)
        else:
            self._notebook.memory = ended()

    def _tuned_again(self, draft: Draft, on_trial: OnTrial) -> None:
        """End a hold-back: the tuned setting comes back in force, and what was measured is kept."""
        pairs = worth(on_trial)
        kept = (*self._notebook.memory.worth, *pairs)[-MAX_WORTH:]
        told = value(kept)
        # It is no change that could fail, whatever the untouched setting did.
        if draft.verification is not None:
            draft.verification = replace(draft.verification, harm=False)
        reason = (
            f"the hold-back is over after {len(pairs)} pairs; tuned against untouched: score {told.score:+.3f} ± "
            f"{told.error:.3f} over {told.pairs} pairs so far"
        )
        draft.close("hold_back", reason)

        def ended(_: Receipt | None = None) -> Memory:
            return replace(self._notebook.memory, on_trial=None, worth=kept)

        if on_trial.trial.before.differs(on_trial.in_force):
            self._change(draft, on_trial.trial.before, action="roll_back", reason=reason, then=ended)
        else:
            self._notebook.memory = ended()

    def _switched(self, on_trial: OnTrial, receipt: Receipt) -> Memory:
        """Go on with the trial under the other setting."""
        return replace(self._notebook.memory, on_trial=switched(on_trial, receipt))

    def _ended(self, draft: Draft, on_trial: OnTrial, verification: Verification) -> Memory:
        """Remember the end of a trial, once the setting that it ends with is in force.

        After a change that stays, the next search may follow without the load having moved; one that was undone was a
        search that found nothing, and the next one waits for the load to move.
        """
        trial, searches = on_trial.trial, self._notebook.memory.searches
        if verification.step is not Step.ROLL_BACK:
            searches = replace(searches, context=(), fruitless=0)
        searches = replace(searches, changed_at_seconds=draft.at_seconds)
        caution = self._notebook.memory.caution
        if verification.step is Step.ROLL_BACK:
            spent, settings = cost(on_trial, at_seconds=draft.at_seconds), self._policy.change_breaker
            caution = charge(caution, spent, back_to=trial.before, at_seconds=draft.at_seconds, settings=settings)
        else:
            caution = credit(caution, *shown(on_trial, verification), before=trial.before, after=trial.after)
        self._writer.update(changed_at_seconds=draft.at_seconds)
        if verification.step is Step.PROMOTE:
            self._writer.update(known_good=trial.after)
            score, at_seconds = verification.observed_score, draft.at_seconds
            self._journal.remember(on_trial.context, trial.after, score=score, at_seconds=at_seconds)
        if verification.outcome is not Outcome.ERROR:
            # A change that was undone within its first leg has no score: it was at least as bad as what counts as harm.
            unmeasured, harm = (
                verification.harm and math.isnan(verification.observed_score),
                self._policy.verify.harm_ratio,
            )
            observed, noise = shown(on_trial, verification)
            self._calibrator.realised(
                verification.expected_score,
                harm if unmeasured else observed,
                noise=harm / 2 if unmeasured else noise,
                twin_score=float(sum_terms(trial.expected_terms)),
                moved=displacement(trial.before, trial.after, self._policy.knob_specs()).tolist(),
                context=on_trial.context,
            )
        return replace(
            self._notebook.memory,
            on_trial=None,
            searches=searches,
            caution=caution,
            spent=self._spent(on_trial, verification),
        )

    def _spent(self, on_trial: OnTrial, verification: Verification) -> tuple[Spending, ...]:
        """Return what the trials of the last day used of the budget, this one with what it gives back."""
        return tuple(
            replace(spending, alpha=used_alpha(spending.alpha, verification))
            if spending.at_seconds == on_trial.began_at_seconds
            else spending
            for spending in self._notebook.memory.spent[-self._policy.control.max_changes_per_day :]
        )

    def _change(
        self,
        draft: Draft,
        target: KnobValues,
        *,
        action: str,
        reason: str,
        then: Callable[[Receipt], Memory],
        approved: bool = False,
    ) -> None:
        """Have a setting written, and remember what follows from it in the transaction that notes its receipt."""
        observation = draft.observation
        if observation is None or observation.knobs is None:
            raise ActuatorUnavailable("the settings in force are not known, so nothing can be compared and set")
        if self._policy.mode is not TunerMode.AUTO and not (approved and self._policy.mode is TunerMode.RECOMMEND):
            self._notebook.memory = replace(self._notebook.memory, on_trial=None)
            draft.close(
                Decision.HOLD, f"would {action.replace('_', ' ')}: {reason}; the tuner's mode is {self._policy.mode}"
            )
            return

        def remembered(receipt: Receipt) -> Mapping[str, str]:
            if receipt.applied:
                searches = replace(self._notebook.memory.searches, changed_at_seconds=draft.at_seconds)
                self._notebook.memory = replace(self._notebook.memory, searches=searches)
                self._notebook.memory = then(receipt)
            return {STATE_NAME: self._notebook.memory.to_json()}

        def stands(standing: Standing, receipt: Receipt) -> Standing:
            changes = standing.changes_today(draft.at_seconds)
            if action == "apply":
                changes = (*changes, draft.at_seconds)
            return replace(standing, knobs=receipt.after, changed_at_seconds=draft.at_seconds, changes=changes)

        change = Change(
            cycle_id=draft.cycle_id,
            at_seconds=draft.at_seconds,
            action=action,
            reason=reason,
            before=observation.knobs,
            target=target,
            revision=observation.revision,
        )
        with draft.at("apply"):
            draft.receipt = receipt = self._writer.change(
                change,
                then=stands,
                states=remembered,
            )
            if not receipt.applied:
                draft.close("failed", receipt.detail)
