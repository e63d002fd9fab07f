"""The only hand on the scheduler. Cycle and guard both write through it, and nothing is written past it.

    lock:  intent into the journal -> compare-and-set write
           (without the lock: until the value is seen to be in force)
    lock:  receipt and all that must be known with it, in one transaction

The intent is on the disk before the scheduler is written. Wherever the process ends, the next one finds an intent
without a receipt, or a receipt with the memory that belongs to it. The lock is never held while a value is awaited: a
guard that has to put the scheduler into another mode need not wait for a slow scheduler to take up a knob.
"""

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tuner import logs
from tuner.apply.actuator import Actuator, Current
from tuner.apply.native import settle
from tuner.errors import ActuatorUnavailable, ChangeConflicted, ChangeRejected
from tuner.record.encoding import decode, encode
from tuner.record.journal import Intent, Journal
from tuner.settings.model import KnobMapping
from tuner.standing import STATE_NAME, Standing
from tuner.values.knobs import KnobSpec, KnobValues, Role, SchedulerMode
from tuner.values.stages import Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change that is to be made.

    Attributes:
        cycle_id: Number of the cycle or tick that makes it.
        at_seconds: When it was decided.
        action: Why it is made, as one word.
        reason: The same in one sentence.
        before: Setting in force, as it was read.
        target: Setting wanted; empty where only the mode changes.
        revision: Revision that the scheduler must still have; None to write over whatever is there.
        mode: Policy mode wanted; None where it stays.
    """

    cycle_id: int
    at_seconds: float
    action: str
    reason: str
    before: KnobValues
    target: KnobValues
    revision: str | None
    mode: SchedulerMode | None = None


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What came of a change that was made and undone.

    Attributes:
        receipt: The last write.
        apply_seconds: Until the scheduler had taken the change; NaN where it was not asked.
        effective_seconds: Until it was seen in force; NaN where it was not.
        restore_seconds: From asking for the setting before until it was back; NaN where it did not come back.
    """

    receipt: Receipt
    apply_seconds: float
    effective_seconds: float
    restore_seconds: float


