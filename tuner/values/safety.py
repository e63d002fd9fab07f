"""What the safety parts say to one another: states, rungs, and what a guard tick sees."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from tuner.values.metrics import METRIC_COUNT, METRIC_INDEX, MetricVector
from tuner.values.stages import Problem


class BreakerState(StrEnum):
    """State of a circuit breaker (Nygard, "Release It!", chapter 5)."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Rung(IntEnum):
    """How far the tuner trusts itself, the most first; the number is the depth.

    `NORMAL` does all; `NO_LSTM` forecasts without the neural network; `CAUTIOUS` takes smaller steps; `OBSERVE_ONLY`
    changes nothing; `FROZEN` changes nothing until a person says so.
    """

    NORMAL = 0
    NO_LSTM = 1
    CAUTIOUS = 2
    OBSERVE_ONLY = 3
    FROZEN = 4

    @property
    def label(self) -> str:
        """Its name as it is exported and stored."""
        return self.name.lower()


class SettingsState(StrEnum):
    """What the settings in force are, compared with what was left in force."""

    OURS = "ours"
    """As we left them."""
    CONTESTED = "contested"
    """Other than we left them, and valid: a person or another controller has set them."""
    INVALID = "invalid"
    """Outside the bounds of the policy, missing, or not to be understood."""
    LOST = "lost"
    """Other than we left them since the scheduler restarted, or took up a change that had been given up: nobody means
    it any more."""
    UNREADABLE = "unreadable"
    """The scheduler does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a guard tick sees of the cluster.

    Attributes:
        at_seconds: When it was asked, Unix seconds.
        metrics: Newest value of each metric, shape (13,), NaN where it was not asked for or has no fresh sample.
        newest_at_seconds: Time of the newest sample of each, shape (13,); NaN where there is none.
        problems: What was missing or not believed.
    """

    at_seconds: float
    metrics: MetricVector
    newest_at_seconds: MetricVector
    problems: tuple[Problem, ...] = ()

    def __post_init__(self) -> None:
        """Refuse vectors that are not in catalogue order.

        Raises:
            ValueError: A vector does not have one entry a metric.
        """
        for name in ("metrics", "newest_at_seconds"):
            shape = getattr(self, name).shape
            if shape != (METRIC_COUNT,):
                raise ValueError(f"{name} has shape {shape}, must be ({METRIC_COUNT},)")

    def value(self, metric: str) -> float:
        """Return the value of a metric by its name; NaN where there is none."""
        return float(self.metrics[METRIC_INDEX[metric]])

    def newest(self, metric: str) -> float:
        """Return the time of the newest sample of a metric; NaN where there is none."""
        return float(self.newest_at_seconds[METRIC_INDEX[metric]])
