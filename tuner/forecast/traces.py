"""The series that ship with the product: real load of real clusters, at one-minute steps.

The first 70 % of each series are for training, the rest for scoring; the split is part of the data
(`train_steps`). `TrainingPart` holds the first alone: whatever trains takes that type, and so cannot see the rest.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tuner.errors import TraceError
from tuner.forecast.batch import WINDOW_STEPS
from tuner.forecast.covariates import SOURCES, normalised
from tuner.values.stages import FloatArray

TRACES: Final = ("crane", "surf", "itp_arr", "itp_queue", "helios")
"""Names of the shipped traces; `series/README.md` tells what they are."""

FOLDER: Final = Path(__file__).parent / "series"

RECORDING: Final = FOLDER / "reference.npz"
"""Recorded runs of the simulated reference scheduler, which also tell the covariates."""

_CEILINGS: Final = {"surf": 100.0}
"""Largest possible value, where there is one: SURF's series are percent."""


@dataclass(frozen=True, slots=True)
class TrainingPart:
    """The part of a trace that may be trained on.

    Attributes:
        name: Name of the trace.
        series: Each series' first 70 %, shape (train_steps,).
        ceiling: Largest possible value; infinity where there is none.
        covariates: Of each series, shape (train_steps, COVARIATE_FEATURES); empty where there are none.
    """

    name: str
    series: tuple[FloatArray, ...]
    ceiling: float = float("inf")
    covariates: tuple[FloatArray, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """Series of one origin, whole.

    Attributes:
        name: Name of the trace.
        names: One a series.
        series: Each series, shape (steps,), one minute apart; NaN where there is no sample.
        train_steps: Steps that training may see, one a series.
        ceiling: Largest possible value; infinity where there is none.
        covariates: Of each series, shape (steps, COVARIATE_FEATURES); empty where there are none.
        last_value: MAE, quantile loss and coverage of last value at the fixed origins, by series, as the table beside
            the shipped series has them; None where there is no such table.
    """

    name: str
    names: tuple[str, ...]
    series: tuple[FloatArray, ...]
    train_steps: tuple[int, ...]
    ceiling: float = float("inf")
    covariates: tuple[FloatArray, ...] = ()
    last_value: tuple[FloatArray, FloatArray, FloatArray] | None = None

    def training_part(self) -> TrainingPart:
        """Return copies of the first 70 % of each series, and nothing else."""
        parts = tuple(one[:steps].copy() for one, steps in zip(self.series, self.train_steps, strict=True))
        beside = tuple(one[:steps].copy() for one, steps in zip(self.covariates, self.train_steps, strict=False))
        return TrainingPart(self.name, parts, self.ceiling, beside)


def load(name: str, *, folder: Path = FOLDER) -> Trace:
    """Return a shipped trace.

    Raises:
        TraceError: There is no trace of that name, or its files disagree.
    """
    import pandas as pd

    if name not in TRACES:
        raise TraceError(f"there is no forecast trace {name!r}; choose one of {', '.join(TRACES)}")
    samples = pd.read_parquet(folder / f"{name}.parquet")
    table = pd.read_csv(folder / f"{name}_last_value.csv")
    parts = {key: part.to_numpy(np.float64) for key, part in samples.groupby("series", observed=True)["value"]}
    names = tuple(str(one) for one in table["series"])
    lengths = [len(parts.get(one, ())) for one in names]
    if lengths != list(table["steps"]):
        raise TraceError(f"{folder / name}.parquet: series lengths differ from the table beside it; reinstall")
    return Trace(
        name,
        names,
        tuple(parts[one] for one in names),
        tuple(int(one) for one in table["train_steps"]),
        _CEILINGS.get(name, float("inf")),
        last_value=(
            table["last_value_mae"].to_numpy(np.float64),
            table["last_value_ql"].to_numpy(np.float64),
            table["last_value_coverage"].to_numpy(np.float64),
        ),
    )


def load_recording(path: Path = RECORDING) -> Trace:
    """Return recorded runs as a trace, one series a run and metric; of series that never move nothing is kept.

    Raises:
        TraceError: The file is missing or of another form.
    """
    try:
        with np.load(path, allow_pickle=False) as data:
            names, values, accelerators = data["names"], data["values"].astype(np.float64), data["accelerators"]
    except (OSError, KeyError, ValueError) as error:
        raise TraceError(f"{path}: no usable recording: {error}; run `python -m tuner.bench.recording`") from error
    listed = [str(name) for name in names]
    rows = [
        (f"run{run}/{name}", values[run, row], _covariates(listed, values[run], float(accelerators[run])))
        for run in range(len(values))
        for row, name in enumerate(listed)
        if np.isfinite(values[run, row]).mean() > 0.9 and np.ptp(values[run, row][np.isfinite(values[run, row])]) > 0
    ]
    steps = values.shape[2]
    return Trace(
        "reference",
        tuple(name for name, _, _ in rows),
        tuple(one for _, one, _ in rows),
        (int(0.7 * steps),) * len(rows),
        covariates=tuple(beside for _, _, beside in rows),
    )


def _covariates(names: list[str], values: FloatArray, accelerators: float) -> FloatArray:
    """Return the covariates at every step of a run, shape (steps, COVARIATE_FEATURES)."""
    features = np.full((values.shape[1], 2 * len(SOURCES)), np.nan)
    for index, source in enumerate(SOURCES):
        level = normalised(source, values[names.index(source)], accelerators)
        features[:, 2 * index] = level
        features[WINDOW_STEPS - 1 :, 2 * index + 1] = level[WINDOW_STEPS - 1 :] - level[: 1 - WINDOW_STEPS]
    return np.where(np.isfinite(features), features, np.nan)


def read_series(path: Path) -> Trace:
    """Return any data as a trace: a CSV or parquet file with columns `series`, `timestamp`, `value`.

    Samples are averaged to one minute; minutes without one are NaN. The first 70 % of each series count as its past.

    Args:
        path: File; timestamps are Unix seconds or ISO 8601.

    Raises:
        TraceError: The file cannot be read, lacks a column, or holds no series of at least 200 minutes.
    """
    import pandas as pd

    try:
        table = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise TraceError(f"{path}: cannot be read as parquet or CSV: {error}") from error
    missing = {"series", "timestamp", "value"} - set(table.columns)
    if missing:
        raise TraceError(f"{path}: column {', '.join(sorted(missing))} is missing; needed: series, timestamp, value")
    stamps = table["timestamp"]
    numeric = pd.api.types.is_numeric_dtype(stamps)
    table["minute"] = (stamps if numeric else pd.to_datetime(stamps, utc=True).map(pd.Timestamp.timestamp)) // 60
    names, series = [], []
    for name, part in table.groupby("series", observed=True):
        means = part.groupby("minute")["value"].mean()
        whole = means.reindex(np.arange(means.index.min(), means.index.max() + 1)).to_numpy(np.float64)
        if len(whole) >= 200:
            names.append(str(name))
            series.append(whole)
    if not names:
        raise TraceError(f"{path}: no series spans 200 minutes, which is the least that can be split and scored")
    return Trace(path.stem, tuple(names), tuple(series), tuple(int(0.7 * len(one)) for one in series))
