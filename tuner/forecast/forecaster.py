"""The port of all models: one method over a batch of series."""

from typing import ClassVar, Protocol

from tuner.forecast.batch import Batch
from tuner.values.stages import FloatArray


class Forecaster(Protocol):
    """A member of the ensemble.

    A forecaster answers for every row on its own, so that the order and the number of the series never matter. A row
    for which it has no answer is NaN throughout: whoever asks puts a lower rung there. It keeps no reference to
    the batch.
    """

    name: ClassVar[str]
    """Label of the member in choices, tables and metrics."""

    def forecast(self, batch: Batch) -> FloatArray:
        """Return quantiles 0.1, 0.5 and 0.9, shape (series, horizon, 3).

        Raises:
            ForecastFailed: The model cannot answer at all.
        """
        ...
