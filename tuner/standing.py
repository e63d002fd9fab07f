"""What stands: the settings as they were left in force, and what cycle and guard must both know of them."""

import math
from dataclasses import dataclass
from typing import Final

from tuner.values.knobs import KnobValues, SchedulerMode

STATE_NAME: Final = "standing"
"""Name under which the journal keeps it."""

DAY_SECONDS: Final = 86_400.0

OVERDUE_SECONDS: Final = 900.0
"""How long a change that was given up may still come into force: what is mounted into a container shows after 20 to
120 s as a rule; beyond a quarter of an hour, somebody else has set the same (assumption)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What was left in force, and what is known of it.

    Attributes:
        knobs: Setting that we left in force, or adopted; None before anything was read.
        mode: Policy mode that we left in force, or adopted.
        instance: Identity of the scheduler's process when the setting was left; empty where it has none.
        known_good: Newest setting that was verified, adopted, or found at the start; None before anything was read.
        untouched: Setting that was found at the very first start: what tuning is measured against.
        mode_is_theirs: Whether somebody else has chosen the policy mode: breaker and degradation then leave it.
        context: Load of the newest cycle, by which a known good setting for a similar load is found.
        frozen_because: Why nothing is changed until a person says so; empty where nothing is frozen.
        changed_at_seconds: When a knob was last changed, by whomever; NaN where it never was.
        changes: When changes were tried, within the last day.
        overdue: Setting that was written and given up, because it did not become effective in time; it may yet, and is
            then nobody's edit. None where nothing is overdue.
        overdue_at_seconds: When it was written; NaN where nothing is overdue.
    """

    knobs: KnobValues | None = None
    mode: SchedulerMode = SchedulerMode.FULL
    instance: str = ""
    known_good: KnobValues | None = None
    untouched: KnobValues | None = None
    mode_is_theirs: bool = False
    context: tuple[float, ...] = ()
    frozen_because: str = ""
    changed_at_seconds: float = math.nan
    changes: tuple[float, ...] = ()
    overdue: KnobValues | None = None
    overdue_at_seconds: float = math.nan

    def changes_today(self, at_seconds: float) -> tuple[float, ...]:
        """Return when changes were tried in the last 24 hours.

        Times in the future, which a clock that was set back leaves behind, count.
        """
        return tuple(time for time in self.changes if time > at_seconds - DAY_SECONDS)

    def came_late(self, live: KnobValues, at_seconds: float) -> bool:
        """Say whether a setting in force is a change of ours that was given up before it became effective."""
        in_time = abs(at_seconds - self.overdue_at_seconds) <= OVERDUE_SECONDS
        return self.overdue is not None and in_time and not self.overdue.differs(live)
