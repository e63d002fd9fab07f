import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.forecast.builders import batch_of
from tuner.forecast import finetune, reservoir, retraining
from tuner.forecast.batch import WINDOW_STEPS
from tuner.forecast.examples import Examples
from tuner.forecast.network import Network
from tuner.forecast.reservoir import Reservoir
from tuner.forecast.retraining import FineTuner, Retraining, loss_of
from tuner.forecast.training import save


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "champion.safetensors"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        save(Network(), path)
    return path


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch) -> Reservoir:
    """Return windows of a line that always rises by one, which untrained weights do not know."""
    monkeypatch.setattr(reservoir, "JUDGED", 40)
    monkeypatch.setattr(retraining, "LEAST_EXAMPLES", 40)
    monkeypatch.setattr(retraining, "LEAST_JUDGED", 10)
    monkeypatch.setattr(retraining, "NICENESS", 0)
    kept = Reservoir(seed=1)
    for start in range(12):
        window = np.arange(WINDOW_STEPS)[None] + np.arange(start, start + 10.0)[:, None]
        kept.add(batch_of(window), window[:, -1:] + np.arange(1, 16))
    return kept


@pytest.fixture
def tuner(weights: Path) -> Iterator[FineTuner]:
    made = FineTuner(weights, seed=1)
    yield made
    made.close()


def finished(tuner: FineTuner, kept: Reservoir) -> Retraining:
    """Wait until the child has ended, and return what became of it."""
    assert tuner._child is not None
    tuner._child.wait(50)
    return tuner.advance(kept, elapsed_seconds=0.0)


def start_instead(tuner: FineTuner, kept: Reservoir, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Start a child that runs another program."""
    command = [sys.executable, "-c", program]
    with monkeypatch.context() as patch:
        original = subprocess.Popen
        patch.setattr(subprocess, "Popen", lambda _, **options: original(command, **options))
        assert tuner.advance(kept, elapsed_seconds=0.0) is Retraining.STARTED


def test_a_challenger_that_is_better_takes_over(tuner: FineTuner, filled: Reservoir, weights: Path) -> None:
    judges = filled.to_judge_by()
    assert judges is not None

    assert tuner.advance(filled, elapsed_seconds=0.0) is Retraining.STARTED
    assert finished(tuner, filled) is Retraining.SWAPPED

    assert tuner.weights != weights
    assert loss_of(tuner.weights, judges) < 0.99 * loss_of(weights, judges)
    assert weights.exists()


def test_a_challenger_that_is_no_better_is_thrown_away(
    tuner: FineTuner, filled: Reservoir, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_instead(tuner, filled, monkeypatch, "")
    shutil.copy(weights, tuner._challenger())

    assert finished(tuner, filled) is Retraining.KEPT
    assert tuner.weights == weights
    assert not tuner._challenger().exists()


def test_a_child_that_is_killed_does_no_harm(tuner: FineTuner, filled: Reservoir, weights: Path) -> None:
    tuner.advance(filled, elapsed_seconds=0.0)
    assert tuner._child is not None
    tuner._child.send_signal(signal.SIGKILL)

    assert finished(tuner, filled) is Retraining.FAILED
    assert tuner.weights == weights
    assert "status -9" in tuner.detail
    assert tuner.advance(filled, elapsed_seconds=0.0) is Retraining.STARTED


def test_a_child_that_hangs_is_stopped(
    tuner: FineTuner, filled: Reservoir, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_instead(tuner, filled, monkeypatch, "import time; time.sleep(600)")
    hanging = tuner._child
    assert hanging is not None

    assert tuner.advance(filled, elapsed_seconds=60.0) is Retraining.RUNNING
    assert tuner.advance(filled, elapsed_seconds=61.0) is Retraining.FAILED
    assert hanging.poll() is not None
    assert tuner.weights == weights


@pytest.mark.parametrize(
    ("program", "words"),
    [("raise SystemExit('out of memory')", "status 1: out of memory"), ("", "no usable weights")],
    ids=["it fails", "it writes nothing"],
)
def test_a_child_that_leaves_nothing_of_use_changes_nothing(
    tuner: FineTuner, filled: Reservoir, monkeypatch: pytest.MonkeyPatch, program: str, words: str
) -> None:
    weights = tuner.weights
    start_instead(tuner, filled, monkeypatch, program)

    assert finished(tuner, filled) is Retraining.FAILED
    assert words in tuner.detail
    assert tuner.weights == weights


def test_with_too_few_windows_nothing_starts(tuner: FineTuner) -> None:
    assert tuner.advance(Reservoir(seed=1), elapsed_seconds=600.0) is Retraining.WAITING


def test_weights_that_answer_nonsense_never_win(filled: Reservoir, tmp_path: Path) -> None:
    network = Network()
    with torch.no_grad():
        network.out.bias.fill_(float("nan"))
    save(network, tmp_path / "nan.safetensors")
    judges = filled.to_judge_by()
    assert judges is not None

    assert loss_of(tmp_path / "nan.safetensors", judges) == float("inf")


def test_the_child_refuses_files_it_does_not_know(tmp_path: Path, weights: Path) -> None:
    bad = tmp_path / "bad.npz"
    bad.write_bytes(b"not an archive")

    status = finetune.main(["--examples", str(bad), "--weights", str(weights), "--out", str(tmp_path / "out")])

    assert status == 2
    assert not (tmp_path / "out").exists()


def test_the_child_trains_a_little(tmp_path: Path, weights: Path, filled: Reservoir) -> None:
    examples = filled.to_learn_from()
    assert examples is not None
    examples.save(tmp_path / "examples.npz")
    out = tmp_path / "out.safetensors"

    status = finetune.main(
        ["--examples", str(tmp_path / "examples.npz"), "--weights", str(weights), "--out", str(out), "--steps", "2"]
    )

    assert status == 0
    assert out.exists()


def test_nothing_is_learned_from_the_newest_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservoir, "JUDGED", 20)
    kept = Reservoir(seed=1)
    for value in range(5):
        window = np.arange(WINDOW_STEPS)[None] + np.full(10, float(value))[:, None]
        kept.add(batch_of(window), window[:, -1:] + np.arange(1, 16))

    newest, aged = kept.to_judge_by(), kept.to_learn_from()

    assert newest is not None
    assert aged is not None
    assert len(newest) == 20
    assert len(aged) == 30


def test_the_reservoir_is_a_fair_sample_of_all_that_aged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservoir, "JUDGED", 1)
    monkeypatch.setattr(reservoir, "CAPACITY", 200)
    kept = Reservoir(seed=1)
    for turn in range(100):
        window = np.arange(WINDOW_STEPS)[None] + np.zeros(20)[:, None]
        kept.add(batch_of(window), window[:, -1:] + np.full(15, float(turn)))

    aged = kept.to_learn_from()

    assert isinstance(aged, Examples)
    assert len(aged) == 200
    assert aged.target[:, 0].mean() == pytest.approx(49, abs=8)


def test_windows_that_teach_nothing_are_left_out() -> None:
    kept = Reservoir(seed=1)
    window = np.arange(WINDOW_STEPS)[None] + np.zeros(4)[:, None]
    batch = batch_of(window)
    batch.known[0] = 0.0
    batch.scale[1] = 0.0
    truth = window[:, -1:] + np.arange(1, 16)
    truth[2, 7] = np.nan

    kept.add(batch, truth)
    kept.add(batch.take(slice(0, 2)), truth[:2])

    newest = kept.to_judge_by()
    assert newest is not None
    assert len(newest) == 1
