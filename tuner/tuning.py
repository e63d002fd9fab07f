"""Tuning: what a cycle does where nothing is on trial. When to search, what to try, and what speaks against it."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

from tuner.control.approval import approval_fault
from tuner.draft import Draft, lacking
from tuner.judge.case import Case, required_metrics
from tuner.judge.gate import judge
from tuner.judge.guards import tuner_mode
from tuner.judge.reach import reach
from tuner.memory import Notebook
from tuner.people import People
from tuner.propose.inputs import SearchInputs
from tuner.propose.search import Evaluate, search
from tuner.record.journal import Journal
from tuner.replaying import pack
from tuner.retune import context_vector, should_search
from tuner.settings.model import Policy
from tuner.shadow import cast, follow, over, told
from tuner.trying import Trying
from tuner.twin.calibration import Calibrator
from tuner.twin.workload import build_scenarios
from tuner.values.knobs import KnobValues
from tuner.values.stages import Decision, FloatArray, Forecast, Observation, Proposal, Verdict
from tuner.writer import Writer

_CONFIRM_SEED: Final = 1_000_003
"""Added to a search's seed for the draws with which the best are scored again: they must be fresh ones."""


class Search(Protocol):
    """Finds a better setting; see `tuner.propose.search.search`."""

    def __call__(
        self, inputs: SearchInputs, *, deadline_at: Callable[[], bool] | None = None, evaluate: Evaluate = ...
    ) -> Proposal:
        """Return what was found."""
        ...


class Tuning:
    """Searches and judges for one scheduler."""

    def __init__(
        self,
        *,
        policy: Policy,
        notebook: Notebook,
        writer: Writer,
        people: People,
        trying: Trying,
        calibrator: Calibrator,
        journal: Journal,
        planted: Search | None,
        evaluate: Evaluate,
        deadline_clock: Callable[[], float] | None,
    ) -> None:
        """Take the parts; see `tuner.cycle.Cycle`."""
        self._policy = policy
        self._specs = policy.knob_specs()
        self._notebook = notebook
        self._writer = writer
        self._people = people
        self._trying = trying
        self._calibrator = calibrator
        self._journal = journal
        self._planted = planted
        self._evaluate = evaluate
        self._deadline_clock = deadline_clock

    def tune(self, draft: Draft, observation: Observation, forecast: Forecast) -> None:
        """Search where the load has moved, judge what is found, and try out what passes; or say why not.

        Args:
            draft: The cycle's record in the making; decision and reason come out of it.
            observation: What is, with the settings in force.
            forecast: What is expected.
        """
        doubt = lacking(observation, required_metrics(self._policy))
        if doubt:
            draft.close(Decision.HOLD, doubt)
            return
        context = context_vector(observation, forecast)
        self._writer.update(context=tuple(context.tolist()))
        if self._approved(draft, observation, forecast, context):
            return
        if self._trying.hold_back(draft, observation, context):
            return
        trigger = should_search(
            self._notebook.memory.searches,
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
            find = self._planted or search
            draft.proposal = proposal = find(inputs, deadline_at=self._deadline(), evaluate=self._evaluate)
        searches = replace(
            self._notebook.memory.searches,
            searched_at_seconds=draft.at_seconds,
            context=tuple(context.tolist()),
            searches=self._notebook.memory.searches.searches + 1,
            fruitless=self._notebook.memory.searches.fruitless + 1,
        )
        self._notebook.memory = replace(self._notebook.memory, searches=searches)
        with draft.at("judge"):
            case = self._case(draft, proposal, observation, forecast)
            draft.inputs = pack(inputs, case, policy=self._policy)
            draft.verdict = verdict = judge(case)
        draft.close(verdict.decision, f"{verdict.reason} ({trigger.reason})")
        if verdict.decision is Decision.APPLY:
            self._trying.try_out(draft, proposal, observation, context)
        elif _only_for_people(verdict):
            parameters = self._calibrator.parameters(draft.at_seconds)
            shadow = cast(proposal, parameters, at_seconds=draft.at_seconds)
            self._notebook.memory = replace(self._notebook.memory, shadow=shadow)

    def follow(self, draft: Draft, observation: Observation) -> None:
        """Say what a change that was recommended and not made would have gained, once an hour of it has passed."""
        shadow = self._notebook.memory.shadow
        if shadow is None:
            return
        shadow = follow(shadow, observation, weights=self._policy.weights())
        if over(shadow):
            draft.reason = f"{draft.reason}; {told(shadow, trust=self._calibrator.trust_ratio)}"
        self._notebook.memory = replace(self._notebook.memory, shadow=None if over(shadow) else shadow)

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
            self._trying.try_out(draft, proposal, observation, context, approved=True)
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
                self._calibrator.region_ratio,
                ladder=self._notebook.memory.caution.ladder,
                change_breaker=self._notebook.memory.caution.change_breaker,
            ),
            seed=seed,
            settings=settings,
            choices=self._policy.knob_choices(),
            residual=self._calibrator.residual,
            context=tuple(context.tolist()),
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
        changed = self._notebook.memory.searches.changed_at_seconds
        on_trial = self._notebook.memory.on_trial
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
            region=self._calibrator.region_ratio,
            max_clock_skew_seconds=self._policy.source.max_clock_skew_seconds,
            last_change_at_seconds=None if math.isnan(changed) else changed,
            on_trial=None if on_trial is None else on_trial.trial.change_cycle_id,
            anchors=self._calibrator.intervals,
            choices=self._policy.knob_choices(),
            change_breaker=self._notebook.memory.caution.change_breaker,
            ladder=self._notebook.memory.caution.ladder,
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


def _only_for_people(verdict: Verdict) -> bool:
    """Say whether a change was held for nothing but want of a person's yes."""
    return [finding.guard for finding in verdict.findings if not finding.passed] == [tuner_mode.__name__]