class Writer:
    """Writes the scheduler, one change after the other, and knows what it left in force; safe for several threads."""

    def __init__(
        self,
        actuator: Actuator,
        journal: Journal,
        *,
        specs: tuple[KnobSpec, ...],
        mappings: Mapping[Role, KnobMapping],
        stop: Callable[[], str] = lambda: "",
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Resume from what the journal knows to be in force.

        Args:
            actuator: Reaches the scheduler.
            journal: Where every change is noted before it is made.
            specs: Knobs of the policy; a value outside their bounds is never written.
            mappings: How the scheduler rounds them.
            stop: Says why nothing at all may be written now; empty where it may. Asked before each write.
            clock: Monotonic seconds, by which is told when a value came into force; None where time is simulated and
                stands still meanwhile.
        """
        self._actuator = actuator
        self._journal = journal
        self._specs = {spec.role: spec for spec in specs}
        self._mappings = mappings
        self._stop = stop
        self._lock = threading.RLock()
        self._clock = clock
        self._in_flight: set[int] = set()
        self._log = logs.get("writer")
        stored = journal.load_state(STATE_NAME)
        self._standing = Standing() if stored is None else decode(Standing, stored)

    @property
    def standing(self) -> Standing:
        """What stands now."""
        return self._standing

    @property
    def in_flight(self) -> frozenset[int]:
        """Numbers of the changes under way: what is read meanwhile tells nothing of others."""
        with self._lock:
            return frozenset(self._in_flight)

    def stopped(self) -> str:
        """Return why nothing at all may be written; empty where it may."""
        return self._stop()

    def update(self, **changes: object) -> Standing:
        """Change what stands, without a write to the scheduler; kept with the next record or receipt."""
        with self._lock:
            self._standing = replace(self._standing, **changes)  # type: ignore[arg-type]
            return self._standing

    def states(self) -> dict[str, str]:
        """Return what the journal is to keep of it."""
        return {STATE_NAME: encode(self._standing)}

    def change(
        self,
        change: Change,
        *,
        then: Callable[[Standing, Receipt], Standing],
        states: Callable[[Receipt], Mapping[str, str]] = lambda _: {},
    ) -> Receipt:
        """Make a change; returns what came of it, seen to be in force or known not to be.

        Args:
            change: What is wanted. Its target is settled to what the scheduler can hold.
            then: What stands after a change that was applied.
            states: What else the journal is to keep together with the receipt.

        Raises:
            ActuatorUnavailable: It is unknown whether anything was written; the intent stays open.
            JournalError: The change could not be noted, and was not made; or it was made, and its end not noted.
        """
        target = settle(change.target, self._mappings)
        refused = self._refusal(change, target)
        if refused:
            return _not_applied(change, refused)
        started = self._clock() if self._clock else 0.0
        try:
            with self._lock:
                stopped = self._stop()
                if stopped:
                    return _not_applied(change, f"nothing is written: {stopped}")
                self._in_flight.add(change.cycle_id)
                self._journal.begin_change(_intent(change, target))
                current = self._write(target, change)
            receipt = self._awaited(current, target, change)
            if self._clock and receipt.applied:
                effective_at = change.at_seconds + self._clock() - started
                receipt = replace(receipt, effective_at_seconds=effective_at)
        except (ChangeConflicted, ChangeRejected) as error:
            receipt, target = _not_applied(change, str(error)), KnobValues(())
        except BaseException:
            self._landed(change)
            raise
        try:
            with self._lock:
                if receipt.applied:
                    self._standing = then(self._standing, receipt)
                self._standing = _overdue(self._standing, receipt, target, change)
                self._journal.end_change(receipt, states={**states(receipt), **self.states()})
        finally:
            self._landed(change)
        return receipt

    def rehearse(self, change: Change, *, states: Mapping[str, str]) -> Rehearsal:
        """Make a change, see it in force, and undo it: one intent, closed only when the setting before is back.

        Wherever the process ends meanwhile, the next one finds the intent open, and the setting before is restored.

        Args:
            change: What is rehearsed; its target is to be a small step.
            states: What else the journal is to keep together with the receipt.

        Raises:
            ActuatorUnavailable: It is unknown what is in force; the intent stays open.
            JournalError: It could not be noted, and was not made; or its end was not noted.
        """
        refused = self._refusal(change, change.target) or self._stop()
        if refused:
            return Rehearsal(_not_applied(change, refused), math.nan, math.nan, math.nan)
        clock = self._clock or (lambda: 0.0)
        started = clock()
        try:
            with self._lock:
                self._in_flight.add(change.cycle_id)
                self._journal.begin_change(_intent(change, change.target))
                current = self._write(change.target, change)
            asked = clock() - started
            receipt = self._awaited(current, change.target, change)
            seen = clock() - started if receipt.applied else math.nan
            restored = math.nan
            if receipt.applied:
                undone = clock()
                back = replace(change, before=receipt.after, target=change.before, revision=receipt.revision)
                with self._lock:
                    current = self._write(back.target, back)
                receipt = self._awaited(current, back.target, back)
                restored = clock() - undone if receipt.applied else math.nan
            with self._lock:
                self._standing = _overdue(self._standing, receipt, change.target, change)
                self._journal.end_change(replace(receipt, before=change.before), states={**states, **self.states()})
        finally:
            self._landed(change)
        return Rehearsal(receipt, asked, seen, restored)

    def _landed(self, change: Change) -> None:
        with self._lock:
            self._in_flight.discard(change.cycle_id)

    def _refusal(self, change: Change, target: KnobValues) -> str:
        """Say what speaks against a target whatever was decided; the last look before anything is written."""
        for role in target.differs(change.before):
            spec = self._specs.get(role)
            if spec is None or not spec.contains(target[role]):
                limits = "no knob of the policy" if spec is None else f"outside {spec.low:g}..{spec.high:g}"
                return f"{role} {target[role]:g} is {limits}; nothing was written"
        return ""

    def _write(self, target: KnobValues, change: Change) -> Current | None:
        """Ask for the setting; None where it is unknown what came of it."""
        try:
            return self._actuator.write(target, expected_revision=change.revision, mode=change.mode)
        except ActuatorUnavailable as error:
            self._log.warning("write_in_doubt", cycle_id=change.cycle_id, detail=str(error))
            return None

    def _awaited(self, current: Current | None, target: KnobValues, change: Change) -> Receipt:
        """Wait until a change is in force, and put half of one back, but not what somebody else has set meanwhile."""
        written = None if current is None else current.revision
        if current is None or not _in_force(current, target, change.mode):
            current = self._actuator.await_effect(target, mode=change.mode)
        applied = _in_force(current, target, change.mode)
        detail = f"in force: {current.knobs.describe()}" if target else f"policy mode {current.mode}"
        if not applied:
            wanted = target.describe() or f"policy mode {change.mode}"
            found = f"{current.knobs.describe()}, policy mode {current.mode}"
            detail = f"not effective in time: asked for {wanted}, but in force is {found}"
            theirs = () if current.revision == written else _of_others(current.knobs, change.before, target)
            if theirs:
                detail += f"; somebody else has set {', '.join(theirs)}, so it is left"
            elif target and current.knobs.differs(change.before):
                # Half a change is no change that anybody asked for, and nothing would watch it.
                current = self._actuator.write(change.before, expected_revision=current.revision)
                detail += "; put back"
        return Receipt(
            cycle_id=change.cycle_id,
            before=change.before,
            after=current.knobs,
            revision=current.revision,
            effective_at_seconds=change.at_seconds if applied else math.nan,
            applied=applied,
            detail=detail,
            mode=current.mode if change.mode is not None else None,
        )


def _in_force(current: Current, target: KnobValues, mode: SchedulerMode | None) -> bool:
    return not target.differs(current.knobs) and (mode is None or current.mode is mode)


def _of_others(found: KnobValues, before: KnobValues, target: KnobValues) -> tuple[Role, ...]:
    """Return the knobs that have neither the value before nor the one asked for: half a change has no others."""
    missed = target.differs(found)
    moved = (role for role in found.differs(before) if role in before)
    return tuple(role for role in moved if role in missed or role not in target)


def _overdue(standing: Standing, receipt: Receipt, target: KnobValues, change: Change) -> Standing:
    """Return what stands once a change has ended: one that was written and not seen in force may come later."""
    if not target:
        return standing
    if receipt.applied:
        return replace(standing, overdue=None, overdue_at_seconds=math.nan)
    return replace(standing, overdue=target, overdue_at_seconds=change.at_seconds)


def _intent(change: Change, target: KnobValues) -> Intent:
    return Intent(
        cycle_id=change.cycle_id,
        at_seconds=change.at_seconds,
        action=change.action,
        before=change.before,
        target=target,
        expected_revision=change.revision or "",
        reason=change.reason,
        mode=change.mode,
    )


def _not_applied(change: Change, detail: str) -> Receipt:
    return Receipt(
        cycle_id=change.cycle_id,
        before=change.before,
        after=change.before,
        revision=change.revision or "",
        effective_at_seconds=math.nan,
        applied=False,
        detail=detail,
    )
