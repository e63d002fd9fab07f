"""The guard tick: what watches the scheduler between the cycles, and steps in at once.

    orders -> a few safety metrics -> the settings: keep them -> breaker, degradation -> policy mode -> record

A tick writes to the journal only where something has changed: its state, or the scheduler. It runs in a thread of its
own, takes the writer's lock for a bounded write only, and never waits for a cycle.
"""

import math
import time
from dataclasses import dataclass, field, replace
from typing import Final

from structlog.contextvars import bound_contextvars

from tuner import logs
from tuner.apply.actuator import Actuator, Current
from tuner.errors import ActuatorUnavailable, PermanentError, SourceUnavailable, TunerError
from tuner.judge.breaker import LatencyBreaker, flapping, watch_latency
from tuner.judge.degradation import Degradation, watch_resources
from tuner.keeper import Keeper, Kept
from tuner.observe.glance import Glance
from tuner.people import People
from tuner.record.encoding import decode, encode
from tuner.record.exporter import Exporter
from tuner.record.journal import Journal
from tuner.record.ticks import Tick
from tuner.settings.model import Policy, TunerMode
from tuner.standing import Standing
from tuner.values.knobs import KnobValues, SchedulerMode
from tuner.values.metrics import METRIC_INDEX
from tuner.values.safety import BreakerState, Reading, SettingsState
from tuner.values.stages import CycleRecord, Receipt, StageFailure
from tuner.writer import Change, Writer

STATE_NAME: Final = "guard"
"""Name under which the journal keeps its state."""

