"""The file beneath the journal: one writer, many readers, and errors that say what to do."""

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, Self, TextIO, TypeAlias
from urllib.parse import quote

from tuner import __version__
from tuner.errors import JournalError
from tuner.record import schema

BUSY_SECONDS: Final = 5.0
"""How long a statement waits for another connection; readers of a journal are quick, so more means that one hangs."""

Statement: TypeAlias = tuple[str, tuple[Any, ...]]
"""SQL and its arguments."""

_REMEDIES: Final = {
    sqlite3.SQLITE_CORRUPT: "it is damaged: restore a backup, or move it away to begin a new one",
    sqlite3.SQLITE_NOTADB: "it is not a journal or is damaged: restore a backup, or move it away to begin a new one",
    sqlite3.SQLITE_BUSY: f"another program has held it for {BUSY_SECONDS:g} s: close what reads or copies it",
    sqlite3.SQLITE_LOCKED: f"another program has held it for {BUSY_SECONDS:g} s: close what reads or copies it",
    sqlite3.SQLITE_FULL: "the disk is full: free space, or shorten `journal.retention_seconds`",
    sqlite3.SQLITE_READONLY: "it may not be written: check the rights on the file and its folder",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: check the rights on the file and its folder, for readers as well",
    sqlite3.SQLITE_IOERR: "the disk does not answer as it should: check it; network file systems will not do",
    sqlite3.SQLITE_CONSTRAINT: "it stands already, or what it belongs to does not: two tuners may share this file",
}


class Storage:
    """A journal file and the right to use it; safe to be used by several threads."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: TextIO | None) -> None:
        self.path = path
        self._connection = connection
        self._lock = lock
        self._guard = threading.RLock()
        self._identity: tuple[int, int] | None = None

    @classmethod
    def writer(cls, path: Path) -> Self:
        """Open a file for writing, create it where missing, and bring it to the current schema.

        Raises:
            JournalError: Another process writes it, or it is of another program or of a newer release.
        """
        lock = _lock(path)
        try:
            with explained(path):
                storage = cls(path, _connect(str(path)), lock)
                schema.check(storage._connection, str(path))
                _check_pages(path)
                for pragma in (
                    "auto_vacuum = INCREMENTAL",
                    "journal_mode = WAL",
                    "synchronous = FULL",
                    "foreign_keys = ON",
                ):
                    storage._connection.execute(f"PRAGMA {pragma}")
                schema.migrate(storage._connection, str(path), release=__version__)
                storage._identity = _identity(path)
        except JournalError:
            lock.close()
            raise
        return storage

    @classmethod
    def reader(cls, path: Path) -> Self:
        """Open a file for reading only, whether or not another process writes it.

        Raises:
            JournalError: There is none, or it is of another program, or of another release.
        """
        if not path.is_file():
            raise JournalError(
                f"{path}: there is no journal; name with --journal the file that `journal.path` of the policy names"
            )
        with explained(path):
            storage = cls(path, _connect(f"file:{quote(str(path))}?mode=ro"), None)
            version = schema.check(storage._connection, str(path))
        if version != schema.VERSION:
            storage.close()
            raise JournalError(
                f"{path} has schema version {version}, this release reads {schema.VERSION}; "
                f"start clocktuner on it once, which brings it up to date"
            )
        return storage

    def close(self) -> None:
        """Close the file and give up the right to write; twice does no harm."""
        with self._guard:
            self._connection.close()
            if self._lock is not None:
                self._lock.close()  # Which also unlocks it.

    def read(self, statement: str, *arguments: object) -> list[Any]:
        """Return the rows of a query."""
        with self._guard, explained(self.path):
            return self._connection.execute(statement, arguments).fetchall()

    def write(self, statements: Sequence[Statement], *, what: str) -> int:
        """Run statements as one transaction, wait for the disk, and return how many rows the last one changed.

        Args:
            statements: All are done, or none.
            what: What is written, for messages.

        Raises:
            JournalError: The disk or another program is in the way, or the file was moved away beneath us: SQLite
                would go on writing to a file that nobody can open.
        """
        if self._identity is not None and _identity(self.path) != self._identity:
            raise JournalError(
                f"{what} was not written to {self.path}: the file was deleted, moved or replaced since clocktuner "
                "opened it; bring it back, or restart clocktuner to begin a new one"
            )
        with self._guard, explained(self.path, what=what):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                for statement, arguments in statements:
                    changed = self._connection.execute(statement, arguments).rowcount
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite itself rolls back when the disk is full.
                    self._connection.execute("ROLLBACK")
                raise
            return changed

    def shrink(self) -> None:
        """Give the room of deleted rows back to the disk."""
        with self._guard, explained(self.path):
            # As a script, because a single execute stops after the first page.
            self._connection.executescript("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE);")


def _check_pages(path: Path) -> None:
    """Refuse a damaged file before anything is done on it: a table that is not read at the start may be the broken one.

    Raises:
        JournalError: It is damaged.
    """
    # By a connection of its own: what the writer has in its cache, it would not read again and find damaged later.
    with closing(_connect(str(path))) as connection:
        ((found,),) = connection.execute("PRAGMA quick_check(1)").fetchall()
    if found != "ok":
        raise JournalError(f"{path}: {found}; {_REMEDIES[sqlite3.SQLITE_CORRUPT]}")


@contextmanager
def explained(path: Path, *, what: str = "") -> Iterator[None]:
    """Turn errors of SQLite into `JournalError` with the file, what was being written, and a remedy."""
    try:
        yield
    except sqlite3.Error as error:
        # The low byte is the kind of error; the rest tells variants apart.
        kind = getattr(error, "sqlite_errorcode", -1) & 0xFF
        remedy = _REMEDIES.get(kind, "see the message of SQLite")
        written = f"{what} was not written to " if what else ""
        raise JournalError(f"{written}{path}: {error}; {remedy}") from error


def _connect(path: str) -> sqlite3.Connection:
    # Autocommit, so that transactions begin and end where this module says; threads are kept apart by its own lock.
    return sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=path.startswith("file:")
    )


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _lock(path: Path) -> TextIO:
    """Take the right to write: held until the file is closed, given back by the system when the process dies."""
    name = path.with_name(path.name + ".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = name.open("a+", encoding="ascii")
    except OSError as error:
        raise JournalError(f"{name}: {error.strerror}; check the rights on the folder of the journal") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        owner = lock.read().strip() or "unknown"
        lock.close()
        raise JournalError(
            f"{path} is being written by another process (pid {owner}); stop that one: two tuners at one scheduler "
            "would undo each other's changes; for a look beside it there is `once --dry-run`"
        ) from error
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock
