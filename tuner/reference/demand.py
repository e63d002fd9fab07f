"""A forecast that somebody hands to the scheduler: what it plans warm models and deferrable work with."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tuner.errors import ChangeRejected


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandForecast:
    """Expected inference demand, and the best time for work that can wait.

    Attributes:
        at_seconds: When it was made, seconds since the start of the replay.
        step_seconds: Distance of its steps; > 0.
        inference_arrivals_per_second: Expected rate in each step after `at_seconds`, shape (steps,), finite, >= 0;
            empty for "no opinion". Beyond its end the scheduler falls back on its own running mean.
        window_start_seconds: Start of the interval with most headroom; NaN for none.
        window_end_seconds: Its end, not before its start; NaN for none.
    """

    at_seconds: float
    step_seconds: float = 60.0
    inference_arrivals_per_second: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    window_start_seconds: float = float("nan")
    window_end_seconds: float = float("nan")

    def __post_init__(self) -> None:
        """Take a read-only copy and refuse what cannot be planned with.

        Raises:
            ChangeRejected: A value is out of its range.
        """
        rates = np.array(self.inference_arrivals_per_second, dtype=np.float64)
        rates.setflags(write=False)
        object.__setattr__(self, "inference_arrivals_per_second", rates)
        if not (np.isfinite(self.at_seconds) and np.isfinite(self.step_seconds) and self.step_seconds > 0):
            raise ChangeRejected(
                f"at_seconds {self.at_seconds} and step_seconds {self.step_seconds} must be finite, the step over 0"
            )
        if rates.ndim != 1 or not (np.isfinite(rates) & (rates >= 0)).all():
            raise ChangeRejected("inference_arrivals_per_second must be one list of finite numbers, 0 or more")
        if np.isnan(self.window_start_seconds) != np.isnan(self.window_end_seconds):
            raise ChangeRejected("the best window needs both a start and an end, or neither")
        if self.window_end_seconds < self.window_start_seconds:
            raise ChangeRejected(
                f"the best window ends at {self.window_end_seconds}, before it starts at {self.window_start_seconds}"
            )
