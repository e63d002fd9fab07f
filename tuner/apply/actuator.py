"""The port through which settings are read and written."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tuner.values.knobs import KnobValues, SchedulerMode


@dataclass(frozen=True, slots=True)
class Current:
    """The settings in force.

    Attributes:
        knobs: Those that the policy maps, in their roles' units.
        mode: Policy mode.
        revision: Opaque; differs whenever the scheduler's settings differ.
        native: The scheduler's own settings, as read; whatever is in them beyond the knobs is left alone.
        instance: Identity of the scheduler's process, other after a restart; empty where it tells none.
    """

    knobs: KnobValues
    mode: SchedulerMode
    revision: str
    native: Mapping[str, object]
    instance: str = ""


class Actuator(Protocol):
    """What can be done to a scheduler's settings.

    Raises of both methods: `ActuatorUnavailable` where the scheduler cannot be reached, and `PermanentError` where what
    it serves cannot be understood.
    """

    def read(self) -> Current:
        """Return the settings in force."""
        ...

    def write(self, knobs: KnobValues, *, expected_revision: str | None, mode: SchedulerMode | None = None) -> Current:
        """Ask for settings if nobody changed them since they were read, and read back once; bounded in time.

        Writing what is in force already does nothing and succeeds, whatever the revision: a write may be repeated.

        Args:
            knobs: What is wanted; roles that are not given stay.
            expected_revision: Revision of the settings that the decision was made on; None to write over whatever
                is there, which only the restoring of settings that nobody can have meant may do.
            mode: Policy mode to change to; None leaves it.

        Returns:
            What is served right afterwards: not yet what was wanted where the scheduler takes its time or rounds.

        Raises:
            ChangeConflicted: Somebody else changed the settings first; nothing was written.
            ChangeRejected: The scheduler refuses the values; nothing was written.
            ActuatorUnavailable: It is unknown whether anything was written.
        """
        ...

    def await_effect(self, knobs: KnobValues, *, mode: SchedulerMode | None = None) -> Current:
        """Read until settings are in force, or the time that the policy gives the scheduler for it is up.

        Returns:
            What was read last; the caller compares.

        Raises:
            ActuatorUnavailable: The last try to read had no answer.
        """
        ...
