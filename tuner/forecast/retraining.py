"""Fine-tuning from the parent's side: start the child, look whether it is done, let the challenger prove itself.

The weights in force change only when a challenger is at least 1 % better on the newest closed windows, which it has
not learned from. A child that dies, hangs or writes nonsense changes nothing.
"""

import subprocess
import sys
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Final

import numpy as np

from tuner.errors import ForecastFailed
from tuner.forecast.examples import Examples
from tuner.forecast.lstm import load_network
from tuner.forecast.reservoir import JUDGED, Reservoir
from tuner.values.stages import QUANTILES

LEAST_EXAMPLES: Final = 2_000
"""Windows to learn from before the first fine-tuning."""

LEAST_JUDGED: Final = JUDGED // 4
"""Newest windows before a comparison says anything."""

MIN_GAIN_RATIO: Final = 0.01
"""A challenger must be this much better to take over."""

NICENESS: Final = 15
"""Training yields to everything that the machine is really for."""

TIMEOUT_SECONDS: Final = 120.0
"""A child that takes longer is stopped: fifty times what it needs on an idle machine."""


class Retraining(StrEnum):
    """What became of a call."""

    WAITING = "waiting"
    RUNNING = "running"
    STARTED = "started"
    FAILED = "failed"
    KEPT = "kept"
    SWAPPED = "swapped"


class FineTuner:
    """One child at a time, and the weights in force.

    Attributes:
        weights: The weights in force.
        detail: What the last child that failed had to say.
    """

    def __init__(self, weights: Path, *, seed: int) -> None:
        self.weights = weights
        self.detail = ""
        self._seed = seed
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._age_seconds = 0.0
        self._round = 0

    def advance(self, reservoir: Reservoir, *, elapsed_seconds: float) -> Retraining:
        """Take the next step, without waiting: start a child, look after it, or judge what it left.

        Args:
            reservoir: Windows that have closed.
            elapsed_seconds: Time since the last call, by whatever clock the caller lives on.
        """
        if self._child is None:
            return self._start(reservoir)
        self._age_seconds += elapsed_seconds
        if self._child.poll() is None:
            if self._age_seconds <= TIMEOUT_SECONDS:
                return Retraining.RUNNING
            self.stop()
            self.detail = f"fine-tuning took over {TIMEOUT_SECONDS:g} s and was stopped"
            return Retraining.FAILED
        return self._harvest(reservoir)

    def stop(self) -> None:
        """Stop the child, if there is one; nothing of it is kept."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def close(self) -> None:
        """Stop the child and remove all files; weights that were swapped in are gone with them."""
        self.stop()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _start(self, reservoir: Reservoir) -> Retraining:
        examples = reservoir.to_learn_from()
        if examples is None or len(examples) < LEAST_EXAMPLES:
            return Retraining.WAITING
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="clocktuner-")
        self._round += 1
        examples.save(self._path("examples.npz"))
        command = [sys.executable, "-m", "tuner.forecast.finetune", "--nice", str(NICENESS)]
        command += ["--seed", str(self._seed + self._round)]
        files = ["--examples", self._path("examples.npz"), "--weights", self.weights, "--out", self._challenger()]
        with self._path("errors.txt").open("wb") as errors:
            self._child = subprocess.Popen(
                [*command, *map(str, files)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
            )
        self._age_seconds = 0.0
        return Retraining.STARTED

    def _harvest(self, reservoir: Reservoir) -> Retraining:
        status = self._child.returncode if self._child else -1
        self._child = None
        judges = reservoir.to_judge_by()
        if status != 0:
            said = self._path("errors.txt").read_text(encoding="utf-8", errors="replace").strip()
            self.detail = f"fine-tuning ended with status {status}: {said[-500:] or 'it said nothing'}"
            return Retraining.FAILED
        if judges is None or len(judges) < LEAST_JUDGED:
            return Retraining.KEPT
        try:
            challenger = loss_of(self._challenger(), judges)
        except ForecastFailed as error:
            self.detail = str(error)
            return Retraining.FAILED
        if not challenger < (1 - MIN_GAIN_RATIO) * loss_of(self.weights, judges):
            self._challenger().unlink()
            return Retraining.KEPT
        self.weights = self._challenger()
        return Retraining.SWAPPED

    def _challenger(self) -> Path:
        return self._path(f"challenger-{self._round}.safetensors")

    def _path(self, name: str) -> Path:
        if self._folder is None:
            raise ForecastFailed("fine-tuning has not started")
        return Path(self._folder.name) / name


def loss_of(weights: Path, examples: Examples) -> float:
    """Return the mean quantile loss of some weights on examples; infinity where it is not finite.

    Raises:
        ForecastFailed: The weights cannot be used.
    """
    import torch

    network = load_network(weights)
    with torch.inference_mode():
        changes = network(torch.from_numpy(examples.sequence), torch.from_numpy(examples.static)).numpy()
    if not np.isfinite(changes).all():
        return float("inf")
    levels = np.asarray(QUANTILES)
    error = examples.target[..., None] - examples.unit[:, None, None] * np.sinh(changes)
    return float(np.nanmean(2 * np.maximum(levels * error, (levels - 1) * error)))
