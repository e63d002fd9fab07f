"""Faults other than a kill: of the disk, of the clock, of the metrics, of the scheduler, and of a second tuner.

Each leaves the tuner running, or starts it anew where the fault ends it, and asks for the same: no write that the
journal did not know of, no value out of bounds, nothing left open, and a good cycle once the fault is over.
"""

import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from tuner.chaos.kill import Outcome, look, scene, told_by
from tuner.chaos.scheduler import Settings
from tuner.chaos.script import Stage, open_stage
from tuner.demo.world import START_AT_SECONDS
from tuner.errors import ActuatorUnavailable, ChangeRejected, JournalError, SourceUnavailable, TunerError
from tuner.observe.source import Answer, Series

RESUME_CYCLES: Final = 6
"""Cycles after the end of a fault within which a good one must come."""

Break = Callable[["Scene"], None]
"""Breaks something, lets cycles and ticks run, and mends it."""


@dataclass(slots=True)
class Scene:
    """A tuner at work, and all that can be broken around it."""

    stage: Stage
    journal: Path
    url: str
    settings: Settings

    def suffer(self, cycles: int = 3) -> None:
        """Let cycles and ticks run while something is broken; what they raise on purpose is what a daemon logs."""
        for _ in range(cycles):
            with suppress(TunerError):
                self.stage.ticks(2)
            with suppress(TunerError):
                self.stage.cycles(1)

    def restart(self) -> None:
        """End the tuner, and start another one on the same journal."""
        self.stage.parts.close()
        self.stage = open_stage(self.journal, self.url, started_at=self.stage.now)


def _run(name: str, broken: Break) -> Outcome:
    with scene() as (journal, url, settings):
        at_work = Scene(open_stage(journal, url), journal, url, settings)
        at_work.stage.ticks(1)
        try:
            broken(at_work)
            resumed_after = _good_cycle(at_work.stage)
            told = told_by(at_work.stage, journal, resumed_after)
        finally:
            at_work.stage.parts.close()
        return Outcome(
            scenario=name,
            point=1,
            step=name,
            writes=sum(put.foretold is not None for put in settings.puts),
            resumed_after=resumed_after,
            violations=tuple(look(journal, settings, told)),
        )


def _good_cycle(stage: Stage) -> int:
    """Run some cycles; returns the number of the first that did not fail, -1 where none came."""
    first = -1
    for number in range(1, RESUME_CYCLES + 1):
        stage.ticks(1)
        stage.cycles(1)
        if first < 0 and stage.decisions[-1] != "failed":
            first = number
    return first


