"""Child processes that cannot outlive their parent, however it ends.

A child is started in a session of its own, so that Ctrl-C reaches it through us and not behind our back, and asks the
kernel to be terminated when the parent dies (`PR_SET_PDEATHSIG`): not even SIGKILL of the parent leaves it behind. The
kernel ties that to the *thread* that starts the child, so start children from threads that live as long as they do.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

# Run by the child before it becomes the program: no code of ours may run between fork and exec of a process with
# threads, which is what a `preexec_fn` would be. 1 is PR_SET_PDEATHSIG, 15 is SIGTERM. A parent that died before the
# request was made shows as another parent.
_LAUNCHER: Final = """
import ctypes, os, sys
try:
    ctypes.CDLL(None).prctl(1, 15, 0, 0, 0)
except (AttributeError, OSError):
    pass
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""

_STOP_SECONDS: Final = 10.0
"""Time to end in peace; Prometheus needs 0.06 s, and a large head block a few seconds."""


def start_leashed(argv: Sequence[str], *, log: Path) -> subprocess.Popen[bytes]:
    """Start a program that ends when we do; its output goes to a file.

    Args:
        argv: Program and arguments.
        log: File for standard output and error, overwritten.

    Raises:
        OSError: The launcher or the log cannot be had.
    """
    with log.open("wb") as sink:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *argv],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def stop(child: subprocess.Popen[bytes]) -> None:
    """End a child: ask first, then insist; returns when it is gone. Harmless where it has ended already."""
    child.terminate()
    try:
        child.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
