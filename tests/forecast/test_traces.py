from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tuner.errors import TraceError
from tuner.forecast.naive import LastValue
from tuner.forecast.scoring import Scores, by_class, roll, score, windows_of
from tuner.forecast.traces import FOLDER, TRACES, Trace, load, load_recording, read_series
from tuner.values.stages import FloatArray


@pytest.mark.parametrize("name", TRACES)
def test_every_shipped_trace_comes_with_its_split_and_its_licence(name: str) -> None:
    trace = load(name)

    assert all(steps == int(0.7 * len(one)) for steps, one in zip(trace.train_steps, trace.series, strict=True))
    assert all(np.isfinite(one).all() for one in trace.series)
    assert (FOLDER / f"LICENSE-{name.partition('_')[0]}.txt").stat().st_size > 500
    assert name in (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["crane", "surf"])
def test_last_value_scores_what_the_table_beside_the_series_says(name: str) -> None:
    table = pd.read_csv(FOLDER / f"{name}_last_value.csv")
    trace = load(name)
    windows = windows_of(trace)

    ours = score(LastValue().forecast(windows.batch), windows)

    np.testing.assert_array_equal(windows.counts, table["origins"])
    np.testing.assert_allclose(ours.mae, table["last_value_mae"], rtol=1e-4)
    # The table's quantiles were taken at other origins of the training part.
    assert trace.last_value is not None
    told = Scores(*trace.last_value)
    assert ours.relative_to(told) == pytest.approx((1.0, 1.0), abs=0.01)
    assert ours.coverage.mean() == pytest.approx(told.coverage.mean(), abs=0.01)


def test_a_trace_that_is_not_there_is_named_with_the_choices() -> None:
    with pytest.raises(TraceError, match="no forecast trace 'mars'; choose one of crane, surf"):
        load("mars")


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    table = pd.read_csv(FOLDER / "crane_last_value.csv")
    table["steps"] = table["steps"] + 1
    table.to_csv(tmp_path / "crane_last_value.csv")
    (tmp_path / "crane.parquet").write_bytes((FOLDER / "crane.parquet").read_bytes())

    with pytest.raises(TraceError, match="series lengths differ"):
        load("crane", folder=tmp_path)


def csv(path: Path, minutes: int, *, stamps: str = "seconds") -> Path:
    seconds = 1_700_000_000 + 30 * np.arange(2 * minutes)
    frame = pd.DataFrame({"series": "a", "timestamp": seconds, "value": np.arange(2.0 * minutes)})
    if stamps == "iso":
        frame["timestamp"] = pd.to_datetime(frame["timestamp"], unit="s", utc=True).map(pd.Timestamp.isoformat)
    frame.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("stamps", ["seconds", "iso"])
def test_any_data_is_read_at_one_minute(tmp_path: Path, stamps: str) -> None:
    trace = read_series(csv(tmp_path / "mine.csv", 300, stamps=stamps))

    assert trace.name == "mine"
    assert trace.names == ("a",)
    assert trace.train_steps[0] == int(0.7 * len(trace.series[0]))
    np.testing.assert_allclose(np.diff(trace.series[0])[1:-1], 2.0)


def test_minutes_without_a_sample_are_unknown(tmp_path: Path) -> None:
    frame = pd.read_csv(csv(tmp_path / "mine.csv", 300))
    frame.drop(index=range(100, 120)).to_parquet(tmp_path / "mine.parquet")

    trace = read_series(tmp_path / "mine.parquet")

    assert np.isnan(trace.series[0]).sum() in (9, 10)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("series,value\na,1\n", "column timestamp is missing"),
        ("series,timestamp,value\na,0,1\na,60,2\n", "no series spans 200 minutes"),
        ("", "cannot be read"),
    ],
)
def test_data_that_cannot_be_scored_is_refused_with_the_reason(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.csv").write_text(text, encoding="utf-8")

    with pytest.raises(TraceError, match=message):
        read_series(tmp_path / "bad.csv")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        read_series(tmp_path / "none.csv")


def test_a_recording_gives_each_series_its_run_s_covariates(tmp_path: Path) -> None:
    names = np.array(
        [
            "queue_length",
            "running_task_remaining_seconds",
            "node_temperature_celsius",
            "node_power_watts",
            *(f"waiting_tasks:{kind}" for kind in ("preprocessing", "training", "inference")),
        ]
    )
    values = np.random.default_rng(1).random((2, len(names), 100)).astype(np.float32)
    values[1, 0] = 3.0
    np.savez(tmp_path / "runs.npz", names=names, values=values, accelerators=np.array([8, 16]))

    trace = load_recording(tmp_path / "runs.npz")

    assert "run0/queue_length" in trace.names
    assert "run1/queue_length" not in trace.names
    assert trace.covariates[0].shape == (100, 12)
    np.testing.assert_allclose(trace.covariates[0][:, 2], values[0, 2] / 100, rtol=1e-6)
    assert len(trace.training_part().covariates[0]) == 70


def test_a_missing_recording_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"python -m tuner\.bench\.recording"):
        load_recording(tmp_path / "none.npz")


def noise(steps: int = 1200, *, spoiled_from: int | None = None) -> Trace:
    series = 20 + np.random.default_rng(1).normal(size=(3, steps))
    if spoiled_from is not None:
        series[:, spoiled_from:] += 1e3
    return Trace("noise", ("a/x", "b/x", "c/y"), tuple(series), (840,) * 3)


def rolled(trace: Trace) -> FloatArray:
    from tuner.forecast.naive import Smoothing
    from tuner.forecast.scoring import answers_of

    windows = windows_of(trace)
    members = (LastValue(), Smoothing())
    served, _ = roll(members, answers_of(members, windows), windows)
    return served.reshape(3, -1, 15, 3)


def test_a_forecast_knows_nothing_of_what_comes_after_it() -> None:
    clean, spoiled = rolled(noise()), rolled(noise(spoiled_from=1020))

    # The first forecast step of window 12 is 840 + 12 * 15 = 1020.
    np.testing.assert_array_equal(clean[:, :13], spoiled[:, :13])
    assert not np.allclose(clean[:, 13:], spoiled[:, 13:])


def test_rolling_over_noise_learns_to_smooth() -> None:
    windows = windows_of(noise(3000))
    base = score(LastValue().forecast(windows.batch), windows)

    served = rolled(noise(3000)).reshape(-1, 15, 3)

    assert score(served, windows).relative_to(base)[0] < 0.9


def test_ratios_are_geometric_means_over_series() -> None:
    base = Scores(mae=np.array([1.0, 1.0]), ql=np.array([1.0, 4.0]), coverage=np.zeros(2))
    ours = Scores(mae=np.array([0.5, 2.0]), ql=np.array([0.5, 2.0]), coverage=np.zeros(2))

    assert ours.relative_to(base) == pytest.approx((1.0, 0.5))


def test_classes_are_what_follows_the_last_slash() -> None:
    assert by_class(("a/run", "b/run", "a/queue"), np.array([1.0, 4.0, 3.0])) == pytest.approx({"run": 2, "queue": 3})
    assert by_class(("s00", "s01"), np.array([1.0, 4.0])) == pytest.approx({"": 2})
