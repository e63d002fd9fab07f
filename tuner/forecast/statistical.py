"""Statistical members for the few series that drive decisions: damped exponential smoothing and ARIMA(1,1,1).

Fitting with statsmodels costs tens of milliseconds a series, so it happens outside the cycle and for few series; in
between, the fitted parameters are run over each new window, which costs microseconds. Inputs are cleaned before and
results checked after, because one NaN makes statsmodels answer NaN with only a warning; and spreads are the model's own
residual quantiles, because those that libraries derive from assumptions were measured to be off by factors.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from tuner.forecast.batch import Batch, fill_gaps
from tuner.values.stages import FloatArray

FIT_STEPS: Final = 120
"""Newest points that a fit sees: two hours."""

RESIDUAL_STEPS: Final = 480
"""Newest points whose errors make the spread: eight hours."""

FIT_SERIES: Final = 50
"""Series fitted at most at once: about two seconds on one core."""

LEAST_STEPS: Final = 40
"""Known points below which nothing is fitted."""

ITERATIONS: Final = 50
"""Steps of the optimiser at most: it is started from the last fit, and rarely needs more."""

DECIMALS: Final = 3
"""Decimals that fitted parameters keep, so that optimisers on unlike machines arrive at equal forecasts."""

SETTLE_STEPS: Final = 10
"""Points whose mean starts a level: with small weights, a single one would still show at the end of a window."""

WARM_UP: Final = 20
"""Origins at the start of the history that do not count as residuals: the recursion has not settled."""

DECISIVE: Final = (
    "queue_length",
    "pending_demand_ratio",
    "resource_idle_ratio",
    "accelerator_utilization_ratio",
    "node_power_watts",
    "arrivals_per_second:preprocessing",
    "arrivals_per_second:training",
    "arrivals_per_second:inference",
)
"""Cluster-level series that the search and the best window hang on."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """What one fit found.

    Attributes:
        parameters: Those of the model, rounded.
        low: Quantile 0.1 of its errors by step ahead, shape (horizon,), <= 0.
        high: Quantile 0.9 of the same, >= 0.
    """

    parameters: FloatArray
    low: FloatArray
    high: FloatArray


MIN_RESIDUALS: Final = 20
"""Fewest errors at the longest lead from which the tenths of a spread can be read."""


class _Statistical(ABC):
    """What both members share: when to fit, and how residuals become a spread.

    Fitting may run in another thread than forecasting: results become visible all at once.
    """

    name: ClassVar[str]

    def __init__(self, *, horizon: int) -> None:
        self._horizon = horizon
        self._fitted: Mapping[str, Fitted] = {}
        self._names: tuple[str, ...] = ()

    def fit(self, names: Sequence[str], values: FloatArray, *, expired: Callable[[], bool] = lambda: False) -> None:
        """Fit series anew; one that cannot be fitted has no answer until the next fit.

        Args:
            names: Series, most important first; the first `FIT_SERIES` count.
            values: Shape (series, steps), up to a day, NaN where no sample was had.
            expired: Whether the time for fitting is over; the remaining series keep their old fit.
        """
        fitted = dict(self._fitted)
        for name, row in zip(names[:FIT_SERIES], values, strict=False):
            if expired():
                break
            found = self._fit_safely(row, fitted.pop(name, None))
            if found is not None:
                fitted[name] = found
        self._fitted = fitted

    def follow(self, names: tuple[str, ...]) -> None:
        """Say which series the rows of the next batches are."""
        self._names = names

    def forecast(self, batch: Batch) -> FloatArray:
        """Return quantiles, shape (series, horizon, 3); NaN rows where nothing is fitted."""
        answer = np.full((len(batch), batch.horizon, 3), np.nan)
        fitted = self._fitted
        rows = [row for row, name in enumerate(self._names[: len(batch)]) if name in fitted]
        if rows:
            known = [fitted[self._names[row]] for row in rows]
            median = self._medians(batch.window[rows], np.stack([one.parameters for one in known]))[:, -1]
            low, high = np.stack([one.low for one in known]), np.stack([one.high for one in known])
            answer[rows] = np.stack([median + low, median, median + high], axis=2)[:, : batch.horizon]
        return answer

    def _fit_safely(self, values: FloatArray, before: Fitted | None) -> Fitted | None:
        history = _usable_history(values)
        if history is None or len(history) < WARM_UP + self._horizon + MIN_RESIDUALS:
            return None
        newest = history[-FIT_STEPS:]
        with warnings.catch_warnings():
            # Convergence is judged by what comes out; the texts would only fill the log.
            warnings.simplefilter("ignore")
            try:
                parameters = self._fit_one((newest - newest.mean()) / np.std(newest), before)
            except (ValueError, IndexError, np.linalg.LinAlgError):
                return None
        if not np.isfinite(parameters).all():
            return None
        parameters = np.round(parameters, DECIMALS)
        return Fitted(parameters, *self._residuals(history, parameters))

    def _residuals(self, history: FloatArray, parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return quantiles 0.1 and 0.9 of the errors that these parameters would have made, by step ahead."""
        history = history[-RESIDUAL_STEPS:]
        medians = self._medians(history[None], parameters[None])[0]
        low, high = np.zeros(self._horizon), np.zeros(self._horizon)
        for ahead in range(1, self._horizon + 1):
            errors = history[WARM_UP + ahead :] - medians[WARM_UP:-ahead, ahead - 1]
            low[ahead - 1], high[ahead - 1] = np.quantile(errors, (0.1, 0.9))
        return np.minimum(low, 0.0), np.maximum(high, 0.0)

    @abstractmethod
    def _fit_one(self, values: FloatArray, before: Fitted | None) -> FloatArray:
        """Return the parameters of one series, from those before where there are any."""

    @abstractmethod
    def _medians(self, values: FloatArray, parameters: FloatArray) -> FloatArray:
        """Return the forecasts from every origin, shape (series, steps, horizon)."""


