"""The journal: what was intended, what came of it, and why. Nothing is changed without it.

The tables are drawn in `tuner.record.schema`. One process writes (a lock file beside the journal sees to it), others
may read at the same time. Every commit waits for the disk, so what a method has written survives a power cut.

The file must lie on a local disk: SQLite's locks and its shared memory do not work on network file systems, where
two writers can damage it.
"""

import json
import math
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np
from numpy.typing import ArrayLike

from tuner.errors import JournalError
from tuner.record.condense import condense
from tuner.record.encoding import decode, encode
from tuner.record.memory import Remembered, nearest
from tuner.record.storage import Statement, Storage
from tuner.values.knobs import KnobValues, SchedulerMode
from tuner.values.stages import CycleRecord, Receipt, Step

_PROTECTED: Final = """
    SELECT max(cycle_id) FROM cycles
    UNION SELECT max(cycle_id) FROM intents
    UNION SELECT cycle_id FROM intents WHERE cycle_id NOT IN (SELECT cycle_id FROM receipts)
    UNION SELECT max(cycle_id) FROM cycles WHERE decision = ?1
    UNION SELECT change_cycle_id FROM cycles
        WHERE cycle_id = (SELECT max(cycle_id) FROM cycles WHERE decision = ?1)
"""
"""What is kept whatever its age; `Journal.prune` says why."""

_PRUNE: Final = (
    """DELETE FROM inputs WHERE cycle_id IN (
        SELECT cycle_id FROM cycles WHERE at_seconds < ?1 AND cycle_id NOT IN (SELECT value FROM json_each(?2)))""",
    """DELETE FROM receipts WHERE cycle_id IN (
        SELECT cycle_id FROM intents WHERE at_seconds < ?1 AND cycle_id NOT IN (SELECT value FROM json_each(?2)))""",
    "DELETE FROM intents WHERE at_seconds < ?1 AND cycle_id NOT IN (SELECT value FROM json_each(?2))",
    "DELETE FROM cycles WHERE at_seconds < ?1 AND cycle_id NOT IN (SELECT value FROM json_each(?2))",
)
"""In this order, so that nothing refers to what is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A change that is about to be made.

    Attributes:
        cycle_id: Number of the cycle that makes it; one change a cycle.
        at_seconds: When it was decided.
        action: Why it is made: `apply`, `roll_back`, or another word of the cycle.
        before: Setting in force.
        target: Setting to be written.
        expected_revision: Revision that the scheduler must still have.
        reason: Why, in one sentence.
        mode: Policy mode to be written; None where it stays.
    """

    cycle_id: int
    at_seconds: float
    action: str
    before: KnobValues
    target: KnobValues
    expected_revision: str
    reason: str
    mode: SchedulerMode | None = None


