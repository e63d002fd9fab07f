"""Runs the reference scheduler along with the wall clock, in a thread of its own.

Only that thread touches the scheduler. Others read the newest snapshot, which is replaced and never changed, and leave
what they want for the next step; so no question is kept waiting for the simulation.
"""

import threading
import time
from dataclasses import dataclass
from typing import Final

from tuner.reference import overlay
from tuner.reference.cluster import ClusterSpec
from tuner.reference.demand import DemandForecast
from tuner.reference.documents import ReplayClock
from tuner.reference.scheduler import ReferenceScheduler
from tuner.reference.settings import ClockSettings
from tuner.reference.snapshot import Snapshot
from tuner.reference.trace import Trace

TICK_SECONDS: Final = 0.05
"""Time between two steps: well under the shortest sensible scrape interval, and under a decision period."""

MAX_STEP_SECONDS: Final = 30.0
"""Longest stretch simulated at once, so that new settings and snapshots are never far, also where time is made up."""

ROUND_TASKS: Final = 500_000
"""Tasks after which no further repeat is added to a round: a few hundred megabytes."""

ROUND_SECONDS: Final = 7 * 86_400.0
"""Length after which no further repeat is added to a round."""

_STOP_WITHIN_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the replay is.

    Attributes:
        snapshot: The scheduler at the end of the last step.
        clock: How its time goes with that of the wall.
        behind_seconds: Time of the replay that it lags behind the wall; 0 where it keeps up.
        round: How often the scheduler was started afresh, from 1.
    """

    snapshot: Snapshot
    clock: ReplayClock
    behind_seconds: float
    round: int


class PacedScheduler:
    """A scheduler whose time goes on by itself.

    Its trace is repeated without end. A round is as many repeats as memory allows; after it the scheduler starts
    afresh with the settings in force, and its counters begin at 0, as when a scheduler is restarted.
    """

    def __init__(
        self, trace: Trace, cluster: ClusterSpec, *, settings: ClockSettings, seed: int, speed: float = 1.0
    ) -> None:
        """Prepare the first round; nothing runs yet.

        Args:
            trace: What is submitted.
            cluster: Where it runs.
            settings: The first setting.
            seed: Seed of all that is random.
            speed: Seconds of the replay in a second of the wall; over 0.

        Raises:
            ConfigError: The speed is not over 0, or the trace spans no time.
        """
        overlay.check_positive("speed", speed)
        overlay.check_positive("span of the trace", trace.span_seconds)
        repeats = min(ROUND_TASKS // len(trace.workload), ROUND_SECONDS // trace.span_seconds)
        self._round_trace = overlay.repeat(trace, max(int(repeats), 1))
        self._cluster = cluster
        self._seed = seed
        self._speed = speed
        self._wanted = settings
        self._forecast: DemandForecast | None = None
        self._scheduler = self._fresh(settings)
        # Compiles what is not in numba's cache, before time begins.
        self._scheduler.advance(0.0)
        self._configured = settings
        self._started_at = time.monotonic()
        self._clock = ReplayClock(origin_seconds=time.time(), speed=speed)
        self._round = 1
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reference-scheduler", daemon=True)
        self.failure: BaseException | None = None
        """What ended the thread although nobody stopped it; None while all is well."""
        self.progress = self._look()
        """Where it is; replaced after every step."""

    def start(self) -> None:
        """Let time begin."""
        self._begin_clock()
        self._thread.start()

    def stop(self) -> None:
        """Let the step under way end, and wait for the thread."""
        self._stop.set()
        self._thread.join(_STOP_WITHIN_SECONDS)

    def configure(self, settings: ClockSettings) -> None:
        """Leave a setting for the next step; the scheduler takes it up at the decision after that."""
        self._wanted = settings

    def set_forecast(self, forecast: DemandForecast) -> None:
        """Leave a forecast for the next step."""
        self._forecast = forecast

    def _fresh(self, settings: ClockSettings) -> ReferenceScheduler:
        return ReferenceScheduler(self._cluster, self._round_trace.workload, settings=settings, seed=self._seed)

    def _begin_clock(self) -> None:
        self._started_at = time.monotonic()
        self._clock = ReplayClock(origin_seconds=time.time(), speed=self._speed)

    def _target(self) -> float:
        """Return where the replay should be by now."""
        return (time.monotonic() - self._started_at) * self._speed

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._step()
                # Where time is to be made up there is no pause, but the loop may still be stopped.
                self._stop.wait(0.0 if self.progress.behind_seconds > MAX_STEP_SECONDS else TICK_SECONDS)
        except BaseException as error:  # noqa: BLE001 - whatever ends this thread has to be seen by those who wait for it.
            self.failure = error

    def _step(self) -> None:
        """Hand over what was left, simulate up to now, and publish a snapshot."""
        self._hand_over()
        target = min(self._target(), self._scheduler.now_seconds + MAX_STEP_SECONDS)
        if target >= self._round_trace.span_seconds:
            self._next_round()
        else:
            self._scheduler.advance(target)
        self.progress = self._look()

    def _hand_over(self) -> None:
        wanted, forecast = self._wanted, self._forecast
        if wanted != self._configured:
            self._scheduler.configure(wanted)
            self._configured = wanted
        if forecast is not None:
            self._scheduler.set_forecast(forecast)
            self._forecast = None

    def _next_round(self) -> None:
        self._scheduler = self._fresh(self._configured)
        self._round += 1
        self._begin_clock()

    def _look(self) -> Progress:
        snapshot = self._scheduler.snapshot()
        behind = max(self._target() - snapshot.now_seconds, 0.0)
        return Progress(snapshot, self._clock, behind, self._round)
