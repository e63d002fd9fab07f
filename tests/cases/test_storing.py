"""What storage did to others: a locked file holds changes and ends nothing, and studies neither are stored nor grow."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
import pytest
from pydantic import ValidationError

from tests.cases.front import EAGER, propose
from tests.loop.harness import simulation
from tuner import tuning
from tuner.errors import JournalError
from tuner.propose.inputs import SearchInputs
from tuner.record import storage
from tuner.record.families import FAMILIES
from tuner.settings.sections import SearchSettings
from tuner.values.stages import Decision, Proposal

pytestmark = pytest.mark.timeout(180)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a database so that nobody else can write it."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


@pytest.fixture
def studies(monkeypatch: pytest.MonkeyPatch) -> list[optuna.Study]:
    """Every study that is made."""
    made: list[optuna.Study] = []
    create = optuna.create_study

    def noted(*arguments: Any, **options: Any) -> optuna.Study:
        made.append(create(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(optuna, "create_study", noted)
    return made


def test_a_journal_that_is_locked_during_a_search_holds_the_change_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """optuna/optuna#6036: storage that was locked ended the work of everyone."""
    monkeypatch.setattr(storage, "BUSY_SECONDS", 0.05)
    planted = propose(monkeypatch, base_slice_seconds=0.12)
    journal = tmp_path / "journal.sqlite"
    with simulation(tmp_path, cycle=EAGER) as world:
        world.cycles(5)
        before, known = world.in_force, len(world.journal)

        with monkeypatch.context() as patch, contextmanager(_lock_at_search)(patch, planted, journal) as held:
            with pytest.raises(JournalError, match="another program has held it"):
                world.cycle()
            with pytest.raises(JournalError):
                world.cycle()
            during = world.in_force
            assert held == ["locked"]
        applied = world.until(Decision.APPLY, most=4)

        assert during == before
        assert len(world.journal) > known
        assert applied.receipt is not None
        assert applied.receipt.applied
        assert world.in_force != before
        assert world.parts.journal.open_intents() == ()


def _lock_at_search(patch: pytest.MonkeyPatch, planted: Callable[..., Proposal], journal: Path) -> Iterator[list[str]]:
    held: list[str] = []
    holding = locked(journal)

    def search(inputs: SearchInputs, **options: Any) -> Proposal:
        if not held:
            holding.__enter__()
            held.append("locked")
        return planted(inputs, **options)

    patch.setattr(tuning, "search", search)
    try:
        yield held
    finally:
        if held:
            holding.__exit__(None, None, None)


def test_studies_live_in_memory_and_leave_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, studies: list[optuna.Study]
) -> None:
    """optuna/optuna#820: a study in a file that several processes share ends in errors of its storage."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with simulation(tmp_path, cycle=EAGER) as world:
        world.cycles(8)

    assert studies
    assert {type(study._storage) for study in studies} == {optuna.storages.InMemoryStorage}
    assert list((tmp_path / "here").iterdir()) == []
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} <= {
        "journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm", "journal.sqlite.lock",
    }  # fmt: skip


def test_no_study_outlives_its_search_or_grows_beyond_its_cap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, studies: list[optuna.Study]
) -> None:
    """optuna/optuna#6777, #2172: time and memory of a study grew with the number of its trials, without an end."""
    eager = {**EAGER, "min_gain_ratio": 1.0}  # Nothing is ever tried out, so that each cycle searches.
    with simulation(tmp_path, cycle=eager, search={"trials": 40, "seed": 1}) as world:
        records = world.cycles(9)

    searched = [record for record in records if record.proposal is not None]
    assert len(searched) == len(studies) >= 3
    assert all(len(study.trials) <= 40 for study in studies)
    assert len({id(study._storage) for study in studies}) == len(studies)


def test_more_trials_than_a_study_can_bear_are_refused_and_a_slow_cycle_is_told() -> None:
    """optuna/optuna#6777: 2,000 trials cannot come together, and how long a cycle takes is exported."""
    with pytest.raises(ValidationError, match="less than or equal to 300"):
        SearchSettings(trials=301)
    assert {"cycle_duration_seconds", "stage_duration_seconds"} <= {family.name for family in FAMILIES}
