"""The daemon: the loop on the wall clock, with its page, until it is told to stop.

One worker runs the cycles, so that two can never overlap; another runs what must not delay them (refits, pruning).
A cycle that comes late runs late rather than never, and missed ones are made up for by one. The page answers while
the kernels still compile, and says that it is not ready.
"""

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from tuner import logs
from tuner.settings.model import Policy
from tuner.web.app import Health, build
from tuner.serving import Server, start
from tuner.wiring import Parts

STOP_WITHIN_SECONDS: Final = 8.0
"""How long a cycle under way may still run after SIGTERM; with closing the rest it stays under ten seconds."""

_PRUNE_EVERY_SECONDS: Final = 3600.0


class Daemon:
    """The loop on the wall clock."""

    def __init__(self, policy: Policy, parts: Parts, *, now: Callable[[], float] = time.time) -> None:
        """Take the parts; nothing runs before `start`."""
        self._policy = policy
        self._parts = parts
        self._now = now
        self._log = logs.get("daemon")
        self._stopping = threading.Event()
        self._idle = threading.Lock()
        self._last_cycle_at = time.monotonic()
        self._conditions = {"kernels_compiled": False, "first_read_complete": False}
        self._scheduler: Any = None
        self._server: Server | None = None

    @property
    def url(self) -> str:
        """Base URL of the daemon's page."""
        return self._server.url if self._server else ""

    def start(self) -> None:
        """Serve the page, compile the kernels, and begin to cycle.

        Raises:
            ConfigError: The page's address cannot be used.
        """
        self._server = start(build(self._parts.metrics.registry, self.health), listen=self._policy.web.listen)
        self._log.info("page_served", url=self._server.url)
        self._parts.warm_up()
        self._conditions["kernels_compiled"] = True
        self._last_cycle_at = time.monotonic()
        self._scheduler = self._schedule()
        self._scheduler.start()
        self._log.info("daemon_started", policy=self._policy.name, mode=self._policy.mode.value)

    def stop(self) -> None:
        """Begin no further cycle, let the one under way end, and close everything; idempotent."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        if self._scheduler is not None:
            self._scheduler.shutdown(wait=False)
        # A cycle that does not end in time is abandoned: its intent stands in the journal, and the next start
        # finds out what became of it.
        ended = self._idle.acquire(timeout=STOP_WITHIN_SECONDS)
        if self._server is not None:
            self._server.stop()
        if ended:
            self._parts.close()
        self._log.info("daemon_stopped", cycle_ended=ended)

    def run(self) -> None:
        """Run until SIGTERM or SIGINT."""
        woken = threading.Event()

        def wake(number: int, _: FrameType | None) -> None:
            self._log.info("signal_received", signal=signal.Signals(number).name)
            woken.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, wake)
        self.start()
        woken.wait()
        self.stop()

    def health(self) -> Health:
        """Return what the probes are told."""
        return Health(time.monotonic() - self._last_cycle_at, self._policy.cycle.period_seconds, dict(self._conditions))

    def cycle(self) -> None:
        """Run one cycle now, unless the daemon is stopping."""
        with self._idle:
            if self._stopping.is_set():
                return
            record = self._parts.cycle.run(at_seconds=self._now())
            self._last_cycle_at = time.monotonic()
            if record.observation is not None:
                self._conditions["first_read_complete"] = True

    def _refit(self) -> None:
        if not self._stopping.is_set():
            self._parts.forecasting.refit()

    def _prune(self) -> None:
        if not self._stopping.is_set():
            with self._idle:
                self._parts.journal.prune(self._now() - self._policy.journal.retention_seconds)

    def _schedule(self) -> Any:  # noqa: ANN401 - apscheduler has no types.
        from apscheduler.executors.pool import ThreadPoolExecutor
        from apscheduler.schedulers.background import BackgroundScheduler

        scheduler = BackgroundScheduler(
            timezone="UTC",
            executors={"cycle": ThreadPoolExecutor(1), "background": ThreadPoolExecutor(1)},
            # The default grace of one second drops late runs; late is better than never, and once is enough.
            job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1},
        )
        for name, job, seconds, executor in (
            ("cycle", self.cycle, self._policy.cycle.period_seconds, "cycle"),
            ("refit", self._refit, self._policy.forecast.refit_seconds, "background"),
            ("prune", self._prune, _PRUNE_EVERY_SECONDS, "background"),
        ):
            scheduler.add_job(job, "interval", seconds=seconds, id=name, executor=executor)
        scheduler.add_job(self.cycle, id="first_cycle", executor="cycle")
        scheduler.add_listener(self._on_error, _error_events())
        return scheduler

    def _on_error(self, event: Any) -> None:  # noqa: ANN401 - apscheduler has no types.
        self._log.error("job_failed", job=event.job_id, error=repr(getattr(event, "exception", "missed")))


def _error_events() -> int:
    from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED

    mask: int = EVENT_JOB_ERROR | EVENT_JOB_MAX_INSTANCES | EVENT_JOB_MISSED
    return mask
