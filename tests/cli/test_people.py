"""What people say on the command line reaches the tuner that runs, and what comes of it reaches them."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from tests.support.records import MIDDLE, MIDNIGHT, SPECS, applied, finding
from tuner.cli.app import app
from tuner.control.orders import Direction, Order, OrderKind, asker
from tuner.control.permission import stop_reason
from tuner.control.spool import Answer, Outcome, collect, done, folder_of, prepare
from tuner.errors import ConfigError, JournalError
from tuner.record.encoding import encode
from tuner.record.journal import Journal
from tuner.record.setting import Setting, save_setting
from tuner.settings.safety import ControlSettings
from tuner.standing import STATE_NAME, Standing
from tuner.values.knobs import KnobValues, Role
from tuner.values.stages import Decision, Verdict

SHORT = KnobValues.of({**MIDDLE, Role.BASE_SLICE: 0.09})
LONG = KnobValues.of({**MIDDLE, Role.BASE_SLICE: 0.13})


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal in recommend mode: two verified settings, the untouched one, and a recommendation as cycle 7."""
    path = tmp_path / "clocktuner.sqlite"
    now = time.time()
    record = replace(applied(7, now - 60), receipt=None, decision=Decision.HOLD)
    held = (finding("gain"), finding("tuner_mode", passed=False))
    verdict = Verdict(cycle_id=7, decision=Decision.HOLD, reason="nobody has said yes", findings=held)
    with Journal(path) as book:
        save_setting(book, Setting(policy="reference", mode="recommend", specs=SPECS[:3]))
        book.append(replace(record, verdict=verdict))
        book.remember(np.full(6, 3.0), SHORT, score=-0.05, at_seconds=MIDNIGHT)
        book.remember(np.full(6, 4.0), LONG, score=-0.02, at_seconds=MIDNIGHT + 3600)
        standing = Standing(knobs=LONG, known_good=LONG, untouched=MIDDLE, context=(3.0,) * 6)
        book.save_state(STATE_NAME, encode(standing))
    return path


@contextmanager
def tuner(
    journal: Path, *, outcome: Outcome = Outcome.DONE, sentence: str = "so be it", cycle_id: int | None = 8
) -> Iterator[list[Order]]:
    """Take and answer orders as a running tuner does, for the length of a `with` block; gives what was taken."""
    taken: list[Order] = []
    over = threading.Event()

    def run() -> None:
        folder = folder_of(journal)
        prepare(folder)
        while not over.is_set():
            for order in collect(folder, at_seconds=time.time()).orders:
                taken.append(order)
                answer = Answer(
                    order_id=order.order_id,
                    outcome=outcome,
                    sentence=sentence,
                    at_seconds=time.time(),
                    cycle_id=cycle_id,
                )
                done(folder, answer)
            over.wait(0.01)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield taken
    finally:
        over.set()
        thread.join()


def say(*words: str, journal: Path, wait: str = "30s") -> Result:
    options = ["--journal", str(journal)]
    if words[0] != "kill-switch":
        options += ["--wait", wait]
    return CliRunner().invoke(app, [*words, *options], env={"COLUMNS": "200"})


