"""The parameters of the twin: what they mean, what is assumed of them, and what has been learned.

Every parameter is positive and lives on a log scale: a spread of 0.7 reads as "within a factor of two". The priors are
assumptions of the right order of magnitude for accelerator clusters, wide on purpose; what observations cannot tell
stays at its prior, with its spread, and so widens what the search expects.
"""

import json
import math
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tuner.values.knobs import Role
from tuner.values.metrics import METRIC_COUNT, METRIC_INDEX, MetricVector
from tuner.values.stages import FloatArray


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """One parameter of the twin.

    Attributes:
        name: Name with its unit.
        prior: Assumed value, > 0.
        spread: Standard deviation of the assumption, on a log scale.
        low: Smallest value that is believed.
        high: Largest value that is believed.
        summary: One sentence for people.
    """

    name: str
    prior: float
    spread: float
    low: float
    high: float
    summary: str


PARAMETERS: Final[tuple[ParameterSpec, ...]] = (
    ParameterSpec("switch_seconds", 0.004, 1.0, 1e-5, 0.1, "Time lost at each change of slice, cache refill included."),
    ParameterSpec("clump_ratio", 1.0, 0.2, 0.2, 5.0, "Requests that are placed together, over what is seen of it."),
    ParameterSpec("decision_seconds", 0.05, 1.2, 1e-4, 5.0, "Time of a scheduling decision with nothing queued."),
    ParameterSpec("decision_task_seconds", 3e-4, 1.5, 1e-7, 0.1, "Further decision time per queued task."),
    ParameterSpec("pause_seconds", 0.01, 1.0, 1e-5, 0.5, "Time for which each decision stops the accelerators."),
    ParameterSpec("model_count", 30.0, 1.0, 1.0, 1e4, "Effective number of models among which inference spreads."),
    ParameterSpec("cold_floor_ratio", 0.02, 1.0, 1e-5, 0.5, "Share of cold starts that no window prevents."),
    ParameterSpec(
        "gang_demand_accelerators",
        1.5,
        0.5,
        0.2,
        50.0,
        "Mean demand of training at which gangs hold half of what it holds.",
    ),
    ParameterSpec("unusable_share", 0.05, 0.8, 1e-3, 0.6, "Share of the capacity that fragmentation keeps from use."),
    ParameterSpec("training_stretch", 1.0, 0.2, 0.3, 5.0, "Run time of training over its time at full speed."),
    ParameterSpec("inference_stretch", 1.0, 0.3, 0.1, 20.0, "Run time of lone inference over its time at full speed."),
    ParameterSpec("sharing_stretch", 1.0, 0.4, 0.05, 5.0, "Further run time per co-resident, in run times alone."),
    ParameterSpec(
        "burstiness", 1.5, 0.7, 0.1, 50.0, "Variance of the occupied capacity over that of Poisson arrivals."
    ),
    ParameterSpec(
        "training_patience_seconds", 7200.0, 1.0, 60.0, 1e6, "Mean time that training waits before it leaves."
    ),
    ParameterSpec(
        "inference_patience_seconds", 60.0, 0.7, 5.0, 1e4, "Mean time that inference waits before it leaves."
    ),
    ParameterSpec(
        "turn_share", 0.25, 1.0, 0.01, 20.0, "Share of a turn of all co-residents that protected work waits."
    ),
    ParameterSpec("slowdown_share", 1.0, 0.7, 1e-3, 5.0, "Slow-down of protected inference over that of the rest."),
    ParameterSpec(
        "training_useful_share", 0.9, 0.15, 0.1, 1.0, "Share of the time that training holds, spent on work."
    ),
    ParameterSpec(
        "crowding_ratio", 1.5, 0.5, 1.0, 20.0, "Room that waiting training leaves inference, over its demand."
    ),
    ParameterSpec(
        "crowded_out_exponent", 0.6, 0.6, 0.02, 2.0, "How the slow-down of protected work falls with its reserve."
    ),
    ParameterSpec("slack_ratio", 0.3, 0.5, 0.02, 5.0, "Room that waiting gangs leave requests, over what they hold."),
)

PARAMETER_COUNT: Final = len(PARAMETERS)
PARAMETER_NAMES: Final[tuple[str, ...]] = tuple(spec.name for spec in PARAMETERS)
PRIOR: Final[FloatArray] = np.log([spec.prior for spec in PARAMETERS])
SPREAD: Final[FloatArray] = np.array([spec.spread for spec in PARAMETERS])
LOW: Final[FloatArray] = np.log([spec.low for spec in PARAMETERS])
HIGH: Final[FloatArray] = np.log([spec.high for spec in PARAMETERS])

TOLD_RATIO: Final = 0.9
"""Share of its prior spread to which the error of a parameter must fall before it counts as told by observations."""

# Metrics of which the twin knows the shape but not the level: without a sample it cannot say them.
_LEVELLED: Final = ("node_temperature_celsius", "node_power_watts")


