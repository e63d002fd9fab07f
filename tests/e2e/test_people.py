"""What people say, as real processes: exit statuses, two at once, and one that is interrupted."""

import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.commands import clocktuner, until
from tuner.control.orders import OrderKind, asker
from tuner.control.spool import Answer, Outcome, collect, done, folder_of
from tuner.record.journal import Journal

pytestmark = pytest.mark.e2e

COMMANDS = (
    ("pause", "Stop tuning until resumed."),
    ("resume", "Go on after a pause"),
    ("kill-switch", "Stop every write at once"),
    ("freeze", "Do not move a knob up, or down"),
    ("thaw", "Let a knob move again"),
    ("approve", "Have the change made that a cycle recommended"),
    ("adopt", "Take the settings in force"),
    ("rollback", "Go back to a known good setting."),
    ("drill", "Prove that a change can be undone"),
)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "clocktuner.sqlite"
    Journal(path).close()
    return path


def test_help_names_every_command_with_what_it_does() -> None:
    done_ = clocktuner("--help")

    for command, purpose in COMMANDS:
        assert re.search(rf"\b{command}\b.*{re.escape(purpose)}", done_.stdout), command


def test_a_mistake_is_a_sentence_and_exit_status_2(tmp_path: Path) -> None:
    for words in (("pause",), ("kill-switch", "on"), ("rollback", "--list")):
        told = clocktuner(*words, "--journal", str(tmp_path / "typo.sqlite"))

        assert told.returncode in {2, 3}
        assert told.stderr.startswith(f"clocktuner: {tmp_path / 'typo.sqlite'}: there is no journal")
        assert "Traceback" not in told.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_unanswered_order_is_exit_status_3(journal: Path) -> None:
    told = clocktuner("pause", "--journal", str(journal), "--wait", "0.2")

    assert told.returncode == 3
    assert "no clocktuner has answered within 0.2 s" in told.stderr


def test_a_tuner_that_runs_keeps_the_journal_and_still_hears_everyone(journal: Path) -> None:
    folder, results = folder_of(journal), []

    def ask(command: str) -> None:
        results.append(clocktuner(command, "--journal", str(journal), "--wait", "30s"))

    with Journal(journal):  # As the running tuner has it: locked for every other writer.
        askers = [threading.Thread(target=ask, args=(command,)) for command in ("pause", "adopt", "drill")]
        for thread in askers:
            thread.start()
        heard = set()
        while any(thread.is_alive() for thread in askers):
            for order in collect(folder, at_seconds=time.time()).orders:
                heard.add((order.kind, order.by))
                done(
                    folder,
                    Answer(order_id=order.order_id, outcome=Outcome.DONE, sentence=f"{order.kind}d", at_seconds=0.0),
                )
            time.sleep(0.01)

    assert heard == {(kind, asker()) for kind in (OrderKind.PAUSE, OrderKind.ADOPT, OrderKind.DRILL)}
    assert {result.returncode for result in results} == {0}
    assert {result.stdout.splitlines()[-1] for result in results} == {"done: paused", "done: adoptd", "done: drilld"}


def test_who_stops_waiting_has_asked_all_the_same(journal: Path) -> None:
    folder = folder_of(journal)
    child = subprocess.Popen(
        [sys.executable, "-m", "tuner", "pause", "--journal", str(journal), "--wait", "60s"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    until(lambda: collect(folder, at_seconds=time.time()).orders, what="the order")

    child.send_signal(signal.SIGINT)
    child.communicate(timeout=30)

    assert child.returncode != 0
    (order,) = collect(folder, at_seconds=time.time()).orders
    assert order.kind is OrderKind.PAUSE
