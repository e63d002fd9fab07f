"""Changes whose end nobody saw."""

import math

import pytest

from tuner.heal import resolve
from tuner.record.journal import Intent
from tuner.values.knobs import KnobValues, Role

BEFORE = KnobValues.of({Role.BASE_SLICE: 0.100, Role.RESERVATION: 0.20})
TARGET = KnobValues.of({Role.BASE_SLICE: 0.110, Role.RESERVATION: 0.20})
OTHER = KnobValues.of({Role.BASE_SLICE: 0.130, Role.RESERVATION: 0.20})


def intent(action: str = "apply") -> Intent:
    return Intent(
        cycle_id=7,
        at_seconds=100.0,
        action=action,
        before=BEFORE,
        target=TARGET,
        expected_revision="r1",
        reason="queue wait 12 -> 10 s",
    )


@pytest.mark.parametrize(
    ("action", "live", "remembered", "applied", "restore"),
    [
        pytest.param("apply", BEFORE, BEFORE, False, None, id="killed before the write"),
        pytest.param("apply", TARGET, BEFORE, True, BEFORE, id="killed after the write: nobody would watch it"),
        pytest.param("apply", TARGET, TARGET, True, None, id="killed after it was put on trial"),
        pytest.param("apply", OTHER, BEFORE, False, None, id="somebody set something else since"),
        pytest.param("roll_back", TARGET, BEFORE, True, None, id="killed after a roll-back: that is where to be"),
        pytest.param("roll_back", BEFORE, BEFORE, False, None, id="killed before a roll-back"),
    ],
)
def test_an_open_intent_is_closed_by_what_is_found(
    action: str, live: KnobValues, remembered: KnobValues, applied: bool, restore: KnobValues | None
) -> None:
    resolution = resolve(intent(action), live, revision="r2", remembered=remembered, at_seconds=400.0)

    assert resolution.receipt.applied is applied
    assert resolution.receipt.after == live
    assert resolution.restore == restore
    assert math.isnan(resolution.receipt.effective_at_seconds) is not applied
