"""Replays that are remembered, so that a benchmark of hours can be stopped and goes on where it was.

One file a replay, named by a digest of everything that decides its result: the tasks, the cluster, the seed, the
settings, the tuner with its bounds, and the source code that computed it. Whatever changes, the replay is made anew.
"""

import hashlib
import json
import os
import tempfile
import threading
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

import tuner
from tuner import assets
from tuner.bench.replays import Outcome, windows_of
from tuner.bench.tuners import Site
from tuner.reference.settings import ClockSettings
from tuner.reference.workloads import NamedWorkload

_SIMULATION: Final = (
    "reference",
    "values",
    "bench/replays.py",
    "bench/facts.py",
)
"""Sources that decide the result of a replay which nobody tunes."""


def default_folder() -> Path:
    """Return where replays are remembered: in the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "clocktuner" / "bench-tuning"


class Remembered:
    """A folder of replays; safe to use from several threads and processes at once.

    Attributes:
        made: Replays that had to be made.
        recalled: Replays that were remembered.
    """

    def __init__(self, folder: Path) -> None:
        """Use a folder, which need not exist yet."""
        self._folder = folder
        self._counting = threading.Lock()
        self.made = 0
        self.recalled = 0

    def outcome(self, key: str, make: Callable[[], Outcome]) -> Outcome:
        """Return a replay; it is made where it is not remembered."""
        path = self._folder / f"{key}.npz"
        known = _load(path)
        if known is not None:
            with self._counting:
                self.recalled += 1
            return known
        outcome = make()
        with self._counting:
            self.made += 1
        self._folder.mkdir(parents=True, exist_ok=True)
        _save(path, outcome)
        return outcome


def key_of(workload: NamedWorkload, settings: ClockSettings, *, site: Site, tuner_name: str = "") -> str:
    """Return the digest of everything that decides a replay.

    Args:
        workload: What runs where.
        settings: What the scheduler starts with.
        site: Seed, bounds and start of the tuner.
        tuner_name: Which tuner; empty for none, whose bounds do not matter.
    """
    told = {
        "tasks": _tasks_digest(workload),
        "windows": windows_of(workload),
        "cluster": repr(workload.cluster),
        "settings": repr(settings),
        "seed": site.seed,
        "tuner": tuner_name,
        "site": repr(site) if tuner_name else "",
        "sources": sources_digest(whole=bool(tuner_name)),
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]


@cache
def sources_digest(*, whole: bool) -> str:
    """Return a digest of the code, and of what is shipped with it, that decides a replay.

    Args:
        whole: All of the product, which decides what a tuner does; else the simulation only.
    """
    package = Path(tuner.__file__).parent
    roots = [package, assets.folder("policies")] if whole else [package / name for name in _SIMULATION]
    files = sorted(
        file
        for root in roots
        for file in ([root] if root.is_file() else root.rglob("*"))
        if file.suffix in {".py", ".yaml", ".safetensors", ".npz"} and file.is_file()
    )
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _tasks_digest(workload: NamedWorkload) -> str:
    digest = hashlib.sha256()
    for name, column in workload.trace.workload.columns().items():
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def _load(path: Path) -> Outcome | None:
    """Return a remembered replay; None where there is none, or a file that cannot be read."""
    try:
        # Opened here, for numpy leaves a file open that it cannot read.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
            changes, rollbacks = data["counts"].tolist()
            names, values = data["fact_names"].tolist(), data["fact_values"].tolist()
            return Outcome(
                metrics=data["metrics"],
                windows=data["windows"],
                changes=changes,
                rollbacks=rollbacks,
                facts=dict(zip(names, values, strict=True)),
            )
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _save(path: Path, outcome: Outcome) -> None:
    """Write a replay so that it is there as a whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez_compressed(
                file,
                metrics=outcome.metrics,
                windows=outcome.windows,
                counts=np.array([outcome.changes, outcome.rollbacks]),
                fact_names=np.array(list(outcome.facts), dtype=np.str_),
                fact_values=np.array(list(outcome.facts.values()), dtype=np.float64),
            )
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
