"""The interface through which any tuner takes part in `bench tuning`, and the tuners that try settings live.

A tuner is anything with two methods. Every five simulated minutes it is told what the last five were like, and asked
for the setting of the next five:

    class Mine:
        def __init__(self, site: Site) -> None:
            self.specs, self.knobs = site.specs, site.start

        def ask(self) -> KnobValues:
            return self.knobs

        def tell(self, score: float, metrics: MetricVector) -> None:
            ...

    tuner.bench.tuning.run(trace=None, trace_format="csv", seeds=3, quick=True, others={"mine": Mine})

A tuner of the outside knows its site, scores and metrics, and nothing else: not the workload, not the future, not what
the untouched scheduler would have done. Those that need nothing but a recent past have to make do with it in life, too.

**The score that is told** is that of the catalogue (`tuner.values.metrics.score`, lower is better), of the metrics of
the last window against their geometric mean over the two hours before it, whatever was in force then. That takes out
how the load goes up and down over the day, can be seen by anyone who watches a scheduler, and is the same for all. It
is not the score by which tuners are compared: that one is of the whole run against the untouched run of the same seed.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import numpy as np

from tuner.values.knobs import KnobSpec, KnobValues
from tuner.values.metrics import DEFAULT_WEIGHTS, FLOORS, MetricVector, score

if TYPE_CHECKING:
    import optuna

BASELINE_WINDOWS: Final = 24
"""Windows that the running baseline is taken over: two hours, long against a window and short against a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What a tuner is told before it begins.

    Attributes:
        specs: The knobs, with their bounds and steps.
        start: The setting in force.
        seed: Seed of the tuner's own randomness.
    """

    specs: tuple[KnobSpec, ...]
    start: KnobValues
    seed: int


class Tuner(Protocol):
    """Whatever tunes; see the module."""

    def ask(self) -> KnobValues:
        """Return the setting for the next window, within the bounds; roles that are missing stay as they are."""
        ...

    def tell(self, score: float, metrics: MetricVector) -> None:
        """Learn what the last window was like.

        Args:
            score: Of the window against the recent past, lower is better; NaN where nothing was seen.
            metrics: Of the window, shape (13,); NaN for "no sample".
        """
        ...


TunerFactory: TypeAlias = Callable[[Site], Tuner]


class RunningBaseline:
    """Scores windows against the recent past; see the module."""

    def __init__(self) -> None:
        self._logs: deque[MetricVector] = deque(maxlen=BASELINE_WINDOWS)

    def score(self, metrics: MetricVector) -> float:
        """Return the score of the next window, shape (13,); 0 for the first, NaN where nothing was seen."""
        logs = np.log(np.maximum(metrics, FLOORS))
        past = np.array([*self._logs] or [logs])
        self._logs.append(logs)
        known = np.isfinite(past)
        sums = np.where(known, past, 0.0).sum(axis=0)
        means = np.divide(sums, known.sum(axis=0), out=np.full(sums.size, np.nan), where=known.any(axis=0))
        return float(score(metrics, np.exp(means), weights=DEFAULT_WEIGHTS))


class Random:
    """Tries another setting in every window, anywhere within the bounds."""

    def __init__(self, site: Site) -> None:
        self._specs = site.specs
        self._generator = np.random.default_rng(site.seed)

    def ask(self) -> KnobValues:
        """Return a random point of the grid."""
        return KnobValues.of(
            {spec.role: spec.at(int(self._generator.integers(0, spec.steps + 1))) for spec in self._specs}
        )

    def tell(self, score: float, metrics: MetricVector) -> None:
        """Learn nothing."""
        del score, metrics


class Live:
    """An Optuna study whose trials are windows of the live system; its first trial is the setting in force."""

    def __init__(self, site: Site, sampler: "optuna.samplers.BaseSampler") -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._specs = site.specs
        self._study = optuna.create_study(sampler=sampler)
        self._study.enqueue_trial(dict(zip(_names(site.specs), _indices(site.start, site.specs), strict=True)))
        self._trial = self._study.ask(self._distributions())

    def ask(self) -> KnobValues:
        """Return what the sampler suggests next."""
        self._trial = self._study.ask(self._distributions())
        return KnobValues.of({spec.role: spec.at(int(self._trial.params[spec.role.value])) for spec in self._specs})

    def tell(self, score: float, metrics: MetricVector) -> None:
        """Close the trial that ran in the last window; without a score it has failed."""
        import optuna

        del metrics
        if np.isnan(score):
            self._study.tell(self._trial, state=optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(self._trial, score)

    def _distributions(self) -> "dict[str, optuna.distributions.BaseDistribution]":
        import optuna

        return {spec.role.value: optuna.distributions.IntDistribution(0, spec.steps) for spec in self._specs}


def tpe_live(site: Site) -> Live:
    """Return Optuna's TPE, as it comes, on the live system."""
    import optuna

    return Live(site, optuna.samplers.TPESampler(seed=site.seed))


def cmaes_live(site: Site) -> Live:
    """Return CMA-ES for grids on the live system, from the setting in force, with its usual first step."""
    import warnings

    import optuna

    with warnings.catch_warnings():
        # `with_margin` is marked experimental and `x0` will go one day; the version of Optuna is bounded for that
        # reason. Without `x0` it would begin in the middle of the bounds, which in life nobody would have it do.
        warnings.simplefilter("ignore")
        start = dict(zip(_names(site.specs), _indices(site.start, site.specs), strict=True))
        return Live(site, optuna.samplers.CmaEsSampler(x0=start, seed=site.seed, with_margin=True))


def _names(specs: Sequence[KnobSpec]) -> list[str]:
    return [spec.role.value for spec in specs]


def _indices(values: KnobValues, specs: Sequence[KnobSpec]) -> list[int]:
    return [spec.index(values[spec.role]) for spec in specs]