class Journal:
    """The journal of one tuner; safe to be used by several threads of it.

    All methods raise `JournalError`, with a remedy, where the file is damaged, locked, full or not writable.
    """

    def __init__(self, path: Path | str) -> None:
        """Open a journal for writing; it is created with its folder where missing.

        Raises:
            JournalError: Another process writes it, or it is of another program or of a newer release.
        """
        self._storage = Storage.writer(Path(path))
        self._numbering = threading.Lock()
        self._last_id = 0

    @classmethod
    def open_readonly(cls, path: Path | str) -> Self:
        """Open a journal to read it only, whether or not another process writes it.

        Raises:
            JournalError: There is none, or it is of another program, or of another release.
        """
        journal = cls.__new__(cls)
        journal._storage = Storage.reader(Path(path))
        journal._numbering = threading.Lock()
        journal._last_id = 0
        return journal

    @property
    def path(self) -> Path:
        """The file."""
        return self._storage.path

    def close(self) -> None:
        """Close the file and give up the right to write; twice does no harm."""
        self._storage.close()

    def __enter__(self) -> Self:
        """Return the journal."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the journal."""
        self.close()

    # Changes.

    def begin_change(self, intent: Intent) -> None:
        """Note a change before the scheduler is written; on return it is on the disk.

        Raises:
            JournalError: It could not be noted, so the change must not be made; or its cycle has made one already.
        """
        row = (intent.cycle_id, intent.at_seconds, encode(intent))
        self._storage.write(
            [("INSERT INTO intents VALUES (?, ?, ?)", row)], what=f"the intent of cycle {intent.cycle_id}"
        )

    def end_change(self, receipt: Receipt, *, states: Mapping[str, str] | None = None) -> None:
        """Note what came of the change that the cycle of the receipt began.

        Args:
            receipt: What came of it.
            states: States to be kept in the same transaction, by name: after a crash, either both are known or none.

        Raises:
            JournalError: That cycle began none, or its change has a receipt already.
        """
        row = (receipt.cycle_id, encode(receipt))
        statements: list[Statement] = [("INSERT INTO receipts VALUES (?, ?)", row), *_kept(states)]
        self._storage.write(statements, what=f"the receipt of cycle {receipt.cycle_id}")

    def open_intents(self) -> tuple[Intent, ...]:
        """Return the changes without a receipt, oldest first: the process ended between the two."""
        rows = self._storage.read(
            "SELECT document FROM intents WHERE cycle_id NOT IN (SELECT cycle_id FROM receipts) ORDER BY cycle_id"
        )
        return tuple(decode(Intent, document) for (document,) in rows)

    # Cycles.

    def append(
        self, record: CycleRecord, inputs: bytes | None = None, *, states: Mapping[str, str] | None = None
    ) -> None:
        """Note a cycle.

        Args:
            record: What it saw, thought and did; kept as `tuner.record.condense` describes.
            inputs: What its search needs to be repeated bit for bit; None where it did not search.
            states: States to be kept in the same transaction, by name.

        Raises:
            JournalError: The cycle stands already.
        """
        change = None if record.verification is None else record.verification.change_cycle_id
        document = zlib.compress(encode(condense(record)).encode())
        row = (record.cycle_id, record.at_seconds, record.decision, change, document)
        statements: list[Statement] = [("INSERT INTO cycles VALUES (?, ?, ?, ?, ?)", row)]
        if inputs is not None:
            statements.append(("INSERT INTO inputs VALUES (?, ?)", (record.cycle_id, inputs)))
        statements += _kept(states)
        self._storage.write(statements, what=f"cycle {record.cycle_id}")

    def record(self, cycle_id: int) -> CycleRecord | None:
        """Return one cycle; None where the journal does not have it."""
        rows = self._storage.read("SELECT document FROM cycles WHERE cycle_id = ?", cycle_id)
        return self._inflate(rows[0][0]) if rows else None

    def records(
        self, *, since_seconds: float = -math.inf, until_seconds: float = math.inf, limit: int | None = None
    ) -> tuple[CycleRecord, ...]:
        """Return cycles, oldest first.

        Args:
            since_seconds: Leave out what ran before.
            until_seconds: Leave out what ran after.
            limit: Return so many at most: the newest.
        """
        rows = self._storage.read(
            "SELECT document FROM cycles WHERE at_seconds BETWEEN ? AND ? ORDER BY cycle_id DESC LIMIT ?",
            since_seconds,
            until_seconds,
            -1 if limit is None else limit,
        )
        return tuple(self._inflate(document) for (document,) in reversed(rows))

    def looks(self, change_cycle_id: int) -> tuple[CycleRecord, ...]:
        """Return the cycles that looked at the change that a cycle made, oldest first."""
        rows = self._storage.read(
            "SELECT document FROM cycles WHERE change_cycle_id = ? ORDER BY cycle_id", change_cycle_id
        )
        return tuple(self._inflate(document) for (document,) in rows)

    def inputs(self, cycle_id: int) -> bytes | None:
        """Return what the search of a cycle was given; None where it did not search."""
        rows = self._storage.read("SELECT document FROM inputs WHERE cycle_id = ?", cycle_id)
        return bytes(rows[0][0]) if rows else None

    def next_cycle_id(self) -> int:
        """Return a number that nobody has had, pruned cycles aside, and nobody will have again; the first is 1.

        Cycle and guard take their numbers at once, and note them later or, where a tick has nothing to tell, never.
        """
        with self._numbering:
            rows = self._storage.read(
                "SELECT max(cycle_id) FROM (SELECT cycle_id FROM cycles UNION SELECT cycle_id FROM intents)"
            )
            self._last_id = max(self._last_id, int(rows[0][0] or 0)) + 1
            return self._last_id

    def unrecorded(self) -> tuple[Intent, ...]:
        """Return the changes whose cycle was never noted, oldest first: the process ended between the two."""
        rows = self._storage.read(
            "SELECT document FROM intents WHERE cycle_id NOT IN (SELECT cycle_id FROM cycles) ORDER BY cycle_id"
        )
        return tuple(decode(Intent, document) for (document,) in rows)

    def receipt(self, cycle_id: int) -> Receipt | None:
        """Return what came of the change that a cycle began; None where it began none, or its end is not known."""
        rows = self._storage.read("SELECT document FROM receipts WHERE cycle_id = ?", cycle_id)
        return decode(Receipt, rows[0][0]) if rows else None

    def _inflate(self, document: bytes) -> CycleRecord:
        try:
            text = zlib.decompress(document).decode()
        except (zlib.error, UnicodeDecodeError) as error:
            raise JournalError(
                f"{self.path}: a cycle cannot be read ({error}); the file is damaged: restore a backup, "
                f"or move it away to begin a new one"
            ) from error
        return decode(CycleRecord, text)

    # Memory and state.

    def remember(self, context: ArrayLike, knobs: KnobValues, *, score: float, at_seconds: float) -> None:
        """Note that a setting was verified under a load.

        Args:
            context: Features of the load, shape (features,), on comparable scales (logarithms of rates, say); NaN for
                what is unknown.
            knobs: The setting.
            score: Its verified score; lower is better.
            at_seconds: When it was verified.
        """
        memory = Remembered(
            at_seconds=at_seconds, context=np.asarray(context, dtype=np.float64), knobs=knobs, score=score
        )
        self._storage.write([("INSERT INTO memory (document) VALUES (?)", (encode(memory),))], what="a memory")

    def memories(self) -> tuple[Remembered, ...]:
        """Return all verified settings, in the order in which they were noted; none is ever forgotten."""
        rows = self._storage.read("SELECT document FROM memory ORDER BY id")
        return tuple(decode(Remembered, document) for (document,) in rows)

    def similar(self, context: ArrayLike, k: int = 5) -> tuple[Remembered, ...]:
        """Return the verified settings of the loads most like one, the most alike first, of equals the newest.

        Args:
            context: Features as given to `remember`; those that either side lacks do not count.
            k: How many at most.
        """
        newest_first = list(reversed(self.memories()))
        return nearest(newest_first, np.asarray(context, dtype=np.float64), k)

    def save_state(self, name: str, document: str) -> None:
        """Keep a JSON text under a name, over what stood there."""
        self._storage.write(_kept({name: document}), what=f"the state of {name}")

    def load_state(self, name: str) -> str | None:
        """Return the JSON text under a name; None where nothing was saved."""
        rows = self._storage.read("SELECT document FROM state WHERE name = ?", name)
        return str(rows[0][0]) if rows else None

    # Housekeeping.

    def prune(self, before_seconds: float, *, keep: Iterable[int] = ()) -> int:
        """Delete what is older than an instant, and return how many cycles that were.

        Kept whatever their age: the newest cycle; changes without a receipt; the newest change, which may be on trial;
        the newest promotion with the change that it promoted, which is the last known good; what `keep` names; memory
        and state.
        """
        protected = self._storage.read(_PROTECTED, Step.PROMOTE.value)
        kept = json.dumps([*keep, *(cycle_id for (cycle_id,) in protected if cycle_id is not None)], allow_nan=False)
        pruned = self._storage.write([(statement, (before_seconds, kept)) for statement in _PRUNE], what="the pruning")
        self._storage.shrink()
        return pruned


def _kept(states: Mapping[str, str] | None) -> list[Statement]:
    return [("INSERT OR REPLACE INTO state VALUES (?, ?)", row) for row in (states or {}).items()]


def copy_journal(source: Path, target: Path) -> Path:
    """Copy a journal, whether or not another process writes it; nothing is copied where there is none.

    Returns:
        The copy.

    Raises:
        JournalError: The journal cannot be read.
    """
    if source.exists():
        try:
            with (
                closing(sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True)) as read,
                closing(sqlite3.connect(target)) as written,
            ):
                read.backup(written)
        except sqlite3.Error as error:
            raise JournalError(f"{source}: cannot be copied ({error}); is it a journal, and may it be read?") from error
    return target
