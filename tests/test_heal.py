"""Changes whose end nobody saw, and settings that are not as they were left."""

import math
from dataclasses import replace

import pytest

from tuner.apply.actuator import Current
from tuner.heal import drift, resolve, restoration
from tuner.record.journal import Intent
from tuner.standing import Standing
from tuner.values.knobs import DESIGN_RANGES, KnobSpec, KnobValues, Role, SchedulerMode
from tuner.values.safety import SettingsState

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


def live(knobs: KnobValues, mode: SchedulerMode = SchedulerMode.FULL, instance: str = "") -> Current:
    return Current(knobs, mode, "r2", {}, instance)


@pytest.mark.parametrize(
    ("action", "found", "applied", "restore"),
    [
        pytest.param("apply", BEFORE, False, None, id="killed before the write"),
        pytest.param("apply", TARGET, True, BEFORE, id="killed after the write: nobody would watch it"),
        pytest.param("apply", OTHER, False, None, id="somebody set something else since"),
        pytest.param("switch", TARGET, True, BEFORE, id="killed in a switch: the trial knows the leg before"),
        pytest.param("drill", TARGET, True, BEFORE, id="killed in a drill"),
        pytest.param("roll_back", TARGET, True, None, id="killed after a roll-back: that is where to be"),
        pytest.param("roll_back", BEFORE, False, None, id="killed before a roll-back"),
        pytest.param("heal", TARGET, True, None, id="killed after healing"),
    ],
)
def test_an_open_intent_is_closed_by_what_is_found(
    action: str, found: KnobValues, applied: bool, restore: KnobValues | None
) -> None:
    resolution = resolve(intent(action), live(found), at_seconds=400.0)

    assert resolution.receipt.applied is applied
    assert resolution.receipt.after == found
    assert resolution.restore == restore
    assert math.isnan(resolution.receipt.effective_at_seconds) is not applied


@pytest.mark.parametrize(
    ("mode", "applied"), [(SchedulerMode.SIMPLIFIED, True), (SchedulerMode.FULL, False)], ids=["in force", "not"]
)
def test_an_open_change_of_the_policy_mode_is_closed_by_the_mode_alone(mode: SchedulerMode, applied: bool) -> None:
    opened = replace(intent("simplify"), target=KnobValues(()), mode=SchedulerMode.SIMPLIFIED)

    resolution = resolve(opened, live(OTHER, mode), at_seconds=400.0)

    assert resolution.receipt.applied is applied
    assert resolution.restore is None


SPECS = (KnobSpec(role=Role.BASE_SLICE, low=0.08, high=0.15, step=0.005, slew=0.02), DESIGN_RANGES[Role.RESERVATION])
OUTSIDE = KnobValues.of({Role.BASE_SLICE: 4.9, Role.RESERVATION: 0.20})
LACKING = KnobValues.of({Role.BASE_SLICE: 0.1})


@pytest.mark.parametrize(
    ("found", "state", "said"),
    [
        pytest.param(live(BEFORE), SettingsState.OURS, "", id="as it was left"),
        pytest.param(live(OTHER), SettingsState.CONTESTED, "slice 130 ms", id="a valid edit"),
        pytest.param(live(OUTSIDE), SettingsState.INVALID, "4.9, outside 0.08..0.15", id="out of bounds"),
        pytest.param(live(LACKING), SettingsState.INVALID, "reservation_ratio is missing", id="missing"),
        pytest.param(live(OTHER, instance="two"), SettingsState.LOST, "restarted", id="defaults after a restart"),
        pytest.param(live(BEFORE, instance="two"), SettingsState.OURS, "", id="a restart that kept the settings"),
        pytest.param(live(BEFORE, SchedulerMode.SIMPLIFIED), SettingsState.CONTESTED, "policy mode", id="the mode"),
    ],
)
def test_an_edit_is_told_from_what_nobody_can_have_meant(found: Current, state: SettingsState, said: str) -> None:
    seen = drift(found, Standing(knobs=BEFORE, instance="one"), SPECS, at_seconds=400.0)

    assert seen.state is state
    assert said in seen.sentence


@pytest.mark.parametrize(
    ("found", "at_seconds", "state"),
    [
        pytest.param(TARGET, 490.0, SettingsState.LOST, id="ours, late"),
        pytest.param(TARGET, 400.0 + 901.0, SettingsState.CONTESTED, id="the same, much later"),
        pytest.param(OTHER, 490.0, SettingsState.CONTESTED, id="another setting"),
        pytest.param(BEFORE, 490.0, SettingsState.OURS, id="still as it was left"),
    ],
)
def test_a_change_that_was_given_up_and_comes_late_is_nobody_s_edit(
    found: KnobValues, at_seconds: float, state: SettingsState
) -> None:
    standing = Standing(knobs=BEFORE, overdue=TARGET, overdue_at_seconds=400.0)

    assert drift(live(found), standing, SPECS, at_seconds=at_seconds).state is state


def test_before_anything_was_left_everything_is_as_it_should_be() -> None:
    assert drift(live(OUTSIDE), Standing(), SPECS, at_seconds=400.0).state is SettingsState.OURS


@pytest.mark.parametrize(
    ("standing", "similar", "on_trial", "target"),
    [
        pytest.param(Standing(knobs=TARGET, known_good=BEFORE), (), False, TARGET, id="what was left"),
        pytest.param(Standing(knobs=TARGET, known_good=BEFORE), (), True, BEFORE, id="what was left is on trial"),
        pytest.param(Standing(knobs=TARGET, known_good=BEFORE), (OTHER,), False, OTHER, id="good for a similar load"),
        pytest.param(Standing(knobs=TARGET), (OUTSIDE,), False, TARGET, id="a similar one out of bounds"),
        pytest.param(Standing(knobs=OUTSIDE, known_good=LACKING), (), False, None, id="nothing within bounds"),
    ],
)
def test_the_last_known_good_setting_for_a_similar_load_is_restored(
    standing: Standing, similar: tuple[KnobValues, ...], on_trial: bool, target: KnobValues | None
) -> None:
    assert restoration(standing, similar, SPECS, on_trial=on_trial) == target
