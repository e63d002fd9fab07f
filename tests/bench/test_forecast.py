from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tuner.bench import forecast
from tuner.bench.recording import SERIES, RunSpec, record
from tuner.bench.worst_windows import draw, worst_of
from tuner.forecast.naive import LastValue
from tuner.forecast.scoring import windows_of
from tuner.forecast.traces import Trace
from tuner.reference.cluster import PRESETS


def test_any_data_is_scored_with_the_shipped_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    frames = [
        pd.DataFrame({"series": name, "timestamp": 60 * np.arange(900), "value": 20 + rng.normal(size=900)})
        for name in ("a", "b")
    ]
    pd.concat(frames).to_csv(tmp_path / "mine.csv", index=False)
    monkeypatch.setattr(forecast, "SPEED_GOALS", {10: 5.0})

    results = forecast.run(series=tmp_path / "mine.csv", quick=True)

    figures = results.figures
    assert figures["forecast_relmae_mine_last_value"] == pytest.approx(1.0)
    assert figures["forecast_relmae_mine_smoothing"] < 0.9
    assert figures["forecast_relmae_mine"] < 0.9
    assert 0.7 < figures["forecast_coverage_mine"] < 0.9
    assert {
        f"forecast_relql_mine_{name}" for name in ("lstm", "ets", "sarimax", "kalman_trend", "damped_trend")
    } <= set(figures)
    assert figures["forecast_seconds_10_series"] > 0


def test_a_recording_never_reaches_into_what_is_held_out() -> None:
    with pytest.raises(ValueError, match="held out"):
        RunSpec("cluster02", 25.0, 1.0, PRESETS["demo"])


def test_a_recording_holds_a_sample_a_minute_of_every_series(tmp_path: Path) -> None:
    spec = RunSpec("cluster02", 4.0, 0.5, PRESETS["demo"].sized(8))

    path = record(tmp_path / "runs.npz", runs=(spec,), hours=0.2)

    with np.load(path) as data:
        assert tuple(data["names"]) == SERIES
        assert data["values"].shape == (1, len(SERIES), 12)
        assert data["accelerators"][0] > 0


def test_the_worst_windows_are_drawn_each_of_another_series(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    series = tuple(rng.normal(size=900) for _ in range(4))
    trace = Trace("mine", ("a", "b", "c", "d"), series, (600,) * 4)
    windows = windows_of(trace)
    told = LastValue().forecast(windows.batch)
    told[[3, 4, windows.starts[2]]] += 50.0  # Two windows of the first series, and one of the third.

    worst = worst_of(trace, windows, told, count=2)
    draw(worst, tmp_path / "worst.png")

    assert {one.label.split(",")[0] for one in worst} == {"mine: a", "mine: c"}
    assert worst[0].harm > 10.0
    assert len(worst[0].history) == 90
    assert (tmp_path / "worst.png").read_bytes().startswith(b"\x89PNG")
