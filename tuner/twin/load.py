"""The load and the state of a cluster at one instant, as far as observations tell.

What a policy does not map is assumed, each time with a spread (the standard deviation of its logarithm), so that the
search knows what it does not know. The assumptions:

* arrivals: completions plus the growth of the queue, split over the classes in the shares of `ASSUMED_MIX`;
* run time: Little's law where running tasks and arrivals are known, else the mean remaining time of running tasks;
* demand: nothing for pre-processing, one accelerator for training, a quarter of one for inference;
* how soon training leaves, and how far inference is spread: regressions over the last hours (`_departures`, `_spread`);
* running tasks: arrivals times run time; waiting tasks: the queue in proportion to the demand that arrives;
* accelerators: what runs over the share that is allocated;
* protected work: inference first, because protection exists for those who wait for an answer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.values.context import TASK_CLASSES
from tuner.values.metrics import METRIC_INDEX
from tuner.values.stages import FloatArray, Observation

RECENT_STEPS: Final = 5
"""Samples that "now" is a mean of: five minutes, the recent window of a cycle."""

SLOW_STEPS: Final = 180
"""Samples that run times and demands are means of: three hours, as long tasks end too seldom for less."""

PRIOR_BLOCKS: Final = 3.0
"""Samples that an assumption counts for against what is observed."""
ASSUMED_BRIEF_SHARE: Final = 0.5
"""Share of arriving training that soon ends: run times are so skewed that about half last minutes (assumption)."""
MAX_BRIEF_SHARE: Final = 0.95
"""Some always stay: else nothing would tell how long."""
ASSUMED_SPREAD_RATIO: Final = 0.5
"""Accelerators that an inference request keeps busy: two share one."""

ASSUMED_MIX: Final = np.array([0.2, 0.4, 0.4])
ASSUMED_SERVICE_SECONDS: Final = 600.0
ASSUMED_DEMAND: Final = np.array([0.0, 1.0, 0.25])
ASSUMED_HIGH_SHARE: Final = 0.1
ASSUMED_COLD_SECONDS: Final = 10.0
"""Loading a model of some tens of gigabytes from a local disk (assumption)."""

SPREAD_ASSUMED: Final = 0.5
"""Spread of a value that is assumed outright."""
SPREAD_DERIVED: Final = 0.2
"""Spread of a value that follows from others by a law of conservation."""

_CLASSES: Final = len(TASK_CLASSES)
_TRAINING: Final = TASK_CLASSES.index("training")
_INFERENCE: Final = TASK_CLASSES.index("inference")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Load and state at one instant; arrays have one entry a task class.

    Attributes:
        arrivals_per_second: Tasks submitted, mean of the recent samples.
        service_seconds: Mean run time at full speed, > 0.
        demand_accelerators: Accelerators that a task occupies, >= 0.
        running_tasks: Tasks that run.
        waiting_tasks: Tasks that wait.
        brief_share_ratio: Share of arriving training that soon ends, 0..1.
        training_stay_seconds: How long other training stays, seen from any moment.
        spread_ratio: Accelerators that an inference request keeps busy, 0..1.
        accelerators_count: Accelerators, > 0.
        high_share_ratio: Share of the tasks that is protected, 0..1.
        cold_start_seconds: Time that a cold start takes.
        spread_arrivals: Spread of the arrivals, one for all; 0 where they are observed.
        spread_service: Spread of each run time; 0 where it is observed.
    """

    arrivals_per_second: FloatArray
    service_seconds: FloatArray
    demand_accelerators: FloatArray
    running_tasks: FloatArray
    waiting_tasks: FloatArray
    brief_share_ratio: float
    training_stay_seconds: float
    spread_ratio: float
    accelerators_count: float
    high_share_ratio: float
    cold_start_seconds: float
    spread_arrivals: float
    spread_service: FloatArray

    @property
    def offered_accelerators(self) -> float:
        """Accelerators that the arrivals would occupy in balance."""
        return float((self.arrivals_per_second * self.service_seconds * self.demand_accelerators).sum())


