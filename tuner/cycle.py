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

from structlog.contextvars import bound_contextvars

from tuner import logs
from tuner.apply.actuator import Actuator, Current
from tuner.caution import counted, learned, opened, stepped, waited
from tuner.control.holdback import value
from tuner.draft import Draft, blind
from tuner.errors import JournalError, SourceUnavailable, TunerError
from tuner.forecast.stage import Forecasting
from tuner.judge.case import required_metrics
from tuner.judge.ladder import doubts
from tuner.keeper import Keeper, Kept
from tuner.memory import STATE_NAME, Memory, Notebook
from tuner.observe.observer import Observer
from tuner.people import People
from tuner.propose.scoring import Evaluate
from tuner.record.exporter import Exporter
from tuner.record.journal import Journal
from tuner.record.ticks import Safety
from tuner.settings.model import Policy
from tuner.trials import abandon
from tuner.trying import Trying
from tuner.tuning import Search, Tuning
from tuner.twin.calibration import STATE_NAME as TWIN_STATE_NAME
from tuner.twin.calibration import Calibrator
from tuner.twin.model import evaluate
from tuner.values.stages import (
    CycleRecord,
    Decision,
    Forecast,
    Observation,
    StageFailure,
)
from tuner.writer import Writer


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
        planted: Search | None = None,
        evaluate: Evaluate = evaluate,
        trying: type[Trying] = Trying,
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
            planted: Finds settings instead of a search, for a scenario; None to search.
            evaluate: The twin.
            trying: What tries changes out.
            deadline_clock: Monotonic seconds, for the time limit of searches; None in replays, whose budget is trials.
        """
        self._policy = policy
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
        self._log = logs.get("cycle")
        stored = journal.load_state(STATE_NAME)
        self._notebook = Notebook(Memory() if stored is None else Memory.from_json(stored))
        self._trying = trying(
            policy=policy,
            notebook=self._notebook,
            writer=writer,
            people=people,
            calibrator=calibrator,
            journal=journal,
        )
        self._tuning = Tuning(
            policy=policy,
            notebook=self._notebook,
            writer=writer,
            people=people,
            trying=self._trying,
            calibrator=calibrator,
            journal=journal,
            planted=planted,
            evaluate=evaluate,
            deadline_clock=deadline_clock,
        )
        changed = writer.standing.changed_at_seconds
        if not math.isnan(changed):
            calibrator.changed(changed)

    @property
    def memory(self) -> Memory:
        """What the next cycle will remember."""
        return self._notebook.memory

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
        watched = self._notebook.memory.on_trial
        if watched is not None:
            # Before the forecast, which it does not need: no error there may leave harm in force.
            self._trying.verify(draft, observation, watched)
        with draft.at("forecast"):
            draft.forecast = forecast = self._forecasting.forecast(observation)
            self._give(forecast)
        self._step(draft)
        if watched is None and quiet:
            draft.close(Decision.HOLD, "the first cycle after a start only looks")
        elif watched is None:
            self._tuning.tune(draft, observation, forecast)
            self._tuning.follow(draft, observation)

    def _step(self, draft: Draft) -> None:
        """Go down the ladder at once where something is in doubt, or up one rung."""
        caution, agreement = self._notebook.memory.caution, self._calibrator.rank_agreement
        found = doubts(
            observation=draft.observation,
            forecast=draft.forecast,
            trust=self._calibrator.trust_ratio,
            rank_agreement=agreement.tau,
            ranked_changes=agreement.changes,
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
        self._notebook.memory = replace(self._notebook.memory, caution=caution)

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
        if self._notebook.memory.on_trial is None:
            raise error
        current = self._actuator.read()
        draft.observation = seen = blind(draft, current)
        draft.failure = StageFailure(stage="observe", reason=error.reason, detail=str(error))
        if not self._kept(draft, current) and self._notebook.memory.on_trial is not None:
            self._trying.verify(draft, seen, self._notebook.memory.on_trial)

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
        standing, searches = self._writer.standing, self._notebook.memory.searches
        moved_at = standing.changed_at_seconds
        if math.isfinite(moved_at) and moved_at != searches.changed_at_seconds:
            searches = replace(searches, changed_at_seconds=moved_at, context=())
            self._notebook.memory = replace(self._notebook.memory, searches=searches)
        on_trial = self._notebook.memory.on_trial
        if on_trial is None or standing.knobs is None or not on_trial.in_force.differs(standing.knobs):
            return
        reason = kept.reason if kept else f"the setting on trial is no longer in force, but {standing.knobs.describe()}"
        self._notebook.memory = replace(self._notebook.memory, on_trial=None)
        draft.verification = abandon(on_trial, cycle_id=draft.cycle_id, reason=reason)
        if kept is None:
            draft.close("adopted", reason)

    # record

    def _fail(self, draft: Draft, reason: str, detail: str) -> None:
        draft.failure = StageFailure(stage=draft.stage, reason=reason, detail=detail)
        if draft.verification is None or draft.stage != "forecast":  # What was done about a trial stays done.
            draft.close("failed", f"{draft.stage}: {detail}")

    def _record(self, draft: Draft) -> CycleRecord:
        started = time.perf_counter()
        record = draft.finish()
        before = self._notebook.memory.caution
        settings = self._policy.change_breaker
        caution = learned(counted(before, record), record, began_at_seconds=draft.trial_began_at, settings=settings)
        self._notebook.memory = replace(self._notebook.memory, caution=caution)
        try:
            self._journal.append(record, draft.inputs, states=self._states())
        except JournalError:
            # What the journal does not know was not decided: the next cycle begins from what it knows.
            stored = self._journal.load_state(STATE_NAME)
            self._notebook.memory = Memory() if stored is None else Memory.from_json(stored)
            raise
        draft.stage_seconds["record"] = time.perf_counter() - started
        self._metrics.update(
            record,
            trust_ratio=self._calibrator.trust_ratio,
            queries=self._observer.last_queries,
            read_bytes=self._observer.last_bytes,
        )
        on_trial, told = self.memory.on_trial, value(self.memory.worth)
        self._metrics.worth(
            holding_back=on_trial is not None and on_trial.hold_back, score=told.score, score_error=told.error
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
        caution = self._notebook.memory.caution
        return Safety(
            change_breaker=caution.change_breaker.state,
            change_breaker_opened=opened,
            rung=caution.ladder.rung,
            paused_by=self._people.permission(at_seconds).by,
            paused_at_seconds=self._people.control.paused_at_seconds,
            rank_agreement=self._calibrator.rank_agreement.tau,
            sign_hit_ratio=self._calibrator.sign_hit_ratio,
        )

    def _states(self) -> dict[str, str]:
        parts = (self._keeper, self._people, self._writer)
        own = {STATE_NAME: self._notebook.memory.to_json(), TWIN_STATE_NAME: self._calibrator.to_json()}
        return own | {key: text for part in parts for key, text in part.states().items()}
