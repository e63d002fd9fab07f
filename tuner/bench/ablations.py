"""clocktuner without one of its parts: does each earn its place?

Each arm is the product as it is shipped, with one part taken out. What is told of it is how much worse the product does
then, paired by seed: a part whose arm is no worse could go.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from tuner.bench.faults import known_past
from tuner.bench.sidecar import Clocktuner, Instead
from tuner.bench.tuners import TunerFactory
from tuner.draft import Draft
from tuner.forecast.stage import Forecasting
from tuner.memory import OnTrial
from tuner.propose.inputs import SearchInputs
from tuner.propose.planted import planted
from tuner.propose.scoring import Evaluate
from tuner.propose.search import search
from tuner.propose.space import Space
from tuner.trying import Trying
from tuner.twin.calibration import Calibrator
from tuner.twin.model import evaluate
from tuner.twin.residual import Residual
from tuner.values.stages import Forecast, Observation, Proposal, Step

TOKEN_SCORE: Final = -0.02
"""What is promised of a setting that nobody predicted anything of: enough to be tried (twice the least gain)."""


def guess(
    inputs: SearchInputs, *, deadline_at: Callable[[], bool] | None = None, evaluate: Evaluate = evaluate
) -> Proposal:
    """Search without a twin: some setting that one change may reach, and the live test decides."""
    del deadline_at, evaluate
    space = Space.around(inputs.incumbent, inputs.specs, trust=inputs.trust, choices=inputs.choices)
    point = space.at(np.random.default_rng(inputs.seed).random(len(space.axes)).tolist())
    return planted(inputs, space.values(point), score=TOKEN_SCORE, reason="drawn at random")


def forgetful(
    inputs: SearchInputs, *, deadline_at: Callable[[], bool] | None = None, evaluate: Evaluate = evaluate
) -> Proposal:
    """Search without the settings that did well before."""
    return search(replace(inputs, warm_starts=()), deadline_at=deadline_at, evaluate=evaluate)


class Unbounded(Calibrator):
    """A twin whose steps are never shortened, and whose promises always count as evidence."""

    region_ratio = property(lambda _: 1.0)
    proven = property(lambda _: True)


class Unlearning(Calibrator):
    """A twin whose promises are taken as they are, whatever became of the ones before."""

    residual = property(lambda _: Residual())


class LastSeen(Forecasting):
    """Forecasts that everything stays as it was last seen, with the spread of the honest ones around it."""

    def forecast(self, observation: Observation) -> Forecast:
        """Return every series at its last value."""
        honest = super().forecast(observation)
        pasts = [known_past(observation, name) for name in honest.names]
        last = np.array([past[-1] if past.size else np.nan for past in pasts])[:, None, None]
        values = np.maximum(honest.values - honest.values[..., 1:2] + last, 0.0)
        return replace(honest, values=np.where(np.isfinite(last), values, honest.values))


class Pointed(Forecasting):
    """Forecasts without a spread."""

    def forecast(self, observation: Observation) -> Forecast:
        """Return the median for every quantile."""
        honest = super().forecast(observation)
        return replace(honest, values=np.repeat(honest.values[..., 1:2], honest.values.shape[-1], axis=-1))


class Untested(Trying):
    """Keeps every change that is made, whatever it does."""

    def verify(self, draft: Draft, observation: Observation, on_trial: OnTrial) -> None:
        """End the trial before it has begun."""
        del observation, on_trial
        draft.close(Step.KEEP, "kept untested")
        memory = self._notebook.memory
        searches = replace(memory.searches, context=(), fruitless=0, changed_at_seconds=draft.at_seconds)
        self._notebook.memory = replace(memory, on_trial=None, searches=searches)


ABLATIONS: Final[Mapping[str, Instead]] = {
    "no_twin": Instead(search=guess),
    "no_forecast": Instead(forecasting=LastSeen),
    "point_forecast": Instead(forecasting=Pointed),
    "no_trust_region": Instead(calibrator=Unbounded),
    "no_residual": Instead(calibrator=Unlearning),
    "no_warm_start": Instead(search=forgetful),
    "no_live_test": Instead(trying=Untested),
}
"""What is taken out, by arm."""

ABLATED_ARMS: Final[Mapping[str, TunerFactory]] = {
    name: partial(Clocktuner, instead=instead) for name, instead in ABLATIONS.items()
}
"""The product without each of them, by arm."""
