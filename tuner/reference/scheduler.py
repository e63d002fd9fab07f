"""The reference scheduler as its users see it: advance, configure, look."""

from dataclasses import replace
from typing import Any

import numpy as np

from tuner.reference.cluster import ClusterSpec
from tuner.reference.construction import build_engine, settings_record, with_forecast
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

        advance(self._engine, float(until_seconds))

    def configure(self, settings: ClockSettings) -> None:
        """Ask for other settings; they are in force from the beginning of the next decision."""
        self.settings = replace(settings)
        self._generation += 1
        self._engine.settings[1] = settings_record(settings, generation=self._generation)[0]

    def set_forecast(self, forecast: DemandForecast) -> None:
        """Hand over a forecast; it replaces the one before, and is used from the next plan and decision on."""
        self._engine = with_forecast(self._engine, forecast)

    def snapshot(self) -> Snapshot:
        """Return all that is shown, exact up to now; the run itself is not disturbed by looking."""
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
