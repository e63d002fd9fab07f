"""The loop of the demonstration: advance the runs, write their samples, run a tuning cycle, and again."""

import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import zip_longest
from typing import Final

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tuner import wiring
from tuner.demo import view
from tuner.demo.store import Store
from tuner.demo.world import START_AT_SECONDS, World, chunks
from tuner.record.comparison import ComparisonRun
from tuner.values.metrics import MetricVector, score
from tuner.values.stages import STEP_SECONDS, FloatArray

CYCLE_SECONDS: Final = 300.0
"""Distance of two tuning cycles."""

UNTOUCHED: Final = "b"
TUNED: Final = "c"
"""Keys of the run that nobody tunes, and of the one that clocktuner tunes."""


class Stopwatch:
    """Wall-clock time by what it was spent on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def at(self, what: str) -> Iterator[None]:
        """Count the time of a block."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.add(what, time.perf_counter() - started)

    def add(self, what: str, seconds: float) -> None:
        """Count some time."""
        self.seconds[what] = self.seconds.get(what, 0.0) + seconds


class Replay:
    """The loop of the demonstration: advance the runs, write their samples, run a cycle, and again."""

    def __init__(
        self, world: World, parts: wiring.Parts, store: Store | None, *, console: Console, watch: Stopwatch
    ) -> None:
        """Take the parts; without a store the tuner scrapes the scheduler's page instead, each simulated minute."""
        self._world = world
        self._parts = parts
        self._store = store
        self._console = console
        self._watch = watch
        self._ahead: dict[str, Future[FloatArray]] = {}
        self._times: list[float] = []

    def run(self, hours: float) -> None:
        """Replay so many hours."""
        decisions = view.Decisions(self._console)
        pieces = chunks(hours, chunk_seconds=CYCLE_SECONDS)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"))
        with Progress(*columns, TimeRemainingColumn(), console=self._console, transient=True) as progress:
            task = progress.add_task("replaying", total=len(pieces))
            for times, following in zip_longest(pieces, pieces[1:]):
                self._advance(times)
                # The runs that nobody tunes go on while the tuner thinks.
                if following is not None:
                    self._ahead = {key: self._world.start(key, following) for key in self._world.runs if key != TUNED}
                self._cycle(float(times[-1]), decisions)
                progress.update(task, advance=1, description=f"{times[-1] / 3600:4.1f} h simulated")
        decisions.flush()

    def _advance(self, times: FloatArray) -> None:
        """Bring every run to the end of a piece of time, and its samples to where the tuner reads them."""
        with self._watch.at("simulate"):
            under_way = {
                key: self._ahead.get(key) or self._world.start(key, times) for key in self._world.runs if key != TUNED
            }
            values = {TUNED: self._advance_tuned(times)}
            values |= {key: future.result() for key, future in under_way.items()}
        self._times.append(START_AT_SECONDS + float(times[-1]))
        if self._store is not None:
            with self._watch.at("write"):
                for key in self._world.runs:
                    self._store.write_run(key, times, values[key])

    def _advance_tuned(self, times: FloatArray) -> FloatArray:
        run = self._world.runs[TUNED]
        if self._store is not None:
            return run.advance(times)
        values = []
        for until in times.tolist():
            values.append(run.advance(np.array([until]), closes_window=until == times[-1]))
            if until % STEP_SECONDS == 0:
                # Whatever name is asked for, the page is read as a whole and remembered.
                self._parts.source.instant("reference_queue_length", at_seconds=START_AT_SECONDS + until)
        return np.concatenate(values, axis=1)

    def _cycle(self, seconds: float, decisions: view.Decisions) -> None:
        at = START_AT_SECONDS + seconds
        if seconds % self._parts.policy.forecast.refit_seconds == 0:
            with self._watch.at("refit"):
                self._parts.forecasting.refit()
        record = self._parts.cycle.run(at_seconds=at)
        for stage, spent in record.stage_seconds.items():
            self._watch.add(stage, spent)
        decisions.show(record)
        if self._store is not None:
            with self._watch.at("write"):
                self._store.write_tuner(self._parts.metrics.samples(round(at * 1000)), at)

    def compared(self, weights: MetricVector) -> list[ComparisonRun]:
        """Return what came of each run; scores are against the untouched one."""
        metrics = {key: run.tally.metrics() for key, run in self._world.runs.items()}
        return [
            ComparisonRun(
                name=key,
                title=run.title,
                metrics=metrics[key],
                score=float(score(metrics[key], metrics[UNTOUCHED], weights=weights)),
                times_seconds=np.array(self._times),
                series=np.stack(run.windows, axis=1),
            )
            for key, run in self._world.runs.items()
        ]
