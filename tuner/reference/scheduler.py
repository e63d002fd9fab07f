"""The reference scheduler as its users see it: advance, configure, look."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from tuner.errors import ConfigError
from tuner.reference.cluster import ClusterSpec
from tuner.reference.construction import (
    build_engine,
    settings_record,
    with_forecast,
    with_room_for_losses,
    without_forecast,
)
from tuner.reference.demand import DemandForecast
from tuner.reference.physics import PhysicalConstants
from tuner.reference.settings import ClockSettings
from tuner.reference.snapshot import Snapshot
from tuner.reference.workload import Workload


class ReferenceScheduler:
    """A simulated cluster with its scheduler, advanced in lock-step.

    Equal clusters, workloads, seeds and calls give equal results on every machine, however `advance` is cut into
    steps. Tasks and constants depend on the seed alone, so that two schedulers with one seed and unlike settings meet
    the same fate: their results may be paired. Not thread-safe, but several schedulers may advance at once:
    the engine runs without the interpreter lock.

    Nothing fails by itself: `fail_nodes`, `repair_nodes` and `restart` are for those who want to see what comes of it.
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        workload: Workload,
        *,
        settings: ClockSettings | None = None,
        seed: int,
        constants: PhysicalConstants | None = None,
    ) -> None:
        """Build a scheduler at time 0.

        Args:
            cluster: The machines.
            workload: What is submitted; times count from 0.
            settings: What is in force from the first decision on; the middle of the recommended ranges without.
            seed: Of everything that is drawn.
            constants: The physics; drawn from the seed without.

        Raises:
            ConfigError: A task can never run on this cluster.
        """
        self.cluster = cluster
        self.workload = workload
        self.settings = settings or ClockSettings()
        """What was last asked for; a snapshot says what is in force."""
        self._generation = 0
        self._coming: tuple[float, ClockSettings] | None = None
        self._start: Snapshot | None = None
        self._engine = build_engine(
            cluster,
            workload,
            settings=self.settings,
            constants=constants or PhysicalConstants.draw(seed),
            seed=seed,
        )

    @property
    def now_seconds(self) -> float:
        """Time until which it has advanced."""
        return float(self._engine.clock["now"][0])

    @property
    def finished(self) -> bool:
        """Whether every task is completed or abandoned."""
        return int(self._engine.clock["gone"][0]) == len(self.workload)

    @property
    def tasks(self) -> np.ndarray[Any, Any]:
        """A copy of the tasks' records: what became of each."""
        return self._engine.task.copy()

    def advance(self, until_seconds: float) -> None:
        """Run to a time, exactly, as fast as the machine goes; a time in the past does nothing.

        Raises:
            ValueError: The time is not finite.
        """
        if not np.isfinite(until_seconds):
            raise ValueError(f"until_seconds is {until_seconds}, must be finite")
        # Imported late: importing numba takes a third of a second, compiling without its cache far longer.
        from tuner.reference.engine.loop import advance

        if self._coming is not None and self._coming[0] <= until_seconds:
            at_seconds, settings = self._coming
            advance(self._engine, at_seconds)
            self.configure(settings)
        advance(self._engine, float(until_seconds))

    def configure(self, settings: ClockSettings, *, after_seconds: float = 0.0) -> None:
        """Ask for other settings; they are in force from the beginning of the next decision.

        Args:
            settings: What is asked for, instead of what was before and may not be in force yet.
            after_seconds: Time until which the scheduler does nothing about it.
        """
        self.settings = replace(settings)
        self._coming = (self.now_seconds + after_seconds, self.settings) if after_seconds > 0 else None
        if self._coming is None:
            self._generation += 1
            self._engine.settings[1] = settings_record(settings, generation=self._generation)[0]

    def fail_nodes(self, nodes: Iterable[int]) -> None:
        """Take nodes out, with all that runs on them: it waits again, and begins anew.

        Whole gangs stop, wherever else they run, and models in the memory of the nodes are gone. Waiting and patience
        count from now on; the place in the queue stays that of the submission. Nothing is placed on the nodes, and they
        are no capacity, until they are repaired.

        Args:
            nodes: Numbers of the nodes, in the order of the cluster; what has failed already stays so.

        Raises:
            ConfigError: There is no such node.
        """
        from tuner.reference.engine.loop import fail

        numbers = self._numbers(nodes)
        self._engine = with_room_for_losses(self._engine)
        for node in numbers:
            fail(self._engine, node)

    def repair_nodes(self, nodes: Iterable[int]) -> None:
        """Put failed nodes back, empty; work is placed on them from the next decision on.

        Args:
            nodes: Numbers of the nodes; what has not failed stays as it is.

        Raises:
            ConfigError: There is no such node.
        """
        from tuner.reference.engine.loop import repair

        for node in self._numbers(nodes):
            repair(self._engine, node, self.cluster.cpu_slots_per_node)

    def restart(self, settings: ClockSettings | None = None) -> None:
        """Let the process of the scheduler end and start again, at once; what runs and what waits goes on.

        Counters and the generation of the settings begin at 0, and the forecast is forgotten. What was learned of
        tasks stays, as in the database that schedulers keep, and so do the values over the last minute.

        Args:
            settings: What it starts with; the middle of the recommended ranges without.
        """
        self.configure(settings or ClockSettings())
        self._engine = without_forecast(self._engine)
        self._start = replace(self._look(), config_generation=self._generation)

    def _numbers(self, nodes: Iterable[int]) -> list[int]:
        numbers = sorted(set(nodes))
        unknown = [number for number in numbers if not 0 <= number < self.cluster.nodes]
        if unknown:
            raise ConfigError(f"node {unknown[0]} does not exist, must be 0..{self.cluster.nodes - 1}")
        return numbers

    def set_forecast(self, forecast: DemandForecast) -> None:
        """Hand over a forecast; it replaces the one before, and is used from the next plan and decision on."""
        self._engine = with_forecast(self._engine, forecast)

    def snapshot(self) -> Snapshot:
        """Return all that is shown, exact up to now; the run itself is not disturbed by looking."""
        seen = self._look()
        return seen if self._start is None else seen.since_start(self._start)

    def _look(self) -> Snapshot:
        """Return it with counters that began at 0 with the replay."""
        from tuner.reference.reading import read

        return read(self._engine, self.cluster)


def warm_up() -> None:
    """Compile the engine, or load it from numba's cache, so that the first real call is quick."""
    nothing, no_numbers = np.zeros(0), np.zeros(0, dtype=np.int64)
    empty = Workload(
        submit_seconds=nothing,
        service_seconds=nothing,
        gpus=nothing,
        kind=no_numbers,
        priority=no_numbers,
        patience_seconds=nothing,
        model=no_numbers,
        zone=no_numbers,
    )
    scheduler = ReferenceScheduler(ClusterSpec(name="warm-up", zone_nodes=(1,)), empty, seed=0)
    scheduler.advance(0.0)
    scheduler.snapshot()
