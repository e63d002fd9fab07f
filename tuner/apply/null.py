"""The actuator of a tuner that only looks."""

from collections.abc import Mapping

from tuner.apply.actuator import Current
from tuner.errors import ChangeRejected
from tuner.settings.model import KnobMapping
from tuner.values.knobs import KnobValues, Role, SchedulerMode, middle


class NoActuator:
    """Reads nothing and changes nothing."""

    def __init__(self, knobs: Mapping[Role, KnobMapping]) -> None:
        """Assume the settings in force, since nothing tells them.

        Args:
            knobs: The policy's knobs, of which each is taken to be in the middle of its range.
        """
        specs = [mapping.spec(role) for role, mapping in knobs.items() if mapping.absent is None]
        self._assumed = Current(middle(specs), SchedulerMode.FULL, "assumed", {})

    def read(self) -> Current:
        """Return what is assumed to be in force; its revision says `assumed`."""
        return self._assumed

    def write(self, knobs: KnobValues, *, expected_revision: str | None, mode: SchedulerMode | None = None) -> Current:
        """Refuse.

        Raises:
            ChangeRejected: Always.
        """
        del expected_revision, mode
        raise ChangeRejected(f"the policy's actuator is none, so {knobs.describe()} cannot be set")

    def await_effect(self, knobs: KnobValues, *, mode: SchedulerMode | None = None) -> Current:
        """Return what is assumed to be in force: nothing was written, so nothing is awaited."""
        del knobs, mode
        return self._assumed
