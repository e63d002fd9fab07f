"""The story of the bad hour: what happens when, how it is played, and what was done about it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from rich.console import Console

from tuner import wiring
from tuner.apply.http import HttpActuator
from tuner.demo import trouble, view
from tuner.demo.incidents import Answered, Incident, answered
from tuner.demo.replay import CYCLE_SECONDS, Stopwatch
from tuner.demo.store import Store
from tuner.demo.trouble import Stretch
from tuner.demo.world import Run
from tuner.propose.inputs import SearchInputs
from tuner.propose.planted import planted
from tuner.reference.synthetic import merge
from tuner.reference.workload import Workload
from tuner.settings.model import HttpActuator as HttpActuatorSettings
from tuner.values.knobs import KnobValues, Role
from tuner.values.stages import STEP_SECONDS, Proposal

KEY: Final = "bad"
"""Value of the label `run`."""

TICK_SECONDS: Final = 15.0
"""Distance of two guard ticks, and of two samples."""

EDIT_SECONDS: Final = 180.0
GARBAGE_SECONDS: Final = 360.0
SURGE: Final = Stretch(start_seconds=3000.0, end_seconds=3180.0)
OUTAGE: Final = Stretch(start_seconds=3900.0, end_seconds=4320.0)
END_SECONDS: Final = 5100.0
"""When what happens, in seconds from the beginning. Between garbage and surge nothing is touched: once three intervals
of a quarter of an hour have met one setting, a change may be tried, which is after half an hour, and has been undone
before the surge."""

FAILED_NODES: Final = 140
"""What is left is less than the protected work asks for beside what runs already."""

SURGE_PER_SECOND: Final = 210.0
"""Requests a second: each takes the scheduler about 5 ms to place in this cluster, so that it falls behind."""

EDITED_RESERVATION: Final = 0.23
GARBAGE_SLICE_SECONDS: Final = 4.9
"""The scheduler takes slices up to 5 s; the policy knows 80 to 150 ms."""

HARMFUL_PERIOD_SECONDS: Final = 4.0
"""Nothing is placed sooner than this: over the 3 s that no change may lead beyond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """Something that somebody else does to the scheduler.

    Attributes:
        at_seconds: When, from the beginning.
        sentence: What, for people.
        do: Does it; None where the load alone does.
    """

    at_seconds: float
    sentence: str
    do: Callable[[], None] | None = None


def harmful(inputs: SearchInputs, **_: object) -> Proposal:
    """Propose a harmful change, instead of a search, and promise much of it."""
    moves = {Role.DECISION_PERIOD: HARMFUL_PERIOD_SECONDS}
    return planted(inputs, moves, score=-0.1, reason="planted by the demonstration: it promises 10 %, and does harm")


