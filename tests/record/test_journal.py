"""The journal holds what it was told, through crashes and beside readers, and says what is wrong when it cannot."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.records import MIDDLE, MIDNIGHT, applied, day, failed, observation, receipt_of, same, simplest
from tuner.errors import JournalError
from tuner.record import schema, storage
from tuner.record.condense import condense
from tuner.record.journal import Intent, Journal, copy_journal
from tuner.values.knobs import KnobValues, Role, SchedulerMode
from tuner.values.stages import Receipt, Step

OTHER = KnobValues.of({**MIDDLE, Role.BASE_SLICE: 0.1})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "clocktuner.sqlite"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    with Journal(path) as opened:
        yield opened


def intent(cycle_id: int, *, at_seconds: float = MIDNIGHT, mode: SchedulerMode | None = None) -> Intent:
    return Intent(
        cycle_id=cycle_id,
        at_seconds=at_seconds,
        action="apply",
        before=MIDDLE,
        target=OTHER,
        expected_revision='"7"',
        reason="expected to be 3 % better",
        mode=mode,
    )


def receipt(cycle_id: int) -> Receipt:
    return receipt_of(observation(cycle_id, MIDNIGHT), before=MIDDLE, after=OTHER)


# Cycles.


def test_a_day_of_cycles_returns_as_it_was_condensed(journal: Journal) -> None:
    cycles = day(100)
    for record in cycles:
        journal.append(record)

    returned = journal.records()

    assert len(returned) == 100
    assert all(same(left, condense(right)) for left, right in zip(returned, cycles, strict=True))


def test_a_journal_is_still_there_after_it_was_closed(path: Path) -> None:
    with Journal(path) as first:
        first.append(simplest(4))

    with Journal(path) as second:
        assert second.record(4) is not None
        assert second.next_cycle_id() == 5


def test_cycles_are_chosen_by_time_and_number(journal: Journal) -> None:
    for cycle_id in range(1, 6):
        journal.append(failed(cycle_id, MIDNIGHT + cycle_id))

    def numbers(**choice: float) -> list[int]:
        limit = choice.pop("limit", None)
        return [record.cycle_id for record in journal.records(**choice, limit=None if limit is None else int(limit))]

    assert numbers() == [1, 2, 3, 4, 5]
    assert numbers(since_seconds=MIDNIGHT + 3) == [3, 4, 5]
    assert numbers(until_seconds=MIDNIGHT + 3) == [1, 2, 3]
    assert numbers(limit=2) == [4, 5]
    assert numbers(since_seconds=MIDNIGHT + 9) == []


def test_a_cycle_that_does_not_exist_is_none(journal: Journal) -> None:
    assert journal.record(1) is None
    assert journal.inputs(1) is None
    assert journal.next_cycle_id() == 1


def test_the_inputs_of_a_search_return_byte_for_byte(journal: Journal) -> None:
    inputs = bytes(range(256)) * 1000

    journal.append(applied(1), inputs)
    journal.append(simplest(2))

    assert journal.inputs(1) == inputs
    assert journal.inputs(2) is None


def test_a_cycle_cannot_be_written_twice_and_its_inputs_fall_with_it(journal: Journal) -> None:
    journal.append(simplest(1))

    with pytest.raises(JournalError, match=r"cycle 1 was not written to .*it stands already"):
        journal.append(failed(1), b"inputs")

    assert journal.inputs(1) is None
    written = journal.record(1)
    assert written is not None
    assert written.decision == "hold"


@pytest.mark.parametrize("table", ["cycles", "intents", "receipts", "inputs", "memory"])
def test_what_was_written_cannot_be_changed(journal: Journal, path: Path, table: str) -> None:
    journal.append(applied(1), b"inputs")
    journal.begin_change(intent(1))
    journal.end_change(receipt(1))
    journal.remember([1.0], MIDDLE, score=-0.1, at_seconds=MIDNIGHT)
    other = sqlite3.connect(path)

    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        other.execute(f"UPDATE {table} SET document = document")  # noqa: S608 - A name of the list above.
    other.close()


# Changes.


@pytest.mark.parametrize("mode", [None, SchedulerMode.SIMPLIFIED])
def test_a_change_is_open_until_its_receipt(journal: Journal, mode: SchedulerMode | None) -> None:
    journal.begin_change(intent(3, mode=mode))
    assert journal.open_intents() == (intent(3, mode=mode),)

    journal.end_change(receipt(3))
    assert journal.open_intents() == ()


def test_a_cycle_after_an_interrupted_change_gets_a_new_number(journal: Journal) -> None:
    journal.append(simplest(3))
    journal.begin_change(intent(4))

    assert journal.next_cycle_id() == 5


def test_a_receipt_without_an_intent_is_refused(journal: Journal) -> None:
    with pytest.raises(JournalError, match=r"the receipt of cycle 3 was not written"):
        journal.end_change(receipt(3))


def test_a_cycle_changes_once(journal: Journal) -> None:
    journal.begin_change(intent(3))

    with pytest.raises(JournalError, match=r"the intent of cycle 3 was not written"):
        journal.begin_change(replace(intent(3), reason="another"))


KILLED = """
import os, signal, sys
from tests.record.test_journal import intent
from tuner.record.journal import Journal
journal = Journal(sys.argv[1])
journal.begin_change(intent(12))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_intent_survives_the_kill_that_follows_it(path: Path) -> None:
    root = Path(__file__).parents[2]

    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(path)],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
        timeout=60,
        check=False,
    )

    assert killed.returncode == -signal.SIGKILL
    with Journal(path) as journal:  # The lock went with the process.
        assert journal.open_intents() == (intent(12),)


