"""Hold-backs: when the untouched setting is put back, and what tuning turns out to be worth."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.control.holdback import hold_back, value
from tuner.control.maintenance import Span, closed_between
from tuner.settings.safety import MaintenanceWindow

HOUR = 3600.0
START = 1_767_225_600.0
"""2026-01-01 00:00 UTC."""


def windows(
    days: int, *, ratio: float = 0.05, seed: str = "f00d", nights: tuple[MaintenanceWindow, ...] = ()
) -> list[Span]:
    """Return all windows of some days, found as the loop finds them: by asking now and then."""
    found: dict[Span, None] = {}
    for minute in range(0, days * 1440, 29):
        window = hold_back(
            START + 60 * minute,
            ratio=ratio,
            window_seconds=HOUR,
            seed=seed,
            closed=lambda span: closed_between(nights, span),
        )
        if window is not None:
            found[window] = None
    return list(found)


def test_without_a_share_nothing_is_held_back() -> None:
    assert hold_back(START, ratio=0.0, window_seconds=HOUR, seed="f00d") is None


@pytest.mark.parametrize("ratio", [0.01, 0.05, 0.2])
def test_the_share_of_the_time_is_what_the_policy_asks_for(ratio: float) -> None:
    asked = [
        hold_back(START + 60 * minute, ratio=ratio, window_seconds=HOUR, seed="f00d") is not None
        for minute in range(0, 200 * 1440, 7)
    ]

    assert np.mean(asked) == pytest.approx(ratio, rel=0.03)


def test_two_processes_agree_and_two_policies_do_not() -> None:
    assert windows(20) == windows(20)
    assert not set(windows(20)) & set(windows(20, seed="beef"))


@settings(deadline=None)
@given(st.text(max_size=8), st.sampled_from([0.04, 0.1, 0.2]), st.floats(60.0, 7200.0))
def test_between_two_there_is_room_for_a_neighbour(seed: str, ratio: float, length: float) -> None:
    found = dict.fromkeys(
        hold_back(START + step * length / 4, ratio=ratio, window_seconds=length, seed=seed) for step in range(200)
    )
    spans = [span for span in found if span is not None]

    assert len(spans) >= 1
    for former, latter in pairwise(spans):
        assert latter.start_seconds - former.end_seconds >= length * (1 - 1e-6)


def test_every_hour_of_the_day_has_its_turn() -> None:
    hours = [int((window.start_seconds - START) % 86_400 // HOUR) for window in windows(365, ratio=1 / 24)]

    counts = np.bincount(hours, minlength=24)

    assert len(hours) == 365
    assert counts.min() >= 4  # 15 on average; under an even draw fewer than 4 is one in a thousand.


def test_maintenance_is_left_alone_and_the_share_is_still_met() -> None:
    nights = (MaintenanceWindow(start="20:00", end="08:00"),)

    found = windows(100, nights=nights)

    assert not any(closed_between(nights, window) for window in found)
    assert len(found) == pytest.approx(100 * 24 * 0.05, abs=2)


def test_where_maintenance_leaves_no_room_nothing_is_held_back() -> None:
    assert windows(10, nights=(MaintenanceWindow(start="00:00", end="00:00"),)) == []


@pytest.mark.parametrize("ratio", [-0.1, 0.21, math.nan])
def test_a_share_without_room_for_neighbours_is_refused(ratio: float) -> None:
    with pytest.raises(ValueError, match=r"hold_back_ratio is .*, must be 0 to 0\.2"):
        hold_back(START, ratio=ratio, window_seconds=HOUR, seed="f00d")


def test_the_value_is_the_mean_with_students_interval() -> None:
    # By hand: mean -0.05, standard deviation 0.02, error 0.01; Student's t for 3 degrees at 97.5 % is 3.182.
    found = value([-0.03, -0.07, -0.03, -0.07])

    deviation = math.sqrt(4 * 0.02**2 / 3)
    assert found.score == pytest.approx(-0.05)
    assert found.error == pytest.approx(deviation / 2)
    assert found.upper == pytest.approx(-0.05 + 3.1824 * deviation / 2, rel=1e-4)
    assert found.lower == pytest.approx(-0.05 - 3.1824 * deviation / 2, rel=1e-4)
    assert found.pairs == 4


def test_what_could_not_be_told_does_not_count() -> None:
    assert value([-0.03, math.nan, -0.07, math.inf]) == value([-0.03, -0.07])


@pytest.mark.parametrize(("ratios", "pairs"), [([], 0), ([-0.05], 1), ([math.nan, -0.05], 1)])
def test_from_one_pair_nothing_is_certain(ratios: list[float], pairs: int) -> None:
    found = value(ratios)

    assert math.isnan(found.error)
    assert math.isnan(found.lower)
    assert math.isnan(found.upper)
    assert found.pairs == pairs


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)

    held = [value(rng.normal(-0.05, 0.1, size=6)) for _ in range(2000)]

    assert np.mean([found.lower <= -0.05 <= found.upper for found in held]) == pytest.approx(0.95, abs=0.015)
