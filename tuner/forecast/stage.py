"""The forecasting stage: from an observation to quantiles of every series, and to the best window."""

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuner.forecast.covariates import covariates_of
from tuner.forecast.describe import Describer
from tuner.forecast.fleet import Fleet, Served
from tuner.forecast.forecaster import Forecaster
from tuner.forecast.lstm import SHIPPED, Lstm
from tuner.forecast.naive import DampedTrend, LastValue, Smoothing
from tuner.forecast.reservoir import Reservoir
from tuner.forecast.retraining import FineTuner, Retraining
from tuner.forecast.statistical import DECISIVE, Arima, DampedEts
from tuner.forecast.window import best_window
from tuner.settings.model import ForecastSettings
from tuner.values.stages import STEP_SECONDS, FloatArray, Forecast, Observation, SeriesFrame

REFIT_BUDGET_SECONDS: Final = 2.0
"""Time that fitting may take of a core, where there is a clock."""


class Forecasting:
    """The forecasting stage; it remembers what it was shown, and learns from every window that closes."""

    def __init__(
        self,
        settings: ForecastSettings,
        *,
        seed: int = 0,
        weights: Path | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Start without any memory; models load when they are first needed.

        Args:
            settings: Horizon, and which members take part.
            seed: Seed of fine-tuning; forecasts themselves draw no random numbers.
            weights: Weights of the network; those that are shipped where absent.
            clock: Monotonic seconds, for deadlines of slow members. Without one, as in replays, none is kept, and
                the same observations give the same forecasts.
        """
        self._horizon = round(settings.horizon_seconds / STEP_SECONDS)
        self._clock = clock
        self._network = (
            Lstm(weights or SHIPPED, deadline_seconds=settings.deadline_seconds, clock=clock) if settings.lstm else None
        )
        self._statistical = (DampedEts(horizon=self._horizon), Arima(horizon=self._horizon))
        self._fitting = settings.statistical
        self._lock = threading.Lock()
        learned: tuple[Forecaster, ...] = self._statistical if settings.statistical else ()
        self._cluster = _Track((LastValue(), Smoothing(), DampedTrend(), *learned, *self._networks()), self._horizon)
        self._nodes: dict[str, _Track] = {}
        self._network_answered = True
        self._reservoir = Reservoir(seed=seed)
        self._tuner = FineTuner(weights or SHIPPED, seed=seed)

    def forecast(self, observation: Observation) -> Forecast:
        """Return quantiles of every series of the observation that had a sample in the last day, to the horizon.

        A series without any sample is left out: nothing can be said of it, and zero would be a lie.
        """
        with self._lock:
            return self._forecast(observation)

    def _forecast(self, observation: Observation) -> Forecast:
        covariates = covariates_of(observation.history)
        told = self._cluster.forecast(observation.history, covariates, self._reservoir)
        self._network_answered = told.network
        nodes = {}
        for metric, frame in observation.nodes.items():
            if metric not in self._nodes:
                self._nodes[metric] = _Track(
                    (LastValue(), Smoothing(), *self._networks()), self._horizon, nodes_of=metric
                )
            answer = self._nodes[metric].forecast(frame, covariates, self._reservoir)
            nodes[metric] = (answer.names, answer.quantiles)
        forecast = Forecast(
            cycle_id=observation.cycle_id,
            at_seconds=observation.history.end_at_seconds,
            names=told.names,
            values=told.quantiles,
            models=told.models,
            error_ratio=told.error_ratio,
            nodes=nodes,
            rung=told.rung,
        )
        return dataclasses.replace(forecast, best_window=best_window(forecast))

    def refit(self) -> None:
        """Fit the statistical models to the series that drive decisions; called outside the cycle, in any thread."""
        if not self._fitting:
            return
        with self._lock:
            names = [name for name in DECISIVE if name in self._cluster.describer.names]
            rows = [self._cluster.describer.names.index(name) for name in names]
            values = self._cluster.describer.history()[rows]
        began = self._clock() if self._clock else 0.0
        for turn, member in enumerate(self._statistical, start=1):
            budget = REFIT_BUDGET_SECONDS * turn / len(self._statistical)
            member.fit(names, values, expired=self._deadline(began + budget))

    def retrain(self, *, elapsed_seconds: float) -> Retraining:
        """Take the next step of fine-tuning the network, without waiting; called outside the cycle, in any thread.

        Training itself runs in a child process, which may die without harm. Replays do not call this.

        Args:
            elapsed_seconds: Time since the last call.
        """
        if self._network is None:
            return Retraining.WAITING
        with self._lock:
            result = self._tuner.advance(self._reservoir, elapsed_seconds=elapsed_seconds)
            if result is Retraining.SWAPPED:
                self._network.swap(self._tuner.weights)
        return result

    def close(self) -> None:
        """Stop what still runs beside the process, and remove its files; nothing may be forecast afterwards."""
        self._tuner.close()

    def coverage(self) -> tuple[float, float]:
        """Return the shares of cluster-level truths inside the spread, for continuous series and for counts.

        NaN while none has closed; the aim is 0.8, and for counts between that and 0.95.
        """
        continuous, counts = self._cluster.fleet.calibration.coverage
        return float(continuous), float(counts)

    @property
    def network_answers(self) -> bool:
        """Whether the neural network answered the newest forecast; true where the policy does not ask for it."""
        return self._network is None or self._network_answered

    def drifted(self) -> tuple[str, ...]:
        """Name the cluster-level series whose error jumped within the last thirty minutes."""
        return self._cluster.drifted()

    def _networks(self) -> tuple[Lstm, ...]:
        return () if self._network is None else (self._network,)

    def _deadline(self, at: float) -> Callable[[], bool]:
        clock = self._clock
        return lambda: clock is not None and clock() > at


@dataclasses.dataclass(frozen=True, slots=True)
class _Told:
    """What is handed out of one fleet."""

    names: tuple[str, ...]
    quantiles: FloatArray
    models: tuple[str, ...]
    error_ratio: FloatArray
    rung: str
    network: bool


class _Track:
    """One fleet with its memory."""

    def __init__(self, members: tuple[Forecaster, ...], horizon: int, *, nodes_of: str | None = None) -> None:
        self.describer = Describer(horizon=horizon, nodes_of=nodes_of)
        self.fleet = Fleet(members)

    def forecast(self, frame: SeriesFrame, covariates: FloatArray, reservoir: Reservoir) -> _Told:
        """Take in a frame, learn from what has closed, and forecast what is known of it."""
        self.fleet.reindex(self.describer.merge(frame))
        for member in self.fleet.members:
            if isinstance(member, DampedEts | Arima):
                member.follow(self.describer.names)
        step = self.describer.step
        due = self.fleet.due_at(step)
        if due is not None:
            actual = self.describer.actual(due)
            closed = self.fleet.close(actual)
            if closed is not None:
                reservoir.add(closed, actual)
        batch = self.describer.batch(covariates)
        served = self.fleet.forecast(batch, step=step)
        shown = np.flatnonzero(self.describer.known()[: len(frame.names)])
        return _Told(
            names=tuple(frame.names[row] for row in shown),
            quantiles=served.quantiles[shown],
            models=self._models(served, shown),
            error_ratio=self.fleet.selection.error_ratio()[shown],
            rung=self._rung(served, trusted=bool(batch.trusted[shown].any())),
            network=any(
                answered
                for member, answered in zip(self.fleet.members, served.answered, strict=True)
                if isinstance(member, Lstm)
            ),
        )

    def drifted(self) -> tuple[str, ...]:
        return tuple(self.describer.names[row] for row in np.flatnonzero(self.fleet.selection.drifted))

    def _models(self, served: Served, shown: NDArray[np.int64]) -> tuple[str, ...]:
        names = self.fleet.selection.members
        labels = np.array([[one if one == other else f"{one}+{other}" for other in names] for one in names])
        return tuple(labels[served.median[shown], served.spread[shown]].tolist())

    def _rung(self, served: Served, *, trusted: bool) -> str:
        if not trusted:
            return "last_value"
        learned = any(
            answered and not isinstance(member, LastValue | Smoothing | DampedTrend)
            for member, answered in zip(self.fleet.members, served.answered, strict=True)
        )
        return "selected" if learned else "smoothing"
