"""Small batches, observations and series for the tests of this package."""

from collections.abc import Mapping

import numpy as np

from tuner.forecast.batch import COVARIATE_FEATURES, LEVELS, MOVEMENTS, WINDOW_STEPS, Batch
from tuner.values.metrics import METRIC_COUNT
from tuner.values.stages import STEP_SECONDS, FloatArray, Observation, SeriesFrame


def batch_of(window: FloatArray, *, horizon: int = 15, spread: float = 1.0) -> Batch:
    """Return a batch of windows, shape (series, WINDOW_STEPS), with plain descriptions."""
    count = len(window)
    ones = np.ones(count)
    return Batch(
        window=window,
        known=ones.copy(),
        scale=ones * spread,
        reach=ones * 1e6,
        movements=np.full((count, MOVEMENTS), spread),
        levels=np.repeat(window.mean(axis=1)[:, None], LEVELS, axis=1),
        held=np.zeros(count),
        still=np.zeros(count),
        yesterday=np.full((count, WINDOW_STEPS + horizon), np.nan),
        typical=np.full((count, WINDOW_STEPS + horizon), np.nan),
        low=np.full((count, horizon), -spread),
        high=np.full((count, horizon), spread),
        floor=ones * -np.inf,
        ceiling=ones * np.inf,
        whole=np.zeros(count, dtype=np.bool_),
        covariates=np.full((count, COVARIATE_FEATURES), np.nan),
    )


def observation(
    names: tuple[str, ...], values: FloatArray, *, end: int, nodes: Mapping[str, SeriesFrame] | None = None
) -> Observation:
    """Return an observation whose history ends at a step."""
    nothing = np.full(METRIC_COUNT, np.nan)
    return Observation(
        cycle_id=end,
        at_seconds=end * STEP_SECONDS,
        metrics=nothing,
        ages_seconds=nothing,
        coverage_ratio=nothing,
        context={},
        history=SeriesFrame(names, end * STEP_SECONDS, values),
        nodes=nodes or {},
    )
