"""A thread that does one thing at a steady pace, by a clock that no correction moves."""

import threading
import time
from collections.abc import Callable

from tuner import logs


class Ticker:
    """Calls a function every so many seconds until it is stopped; a late call is made at once, missed ones are not.

    The pace is kept by monotonic time: setting the clock of the machine neither stops it nor makes it hurry.
    """

    def __init__(
        self,
        name: str,
        period_seconds: float,
        call: Callable[[float], None],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing is called before `start`.

        Args:
            name: Name of the thread, and of what it does, for the log.
            period_seconds: Distance of two calls.
            call: What is done; it is told how many seconds late it is. What it raises is logged, and ends nothing.
            monotonic: Seconds.
        """
        self._name = name
        self._period = period_seconds
        self._call = call
        self._monotonic = monotonic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._log = logs.get(name)

    def start(self) -> None:
        """Begin; the first call is made at once."""
        self._thread.start()

    def stop(self, *, within_seconds: float) -> bool:
        """Make no further call, and say whether the one under way has ended in time."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(within_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        due = self._monotonic()
        while not self._stopping.wait(max(0.0, due - self._monotonic())):
            late = max(0.0, self._monotonic() - due)
            if late >= self._period:
                due += late
            try:
                self._call(late)
            except Exception:  # noqa: BLE001 - A bug in one call must not end all later ones.
                self._log.exception("tick_crashed")
            due += self._period
