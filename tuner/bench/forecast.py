"""Forecast errors on fixed origins of real series, against simple models, and the time that a forecast takes.

relMAE and relQL are geometric means over series of the ratio to last value with the empirical quantiles of its own
training changes; under 1 is better. Each trace is rolled over as in life: forecast, wait until the window has closed,
learn from it, forecast again. The last 30 % of each series are scored; the network has seen only the first 70 %.
Scoring assumes a tuner that has run for a week, so that it knows yesterday and a typical day.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from tuner.bench.results import Results
from tuner.bench.worst_windows import Worst, draw, worst_of
from tuner.forecast.batch import Batch, IntArray
from tuner.forecast.examples import NODE_TRACES
from tuner.forecast.fleet import bound, finish
from tuner.forecast.lstm import SHIPPED, Lstm
from tuner.forecast.naive import DampedTrend, LastValue, LocalTrend, Smoothing
from tuner.forecast.scoring import Scores, Windows, answers_of, by_class, roll, score, windows_of
from tuner.forecast.stage import Forecasting
from tuner.forecast.statistical import FIT_SERIES, FIT_STEPS, Arima, DampedEts
from tuner.forecast.traces import TRACES, Trace, load, load_recording, read_series
from tuner.settings.model import ForecastSettings
from tuner.values.metrics import METRIC_COUNT
from tuner.values.stages import STEP_SECONDS, FloatArray, Observation, SeriesFrame

SEED_WEIGHTS: Final = (
    SHIPPED,
    SHIPPED.with_name("lstm-seed2.safetensors"),
    SHIPPED.with_name("lstm-seed3.safetensors"),
)
"""Weights of three trainings that differ only in their seed; the first are those in use."""

GOALS: Final[Mapping[str, tuple[float, float]]] = {
    "crane": (0.70, 0.62),
    "surf": (0.76, 0.74),
    "itp_arr": (0.75, 0.58),
    "itp_queue": (0.99, 0.82),
    "helios": (1.00, 0.90),
}
"""relMAE and relQL that each trace should reach."""

BANDS: Final[Mapping[str, tuple[float, float]]] = {
    name: (0.75, 0.85) if name in ("crane", "surf") else (0.80, 0.95) for name in TRACES
}
"""Coverage of the 0.1-0.9 band; counts have atoms, so that 0.9 is normal there."""

WORST_CLASS: Final = 1.02
"""No class of series may fare worse against last value than this."""

SPEED_GOALS: Final = {100: 0.010, 1_000: 0.050, 10_000: 0.5}
"""Seconds that a forecast of so many series may take, end to end, on two cores."""

FITTED_WINDOWS: Final = 150
"""Windows on which statsmodels is scored: it is fitted anew in each."""


def run(*, series: Path | None = None, plot: Path | None = None, quick: bool = False) -> Results:
    """Score the forecasters and time them.

    Args:
        series: Any data as CSV or parquet with columns `series`, `timestamp`, `value`, scored with the shipped weights
            instead of the shipped traces.
        plot: PNG file to draw the windows to in which the published forecast lost most to last value.
        quick: Score the shipped weights only, and statsmodels on few windows.

    Raises:
        TraceError: The series cannot be read.
    """
    weights = SEED_WEIGHTS[:1] if quick or series else SEED_WEIGHTS
    fitted_windows = 20 if quick else FITTED_WINDOWS
    results = Results(
        "forecast",
        setting={
            "origins": "every 15th minute of the last 30 %",
            "horizon_steps": 15,
            "training_seeds": len(weights),
            "statsmodels_windows_per_trace": fitted_windows,
        },
    )
    worst = []
    for trace in [read_series(series)] if series else map(load, TRACES):
        worst += _score_trace(results, trace, weights, fitted_windows=fitted_windows)
    if plot is not None:
        draw(worst, plot)
    if not series:
        _ablate_covariates(results, weights)
    for count, goal in SPEED_GOALS.items():
        results.add(f"forecast_seconds_{count}_series", _seconds(count), at_most=goal)
    return results


def _score_trace(results: Results, trace: Trace, weights: Sequence[Path], *, fitted_windows: int) -> list[Worst]:
    """Add all figures of a trace; return the worst windows of the weights in use."""
    # Series that are nodes are described as nodes' memories allow: an hour at one minute, a day at five.
    windows = windows_of(trace, as_node=trace.name in NODE_TRACES)
    own = score(LastValue().forecast(windows.batch), windows)
    base = own if trace.last_value is None else Scores(*trace.last_value)
    simple = (LastValue(), Smoothing(), DampedTrend())
    answers = answers_of((*simple, LocalTrend()), windows)
    runs, alone = [], []
    worst: list[Worst] = []
    for path in weights:
        members = (*simple, Lstm(path))
        said = {**answers, **answers_of(members[-1:], windows)}
        served, _ = roll(members, said, windows)
        runs.append(score(served, windows))
        worst = worst or worst_of(trace, windows, served)
        alone.append(score(finish(bound(said[Lstm.name], windows.batch), windows.batch), windows))
    _add_ensemble(results, trace, runs, base)
    for name in answers:
        _add_row(results, trace.name, name, score(answers[name], windows).relative_to(base))
    _add_row(results, trace.name, Lstm.name, _mean([one.relative_to(base) for one in alone]))
    for model in (DampedEts, Arima):
        _add_row(results, trace.name, model.name, _fitted_ratio(model, trace, windows, count=fitted_windows))
    return worst


def _add_ensemble(results: Results, trace: Trace, runs: Sequence[Scores], base: Scores) -> None:
    """Add what the whole ensemble reaches: the mean over training seeds, and their spread where there are several."""
    ratios = np.array([one.relative_to(base) for one in runs])
    mae_goal, ql_goal = GOALS.get(trace.name, (None, None))
    results.add(f"forecast_relmae_{trace.name}", float(ratios[:, 0].mean()), at_most=mae_goal)
    results.add(f"forecast_relql_{trace.name}", float(ratios[:, 1].mean()), at_most=ql_goal)
    if len(runs) > 1:
        results.add(f"forecast_relmae_{trace.name}_spread", float(ratios[:, 0].std(ddof=1)))
        results.add(f"forecast_relql_{trace.name}_spread", float(ratios[:, 1].std(ddof=1)))
    coverage = float(np.mean([one.coverage.mean() for one in runs]))
    results.add(f"forecast_coverage_{trace.name}", coverage)
    if trace.name in BANDS:
        low, high = BANDS[trace.name]
        results.add(f"forecast_coverage_miss_{trace.name}", max(low - coverage, coverage - high, 0.0), at_most=0.0)
    worst = max(max(by_class(trace.names, one.mae / base.mae).values()) for one in runs)
    results.add(f"forecast_worst_class_relmae_{trace.name}", worst, at_most=WORST_CLASS)


def _add_row(results: Results, trace: str, model: str, ratios: tuple[float, float]) -> None:
    results.add(f"forecast_relmae_{trace}_{model}", ratios[0])
    results.add(f"forecast_relql_{trace}_{model}", ratios[1])


def _mean(ratios: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return float(np.mean([one[0] for one in ratios])), float(np.mean([one[1] for one in ratios]))


def _ablate_covariates(results: Results, weights: Sequence[Path]) -> None:
    """Add what the network scores on recorded runs of the simulated scheduler, with and without the covariates."""
    trace = load_recording()
    windows = windows_of(trace)
    base = score(LastValue().forecast(windows.batch), windows)
    hidden = replace(windows.batch, covariates=np.full_like(windows.batch.covariates, np.nan))
    for label, batch in (("lstm", windows.batch), ("lstm_without_covariates", hidden)):
        told = [finish(bound(Lstm(path).forecast(batch), batch), batch) for path in weights]
        _add_row(results, trace.name, label, _mean([score(one, windows).relative_to(base) for one in told]))


def _fitted_ratio(
    model: Callable[..., DampedEts | Arima], trace: Trace, windows: Windows, *, count: int
) -> tuple[float, float]:
    """Return relMAE and relQL of a model that is fitted anew in each of some windows in which something moved.

    With so few windows a series, scaled errors are added up over all of them before the ratio is taken.
    """
    rows, histories = _moving(trace, windows, count=count)
    batch = windows.batch.take(rows)
    answers = []
    for start in range(0, len(rows), FIT_SERIES):
        part = slice(start, start + FIT_SERIES)
        names = tuple(str(row) for row in rows[part])
        member = model(horizon=batch.horizon)
        member.fit(names, histories[part])
        member.follow(names)
        answers.append(member.forecast(batch.take(part)))
    return _pooled_ratio(np.concatenate(answers), LastValue().forecast(batch), windows.actual[rows], batch)


def _moving(trace: Trace, windows: Windows, *, count: int) -> tuple[IntArray, FloatArray]:
    """Return windows, evenly spread over all in which the history moved, with the eight hours before each."""
    moving = np.flatnonzero((np.ptp(windows.batch.window, axis=1) > 0) & (windows.batch.scale > 0))
    rows = moving[np.unique(np.linspace(0, len(moving) - 1, count).astype(np.int64))]
    histories = np.full((len(rows), 4 * FIT_STEPS), np.nan)
    for place, row in enumerate(rows):
        which = int(np.searchsorted(windows.starts, row, side="right")) - 1
        end = trace.train_steps[which] + 15 * int(row - windows.starts[which])
        history = trace.series[which][max(end - histories.shape[1], 0) : end]
        histories[place, -len(history) :] = history
    return rows, histories


def _pooled_ratio(answers: FloatArray, base: FloatArray, actual: FloatArray, batch: Batch) -> tuple[float, float]:
    from tuner.forecast.selection import pinball

    # A window that cannot be fitted is forecast by last value, as in life.
    answers = np.where(np.isfinite(answers), answers, base)
    scale = batch.scale[:, None]
    loss, reference = pinball(answers, actual) / scale, pinball(base, actual) / scale
    return float(loss[:, 1].sum() / reference[:, 1].sum()), float(loss.sum() / reference.sum())


def _seconds(count: int, *, repeats: int = 9) -> float:
    """Return the median time of a forecast of a fleet of nodes: scale, LSTM, smoothing, choice, rounding."""
    rng = np.random.default_rng(count)
    steps = 120
    values = np.clip(0.5 + np.cumsum(rng.normal(0, 0.01, (count, steps)), axis=1), 0, 1)
    names = tuple(f"node-{index:05d}" for index in range(count))
    stage = Forecasting(ForecastSettings(statistical=False))
    empty = np.full(METRIC_COUNT, np.nan)
    times = []
    for end in range(steps - repeats - 3, steps):
        at_seconds = end * STEP_SECONDS
        frame = SeriesFrame(names, at_seconds, values[:, max(end - 60, 0) : end])
        observation = Observation(
            cycle_id=end,
            at_seconds=at_seconds,
            metrics=empty,
            ages_seconds=empty,
            coverage_ratio=empty,
            context={},
            history=SeriesFrame((), at_seconds, np.empty((0, 1))),
            nodes={"accelerator_utilization_ratio": frame},
        )
        began = time.perf_counter()
        stage.forecast(observation)
        times.append(time.perf_counter() - began)
    return float(np.median(times[-repeats:]))
