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
    """

    knobs: KnobValues
    mode: SchedulerMode
    revision: str
    native: Mapping[str, object]


class Actuator(Protocol):
    """What can be done to a scheduler's settings.

    Raises of both methods: `ActuatorUnavailable` where the scheduler cannot be reached, and `PermanentError` where what
    it serves cannot be understood.
    """

    def read(self) -> Current:
        """Return the settings in force."""
        ...

    def write(self, knobs: KnobValues, *, expected_revision: str, mode: SchedulerMode | None = None) -> Current:
        """Bring settings into force if nobody changed them since they were read, and read them back.

        Writing what is in force already does nothing and succeeds, whatever the revision: a write may be repeated.

        Args:
            knobs: What is wanted; roles that are not given stay.
            expected_revision: Revision of the settings that the decision was made on.
            mode: Policy mode to change to; None leaves it.

        Returns:
            What is in force afterwards, which is not what was wanted where the scheduler rounds, or did not take it up
            in time: the caller compares.

        Raises:
            ChangeConflicted: Somebody else changed the settings first; nothing was written.
            ChangeRejected: The scheduler refuses the values; nothing was written.
            ActuatorUnavailable: It is unknown whether anything was written.
        """
        ...
