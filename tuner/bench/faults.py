"""clocktuner with something badly wrong in it: how much harm does it do then?

Each arm is the product as it is shipped, with one part that misleads it all through the replay: a twin that promises
three times what it should, or the opposite; a forecast that expects a rush where there will be calm; an exporter that
comes and goes. What counts is the cost against a scheduler that nobody touches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from tuner.bench.sidecar import Clocktuner, Instead, MinuteSource
from tuner.bench.tuners import TunerFactory
from tuner.demo.world import START_AT_SECONDS
from tuner.forecast.stage import Forecasting
from tuner.observe.source import Answer
from tuner.twin.model import evaluate, from_started_log, started_log
from tuner.twin.parameters import TwinParameters
from tuner.twin.workload import Scenarios
from tuner.values.stages import FloatArray, Forecast, Observation

DEVICE_METRICS: Final = (
    "resource_idle_ratio",
    "accelerator_utilization_ratio",
    "node_temperature_celsius",
    "node_power_watts",
)
"""What an exporter of accelerators gives: four of the thirteen metrics, a third of them."""

OUTAGE_SECONDS: Final = 1800.0
"""How long the exporter is away, and back, in turn: long enough to catch searches and changes on trial alike."""

LARGEST_SURPRISE: Final = 4.0
"""Factor within which a wrong forecast stays around what is usual: beyond, nobody would call it a forecast."""


class WrongTwin:
    """The twin with all its effects multiplied: what it says of the setting in force is right."""

    def __init__(self, factor: float) -> None:
        """Multiply every difference from the setting in force, on the scale of `started_log`."""
        self._factor = factor

    def __call__(self, knobs: FloatArray, scenarios: Scenarios, parameters: TwinParameters) -> FloatArray:
        """Return metrics, as `tuner.twin.model.evaluate` does."""
        in_force = started_log(evaluate(parameters.knobs[None], scenarios, parameters))
        said = started_log(evaluate(knobs, scenarios, parameters))
        return from_started_log(in_force + self._factor * (said - in_force))


class WrongForecasting(Forecasting):
    """Forecasts that are turned upside down: above what was usual where the models expect less, and below for more."""

    def forecast(self, observation: Observation) -> Forecast:
        """Return every series mirrored at the mean of its history, on a log scale."""
        honest = super().forecast(observation)
        pasts = [known_past(observation, name) for name in honest.names]
        usual = np.array([past.mean() if past.size else 0.0 for past in pasts])[:, None, None]
        mirrored = usual**2 / np.maximum(honest.values, 1e-9)
        values = np.clip(mirrored, usual / LARGEST_SURPRISE, usual * LARGEST_SURPRISE)[..., ::-1]
        # A series that was never above 0 has nothing to be mirrored at.
        return replace(honest, values=np.where(usual > 0, values, honest.values))


def known_past(observation: Observation, name: str) -> FloatArray:
    """Return the samples of a series that there are, oldest first; empty where there is none."""
    past = observation.history[name] if name in observation.history else np.empty(0)
    return past[np.isfinite(past)]


class ExporterAway(MinuteSource):
    """A source from which the series of one exporter vanish at once, for half of every hour."""

    def _answer(self, name: str, times: Sequence[float], *, keep_time: bool) -> Answer:
        if name in DEVICE_METRICS:
            times = [at for at in times if not away(at)]
        return super()._answer(name, times, keep_time=keep_time)


def away(at_seconds: float) -> bool:
    """Say whether the exporter is away at a time; it is there when the replay begins."""
    return bool((at_seconds - START_AT_SECONDS) // OUTAGE_SECONDS % 2 == 1)


FAULTS: Final[Mapping[str, Instead]] = {
    "wrong_twin_x3": Instead(evaluate=WrongTwin(3.0)),
    "wrong_twin_sign": Instead(evaluate=WrongTwin(-1.0)),
    "wrong_forecast": Instead(forecasting=WrongForecasting),
    "missing_metrics": Instead(source=ExporterAway),
}
"""What is wrong, by arm."""

FAULT_ARMS: Final[Mapping[str, TunerFactory]] = {
    name: partial(Clocktuner, instead=instead) for name, instead in FAULTS.items()
}
"""The product with each of them, by arm."""
