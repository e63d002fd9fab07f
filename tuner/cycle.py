"""One cycle: what the product does, in the order in which it does it.

    nothing on trial:  observe -> forecast -> propose -> judge -> apply -> record
    change on trial:   observe -> verify -> apply (roll back) or keep -> forecast -> record

This module alone knows that order, and holds the one boundary at which errors become records. Time, seed and
randomness are arguments, so that the same code serves the daemon, a single run, and replays in simulated time.
"""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from structlog.contextvars import bound_contextvars

from tuner import logs
from tuner.apply.actuator import Actuator, Current
from tuner.apply.native import settle
from tuner.draft import Draft, blind, lacking
from tuner.errors import ActuatorUnavailable, ChangeConflicted, ChangeRejected, SourceUnavailable, TunerError
from tuner.forecast.stage import Forecasting
from tuner.heal import resolve
from tuner.judge.case import Case, required_metrics
from tuner.judge.gate import judge
from tuner.memory import STATE_NAME, Memory, OnTrial
from tuner.observe.observer import Observer
from tuner.propose.inputs import SearchInputs
from tuner.propose.search import search
from tuner.record.exporter import Exporter
from tuner.record.journal import Intent, Journal
from tuner.replaying import pack
from tuner.retune import context_vector, should_search
from tuner.settings.model import Policy, TunerMode
from tuner.trials import begin, look
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
)
from tuner.verify.rollout import abandon, verify

_CONFIRM_SEED: Final = 1_000_003
"""Added to a search's seed for the draws with which the best are scored again: they must be fresh ones."""


