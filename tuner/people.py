"""What people ask of a running tuner: their orders are taken from the spool, done, noted and answered.

An order is done at most once: the receipt of what it wrote and the note that it is done are one transaction of the
journal, and only then is it answered and taken out of the spool.
"""

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tuner import logs
from tuner.apply.actuator import Actuator
from tuner.control import drill, spool
from tuner.control.drill import DrillResult
from tuner.control.orders import Order, OrderKind
from tuner.control.permission import Permission, permission
from tuner.control.state import STATE_NAME, Approval, Control, applied, noted
from tuner.errors import ConfigError, TunerError
from tuner.record.encoding import decode, encode
from tuner.record.exporter import Exporter
from tuner.record.journal import Journal
from tuner.settings.model import Policy, TunerMode
from tuner.standing import Standing
from tuner.values.stages import CycleRecord, Receipt
from tuner.writer import Change, Writer

DRILL_STATE_NAME: Final = "drill"
"""Name under which the journal keeps when the newest drill ended."""


@dataclass(frozen=True, slots=True)
class Drilled:
    """When the newest roll-back drill ended; NaN before the first."""

    at_seconds: float = math.nan


@dataclass(frozen=True, slots=True)
class _Done:
    """What came of an order."""

    outcome: spool.Outcome
    sentence: str
    receipt: Receipt | None = None
    decision: str = "order"


def _done(sentence: str) -> _Done:
    return _Done(spool.Outcome.DONE, sentence)


def _refused(sentence: str) -> _Done:
    return _Done(spool.Outcome.REFUSED, sentence)