class DampedEts(_Statistical):
    """Exponential smoothing with additive damped trend; parameters: level, trend, damping."""

    name: ClassVar[str] = "ets"

    def _fit_one(self, values: FloatArray, before: Fitted | None) -> FloatArray:
        import pandas as pd
        from statsmodels.tsa.exponential_smoothing.ets import ETSModel

        # A pandas Series, because the model's methods need an index.
        model = ETSModel(pd.Series(values), error="add", trend="add", damped_trend=True)
        result = model.fit(disp=False, maxiter=ITERATIONS)
        names = list(model.param_names)
        wanted = ("smoothing_level", "smoothing_trend", "damping_trend")
        return np.asarray([result.params[names.index(name)] for name in wanted], dtype=np.float64)

    def _medians(self, values: FloatArray, parameters: FloatArray) -> FloatArray:
        level_weight, trend_weight, damping = parameters.T
        level, trend = values[:, :SETTLE_STEPS].mean(axis=1), np.zeros(len(values))
        reach = np.cumsum(damping[:, None] ** np.arange(1, self._horizon + 1), axis=1)
        medians = np.empty((*values.shape, self._horizon))
        for step in range(values.shape[1]):
            error = values[:, step] - level - damping * trend
            level = level + damping * trend + level_weight * error
            trend = damping * trend + trend_weight * error
            medians[:, step] = level[:, None] + reach * trend[:, None]
        return medians


class Arima(_Statistical):
    """SARIMAX of order (1,1,1) without season; parameters: autoregression, moving average of the changes."""

    name: ClassVar[str] = "sarimax"

    def _fit_one(self, values: FloatArray, before: Fitted | None) -> FloatArray:
        from statsmodels.tsa.statespace.sarimax import SARIMAX

        # The variance is not needed, and leaving out what is not needed halves the time.
        model = SARIMAX(values, order=(1, 1, 1), concentrate_scale=True)
        # Inside the open unit square, where the model's transformations are defined.
        start = None if before is None else np.clip(before.parameters, -0.95, 0.95)
        result = model.fit(start_params=start, disp=False, maxiter=ITERATIONS, cov_type="none")
        return np.asarray(result.params, dtype=np.float64)

    def _medians(self, values: FloatArray, parameters: FloatArray) -> FloatArray:
        auto, average = parameters.T
        change, error = np.zeros(len(values)), np.zeros(len(values))
        powers = auto[:, None] ** np.arange(self._horizon)
        reach = np.cumsum(powers, axis=1)
        medians = np.empty((*values.shape, self._horizon))
        medians[:, 0] = values[:, :1]
        for step in range(1, values.shape[1]):
            newest = values[:, step] - values[:, step - 1]
            error = newest - auto * change - average * error
            change = newest
            medians[:, step] = values[:, step, None] + reach * (auto * change + average * error)[:, None]
        return medians


def _usable_history(values: FloatArray) -> FloatArray | None:
    """Return a series from its first sample on, gaps filled; None where it is short, mostly missing or flat."""
    known = np.isfinite(values)
    if known.sum() < LEAST_STEPS:
        return None
    history = values[int(known.argmax()) :]
    newest = np.isfinite(history[-FIT_STEPS:])
    if newest.mean() < 0.8 or np.ptp(history[-FIT_STEPS:][newest]) == 0:
        return None
    filled: FloatArray = fill_gaps(history[None])[0]
    return filled
