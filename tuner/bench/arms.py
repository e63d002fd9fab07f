"""Runs the arms of `bench tuning` on one workload within one set of bounds, paired by seed, on all cores.

What only simulates runs in threads: the engine runs without the interpreter lock. What thinks besides runs in processes
of its own, for two loops in one would wait for each other most of the time.
"""

import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from tuner import logs
from tuner.bench.ablations import ABLATED_ARMS
from tuner.bench.cases import (
    ARMS,
    BEST_FIXED,
    BEST_FIXED_WINDOW,
    CLOCKTUNER,
    FIXED_ARMS,
    TUNED_ARMS,
    UNTOUCHED,
    BoundSet,
)
from tuner.bench.faults import FAULT_ARMS
from tuner.bench.hindsight import Hindsight, Job, best_fixed
from tuner.bench.remembered import Remembered, key_of
from tuner.bench.replays import Outcome, replay
from tuner.bench.tuners import Site, TunerFactory
from tuner.reference.settings import ClockSettings
from tuner.reference.workloads import NamedWorkload

THREADS: Final = max(1, os.cpu_count() or 1)
"""Replays at once."""

Measure = Callable[[Outcome, Outcome], float]
"""Scores an outcome against the untouched one of the same seed."""

Scores = Callable[["Outcomes", str], Sequence[float]]
"""Takes the scores of an arm, one a seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One workload within one set of bounds.

    Attributes:
        name: Name of the workload.
        bounds: Bounds and untouched setting.
        workload: Makes the workload for a seed.
        seeds: Seeds; the same for every arm.
    """

    name: str
    bounds: BoundSet
    workload: Callable[[int], NamedWorkload]
    seeds: tuple[int, ...]

    def site(self, seed: int) -> Site:
        """Return what a tuner is told."""
        return Site(specs=self.bounds.specs, start=self.bounds.start, seed=seed)


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What came of the arms of a case, untouched among them.

    Attributes:
        outcomes: By arm, one a seed; in the order of the tables.
    """

    outcomes: Mapping[str, tuple[Outcome, ...]]

    def scores(self, arm: str) -> tuple[float, ...]:
        """Return the scores of an arm against untouched, one a seed."""
        return self._against_untouched(arm, Outcome.score)

    def window_scores(self, arm: str) -> tuple[float, ...]:
        """Return the mean scores of the windows of an arm against untouched, one a seed."""
        return self._against_untouched(arm, Outcome.window_score)

    def _against_untouched(self, arm: str, measure: Measure) -> tuple[float, ...]:
        pairs = zip(self.outcomes[arm], self.outcomes[UNTOUCHED], strict=True)
        return tuple(measure(outcome, untouched) for outcome, untouched in pairs)


@dataclass(frozen=True, slots=True)
class Kind:
    """What a score is taken of.

    Attributes:
        suffix: How it is told in the names of figures.
        words: The same in tables.
        scores: Takes the scores of an arm, one a seed.
        measure: Takes that of one outcome.
        best: Arm of the fixed setting that is best by it.
    """

    suffix: str
    words: str
    scores: Scores
    measure: Measure
    best: str


WHOLE: Final = Kind("", "whole replays", Outcomes.scores, Outcome.score, BEST_FIXED)
WINDOWS: Final = Kind("_window", "their windows", Outcomes.window_scores, Outcome.window_score, BEST_FIXED_WINDOW)
KINDS: Final = (WHOLE, WINDOWS)


@dataclass(frozen=True, slots=True)
class Compared(Outcomes):
    """What came of a comparison.

    Attributes:
        hindsight: How the setting was found that is best by the scores of whole replays.
        window_hindsight: The same by the scores of their windows.
    """

    hindsight: Hindsight
    window_hindsight: Hindsight


class Laboratory:
    """Makes replays side by side, or remembers them, and says how far it is."""

    def __init__(self, memory: Remembered, *, say: Callable[[str], None], threads: int = THREADS) -> None:
        """Prepare.

        Args:
            memory: Where replays are remembered.
            say: Takes one line of progress.
            threads: Replays at once.
        """
        self.memory = memory
        self._say = say
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="replay")
        # What is started from here keeps to one core each: linear algebra on all of them would wait for the others.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        # Started with the first replay that needs one. Spawned, for a process with threads must not be forked.
        self._processes = ProcessPoolExecutor(
            threads, mp_context=multiprocessing.get_context("spawn"), initializer=_be_quiet
        )

    def close(self) -> None:
        """End threads and processes; replays that have not begun are dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._processes.shutdown(wait=True, cancel_futures=True)

    def compare(self, case: Case, *, budget: int, others: Mapping[str, TunerFactory] | None = None) -> Compared:
        """Run all arms of a case.

        Args:
            case: What to run.
            budget: Most replays for the best fixed setting.
            others: Tuners of the outside, by name. Their replays are not remembered, for their code is not known.
        """
        outcomes = {UNTOUCHED: self._untouched(case)}
        # The long ones first: while they think, the others simulate.
        for arm in reversed(tuple(TUNED_ARMS)):
            outcomes[arm] = self.tuned(case, arm, TUNED_ARMS[arm])
        for arm, settings in FIXED_ARMS.items():
            if arm != UNTOUCHED:
                outcomes[arm] = self.fixed(case, settings(case.bounds), title=arm)
        found = {}
        for kind in KINDS:
            found[kind.best] = best = self.hindsight(case, outcomes[UNTOUCHED], budget=budget, measure=kind.measure)
            title = f"{kind.best} ({best.knobs.describe()})"
            outcomes[kind.best] = self.fixed(case, case.bounds.settings.with_knobs(best.knobs), title=title)
        outcomes |= {arm: self.tuned(case, arm, tuner, ours=False) for arm, tuner in (others or {}).items()}
        in_order = {arm: outcomes[arm] for arm in (*ARMS, *(others or {}))}
        return Compared(in_order, found[WHOLE.best], found[WINDOWS.best])

    def ablate(self, case: Case) -> Outcomes:
        """Run clocktuner as it is, and without each of its parts."""
        arms = {CLOCKTUNER: TUNED_ARMS[CLOCKTUNER], **ABLATED_ARMS}
        ablated = {arm: self.tuned(case, arm, tuner) for arm, tuner in arms.items()}
        return Outcomes({UNTOUCHED: self._untouched(case), **ablated})

    def mislead(self, case: Case) -> Outcomes:
        """Run the arms of a case that have something badly wrong in them."""
        misled = {arm: self.tuned(case, arm, tuner) for arm, tuner in FAULT_ARMS.items()}
        return Outcomes({UNTOUCHED: self._untouched(case), **misled})

    def _untouched(self, case: Case) -> tuple[Outcome, ...]:
        return self.fixed(case, FIXED_ARMS[UNTOUCHED](case.bounds), title=UNTOUCHED)

    def fixed(self, case: Case, settings: ClockSettings, *, title: str) -> tuple[Outcome, ...]:
        """Replay a setting that nobody touches on every seed."""
        found = tuple(self._pool.map(lambda seed: self._one(case, settings, seed), case.seeds))
        self._say(f"{case.name} {case.bounds.name}: {title} on {len(case.seeds)} seeds")
        return found

    def tuned(self, case: Case, arm: str, tuner: TunerFactory, *, ours: bool = True) -> tuple[Outcome, ...]:
        """Replay with a tuner on every seed.

        Args:
            case: What to replay.
            arm: Name of the tuner.
            tuner: Makes it.
            ours: Whether its code is known, so that its replays may be remembered and run in another process.
        """
        settings = case.bounds.settings

        def one(seed: int) -> Outcome:
            if ours:
                return self._one(case, settings, seed, arm=arm, tuner=tuner)
            return replay(case.workload(seed), settings, site=case.site(seed), tuner=tuner)

        found = tuple(self._pool.map(one, case.seeds))
        self._say(f"{case.name} {case.bounds.name}: {arm} on {len(case.seeds)} seeds")
        return found

    def hindsight(
        self, case: Case, untouched: Sequence[Outcome], *, budget: int, measure: Measure = Outcome.score
    ) -> Hindsight:
        """Search the best fixed setting by a measure."""
        done = 0

        def run(jobs: Sequence[Job]) -> Sequence[float]:
            nonlocal done

            def score(job: Job) -> float:
                knobs, number = job
                outcome = self._one(case, case.bounds.settings.with_knobs(knobs), case.seeds[number])
                return measure(outcome, untouched[number])

            scores = list(self._pool.map(score, jobs))
            done += len(jobs)
            self._say(
                f"{case.name} {case.bounds.name}: hindsight {done} of at most {budget} replays, "
                f"best of the last {len(jobs)}: {min(scores):+.3f}"
            )
            return scores

        return best_fixed(case.bounds.specs, case.bounds.start, seeds=len(case.seeds), budget=budget, run=run)

    def _one(
        self, case: Case, settings: ClockSettings, seed: int, *, arm: str = "", tuner: TunerFactory | None = None
    ) -> Outcome:
        workload, site = case.workload(seed), case.site(seed)

        def make() -> Outcome:
            if tuner is None:
                return replay(workload, settings, site=site)
            return self._processes.submit(replay, workload, settings, site=site, tuner=tuner).result()

        return self.memory.outcome(key_of(workload, settings, site=site, tuner_name=arm), make)


def _be_quiet() -> None:
    """Prepare a process that replays: it tells nothing."""
    logs.configure(level="error")
