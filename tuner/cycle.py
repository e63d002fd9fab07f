"""One cycle: what the product does, in the order in which it does it.

    nothing on trial:  observe -> forecast -> propose -> judge -> apply -> record
    change on trial:   observe -> verify -> apply (roll back) or keep -> forecast -> record

This module alone knows that order, and holds the one boundary at which errors become records. Time, seed and
randomness are arguments, so that the same code serves the daemon, a single run, and replays in simulated time.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from structlog.contextvars import bound_contextvars

from tuner import logs
from tuner.apply.actuator import Actuator, Current
from tuner.caution import counted, learned, opened, stepped, waited
from tuner.control.approval import approval_fault
from tuner.draft import Draft, blind, lacking
from tuner.errors import ActuatorUnavailable, SourceUnavailable, TunerError
from tuner.forecast.stage import Forecasting
from tuner.judge.case import Case, required_metrics
from tuner.judge.gate import judge
from tuner.judge.ladder import doubts
from tuner.judge.reach import reach
from tuner.keeper import Keeper, Kept
from tuner.memory import STATE_NAME, Memory, OnTrial
from tuner.observe.observer import Observer
from tuner.people import People
from tuner.propose.inputs import SearchInputs
from tuner.propose.search import search
from tuner.record.exporter import Exporter
from tuner.record.journal import Journal
from tuner.record.ticks import Safety
from tuner.replaying import pack
from tuner.retune import context_vector, should_search
from tuner.settings.model import Policy, TunerMode
from tuner.standing import Standing
from tuner.trials import abandon, begin, look, switched, turn, verify
from tuner.twin.calibration import Calibrator
from tuner.twin.workload import build_scenarios
from tuner.values.knobs import KnobValues
from tuner.values.stages import (
    CycleRecord,
    Decision,
    FloatArray,
    Forecast,
    Observation,
    Outcome,
    Proposal,
    Receipt,
    StageFailure,
    Step,
    Verification,
)
from tuner.verify.budget import Spending, next_alpha, used_alpha
from tuner.writer import Change, Writer

_CONFIRM_SEED: Final = 1_000_003
"""Added to a search's seed for the draws with which the best are scored again: they must be fresh ones."""