class Cycle:
    """The loop's body. One instance is the only writer of its journal and its scheduler."""

    def __init__(
        self,
        *,
        policy: Policy,
        observer: Observer,
        actuator: Actuator,
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
            actuator: Reads and writes the settings.
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
        self._forecasting = forecasting
        self._calibrator = calibrator
        self._journal = journal
        self._metrics = metrics
        self._hand_over = hand_over
        self._deadline_clock = deadline_clock
        self._log = logs.get("cycle")
        stored = journal.load_state(STATE_NAME)
        self._memory = Memory() if stored is None else Memory.from_json(stored)
        changed = self._memory.searches.changed_at_seconds
        if not math.isnan(changed):
            calibrator.changed(changed)

    @property
    def memory(self) -> Memory:
        """What the next cycle will remember."""
        return self._memory

    def run(self, *, at_seconds: float) -> CycleRecord:
        """Run one cycle; whatever goes wrong in it is in the record that it returns.

        Args:
            at_seconds: Now; every query is evaluated at this time.

        Raises:
            JournalError: The journal cannot be written, so nothing may be done.
        """
        draft = Draft(self._journal.next_cycle_id(), at_seconds)
        with bound_contextvars(cycle_id=draft.cycle_id):
            try:
                self._pass(draft)
            except TunerError as error:
                self._fail(draft, error.reason, str(error))
            except Exception as error:  # noqa: BLE001 - The one boundary; see the class.
                # A bug must not end the loop: the record names it, and the scheduler keeps its settings.
                self._log.exception("stage_crashed", stage=draft.stage)
                self._fail(draft, "internal", repr(error))
            return self._record(draft)

    def _pass(self, draft: Draft) -> None:
        try:
            with draft.at("observe"):
                observation, current = self._observe(draft)
        except SourceUnavailable as error:
            self._watch_blind(draft, error)
            return
        with draft.at("learn"):
            self._calibrator.observe(observation)
        if self._resumed(draft, current) or self._contested(draft, current):
            return
        watched = self._memory.on_trial
        if watched is not None:
            # Before the forecast, which it does not need: no error there may leave harm in force.
            self._verify(draft, observation, watched)
        with draft.at("forecast"):
            draft.forecast = forecast = self._forecasting.forecast(observation)
            self._give(forecast)
        if watched is None:
            self._tune(draft, observation, forecast)

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
        if not (self._resumed(draft, current) or self._contested(draft, current)):
            self._verify(draft, seen, self._memory.on_trial)

    def _give(self, forecast: Forecast) -> None:
        """Hand the forecast to the scheduler; it does without where that fails."""
        if self._hand_over is None:
            return
        try:
            self._hand_over(forecast)
        except TunerError as error:
            self._log.warning("forecast_not_handed_over", reason=error.reason, detail=str(error))

    def _resumed(self, draft: Draft, current: Current) -> bool:
        """Close changes whose end an earlier process did not see; undo one that nobody watched."""
        for intent in self._journal.open_intents():
            resolution = resolve(
                intent,
                current.knobs,
                revision=current.revision,
                remembered=self._memory.in_force,
                at_seconds=draft.at_seconds,
            )
            if resolution.receipt.applied and resolution.restore is None:
                self._found_in_force(draft, intent, resolution.receipt)
            if resolution.restore is not None:
                reason = f"the process ended before the change of cycle {intent.cycle_id} could be put on trial"
                kept = self._memory = replace(self._memory, on_trial=None)
                draft.close(Step.ROLL_BACK, reason)
                self._change(draft, resolution.restore, action="roll_back", reason=reason, then=self._settled)
                if draft.receipt is None or not draft.receipt.applied:
                    self._memory = kept  # The intent stays open, so that the next cycle tries again.
                    continue
            self._journal.end_change(resolution.receipt)
        return bool(draft.decision)

    def _found_in_force(self, draft: Draft, intent: Intent, receipt: Receipt) -> None:
        """Take over a change that happened unseen; a roll-back ends the trial, whose setting is no longer in force."""
        watched = self._memory.on_trial
        if intent.action != "roll_back" or watched is None:
            self._memory = replace(self._memory, in_force=receipt.after)
            return
        self._memory = self._settled(receipt)
        draft.verification = abandon(watched.trial, cycle_id=draft.cycle_id, reason=receipt.detail)
        draft.receipt = replace(receipt, cycle_id=draft.cycle_id)
        draft.close(Step.ROLL_BACK, f"the roll-back of cycle {intent.cycle_id} was {receipt.detail}: {intent.reason}")

    def _contested(self, draft: Draft, current: Current) -> bool:
        """Step back where somebody else has set the scheduler: a valid edit is adopted, and ends a trial."""
        ours, live = self._memory.in_force, current.knobs
        if ours is None:
            self._memory = replace(self._memory, in_force=live, known_good=live)
            return False
        moved = live.differs(ours)
        if not moved:
            return False
        reason = f"somebody else set {', '.join(moved)}; now in force: {live.describe()}"
        if self._memory.on_trial is not None:
            draft.verification = abandon(self._memory.on_trial.trial, cycle_id=draft.cycle_id, reason=reason)
        searches = replace(self._memory.searches, changed_at_seconds=draft.at_seconds, context=())
        self._memory = Memory(searches=searches, in_force=live, known_good=live)
        draft.close("adopted", reason)
        return True

    # forecast -> propose -> judge -> apply

    def _tune(self, draft: Draft, observation: Observation, forecast: Forecast) -> None:
        doubt = lacking(observation, required_metrics(self._policy))
        if doubt:
            draft.close(Decision.HOLD, doubt)
            return
        context = context_vector(observation, forecast)
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
            case = self._case(proposal, observation, forecast)
            draft.inputs = pack(inputs, case, policy=self._policy)
            draft.verdict = verdict = judge(case)
        draft.close(verdict.decision, f"{verdict.reason} ({trigger.reason})")
        if verdict.decision is Decision.APPLY:
            self._try_out(draft, proposal, context)

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
            trust=self._calibrator.trust_ratio,
            seed=seed,
            settings=settings,
            choices=self._policy.knob_choices(),
        )

    def _case(self, proposal: Proposal, observation: Observation, forecast: Forecast) -> Case:
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
        )

    def _deadline(self) -> Callable[[], bool] | None:
        clock = self._deadline_clock
        if clock is None:
            return None
        end = clock() + self._policy.search.deadline_seconds
        return lambda: clock() >= end

    def _try_out(self, draft: Draft, proposal: Proposal, context: FloatArray) -> None:
        """Make the proposed change and put it on trial."""

        def on_trial(receipt: Receipt) -> Memory:
            started = begin(
                receipt,
                proposal=proposal,
                calibrator=self._calibrator,
                at_seconds=draft.at_seconds,
                context=context,
                terms=self._policy.verify,
                weights=self._policy.weights(),
                limits=self._policy.limits(),
            )
            return replace(self._memory, on_trial=started, in_force=receipt.after)

        self._change(draft, proposal.candidate, action="apply", reason=proposal.reason, then=on_trial)

    # verify

    def _verify(self, draft: Draft, observation: Observation, on_trial: OnTrial) -> None:
        with draft.at("verify"):
            on_trial = look(on_trial, observation)
            draft.verification = verification = verify(on_trial.trial, cycle_id=draft.cycle_id)
        self._memory = replace(self._memory, on_trial=on_trial)
        draft.close(verification.step, verification.reason)
        match verification.step:
            case Step.WAIT:
                return
            case Step.PROMOTE:
                self._memory = replace(self._settle(draft), known_good=on_trial.trial.after)
                score = verification.observed_score
                self._journal.remember(on_trial.context, on_trial.trial.after, score=score, at_seconds=draft.at_seconds)
            case Step.KEEP:
                self._memory = self._settle(draft)
            case Step.ROLL_BACK:
                reason = verification.reason
                self._change(draft, on_trial.trial.before, action="roll_back", reason=reason, then=self._settled)
        if verification.outcome is not Outcome.ERROR and self._memory.on_trial is None:
            self._calibrator.realised(
                verification.expected_score, verification.observed_score, noise=verification.score_error
            )

    def _settle(self, draft: Draft) -> Memory:
        """End a trial: the cool-down starts, and the next search may follow without the load having moved."""
        searches = replace(self._memory.searches, changed_at_seconds=draft.at_seconds, context=(), fruitless=0)
        return replace(self._memory, on_trial=None, searches=searches)

    def _settled(self, receipt: Receipt) -> Memory:
        """End a trial by a roll-back: its search has found nothing, and the next one waits for the load to move."""
        return replace(self._memory, on_trial=None, in_force=receipt.after, known_good=receipt.after)

    # apply

    def _change(
        self, draft: Draft, target: KnobValues, *, action: str, reason: str, then: Callable[[Receipt], Memory]
    ) -> None:
        """Write a setting: intent into the journal, compare-and-set, read back, memory, receipt into the journal.

        The memory is saved before the receipt: wherever the process ends, the next one finds either an open intent or
        a memory that knows what is in force.
        """
        observation = draft.observation
        if observation is None or observation.knobs is None:
            raise ActuatorUnavailable("the settings in force are not known, so nothing can be compared and set")
        if self._policy.mode is not TunerMode.AUTO:
            self._memory = replace(self._memory, on_trial=None)
            draft.close(
                Decision.HOLD, f"would {action.replace('_', ' ')}: {reason}; the tuner's mode is {self._policy.mode}"
            )
            return
        # What the scheduler will hold when asked, so that its rounding does not read as a refusal.
        target = settle(target, self._policy.knobs)
        with draft.at("apply"):
            self._journal.begin_change(
                Intent(
                    cycle_id=draft.cycle_id,
                    at_seconds=draft.at_seconds,
                    action=action,
                    before=observation.knobs,
                    target=target,
                    expected_revision=observation.revision,
                    reason=reason,
                )
            )
            draft.receipt = receipt = self._write(draft, observation.knobs, target, observation.revision)
            if receipt.applied:
                searches = replace(self._memory.searches, changed_at_seconds=draft.at_seconds)
                self._memory = replace(self._memory, searches=searches)
                self._memory = then(receipt)
            else:
                self._memory = replace(self._memory, in_force=receipt.after)
                draft.close("failed", receipt.detail)
            self._save()
            self._journal.end_change(receipt)

    def _write(self, draft: Draft, before: KnobValues, target: KnobValues, revision: str) -> Receipt:
        try:
            current = self._actuator.write(target, expected_revision=revision)
        except (ChangeConflicted, ChangeRejected) as error:
            return _not_applied(draft, before, revision, str(error))
        applied = not current.knobs.differs(target)
        if not applied and current.knobs.differs(before):
            # Half a change is no change that anybody asked for, and nothing would watch it.
            half = current
            current = self._actuator.write(before, expected_revision=half.revision)
            return _not_applied(draft, before, current.revision, f"{_unlike(target, half.knobs)}; put back")
        return Receipt(
            cycle_id=draft.cycle_id,
            before=before,
            after=current.knobs,
            revision=current.revision,
            effective_at_seconds=draft.at_seconds if applied else math.nan,
            applied=applied,
            detail=f"in force: {current.knobs.describe()}" if applied else _unlike(target, current.knobs),
        )

    # record

    def _fail(self, draft: Draft, reason: str, detail: str) -> None:
        draft.failure = StageFailure(stage=draft.stage, reason=reason, detail=detail)
        if draft.verification is None or draft.stage != "forecast":  # What was done about a trial stays done.
            draft.close("failed", f"{draft.stage}: {detail}")

    def _record(self, draft: Draft) -> CycleRecord:
        started = time.perf_counter()
        record = draft.finish()
        self._journal.append(record, draft.inputs)
        self._save()
        draft.stage_seconds["record"] = time.perf_counter() - started
        self._metrics.update(
            record,
            trust_ratio=self._calibrator.trust_ratio,
            queries=self._observer.last_queries,
            read_bytes=self._observer.last_bytes,
        )
        tell = self._log.warning if record.failure is not None else self._log.info
        tell(
            "cycle_ended",
            decision=record.decision,
            reason=record.reason,
            seconds=round(sum(record.stage_seconds.values()), 3),
        )
        return record

    def _save(self) -> None:
        self._journal.save_state(STATE_NAME, self._memory.to_json())


def _not_applied(draft: Draft, before: KnobValues, revision: str, detail: str) -> Receipt:
    return Receipt(
        cycle_id=draft.cycle_id,
        before=before,
        after=before,
        revision=revision,
        effective_at_seconds=math.nan,
        applied=False,
        detail=detail,
    )


def _unlike(target: KnobValues, found: KnobValues) -> str:
    return f"asked for {target.describe()}, but in force is {found.describe()}"