@dataclass(frozen=True, slots=True)
class Reader:
    """What an observation says of a moment `back` steps before its end.

    Attributes:
        observation: What was observed.
        back: Steps of the history before its last column, >= 0.
    """

    observation: Observation
    back: int = 0

    def mean(self, name: str) -> float:
        """Return the mean of the recent samples of a series; NaN where there is none."""
        window = self.window(name)
        known = window[np.isfinite(window)]
        return float(known.mean()) if known.size else self._current(name)

    def last(self, name: str) -> float:
        """Return the newest of the recent samples of a series; NaN where there is none."""
        window = self.window(name)
        known = window[np.isfinite(window)]
        return float(known[-1]) if known.size else self._current(name)

    def past(self, name: str) -> FloatArray:
        """Return the samples of the last hours of a series; NaN where there is none."""
        steps = self.observation.history.values.shape[1]
        end = max(steps - self.back, 0)
        begin = max(end - SLOW_STEPS, 0)
        if name not in self.observation.history:
            return np.full(end - begin, np.nan)
        return self.observation.history[name][begin:end]

    def slow(self, name: str) -> float:
        """Return the mean of the last hours of a series, else of all before; NaN where there is none."""
        if name in self.observation.history:
            row = self.observation.history[name]
            past = row[: max(row.size - self.back, 0)]
            for window in (past[-SLOW_STEPS:], past):
                known = window[np.isfinite(window)]
                if known.size:
                    return float(known.mean())
        return self._current(name)

    def classes(self, name: str, read: Callable[[str], float]) -> FloatArray:
        """Return one value a task class, read by a method of this reader; NaN where there is none."""
        return np.array([read(f"{name}:{kind}") for kind in TASK_CLASSES])

    def window(self, name: str) -> FloatArray:
        """Return the recent samples of a series, NaN where one is missing; empty where there is no history."""
        if name not in self.observation.history:
            return np.empty(0)
        row = self.observation.history[name]
        end = row.size - self.back
        return row[max(end - RECENT_STEPS, 0) : max(end, 0)]

    def _current(self, name: str) -> float:
        # Without history, what is known of now is the best guess of a little earlier.
        if name in METRIC_INDEX:
            return float(self.observation.metrics[METRIC_INDEX[name]])
        return float(self.observation.context.get(name, np.nan))


def read_load(observation: Observation, *, back: int = 0) -> Load:
    """Return load and state `back` steps before the end of an observation's history; always finite."""
    reader = Reader(observation, back)
    arrivals, spread_arrivals = _arrivals(reader)
    running = reader.classes("running_tasks", reader.last)
    service, spread_service = _service(reader, arrivals, running)
    demand = reader.classes("demand_accelerators", reader.slow)
    demand = np.where(np.isfinite(demand), demand, ASSUMED_DEMAND)
    running = np.where(np.isfinite(running), running, arrivals * service)
    brief_share, training_stay = _departures(reader, float(service[_TRAINING]))
    accelerators = _accelerators(reader, running, demand)
    demand, spread = _spread(reader, running, demand, accelerators)
    return Load(
        arrivals_per_second=arrivals,
        service_seconds=service,
        demand_accelerators=demand,
        running_tasks=running,
        brief_share_ratio=brief_share,
        training_stay_seconds=training_stay,
        spread_ratio=spread,
        waiting_tasks=_waiting(reader, arrivals, demand),
        accelerators_count=accelerators,
        high_share_ratio=min(max(_or(reader.slow("high_priority_share_ratio"), _assumed_high_share(reader)), 0.0), 1.0),
        cold_start_seconds=max(_or(reader.slow("cold_start_seconds"), ASSUMED_COLD_SECONDS), 0.0),
        spread_arrivals=spread_arrivals,
        spread_service=spread_service,
    )


def _or(value: float, otherwise: float) -> float:
    return value if np.isfinite(value) else otherwise


def _arrivals(reader: Reader) -> tuple[FloatArray, float]:
    observed = reader.classes("arrivals_per_second", reader.mean)
    if np.isfinite(observed).any():
        # A class without samples, beside others that have some, has no work.
        return np.maximum(np.nan_to_num(observed, nan=0.0), 0.0), 0.0
    completed = _or(reader.mean("tasks_completed_per_second"), 0.0)
    queue = reader.window("queue_length")
    queue = queue[np.isfinite(queue)]
    step = reader.observation.history.step_seconds
    growth = (queue[-1] - queue[0]) / (step * (queue.size - 1)) if queue.size > 1 else 0.0
    return max(completed + growth, 0.0) * ASSUMED_MIX, SPREAD_ASSUMED


def _service(reader: Reader, arrivals: FloatArray, running: FloatArray) -> tuple[FloatArray, FloatArray]:
    observed = reader.classes("service_seconds", reader.slow)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_balance = np.where((arrivals > 0) & (running > 0), running / arrivals, np.nan)
    assumed = max(_or(reader.mean("running_task_remaining_seconds"), ASSUMED_SERVICE_SECONDS), 1.0)
    service = np.where(np.isfinite(observed), observed, np.where(np.isfinite(by_balance), by_balance, assumed))
    spread = np.where(np.isfinite(observed), 0.0, np.where(np.isfinite(by_balance), SPREAD_DERIVED, SPREAD_ASSUMED))
    return np.maximum(service, 1e-3), spread


