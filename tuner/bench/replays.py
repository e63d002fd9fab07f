"""Replays of the reference scheduler with a tuner beside it, and what comes of each.

A replay lasts as long as its workload, is looked at once a simulated minute, and stops at a decision point every five:
the tuner is told what the last window was like, and asked for the setting of the next. Workload and seed decide the
physics and the tasks, so replays that share them meet the same fate, and are compared in pairs.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tuner.bench.facts import Ledger
from tuner.bench.tuners import RunningBaseline, Site, Tuner, TunerFactory
from tuner.reference.physics import PhysicalConstants
from tuner.reference.scheduler import ReferenceScheduler
from tuner.reference.settings import ClockSettings
from tuner.reference.snapshot import Snapshot
from tuner.reference.tally import Tally
from tuner.reference.workloads import NamedWorkload
from tuner.values.metrics import MetricVector, score
from tuner.values.stages import FloatArray

MINUTE_SECONDS: Final = 60.0
WINDOW_SECONDS: Final = 300.0
"""Distance of two decision points."""
HARM_SCORE: Final = 0.05
"""Score against the untouched run beyond which a window counts as harmful."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one replay.

    Attributes:
        metrics: Of the whole replay, shape (13,).
        windows: Of each window, shape (windows, 13).
        changes: How often the setting was changed.
        rollbacks: How many of the changes undid one.
        facts: Further figures of the whole replay, by name; see `tuner.bench.facts`.
    """

    metrics: MetricVector
    windows: FloatArray
    changes: int = 0
    rollbacks: int = 0
    facts: Mapping[str, float] = field(default_factory=dict)

    def score(self, untouched: "Outcome") -> float:
        """Return the score against the untouched replay of the same seed; lower is better."""
        return float(score(self.metrics, untouched.metrics))

    def window_score(self, untouched: "Outcome") -> float:
        """Return the mean score of the windows, each against the same window of the untouched replay; lower is better.

        The metrics of a whole replay hold quantiles, which do not see what lasts less than their share of it: neither a
        harm of an hour a day, nor a gain before it has been in force for nearly all of the day. This score sees both.
        """
        scores = score(self.windows, untouched.windows)
        known = scores[np.isfinite(scores)]
        return float(known.mean()) if known.size else float("nan")

    def harmful_minutes(self, untouched: "Outcome") -> float:
        """Return the time in windows that were clearly worse than the same windows of the untouched replay."""
        harmed = score(self.windows, untouched.windows) > HARM_SCORE
        return float(np.count_nonzero(harmed)) * WINDOW_SECONDS / 60


class Sidecar(Tuner, ABC):
    """A tuner that watches and sets the scheduler by itself, as it does in life, instead of being told a score."""

    @property
    @abstractmethod
    def rollbacks(self) -> int:
        """How many changes it undid so far."""

    @abstractmethod
    def attach(self, scheduler: ReferenceScheduler) -> None:
        """Meet the scheduler, before anything happens."""

    @abstractmethod
    def watch(self, snapshot: Snapshot) -> None:
        """See what the scheduler shows, once a minute."""

    @abstractmethod
    def close(self) -> None:
        """The replay is over."""


def replay(
    workload: NamedWorkload,
    settings: ClockSettings,
    *,
    site: Site,
    tuner: TunerFactory | None = None,
    constants: PhysicalConstants | None = None,
) -> Outcome:
    """Replay a workload from its start to its end.

    Args:
        workload: What runs where.
        settings: What the scheduler starts with.
        site: Seed of the physics, and what the tuner is told.
        tuner: Makes the tuner; None for a scheduler that nobody touches.
        constants: The physics; drawn from the seed without.
    """
    scheduler = ReferenceScheduler(
        workload.cluster, workload.trace.workload, settings=settings, seed=site.seed, constants=constants
    )
    beside = tuner(site) if tuner is not None else None
    run = _Run(scheduler, beside)
    try:
        return run.through(windows_of(workload))
    finally:
        if isinstance(beside, Sidecar):
            beside.close()


def windows_of(workload: NamedWorkload) -> int:
    """Return how many windows a workload lasts; a rest that does not fill one is not replayed, but one at least is."""
    return max(1, int(workload.trace.span_seconds / WINDOW_SECONDS + 1e-9))


class _Run:
    """A replay under way."""

    def __init__(self, scheduler: ReferenceScheduler, tuner: Tuner | None) -> None:
        self._scheduler = scheduler
        self._tuner = tuner
        self._baseline = RunningBaseline()
        self._changes = 0
        self._whole, self._ledger = Tally(), Ledger()
        first = scheduler.snapshot()
        self._whole.add(first)
        self._ledger.add(first)
        self._last = first
        if isinstance(tuner, Sidecar):
            tuner.attach(scheduler)
            tuner.watch(first)

    def through(self, windows: int) -> Outcome:
        seen: list[MetricVector] = []
        for number in range(windows):
            if number > 0:
                self._decide(seen[-1])
            seen.append(self._window())
        return Outcome(
            metrics=self._whole.metrics(),
            windows=np.array(seen),
            changes=self._changes,
            rollbacks=self._tuner.rollbacks if isinstance(self._tuner, Sidecar) else 0,
            facts=self._ledger.facts(),
        )

    def _window(self) -> MetricVector:
        """Let one window pass, and return its metrics."""
        tally = Tally()
        tally.add(self._last)
        end = self._last.now_seconds + WINDOW_SECONDS
        while self._last.now_seconds < end:
            self._scheduler.advance(self._last.now_seconds + MINUTE_SECONDS)
            self._last = self._scheduler.snapshot()
            for reader in (tally, self._whole, self._ledger):
                reader.add(self._last)
            if isinstance(self._tuner, Sidecar):
                self._tuner.watch(self._last)
        return tally.metrics()

    def _decide(self, window: MetricVector) -> None:
        """Let the tuner decide about the next window."""
        if self._tuner is None:
            return
        before = self._scheduler.settings
        self._tuner.tell(self._baseline.score(window), window)
        wanted = before.with_knobs(self._tuner.ask())
        if wanted != self._scheduler.settings:
            self._scheduler.configure(wanted)
        self._changes += wanted.knobs != before.knobs
