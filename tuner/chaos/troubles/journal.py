"""The journal's disk is full, its file is held, damaged, moved or deleted."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tuner.chaos.scene import Scene
from tuner.chaos.troubles.moments import Break, Trouble, everywhere, once, struck
from tuner.errors import JournalError

_UNLIMITED_PAGES: Final = 1_073_741_823

_HOLD: Final = """
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""
"""Holds a journal until its input ends."""

_FILES: Final = ("", "-wal", "-shm")


def _pragma(scene: Scene, text: str) -> list[tuple[int]]:
    rows: list[tuple[int]] = scene.parts.journal._storage._connection.execute(f"PRAGMA {text}").fetchall()
    return rows


def _fill(scene: Scene) -> None:
    """Leave no room for a further page: SQLite then says what it says where the disk is full."""
    ((pages,),) = _pragma(scene, "page_count")
    _pragma(scene, f"max_page_count = {pages}")


def _empty(scene: Scene) -> None:
    _pragma(scene, f"max_page_count = {_UNLIMITED_PAGES}")


@contextmanager
def _full(scene: Scene) -> Iterator[None]:
    before = len(scene.refusals)
    _fill(scene)
    yield
    while len(scene.refusals) == before:  # There is some room in the last pages.
        scene.cycles(1)
    _empty(scene)


@contextmanager
def _held(scene: Scene) -> Iterator[None]:
    before = len(scene.refusals)
    release = _hold(scene)
    try:
        yield
    finally:
        release()
    struck(before, len(scene.refusals))


def _hold(scene: Scene) -> Callable[[], None]:
    """Let another process hold the journal; returns what lets it go."""
    _pragma(scene, "busy_timeout = 50")  # Else every write would wait for five seconds.
    command = [sys.executable, "-c", _HOLD, str(scene.journal)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if holder.stdout is not None:
        holder.stdout.readline()

    def release() -> None:
        holder.communicate(timeout=10)

    return release


def _away(scene: Scene) -> Callable[[], None]:
    """Move the journal away; returns what brings it back."""
    away = scene.folder / "away"
    away.mkdir(exist_ok=True)
    names = [path.name for path in _files(scene)]
    for name in names:
        (scene.folder / name).rename(away / name)

    def back() -> None:
        for name in names:
            (away / name).rename(scene.folder / name)

    return back


@contextmanager
def _moved(scene: Scene) -> Iterator[None]:
    before = len(scene.refusals)
    back = _away(scene)
    yield
    back()
    struck(before, len(scene.refusals))


@contextmanager
def _deleted(scene: Scene) -> Iterator[None]:
    """Delete it; whoever looks after the process starts it again, and a new journal begins."""
    before = len(scene.refusals)
    for path in _files(scene):
        path.unlink()
    yield
    struck(before, len(scene.refusals))
    scene.stop()
    scene.given.clear()  # They went with the file.
    scene.start()


def _damaged(damage: Callable[[Path], None]) -> Break:
    """Damage the file while no tuner runs; a backup is put back once the tuner has refused to start on it."""

    @contextmanager
    def broken(scene: Scene) -> Iterator[None]:
        scene.stop()  # Closing writes everything into the one file.
        backup = scene.backup()
        damage(scene.journal)
        writes = scene.witness.writes
        refused = _refuses(scene)
        scene.restore(backup)
        scene.start()
        struck(0, refused)
        if scene.witness.writes != writes:
            raise RuntimeError("a tuner with a damaged journal wrote")
        yield

    return broken


def _refuses(scene: Scene) -> int:
    """Say whether a tuner refuses to start, or to go on, because of its journal."""
    before = len(scene.refusals)
    try:
        scene.start()
    except JournalError:
        return 1
    scene.cycles(2)
    scene.stop()
    return len(scene.refusals) - before


@contextmanager
def _damaged_beneath(scene: Scene) -> Iterator[None]:
    """Damage the file beneath a tuner that runs; it is restored and the tuner started again."""
    scene.stop()
    backup = scene.backup()
    scene.start()
    known = list(scene.given)
    _flip(scene.journal, start=100, step=7)
    yield
    scene.stop()
    scene.restore(backup)
    scene.given[:] = known  # What came after the backup went with the file.
    scene.start()


def _flip(path: Path, *, start: int = 0, step: int = 1) -> None:
    data = bytearray(path.read_bytes())
    for place in range(start, len(data), step):
        data[place] ^= 0xFF
    with path.open("r+b") as file:
        file.write(data)


def _flip_header(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\xff" * 512)


def _flip_pages(path: Path) -> None:
    _flip(path, start=4096, step=61)


def _truncate(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def _between(breaks: Callable[[Scene], Callable[[], None]]) -> Trouble:
    """Return a fault that begins when a write arrives at the scheduler: after its intent, before its receipt."""

    def act(scene: Scene) -> None:
        before = len(scene.refusals)
        mend: list[Callable[[], None]] = []
        scene.scheduler.at_put = lambda: mend.append(breaks(scene))
        scene.cycles(3)
        for each in mend:
            each()
        struck(before, len(scene.refusals))

    return once(act)


def _fill_until_told(scene: Scene) -> Callable[[], None]:
    _fill(scene)
    return lambda: _empty(scene)


def _files(scene: Scene) -> list[Path]:
    paths = [scene.journal.with_name(scene.journal.name + ending) for ending in _FILES]
    return [path for path in paths if path.exists()]


JOURNAL: Final[Mapping[str, Trouble]] = {
    "journal: disk full": everywhere(_full),
    "journal: disk full between intent and receipt": _between(_fill_until_told),
    "journal: held by another process": everywhere(_held),
    "journal: held between intent and receipt": _between(_hold),
    "journal: moved away": everywhere(_moved),
    "journal: moved away between intent and receipt": _between(_away),
    "journal: deleted": everywhere(_deleted),
    "journal: header overwritten": everywhere(_damaged(_flip_header)),
    "journal: pages damaged": everywhere(_damaged(_flip_pages)),
    "journal: truncated": everywhere(_damaged(_truncate)),
    "journal: damaged beneath the tuner": everywhere(_damaged_beneath),
}
"""Every fault of the journal. A full disk is SQLite's own answer where its file may not grow any more."""
