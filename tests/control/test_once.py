"""An order is obeyed exactly once, wherever the tuner is killed: the way of `tuner.control.spool`, on real files.

A tuner in a process of its own does with an order what the loop does: collect, note in the journal, answer. It is
killed without warning at each step in turn, and started again.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.control.orders import order
from tuner.control.orders import OrderKind
from tuner.control.spool import Outcome, answer_of, collect, folder_of, leave
from tuner.control.state import STATE_NAME, Control
from tuner.record.encoding import decode
from tuner.record.journal import Journal

TUNER = """
import os, signal, sys, time
from pathlib import Path
from tuner.control import spool
from tuner.control.state import STATE_NAME, Control, applied
from tuner.record.encoding import decode, encode
from tuner.record.journal import Journal
from tuner.values.stages import CycleRecord

path, die_at = Path(sys.argv[1]), sys.argv[2]
folder = spool.folder_of(path)

def point(name):
    if name == die_at:
        os.kill(os.getpid(), signal.SIGKILL)

def around(function, name):
    def wrapped(*arguments, **keywords):
        point("before " + name)
        result = function(*arguments, **keywords)
        point("after " + name)
        return result
    return wrapped

os.fsync = around(os.fsync, "the disk")
os.rename = around(os.rename, "the answer's name")
os.unlink = around(os.unlink, "the removal")
with Journal(path) as journal:
    journal.append = around(journal.append, "the record")
    stored = journal.load_state(STATE_NAME)
    control = Control() if stored is None else decode(Control, stored)
    now = time.time()
    for order in spool.collect(folder, at_seconds=now, known=control.done).orders:
        point("before anything")
        control = applied(control, order)
        number = journal.next_cycle_id()
        record = CycleRecord(cycle_id=number, at_seconds=now, decision="order", reason=order.describe())
        journal.append(record, states={STATE_NAME: encode(control)})
        spool.done(folder, spool.Answer(order_id=order.order_id, outcome=spool.Outcome.DONE, sentence="paused",
                                        at_seconds=now, cycle_id=number))
"""

POINTS = (
    "before anything",
    "before the record",
    "after the record",
    "before the disk",
    "after the disk",
    "before the answer's name",
    "after the answer's name",
    "before the removal",
    "after the removal",
)


def run(journal: Path, die_at: str) -> int:
    return subprocess.run([sys.executable, "-c", TUNER, str(journal), die_at], check=False, timeout=60).returncode


@pytest.mark.parametrize("point", POINTS)
def test_an_order_is_obeyed_once_wherever_the_tuner_is_killed(point: str, tmp_path: Path) -> None:
    journal = tmp_path / "clocktuner.sqlite"
    given = order(OrderKind.PAUSE, at_seconds=time.time())
    leave(folder_of(journal), given)

    assert run(journal, point) == -signal.SIGKILL
    assert run(journal, "nowhere") == 0

    answer = answer_of(folder_of(journal), given.order_id)
    assert answer is not None
    assert answer.outcome is Outcome.DONE
    assert collect(folder_of(journal), at_seconds=time.time()).orders == ()
    with Journal.open_readonly(journal) as book:
        (record,) = book.records()
        stored = book.load_state(STATE_NAME)
    assert record.reason == given.describe()
    assert stored is not None
    control = decode(Control, stored)
    assert control.done == (given.order_id,)
    assert control.paused(time.time())
