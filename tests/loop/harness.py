"""The real loop against the reference scheduler, in simulated time.

Scheduler, HTTP interface, source, actuator, twin, search, judge and journal are the real ones; only the clock is
simulated, and the wires can be cut.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from tuner import assets, serving, wiring
from tuner.apply.actuator import Current
from tuner.apply.http import HttpActuator
from tuner.demo.lockstep import application
from tuner.demo.world import START_AT_SECONDS, Run, open_run
from tuner.errors import ActuatorUnavailable, SourceUnavailable
from tuner.observe.scrape import ScrapeSource
from tuner.observe.source import Answer, Series, Source
from tuner.reference.cluster import ClusterSpec
from tuner.reference.settings import ClockSettings
from tuner.reference.workload import NO_MODEL, Priority, TaskKind, Workload
from tuner.settings.loading import load_policy
from tuner.settings.model import Policy
from tuner.values.knobs import KnobValues, SchedulerMode
from tuner.values.stages import CycleRecord

MINUTE: Final = 60.0
CLUSTER: Final = ClusterSpec(name="loop", zone_nodes=(2, 2), gpus_per_node=4, cpu_slots_per_node=4)


def workload(hours: float, *, per_second: float = 1.2, step_at: float | None = None, seed: int = 1) -> Workload:
    """Return short protected requests over a little training; from `step_at` on, twice as many requests."""
    generator = np.random.default_rng(seed)
    seconds = hours * 3600
    arrivals = np.cumsum(generator.exponential(1 / per_second, round(2.5 * seconds * per_second)))
    if step_at is not None:
        late = arrivals > step_at
        arrivals[late] = step_at + (arrivals[late] - step_at) / 2
    arrivals = arrivals[arrivals < seconds]
    jobs = np.sort(generator.uniform(0, seconds, round(hours * 8)))
    submit = np.concatenate([arrivals, jobs])
    order = np.argsort(submit, kind="stable")
    inference = np.arange(submit.size) < arrivals.size

    def column(requests: Any, training: Any) -> Any:
        return np.where(inference, requests, training)[order]

    count = submit.size
    return Workload(
        submit_seconds=submit[order],
        service_seconds=column(generator.lognormal(0.5, 0.8, count), generator.lognormal(6.0, 0.7, count)),
        gpus=column(0.25, generator.choice([1.0, 2.0, 4.0], count)),
        kind=column(TaskKind.INFERENCE, TaskKind.TRAINING),
        priority=column(np.where(generator.random(count) < 0.7, Priority.HIGH, Priority.NORMAL), Priority.NORMAL),
        patience_seconds=column(120.0, 7200.0),
        model=column(generator.integers(0, 6, count), NO_MODEL),
        zone=generator.integers(0, 2, count)[order],
    )


class Wires:
    """Source and actuator of the simulation; each wire can be cut, and somebody else can be quicker.

    Attributes:
        down: While True, the source does not answer.
        rival: A setting that somebody else writes just before the next write of ours.
        lost: While True, writes arrive, but no answer to them comes back.
        shown: Values that the page is made to show, by the name of the series, instead of the true ones.
    """

    fuses: Final = False

    def __init__(self, source: Source, actuator: HttpActuator) -> None:
        self._source = source
        self._actuator = actuator
        self.down = False
        self.rival: KnobValues | None = None
        self.lost = False
        self.shown: dict[str, float] = {}

    def instant(self, expression: str, *, at_seconds: float) -> Answer:
        if self.down:
            raise SourceUnavailable("the metrics source is down")
        answer = self._source.instant(expression, at_seconds=at_seconds)
        if expression not in self.shown:
            return answer
        return replace(answer, series=(Series({}, np.array([at_seconds]), np.array([self.shown[expression]])),))

    def range(self, expression: str, *, start_seconds: float, end_seconds: float, step_seconds: float) -> Answer:
        if self.down:
            raise SourceUnavailable("the metrics source is down")
        return self._source.range(
            expression, start_seconds=start_seconds, end_seconds=end_seconds, step_seconds=step_seconds
        )

    def read(self) -> Current:
        return self._actuator.read()

    def write(self, knobs: KnobValues, *, expected_revision: str | None, mode: SchedulerMode | None = None) -> Current:
        if self.rival is not None:
            current = self._actuator.read()
            self._actuator.write(self.rival, expected_revision=current.revision)
            self.rival = None
        written = self._actuator.write(knobs, expected_revision=expected_revision, mode=mode)
        if self.lost:
            raise ActuatorUnavailable("the answer was lost")
        return written

    def await_effect(self, knobs: KnobValues, *, mode: SchedulerMode | None = None) -> Current:
        if self.lost:
            raise ActuatorUnavailable("the scheduler does not answer")
        return self._actuator.await_effect(knobs, mode=mode)


class Simulation:
    """One scheduler with clocktuner beside it.

    Attributes:
        run: The scheduler.
        wires: What stands between the two.
        parts: clocktuner.
        policy: What it was told.
    """

    def __init__(self, run: Run, page_url: str, policy: Policy) -> None:
        self.run = run
        self.policy = policy
        self.page_url = page_url
        self.seconds = 0.0
        self.wires = self._wire()
        self.parts = self._assemble()

    def _wire(self) -> Wires:
        policy = self.policy
        return Wires(ScrapeSource(policy.source), HttpActuator(policy.actuator, policy.knobs))  # type: ignore[arg-type]

    def _assemble(self) -> wiring.Parts:
        return wiring.assemble(self.policy, source=self.wires, actuator=self.wires, clock=None)

    def restart(self) -> None:
        """End the process and start another one on the same journal."""
        self.parts.close()
        self.parts = self._assemble()

    def cycles(self, count: int) -> list[CycleRecord]:
        """Let time pass and cycles run; returns their records."""
        return [self.cycle() for _ in range(count)]

    def cycle(self) -> CycleRecord:
        """Let one period pass, scraped each minute as a Prometheus would, and run a cycle."""
        end = self.seconds + self.policy.cycle.period_seconds
        while self.seconds < end:
            self.seconds += MINUTE
            self.run.advance(np.array([self.seconds]))
            self._scrape()
        return self.parts.cycle.run(at_seconds=self.now)

    def _scrape(self) -> None:
        if not self.wires.down:
            self.wires.instant("reference_queue_length", at_seconds=self.now)

    def ticks(self, count: int, *, every: float = 15.0) -> list[CycleRecord]:
        """Let time pass in small steps, with a guard tick after each; returns what they noted."""
        return [record for _ in range(count) for record in self.tick(every)]

    def tick(self, seconds: float = 15.0) -> tuple[CycleRecord, ...]:
        """Let some seconds pass, and run a guard tick."""
        self.seconds += seconds
        self.run.advance(np.array([self.seconds]))
        return self.parts.guard.tick(at_seconds=self.now)

    def until(self, decision: str, *, most: int = 60) -> CycleRecord:
        """Run cycles until one decides so.

        Raises:
            AssertionError: None of so many did.
        """
        for _ in range(most):
            record = self.cycle()
            if record.decision == decision:
                return record
        raise AssertionError(f"no cycle of {most} decided to {decision}")

    @property
    def now(self) -> float:
        """Unix time."""
        return START_AT_SECONDS + self.seconds

    @property
    def in_force(self) -> KnobValues:
        """The setting in force."""
        return self.wires.read().knobs

    @property
    def journal(self) -> tuple[CycleRecord, ...]:
        """All that was recorded."""
        return self.parts.journal.records()

    def edit(self, knobs: Mapping[Any, float]) -> None:
        """Set the scheduler as a person would."""
        current = self.wires.read()
        HttpActuator(self.policy.actuator, self.policy.knobs).write(  # type: ignore[arg-type]
            KnobValues.of({**current.knobs, **knobs}), expected_revision=current.revision
        )


World = TypeVar("World", bound=Simulation)


@contextmanager
def simulation(
    folder: Path, *, load: Workload | None = None, seed: int = 1, settings: ClockSettings | None = None, **sections: Any
) -> Iterator[Simulation]:
    """Run a scheduler with clocktuner beside it.

    Args:
        folder: Where the journal goes.
        load: What is submitted; six hours of `workload` where absent.
        seed: Seed of scheduler and search.
        settings: What the scheduler starts with.
        **sections: Parts of the policy that differ: `cycle={"cooldown_seconds": 0}`.
    """
    with simulation_of(Simulation, folder, load=load, seed=seed, settings=settings, **sections) as world:
        yield world


@contextmanager
def simulation_of(
    kind: type[World],
    folder: Path,
    *,
    load: Workload | None = None,
    seed: int = 1,
    settings: ClockSettings | None = None,
    **sections: Any,
) -> Iterator[World]:
    """Run a scheduler with clocktuner beside it, and something else than `Wires` between the two."""
    start = settings or ClockSettings()
    run = open_run("loop", "loop", CLUSTER, load or workload(6.0), start, seed=seed)
    page = serving.start(application(run, start), listen="127.0.0.1:0")
    parts = None
    try:
        parts = kind(run, page.url, _policy(folder, page.url, seed, sections))
        yield parts
    finally:
        if parts is not None:
            parts.parts.close()
        page.stop()


def _policy(folder: Path, url: str, seed: int, sections: Mapping[str, Any]) -> Policy:
    document = load_policy(assets.folder("policies") / "reference.yaml").model_dump(mode="json", exclude_unset=True)
    ours: dict[str, dict[str, Any]] = {
        "source": {"kind": "scrape", "url": f"{url}/metrics"},
        "actuator": {"kind": "http", "url": f"{url}/config", "forecast_url": f"{url}/forecast"},
        "cycle": {"period_seconds": 300},
        "search": {"seed": seed, "trials": 40},
        "forecast": {"lstm": False, "statistical": False},
        "journal": {"path": str(folder / "journal.sqlite")},
    }
    for name in (*ours, *sections):
        changed = sections.get(name, {})
        if isinstance(changed, dict):
            document[name] = {**document.get(name, {}), **ours.get(name, {}), **changed}
        else:
            document[name] = changed
    return Policy.model_validate(document)