# Memory and state.


def test_the_most_alike_loads_come_first_and_of_equals_the_newest(journal: Journal) -> None:
    for at_seconds, context in enumerate(([0.0, 0.0], [1.0, 1.0], [5.0, 5.0], [1.0, 1.0])):
        journal.remember(context, OTHER, score=-0.02, at_seconds=float(at_seconds))

    found = journal.similar([1.1, 0.9], k=3)

    assert [memory.at_seconds for memory in found] == [3.0, 1.0, 0.0]
    assert found[0].knobs == OTHER
    assert found[0].score == -0.02
    assert found[0].distance(np.array([1.1, 0.9])) == pytest.approx(0.1)


def test_all_that_was_verified_is_listed_as_it_was_noted_whatever_the_loads_and_the_clock(path: Path) -> None:
    noted = [([1.0, 2.0], 30.0), ([np.nan, np.nan], 20.0), ([1.0], 10.0), ([], 40.0)]
    with Journal(path) as journal:
        assert journal.memories() == ()
        for context, at_seconds in noted:
            journal.remember(context, OTHER, score=-0.02, at_seconds=at_seconds)
        journal.prune(before_seconds=1e9)

    with Journal.open_readonly(path) as book:
        found = book.memories()

    assert [memory.at_seconds for memory in found] == [at_seconds for _, at_seconds in noted]
    for memory, (context, _) in zip(found, noted, strict=True):
        np.testing.assert_array_equal(memory.context, context)
    assert {memory.knobs for memory in found} == {OTHER}


def test_features_that_are_unknown_do_not_count(journal: Journal) -> None:
    journal.remember([1.0, np.nan], OTHER, score=-0.1, at_seconds=1.0)
    journal.remember([2.0, 0.0], MIDDLE, score=-0.1, at_seconds=2.0)

    assert [memory.at_seconds for memory in journal.similar([1.0, 9.0])] == [1.0, 2.0]


@pytest.mark.parametrize("context", [[1.0], [np.nan, np.nan]])
def test_loads_that_cannot_be_compared_are_left_out(journal: Journal, context: list[float]) -> None:
    journal.remember([1.0, 1.0], OTHER, score=-0.1, at_seconds=1.0)

    assert journal.similar(context) == ()


def test_state_is_the_last_that_was_saved_and_outlives_the_process(path: Path) -> None:
    with Journal(path) as journal:
        assert journal.load_state("trial") is None
        journal.save_state("trial", json.dumps({"age": 1}))
        journal.save_state("trial", json.dumps({"age": 2}))
        journal.save_state("trust", "0.5")

    with Journal(path) as journal:
        assert journal.load_state("trial") == '{"age": 2}'
        assert journal.load_state("trust") == "0.5"


# Pruning.


def changed(journal: Journal, cycle_id: int) -> None:
    at_seconds = MIDNIGHT + cycle_id
    journal.begin_change(intent(cycle_id, at_seconds=at_seconds))
    journal.end_change(receipt(cycle_id))
    journal.append(replace(applied(cycle_id), at_seconds=at_seconds), b"inputs")