class Story:
    """The story, put together and ready to run.

    Attributes:
        run: The scheduler.
        parts: clocktuner.
        origin_seconds: Unix time at which it begins.
    """

    def __init__(
        self,
        run: Run,
        parts: wiring.Parts,
        store: Store | None,
        *,
        origin_seconds: float,
        console: Console,
        watch: Stopwatch,
    ) -> None:
        """Take the parts; without a store the tuner scrapes the scheduler's page instead."""
        self.run = run
        self.parts = parts
        self.origin_seconds = origin_seconds
        self._store = store
        self._console = console
        self._watch = watch
        self._told = view.Decisions(console, clock="%H:%M:%S")

    def play(self, *, end_seconds: float = END_SECONDS) -> list[Answered]:
        """Let it all happen, and return what was done about it."""
        acts = list(self._acts())
        for step in range(1, round(end_seconds / TICK_SECONDS) + 1):
            seconds = step * TICK_SECONDS
            self._advance(seconds)
            with self._watch.at("guard"):
                for record in self.parts.guard.tick(at_seconds=self.origin_seconds + seconds):
                    self._told.show(record)
            if seconds % CYCLE_SECONDS == 0:
                self._cycle(seconds)
            while acts and acts[0].at_seconds <= seconds:
                self._perform(acts.pop(0))
        self._told.flush()
        return self._answers()

    def _advance(self, seconds: float) -> None:
        """Let the scheduler go on, and bring its samples to where the tuner reads them."""
        times = np.array([seconds])
        with self._watch.at("simulate"):
            values = self.run.advance(times)
        if self._store is not None:
            with self._watch.at("write"):
                self._store.write_run(KEY, times, values)
        elif seconds % STEP_SECONDS == 0:
            # Whatever name is asked for, the page is read as a whole and remembered.
            self.parts.source.instant("reference_queue_length", at_seconds=self.origin_seconds + seconds)

    def _cycle(self, seconds: float) -> None:
        at = self.origin_seconds + seconds
        record = self.parts.cycle.run(at_seconds=at)
        for stage, spent in record.stage_seconds.items():
            self._watch.add(stage, spent)
        self._told.show(record)
        if self._store is not None:
            with self._watch.at("write"):
                self._store.write_tuner(self.parts.metrics.samples(round(at * 1000)), at)

    def _perform(self, act: Act) -> None:
        self._told.flush()
        self._told.tell(self.origin_seconds + act.at_seconds, act.sentence)
        if act.do is not None:
            act.do()

    def _acts(self) -> Iterator[Act]:
        """Yield what happens, in time order."""
        yield Act(
            at_seconds=EDIT_SECONDS,
            sentence=f"somebody sets the reservation to {EDITED_RESERVATION * 100:g} % by hand",
            do=lambda: self._set({Role.RESERVATION: EDITED_RESERVATION}),
        )
        yield Act(
            at_seconds=GARBAGE_SECONDS,
            sentence=f"somebody writes {GARBAGE_SLICE_SECONDS:g} s into the time slice; the scheduler takes it",
            do=lambda: self._set({Role.BASE_SLICE: GARBAGE_SLICE_SECONDS}),
        )
        count = np.count_nonzero(self._submitted_in(SURGE))
        yield Act(
            at_seconds=SURGE.start_seconds,
            sentence=f"a surge: {count:,} tasks in {SURGE.seconds / 60:g} minutes, more than it can decide about",
        )
        cluster = self.run.scheduler.cluster
        yield Act(
            at_seconds=OUTAGE.start_seconds,
            sentence=f"{FAILED_NODES} of {cluster.nodes} nodes fail, with all that runs on them",
            do=lambda: self.run.scheduler.fail_nodes(range(FAILED_NODES)),
        )
        yield Act(
            at_seconds=OUTAGE.end_seconds,
            sentence="they are back",
            do=lambda: self.run.scheduler.repair_nodes(range(FAILED_NODES)),
        )

    def _submitted_in(self, when: Stretch) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        times = self.run.scheduler.workload.submit_seconds
        return np.asarray((times >= when.start_seconds) & (times < when.end_seconds))

    def _set(self, knobs: dict[Role, float]) -> None:
        """Set the scheduler over its page, as anybody can."""
        policy = self.parts.policy
        if not isinstance(policy.actuator, HttpActuatorSettings):
            raise TypeError("the scheduler is set over HTTP")
        page = HttpActuator(policy.actuator, policy.knobs)
        current = page.read()
        page.write(KnobValues.of({**current.knobs, **knobs}), expected_revision=current.revision)

    def _answers(self) -> list[Answered]:
        """Return what was done about each incident, and how things stand."""
        records, origin = self.parts.journal.records(), self.origin_seconds
        live, guard = self.parts.actuator.read(), self.parts.guard.state
        breaker = self.parts.cycle.memory.caution.change_breaker
        limit = self.parts.policy.change_breaker.harmful_changes
        edited, surge, outage = origin + EDIT_SECONDS, origin + SURGE.start_seconds, origin + OUTAGE.start_seconds
        happened = (
            (
                Incident(title="a setting edited by hand", answers=("adopted",), at_seconds=edited),
                f"reservation {live.knobs[Role.RESERVATION] * 100:g} %",
            ),
            (
                Incident(title="garbage in a setting", answers=("heal",), at_seconds=origin + GARBAGE_SECONDS),
                f"slice {live.knobs[Role.BASE_SLICE] * 1000:g} ms",
            ),
            (
                Incident(title="a harmful change", answers=("apply", "roll_back")),
                f"period {live.knobs[Role.DECISION_PERIOD]:g} s, change breaker {breaker.state}, "
                f"{len(breaker.harms)} of {limit} harms",
            ),
            (
                Incident(title="a surge of short tasks", answers=("simplify", "probe", "recover"), at_seconds=surge),
                f"policy {live.mode}, latency breaker {guard.breaker.state}",
            ),
            (
                Incident(title="nodes fail", answers=("protect", "release"), at_seconds=outage),
                f"policy {live.mode}" + (", still degraded" if guard.degradation.active else ""),
            ),
        )
        return [answered(incident, records, state=state) for incident, state in happened]


def load(seed: int, *, seconds: float = END_SECONDS) -> Workload:
    """Return all that is submitted in the bad hour."""
    rng, accelerators = np.random.default_rng(seed), trouble.hall().gpus
    return merge(
        trouble.usual(rng, seconds=seconds, accelerators=accelerators),
        trouble.requests(rng, SURGE, per_second=SURGE_PER_SECOND),
        trouble.protected(rng, OUTAGE, accelerators=accelerators),
    )
