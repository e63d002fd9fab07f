"""Permission: whether people and the clock let the tuner change anything."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.control.orders import NOON, order
from tuner.control.orders import OrderKind
from tuner.control.permission import STOP_VARIABLE, Permission, permission, stop_file, stop_reason
from tuner.control.state import Control, applied
from tuner.settings.safety import ControlSettings, MaintenanceWindow

OPEN = ControlSettings()
LUNCH = ControlSettings(maintenance=(MaintenanceWindow(start="11:30", end="13:00"),))
PAUSED = applied(Control(), order(OrderKind.PAUSE, reason="audit"))
STOPPED = "the kill switch is on"


def test_what_nobody_forbids_is_allowed() -> None:
    assert same_permission(permission(Control(), OPEN, at_seconds=NOON, stop=""), Permission(allowed=True))


def same_permission(left: Permission, right: Permission) -> bool:
    return repr(left) == repr(right)  # NaN is unlike itself.


def test_a_pause_says_who_when_until_when_and_why() -> None:
    found = permission(PAUSED, OPEN, at_seconds=NOON + 60, stop="")

    assert (found.allowed, found.by) == (False, "person")
    assert found.sentence == "paused by anna at 2026-01-01 12:00 UTC, until somebody resumes it (audit)"
    assert math.isnan(found.until_seconds)


def test_a_pause_with_an_end_tells_it() -> None:
    control = applied(Control(), order(OrderKind.PAUSE, until_seconds=NOON + 3600))

    found = permission(control, OPEN, at_seconds=NOON + 60, stop="")

    assert found.sentence == "paused by anna at 2026-01-01 12:00 UTC, until 2026-01-01 13:00 UTC"
    assert found.until_seconds == NOON + 3600
    assert permission(control, OPEN, at_seconds=NOON + 3600, stop="").allowed


def test_a_maintenance_window_forbids_while_it_is_open() -> None:
    found = permission(Control(), LUNCH, at_seconds=NOON, stop="")

    assert (found.allowed, found.by, found.until_seconds) == (False, "maintenance", NOON + 3600)
    assert found.sentence == "a maintenance window is open until 2026-01-01 13:00 UTC"
    assert permission(Control(), LUNCH, at_seconds=NOON + 3600, stop="").allowed


def test_of_several_who_forbid_the_strongest_says_so() -> None:
    by = [
        permission(control, LUNCH, at_seconds=NOON, stop=stop).by
        for control, stop in ((PAUSED, STOPPED), (PAUSED, ""), (Control(), STOPPED), (Control(), ""))
    ]

    assert by == ["kill_switch", "person", "kill_switch", "maintenance"]


@pytest.mark.parametrize(("value", "stopped"), [("1", True), ("yes", True), ("0", False), ("", False)])
def test_the_environment_stops_it(value: str, stopped: bool, tmp_path: Path) -> None:
    found = stop_reason(OPEN, tmp_path / "book.sqlite", {STOP_VARIABLE: value})

    assert found == ("the kill switch is on: CLOCKTUNER_STOP is set" if stopped else "")


def test_the_file_beside_the_journal_always_stops_it(tmp_path: Path) -> None:
    journal = tmp_path / "book.sqlite"
    elsewhere = ControlSettings(kill_file=str(tmp_path / "elsewhere"))
    assert stop_reason(elsewhere, journal, {}) == ""

    (tmp_path / "book.sqlite.stop").write_text("anna: smoke in hall 3\n")

    assert stop_file(journal) == tmp_path / "book.sqlite.stop"
    for settings in (OPEN, elsewhere):
        found = stop_reason(settings, journal, {})
        assert found == f"the kill switch is on: {tmp_path / 'book.sqlite.stop'} exists (anna: smoke in hall 3)"


def test_the_file_that_the_policy_names_stops_it(tmp_path: Path) -> None:
    settings = ControlSettings(kill_file=str(tmp_path / "stop"))
    (tmp_path / "stop").touch()

    assert stop_reason(settings, tmp_path / "book.sqlite", {}) == f"the kill switch is on: {tmp_path / 'stop'} exists"


def test_the_journal_may_be_named_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "book.sqlite").touch()
    (tmp_path / "book.sqlite").symlink_to(tmp_path / "real" / "book.sqlite")
    (tmp_path / "real" / "book.sqlite.stop").touch()

    assert stop_reason(OPEN, tmp_path / "book.sqlite", {})


def test_a_switch_of_any_kind_is_on(tmp_path: Path) -> None:
    switch = stop_file(tmp_path / "book.sqlite")
    switch.symlink_to(tmp_path / "gone")
    assert stop_reason(OPEN, tmp_path / "book.sqlite", {})
    switch.unlink()
    switch.mkdir()
    assert stop_reason(OPEN, tmp_path / "book.sqlite", {})
    switch.rmdir()
    os.mkfifo(switch)  # Nobody writes to it: looking at it must not wait.
    assert stop_reason(OPEN, tmp_path / "book.sqlite", {})


def test_what_is_in_the_file_cannot_confuse_a_terminal(tmp_path: Path) -> None:
    stop_file(tmp_path / "book.sqlite").write_bytes(b"\x1b[2J\xff" + b"x" * 10_000)

    found = stop_reason(OPEN, tmp_path / "book.sqlite", {})

    assert found.isprintable()
    assert len(found) < 600


def test_a_kill_file_whose_folder_is_a_file_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert stop_reason(ControlSettings(kill_file=str(tmp_path / "file" / "stop")), tmp_path / "book.sqlite", {}) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_a_switch_that_cannot_be_looked_for_counts_as_on(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    program = (
        "import os, sys; from pathlib import Path; from tuner.control.permission import stop_reason; "
        "from tuner.settings.safety import ControlSettings; os.setuid(54321); "
        "print(stop_reason(ControlSettings(kill_file=sys.argv[1]), Path('/tmp/book.sqlite'), {}))"
    )

    told = subprocess.run(
        [sys.executable, "-c", program, str(hidden / "stop")], capture_output=True, text=True, check=True, timeout=30
    )

    assert told.stdout.startswith("it cannot be told whether the kill switch is on")
    assert "(Permission denied)" in told.stdout
