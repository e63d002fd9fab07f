"""One scheduler of the demonstration behind the real HTTP interface, while its time stands still between two steps.

The tuner talks to it as it does to any scheduler; only that nobody waits for time to pass.
"""

from dataclasses import dataclass

from starlette.applications import Starlette

from tuner.demo.world import START_AT_SECONDS, Run
from tuner.reference.demand import DemandForecast
from tuner.reference.documents import ReplayClock
from tuner.reference.pacing import Progress
from tuner.reference.server import Service
from tuner.reference.settings import ClockSettings


@dataclass(slots=True)
class LockStep:
    """What the HTTP interface needs of a scheduler whose time somebody else advances.

    Requests must only come between two steps; the demonstration's loop sees to that.
    """

    run: Run
    origin_seconds: float = START_AT_SECONDS
    failure: BaseException | None = None

    @property
    def progress(self) -> Progress:
        """Where the scheduler is."""
        clock = ReplayClock(origin_seconds=self.origin_seconds, speed=1.0)
        return Progress(self.run.scheduler.snapshot(), clock, behind_seconds=0.0, round=1)

    def configure(self, settings: ClockSettings) -> None:
        """Hand over settings; they are in force from the next decision on."""
        self.run.scheduler.configure(settings)

    def set_forecast(self, forecast: DemandForecast) -> None:
        """Hand over a forecast."""
        self.run.scheduler.set_forecast(forecast)


def application(run: Run, settings: ClockSettings, *, origin_seconds: float = START_AT_SECONDS) -> Starlette:
    """Return the HTTP interface of a run whose time 0 is a Unix time."""
    return Service(LockStep(run, origin_seconds), settings).application()
