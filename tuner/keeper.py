"""Keeps the settings as they were left, and yields to people: what cycle and guard do alike about what they find.

First, changes whose end an earlier process did not see are finished or undone; then the settings in force are compared
with what was left. Invalid and lost ones are restored, with attempts and pauses; a valid edit is adopted, or everything
is frozen, as the policy says.
"""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tuner import logs
from tuner.apply.actuator import Current
from tuner.errors import TunerError
from tuner.heal import Drift, drift, resolve, restoration
from tuner.record.encoding import decode, encode
from tuner.record.journal import Intent, Journal
from tuner.settings.model import Policy, TunerMode
from tuner.settings.safety import OnContest
from tuner.standing import Standing
from tuner.values.knobs import KnobValues
from tuner.values.safety import SettingsState
from tuner.values.stages import CycleRecord, Receipt, StageFailure
from tuner.writer import Change, Writer

STATE_NAME: Final = "keeper"
"""Name under which the journal keeps its progress."""

SIMILAR: Final = 3
"""Verified settings of similar loads that are looked at for one within bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a restoration has come.

    Attributes:
        attempts: Attempts that failed, in a row.
        next_at_seconds: When the next one is due; NaN where none is waited for.
        told: What was last told without being acted on, so that it is told once.
    """

    attempts: int = 0
    next_at_seconds: float = math.nan
    told: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What was done about the settings.

    Attributes:
        state: What they were found to be.
        decision: What was done, as one word: `adopted`, `frozen`, `heal`, `roll_back`, `hold` or `failed`.
        reason: Why, in one sentence.
        receipt: What was written; None where nothing was.
    """

    state: SettingsState
    decision: str
    reason: str
    receipt: Receipt | None = None


class Keeper:
    """Keeps the settings of one scheduler; safe to be asked by cycle and guard at once: the later one passes."""

    def __init__(self, policy: Policy, writer: Writer, journal: Journal, *, on_trial: Callable[[], bool]) -> None:
        """Resume from the journal.

        Args:
            policy: Bounds, attempts, and what to do about an edit.
            writer: The hand on the scheduler.
            journal: Verified settings, and changes whose end is not known.
            on_trial: Whether the setting in force is on trial, and so not known to be good.
        """
        self._policy = policy
        self._specs = policy.knob_specs()
        self._writer = writer
        self._journal = journal
        self._on_trial = on_trial
        self._busy = threading.Lock()
        self._started = False
        self._log = logs.get("keeper")
        stored = journal.load_state(STATE_NAME)
        self._progress = Progress() if stored is None else decode(Progress, stored)
        self.state = SettingsState.OURS
        """What the settings were found to be when they were last looked at."""

    @property
    def exhausted(self) -> bool:
        """Whether restoring was given up after all attempts."""
        return self._progress.attempts >= self._policy.guard.healing.max_attempts

    def states(self) -> dict[str, str]:
        """Return what the journal is to keep of it."""
        return {STATE_NAME: encode(self._progress)}

    def keep(self, live: Current, *, cycle_id: Callable[[], int], at_seconds: float) -> Kept | None:
        """Finish or undo what was left open, restore what was lost, and yield to others.

        Args:
            live: The settings in force.
            cycle_id: Gives the number under which a change or a finding is noted; asked at most once.
            at_seconds: Now.

        Returns:
            What was done; None where everything is as it should be, or was told already.
        """
        if not self._busy.acquire(blocking=False):
            return None
        try:
            if self._writer.in_flight:
                return None
            return self._resume(live, cycle_id, at_seconds) or self._compare(live, cycle_id, at_seconds)
        finally:
            self._busy.release()

    def garbage(self, error: TunerError, *, cycle_id: Callable[[], int], at_seconds: float) -> Kept | None:
        """Restore settings that cannot even be understood.

        Args:
            error: Why they cannot.
            cycle_id: As for `keep`.
            at_seconds: Now.
        """
        if self._writer.in_flight or not self._busy.acquire(blocking=False):
            return None
        try:
            self.state = SettingsState.INVALID
            found = Drift(SettingsState.INVALID, f"the settings cannot be understood: {error}")
            return self._restore(found, KnobValues(()), None, cycle_id, at_seconds)
        finally:
            self._busy.release()

    # What an earlier process left open.

    def _resume(self, live: Current, cycle_id: Callable[[], int], at_seconds: float) -> Kept | None:
        self._recover_records(at_seconds)
        done = None
        for intent in self._journal.open_intents():
            done = self._close(intent, live, cycle_id, at_seconds)
            if done is not None:
                break  # The settings have changed: the others are looked at in the next cycle or tick.
        self._started = True
        return done

    def _recover_records(self, at_seconds: float) -> None:
        """Note the cycles that ended between their change and their record, so that none is missing.

        Those of an earlier process at once; those of this one, whose record the journal refused at the time, once they
        cannot be under way any more.
        """
        oldest_running = at_seconds - 2 * self._policy.cycle.period_seconds
        for intent in self._journal.unrecorded():
            if self._started and intent.at_seconds > oldest_running:
                continue
            begun = f"it had begun: {intent.reason}"
            reason = f"the record of this cycle could not be written, or the process ended before; {begun}"
            self._journal.append(
                CycleRecord(
                    cycle_id=intent.cycle_id,
                    at_seconds=intent.at_seconds,
                    receipt=self._journal.receipt(intent.cycle_id),
                    failure=StageFailure(stage="record", reason="interrupted", detail=reason),
                    decision="failed",
                    reason=reason,
                )
            )

    def _close(self, intent: Intent, live: Current, cycle_id: Callable[[], int], at_seconds: float) -> Kept | None:
        resolution = resolve(intent, live, at_seconds=at_seconds)
        if resolution.restore is None:
            if resolution.receipt.applied:
                self._writer.update(**_taken_over(resolution.receipt, intent, live))
            self._journal.end_change(resolution.receipt, states=self._writer.states())
            if not resolution.receipt.applied or intent.action != "roll_back":
                return None
            reason = f"the roll-back of cycle {intent.cycle_id} was {resolution.receipt.detail}: {intent.reason}"
            # Told under a number of its own: that of the change stands for the cycle that began it.
            receipt = replace(resolution.receipt, cycle_id=cycle_id())
            return Kept(state=SettingsState.OURS, decision="roll_back", reason=reason, receipt=receipt)
        reason = f"the process ended before the change of cycle {intent.cycle_id} could be put on trial"
        if not self._may_act:
            return self._tell(SettingsState.OURS, f"would roll back: {reason}; {self._forbidden}")
        receipt = self._writer.change(
            Change(
                cycle_id=cycle_id(),
                at_seconds=at_seconds,
                action="roll_back",
                reason=reason,
                before=live.knobs,
                target=resolution.restore,
                revision=live.revision,
            ),
            then=lambda standing, receipt: replace(standing, knobs=receipt.after, changed_at_seconds=at_seconds),
        )
        if not receipt.applied:  # The intent stays open, so that the next look tries again.
            return Kept(state=SettingsState.OURS, decision="failed", reason=receipt.detail, receipt=receipt)
        self._journal.end_change(resolution.receipt)
        return Kept(state=SettingsState.OURS, decision="roll_back", reason=reason, receipt=receipt)

    # What somebody else did.

    def _compare(self, live: Current, cycle_id: Callable[[], int], at_seconds: float) -> Kept | None:
        standing = self._writer.standing
        found = drift(live, standing, self._specs, at_seconds=at_seconds)
        self.state = found.state
        match found.state:
            case SettingsState.OURS:
                self._settled(live, standing)
                return None
            case SettingsState.CONTESTED:
                return self._yield(found, live, at_seconds)
            case _:
                return self._restore(found, live.knobs, live, cycle_id, at_seconds)

    def _settled(self, live: Current, standing: Standing) -> None:
        self._progress = Progress()
        if standing.knobs is None:
            self._writer.update(
                knobs=live.knobs,
                known_good=live.knobs,
                untouched=live.knobs,
                mode=live.mode,
                instance=live.instance,
            )
        elif live.instance and live.instance != standing.instance:
            self._writer.update(instance=live.instance)

    def _yield(self, found: Drift, live: Current, at_seconds: float) -> Kept:
        """Step back where somebody else has set the scheduler: adopt it, or freeze."""
        standing = self._writer.standing
        freeze = self._policy.guard.healing.on_contest is OnContest.FREEZE
        moved = bool(standing.knobs and standing.knobs.differs(live.knobs))
        self._writer.update(
            knobs=live.knobs,
            known_good=live.knobs if moved else standing.known_good,
            mode=live.mode,
            mode_is_theirs=standing.mode_is_theirs or live.mode is not standing.mode,
            changed_at_seconds=at_seconds if moved else standing.changed_at_seconds,
            frozen_because=found.sentence if freeze else standing.frozen_because,
        )
        decision, advice = ("frozen", "; `clocktuner adopt` goes on from it") if freeze else ("adopted", "")
        return Kept(state=found.state, decision=decision, reason=found.sentence + advice)

    def _restore(
        self,
        found: Drift,
        before: KnobValues,
        live: Current | None,
        cycle_id: Callable[[], int],
        at_seconds: float,
    ) -> Kept | None:
        progress, healing = self._progress, self._policy.guard.healing
        if self.exhausted or at_seconds < progress.next_at_seconds:
            return None
        if not self._may_act:
            return self._tell(found.state, f"would restore the settings: {found.sentence}; {self._forbidden}")
        target = self._target()
        if target is None:
            return self._tell(found.state, f"{found.sentence}; no known setting is within bounds, so none is restored")
        change = Change(
            cycle_id=cycle_id(),
            at_seconds=at_seconds,
            action="heal",
            reason=found.sentence,
            before=before,
            target=target,
            revision=live.revision if live is not None else None,
        )
        receipt, trouble = self._write(change, live)
        if receipt is not None and receipt.applied:
            self._progress = Progress()
            self.state = SettingsState.OURS
            reason = f"{found.sentence}; restored: {receipt.after.describe()}"
            return Kept(state=found.state, decision="heal", reason=reason, receipt=receipt)
        pause = min(healing.back_off_seconds * 2**progress.attempts, healing.max_back_off_seconds)
        self._progress = replace(progress, attempts=progress.attempts + 1, next_at_seconds=at_seconds + pause)
        last = "given up" if self.exhausted else f"again in {pause:g} s"
        reason = (
            f"{found.sentence}; restoring failed, attempt {self._progress.attempts} of {healing.max_attempts}, {last}: "
            f"{trouble or (receipt.detail if receipt else '')}"
        )
        return Kept(state=found.state, decision="failed", reason=reason, receipt=receipt)

    def _write(self, change: Change, live: Current | None) -> tuple[Receipt | None, str]:
        """Restore a setting; returns the receipt, or why there is none."""

        def then(standing: Standing, receipt: Receipt) -> Standing:
            instance = live.instance if live is not None else standing.instance
            mode = live.mode if live is not None else standing.mode
            at_seconds = change.at_seconds
            return replace(standing, knobs=receipt.after, instance=instance, mode=mode, changed_at_seconds=at_seconds)

        try:
            return self._writer.change(change, then=then), ""
        except TunerError as error:
            return None, str(error)

    def _target(self) -> KnobValues | None:
        standing = self._writer.standing
        similar = self._journal.similar(np.array(standing.context), SIMILAR) if standing.context else ()
        return restoration(
            standing, [remembered.knobs for remembered in similar], self._specs, on_trial=self._on_trial()
        )

    @property
    def _may_act(self) -> bool:
        return not self._forbidden

    @property
    def _forbidden(self) -> str:
        """Why nothing may be written; empty where it may."""
        standing = self._writer.standing
        if self._policy.mode is not TunerMode.AUTO:
            return f"the tuner's mode is {self._policy.mode}"
        return self._writer.stopped() or (standing.frozen_because and f"frozen: {standing.frozen_because}")

    def _tell(self, state: SettingsState, sentence: str) -> Kept | None:
        """Say what would be done, once."""
        if self._progress.told == sentence:
            return None
        self._progress = replace(self._progress, told=sentence)
        return Kept(state=state, decision="hold", reason=sentence)


def _taken_over(receipt: Receipt, intent: Intent, live: Current) -> dict[str, object]:
    """Return what stands after a change that happened unseen."""
    standing: dict[str, object] = {"instance": live.instance}
    if intent.target:
        standing |= {"knobs": receipt.after, "changed_at_seconds": intent.at_seconds}
    if intent.mode is not None:
        standing |= {"mode": live.mode}
    return standing
