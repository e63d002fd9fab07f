import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from tests.forecast.builders import batch_of
from tuner.forecast.batch import WINDOW_STEPS
from tuner.forecast.examples import Examples, concatenated, examples_of, sample
from tuner.forecast.features import HORIZON_STEPS
from tuner.forecast.selection import pinball
from tuner.forecast.traces import FOLDER, TRACES, TrainingPart, load
from tuner.forecast.training import Recipe, quantile_loss, train

TINY = Recipe(steps=3, windows=40, batch=8, threads=1)


def parts(*, seed: int = 1) -> list[TrainingPart]:
    rng = np.random.default_rng(seed)
    return [TrainingPart("walks", tuple(rng.normal(size=(2, 300)).cumsum(axis=1)))]


def weights_of(path: Path) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.concatenate([value.numpy().ravel().astype(np.float64) for value in load_file(path).values()])


def first_series(part: TrainingPart) -> TrainingPart:
    return replace(part, series=part.series[:2])


@pytest.mark.parametrize("name", TRACES)
def test_training_reads_only_the_first_seventy_per_cent(name: str, tmp_path: Path) -> None:
    table = pd.read_csv(FOLDER / f"{name}_last_value.csv").set_index("series")["train_steps"]
    samples = pd.read_parquet(FOLDER / f"{name}.parquet")
    place = samples.groupby("series", observed=True).cumcount()
    beyond = place.to_numpy() >= samples["series"].astype(str).map(table).to_numpy()
    samples["value"] = samples["value"].mask(beyond, -12345)
    samples.to_parquet(tmp_path / f"{name}.parquet")
    shutil.copy(FOLDER / f"{name}_last_value.csv", tmp_path)

    clean, spoiled = (
        sample([first_series(load(name, folder=folder).training_part())], windows=200, rng=np.random.default_rng(1))
        for folder in (FOLDER, tmp_path)
    )

    assert beyond.mean() == pytest.approx(0.3, abs=0.001)
    for field in ("sequence", "static", "unit", "target"):
        np.testing.assert_array_equal(getattr(clean, field), getattr(spoiled, field))


def test_a_training_part_holds_nothing_else() -> None:
    trace = load("crane")

    part = trace.training_part()

    assert [len(one) for one in part.series] == list(trace.train_steps)
    assert all(one.base is None for one in part.series)


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tmp_path: Path) -> None:
    paths = [
        train(output=tmp_path / f"{run}.safetensors", seed=seed, recipe=TINY, parts=parts())
        for run, seed in enumerate((1, 1, 2))
    ]
    first, again, other = map(weights_of, paths)

    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


def test_training_leaves_torch_as_it_was(tmp_path: Path) -> None:
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()

    train(output=tmp_path / "a.safetensors", recipe=TINY, parts=parts())

    assert torch.get_num_threads() == threads
    assert torch.equal(torch.random.get_rng_state(), state)


def test_training_learns_what_can_be_learned(tmp_path: Path) -> None:
    sawtooth = TrainingPart("sawtooth", (np.arange(900.0) % 10,))
    losses: list[float] = []

    train(
        output=tmp_path / "a.safetensors",
        recipe=Recipe(steps=1000, windows=200, batch=8, threads=1),
        parts=[sawtooth],
        progress=lambda _, loss: losses.append(loss),
    )

    assert len(losses) == 2
    assert losses[1] < 0.5 * losses[0]


def test_the_loss_is_the_one_that_is_scored() -> None:
    rng = np.random.default_rng(1)
    changes, target = np.sort(rng.normal(size=(6, 20, 3)), axis=2), rng.normal(size=(6, 20))
    target[:, 15:] = np.nan

    loss = quantile_loss(torch.from_numpy(changes), torch.from_numpy(target))

    assert float(loss) == pytest.approx(pinball(changes, target).mean())


def test_targets_are_changes_in_the_normal_size_of_the_series() -> None:
    batch = batch_of(np.full((2, WINDOW_STEPS), 10.0), spread=2.0)

    examples = examples_of(batch, np.full((2, 15), 16.0), np.full(2, 3.0))

    np.testing.assert_array_equal(examples.target[:, :15], 2.0)
    assert np.isnan(examples.target[:, 15:]).all()
    np.testing.assert_allclose(examples.unit, 2.0 / 3.0, rtol=1e-6)


def test_examples_pass_between_processes_unchanged(tmp_path: Path) -> None:
    examples = sample(parts(), windows=50, rng=np.random.default_rng(1))
    examples.save(tmp_path / "examples.npz")

    again = Examples.load(tmp_path / "examples.npz")

    for field in ("sequence", "static", "unit", "target"):
        np.testing.assert_array_equal(getattr(again, field), getattr(examples, field))


def test_examples_of_another_version_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "old.npz", sequence=[1.0], static=np.zeros((1, 3)), unit=[1.0], target=[1.0])

    with pytest.raises(ValueError, match="static inputs have shape"):
        Examples.load(tmp_path / "old.npz")


def test_windows_in_which_nothing_moved_are_rare_but_there() -> None:
    values = np.where(np.arange(4000) % 400 < 40, np.random.default_rng(1).normal(size=4000), 0.0)

    examples = sample([TrainingPart("bursts", (values,))], windows=2000, rng=np.random.default_rng(1))

    still = (examples.sequence[:, :, 1] == 0).all(axis=1).mean()
    # Of the windows 83 % are still; a quarter of the chance leaves 0.83 / 4 / (0.83 / 4 + 0.17) = 55 %.
    assert still == pytest.approx(0.55, abs=0.05)


def test_covariates_and_past_days_are_hidden_from_some_windows() -> None:
    beside = np.ones((5000, 12))
    part = TrainingPart("runs", (np.random.default_rng(1).normal(size=5000),), covariates=(beside,))

    examples = sample([part], windows=1000, rng=np.random.default_rng(2))

    assert (examples.static[:, -1] == 1).mean() == pytest.approx(0.7, abs=0.05)
    assert 0 < (examples.static[:, HORIZON_STEPS + 1] == 1).mean() < 1


def test_sets_join_in_order() -> None:
    one, other = (sample(parts(), windows=20, rng=np.random.default_rng(seed)) for seed in (1, 2))

    joined = concatenated([one, other])

    assert len(joined) == len(one) + len(other)
    np.testing.assert_array_equal(joined.take(slice(0, len(one))).target, one.target)
