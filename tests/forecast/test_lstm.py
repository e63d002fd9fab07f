from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.forecast.builders import batch_of
from tuner.errors import ForecastFailed
from tuner.forecast import lstm
from tuner.forecast.batch import WINDOW_STEPS, Batch
from tuner.forecast.features import COVARIATE_INPUTS, HORIZON_STEPS, STATIC_FEATURES, encode, hide_typical
from tuner.forecast.lstm import EXACT_SERIES, REST_CALLS, Lstm, stretch
from tuner.forecast.network import Network
from tuner.forecast.training import save
from tuner.values.stages import FloatArray


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return weights that no training has tamed."""
    path = tmp_path_factory.mktemp("weights") / "random.safetensors"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        network = Network()
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.7)
    save(network, path)
    return path


def walk(count: int = 5, *, size: float = 1.0) -> FloatArray:
    return np.random.default_rng(1).normal(size=(count, WINDOW_STEPS)).cumsum(axis=1) * size


def with_days(batch: Batch) -> Batch:
    shape = batch.yesterday.shape
    batch.yesterday[:] = np.random.default_rng(2).normal(size=shape)
    batch.typical[:] = np.random.default_rng(3).normal(size=shape)
    return batch


def test_quantiles_cannot_cross_whatever_the_weights(weights: Path) -> None:
    answer = Lstm(weights).forecast(batch_of(walk(40)))

    assert answer.shape == (40, 15, 3)
    assert np.isfinite(answer).all()
    assert (np.diff(answer, axis=2) >= 0).all()


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e12])
def test_forecasts_scale_with_the_series(weights: Path, size: float) -> None:
    window = walk() - walk()[:, -1:]  # The last value is 0, so that its level says nothing.

    plain = Lstm(weights).forecast(batch_of(window))
    scaled = Lstm(weights).forecast(batch_of(window * 1e3 * size, spread=1e3 * size))

    np.testing.assert_allclose(scaled, 1e3 * size * plain, rtol=2e-3, atol=1e3 * size * 2e-3)


def test_every_series_is_forecast_on_its_own(weights: Path) -> None:
    batch = batch_of(walk(EXACT_SERIES + 10))

    together = Lstm(weights).forecast(batch)
    alone = Lstm(weights).forecast(batch.take(np.array([7])))

    np.testing.assert_allclose(together[7], alone[0], rtol=1e-3, atol=1e-3)


def test_large_batches_are_answered_in_parts_that_change_nothing(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Lstm(weights).forecast(batch_of(walk(8)))
    monkeypatch.setattr(lstm, "CHUNK_SERIES", 3)

    np.testing.assert_allclose(Lstm(weights).forecast(batch_of(walk(8))), whole)


def test_flat_series_stay_where_they_are(weights: Path) -> None:
    batch = batch_of(np.full((2, WINDOW_STEPS), 100.0), spread=0.0)

    np.testing.assert_allclose(Lstm(weights).forecast(batch), 100.0, rtol=0.03)


@pytest.mark.parametrize("horizon", [1, 15, 20, 60])
def test_any_horizon_is_answered(weights: Path, horizon: int) -> None:
    answer = Lstm(weights).forecast(batch_of(walk(), horizon=horizon))

    assert answer.shape == (5, horizon, 3)
    assert (np.diff(answer, axis=2) >= 0).all()


def test_beyond_its_last_step_the_spread_grows_like_a_random_walk() -> None:
    changes = np.tile([-1.0, 0.5, 2.0], (1, HORIZON_STEPS, 1))

    further = stretch(changes, 80)

    np.testing.assert_allclose(further[0, -1], [0.5 - 1.5 * 2, 0.5, 0.5 + 1.5 * 2])


def test_missing_weights_are_said_and_the_member_rests(tmp_path: Path) -> None:
    member = Lstm(tmp_path / "none.safetensors")

    with pytest.raises(ForecastFailed, match=r"none\.safetensors: no usable weights"):
        member.forecast(batch_of(walk()))
    with pytest.raises(ForecastFailed, match="rests"):
        member.forecast(batch_of(walk()))


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"start.weight": torch.zeros(3)}, tmp_path / "other.safetensors")

    with pytest.raises(ForecastFailed, match="no usable weights"):
        Lstm(tmp_path / "other.safetensors").forecast(batch_of(walk()))


def test_a_member_that_was_too_slow_rests_and_is_then_tried_again(weights: Path) -> None:
    def slow_then_quick() -> Iterator[float]:
        yield from (0.0, 9.0)
        while True:
            yield 9.0

    ticks = slow_then_quick()
    member = Lstm(weights, deadline_seconds=3.0, clock=lambda: next(ticks))
    batch = batch_of(walk())

    member.forecast(batch)
    for _ in range(REST_CALLS):
        with pytest.raises(ForecastFailed, match="rests"):
            member.forecast(batch)

    assert np.isfinite(member.forecast(batch)).all()


def test_other_weights_are_taken_from_the_next_forecast_on(weights: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.safetensors"
    save(Network(), other)
    member = Lstm(weights)
    before = member.forecast(batch_of(walk()))

    member.swap(other)

    assert not np.allclose(member.forecast(batch_of(walk())), before)


def test_it_leaves_the_number_of_threads_as_it_was(weights: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        Lstm(weights).forecast(batch_of(walk()))
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)


def test_inputs_are_finite_and_bounded_whatever_the_batch_holds() -> None:
    batch = with_days(batch_of(walk(4, size=1e9), spread=1e-9))
    batch.covariates[:] = 1e9
    batch.ceiling[0] = 1.0

    features = encode(batch)

    assert features.static.shape == (4, STATIC_FEATURES)
    for values in (features.sequence, features.static):
        assert np.abs(values).max() <= 10.0


def test_an_untrained_covariate_counts_for_nothing() -> None:
    network = Network().eval()
    features = encode(with_days(batch_of(walk())))
    static = torch.from_numpy(features.static)
    with_covariates = static.clone()
    with_covariates[:, -COVARIATE_INPUTS:] = 1.0

    with torch.inference_mode():
        plain, same = (network(torch.from_numpy(features.sequence), one) for one in (static, with_covariates))

    torch.testing.assert_close(plain, same)


def test_a_hidden_typical_day_looks_like_one_that_was_never_known() -> None:
    batch = with_days(batch_of(walk()))
    known = encode(batch)
    batch.typical[:] = np.nan
    unknown = encode(batch)
    every = np.ones(5, dtype=np.bool_)

    hide_typical(known.sequence, known.static, every)

    np.testing.assert_array_equal(known.sequence, unknown.sequence)
    np.testing.assert_array_equal(known.static, unknown.static)