def unknown_levels() -> MetricVector:
    """Return the levels before any observation: 0 where the twin can say the metric itself, NaN where it cannot."""
    levels = np.zeros(METRIC_COUNT)
    levels[[METRIC_INDEX[name] for name in _LEVELLED]] = np.nan
    return levels


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinParameters:
    """What the twin believes of one scheduler.

    Attributes:
        log_values: Natural logarithm of each parameter, in the order of `PARAMETERS`, shape (P,).
        log_errors: Standard error of each, shape (P,); the prior's spread where nothing was learned.
        levels: Correction of each metric's level, on the scale of `started_log`, shape (13,); NaN for metrics that
            only an observation can give a level and that had none.
        level_errors: Standard deviation of what remains unexplained of each metric, shape (13,).
        knobs: Setting in force at the newest observation, in the order of `Role`; NaN where absent or unknown.
        knobs_low: Smallest value of each knob that was observed, shape (4,).
        knobs_high: Largest, shape (4,).
        offered_low: Smallest offered load that was observed, in accelerators; NaN before any.
        offered_high: Largest.
        records: Number of observed intervals that the fit rests on.
        fidelity_ratio: How well the twin foretold what it had not yet learned from, 0..1; NaN while unknown.
        at_seconds: Time of the newest observation in the fit; NaN before any.
    """

    log_values: FloatArray = field(default_factory=PRIOR.copy)
    log_errors: FloatArray = field(default_factory=SPREAD.copy)
    levels: MetricVector = field(default_factory=unknown_levels)
    level_errors: MetricVector = field(default_factory=lambda: np.full(METRIC_COUNT, 0.5))
    knobs: FloatArray = field(default_factory=lambda: np.full(len(Role), np.nan))
    knobs_low: FloatArray = field(default_factory=lambda: np.full(len(Role), np.nan))
    knobs_high: FloatArray = field(default_factory=lambda: np.full(len(Role), np.nan))
    offered_low: float = math.nan
    offered_high: float = math.nan
    records: int = 0
    fidelity_ratio: float = math.nan
    at_seconds: float = math.nan

    def __post_init__(self) -> None:
        """Refuse vectors of the wrong length and parameters that are not numbers.

        Raises:
            ValueError: A shape is wrong, a parameter or its error is not finite, or a count is none.
        """
        if not isinstance(self.records, int) or self.records < 0:
            raise ValueError(f"the parameters of the twin rest on {self.records} intervals, must be 0 or more")
        for name, count in _SHAPES.items():
            shape = getattr(self, name).shape
            if shape != (count,):
                raise ValueError(f"{name} has shape {shape}, must be ({count},)")
        if not (np.isfinite(self.log_values).all() and np.isfinite(self.log_errors).all()):
            raise ValueError("a parameter of the twin, or its error, is not finite")

    def value(self, name: str) -> float:
        """Return one parameter in its unit; ValueError where there is none of that name."""
        return math.exp(self.log_values[PARAMETER_NAMES.index(name)])

    @property
    def untold(self) -> tuple[str, ...]:
        """Names of the parameters that the observations hardly move: they are as assumed, with the assumed spread."""
        told = self.log_errors < TOLD_RATIO * SPREAD
        return tuple(name for name, known in zip(PARAMETER_NAMES, told, strict=True) if not known)

    def to_json(self) -> str:
        """Return all of it as strict JSON; numbers survive exactly, NaN becomes null."""
        document: dict[str, object] = {"parameters": list(PARAMETER_NAMES)}
        for name in self.__slots__:
            value = getattr(self, name)
            document[name] = _plain(value) if isinstance(value, float) else value
            if isinstance(value, np.ndarray):
                document[name] = [_plain(number) for number in value.tolist()]
        return json.dumps(document, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "TwinParameters":
        """Return what `to_json` wrote.

        Raises:
            ValueError: The text is not of this form, or its parameters are those of another version of the twin.
        """
        document = json.loads(text)
        if not isinstance(document, dict) or set(document) != {"parameters", *cls.__slots__}:
            raise ValueError("parameters of the twin: fields are missing or unknown")
        if document.pop("parameters") != list(PARAMETER_NAMES):
            raise ValueError("parameters of the twin: they belong to another version; calibrate anew")
        restored: dict[str, Any] = {name: _restored(name, value) for name, value in document.items()}
        return cls(**restored)


_SHAPES: Final = {
    "log_values": PARAMETER_COUNT,
    "log_errors": PARAMETER_COUNT,
    "levels": METRIC_COUNT,
    "level_errors": METRIC_COUNT,
    "knobs": len(Role),
    "knobs_low": len(Role),
    "knobs_high": len(Role),
}


def _plain(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _restored(name: str, value: object) -> object:
    if name == "records":
        return value
    numbers = np.array(value, dtype=np.float64)  # None becomes NaN.
    return numbers if name in _SHAPES else float(numbers)