@pytest.mark.parametrize(
    ("words", "kind", "details", "echo"),
    [
        (("pause", "--reason", "audit"), OrderKind.PAUSE, {"reason": "audit"}, "pause (audit)"),
        (("resume",), OrderKind.RESUME, {}, "go on"),
        (
            ("freeze", "base_slice_seconds", "up"),
            OrderKind.FREEZE,
            {"role": Role.BASE_SLICE, "direction": Direction.UP},
            "do not move base_slice_seconds up",
        ),
        (("thaw", "base_slice_seconds"), OrderKind.THAW, {"role": Role.BASE_SLICE}, "move up and down again"),
        (("thaw", "base_slice_seconds", "up"), OrderKind.THAW, {"direction": Direction.UP}, "move up again"),
        (("approve", "7"), OrderKind.APPROVE, {"cycle_id": 7}, "make the change that cycle 7 recommends"),
        (("adopt",), OrderKind.ADOPT, {}, "adopt the settings in force"),
        (("rollback",), OrderKind.ROLL_BACK, {"knobs": None}, "go back to the newest known good setting"),
        (
            ("rollback", "--to", "1"),
            OrderKind.ROLL_BACK,
            {"known_good": 1, "knobs": SHORT},
            f"go back to setting 1: {SHORT.describe()}",
        ),
        (("rollback", "--to", "0"), OrderKind.ROLL_BACK, {"known_good": 0, "knobs": MIDDLE}, "go back to setting 0"),
        (("drill",), OrderKind.DRILL, {}, "prove by a drill that a change can be undone"),
    ],
)
def test_what_is_said_is_done_and_told(
    words: tuple[str, ...], kind: OrderKind, details: dict[str, object], echo: str, journal: Path
) -> None:
    with tuner(journal) as taken:
        told = say(*words, journal=journal)

    assert told.exit_code == 0, told.output
    (order,) = taken
    assert (order.kind, order.by) == (kind, asker())
    assert {name: getattr(order, name) for name in details} == details
    assert abs(order.at_seconds - time.time()) < 60
    assert f"{asker()}: " in told.stdout
    assert echo in told.stdout
    assert told.stdout.splitlines()[-1] == "done: so be it (`clocktuner explain 8`)"
    assert told.stderr == ""


def test_a_pause_may_end_by_itself(journal: Path) -> None:
    with tuner(journal) as taken:
        say("pause", "--for", "1h30m", journal=journal)

    assert taken[0].until_seconds == pytest.approx(taken[0].at_seconds + 5400)


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.FAILED])
def test_what_was_not_done_is_told_and_is_exit_status_1(outcome: Outcome, journal: Path) -> None:
    with tuner(journal, outcome=outcome, sentence="a change is on trial", cycle_id=None):
        told = say("drill", journal=journal)

    assert told.exit_code == 1
    assert told.stderr == f"{outcome}: a change is on trial\n"


@pytest.mark.parametrize(("words", "valid"), [(("pause",), "runs;"), (("rollback",), "runs, within 60 minutes;")])
def test_where_no_tuner_runs_the_order_waits_and_that_is_exit_status_3(
    words: tuple[str, ...], valid: str, journal: Path
) -> None:
    told = say(*words, journal=journal, wait="0.2")

    assert told.exit_code == 3
    assert f"no clocktuner has answered within 0.2 s: the order lies in {folder_of(journal)}" in told.stderr
    assert valid in told.stderr
    assert len(collect(folder_of(journal), at_seconds=time.time()).orders) == 1


# The list of known good settings.


def test_known_good_settings_are_listed_with_their_load_and_keep_their_numbers(journal: Path) -> None:
    before = say("rollback", "--list", journal=journal)
    with Journal(journal) as book:
        book.remember(np.full(6, 9.0), MIDDLE, score=-0.01, at_seconds=MIDNIGHT + 7200)
        book.save_state(STATE_NAME, encode(Standing(untouched=MIDDLE, context=(9.0, *[np.nan] * 5))))
    after = say("rollback", "--list", journal=journal)

    rows = [line.split() for line in before.stdout.splitlines() if line.strip()[:1].isdigit()]
    assert [row[0] for row in rows] == ["2", "1", "0"]
    assert "4.9 % better" in before.stdout
    assert "0 % apart" in before.stdout
    assert "172 % apart" in before.stdout
    assert SHORT.describe() in before.stdout
    assert "found at the first start" in before.stdout
    assert not collect(folder_of(journal), at_seconds=time.time()).orders
    numbers = {line.split()[0]: line.rpartition("slice")[2] for line in after.stdout.splitlines() if "slice" in line}
    assert numbers["1"].startswith(" 90 ms")
    assert numbers["2"].startswith(" 130 ms")
    assert set(numbers) == {"0", "1", "2", "3"}


def test_before_anything_is_known_the_list_is_empty(tmp_path: Path) -> None:
    Journal(tmp_path / "new.sqlite").close()

    told = say("rollback", "--list", journal=tmp_path / "new.sqlite")

    assert told.exit_code == 0
    assert "number" in told.stdout


