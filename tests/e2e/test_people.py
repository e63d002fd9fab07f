"""What people say, as real processes: exit statuses, two at once, and one that is interrupted."""

import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.e2e.test_daemon import Site, busy_hour
from tests.support.commands import clocktuner, running_daemon, until
from tuner.control.orders import OrderKind, asker
from tuner.control.spool import Answer, Outcome, collect, done, folder_of
from tuner.record.journal import Journal
from tuner.reference.cluster import PRESETS
from tuner.reference.server import ReferenceServer
from tuner.reference.settings import ClockSettings

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


@pytest.mark.timeout(240)
def test_a_running_tuner_does_what_people_say_and_the_journal_keeps_who_said_it(tmp_path: Path) -> None:
    journal, who = tmp_path / "journal.sqlite", asker()

    def say(*words: str) -> "subprocess.CompletedProcess[str]":
        return clocktuner(*words, "--journal", str(journal))

    with ReferenceServer(
        busy_hour(), PRESETS["edge"], settings=ClockSettings(), seed=1, listen="127.0.0.1:0", speed=60.0
    ) as scheduler:
        # No metrics are to be had: people are heard all the same.
        site = Site(scheduler.url, prometheus="http://127.0.0.1:1")
        policy = site.policy(tmp_path, mode="auto", guard={"period_seconds": "1s"})
        before, _ = site.settings()
        with running_daemon(
            "--policy", str(policy), "--prometheus", site.prometheus, "--listen", "127.0.0.1:0", log=tmp_path / "log"
        ) as daemon:
            daemon.wait(lambda: daemon.events("daemon_started"), what="its start")
            paused = say("pause", "--reason", "audit")
            drilled = say("drill")
            stopped = say("kill-switch", "on")
            not_drilled = say("drill")
            allowed = say("kill-switch", "off")
            back = say("rollback", "--to", "0")
            resumed = say("resume")
        after, _ = site.settings()

    assert [told.returncode for told in (paused, drilled, stopped, not_drilled, allowed, back, resumed)] == [
        0, 0, 0, 1, 0, 0, 0,
    ]  # fmt: skip
    assert "restored" in drilled.stdout
    assert "the kill switch is on" in not_drilled.stderr
    assert after == before
    with Journal.open_readonly(journal) as book:
        reasons = [record.reason for record in book.records() if record.failure is None]
    for asked in ("pause (audit)", "prove by a drill", "go back to setting 0", "go on"):
        assert any(who in reason and asked in reason for reason in reasons), asked