def promoted(journal: Journal, cycle_id: int, *, change: int) -> None:
    record = next(item for item in day() if item.decision == Step.PROMOTE)
    assert record.verification is not None
    verification = replace(record.verification, change_cycle_id=change)
    journal.append(replace(record, cycle_id=cycle_id, at_seconds=MIDNIGHT + cycle_id, verification=verification))


def test_pruning_keeps_the_last_known_good_the_open_change_and_what_it_is_told_to(journal: Journal) -> None:
    changed(journal, 1)
    promoted(journal, 2, change=1)
    changed(journal, 3)
    promoted(journal, 4, change=3)
    journal.begin_change(intent(5))  # Interrupted.
    changed(journal, 6)  # On trial.
    for cycle_id in range(7, 11):
        journal.append(failed(cycle_id, MIDNIGHT + cycle_id))
    journal.remember([1.0], OTHER, score=-0.1, at_seconds=MIDNIGHT)

    pruned = journal.prune(MIDNIGHT + 1000, keep=(8,))

    assert [record.cycle_id for record in journal.records()] == [3, 4, 6, 8, 10]
    assert pruned == 4  # 1, 2, 7 and 9.
    assert journal.inputs(1) is None
    assert journal.inputs(3) == b"inputs"
    assert journal.open_intents() == (intent(5),)
    assert len(journal.similar([1.0])) == 1
    assert journal.next_cycle_id() == 11


def test_pruning_leaves_what_is_young_enough_and_gives_its_room_back(journal: Journal, path: Path) -> None:
    for cycle_id in range(1, 21):
        journal.append(failed(cycle_id, MIDNIGHT + cycle_id), os.urandom(100_000))
    journal.prune(0.0)
    before = path.stat().st_size

    assert journal.prune(MIDNIGHT + 11) == 10

    assert [record.cycle_id for record in journal.records()] == list(range(11, 21))
    assert path.stat().st_size < 0.6 * before


# One writer, many readers.


def test_a_second_writer_is_refused_by_name_and_may_follow_the_first(path: Path) -> None:
    with Journal(path) as first:
        with pytest.raises(JournalError, match=rf"being written by another process \(pid {os.getpid()}\)"):
            Journal(path)
        first.close()  # Closing twice does no harm.

    with Journal(path):
        pass


@pytest.mark.parametrize("replaced", [False, True], ids=["moved away", "replaced"])
def test_nothing_is_written_to_a_file_that_nobody_can_open(journal: Journal, path: Path, replaced: bool) -> None:
    journal.append(simplest(1))
    path.rename(path.with_name("away"))
    if replaced:
        path.touch()

    with pytest.raises(JournalError, match=r"deleted, moved or replaced .*; bring it back, or restart clocktuner"):
        journal.begin_change(intent(2))

    path.with_name("away").rename(path)
    journal.append(simplest(2))
    assert [record.cycle_id for record in journal.records()] == [1, 2]


def test_readers_see_what_the_writer_has_written_and_cannot_write(journal: Journal, path: Path) -> None:
    with Journal.open_readonly(path) as reader:
        journal.append(simplest(1))
        assert reader.record(1) is not None

        with pytest.raises(JournalError, match="may not be written"):
            reader.save_state("trial", "{}")


def test_a_reader_neither_makes_a_journal_nor_needs_a_writer(path: Path) -> None:
    with pytest.raises(JournalError, match="there is no journal"):
        Journal.open_readonly(path)
    Journal(path).close()

    with Journal.open_readonly(path) as reader:
        assert reader.records() == ()
        assert reader.path == path


