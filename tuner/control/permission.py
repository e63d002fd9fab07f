"""Permission: whether people and the clock let the tuner change anything, asked before every change.

Three may forbid it. The kill switch forbids every write, also one that would protect the scheduler; a person's pause
and a maintenance window stop tuning.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tuner.control.maintenance import closed_until
from tuner.control.orders import MAX_REASON, instant
from tuner.control.state import Control
from tuner.settings.safety import ControlSettings

STOP_VARIABLE: Final = "CLOCKTUNER_STOP"
"""Environment variable that stops all writes, unless it is empty or 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """Whether anything may be changed, and who says so.

    Attributes:
        allowed: Whether it may.
        by: Who forbids it; empty where nobody does. The labels of the metric `paused`.
        sentence: What forbids it, and until when; empty where nothing does.
        until_seconds: When that ends by itself; NaN where it does not.
    """

    allowed: bool
    by: Literal["person", "kill_switch", "maintenance", ""] = ""
    sentence: str = ""
    until_seconds: float = math.nan


def permission(control: Control, settings: ControlSettings, *, at_seconds: float, stop: str) -> Permission:
    """Return whether anything may be changed; where several forbid it, the strongest says so.

    Args:
        control: What people have said.
        settings: Maintenance windows.
        at_seconds: Now.
        stop: What `stop_reason` says.
    """
    if stop:
        return Permission(allowed=False, by="kill_switch", sentence=stop)
    if control.paused(at_seconds):
        until = control.paused_until_seconds
        end = "until somebody resumes it" if math.isnan(until) else f"until {instant(until)}"
        why = f" ({control.reason})" if control.reason else ""
        sentence = f"paused by {control.paused_by} at {instant(control.paused_at_seconds)}, {end}{why}"
        return Permission(allowed=False, by="person", sentence=sentence, until_seconds=until)
    over = closed_until(settings.maintenance, at_seconds)
    if over is not None:
        sentence = f"a maintenance window is open until {instant(over)}"
        return Permission(allowed=False, by="maintenance", sentence=sentence, until_seconds=over)
    return Permission(allowed=True)


def stop_file(journal: Path) -> Path:
    """Return the file beside a journal that stops all writes of its tuner while it exists, whatever the policy says."""
    real = journal.resolve()
    return real.with_name(real.name + ".stop")


def stop_reason(settings: ControlSettings, journal: Path, environ: Mapping[str, str]) -> str:
    """Return what stops all writes: the environment, or a file; empty where nothing does.

    A file counts whatever it is, a broken link as well. Where it cannot be told whether there is one, writes are
    stopped: a switch that fails must fail off.

    Args:
        settings: May name another file, beside the one that always counts.
        journal: Of the tuner.
        environ: The environment of the process.
    """
    if environ.get(STOP_VARIABLE, "") not in ("", "0"):
        return f"the kill switch is on: {STOP_VARIABLE} is set"
    named = () if settings.kill_file is None else (Path(settings.kill_file),)
    for path in (stop_file(journal), *named):
        try:
            path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return f"it cannot be told whether the kill switch is on: {path} ({error.strerror})"
        return f"the kill switch is on: {path} exists{_note(path)}"
    return ""


def _note(path: Path) -> str:
    """Return what somebody has written into the file, for people to read; empty where there is nothing readable."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            text = file.read(MAX_REASON).decode(errors="replace").strip()
    except OSError:
        return ""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    return f" ({shown})" if shown else ""
