"""Scenarios: what may happen next, as arrays.

A scenario is one forecast quantile with one random draw. All candidates of a search meet the same scenarios (common
random numbers), so that their differences are theirs and not chance. Draws come in pairs of opposite sign: what chance
adds to one it takes from the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.twin.load import Load, read_load
from tuner.twin.parameters import PARAMETER_COUNT
from tuner.values.context import TASK_CLASSES
from tuner.values.stages import QUANTILES, FloatArray, Forecast, Observation

GROUPS: Final[tuple[str, ...]] = ("preprocessing", "brief_training", "training", "inference", "protected")
"""Groups of work in the twin: training that soon ends is apart from the rest, and protected inference from the open."""

BRIEF_SECONDS: Final = 120.0
"""How long brief training runs: short against the horizon (assumption; what counts is that it is soon gone)."""

HORIZON_SECONDS: Final = 900.0
"""How far the twin looks ahead: the 15 minutes at which forecasts are scored."""
STEP_SECONDS: Final = 30.0
"""Length of a step: tasks shorter than it are exact within it, and half the distance of two samples follows a queue."""
STEPS: Final = int(HORIZON_SECONDS / STEP_SECONDS)

QUANTILE_WEIGHTS: Final = np.array([0.3, 0.4, 0.3])
"""Weights of the quantiles 0.1, 0.5, 0.9 in a mean (Swanson's rule; Hurst, Brown and Swanson, AAPG Bulletin 2000)."""

SPREAD_UNFORECAST: Final = 0.3
"""Spread of arrivals of which there is no forecast (assumption)."""
_Z90: Final = 1.2816
_INFERENCE: Final = TASK_CLASSES.index("inference")
_CLASS_OF_GROUP: Final = np.array([0, 1, 1, 2, 2])
_MAX_NOISE: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenarios:
    """What may happen next; S scenarios of T steps for five groups of work.

    Attributes:
        arrivals_per_second: Shape (S, T, 5).
        recent_per_second: Arrivals before the start, shape (S, 5).
        running_tasks: Shape (S, 5).
        waiting_tasks: Shape (S, 5).
        service_seconds: Mean run time at full speed, shape (S, 5).
        demand_accelerators: Accelerators that a task occupies, shape (S, 5).
        accelerators_count: Shape (S,).
        cold_start_seconds: Shape (S,).
        spread_ratio: Accelerators that an inference request keeps busy at the start, shape (S,).
        parameter_draws: Standard normal draws with which the twin's parameters leave their estimates, shape (S, P).
        weights: Weight of each scenario in a mean, shape (S,); sum 1.
        step_seconds: Length of a step, shape ().
    """

    arrivals_per_second: FloatArray
    recent_per_second: FloatArray
    running_tasks: FloatArray
    waiting_tasks: FloatArray
    service_seconds: FloatArray
    demand_accelerators: FloatArray
    accelerators_count: FloatArray
    cold_start_seconds: FloatArray
    spread_ratio: FloatArray
    parameter_draws: FloatArray
    weights: FloatArray
    step_seconds: FloatArray

    def __len__(self) -> int:
        """Return the number of scenarios."""
        return int(self.arrivals_per_second.shape[0])

    @property
    def offered_accelerators(self) -> FloatArray:
        """Accelerators that the arrivals of each scenario would occupy in balance, shape (S,)."""
        mean = self.arrivals_per_second.mean(axis=1)
        offered: FloatArray = (mean * self.service_seconds * self.demand_accelerators).sum(axis=1)
        return offered

    def to_arrays(self) -> dict[str, FloatArray]:
        """Return all arrays by name, for storage."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, FloatArray]) -> "Scenarios":
        """Return the scenarios that `to_arrays` gave; KeyError where one is missing."""
        return cls(**{name: np.asarray(arrays[name], dtype=np.float64) for name in cls.__slots__})


def build_scenarios(observation: Observation, forecast: Forecast, *, draws: int, seed: int) -> Scenarios:
    """Return the scenarios of a search: every forecast quantile with every draw.

    Args:
        observation: Load and state of now.
        forecast: What is expected; arrivals by class are taken from it where it has them.
        draws: Random draws a quantile, >= 1; an odd one is the centre itself.
        seed: Seed of the draws; the same seed gives the same scenarios.

    Raises:
        ValueError: `draws` is under 1.
    """
    if draws < 1:
        raise ValueError(f"draws is {draws}, must be at least 1")
    load = read_load(observation)
    count = draws * len(QUANTILES)
    generator = np.random.default_rng(seed)
    noise = _opposed(generator, draws, (STEPS // 2) * len(TASK_CLASSES)).reshape(count, STEPS // 2, len(TASK_CLASSES))
    assumed = _opposed(generator, draws, 1 + len(TASK_CLASSES))
    expected = np.repeat(_expected(load, forecast), draws, axis=0)
    sigma = _noise(observation, load)
    # Linear rather than exponential, so that opposed draws cancel.
    factor = np.repeat(np.maximum(1.0 + sigma * noise, 0.0), 2, axis=1)
    arrivals = expected * factor * np.exp(load.spread_arrivals * assumed[:, None, :1])
    service = load.service_seconds * np.exp(load.spread_service * assumed[:, 1:])
    return scenarios_of(
        load,
        arrivals=arrivals,
        service=service,
        parameter_draws=_opposed(generator, draws, PARAMETER_COUNT),
        weights=np.repeat(QUANTILE_WEIGHTS / draws, draws),
    )


def scenarios_of(
    load: Load, *, arrivals: FloatArray, service: FloatArray, parameter_draws: FloatArray, weights: FloatArray
) -> Scenarios:
    """Return scenarios that start from one load and differ in what arrives.

    Args:
        load: State at the start.
        arrivals: Tasks a second by class, shape (S, T, 3).
        service: Run time by class, shape (S, 3).
        parameter_draws: Shape (S, P).
        weights: Shape (S,).
    """
    count = arrivals.shape[0]
    shares = _shares(load)
    running = load.running_tasks @ shares
    # Brief training is a share of what arrives, and by its short run time little of what runs.
    training = running[1] + running[2]
    running[1] = min(shares[1, 1] * load.arrivals_per_second[1] * BRIEF_SECONDS, training)
    running[2] = training - running[1]
    waiting = load.waiting_tasks @ shares
    if shares[_INFERENCE, 3] > 0.0:
        # Protected work goes first: who waits is the open.
        waiting[3], waiting[4] = waiting[3] + waiting[4], 0.0
    runs = service[:, _CLASS_OF_GROUP].copy()
    runs[:, 1], runs[:, 2] = BRIEF_SECONDS, load.training_stay_seconds * service[:, 1] / load.service_seconds[1]
    return Scenarios(
        arrivals_per_second=arrivals @ shares,
        recent_per_second=np.tile(load.arrivals_per_second @ shares, (count, 1)),
        running_tasks=np.tile(running, (count, 1)),
        waiting_tasks=np.tile(waiting, (count, 1)),
        service_seconds=runs,
        demand_accelerators=np.tile(load.demand_accelerators[_CLASS_OF_GROUP], (count, 1)),
        accelerators_count=np.full(count, load.accelerators_count),
        cold_start_seconds=np.full(count, load.cold_start_seconds),
        spread_ratio=np.full(count, load.spread_ratio),
        parameter_draws=parameter_draws,
        weights=weights,
        step_seconds=np.array(STEP_SECONDS),
    )


def joined(parts: list[Scenarios]) -> Scenarios:
    """Return the scenarios of all parts in one, in their order; weights are scaled to sum 1."""
    arrays = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in Scenarios.__slots__
        if name != "step_seconds"
    }
    arrays["weights"] = arrays["weights"] / len(parts)
    return Scenarios(step_seconds=parts[0].step_seconds, **arrays)


def _shares(load: Load) -> FloatArray:
    """Return which share of each class each group takes, shape (3, 5); rows sum to 1."""
    inference = load.arrivals_per_second[_INFERENCE]
    protected = load.high_share_ratio * load.arrivals_per_second.sum()
    share = float(protected / inference) if protected < inference else 1.0
    shares = np.zeros((len(TASK_CLASSES), len(GROUPS)))
    shares[0, 0] = 1.0
    shares[1, 1:3] = load.brief_share_ratio, 1.0 - load.brief_share_ratio
    shares[2, 3:5] = 1.0 - share, share
    return shares


def _expected(load: Load, forecast: Forecast) -> FloatArray:
    """Return the expected arrivals by class for each quantile, shape (3, T, 3)."""
    expected = np.empty((len(QUANTILES), STEPS, len(TASK_CLASSES)))
    for index, kind in enumerate(TASK_CLASSES):
        name = f"arrivals_per_second:{kind}"
        if name in forecast.names:
            times = (np.arange(STEPS) + 1) * STEP_SECONDS
            known = (np.arange(forecast.values.shape[1]) + 1) * forecast.step_seconds
            rows = np.stack([np.interp(times, known, forecast[name][:, level]) for level in range(len(QUANTILES))])
        else:
            spread = np.exp(SPREAD_UNFORECAST * np.array([-_Z90, 0.0, _Z90]))
            rows = np.repeat(spread[:, None] * load.arrivals_per_second[index], STEPS, axis=1)
        expected[:, :, index] = np.maximum(rows, 0.0)
    return expected


def _noise(observation: Observation, load: Load) -> FloatArray:
    """Return the relative standard deviation of a minute's arrivals by class, shape (3,).

    From differences of neighbouring samples, so that trends and daily cycles do not count as noise; at least that of a
    Poisson process.
    """
    minute = observation.history.step_seconds
    sigma = np.zeros(len(TASK_CLASSES))
    for index, kind in enumerate(TASK_CLASSES):
        mean = max(load.arrivals_per_second[index], 1e-9)
        variation = 1.0 / (mean * minute)
        name = f"arrivals_per_second:{kind}"
        if name in observation.history:
            steps = np.diff(observation.history[name][-120:])
            steps = steps[np.isfinite(steps)]
            variation = max(variation, float((steps**2).mean()) / 2.0 / mean**2) if steps.size else variation
        sigma[index] = min(np.sqrt(variation), _MAX_NOISE)
    return sigma


def _opposed(generator: np.random.Generator, draws: int, columns: int) -> FloatArray:
    """Return standard normal draws for every quantile, shape (quantiles * draws, columns), in opposed pairs."""
    blocks = []
    for _ in QUANTILES:
        half = np.clip(generator.standard_normal((draws // 2, columns)), -1.5, 1.5)
        blocks += [half, -half, np.zeros((draws % 2, columns))]
    return np.concatenate(blocks)
