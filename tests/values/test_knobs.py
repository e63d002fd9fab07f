"""Knobs: grids, settings, and how far one change may go."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.values.knobs import DESIGN_RANGES, KnobSpec, KnobValues, Role, limit_slew, middle, snap

SPECS = tuple(DESIGN_RANGES.values())


@st.composite
def specs(draw: st.DrawFn) -> KnobSpec:
    low = draw(st.floats(min_value=0.01, max_value=100))
    steps = draw(st.integers(min_value=1, max_value=200))
    step = draw(st.floats(min_value=0.001, max_value=10))
    slew = step * draw(st.integers(min_value=1, max_value=50))
    return KnobSpec(role=Role.BASE_SLICE, low=low, high=low + steps * step, step=step, slew=slew)


def setting(value: float) -> KnobValues:
    return KnobValues.of({Role.BASE_SLICE: value})


@pytest.mark.parametrize(
    ("role", "low", "high", "step", "points"),
    [
        (Role.BASE_SLICE, 0.080, 0.150, 0.005, 15),
        (Role.PREDICTION_WINDOW, 600, 1200, 60, 11),
        (Role.DECISION_PERIOD, 0.5, 1.0, 0.05, 11),
        (Role.RESERVATION, 0.15, 0.25, 0.01, 11),
    ],
)
def test_the_ranges_are_those_of_the_design(role: Role, low: float, high: float, step: float, points: int) -> None:
    spec = DESIGN_RANGES[role]

    assert (spec.low, spec.high, spec.step, spec.steps + 1) == (low, high, step, points)
    assert spec.at(spec.steps) == pytest.approx(high)


@given(spec=specs(), value=st.floats(min_value=-1e4, max_value=1e4))
def test_a_snapped_value_lies_in_the_range_and_on_the_grid(spec: KnobSpec, value: float) -> None:
    snapped = spec.snap(value)

    assert spec.contains(snapped)
    assert spec.snap(snapped) == snapped


@given(spec=specs(), value=st.floats(min_value=0, max_value=1))
def test_no_grid_point_is_nearer_than_the_one_snapped_to(spec: KnobSpec, value: float) -> None:
    wanted = spec.low + value * (spec.high - spec.low)
    best = min(abs(spec.at(index) - wanted) for index in range(spec.steps + 1))

    assert abs(spec.snap(wanted) - wanted) <= best + 1e-8


@given(spec=specs(), current=st.floats(0, 1), target=st.floats(-2, 3), trust=st.floats(0.01, 1))
def test_one_change_never_goes_further_than_the_slew_nor_out_of_range(
    spec: KnobSpec, current: float, target: float, trust: float
) -> None:
    here = spec.snap(spec.low + current * (spec.high - spec.low))
    wanted = spec.low + target * (spec.high - spec.low)

    reached = limit_slew(setting(wanted), setting(here), [spec], trust=trust)[Role.BASE_SLICE]

    assert spec.contains(reached)
    assert abs(reached - here) <= max(spec.slew * trust, spec.step) + 1e-7


@given(spec=specs(), current=st.floats(-50, 50), target=st.floats(-50, 50), trust=st.floats(0.001, 1))
def test_a_change_ends_in_range_wherever_the_value_in_force_lies(
    spec: KnobSpec, current: float, target: float, trust: float
) -> None:
    here, wanted = (spec.low + share * (spec.high - spec.low) for share in (current, target))

    reached = limit_slew(setting(wanted), setting(here), [spec], trust=trust)[Role.BASE_SLICE]

    assert spec.contains(reached)
    assert spec.snap(reached) == reached


def test_a_value_in_force_far_outside_its_range_is_brought_to_the_end_of_it() -> None:
    spec = [DESIGN_RANGES[Role.BASE_SLICE]]

    assert limit_slew(setting(0.115), setting(0.010), spec)[Role.BASE_SLICE] == 0.080
    assert limit_slew(setting(0.115), setting(0.900), spec)[Role.BASE_SLICE] == 0.150


def test_less_trust_makes_smaller_steps_but_never_none() -> None:
    low, high = setting(0.080), setting(0.150)
    spec = [DESIGN_RANGES[Role.BASE_SLICE]]

    assert limit_slew(high, low, spec)[Role.BASE_SLICE] == 0.100
    assert limit_slew(high, low, spec, trust=0.5)[Role.BASE_SLICE] == 0.090
    assert limit_slew(high, low, spec, trust=0.001)[Role.BASE_SLICE] == 0.085


def test_the_middle_is_on_the_grid() -> None:
    assert middle(SPECS).describe() == "slice 115 ms, window 900 s, period 0.75 s, reservation 20 %"


def test_settings_are_equal_whatever_the_order_they_were_made_in() -> None:
    forth = KnobValues.of({Role.BASE_SLICE: 0.1, Role.RESERVATION: 0.2})
    back = KnobValues.of({Role.RESERVATION: 0.2, Role.BASE_SLICE: 0.1})

    assert forth == back
    assert hash(forth) == hash(back)
    assert list(back) == [Role.BASE_SLICE, Role.RESERVATION]


def test_an_absent_role_is_an_error_to_read_and_is_left_out_of_comparisons() -> None:
    values = setting(0.1)

    with pytest.raises(KeyError):
        values[Role.RESERVATION]
    assert snap(values, SPECS) == values
    assert values.differs(setting(0.1 + 1e-12)) == ()
    assert values.differs(setting(0.105)) == (Role.BASE_SLICE,)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_setting_is_finite(value: float) -> None:
    with pytest.raises(ValueError, match="must be a finite number"):
        setting(value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"high": 0.05}, "high is 0.05, must exceed low"),
        ({"step": 0.0}, "step is 0.0"),
        ({"step": 1.0}, "step is 1.0"),
        ({"slew": 0.001}, "slew is 0.001"),
        ({"low": math.nan}, "must be finite"),
    ],
)
def test_a_range_that_cannot_be_searched_is_refused(change: dict[str, float], message: str) -> None:
    fields = {"low": 0.08, "high": 0.15, "step": 0.005, "slew": 0.02} | change

    with pytest.raises(ValueError, match=message):
        KnobSpec(
            role=Role.BASE_SLICE,
            low=fields["low"],
            high=fields["high"],
            step=fields["step"],
            slew=fields["slew"],
        )
