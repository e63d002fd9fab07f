import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forecast.builders import observation
from tuner.forecast import Forecasting
from tuner.forecast.retraining import Retraining
from tuner.settings.model import ForecastSettings
from tuner.values.stages import FloatArray, Forecast, SeriesFrame

NUMPY_ONLY = ForecastSettings(lstm=False, statistical=False)
NAN = np.nan


def shown(
    values: FloatArray, *, names: tuple[str, ...] | None = None, start: int = 200, every: int = 5, known: int = 1440
) -> tuple[Forecasting, list[Forecast]]:
    """Show a stage some series, shape (series, steps), in cycles; return it with all its forecasts."""
    names = names or tuple(f"s{row}" for row in range(len(values)))
    stage = Forecasting(NUMPY_ONLY)
    told = [
        stage.forecast(observation(names, values[:, max(end - known, 0) : end], end=end - 1))
        for end in range(start, values.shape[1] + 1, every)
    ]
    return stage, told


def walk(count: int, steps: int, *, seed: int = 1) -> FloatArray:
    return np.random.default_rng(seed).normal(size=(count, steps)).cumsum(axis=1)


def test_the_horizon_is_that_of_the_settings_and_times_are_those_of_the_samples() -> None:
    _, told = shown(walk(2, 200))

    assert told[0].values.shape == (2, 20, 3)
    assert told[0].at_seconds == 199 * 60.0
    assert told[0].names == ("s0", "s1")


HOSTILE = {
    "gaps": lambda row: np.where(np.arange(len(row)) % 3 == 0, NAN, row),
    "nan run at the end": lambda row: np.where(np.arange(len(row)) > len(row) - 25, NAN, row),
    "inf": lambda row: np.where(np.arange(len(row)) % 11 == 0, np.inf, row),
    "flat": lambda row: np.full_like(row, 4.0),
    "zero": np.zeros_like,
    "counter": lambda row: np.cumsum(np.abs(row)) * 1e6,
    "counter reset": lambda row: np.where(np.arange(len(row)) > len(row) - 10, 0.0, np.arange(len(row)) * 1e9),
    "beyond float32": lambda row: row * 1e14,
    "tiny": lambda row: row * 1e-200,
    "step": lambda row: np.where(np.arange(len(row)) > len(row) - 5, 1e6, 1.0),
    "one sample": lambda row: np.where(np.arange(len(row)) == len(row) - 1, 5.0, NAN),
}


@pytest.mark.parametrize("spoil", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_series_is_too_strange_to_be_forecast(spoil: object) -> None:
    assert callable(spoil)
    rows = np.stack([spoil(row) for row in walk(2, 260)])

    _, told = shown(rows, every=15)

    # Finite and ordered: `Forecast` refuses anything else.
    assert told[-1].names == ("s0", "s1")
    assert np.isfinite(told[-1].values).all()


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_any_mixture_of_missing_and_impossible_samples_gives_finite_forecasts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = walk(4, 60, seed=seed) * 10.0 ** rng.integers(-12, 13, (4, 1))
    bad = rng.choice([NAN, np.inf, -np.inf, 1e300], size=values.shape)
    values = np.where(rng.random(values.shape) < rng.random((4, 1)), bad, values)

    _, told = shown(values, start=int(rng.integers(1, 40)), every=7)

    assert all(np.isfinite(one.values).all() for one in told)


def test_a_series_without_any_sample_is_left_out_rather_than_taken_for_zero() -> None:
    values = walk(3, 200)
    values[1] = NAN

    _, told = shown(values)

    assert told[-1].names == ("s0", "s2")


def test_an_observation_without_history_gives_an_empty_forecast() -> None:
    told = Forecasting(NUMPY_ONLY).forecast(observation((), np.empty((0, 1)), end=10))

    assert told.names == ()
    assert told.rung == "last_value"
    assert told.best_window is None


@pytest.mark.parametrize(
    ("known", "rung"), [(5, "last_value"), (12, "smoothing"), (60, "smoothing")], ids=["5 min", "12 min", "1 h"]
)
def test_the_rung_tells_how_much_is_known(known: int, rung: str) -> None:
    _, told = shown(walk(2, known), start=known)

    assert told[-1].rung == rung


def test_the_order_of_the_series_does_not_matter() -> None:
    values = walk(6, 420) * np.arange(1, 7)[:, None]
    names = tuple("fedcba")
    order = np.array([3, 0, 5, 1, 4, 2])

    _, told = shown(values, names=names)
    _, shuffled = shown(values[order], names=tuple(names[row] for row in order))

    for name in names:
        np.testing.assert_allclose(told[-1][name], shuffled[-1][name], rtol=1e-9)


def test_the_same_observations_give_the_same_forecasts() -> None:
    first, second = (shown(walk(3, 300))[1] for _ in range(2))

    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.values, other.values)


