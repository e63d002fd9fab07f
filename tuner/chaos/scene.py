"""One tuner with real journal, writer, guard and wires, between a planted cluster and whatever a fault makes of it."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tuner import wiring
from tuner.chaos.plant import PLANTED_SLICE_SECONDS, PlantedSource, finding
from tuner.chaos.policy import CYCLE_SECONDS, eager
from tuner.chaos.script import TICK_SECONDS
from tuner.chaos.store import Store
from tuner.chaos.unruly import Misbehaviour, Scheduler
from tuner.chaos.wire import Wire, wire
from tuner.chaos.witness import Promise, Violation, Witness, left
from tuner.demo.world import START_AT_SECONDS
from tuner.errors import JournalError
from tuner.record.journal import copy_journal
from tuner.values.knobs import Role
from tuner.values.stages import CycleRecord

PATIENT_SECONDS: Final = 10.0
"""Deadline of every request where nothing hangs: nobody waits for it, and a busy machine does not miss it."""

HASTY_SECONDS: Final = 0.5
"""The same where something hangs: short, so that it costs little time."""

SETTLE_CYCLES: Final = 24
"""Cycles after the end of a fault within which everything has to be settled: more than a whole comparison."""

TWO_KNOBS: Final = finding({Role.BASE_SLICE: PLANTED_SLICE_SECONDS, Role.RESERVATION: 0.22})
"""What every search finds: a setting that moves two knobs, so that a change can be half made."""


@dataclass(slots=True)
class Scene:
    """What a fault acts on.

    Attributes:
        folder: Where the journal lies.
        scheduler: The scheduler.
        scheduler_wire: Its port.
        store: The store of metrics.
        store_wire: Its port.
        witness: Looks into the journal at every write.
        answer_within_seconds: Deadline of every request of the tuner.
        now: Unix seconds, as the tuner's clock shows them.
        given: Records that were returned.
        refusals: What the journal refused.
    """

    folder: Path
    scheduler: Scheduler
    scheduler_wire: Wire
    store: Store
    store_wire: Wire
    witness: Witness
    answer_within_seconds: float
    now: float = START_AT_SECONDS
    given: list[CycleRecord] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    _parts: wiring.Parts | None = None

    @property
    def journal(self) -> Path:
        """The journal's file."""
        return self.folder / "journal.sqlite"

    @property
    def parts(self) -> wiring.Parts:
        """The tuner that runs."""
        if self._parts is None:
            raise RuntimeError("no tuner runs")
        return self._parts

    def start(self) -> None:
        """Start a tuner.

        Raises:
            JournalError: The journal cannot be used.
        """
        self._parts = self.assemble(self.journal)
        self._parts.people.prepare()

    def assemble(self, journal: Path, **options: Any) -> wiring.Parts:  # noqa: ANN401 - As `wiring.assemble`.
        """Return a tuner that is not the scene's own."""
        timing = {"timeout_seconds": self.answer_within_seconds}
        policy = eager(
            journal,
            source={"kind": "prometheus", "url": self.store_wire.url, "retries": 0, **timing},
            actuator={"url": f"{self.scheduler_wire.url}/config", **timing},
            by_name=True,
            change_breaker={"cool_down_seconds": 60.0},
        )
        return wiring.assemble(policy, clock=None, **{"planted": TWO_KNOBS, **options})

    def stop(self) -> None:
        """End the tuner."""
        if self._parts is not None:
            self._parts.close()
            self._parts = None

    def backup(self) -> Path:
        """Return a copy of the journal, as a person would make one."""
        return copy_journal(self.journal, self.folder / "backup.sqlite")

    def restore(self, backup: Path) -> None:
        """Put a copy of the journal in its place, as a person would."""
        for name in ("journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"):
            (self.folder / name).unlink(missing_ok=True)
        shutil.copy(backup, self.journal)

    def cycles(self, count: int) -> list[CycleRecord]:
        """Let periods pass, each with a cycle and a guard tick; returns what the cycles said."""
        said = []
        for _ in range(count):
            self.ticks(1)
            self.now += CYCLE_SECONDS - TICK_SECONDS
            with self._daemon():
                record = self.parts.cycle.run(at_seconds=self.now)
                self.given.append(record)
                said.append(record)
        return said

    def until(self, *decisions: str, most: int = 20) -> None:
        """Run cycles until one decides so.

        Raises:
            RuntimeError: None did.
        """
        for _ in range(most):
            if any(record.decision in decisions for record in self.cycles(1)):
                return
        said = [str(record.decision) for record in self.given[-most:]]
        raise RuntimeError(f"no cycle decided to {' or '.join(decisions)}, but {said}")

    def ticks(self, count: int) -> None:
        """Let short times pass, each with a guard tick."""
        for _ in range(count):
            self.now += TICK_SECONDS
            with self._daemon():
                self.given += self.parts.guard.tick(at_seconds=self.now)

    @contextmanager
    def _daemon(self) -> Iterator[None]:
        """Do as the daemon does where the journal cannot be written: log it, and go on."""
        try:
            yield
        except JournalError as error:
            self.refusals.append(str(error))

    def settle(self) -> int:
        """Run until all is settled; returns how many cycles it took to the first good one, 0 for none."""
        resumed_after = 0
        for number in range(1, SETTLE_CYCLES + 1):
            good = any(record.failure is None for record in self.cycles(1))
            if good and not resumed_after:
                resumed_after = number
            if resumed_after and number > resumed_after and self._quiet:
                break
        return resumed_after

    @property
    def _quiet(self) -> bool:
        return self.parts.cycle.memory.on_trial is None and not self.parts.journal.open_intents()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one fault at one moment.

    Attributes:
        writes: Writes that the scheduler took.
        resumed_after: Cycles from the end of the fault to the first good one; 0 where none came.
        violations: Promises that were broken.
    """

    writes: int
    resumed_after: int
    violations: tuple[Violation, ...]


def witnessed(act: Callable[[Scene], None], folder: Path, *, answer_within_seconds: float = PATIENT_SECONDS) -> Outcome:
    """Let a fault happen, let everything settle, and look.

    Args:
        act: What happens, up to the end of the fault; a tuner runs before and after.
        folder: An empty one.
        answer_within_seconds: Deadline of every request of the tuner.
    """
    with _scene(folder, answer_within_seconds) as scene:
        scene.start()
        broken = []
        act(scene)
        scene.scheduler.wrong = Misbehaviour()
        resumed_after = scene.settle()
        if not resumed_after:
            last = scene.given[-1].reason if scene.given else "nothing"
            broken.append(Violation(Promise.RESUMED, f"no good cycle in {SETTLE_CYCLES}; the last said: {last}"))
        broken += [*scene.witness.violations, *left(scene.parts, scene.given)]
        return Outcome(writes=scene.witness.writes, resumed_after=resumed_after, violations=tuple(broken))


@contextmanager
def _scene(folder: Path, answer_within_seconds: float) -> Iterator[Scene]:
    witness = Witness([folder / "journal.sqlite"])
    scheduler = Scheduler(witness)

    def slice_seconds() -> float:
        value = scheduler.document.get(Role.BASE_SLICE.value)
        return float(value) if isinstance(value, int | float) else 0.0

    store = Store(PlantedSource(slice_seconds=slice_seconds))
    with wire(scheduler.answer) as scheduler_wire, wire(store.answer) as store_wire:
        scene = Scene(folder, scheduler, scheduler_wire, store, store_wire, witness, answer_within_seconds)
        try:
            yield scene
        finally:
            with suppress(JournalError):
                scene.stop()
