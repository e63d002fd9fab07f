"""What the parts of the loop have left in a journal, read without asking a running tuner.

Each part keeps its state under a name of its own; whoever reads them all stands above them all.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from tuner.caution import Caution
from tuner.control.permission import Permission, permission, stop_reason
from tuner.control.state import STATE_NAME as CONTROL_STATE_NAME
from tuner.control.state import Control
from tuner.guard import STATE_NAME as GUARD_STATE_NAME
from tuner.guard import GuardState
from tuner.keeper import STATE_NAME as KEEPER_STATE_NAME
from tuner.keeper import Progress
from tuner.memory import STATE_NAME as MEMORY_STATE_NAME
from tuner.memory import Memory
from tuner.people import DRILL_STATE_NAME, Drilled
from tuner.record.encoding import decode
from tuner.record.journal import Journal
from tuner.record.policy import kept_policy
from tuner.record.summary import cycles
from tuner.settings.model import Policy
from tuner.settings.safety import ChangeBreakerSettings, ControlSettings, GuardSettings
from tuner.standing import STATE_NAME as STANDING_STATE_NAME
from tuner.standing import Standing
from tuner.values.stages import CycleRecord

T = TypeVar("T")

_DRILL_SECONDS: Final = 600.0
"""Time around the end of a drill within which its record is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """What the parts of the loop have left in a journal.

    Attributes:
        at_seconds: Time of the newest record: what counts by the day counts back from it.
        now_seconds: Present time, which people, windows and cool-downs go by.
        newest: Newest cycle; None before the first.
        drill: Record of the newest drill; None where there was none, or it was pruned.
    """

    at_seconds: float
    now_seconds: float
    newest: CycleRecord | None
    policy: Policy | None
    guard: GuardState
    standing: Standing
    progress: Progress
    control: Control
    memory: Memory
    permission: Permission
    drilled: Drilled
    drill: CycleRecord | None
    guard_settings: GuardSettings = field(default_factory=GuardSettings)
    change_settings: ChangeBreakerSettings = field(default_factory=ChangeBreakerSettings)

    @property
    def caution(self) -> Caution:
        """What the tuner holds against itself."""
        return self.memory.caution


def load(journal: Journal, *, now_seconds: float) -> States | None:
    """Return what the parts have left; None before anything was recorded.

    Args:
        journal: Of the tuner.
        now_seconds: Present time.

    Raises:
        JournalError: A state cannot be read.
    """
    records = journal.records(limit=1)
    if not records:
        return None
    policy = kept_policy(journal)
    settings = ControlSettings() if policy is None else policy.control
    control = _state(journal, CONTROL_STATE_NAME, Control)
    drilled = _state(journal, DRILL_STATE_NAME, Drilled)
    memory = journal.load_state(MEMORY_STATE_NAME)
    # The environment of the tuner's process is not known here.
    stop = stop_reason(settings, Path(journal.path), {})
    return States(
        at_seconds=records[-1].at_seconds,
        now_seconds=now_seconds,
        newest=newest_cycle(journal),
        policy=policy,
        guard=_state(journal, GUARD_STATE_NAME, GuardState),
        standing=_state(journal, STANDING_STATE_NAME, Standing),
        progress=_state(journal, KEEPER_STATE_NAME, Progress),
        control=control,
        memory=Memory() if memory is None else Memory.from_json(memory),
        permission=permission(control, settings, at_seconds=now_seconds, stop=stop),
        drilled=drilled,
        drill=_drill(journal, drilled),
        guard_settings=GuardSettings() if policy is None else policy.guard,
        change_settings=ChangeBreakerSettings() if policy is None else policy.change_breaker,
    )


def _state(journal: Journal, name: str, kind: type[T]) -> T:
    stored = journal.load_state(name)
    return kind() if stored is None else decode(kind, stored)


def _drill(journal: Journal, drilled: Drilled) -> CycleRecord | None:
    at = drilled.at_seconds
    if math.isnan(at):
        return None
    near = journal.records(since_seconds=at - _DRILL_SECONDS, until_seconds=at + _DRILL_SECONDS)
    return next((record for record in reversed(near) if record.decision == "drill"), None)


def newest_cycle(journal: Journal) -> CycleRecord | None:
    """Return the newest cycle, None before the first; guard ticks and orders may have been noted since, mostly few."""
    for limit in (10, 100, None):
        found = cycles(journal.records(limit=limit))
        if found:
            return found[-1]
    return None