def test_names_tell_the_bounds() -> None:
    rows = np.stack([0.97 + 0.02 * np.sin(np.arange(300)), np.abs(np.sin(np.arange(300.0)))])

    _, told = shown(rows, names=("resource_idle_ratio", "queue_wait_seconds"))

    assert told[-1]["resource_idle_ratio"].max() <= 1.0
    assert told[-1]["queue_wait_seconds"].min() >= 0.0


def level_shift(rng: np.random.Generator, steps: int) -> FloatArray:
    return np.where(np.arange(steps) < steps // 2, 10.0, 60.0) + rng.normal(size=steps)


def flat(rng: np.random.Generator, steps: int) -> FloatArray:
    return 20 + 0.5 * rng.normal(size=steps)


def busier(rng: np.random.Generator, steps: int) -> FloatArray:
    size: FloatArray = np.where(np.arange(steps) < steps // 2, 0.2, 3.0)
    walked: FloatArray = size * rng.normal(size=steps).cumsum()
    return walked


def poisson(rng: np.random.Generator, steps: int) -> FloatArray:
    return rng.poisson(np.where(np.arange(steps) < steps // 2, 2.0, 40.0)).astype(np.float64)


@pytest.mark.parametrize("kind", [flat, level_shift, busier, poisson])
def test_after_warm_up_it_is_never_clearly_worse_than_last_value(kind: object) -> None:
    assert callable(kind)
    steps, warm_up = 1500, 600
    values = np.stack([kind(np.random.default_rng(seed), steps) for seed in range(6)])

    _, told = shown(values[:, : steps - 15], every=15, start=300)

    ours, last = [], []
    for one in told:
        end = round(one.at_seconds / 60) + 1
        if end >= warm_up:
            truth = values[:, end : end + 15]
            ours.append(np.abs(one.values[:, :15, 1] - truth).mean())
            last.append(np.abs(values[:, end - 1, None] - truth).mean())
    assert np.mean(ours) <= 1.02 * np.mean(last)


def test_nodes_are_forecast_in_one_batch_by_metric() -> None:
    values = np.clip(0.5 + walk(20, 120) * 0.01, 0, 1)
    values[3] = NAN
    names = tuple(f"node-{row}" for row in range(20))
    stage = Forecasting(NUMPY_ONLY)

    for end in range(40, 121, 5):
        frame = SeriesFrame(names, end * 60.0, values[:, end - 30 : end])
        told = stage.forecast(
            observation((), np.empty((0, 1)), end=end, nodes={"accelerator_utilization_ratio": frame})
        )

    shown_names, quantiles = told.nodes["accelerator_utilization_ratio"]
    assert shown_names == names[:3] + names[4:]
    assert quantiles.shape == (19, 20, 3)
    assert quantiles.min() >= 0.0
    assert quantiles.max() <= 1.0
    assert (np.diff(quantiles, axis=2) >= 0).all()


def test_nodes_may_come_and_go() -> None:
    stage = Forecasting(NUMPY_ONLY)
    values = walk(4, 200)
    for end in range(40, 200, 5):
        present = [row for row in range(4) if (end // 40 + row) % 3]
        frame = SeriesFrame(tuple(f"n{row}" for row in present), end * 60.0, values[present, end - 30 : end])
        told = stage.forecast(observation((), np.empty((0, 1)), end=end, nodes={"node_power_watts": frame}))

        assert told.nodes["node_power_watts"][0] == frame.names


def test_what_it_hands_out_is_measured() -> None:
    rng = np.random.default_rng(5)
    stage, told = shown(20 + rng.normal(size=(8, 1200)), every=15)

    assert (told[-1].error_ratio < 0.95).all()
    assert set(told[-1].models) <= {"smoothing", "smoothing+last_value", "last_value+smoothing"}
    assert stage.coverage()[0] == pytest.approx(0.8, abs=0.12)


def test_a_shift_is_named() -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(size=(2, 900)) * 0.1
    values[1, 700:] += rng.normal(size=200).cumsum() * 20

    stage, _ = shown(values[:, :790], every=15)

    assert stage.drifted() == ("s1",)


def test_statistical_models_take_part_once_they_are_fitted() -> None:
    rng = np.random.default_rng(6)
    steps = 700
    change, level = 0.0, np.zeros(steps)
    for step in range(1, steps):
        change = 0.9 * change + rng.normal()
        level[step] = level[step - 1] + change
    stage = Forecasting(ForecastSettings(lstm=False))
    for end in range(300, steps, 15):
        if end % 120 == 0:
            stage.refit()
        told = stage.forecast(observation(("queue_length", "other"), np.stack([level[:end] + 500] * 2), end=end))

    assert told.rung == "selected"
    assert told.models[0].split("+")[0] in ("sarimax", "ets")
    assert told.models[1].split("+")[0] not in ("sarimax", "ets")
    assert told.error_ratio[0] < 0.9


def test_refitting_without_history_or_with_the_models_off_does_nothing() -> None:
    for options in (ForecastSettings(lstm=False), NUMPY_ONLY):
        stage = Forecasting(options)
        stage.refit()

        assert stage.forecast(observation((), np.empty((0, 1)), end=0)).names == ()


def test_without_usable_weights_smoothing_stands_in(tmp_path: Path) -> None:
    stage = Forecasting(ForecastSettings(statistical=False), weights=tmp_path / "none.safetensors")

    told = stage.forecast(observation(("a",), walk(1, 300), end=299))

    assert told.rung == "smoothing"


def test_with_the_network_off_torch_is_never_imported() -> None:
    program = (
        "import sys, numpy as np\n"
        "from tuner.forecast import Forecasting\n"
        "from tuner.settings.model import ForecastSettings\n"
        "from tests.forecast.builders import observation\n"
        "stage = Forecasting(ForecastSettings(lstm=False, statistical=False))\n"
        "stage.forecast(observation(('a',), np.random.default_rng(1).normal(size=(1, 200)), end=199))\n"
        "heavy = {'torch', 'statsmodels', 'pandas', 'scipy'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)

    assert done.returncode == 0, done.stderr


def test_without_torch_installed_the_lower_rungs_work() -> None:
    program = (
        "import sys, numpy as np\n"
        "sys.modules['torch'] = None\n"
        "from tuner.forecast import Forecasting\n"
        "from tuner.settings.model import ForecastSettings\n"
        "from tests.forecast.builders import observation\n"
        "stage = Forecasting(ForecastSettings(statistical=False))\n"
        "told = stage.forecast(observation(('a',), np.random.default_rng(1).normal(size=(1, 200)), end=199))\n"
        "sys.exit(0 if told.rung == 'smoothing' else told.rung)\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)

    assert done.returncode == 0, done.stderr


def test_fine_tuning_waits_until_there_is_something_to_learn_from() -> None:
    assert Forecasting(NUMPY_ONLY).retrain(elapsed_seconds=600.0) is Retraining.WAITING
    assert Forecasting(ForecastSettings()).retrain(elapsed_seconds=600.0) is Retraining.WAITING


def test_a_challenger_that_won_is_used_from_the_next_forecast_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Forecasting(ForecastSettings(statistical=False))
    tuner, network = stage._tuner, stage._network
    assert network is not None

    def swapped(*_: object, **__: object) -> Retraining:
        tuner.weights = tmp_path / "challenger.safetensors"
        return Retraining.SWAPPED

    monkeypatch.setattr(tuner, "advance", swapped)

    assert stage.retrain(elapsed_seconds=600.0) is Retraining.SWAPPED
    assert network.weights == tmp_path / "challenger.safetensors"
    stage.close()


def test_closed_windows_are_kept_for_fine_tuning() -> None:
    stage, _ = shown(walk(3, 300), every=15)

    kept = stage._reservoir.to_judge_by()

    assert kept is not None
    assert len(kept) == 3 * 6


def test_with_the_shipped_weights_the_network_takes_part() -> None:
    stage = Forecasting(ForecastSettings(statistical=False))

    told = stage.forecast(observation(("a", "b"), walk(2, 400), end=399))

    assert told.rung == "selected"
    assert set(told.models) == {"lstm"}
