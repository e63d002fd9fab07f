"""The floor that every other model stands on: last value, and exponential smoothing of a whole batch at once.

Both take their spread from the changes that the series itself made in the last day, step by step ahead: intervals
that libraries compute from model assumptions were measured to be off by factors.
"""

from typing import ClassVar, Final

import numpy as np

from tuner.forecast.batch import Batch
from tuner.values.stages import FloatArray

LEVEL_WEIGHTS: Final = (0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0)
"""Weights of the newest sample that are tried; 1 is the last value itself."""

TREND_WEIGHTS: Final = (0.05, 0.2)
"""Weights of the newest slope that are tried, relative to that of the level."""

DAMPING: Final = 0.9
"""Share of the slope that is left a step later: at 15 steps ahead four fifths of a trend's reach are spent."""


class LastValue:
    """The newest sample, with the empirical quantiles of the series' own changes."""

    name: ClassVar[str] = "last_value"

    def forecast(self, batch: Batch) -> FloatArray:
        """Return quantiles, shape (series, horizon, 3); never NaN."""
        return around(np.repeat(batch.last[:, None], batch.horizon, axis=1), batch)


class Smoothing:
    """Simple exponential smoothing; each series takes the weight that would have served it best in its window."""

    name: ClassVar[str] = "smoothing"

    def forecast(self, batch: Batch) -> FloatArray:
        """Return quantiles, shape (series, horizon, 3); never NaN."""
        weights = np.asarray(LEVEL_WEIGHTS)[:, None]
        level = np.repeat(batch.window[None, :, 0], len(LEVEL_WEIGHTS), axis=0)
        loss = np.zeros_like(level)
        for step in range(1, batch.window.shape[1]):
            error = batch.window[:, step] - level
            loss += np.abs(error)
            level += weights * error
        best = _least(loss)
        chosen = np.take_along_axis(level, best[None], axis=0)[0]
        return around(np.repeat(chosen[:, None], batch.horizon, axis=1), batch)


class DampedTrend:
    """Holt's linear trend with damping (Gardner and McKenzie 1985), chosen like `Smoothing`."""

    name: ClassVar[str] = "damped_trend"

    def forecast(self, batch: Batch) -> FloatArray:
        """Return quantiles, shape (series, horizon, 3); never NaN."""
        grid = np.array([(level, level * trend) for level in LEVEL_WEIGHTS[1::2] for trend in TREND_WEIGHTS])
        level_weight, trend_weight = grid[:, :1], grid[:, 1:]
        level = np.repeat(batch.window[None, :, 0], len(grid), axis=0)
        trend = np.zeros_like(level)
        loss = np.zeros_like(level)
        for step in range(1, batch.window.shape[1]):
            error = batch.window[:, step] - level - DAMPING * trend
            loss += np.abs(error)
            level += DAMPING * trend + level_weight * error
            trend = DAMPING * trend + trend_weight * error
        best = _least(loss)[None]
        reach = np.cumsum(DAMPING ** np.arange(1, batch.horizon + 1))
        slope = np.take_along_axis(trend, best, axis=0)[0]
        return around(np.take_along_axis(level, best, axis=0)[0][:, None] + slope[:, None] * reach, batch)


class LocalTrend:
    """Kalman filter on a local linear trend, as planners of inference servers run it; kept for comparison.

    Noise is that of NVIDIA Dynamo's planner defaults (level 1.0, slope 0.1, measurement 10), so that its gain
    does not depend on the series.
    """

    name: ClassVar[str] = "kalman_trend"

    def forecast(self, batch: Batch) -> FloatArray:
        """Return quantiles, shape (series, horizon, 3); never NaN."""
        state = np.stack([batch.window[:, 0], np.zeros(len(batch))])
        covariance = np.eye(2) * 10.0
        move, noise = np.array([[1.0, 1.0], [0.0, 1.0]]), np.diag([1.0, 0.1])
        for step in range(1, batch.window.shape[1]):
            state = move @ state
            covariance = move @ covariance @ move.T + noise
            gain = covariance[:, 0] / (covariance[0, 0] + 10.0)
            state = state + gain[:, None] * (batch.window[:, step] - state[0])
            covariance = covariance - np.outer(gain, covariance[0])
        ahead = np.arange(1, batch.horizon + 1)
        return around(state[0][:, None] + state[1][:, None] * ahead, batch)


def around(median: FloatArray, batch: Batch) -> FloatArray:
    """Return quantiles that lie about a median as the series' own changes did.

    Args:
        median: Shape (series, horizon).
        batch: The series.
    """
    return np.stack([median + batch.low, median, median + batch.high], axis=2)


def _least(loss: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the last of the best rows: among equals the greatest weight wins, which is nearest to last value."""
    return np.asarray(len(loss) - 1 - np.argmin(loss[::-1], axis=0), dtype=np.int64)