def test_several_threads_may_write(journal: Journal) -> None:
    threads = [threading.Thread(target=journal.append, args=(failed(cycle_id),)) for cycle_id in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [record.cycle_id for record in journal.records()] == list(range(1, 9))


# What can go wrong with the file.


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database, but some other text" * 100)

    with pytest.raises(JournalError, match="move it away to begin a new one"):
        Journal(path)
    assert path.read_bytes().startswith(b"not a database")


def test_the_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.commit()
    other.close()

    for opened in (Journal, Journal.open_readonly):
        with pytest.raises(JournalError, match="database of another program"):
            opened(path)


def test_a_newer_schema_is_refused_with_both_versions(path: Path) -> None:
    Journal(path).close()
    newer = sqlite3.connect(path)
    newer.execute("INSERT INTO migrations VALUES (99, '9.9.9')")
    newer.commit()
    newer.close()

    with pytest.raises(JournalError, match=rf"schema version 99, this release knows {schema.VERSION} at most"):
        Journal(path)


def test_an_older_schema_is_brought_up_to_date_by_a_writer_and_refused_by_a_reader(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal(path) as journal:
        journal.append(simplest(1))
    later = (*schema.MIGRATIONS, "ALTER TABLE state ADD COLUMN note TEXT")
    monkeypatch.setattr(schema, "MIGRATIONS", later)
    monkeypatch.setattr(schema, "VERSION", len(later))

    with pytest.raises(JournalError, match="start clocktuner on it once"):
        Journal.open_readonly(path)
    with Journal(path) as journal:
        assert journal.record(1) is not None
    with Journal.open_readonly(path) as reader:
        assert reader.record(1) is not None


def test_a_migration_that_fails_leaves_the_former_version_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal(path) as journal:
        journal.append(simplest(1))
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, "CREATE TABLE half (x); CREATE TABLE state (x)"))
        with pytest.raises(JournalError, match="table state already exists"):
            Journal(path)

    with Journal(path) as journal:
        assert journal.record(1) is not None
    tables = sqlite3.connect(path)
    assert tables.execute("SELECT count(*) FROM sqlite_master WHERE name = 'half'").fetchone() == (0,)
    tables.close()


def test_a_damaged_document_is_an_error_with_a_remedy(journal: Journal, path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("INSERT INTO cycles VALUES (1, 0.0, 'hold', NULL, ?)", (b"\x00damaged",))
    other.commit()
    other.close()

    with pytest.raises(JournalError, match="the file is damaged: restore a backup"):
        journal.records()


def test_a_damaged_page_is_an_error_with_a_remedy(path: Path) -> None:
    with Journal(path) as journal:
        for record in day(30):
            journal.append(record)
    content = bytearray(path.read_bytes())
    content[4096:-4096] = os.urandom(len(content) - 8192)
    path.write_bytes(content)

    with pytest.raises(JournalError, match="restore a backup, or move it away"), Journal.open_readonly(path) as reader:
        reader.records()


def test_a_full_disk_is_an_error_with_a_remedy_and_nothing_is_half_written(journal: Journal) -> None:
    journal.append(simplest(1))
    (pages,) = journal._storage.read("PRAGMA page_count")[0]
    journal._storage.read(f"PRAGMA max_page_count = {pages + 5}")

    with pytest.raises(JournalError, match="the disk is full: free space"):
        journal.append(applied(2), os.urandom(1_000_000))

    assert [record.cycle_id for record in journal.records()] == [1]


def test_a_journal_that_another_program_holds_is_an_error_with_a_remedy(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "BUSY_SECONDS", 0.01)
    with Journal(path) as journal:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(JournalError, match="close what reads or copies it"):
            journal.begin_change(intent(1))

        other.execute("ROLLBACK")
        other.close()
        journal.begin_change(intent(1))


def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(JournalError, match=r"file/clocktuner.sqlite.lock: .*check the rights on the folder"):
        Journal(tmp_path / "file" / "clocktuner.sqlite")


def test_a_copy_is_taken_beside_its_writer_and_goes_its_own_way(journal: Journal, tmp_path: Path) -> None:
    journal.append(simplest(1))

    copied = copy_journal(journal.path, tmp_path / "copy.sqlite")

    with Journal(copied) as other:
        other.append(simplest(2))
        assert [record.cycle_id for record in other.records()] == [1, 2]
    assert [record.cycle_id for record in journal.records()] == [1]


def test_where_there_is_no_journal_nothing_is_copied(tmp_path: Path) -> None:
    target = tmp_path / "copy.sqlite"

    assert copy_journal(tmp_path / "none.sqlite", target) == target
    assert not target.exists()


def test_what_is_no_journal_is_not_copied(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to look like one at first sight" * 20)

    with pytest.raises(JournalError, match="cannot be copied"):
        copy_journal(tmp_path / "text", tmp_path / "copy.sqlite")
