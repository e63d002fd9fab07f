"""The drill: a change too small to matter, and what its times mean."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.control.drill import due, exercise, result
from tuner.values.knobs import DESIGN_RANGES, KnobSpec, KnobValues, Role, middle

SPECS = tuple(DESIGN_RANGES.values())
MIDDLE = middle(SPECS)
ALL = frozenset(Role)
WITHOUT_WINDOW = ALL - {Role.PREDICTION_WINDOW}
NOON = 1_767_268_800.0


def one(role: Role, value: float) -> KnobValues:
    return KnobValues.of({**MIDDLE, role: value})


def test_the_least_important_knob_that_the_scheduler_takes_is_moved() -> None:
    chosen = [exercise(SPECS, MIDDLE, written=written) for written in (ALL, WITHOUT_WINDOW, {Role.DECISION_PERIOD})]

    assert [planned.role for planned in chosen if planned] == [
        Role.PREDICTION_WINDOW,
        Role.BASE_SLICE,
        Role.DECISION_PERIOD,
    ]


@pytest.mark.parametrize(
    ("value", "during"), [(0.08, 0.085), (0.1, 0.105), (0.115, 0.12), (0.12, 0.115), (0.15, 0.145)]
)
def test_it_moves_one_step_towards_the_middle(value: float, during: float) -> None:
    planned = exercise(SPECS, one(Role.BASE_SLICE, value), written=WITHOUT_WINDOW)

    assert planned is not None
    assert planned.before == one(Role.BASE_SLICE, value)
    assert planned.during == one(Role.BASE_SLICE, during)
    assert planned.describe() == f"base_slice_seconds from {value:g} to {during:g} and back"


def test_knobs_that_restart_work_or_are_words_are_left_alone() -> None:
    disruptive = [replace(spec, disruptive=spec.role is Role.PREDICTION_WINDOW) for spec in SPECS]

    planned = exercise(disruptive, MIDDLE, written=ALL, words={Role.BASE_SLICE})

    assert planned is not None
    assert planned.role is Role.RESERVATION


def test_a_knob_that_somebody_has_set_out_of_range_is_left_to_healing() -> None:
    planned = exercise(SPECS, one(Role.BASE_SLICE, 7.0), written=WITHOUT_WINDOW)

    assert planned is not None
    assert planned.role is Role.RESERVATION


@pytest.mark.parametrize("written", [frozenset(), frozenset({Role.RESERVATION})])
def test_where_nothing_can_be_moved_there_is_no_drill(written: frozenset[Role]) -> None:
    assert exercise(SPECS[:2], MIDDLE, written=written) is None
    assert exercise([replace(spec, disruptive=True) for spec in SPECS], MIDDLE, written=ALL) is None
    assert exercise(SPECS, KnobValues(()), written=ALL) is None


SOUND_SPECS = st.builds(
    lambda low, step, steps: KnobSpec(
        role=Role.BASE_SLICE, low=low, high=low + step * steps, step=step, slew=step * steps
    ),
    st.floats(0.01, 10),
    st.floats(0.01, 1),
    st.integers(1, 40),
)


@given(SOUND_SPECS, st.floats(0, 1))
def test_a_drill_stays_in_range_and_within_two_steps_of_what_was_in_force(spec: KnobSpec, share: float) -> None:
    value = spec.low + share * (spec.high - spec.low)

    planned = exercise([spec], KnobValues.of({spec.role: value}), written=ALL)

    assert planned is not None
    during = planned.during[spec.role]
    assert spec.contains(during)
    assert during == pytest.approx(spec.snap(during))
    assert 0 < abs(during - value) <= 1.5 * spec.step + 1e-9


PLANNED = exercise(SPECS, MIDDLE, written=WITHOUT_WINDOW)
assert PLANNED is not None


def test_a_drill_has_passed_when_it_was_seen_and_undone() -> None:
    assert PLANNED is not None

    found = result(PLANNED, apply_seconds=0.1, effective_seconds=1.25, restore_seconds=1.5)

    assert found.passed
    assert found.sentence == (
        "base_slice_seconds from 0.115 to 0.12 and back: in force after 1.25 s, restored 1.50 s after asking"
    )


@pytest.mark.parametrize(
    ("applied", "effective", "restore", "sentence"),
    [
        (math.nan, math.nan, math.nan, "the change was not made: it timed out"),
        (0.1, math.nan, 0.5, "the change was never in force: it timed out"),
        (0.1, 0.5, math.nan, "the setting before could not be restored: it timed out"),
        (0.1, math.nan, math.nan, "the setting before could not be restored: it timed out"),
    ],
)
def test_a_drill_that_was_not_seen_or_not_undone_has_failed(
    applied: float, effective: float, restore: float, sentence: str
) -> None:
    assert PLANNED is not None

    found = result(
        PLANNED, apply_seconds=applied, effective_seconds=effective, restore_seconds=restore, trouble="it timed out"
    )

    assert not found.passed
    assert found.sentence.endswith(f"and back: {sentence}")


@pytest.mark.parametrize(
    ("last", "every", "is_due"),
    [
        (math.nan, None, False),
        (NOON - 1e9, None, False),
        (math.nan, 86_400.0, True),
        (NOON - 86_399, 86_400.0, False),
        (NOON - 86_400, 86_400.0, True),
        (NOON, 86_400.0, False),
        (NOON + 60, 86_400.0, True),  # The clock was set back since.
    ],
)
def test_a_drill_is_due_by_the_schedule(last: float, every: float | None, is_due: bool) -> None:
    assert due(last, every_seconds=every, at_seconds=NOON) is is_due