RETRY_SECONDS: Final = 30.0
"""Pause after a policy mode that could not be set: a scheduler that hangs is not hammered (assumption)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardState:
    """What one tick leaves for the next.

    Attributes:
        breaker: The latency breaker.
        degradation: Whether only high-priority work is served.
        retry_at_seconds: When a policy mode that could not be set is tried again; NaN where none waits.
    """

    breaker: LatencyBreaker = field(default_factory=LatencyBreaker)
    degradation: Degradation = field(default_factory=Degradation)
    retry_at_seconds: float = math.nan

    @property
    def wanted(self) -> SchedulerMode:
        """Policy mode that the two ask for.

        A scheduler that cannot keep up comes first: without it nobody is served, whatever the priority.
        """
        if self.breaker.state is BreakerState.OPEN:
            return SchedulerMode.SIMPLIFIED
        return SchedulerMode.PRIORITY_ONLY if self.degradation.active else SchedulerMode.FULL


class Guard:
    """Watches one scheduler between the cycles; call it from one thread."""

    def __init__(
        self,
        *,
        policy: Policy,
        glance: Glance,
        actuator: Actuator,
        writer: Writer,
        keeper: Keeper,
        people: People,
        journal: Journal,
        metrics: Exporter,
    ) -> None:
        """Take the parts, and resume from what the journal remembers."""
        self._policy = policy
        self.glance: Final = glance
        """The guard's eyes."""
        self._actuator = actuator
        self._writer = writer
        self._keeper = keeper
        self._people = people
        self._journal = journal
        self._metrics = metrics
        self._log = logs.get("guard")
        limits = policy.limits()
        settings = policy.guard
        threshold = settings.latency_breaker.threshold_seconds
        wait = settings.degradation.max_high_priority_wait_seconds
        self.threshold_seconds: Final = (
            float(limits[METRIC_INDEX["scheduling_latency_seconds"]]) if threshold is None else threshold
        )
        """Scheduling latency beyond which the breaker counts; NaN where there is no breaker."""
        self._wait_limit = float(limits[METRIC_INDEX["high_priority_wait_seconds"]]) if wait is None else wait
        stored = journal.load_state(STATE_NAME)
        self._state = GuardState() if stored is None else decode(GuardState, stored)
        self._newest_latency = math.nan

    @property
    def state(self) -> GuardState:
        """What the next tick will remember."""
        return self._state

    def tick(self, *, at_seconds: float, delay_seconds: float = 0.0) -> tuple[CycleRecord, ...]:
        """Look once, and step in where needed; returns what was noted, which is mostly nothing.

        Args:
            at_seconds: Now.
            delay_seconds: How much later than planned the tick began, for the record of its health.

        Raises:
            JournalError: The journal cannot be written, so nothing may be done.
        """
        started = time.perf_counter()
        noted = list(self._people.obey(at_seconds=at_seconds))
        reading = self._read(at_seconds)
        live, kept = self._settings(noted, at_seconds)
        if reading is not None:
            self._advance(reading, live, noted)
        if live is not None:
            self._steer(live, noted, at_seconds)
        self._tell(reading, kept, at_seconds, delay_seconds, time.perf_counter() - started)
        return tuple(noted)

    def _read(self, at_seconds: float) -> Reading | None:
        try:
            return self.glance.read(at_seconds=at_seconds)
        except SourceUnavailable as error:
            self._log.warning("guard_blind", reason=error.reason, detail=str(error))
            return None

    # The settings.

    def _settings(self, noted: list[CycleRecord], at_seconds: float) -> tuple[Current | None, Kept | None]:
        """Read the settings and keep them; None where they are not known, or have just been changed."""
        number = self._journal.next_cycle_id
        live: Current | None = None
        try:
            live = self._actuator.read()
            kept = self._keeper.keep(live, cycle_id=number, at_seconds=at_seconds)
        except ActuatorUnavailable as error:
            self._keeper.state = SettingsState.UNREADABLE
            self._log.warning("settings_unreadable", reason=error.reason, detail=str(error))
            return None, None
        except PermanentError as error:
            kept = self._keeper.garbage(error, cycle_id=number, at_seconds=at_seconds)
        if kept is None:
            return live, None
        self._note(noted, kept.decision, kept.reason, at_seconds, receipt=kept.receipt)
        return None, kept

    # The breakers.

    def _advance(self, reading: Reading, live: Current | None, noted: list[CycleRecord]) -> None:
        before, settings = self._state, self._policy.guard
        mode = self._writer.standing.mode if live is None else live.mode
        breaker = watch_latency(
            before.breaker,
            reading,
            threshold_seconds=self.threshold_seconds,
            settings=settings.latency_breaker,
            in_mode=mode,
            window_seconds=settings.window_seconds,
        )
        degradation = before.degradation
        if settings.degradation.enabled:
            degradation = watch_resources(
                before.degradation,
                reading,
                wait_limit_seconds=self._wait_limit,
                settings=settings.degradation,
                window_seconds=settings.window_seconds,
            )
        self._state = replace(before, breaker=breaker, degradation=degradation)
        opened = breaker.state is BreakerState.OPEN and before.breaker.state is not BreakerState.OPEN
        self._metrics.breaker_opened(opened=opened, degraded=degradation.active and not before.degradation.active)
        if breaker.state is BreakerState.CLOSED and before.breaker.state is BreakerState.HALF_OPEN:
            self._note(noted, "recover", breaker.reason, reading.at_seconds)

    def _steer(self, live: Current, noted: list[CycleRecord], at_seconds: float) -> None:
        """Bring the scheduler into the policy mode that breaker and degradation ask for."""
        state, standing, wanted = self._state, self._writer.standing, self._state.wanted
        if live.mode is wanted:
            self._state = replace(state, retry_at_seconds=math.nan)
            if standing.mode_is_theirs or standing.mode is not wanted:
                self._writer.update(mode=wanted, mode_is_theirs=False)
            return
        if standing.mode_is_theirs or at_seconds < state.retry_at_seconds:
            return
        decision, reason = _step(live.mode, state)
        forbidden = self._forbidden(standing)
        if forbidden:
            if math.isnan(state.retry_at_seconds):
                self._state = replace(state, retry_at_seconds=math.inf)
                self._note(noted, "hold", f"would {decision}: {reason}; {forbidden}", at_seconds)
            return
        self._write(live, decision, reason, noted, at_seconds)

    def _write(self, live: Current, decision: str, reason: str, noted: list[CycleRecord], at_seconds: float) -> None:
        number, wanted = self._journal.next_cycle_id(), self._state.wanted
        change = Change(
            cycle_id=number,
            at_seconds=at_seconds,
            action=decision,
            reason=reason,
            before=live.knobs,
            target=KnobValues(()),
            revision=live.revision,
            mode=wanted,
        )
        failure, receipt = None, None
        # Before the write: a process that ends behind it must know why the scheduler runs the mode that it finds.
        self._journal.save_state(STATE_NAME, encode(self._state))
        try:
            receipt = self._writer.change(change, then=lambda standing, _: replace(standing, mode=wanted))
        except TunerError as error:
            failure = StageFailure(stage="apply", reason=error.reason, detail=str(error))
        if receipt is not None and receipt.applied:
            self._state = replace(self._state, retry_at_seconds=math.nan)
            self._note(noted, decision, reason, at_seconds, receipt=receipt, number=number)
            return
        self._state = replace(self._state, retry_at_seconds=at_seconds + RETRY_SECONDS)
        detail = failure.detail if failure else receipt.detail if receipt else ""
        sentence = f"could not {decision}: {detail}; again in {RETRY_SECONDS:g} s. {reason}"
        self._note(noted, "failed", sentence, at_seconds, receipt=receipt, number=number, failure=failure)

    def _forbidden(self, standing: Standing) -> str:
        """Say why the policy mode may not be set; empty where it may. A pause stops tuning, not protection."""
        if self._policy.mode is not TunerMode.AUTO:
            return f"the tuner's mode is {self._policy.mode}"
        if not self._policy.has_modes:
            return "the scheduler has no policy modes (actuator.mode_key), so this is only watched"
        return self._writer.stopped() or (standing.frozen_because and f"frozen: {standing.frozen_because}")

    # Records.

    def _note(
        self,
        noted: list[CycleRecord],
        decision: str,
        reason: str,
        at_seconds: float,
        *,
        receipt: Receipt | None = None,
        failure: StageFailure | None = None,
        number: int | None = None,
    ) -> None:
        """Write down what a tick found or did, with the state that goes with it."""
        if receipt is not None and number is None:
            number = receipt.cycle_id
        record = CycleRecord(
            cycle_id=self._journal.next_cycle_id() if number is None else number,
            at_seconds=at_seconds,
            receipt=receipt,
            failure=failure,
            decision=decision,
            reason=reason,
        )
        with bound_contextvars(cycle_id=record.cycle_id):
            self._journal.append(record, states=self.states())
            self._metrics.noted(record)
            self._log.warning("guard_acted", decision=decision, reason=reason)
        noted.append(record)

    def states(self) -> dict[str, str]:
        """Return what the journal is to keep."""
        return {STATE_NAME: encode(self._state), **self._keeper.states(), **self._writer.states()}

    def _tell(
        self, reading: Reading | None, kept: Kept | None, at_seconds: float, delay_seconds: float, seconds: float
    ) -> None:
        latency = reading.newest("scheduling_latency_seconds") if reading is not None else math.nan
        value = reading.value("scheduling_latency_seconds") if reading is not None else math.nan
        fresh = math.isfinite(value) and not latency <= self._newest_latency
        if fresh:
            self._newest_latency = latency
        breaker, settings = self._state.breaker, self._policy.guard.latency_breaker
        self._metrics.tick(
            Tick(
                at_seconds=at_seconds,
                seconds=seconds,
                delay_seconds=delay_seconds,
                result="blind" if reading is None else "new" if fresh else "nothing_new",
                latency_beyond=(value > self.threshold_seconds) if fresh else None,
                breaker=breaker.state,
                breaker_opened_at_seconds=breaker.opened_at_seconds,
                flapping=flapping(breaker, settings, at_seconds=at_seconds),
                degraded=self._state.degradation.active,
                degraded_at_seconds=self._state.degradation.since_seconds,
                settings=self._keeper.state,
                kept=None if kept is None else kept.decision,
                heal_exhausted=self._keeper.exhausted,
                clock_offset_seconds=self.glance.clock_offset_seconds,
            )
        )


def _step(mode: SchedulerMode, state: GuardState) -> tuple[str, str]:
    """Return what changing from a policy mode to the wanted one is called, and why it is done."""
    unknown = f"nothing is known that asks for the policy mode {mode}"
    match state.wanted:
        case SchedulerMode.SIMPLIFIED:
            return "simplify", state.breaker.reason or unknown
        case SchedulerMode.PRIORITY_ONLY:
            return "protect", state.degradation.reason or unknown
    if mode is SchedulerMode.PRIORITY_ONLY:
        return "release", state.degradation.reason or unknown
    return "probe", state.breaker.reason or unknown