class Cycle:
    """The loop's body; call it from one thread."""

    def __init__(
        self,
        *,
        policy: Policy,
        observer: Observer,
        actuator: Actuator,
        writer: Writer,
        keeper: Keeper,
        people: People,
        forecasting: Forecasting,
        calibrator: Calibrator,
        journal: Journal,
        metrics: Exporter,
        hand_over: Callable[[Forecast], None] | None = None,
        deadline_clock: Callable[[], float] | None = None,
    ) -> None:
        """Take the parts, and resume from what the journal remembers.

        Args:
            policy: Limits and budgets.
            observer: Reads the metrics.
            actuator: Reads the settings.
            writer: Writes them.
            keeper: Finishes or undoes what was left open, restores what was lost, and yields to others.
            people: What they have said.
            forecasting: Forecasts the load.
            calibrator: Keeps the twin like the scheduler.
            journal: Where everything is noted, before it is done.
            metrics: What is exported of the loop itself.
            hand_over: Gives the forecast to a scheduler that takes it; None where it does not.
            deadline_clock: Monotonic seconds, for the time limit of searches; None in replays, whose budget is trials.
        """
        self._policy = policy
        self._specs = policy.knob_specs()
        self._observer = observer
        self._actuator = actuator
        self._writer = writer
        self._keeper = keeper
        self._people = people
        self._forecasting = forecasting
        self._calibrator = calibrator
        self._journal = journal
        self._metrics = metrics
        self._hand_over = hand_over
        self._deadline_clock = deadline_clock
        self._log = logs.get("cycle")
        stored = journal.load_state(STATE_NAME)
        self._memory = Memory() if stored is None else Memory.from_json(stored)
        changed = writer.standing.changed_at_seconds
        if not math.isnan(changed):
            calibrator.changed(changed)

    @property
    def memory(self) -> Memory:
        """What the next cycle will remember."""
        return self._memory

    def run(self, *, at_seconds: float, quiet: bool = False) -> CycleRecord:
        """Run one cycle; whatever goes wrong in it is in the record that it returns.

        Args:
            at_seconds: Now; every query is evaluated at this time.
            quiet: Whether to look only, and begin no search: the first cycle of a process does not yet know what it
                has missed. What is open is closed all the same, and a trial watched.

        Raises:
            JournalError: The journal cannot be written, so nothing may be done.
        """
        draft = Draft(self._journal.next_cycle_id(), at_seconds)
        with bound_contextvars(cycle_id=draft.cycle_id):
            try:
                self._pass(draft, quiet=quiet)
            except TunerError as error:
                self._fail(draft, error.reason, str(error))
            except Exception as error:  # noqa: BLE001 - The one boundary; see the class.
                # A bug must not end the loop: the record names it, and the scheduler keeps its settings.
                self._log.exception("stage_crashed", stage=draft.stage)
                self._fail(draft, "internal", repr(error))
            return self._record(draft)

    def _pass(self, draft: Draft, *, quiet: bool) -> None:
        try:
            with draft.at("observe"):
                observation, current = self._observe(draft)
        except SourceUnavailable as error:
            self._watch_blind(draft, error)
            return
        with draft.at("learn"):
            self._calibrator.observe(observation)
        if self._kept(draft, current):
            return
        watched = self._memory.on_trial
        if watched is not None:
            # Before the forecast, which it does not need: no error there may leave harm in force.
            self._verify(draft, observation, watched)
        with draft.at("forecast"):
            draft.forecast = forecast = self._forecasting.forecast(observation)
            self._give(forecast)
        self._step(draft)
        if watched is None and quiet:
            draft.close(Decision.HOLD, "the first cycle after a start only looks")
        elif watched is None:
            self._tune(draft, observation, forecast)

    def _step(self, draft: Draft) -> None:
        """Go down the ladder at once where something is in doubt, or up one rung."""
        caution = self._memory.caution
        found = doubts(
            observation=draft.observation,
            forecast=draft.forecast,
            trust=self._calibrator.trust_ratio,
            rank_agreement=math.nan,
            failures_in_row=caution.failures_in_row,
            source_blind_cycles=caution.blind_in_row,
            lstm_usable=self._forecasting.network_answers,
            forecast_error_ratio=math.nan,
            required=required_metrics(self._policy),
            learns=self._policy.forecast.lstm or self._policy.forecast.statistical,
        )
        caution = waited(caution, at_seconds=draft.at_seconds, settings=self._policy.change_breaker)
        frozen = self._writer.standing.frozen_because
        caution = stepped(caution, found, at_seconds=draft.at_seconds, good=draft.failure is None, frozen=frozen)
        self._memory = replace(self._memory, caution=caution)

    # observe

    def _observe(self, draft: Draft) -> tuple[Observation, Current]:
        """Read metrics and settings; the record keeps the metrics even where the settings cannot be read."""
        observation = self._observer.observe(cycle_id=draft.cycle_id, at_seconds=draft.at_seconds)
        draft.observation = observation
        current = self._actuator.read()
        draft.observation = replace(observation, knobs=current.knobs, revision=current.revision, mode=current.mode)
        return draft.observation, current

    def _watch_blind(self, draft: Draft, error: SourceUnavailable) -> None:
        """Without metrics a change on trial is looked at all the same: too long unseen, it is undone.

        Raises:
            SourceUnavailable: No change is on trial.
        """
        if self._memory.on_trial is None:
            raise error
        current = self._actuator.read()
        draft.observation = seen = blind(draft, current)
        draft.failure = StageFailure(stage="observe", reason=error.reason, detail=str(error))
        if not self._kept(draft, current) and self._memory.on_trial is not None:
            self._verify(draft, seen, self._memory.on_trial)

    def _give(self, forecast: Forecast) -> None:
        """Hand the forecast to the scheduler; it does without where that fails."""
        if self._hand_over is None:
            return
        try:
            self._hand_over(forecast)
        except TunerError as error:
            self._log.warning("forecast_not_handed_over", reason=error.reason, detail=str(error))

    def _kept(self, draft: Draft, current: Current) -> bool:
        """Keep the settings as they were left, or yield; a trial whose setting is not in force any more ends.

        Returns:
            Whether there is nothing more to do in this cycle.
        """
        kept = self._keeper.keep(current, cycle_id=lambda: draft.cycle_id, at_seconds=draft.at_seconds)
        if kept is not None:
            draft.receipt = kept.receipt
            draft.close(kept.decision, kept.reason)
        self._follow(draft, kept)
        return kept is not None or bool(draft.decision)

    def _follow(self, draft: Draft, kept: Kept | None) -> None:
        """Take in what cycle or guard did to the settings: the cool-down starts, and a trial of another one is over."""
        standing, searches = self._writer.standing, self._memory.searches
        moved_at = standing.changed_at_seconds
        if math.isfinite(moved_at) and moved_at != searches.changed_at_seconds:
            searches = replace(searches, changed_at_seconds=moved_at, context=())
            self._memory = replace(self._memory, searches=searches)
        on_trial = self._memory.on_trial
        if on_trial is None or standing.knobs is None or not on_trial.in_force.differs(standing.knobs):
            return
        reason = kept.reason if kept else f"the setting on trial is no longer in force, but {standing.knobs.describe()}"
        self._memory = replace(self._memory, on_trial=None)
        draft.verification = abandon(on_trial, cycle_id=draft.cycle_id, reason=reason)
        if kept is None:
            draft.close("adopted", reason)

    # forecast -> propose -> judge -> apply

    def _tune(self, draft: Draft, observation: Observation, forecast: Forecast) -> None:
        doubt = lacking(observation, required_metrics(self._policy))
        if doubt:
            draft.close(Decision.HOLD, doubt)
            return
        context = context_vector(observation, forecast)
        self._writer.update(context=tuple(context.tolist()))
        if self._approved(draft, observation, forecast, context):
            return
        trigger = should_search(
            self._memory.searches,
            context,
            at_seconds=draft.at_seconds,
            settings=self._policy.cycle,
            intervals=self._calibrator.intervals,
        )
        if not trigger.search or observation.knobs is None or not observation.knobs:
            draft.close(Decision.HOLD, trigger.reason if observation.knobs else "the scheduler has no knob to tune")
            return
        with draft.at("propose"):
            inputs = self._search_inputs(draft, observation, forecast, context)
            draft.proposal = proposal = search(inputs, deadline_at=self._deadline())
        searches = replace(
            self._memory.searches,
            searched_at_seconds=draft.at_seconds,
            context=tuple(context.tolist()),
            searches=self._memory.searches.searches + 1,
            fruitless=self._memory.searches.fruitless + 1,
        )
        self._memory = replace(self._memory, searches=searches)
        with draft.at("judge"):
            case = self._case(draft, proposal, observation, forecast)
            draft.inputs = pack(inputs, case, policy=self._policy)
            draft.verdict = verdict = judge(case)
        draft.close(verdict.decision, f"{verdict.reason} ({trigger.reason})")
        if verdict.decision is Decision.APPLY:
            self._try_out(draft, proposal, observation, context)

    def _approved(self, draft: Draft, observation: Observation, forecast: Forecast, context: FloatArray) -> bool:
        """Make a change that a person has said yes to, if it still is what it was recommended for."""
        approval = self._people.approval()
        if approval is None:
            return False
        record = self._journal.record(approval.cycle_id)
        mode, at_seconds = self._policy.mode, draft.at_seconds
        fault = approval_fault(record, approval.cycle_id, mode=mode, at_seconds=at_seconds)
        self._people.used(approval)
        if fault or record is None or record.proposal is None:
            draft.close(Decision.HOLD, f"what {approval.by} approved is not done: {fault}")
            return True
        with draft.at("judge"):
            draft.proposal = proposal = replace(record.proposal, cycle_id=draft.cycle_id)
            draft.verdict = verdict = judge(self._case(draft, proposal, observation, forecast, approved=True))
        reason = f"{verdict.reason} (cycle {approval.cycle_id}, approved by {approval.by})"
        draft.close(verdict.decision, reason)
        if verdict.decision is Decision.APPLY:
            self._try_out(draft, proposal, observation, context, approved=True)
        return True

    def _search_inputs(
        self, draft: Draft, observation: Observation, forecast: Forecast, context: FloatArray
    ) -> SearchInputs:
        settings = self._policy.search
        seed = settings.seed * 1_000_000 + draft.cycle_id
        known = [memory.knobs for memory in self._journal.similar(context, 5)]
        return SearchInputs(
            cycle_id=draft.cycle_id,
            specs=self._specs,
            incumbent=KnobValues.of(observation.knobs or {}),
            scenarios=build_scenarios(observation, forecast, draws=settings.draws, seed=seed),
            confirm_scenarios=build_scenarios(
                observation, forecast, draws=settings.confirm_draws, seed=seed + _CONFIRM_SEED
            ),
            parameters=self._calibrator.parameters(draft.at_seconds),
            weights=self._policy.weights(),
            limits=self._policy.limits(),
            warm_starts=tuple(dict.fromkeys(known)),
            trust=reach(
                self._calibrator.trust_ratio,
                ladder=self._memory.caution.ladder,
                change_breaker=self._memory.caution.change_breaker,
            ),
            seed=seed,
            settings=settings,
            choices=self._policy.knob_choices(),
        )

    def _case(
        self,
        draft: Draft,
        proposal: Proposal,
        observation: Observation,
        forecast: Forecast,
        *,
        approved: bool = False,
    ) -> Case:
        changed = self._memory.searches.changed_at_seconds
        on_trial = self._memory.on_trial
        return Case(
            proposal=proposal,
            observation=observation,
            forecast=forecast,
            at_seconds=observation.at_seconds,
            specs=self._specs,
            required=required_metrics(self._policy),
            settings=self._policy.cycle,
            tuner_mode=self._policy.mode,
            trust=self._calibrator.trust_ratio,
            max_clock_skew_seconds=self._policy.source.max_clock_skew_seconds,
            last_change_at_seconds=None if math.isnan(changed) else changed,
            on_trial=None if on_trial is None else on_trial.trial.change_cycle_id,
            anchors=self._calibrator.intervals,
            choices=self._policy.knob_choices(),
            change_breaker=self._memory.caution.change_breaker,
            ladder=self._memory.caution.ladder,
            changes_today=len(self._writer.standing.changes_today(draft.at_seconds)),
            max_changes_per_day=self._policy.control.max_changes_per_day,
            forbidden=self._people.permission(draft.at_seconds).sentence,
            directions=self._people.control.directions(),
            approved=approved,
        )

    def _deadline(self) -> Callable[[], bool] | None:
        clock = self._deadline_clock
        if clock is None:
            return None
        end = clock() + self._policy.search.deadline_seconds
        return lambda: clock() >= end

    def _try_out(
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
        alpha = next_alpha(self._memory.spent, ratio=ratio, at_seconds=draft.at_seconds)
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
            spent = (*self._memory.spent, Spending(at_seconds=draft.at_seconds, alpha=alpha))
            return replace(self._memory, on_trial=replace(started, approved=approved), spent=spent)

        reason = proposal.reason
        self._change(draft, proposal.candidate, action="apply", reason=reason, then=on_trial, approved=approved)

    # verify

    def _verify(self, draft: Draft, observation: Observation, on_trial: OnTrial) -> None:
        draft.trial_began_at = on_trial.began_at_seconds
        with draft.at("verify"):
            on_trial = look(on_trial, observation, instance=self._writer.standing.instance)
            draft.verification = verification = verify(on_trial, cycle_id=draft.cycle_id)
        self._memory = replace(self._memory, on_trial=on_trial)
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
        ended = partial(self._ended, draft, on_trial, verification)
        trial = on_trial.trial
        target = trial.before if verification.step is Step.ROLL_BACK else trial.after
        if target.differs(on_trial.in_force):
            step, approved = verification.step.value, on_trial.approved
            self._change(draft, target, action=step, reason=reason, then=lambda _: ended(), approved=approved)
        else:
            self._memory = ended()

    def _switched(self, on_trial: OnTrial, receipt: Receipt) -> Memory:
        """Go on with the trial under the other setting."""
        return replace(self._memory, on_trial=switched(on_trial, receipt))

    def _ended(self, draft: Draft, on_trial: OnTrial, verification: Verification) -> Memory:
        """Remember the end of a trial, once the setting that it ends with is in force.

        After a change that stays, the next search may follow without the load having moved; one that was undone was a
        search that found nothing, and the next one waits for the load to move.
        """
        trial, searches = on_trial.trial, self._memory.searches
        if verification.step is not Step.ROLL_BACK:
            searches = replace(searches, context=(), fruitless=0)
        searches = replace(searches, changed_at_seconds=draft.at_seconds)
        self._writer.update(changed_at_seconds=draft.at_seconds)
        if verification.step is Step.PROMOTE:
            self._writer.update(known_good=trial.after)
            score, at_seconds = verification.observed_score, draft.at_seconds
            self._journal.remember(on_trial.context, trial.after, score=score, at_seconds=at_seconds)
        if verification.outcome is not Outcome.ERROR:
            self._calibrator.realised(
                verification.expected_score, verification.observed_score, noise=verification.score_error
            )
        return replace(self._memory, on_trial=None, searches=searches, spent=self._spent(on_trial, verification))

    def _spent(self, on_trial: OnTrial, verification: Verification) -> tuple[Spending, ...]:
        """Return what the trials of the last day used of the budget, this one with what it gives back."""
        return tuple(
            replace(spending, alpha=used_alpha(spending.alpha, verification))
            if spending.at_seconds == on_trial.began_at_seconds
            else spending
            for spending in self._memory.spent[-self._policy.control.max_changes_per_day :]
        )

    # apply

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
            self._memory = replace(self._memory, on_trial=None)
            draft.close(
                Decision.HOLD, f"would {action.replace('_', ' ')}: {reason}; the tuner's mode is {self._policy.mode}"
            )
            return

        def remembered(receipt: Receipt) -> Mapping[str, str]:
            if receipt.applied:
                searches = replace(self._memory.searches, changed_at_seconds=draft.at_seconds)
                self._memory = replace(self._memory, searches=searches)
                self._memory = then(receipt)
            return {STATE_NAME: self._memory.to_json()}

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

    # record

    def _fail(self, draft: Draft, reason: str, detail: str) -> None:
        draft.failure = StageFailure(stage=draft.stage, reason=reason, detail=detail)
        if draft.verification is None or draft.stage != "forecast":  # What was done about a trial stays done.
            draft.close("failed", f"{draft.stage}: {detail}")

    def _record(self, draft: Draft) -> CycleRecord:
        started = time.perf_counter()
        record = draft.finish()
        before = self._memory.caution
        settings = self._policy.change_breaker
        caution = learned(counted(before, record), record, began_at_seconds=draft.trial_began_at, settings=settings)
        self._memory = replace(self._memory, caution=caution)
        self._journal.append(record, draft.inputs, states=self._states())
        draft.stage_seconds["record"] = time.perf_counter() - started
        self._metrics.update(
            record,
            trust_ratio=self._calibrator.trust_ratio,
            queries=self._observer.last_queries,
            read_bytes=self._observer.last_bytes,
        )
        self._metrics.safety(self._safety(record.at_seconds, opened=opened(before, caution)))
        tell = self._log.warning if record.failure is not None else self._log.info
        tell(
            "cycle_ended",
            decision=record.decision,
            reason=record.reason,
            seconds=round(sum(record.stage_seconds.values()), 3),
        )
        return record

    def _safety(self, at_seconds: float, *, opened: bool) -> Safety:
        caution = self._memory.caution
        return Safety(
            change_breaker=caution.change_breaker.state,
            change_breaker_opened=opened,
            rung=caution.ladder.rung,
            paused_by=self._people.permission(at_seconds).by,
            paused_at_seconds=self._people.control.paused_at_seconds,
            rank_agreement=math.nan,
            sign_hit_ratio=math.nan,
        )

    def _states(self) -> dict[str, str]:
        parts = (self._keeper, self._people, self._writer)
        return {STATE_NAME: self._memory.to_json()} | {
            key: text for part in parts for key, text in part.states().items()
        }
