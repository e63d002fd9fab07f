import pytest

from tests.support.actuators import MIDDLE
from tuner.apply.null import NoActuator
from tuner.errors import ChangeRejected
from tuner.settings.model import KnobMapping
from tuner.values.knobs import KnobValues, Role

KNOBS = {Role.RESERVATION: KnobMapping(), Role.BASE_SLICE: KnobMapping(), Role.DECISION_PERIOD: KnobMapping(absent="x")}


def test_the_middle_of_each_range_is_assumed_and_called_so() -> None:
    current = NoActuator(KNOBS).read()

    assert current.knobs == KnobValues.of({Role.BASE_SLICE: 0.115, Role.RESERVATION: 0.2})
    assert current.revision == "assumed"


def test_nothing_is_changed() -> None:
    with pytest.raises(ChangeRejected, match="the policy's actuator is none, so slice 115 ms"):
        NoActuator(KNOBS).write(MIDDLE, expected_revision="assumed")
