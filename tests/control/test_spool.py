"""The spool folder: orders arrive whole, in order, from those who may give them, and are obeyed once."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.control.orders import NOON, order
from tuner.control import spool
from tuner.control.orders import ACT_WITHIN_SECONDS, MAX_BYTES, Order, OrderKind, new_id
from tuner.control.spool import Answer, Outcome, answer_of, collect, done, folder_of, leave, prepare
from tuner.control.state import Control, applied
from tuner.errors import ConfigError

SOMEBODY = 54_321
"""Number of a user that is not the one who runs the tests."""

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    journal = tmp_path / "clocktuner.sqlite"
    journal.touch()
    found = folder_of(journal)
    prepare(found)
    return found


def answer(to: Order, *, sentence: str = "paused", outcome: Outcome = Outcome.DONE) -> Answer:
    return Answer(order_id=to.order_id, outcome=outcome, sentence=sentence, at_seconds=NOON + 1, cycle_id=7)


def left(folder: Path, kind: OrderKind = OrderKind.PAUSE, *, at_seconds: float = NOON) -> Order:
    given = order(kind, at_seconds=at_seconds)
    leave(folder, given)
    return given


# The way of an order.


def test_an_order_is_left_taken_and_answered(folder: Path) -> None:
    given = left(folder)
    assert answer_of(folder, given.order_id) is None

    taken = collect(folder, at_seconds=NOON + 1)
    assert taken.orders == (given,)
    assert not taken.refused

    done(folder, answer(given))
    assert answer_of(folder, given.order_id) == answer(given)
    assert collect(folder, at_seconds=NOON + 2).orders == ()


def test_the_oldest_order_comes_first_whoever_left_it_last(folder: Path) -> None:
    later = left(folder, OrderKind.RESUME, at_seconds=NOON + 60)
    earlier = left(folder, OrderKind.PAUSE, at_seconds=NOON)

    assert collect(folder, at_seconds=NOON + 61).orders == (earlier, later)


def test_where_no_tuner_has_run_yet_nothing_waits(tmp_path: Path) -> None:
    assert collect(tmp_path / "none.orders", at_seconds=NOON) == spool.Collected()
    assert not list(tmp_path.iterdir())


def test_the_folder_is_beside_the_journal_wherever_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "book.sqlite").touch()
    (tmp_path / "link.sqlite").symlink_to(tmp_path / "real" / "book.sqlite")

    assert folder_of(tmp_path / "link.sqlite") == tmp_path / "real" / "book.sqlite.orders"


def test_nobody_else_can_read_or_write_what_is_left(folder: Path) -> None:
    given = left(folder)

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / f"{given.order_id}.json").stat().st_mode) == 0o600


def test_an_order_left_without_a_tuner_waits_for_one(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "clocktuner.sqlite")

    given = left(folder)

    assert collect(folder, at_seconds=NOON + 86_400).orders == (given,)


@pytest.mark.parametrize("kind", [OrderKind.ADOPT, OrderKind.ROLL_BACK, OrderKind.DRILL])
def test_what_was_to_be_done_an_hour_ago_is_not_done_now(folder: Path, kind: OrderKind) -> None:
    given = left(folder, kind)
    assert collect(folder, at_seconds=NOON + ACT_WITHIN_SECONDS - 1).orders == (given,)

    late = collect(folder, at_seconds=NOON + ACT_WITHIN_SECONDS)

    told = answer_of(folder, given.order_id)
    assert late.orders == ()
    assert "too far from now to be meant now" in late.refused[0].reason
    assert told is not None
    assert (told.outcome, told.cycle_id) == (Outcome.REFUSED, None)
    assert "from 2026-01-01 12:00 UTC" in told.sentence


def test_an_answer_to_what_is_no_order_is_not_looked_for(folder: Path) -> None:
    assert answer_of(folder, "../../../etc/passwd") is None


def test_an_answer_that_was_tampered_with_is_told(folder: Path) -> None:
    given = left(folder)
    done(folder, answer(given))
    (folder / "answers" / f"{given.order_id}.json").write_text('{"outcome": "splendid"}')

    with pytest.raises(ConfigError, match=f"the answer to {given.order_id}"):
        answer_of(folder, given.order_id)


def test_old_answers_are_forgotten_new_ones_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "KEPT", 3)
    given = [left(folder, at_seconds=NOON + second) for second in range(5)]

    for item in given:
        done(folder, answer(item))

    assert [answer_of(folder, item.order_id) is not None for item in given] == [False, False, True, True, True]


# Crashes. A writer or tuner that dies leaves nothing that is half an order, and nothing that is obeyed twice.


DIES_BEFORE_THE_NAME_IS_GIVEN = """
import os, signal, sys
from pathlib import Path
from tuner.control import spool
from tuner.control.orders import parse
os.rename = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
spool.leave(Path(sys.argv[1]), parse(sys.argv[2].encode()))
"""


def test_a_writer_killed_before_the_name_is_given_leaves_no_order(folder: Path) -> None:
    given = order(OrderKind.PAUSE)
    killed = subprocess.run(
        [sys.executable, "-c", DIES_BEFORE_THE_NAME_IS_GIVEN, str(folder), given.to_json()], check=False, timeout=30
    )

    assert killed.returncode == -signal.SIGKILL
    (leftover,) = folder.iterdir()
    assert leftover.read_text() == given.to_json()
    written_at = leftover.stat().st_mtime

    assert collect(folder, at_seconds=written_at + 1) == spool.Collected()
    assert leftover.exists(), "a writer that is only slow must not lose its file"
    assert collect(folder, at_seconds=written_at + spool.LEFTOVER_SECONDS + 1) == spool.Collected()
    assert not leftover.exists()

    leave(folder, given)  # The person asks again.
    assert collect(folder, at_seconds=NOON + 1).orders == (given,)


def test_a_tuner_that_ends_before_it_noted_the_order_takes_it_again(folder: Path) -> None:
    given = left(folder)
    collect(folder, at_seconds=NOON + 1)

    assert collect(folder, at_seconds=NOON + 2).orders == (given,)


@pytest.mark.parametrize("later_seconds", [1, 2 * ACT_WITHIN_SECONDS])
def test_a_tuner_that_ends_after_it_noted_the_order_answers_it_however_late(folder: Path, later_seconds: float) -> None:
    given = left(folder, OrderKind.ROLL_BACK)
    control = applied(Control(), collect(folder, at_seconds=NOON + 1).orders[0])

    again = collect(folder, at_seconds=NOON + later_seconds, known=control.done)

    told = answer_of(folder, given.order_id)
    assert again == spool.Collected()
    assert told is not None
    assert told.outcome is Outcome.DONE
    assert told.sentence.startswith("this was dealt with before the tuner was restarted")


def test_a_tuner_that_ends_between_answer_and_removal_does_not_take_it_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = left(folder)
    with monkeypatch.context() as dying:
        dying.setattr(spool, "remove", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            done(folder, answer(given))
    assert (folder / f"{given.order_id}.json").exists()

    assert collect(folder, at_seconds=NOON + 2) == spool.Collected()
    assert not (folder / f"{given.order_id}.json").exists()
    assert answer_of(folder, given.order_id) == answer(given)


def test_answering_twice_does_no_harm(folder: Path) -> None:
    given = left(folder)

    done(folder, answer(given))
    done(folder, answer(given, sentence="paused already"))

    found = answer_of(folder, given.order_id)
    assert found is not None
    assert found.sentence == "paused already"


def test_a_full_disk_leaves_no_half_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(ConfigError, match=r"cannot be used \(No space left on device\)"):
        left(folder)

    assert list(folder.iterdir()) == []


def test_an_answer_that_cannot_be_written_lets_the_order_wait(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = left(folder)
    with monkeypatch.context() as trouble:
        trouble.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        with pytest.raises(ConfigError, match="Input/output error"):
            done(folder, answer(given))

    assert collect(folder, at_seconds=NOON + 2).orders == (given,)
    assert answer_of(folder, given.order_id) is None


# Several at once.


def test_of_many_who_ask_at_once_everyone_is_heard_once(folder: Path) -> None:
    gate = threading.Barrier(8)
    given = [[order(OrderKind.PAUSE, by=f"user{number}") for _ in range(10)] for number in range(8)]

    def ask(mine: list[Order]) -> None:
        gate.wait()
        for item in mine:
            leave(folder, item)

    askers = [threading.Thread(target=ask, args=(mine,)) for mine in given]
    for asker in askers:
        asker.start()
    heard: dict[str, Order] = {}
    while any(asker.is_alive() for asker in askers) or collect(folder, at_seconds=NOON).orders:
        found = collect(folder, at_seconds=NOON)
        assert not found.refused, "nothing half written may ever be seen"
        for item in found.orders:
            assert item.order_id not in heard
            heard[item.order_id] = item
            done(folder, answer(item))
    for asker in askers:
        asker.join()

    assert set(heard.values()) == {item for mine in given for item in mine}


def test_whoever_floods_the_folder_does_not_stop_the_loop(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "MOST_AT_ONCE", 5)
    given = [left(folder, at_seconds=NOON + second) for second in range(12)]

    first = collect(folder, at_seconds=NOON + 20).orders

    assert first == tuple(given[:5])


# What is no order, and who may not give one.


def plant(folder: Path, text: str, *, name: str = "") -> Path:
    path = folder / (name or f"{new_id(NOON)}.json")
    path.write_text(text)
    path.chmod(0o600)
    return path


def link_to_a_secret(folder: Path) -> None:
    (folder / f"{new_id(NOON)}.json").symlink_to("/etc/passwd")


def pipe_that_nobody_fills(folder: Path) -> None:
    os.mkfifo(folder / f"{new_id(NOON)}.json", 0o600)


def folder_of_that_name(folder: Path) -> None:
    (folder / f"{new_id(NOON)}.json").mkdir()


def writable_by_all(folder: Path) -> None:
    given = left(folder)
    (folder / f"{given.order_id}.json").chmod(0o666)


def under_another_name(folder: Path) -> None:
    given = left(folder)
    (folder / f"{given.order_id}.json").rename(folder / f"{new_id(NOON)}.json")


def of_somebody_else(folder: Path) -> None:
    given = left(folder)
    os.chown(folder / f"{given.order_id}.json", SOMEBODY, SOMEBODY)


@pytest.mark.parametrize(
    ("plot", "reason"),
    [
        (lambda folder: plant(folder, "pause!"), "Expecting value"),
        (lambda folder: plant(folder, "{" + " " * MAX_BYTES), "longer than 4096 bytes"),
        (lambda folder: plant(folder, '{"kind": "pause"}', name="by hand.json"), "lacks at_seconds"),
        (link_to_a_secret, "Too many levels of symbolic links"),
        (pipe_that_nobody_fills, "no plain file"),
        (folder_of_that_name, "no plain file"),
        (writable_by_all, "others may write to it"),
        (under_another_name, "its name is not its order_id"),
        pytest.param(of_somebody_else, f"it belongs to uid {SOMEBODY}", marks=root_only),
    ],
)
def test_what_may_not_be_obeyed_is_set_aside_and_told(
    folder: Path, plot: Callable[[Path], object], reason: str
) -> None:
    plot(folder)
    honest = left(folder, at_seconds=NOON + 1)

    found = collect(folder, at_seconds=NOON + 2)

    assert found.orders == (honest,)
    (refused,) = found.refused
    assert reason in refused.reason
    assert os.path.lexists(folder / "refused" / refused.name)
    assert collect(folder, at_seconds=NOON + 3).refused == ()


def test_whoever_wrote_a_bad_order_is_answered(folder: Path) -> None:
    path = plant(folder, '{"kind": "pause"}')

    collect(folder, at_seconds=NOON)

    told = answer_of(folder, path.stem)
    assert told is not None
    assert told.outcome is Outcome.REFUSED
    assert "lacks at_seconds, by, order_id" in told.sentence


def test_a_name_or_text_made_to_confuse_a_terminal_is_told_harmlessly(folder: Path) -> None:
    plant(folder, json.dumps({"kind": "\x1b[2J" + "x" * 2000}), name="\x1b]0;gotcha\x07.json")
    os.close(os.open(os.fsencode(folder) + b"/\xff\xfe.json", os.O_CREAT | os.O_WRONLY, 0o600))

    for refused in collect(folder, at_seconds=NOON).refused:
        assert (refused.name + refused.reason).isprintable()
        assert (refused.name + refused.reason).encode()
        assert len(refused.reason) <= 400


def test_files_of_other_kinds_are_left_alone(folder: Path) -> None:
    for name in ("README", ".hidden.json", "order.json.bak"):
        plant(folder, "{}", name=name)

    assert collect(folder, at_seconds=NOON) == spool.Collected()
    assert sorted(path.name for path in folder.iterdir()) == [".hidden.json", "README", "order.json.bak"]


@pytest.mark.parametrize("mode", [0o770, 0o722, 0o777])
def test_a_folder_that_others_may_write_in_gives_no_orders(folder: Path, mode: int) -> None:
    left(folder)
    folder.chmod(mode)

    found = collect(folder, at_seconds=NOON)

    assert found.orders == ()
    assert "may be written by others" in found.refused[0].reason
    with pytest.raises(ConfigError, match="may be written by others"):
        left(folder)


@root_only
def test_a_folder_of_somebody_else_gives_no_orders(folder: Path) -> None:
    given = left(folder)
    os.chown(folder, SOMEBODY, SOMEBODY)

    found = collect(folder, at_seconds=NOON)

    assert found.orders == ()
    assert f"belongs to uid {SOMEBODY}" in found.refused[0].reason
    assert (folder / f"{given.order_id}.json").exists()


@root_only
def test_what_root_asks_of_another_users_tuner_that_user_can_read(tmp_path: Path) -> None:
    journal = tmp_path / "clocktuner.sqlite"
    journal.touch()
    os.chown(journal, SOMEBODY, SOMEBODY)
    folder = folder_of(journal)

    given = left(folder)

    assert {path.stat().st_uid for path in (folder, folder / f"{given.order_id}.json")} == {SOMEBODY}


@root_only
def test_who_has_no_right_is_told_whose_it_is_to_ask(folder: Path, tmp_path: Path) -> None:
    # As somebody else, in a process of its own: rights cannot be given up for a while only.
    given = order(OrderKind.PAUSE)
    program = (
        "import os, sys; from pathlib import Path; from tuner.control import spool; "
        "from tuner.control.orders import parse; order = parse(sys.argv[2].encode()); "
        f"os.setgid({SOMEBODY}); os.setuid({SOMEBODY}); spool.leave(Path(sys.argv[1]), order)"
    )
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == 0 and path != Path("/"):
            path.chmod(path.stat().st_mode | stat.S_IXOTH)

    refused = subprocess.run(
        [sys.executable, "-c", program, str(folder), given.to_json()],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )

    assert "cannot be used (Permission denied); give orders as the user that clocktuner runs as" in refused.stderr
    assert collect(folder, at_seconds=NOON).orders == ()


def test_a_file_where_the_folder_should_be_is_told_and_does_not_stop_the_loop(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "clocktuner.sqlite")
    folder.write_text("")

    found = collect(folder, at_seconds=NOON)

    assert "cannot be used (Not a directory)" in found.refused[0].reason
    with pytest.raises(ConfigError, match="Not a directory"):
        left(folder)


def test_a_link_where_the_folder_should_be_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder = folder_of(tmp_path / "clocktuner.sqlite")
    folder.symlink_to(tmp_path / "elsewhere")
    leave(tmp_path / "elsewhere", order(OrderKind.PAUSE))

    assert collect(folder, at_seconds=NOON).orders == ()


def test_what_cannot_be_set_aside_is_told_with_the_remedy(folder: Path) -> None:
    plant(folder, "nonsense", name="order.json")
    (folder / "refused").write_text("in the way")

    (refused,) = collect(folder, at_seconds=NOON).refused

    assert "it could not be set aside (Not a directory): remove it" in refused.reason


def test_an_order_taken_away_while_it_is_read_is_no_trouble(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = left(folder)
    monkeypatch.setattr(spool, "_waiting", lambda _: [f"{replace(given, order_id=new_id(NOON)).order_id}.json"])

    assert collect(folder, at_seconds=NOON) == spool.Collected()
