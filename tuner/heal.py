"""What to do about settings that are not as they were left, and about changes that nobody saw the end of.

Pure: the caller (`tuner.keeper`) does what is returned. A valid edit by somebody else is never undone; what nobody can
have meant is: values outside the policy's bounds, and what a restart of the scheduler brought back.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tuner.apply.actuator import Current
from tuner.record.journal import Intent
from tuner.standing import Standing
from tuner.values.knobs import KnobSpec, KnobValues
from tuner.values.safety import SettingsState
from tuner.values.stages import Receipt

UNWATCHED: Final = frozenset({"apply", "switch", "drill", "hold_back"})
"""Changes that are only good while somebody watches them; all others lead back to what is known."""


@dataclass(frozen=True, slots=True)
class Drift:
    """How the settings in force differ from what was left.

    Attributes:
        state: What they are.
        sentence: What was seen; empty where nothing differs.
    """

    state: SettingsState
    sentence: str = ""


def drift(live: Current, standing: Standing, specs: Iterable[KnobSpec], *, at_seconds: float) -> Drift:
    """Compare the settings in force with what was left.

    Args:
        live: The settings in force.
        standing: What was left; where nothing was yet, everything is as it should be.
        specs: Knobs of the policy with their bounds.
        at_seconds: Now.
    """
    ours = standing.knobs
    if ours is None:
        return Drift(SettingsState.OURS)
    moved = ours.differs(live.knobs)
    mode_moved = live.mode is not standing.mode
    if not moved and not mode_moved:
        return Drift(SettingsState.OURS)
    restarted = bool(standing.instance and live.instance and standing.instance != live.instance)
    if restarted:
        return Drift(
            SettingsState.LOST,
            f"the scheduler restarted and came back with {live.knobs.describe()}, policy mode {live.mode}",
        )
    if moved and standing.came_late(live.knobs, at_seconds):
        late = f"a change that had been given up came into force after {at_seconds - standing.overdue_at_seconds:.0f} s"
        return Drift(SettingsState.LOST, f"{late}: {live.knobs.describe()}; nobody watches it")
    wrong = [fault for spec in specs if spec.role in moved for fault in _faults(spec, live.knobs)]
    if wrong:
        return Drift(SettingsState.INVALID, f"nobody can have meant this: {'; '.join(wrong)}")
    seen = [f"{', '.join(moved)}; now in force: {live.knobs.describe()}"] if moved else []
    seen += [f"the policy mode to {live.mode}"] if mode_moved else []
    return Drift(SettingsState.CONTESTED, f"somebody else set {'; and '.join(seen)}")


def _faults(spec: KnobSpec, live: KnobValues) -> Iterable[str]:
    value = live.get(spec.role, math.nan)
    if math.isnan(value):
        yield f"{spec.role} is missing"
    elif not spec.contains(value):
        yield f"{spec.role} is {value:g}, outside {spec.low:g}..{spec.high:g}"


def restoration(
    standing: Standing, similar: Iterable[KnobValues], specs: Iterable[KnobSpec], *, on_trial: bool
) -> KnobValues | None:
    """Return the setting to go back to: the last known good one for a similar load, else what was left.

    Args:
        standing: What was left, and the newest known good setting.
        similar: Verified settings of similar loads, the most alike first.
        specs: Knobs of the policy: what is outside their bounds is no candidate.
        on_trial: Whether what was left is on trial, and so not known to be good.

    Returns:
        A setting with a value for every knob; None where nothing qualifies.
    """
    knobs = tuple(specs)
    last = (standing.known_good, standing.knobs) if on_trial else (standing.knobs, standing.known_good)
    for candidate in (*similar, *last):
        if candidate is not None and all(spec.contains(candidate.get(spec.role, math.nan)) for spec in knobs):
            return candidate
    return None


@dataclass(frozen=True, slots=True)
class Resolution:
    """How an open intent is closed.

    Attributes:
        receipt: What came of it.
        restore: Setting to go back to, because what is in force was never put on trial; None where nothing is to do.
    """

    receipt: Receipt
    restore: KnobValues | None


def resolve(intent: Intent, live: Current, *, at_seconds: float) -> Resolution:
    """Say what came of a change whose receipt is missing.

    The intent is in the journal before the scheduler is written, so one of three things is found: the change did not
    happen, it happened, or somebody has set something else since.

    Args:
        intent: The change as it was meant.
        live: The settings in force.
        at_seconds: Now.

    Returns:
        The receipt, and the setting to restore: what was in force before, where the change happened but the process
        ended before it could be put on trial. A change that nobody watches is not left in force.
    """
    happened = not intent.target.differs(live.knobs) and intent.mode in (None, live.mode)
    untouched = not intent.before.differs(live.knobs) and (intent.mode is None or not happened)
    if happened:
        detail = "found in force after the process had ended"
    elif untouched:
        detail = "found not to have happened"
    else:
        detail = f"found something else in force: {live.knobs.describe()}"
    unwatched = happened and not untouched and intent.action in UNWATCHED
    return Resolution(
        receipt=Receipt(
            cycle_id=intent.cycle_id,
            before=intent.before,
            after=live.knobs,
            revision=live.revision,
            effective_at_seconds=at_seconds if happened else math.nan,
            applied=happened,
            detail=detail,
            mode=live.mode if intent.mode is not None else None,
        ),
        restore=intent.before if unwatched else None,
    )
