"""The daemon: the loop on the wall clock, with its page, until it is told to stop.

One worker runs the cycles, so that two can never overlap; another runs what must not delay them (refits, fine-tuning,
pruning). A cycle that comes late runs late rather than never, and missed ones are made up for by one. The guard ticks
in a thread of its own, by monotonic time, from the first second on: it needs no kernels. It also wakes a cycle that is
overdue because the clock was set back. The page answers while the kernels still compile, and says that it is not ready.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from tuner import logs
from tuner.serving import Server, start
from tuner.settings.model import Policy
from tuner.ticker import Ticker
from tuner.web.app import Health, build
from tuner.wiring import Parts

STOP_WITHIN_SECONDS: Final = 8.0
"""How long a cycle under way may still run after SIGTERM; with closing the rest it stays under ten seconds."""

EXIT_ABANDONED: Final = 1
"""Exit status where the cycle under way did not end in that time."""

_LOOK_EVERY_SECONDS: Final = 0.2
"""How soon a signal is noticed."""

_OVERDUE_SECONDS: Final = 5.0
"""How long after its time a cycle that has not begun is woken: a clock that was set back would let it wait as long."""

_PRUNE_EVERY_SECONDS: Final = 3600.0
_RETRAIN_EVERY_SECONDS: Final = 3600.0
"""Steps of fine-tuning: one starts a child, the next looks at what it left; a day has twelve tries."""


class Daemon:
    """The loop on the wall clock."""

    def __init__(
        self,
        policy: Policy,
        parts: Parts,
        *,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the parts; nothing runs before `start`.

        Args:
            policy: Periods, and where the page is.
            parts: The loop; the daemon closes it.
            now: Unix seconds, the time of each cycle.
            monotonic: Seconds that no correction of the clock moves, by which the loop's health is told.
        """
        self._policy = policy
        self._parts = parts
        self._now = now
        self._monotonic = monotonic
        self._log = logs.get("daemon")
        self._stopping = threading.Event()
        self._failed = threading.Event()
        self._idle = threading.Lock()
        self._failure: Exception | None = None
        self._ended = False
        self._last_cycle_at = self._cycle_began_at = monotonic()
        self._quiet = True
        self._guard = Ticker("guard", policy.guard.period_seconds, self.guard, monotonic=monotonic)
        self._last_retrain_at = monotonic()
        self._conditions = {"kernels_compiled": False, "first_read_complete": False}
        self._scheduler: Any = None
        self._server: Server | None = None

    @property
    def url(self) -> str:
        """Base URL of the daemon's page; empty before it is served."""
        return self._server.url if self._server else ""

    def start(self) -> None:
        """Serve the page, and let the workers compile the kernels and begin to cycle; returns at once.

        Raises:
            ConfigError: The page's address cannot be used, or the folder for people's orders cannot be made.
        """
        self._parts.people.prepare()
        self._server = start(build(self._parts.metrics.registry, self.health), listen=self._policy.web.listen)
        self._log.info("page_served", url=self._server.url)
        self._scheduler = _scheduler(self._on_trouble)
        self._every(self._policy.cycle.period_seconds, self.cycle, executor="cycle", next_run_time=datetime.now(UTC))
        self._every(self._policy.forecast.refit_seconds, self.refit)
        self._every(_RETRAIN_EVERY_SECONDS, self.retrain)
        self._every(_PRUNE_EVERY_SECONDS, self.prune)
        self._scheduler.start()
        self._guard.start()

    def stop(self) -> bool:
        """Begin no further cycle or tick, let those under way end, and close everything; idempotent.

        Returns:
            Whether everything has ended. Where it has not, what runs is abandoned: its intent stands in the journal,
            and the next start finds out what became of it.
        """
        if self._stopping.is_set():
            return self._ended
        self._stopping.set()
        if self._scheduler is not None:
            self._scheduler.shutdown(wait=False)
        started = time.monotonic()
        ended = self._idle.acquire(timeout=STOP_WITHIN_SECONDS)
        left = max(0.0, STOP_WITHIN_SECONDS - (time.monotonic() - started))
        watched = self._guard.stop(within_seconds=left)
        if self._server is not None:
            self._server.stop()
        self._parts.forecasting.close()
        self._ended = ended and watched
        if self._ended:
            self._parts.close()
        if ended:
            self._idle.release()  # A job that waits for it sees that the daemon has stopped, and ends.
        self._log.info("daemon_stopped", cycle_ended=ended, guard_ended=watched)
        return self._ended

    def run(self) -> None:
        """Run until SIGTERM or SIGINT.

        Raises:
            ConfigError: The page's address cannot be used.
            Exception: The kernels cannot be compiled, so that no cycle can ever run.
        """
        received: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            # A handler may come in the midst of anything that this thread does, so it takes no lock and logs nothing.
            signal.signal(number, lambda number, _: received.append(number))
        try:
            self.start()
            while not received and not self._failed.wait(_LOOK_EVERY_SECONDS):
                pass
            if received:
                self._log.info("signal_received", signal=signal.Signals(received[0]).name)
        finally:
            if not self.stop():
                # Python would wait for the thread of the cycle before it exits, however long that hangs.
                logging.shutdown()
                os._exit(EXIT_ABANDONED)
        if self._failure is not None:
            raise self._failure

    def health(self) -> Health:
        """Return what the probes are told; compiling the kernels takes its time, and is no sign of death."""
        age = self._monotonic() - self._last_cycle_at if self._conditions["kernels_compiled"] else 0.0
        return Health(age, self._policy.cycle.period_seconds, dict(self._conditions))

    def cycle(self) -> None:
        """Run one cycle now, unless the daemon is stopping; the first one compiles the kernels before.

        Raises:
            JournalError: The journal cannot be written, so nothing was done.
        """
        with self._idle:
            if self._stopping.is_set():
                return
            if not self._conditions["kernels_compiled"]:
                self._compile()
            self._cycle_began_at = self._monotonic()
            record = self._parts.cycle.run(at_seconds=self._now(), quiet=self._quiet)
            self._quiet = False
            self._last_cycle_at = self._monotonic()
            if record.observation is not None:
                self._conditions["first_read_complete"] = True

    def guard(self, delay_seconds: float = 0.0) -> None:
        """Run one guard tick now, and wake a cycle that is overdue.

        Raises:
            JournalError: The journal cannot be written, so nothing was done.
        """
        try:
            self._parts.guard.tick(at_seconds=self._now(), delay_seconds=delay_seconds)
        finally:
            self._wake()

    def _wake(self) -> None:
        overdue = self._monotonic() - self._cycle_began_at - self._policy.cycle.period_seconds > _OVERDUE_SECONDS
        if not overdue or self._idle.locked() or self._stopping.is_set() or self._scheduler is None:
            return
        self._cycle_began_at = self._monotonic()
        self._log.warning("cycle_woken", reason="it was overdue by monotonic time: was the clock set back?")
        self._scheduler.modify_job("cycle", next_run_time=datetime.now(UTC))

    def refit(self) -> None:
        """Fit the statistical models to what was seen, beside the cycles."""
        if not self._stopping.is_set():
            self._parts.forecasting.refit()

    def retrain(self) -> None:
        """Take the next step of fine-tuning the network, beside the cycles."""
        if self._stopping.is_set():
            return
        now = self._monotonic()
        result = self._parts.forecasting.retrain(elapsed_seconds=now - self._last_retrain_at)
        self._last_retrain_at = now
        self._log.info("network_retrained", result=str(result))

    def prune(self) -> None:
        """Delete from the journal what has passed its retention."""
        with self._idle:
            if not self._stopping.is_set():
                self._parts.journal.prune(self._now() - self._policy.journal.retention_seconds)

    def _compile(self) -> None:
        try:
            self._parts.warm_up()
        except Exception as error:
            # Without kernels no cycle can ever run: better to end and say so than to look alive.
            self._failure = error
            self._failed.set()
            raise
        self._last_cycle_at = self._monotonic()
        self._conditions["kernels_compiled"] = True
        self._log.info("daemon_started", policy=self._policy.name, mode=self._policy.mode.value)

    def _every(self, seconds: float, job: Callable[[], None], *, executor: str = "background", **options: Any) -> None:  # noqa: ANN401
        self._scheduler.add_job(job, "interval", seconds=seconds, id=job.__name__, executor=executor, **options)

    def _on_trouble(self, event: Any) -> None:  # noqa: ANN401 - apscheduler has no types.
        """Log a job that failed, or that was left out because it still runs; neither ends anything."""
        if getattr(event, "exception", None) is None:
            self._log.warning("job_skipped", job=event.job_id, reason="the run before it has not ended")
        else:
            self._log.error("job_failed", job=event.job_id, error=repr(event.exception), traceback=event.traceback)


def _scheduler(on_trouble: Callable[[Any], None]) -> Any:  # noqa: ANN401 - apscheduler has no types.
    from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.schedulers.background import BackgroundScheduler

    # It would tell the same a second time.
    logging.getLogger("apscheduler").setLevel(logging.CRITICAL)
    scheduler = BackgroundScheduler(
        timezone="UTC",
        executors={"cycle": ThreadPoolExecutor(1), "background": ThreadPoolExecutor(1)},
        # The default grace of one second drops late runs; late is better than never, and once is enough.
        job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1},
    )
    scheduler.add_listener(on_trouble, EVENT_JOB_ERROR | EVENT_JOB_MAX_INSTANCES | EVENT_JOB_MISSED)
    return scheduler