# What cannot be asked is refused at once, and leaves nothing behind.


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("approve", "99"), "cycle 99 is not in the journal; `clocktuner history` lists those that are"),
        (("rollback", "--to", "3"), "--to is 3, must be a number that `clocktuner rollback --list` shows"),
        (
            ("freeze", "reservation_ratio", "up"),
            "reservation_ratio is no knob of policy reference, which has base_slice",
        ),
        (("thaw", "reservation_ratio"), "reservation_ratio is no knob of policy reference"),
        (("pause", "--for", "a while"), "--for: 'a while' is not a duration; write seconds, or text such as 90s"),
        (("pause", "--for", "0s"), "--for is 0s, must be over 0 and under ten years"),
        (("pause", "--for", "inf"), "--for is inf, must be over 0 and under ten years"),
        (("pause", "--reason", "r" * 301), "reason is longer than 300 characters; say it otherwise"),
        (("pause", "--reason", "two\nlines"), "reason holds what cannot be printed; say it otherwise"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_remedy(words: tuple[str, ...], complaint: str, journal: Path) -> None:
    told = say(*words, journal=journal, wait="0.2")

    assert isinstance(told.exception, ConfigError)
    assert str(told.exception).startswith(complaint)
    assert not folder_of(journal).exists()


def test_a_recommendation_that_is_too_old_is_refused(journal: Path) -> None:
    with Journal(journal) as book:
        found = book.record(7)
        assert found is not None
        assert found.proposal is not None
        old = replace(found, cycle_id=3, at_seconds=MIDNIGHT)
        book.append(old)

    told = say("approve", "3", journal=journal, wait="0.2")

    assert isinstance(told.exception, ConfigError)
    assert "cycle 3 is from 2026-01-01 00:00 UTC" in str(told.exception)


@pytest.mark.parametrize(
    "words",
    [
        ("pause",),
        ("resume",),
        ("kill-switch", "on"),
        ("freeze", "base_slice_seconds", "up"),
        ("approve", "7"),
        ("adopt",),
        ("rollback",),
        ("drill",),
    ],
)
def test_beside_a_journal_that_is_not_there_nothing_is_asked(words: tuple[str, ...], tmp_path: Path) -> None:
    told = say(*words, journal=tmp_path / "typo.sqlite", wait="0.2")

    assert isinstance(told.exception, ConfigError | JournalError)
    assert "there is no journal; name with --journal" in str(told.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words", [("freeze", "base_slice_seconds", "sideways"), ("freeze", "volume", "up"), ("approve", "0")]
)
def test_what_the_parser_does_not_know_is_exit_status_2(words: tuple[str, ...], journal: Path) -> None:
    assert say(*words, journal=journal).exit_code == 2


# The kill switch.


def test_the_kill_switch_stops_writes_and_allows_them_again_without_a_tuner(journal: Path) -> None:
    on = say("kill-switch", "on", "--reason", "smoke in hall 3", journal=journal)
    stopped = stop_reason(ControlSettings(), journal, {})
    again = say("kill-switch", "on", journal=journal)
    off = say("kill-switch", "off", journal=journal)

    assert [told.exit_code for told in (on, again, off)] == [0, 0, 0]
    assert again.stdout == on.stdout
    assert f"the kill switch is on: {journal}.stop exists" in on.stdout
    assert f"({asker()}: smoke in hall 3, " in stopped
    assert f"the kill switch is off: there is no {journal}.stop" in off.stdout
    assert stop_reason(ControlSettings(), journal, {}) == ""


def test_a_kill_switch_that_is_off_already_stays_off(journal: Path) -> None:
    assert say("kill-switch", "off", journal=journal).exit_code == 0


def test_the_kill_switch_writes_through_no_link(journal: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("do not touch")
    Path(f"{journal}.stop").symlink_to(precious)

    on = say("kill-switch", "on", journal=journal)
    assert on.exit_code == 0
    assert stop_reason(ControlSettings(), journal, {})

    off = say("kill-switch", "off", journal=journal)
    assert off.exit_code == 0
    assert stop_reason(ControlSettings(), journal, {}) == ""
    assert precious.read_text() == "do not touch"


def test_a_kill_switch_that_cannot_be_thrown_says_so(journal: Path) -> None:
    Path(f"{journal}.stop").mkdir()

    told = say("kill-switch", "off", journal=journal)

    assert isinstance(told.exception, ConfigError)
    assert f"{journal}.stop cannot be written" in str(told.exception)