def _departures(reader: Reader, service: float) -> tuple[float, float]:
    """Return the share of arriving training that ends at once, and how long the rest stays.

    Run times are so unequal that one mean does not tell when training leaves: most of what arrives is soon gone, while
    most of what runs is long. Both are told by ridge regression of what left, in blocks of the last hours, on what
    arrived and on what ran: `departures = share * arrivals + running * block / stay`. What left is what arrived less
    what was added to the running and the waiting.
    """
    kind = TASK_CLASSES[_TRAINING]
    step = reader.observation.history.step_seconds
    names = (f"arrivals_per_second:{kind}", f"running_tasks:{kind}", f"waiting_tasks:{kind}")
    arrived, running, waiting = (reader.past(name) for name in names)
    usable = np.isfinite(arrived) & np.isfinite(running)
    present = np.where(np.isfinite(waiting), waiting, 0.0) + running
    arrived, running, present = arrived[usable], running[usable], present[usable]
    blocks = (arrived.size - 1) // RECENT_STEPS
    assumed = 1.0 / max(service, _or(reader.mean("running_task_remaining_seconds"), service), 1.0)
    if blocks < 1:
        return ASSUMED_BRIEF_SHARE, 1.0 / assumed
    seconds = step * RECENT_STEPS
    edges = np.arange(blocks + 1) * RECENT_STEPS
    came = np.add.reduceat(arrived[1:], edges[:-1])[:blocks] * step
    ran = np.add.reduceat(running[1:], edges[:-1])[:blocks] * step
    left = np.maximum(came - np.diff(present[edges]), 0.0)
    share, hazard = _ridge(came, ran, left, prior=(ASSUMED_BRIEF_SHARE, assumed))
    return min(max(share, 0.0), MAX_BRIEF_SHARE), 1.0 / min(max(hazard, assumed / 5.0), 1.0 / seconds)


def _ridge(
    one: FloatArray, other: FloatArray, result: FloatArray, *, prior: tuple[float, float]
) -> tuple[float, float]:
    """Return the two factors that make `one` and `other` add up to `result`, drawn to the prior as if by one sample."""
    design = np.stack([one, other], axis=1)
    centre = np.array(prior)
    # One sample of the mean size, explained half by the one and half by the other.
    weight = np.diag((design**2).mean(axis=0) + 1e-12) * PRIOR_BLOCKS
    solved = np.linalg.solve(design.T @ design + weight, design.T @ result + weight @ centre)
    return float(solved[0]), float(solved[1])


def _accelerators(reader: Reader, running: FloatArray, demand: FloatArray) -> float:
    observed = reader.last("accelerators_count")
    if np.isfinite(observed) and observed > 0:
        return observed
    allocated = 1.0 - _or(reader.mean("resource_idle_ratio"), 0.3)
    return max(float((running * demand).sum()) / max(allocated, 0.05), 1.0)


def _spread(reader: Reader, running: FloatArray, demand: FloatArray, accelerators: float) -> tuple[FloatArray, float]:
    """Return the demand of what runs, and how many accelerators each inference request keeps busy.

    What is allocated is held by training and by shared accelerators; which by which is told by ridge regression on the
    last hours. What is allocated now, beyond what inference holds, is then the training's, within a factor of four:
    large tasks run longer, so that running tasks hold more than submitted ones ask for in the mean.
    """
    idle = reader.past("resource_idle_ratio")
    training, inference = (reader.past(f"running_tasks:{TASK_CLASSES[index]}") for index in (_TRAINING, _INFERENCE))
    usable = np.isfinite(idle) & np.isfinite(training) & np.isfinite(inference)
    if not usable.any():
        return demand, ASSUMED_SPREAD_RATIO
    allocated = (1.0 - idle[usable]) * accelerators
    asked = demand[_TRAINING]
    _, spread = _ridge(training[usable], inference[usable], allocated, prior=(asked, ASSUMED_SPREAD_RATIO))
    spread = min(max(spread, demand[_INFERENCE]), 1.0)
    adjusted = demand.copy()
    if running[_TRAINING] > 0:
        held = (allocated[-RECENT_STEPS:].mean() - spread * running[_INFERENCE]) / running[_TRAINING]
        adjusted[_TRAINING] = min(max(held, 0.25 * asked), 4.0 * asked)
    return adjusted, spread


def _waiting(reader: Reader, arrivals: FloatArray, demand: FloatArray) -> FloatArray:
    observed = reader.classes("waiting_tasks", reader.last)
    if np.isfinite(observed).any():
        return np.maximum(np.nan_to_num(observed, nan=0.0), 0.0)
    queue = max(_or(reader.last("queue_length"), 0.0), 0.0)
    claims = arrivals * demand
    share = claims / claims.sum() if claims.sum() > 0 else np.full(_CLASSES, 1.0 / _CLASSES)
    return queue * share


def _assumed_high_share(reader: Reader) -> float:
    return ASSUMED_HIGH_SHARE if np.isfinite(reader.mean("high_priority_wait_seconds")) else 0.0