class People:
    """Obeys people; `obey` is for one thread, the rest for several."""

    def __init__(
        self,
        policy: Policy,
        *,
        actuator: Actuator,
        writer: Writer,
        journal: Journal,
        metrics: Exporter,
        on_trial: Callable[[], bool],
    ) -> None:
        """Resume from the journal.

        Args:
            policy: How far the tuner may go, maintenance windows, and when drills are due.
            actuator: Reads the settings.
            writer: Writes them.
            journal: Keeps what was said, and what came of it.
            metrics: What is exported.
            on_trial: Whether a change is on trial: no drill may disturb it.
        """
        self._policy = policy
        self._actuator = actuator
        self._writer = writer
        self._journal = journal
        self._metrics = metrics
        self._on_trial = on_trial
        self._folder = spool.folder_of(Path(policy.journal.path))
        self._lock = threading.Lock()
        self._log = logs.get("people")
        said, drilled = journal.load_state(STATE_NAME), journal.load_state(DRILL_STATE_NAME)
        self._control = Control() if said is None else decode(Control, said)
        self._drilled = Drilled() if drilled is None else decode(Drilled, drilled)

    @property
    def control(self) -> Control:
        """What stands of what people have said."""
        return self._control

    def permission(self, at_seconds: float) -> Permission:
        """Return whether people and the clock let the tuner change anything."""
        stop = self._writer.stopped()
        return permission(self._control, self._policy.control, at_seconds=at_seconds, stop=stop)

    def approval(self) -> Approval | None:
        """Return the newest yes of a person that was not used yet; None where there is none."""
        return self._control.approvals[-1] if self._control.approvals else None

    def used(self, approval: Approval) -> None:
        """Forget a yes: the change was made, or it cannot be made any more."""
        with self._lock:
            left = tuple(other for other in self._control.approvals if other.cycle_id != approval.cycle_id)
            self._control = replace(self._control, approvals=left)

    def prepare(self) -> None:
        """Make the spool, so that it belongs to the user that the tuner runs as.

        Raises:
            ConfigError: It cannot be made.
        """
        spool.prepare(self._folder)

    def states(self) -> dict[str, str]:
        """Return what the journal is to keep."""
        return {STATE_NAME: encode(self._control), DRILL_STATE_NAME: encode(self._drilled)}

    def obey(self, *, at_seconds: float) -> tuple[CycleRecord, ...]:
        """Do what waits in the spool, and a drill that is due; returns what was noted.

        Raises:
            JournalError: The journal cannot be written, so nothing was done.
        """
        collected = spool.collect(self._folder, at_seconds=at_seconds, known=self._control.done)
        for refused in collected.refused:
            self._log.warning("order_refused", file=refused.name, reason=refused.reason)
        told = [self._order(order, at_seconds) for order in collected.orders]
        every = self._policy.control.drill_every_seconds
        scheduled = drill.due(self._drilled.at_seconds, every_seconds=every, at_seconds=at_seconds)
        if scheduled and not self._on_trial() and self.permission(at_seconds).allowed and self._may_write:
            done = self._drill(self._journal.next_cycle_id(), at_seconds, "drill by the schedule", {})
            told.append(self._note(done, f"drill by the schedule: {done.sentence}", at_seconds))
        return tuple(told)

    @property
    def _may_write(self) -> bool:
        return self._policy.mode is not TunerMode.OBSERVE

    def _order(self, order: Order, at_seconds: float) -> CycleRecord:
        number = self._journal.next_cycle_id()
        done = self._do(order, number, at_seconds)
        with self._lock:
            noting = applied if done.outcome is spool.Outcome.DONE else noted
            self._control = noting(self._control, order)
        record = self._note(done, f"{order.describe()}: {done.sentence}", at_seconds, number=number)
        answer = spool.Answer(
            order_id=order.order_id,
            outcome=done.outcome,
            sentence=done.sentence,
            at_seconds=at_seconds,
            cycle_id=record.cycle_id,
        )
        try:
            spool.done(self._folder, answer)
        except ConfigError as error:  # It waits on, and is known as done when it is collected again.
            self._log.warning("order_not_answered", order_id=order.order_id, reason=str(error))
        return record

    def _do(self, order: Order, number: int, at_seconds: float) -> _Done:
        acts: dict[OrderKind, Callable[[], _Done]] = {
            OrderKind.ADOPT: lambda: self._adopt(at_seconds),
            OrderKind.ROLL_BACK: lambda: self._roll_back(order, number, at_seconds),
            OrderKind.DRILL: lambda: self._drill(number, at_seconds, order.describe(), self._obeyed(order)),
            OrderKind.RESUME: self._resume,
            OrderKind.APPROVE: lambda: _done(f"the next cycle makes the change of cycle {order.cycle_id}"),
        }
        try:
            return acts.get(order.kind, lambda: _done("done"))()
        except TunerError as error:
            return _Done(spool.Outcome.FAILED, str(error))

    def _resume(self) -> _Done:
        self._writer.update(frozen_because="")
        return _done("tuning goes on")

    def _adopt(self, at_seconds: float) -> _Done:
        live = self._actuator.read()
        specs = self._policy.knob_specs()
        wrong = [spec.role for spec in specs if not spec.contains(live.knobs.get(spec.role, math.nan))]
        if wrong:
            sentence = (
                f"{', '.join(wrong)} is out of the policy's bounds or missing: set it, or widen the bounds, first"
            )
            return _refused(sentence)
        self._writer.update(
            knobs=live.knobs,
            known_good=live.knobs,
            mode=live.mode,
            mode_is_theirs=False,
            frozen_because="",
            changed_at_seconds=at_seconds,
        )
        return _Done(spool.Outcome.DONE, f"adopted: {live.knobs.describe()}", decision="adopted")

    def _roll_back(self, order: Order, number: int, at_seconds: float) -> _Done:
        target = order.knobs or self._writer.standing.known_good
        if not self._may_write:
            return _refused(f"the tuner's mode is {self._policy.mode}: it writes nothing")
        if target is None:
            return _refused("no setting is known to be good yet")
        live = self._actuator.read()
        change = Change(
            cycle_id=number,
            at_seconds=at_seconds,
            action="roll_back",
            reason=order.describe(),
            before=live.knobs,
            target=target,
            revision=live.revision,
        )
        obeyed = self._obeyed(order)
        receipt = self._writer.change(change, then=_stands(at_seconds), states=lambda _: obeyed)
        outcome = spool.Outcome.DONE if receipt.applied else spool.Outcome.FAILED
        return _Done(outcome, receipt.detail, receipt, decision="roll_back" if receipt.applied else "failed")

    def _obeyed(self, order: Order) -> dict[str, str]:
        """Return what is kept together with the receipt of an order, so that no crash makes it be obeyed twice."""
        return {STATE_NAME: encode(applied(self._control, order))}

    def _drill(self, number: int, at_seconds: float, reason: str, states: Mapping[str, str]) -> _Done:
        if not self._may_write:
            return _refused(f"the tuner's mode is {self._policy.mode}: it writes nothing")
        if self._on_trial():
            return _refused("a change is on trial, which a drill would disturb")
        if self._writer.stopped():
            return _refused(f"nothing is written: {self._writer.stopped()}")
        live = self._actuator.read()
        mappings = self._policy.knobs
        planned = drill.exercise(
            self._policy.knob_specs(),
            live.knobs,
            written=[role for role, mapping in mappings.items() if mapping.native],
            words=[role for role, mapping in mappings.items() if mapping.choices],
        )
        if planned is None:
            return _refused("no knob can be moved by one step without disruption")
        rehearsed = self._writer.rehearse(
            Change(
                cycle_id=number,
                at_seconds=at_seconds,
                action="drill",
                reason=reason,
                before=live.knobs,
                target=planned.during,
                revision=live.revision,
            ),
            states=states,
        )
        result = drill.result(
            planned,
            apply_seconds=rehearsed.apply_seconds,
            effective_seconds=rehearsed.effective_seconds,
            restore_seconds=rehearsed.restore_seconds,
            trouble="" if rehearsed.receipt.applied else rehearsed.receipt.detail,
        )
        return self._drilled_with(result, rehearsed.receipt, at_seconds)

    def _drilled_with(self, result: DrillResult, receipt: Receipt, at_seconds: float) -> _Done:
        self._drilled = Drilled(at_seconds)
        self._metrics.drilled(at_seconds=at_seconds, passed=result.passed, restore_seconds=result.restore_seconds)
        outcome = spool.Outcome.DONE if result.passed else spool.Outcome.FAILED
        return _Done(outcome, result.sentence, receipt, decision="drill")

    def _note(self, done: _Done, reason: str, at_seconds: float, *, number: int | None = None) -> CycleRecord:
        record = CycleRecord(
            cycle_id=done.receipt.cycle_id if done.receipt else number or self._journal.next_cycle_id(),
            at_seconds=at_seconds,
            receipt=done.receipt,
            decision=done.decision,
            reason=reason,
        )
        self._journal.append(record, states={**self.states(), **self._writer.states()})
        self._metrics.noted(record)
        self._log.warning("order_done", cycle_id=record.cycle_id, decision=record.decision, reason=reason)
        return record


def _stands(at_seconds: float) -> Callable[[Standing, Receipt], Standing]:
    def stands(standing: Standing, receipt: Receipt) -> Standing:
        return replace(standing, knobs=receipt.after, known_good=receipt.after, changed_at_seconds=at_seconds)

    return stands
