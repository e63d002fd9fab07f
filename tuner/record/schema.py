"""The shape of the journal, and how an older one is brought up to it.

    intents ──────── cycle_id ┐      written before the scheduler is: what is about to be done, and why
    receipts ─────── cycle_id ┤      written after: what came of it. An intent without a receipt is a crash in between
    cycles ───────── cycle_id ┘ at_seconds, decision, change_cycle_id, document     one row a cycle
    inputs ───────── cycle_id, document         what a search needs to be repeated bit for bit; searches only
    memory ───────── id, document       settings that were verified, and the load they suited
    state  ───────── name, document             trial, calibration, trust: the only rows that are written over
    migrations ───── version, release           which steps made this file what it is

Documents are JSON (`tuner.record.encoding`); those of cycles are deflated, because 30 days at one a minute are many.
All but `state` is append-only: triggers refuse an update, and only pruning deletes.
"""

import sqlite3
from typing import Final

from tuner.errors import JournalError

APPLICATION_ID: Final = 0x636C6B74
"""The letters "clkt" in the file's header, so that another program's database is never taken for a journal."""

MIGRATIONS: Final[tuple[str, ...]] = (
    """
    CREATE TABLE migrations (version INTEGER PRIMARY KEY, release TEXT NOT NULL) STRICT;
    CREATE TABLE intents (cycle_id INTEGER PRIMARY KEY, at_seconds REAL NOT NULL, document TEXT NOT NULL) STRICT;
    CREATE TABLE receipts (cycle_id INTEGER PRIMARY KEY REFERENCES intents, document TEXT NOT NULL) STRICT;
    CREATE TABLE cycles (
        cycle_id INTEGER PRIMARY KEY,
        at_seconds REAL NOT NULL,
        decision TEXT NOT NULL,
        change_cycle_id INTEGER,
        document BLOB NOT NULL
    ) STRICT;
    CREATE INDEX cycles_at ON cycles (at_seconds);
    CREATE INDEX cycles_decision ON cycles (decision, cycle_id);
    CREATE INDEX cycles_change ON cycles (change_cycle_id);
    CREATE TABLE inputs (cycle_id INTEGER PRIMARY KEY REFERENCES cycles, document BLOB NOT NULL) STRICT;
    CREATE TABLE memory (id INTEGER PRIMARY KEY, document TEXT NOT NULL) STRICT;
    CREATE TABLE state (name TEXT PRIMARY KEY, document TEXT NOT NULL) STRICT;
    CREATE TRIGGER intents_stand BEFORE UPDATE ON intents BEGIN SELECT RAISE(ABORT, 'intents are append-only'); END;
    CREATE TRIGGER receipts_stand BEFORE UPDATE ON receipts BEGIN SELECT RAISE(ABORT, 'receipts are append-only'); END;
    CREATE TRIGGER cycles_stand BEFORE UPDATE ON cycles BEGIN SELECT RAISE(ABORT, 'cycles are append-only'); END;
    CREATE TRIGGER inputs_stand BEFORE UPDATE ON inputs BEGIN SELECT RAISE(ABORT, 'inputs are append-only'); END;
    CREATE TRIGGER memory_stands BEFORE UPDATE ON memory BEGIN SELECT RAISE(ABORT, 'memory is append-only'); END;
    """,
)
"""One script a version, in order. A script that was released is never edited: the next change is a new one."""

VERSION: Final = len(MIGRATIONS)


def check(connection: sqlite3.Connection, path: str) -> int:
    """Return the version of a journal; 0 where the file is new.

    Raises:
        JournalError: The file belongs to another program, or to a newer release.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID:
        if tables == 0 and application == 0:
            return 0
        raise JournalError(f"{path} is a database of another program; name another file in `journal.path`")
    (version,) = connection.execute("SELECT max(version) FROM migrations").fetchone()
    if version > VERSION:
        raise JournalError(
            f"{path} has schema version {version}, this release knows {VERSION} at most; "
            f"upgrade clocktuner, or name another file in `journal.path`"
        )
    return int(version)


def migrate(connection: sqlite3.Connection, path: str, *, release: str) -> None:
    """Bring a journal to the current version, each step whole or not at all.

    Args:
        connection: Writable, in autocommit mode.
        path: Name for messages.
        release: Version of the program, noted beside each step.

    Raises:
        JournalError: See `check`.
    """
    version = check(connection, path)
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        # The script and its note stand or fall together: a crash in between leaves the former version.
        try:
            connection.executescript(f"BEGIN IMMEDIATE; {script}")
            connection.execute("INSERT INTO migrations VALUES (?, ?)", (number, release))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("COMMIT")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.rollback()
            raise