@contextmanager
def _instead(owner: object, name: str, replacement: object) -> Iterator[None]:
    """Put something in the place of a method of a part for a while."""
    before = getattr(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _raising(error: Exception) -> Callable[..., object]:
    def fail(*_: object, **__: object) -> object:
        raise error

    return fail


# The journal.


def _disk_full(scene: Scene) -> None:
    connection = scene.stage.parts.journal._storage._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    scene.suffer()
    connection.execute("PRAGMA max_page_count = 1073741823")


def _journal_locked(scene: Scene) -> None:
    rival = sqlite3.connect(scene.journal, isolation_level=None)
    scene.stage.parts.journal._storage._connection.execute("PRAGMA busy_timeout = 50")
    rival.execute("BEGIN IMMEDIATE")
    try:
        scene.suffer()
    finally:
        rival.execute("ROLLBACK")
        rival.close()


def _journal_moved(scene: Scene) -> None:
    away = scene.journal.with_name("away.sqlite")
    scene.journal.rename(away)
    scene.suffer()
    away.rename(scene.journal)


def _journal_damaged(scene: Scene) -> None:
    scene.suffer(1)
    scene.stage.parts.close()
    kept = scene.journal.read_bytes()
    scene.journal.write_bytes(b"\xff" * 512 + kept[512:])
    with suppress(JournalError):
        open_stage(scene.journal, scene.url, started_at=scene.stage.now)
        raise AssertionError("a damaged journal was opened")
    scene.journal.write_bytes(kept)  # The backup that its message asks for.
    scene.stage = open_stage(scene.journal, scene.url, started_at=scene.stage.now)


# The clock.


def _clock_jumps(seconds: float) -> Break:
    def jump(scene: Scene) -> None:
        scene.suffer(2)
        scene.stage.now += seconds
        scene.suffer(2)

    return jump


# The metrics.


def _source_fails(scene: Scene) -> None:
    source = scene.stage.source
    source.failure = SourceUnavailable("no answer within 5 s")
    scene.suffer()
    source.failure = None


def _source_lies(value: float) -> Break:
    def lie(scene: Scene) -> None:
        source = scene.stage.source
        source.answer = lambda _, at: Answer(series=(Series({}, np.array([at]), np.array([value])),))
        scene.suffer()
        source.answer = None

    return lie


def _source_empty(scene: Scene) -> None:
    source = scene.stage.source
    source.answer = lambda _, __: Answer(series=())
    scene.suffer()
    source.answer = None


def _source_partial(scene: Scene) -> None:
    source = scene.stage.source
    source.warnings = ("one store did not answer",)
    scene.suffer()
    source.warnings = ()


# The scheduler.


def _scheduler_refuses(scene: Scene) -> None:
    with _instead(scene.stage.parts.actuator, "write", _raising(ChangeRejected("not now"))):
        scene.suffer()


def _scheduler_silent(scene: Scene) -> None:
    gone = _raising(ActuatorUnavailable("no answer within 5 s"))
    with _instead(scene.stage.parts.actuator, "read", gone), _instead(scene.stage.parts.actuator, "write", gone):
        scene.suffer()


def _scheduler_loses_answers(scene: Scene) -> None:
    actuator = scene.stage.parts.actuator
    write, gone = actuator.write, ActuatorUnavailable("the answer was lost")

    def lose(*arguments: object, **options: object) -> object:
        write(*arguments, **options)  # type: ignore[arg-type]
        raise gone

    with _instead(actuator, "write", lose), _instead(actuator, "await_effect", _raising(gone)):
        scene.suffer()


def _scheduler_half_applies(scene: Scene) -> None:
    scene.settings.forgets = frozenset({"base_slice_seconds"})
    scene.suffer()
    scene.settings.forgets = frozenset()


def _scheduler_restarts(scene: Scene) -> None:
    scene.stage.edit(reservation_ratio=0.22)
    scene.suffer(1)
    scene.settings.restart()
    scene.suffer(2)


# A second tuner.


def _second_tuner_same_journal(scene: Scene) -> None:
    try:
        open_stage(scene.journal, scene.url)
    except JournalError:
        scene.suffer()
        return
    raise AssertionError("two tuners write one journal")


def _second_tuner_other_journal(scene: Scene) -> None:
    other = open_stage(scene.journal.with_name("other.sqlite"), scene.url, started_at=START_AT_SECONDS)
    try:
        for _ in range(3):
            with suppress(TunerError):
                other.ticks(1)
                other.cycles(1)
            scene.suffer(1)
    finally:
        other.parts.close()


# People.


def _garbage_in_the_spool(scene: Scene) -> None:
    folder = Path(f"{scene.journal}.orders")
    folder.mkdir(mode=0o700, exist_ok=True)
    for number, text in enumerate((b"{", b"null", b"\xff" * 10_000, b'{"kind": "drop"}')):
        (folder / f"0000000000000{number}-0000000{number}.json").write_bytes(text)
    scene.suffer(1)


FAULTS: Final[Mapping[str, Callable[[], Outcome]]] = {
    name: partial(_run, name, broken)
    for name, broken in {
        "disk full": _disk_full,
        "journal locked by another program": _journal_locked,
        "journal moved away": _journal_moved,
        "journal damaged, then restored": _journal_damaged,
        "clock set back 2 min": _clock_jumps(-120.0),
        "clock set forward 12 h": _clock_jumps(43_200.0),
        "metrics: no answer": _source_fails,
        "metrics: empty answers": _source_empty,
        "metrics: NaN": _source_lies(math.nan),
        "metrics: infinite": _source_lies(math.inf),
        "metrics: far out of range": _source_lies(1e12),
        "metrics: partial answers": _source_partial,
        "scheduler refuses writes": _scheduler_refuses,
        "scheduler does not answer": _scheduler_silent,
        "scheduler loses answers": _scheduler_loses_answers,
        "scheduler applies half": _scheduler_half_applies,
        "scheduler restarts with defaults": _scheduler_restarts,
        "second tuner, same journal": _second_tuner_same_journal,
        "second tuner, other journal": _second_tuner_other_journal,
        "garbage among the orders": _garbage_in_the_spool,
    }.items()
}
"""Every fault by its name."""
