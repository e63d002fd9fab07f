import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.twin.residual import FEATURES, Residual, displacement, fit
from tuner.twin.trust import HALF_LIFE_SECONDS, Evidence
from tuner.values.knobs import DESIGN_RANGES, KnobValues, Role, middle
from tuner.values.stages import FloatArray

LOAD = (8.0, 6.0, 9.0, 5.0, 0.1, 0.5)
SLICE_UP = (0.2, 0.0, -0.1, 0.0)
HANDFUL = 5
NOISE = 0.03


def trial(
    promised: float,
    came: float,
    *,
    moved: tuple[float, ...] = SLICE_UP,
    context: tuple[float, ...] = LOAD,
    at: float = 0.0,
) -> Evidence:
    return Evidence(
        predicted_score=promised,
        observed_score=came,
        noise=NOISE,
        at_seconds=at,
        twin_score=promised,
        moved=moved,
        context=context,
    )


def corrected(
    residual: Residual,
    promised: float,
    *,
    moved: tuple[float, ...] = SLICE_UP,
    context: tuple[float, ...] = LOAD,
) -> float:
    """What is left of a promise."""
    return promised + float(residual.correct(np.array([promised]), np.array([moved]), context)[0])


def after(count: int, comes_of: Callable[[float], float], *, seed: int) -> Residual:
    """The residual after some changes of random size and direction, measured with noise."""
    generator = np.random.default_rng(seed)
    evidence = []
    for _ in range(count):
        promised = -float(generator.uniform(0.03, 0.15))
        moved = tuple(generator.uniform(-0.25, 0.25, len(Role)).tolist())
        evidence.append(trial(promised, comes_of(promised) + float(generator.normal(0.0, NOISE)), moved=moved))
    return fit(evidence, at_seconds=0.0)


def test_nothing_is_corrected_without_evidence() -> None:
    assert corrected(fit([], at_seconds=0.0), -0.1) == -0.1
    assert corrected(fit([Evidence(predicted_score=-0.1, observed_score=0.1)], at_seconds=0.0), -0.1) == -0.1


@pytest.mark.parametrize("seed", range(10))
def test_a_twin_that_is_off_by_three_is_corrected_within_a_handful_of_trials(seed: int) -> None:
    left = corrected(after(HANDFUL, lambda promised: promised / 3, seed=seed), -0.09)

    assert abs(left - -0.03) < abs(left - -0.09)


@pytest.mark.parametrize("seed", range(10))
def test_a_twin_with_the_wrong_sign_promises_half_as_much_after_a_handful_of_trials_and_nothing_after_more(
    seed: int,
) -> None:
    handful, many = (
        corrected(after(count, lambda promised: -promised, seed=seed), -0.09) for count in (HANDFUL, 4 * HANDFUL)
    )

    assert handful > -0.045
    assert many > -0.01


def test_a_twin_that_is_right_is_left_alone() -> None:
    left = [corrected(after(20, lambda promised: promised, seed=seed), -0.09) for seed in range(20)]

    assert np.median(left) == pytest.approx(-0.09, abs=0.01)
    assert max(left) < -0.05


def test_a_twin_that_promises_too_little_is_not_made_to_promise_more() -> None:
    assert corrected(after(20, lambda promised: 3 * promised, seed=1), -0.09) == -0.09


def test_a_twin_that_is_wrong_about_one_knob_is_corrected_there_and_not_elsewhere() -> None:
    one, other = (0.2, 0.0, 0.0, 0.0), (0.0, 0.2, 0.0, 0.0)
    evidence = [trial(-0.06, 0.06, moved=one), trial(-0.06, -0.06, moved=other)] * 8

    residual = fit(evidence, at_seconds=0.0)

    assert corrected(residual, -0.06, moved=one) > corrected(residual, -0.06, moved=other) + 0.03


def test_a_twin_that_is_wrong_under_one_load_is_corrected_there_most() -> None:
    crowded = (*LOAD[:3], LOAD[3] + 1.5, *LOAD[4:])
    evidence = [trial(-0.06, 0.04, context=crowded), trial(-0.06, -0.06)] * 8

    residual = fit(evidence, at_seconds=0.0)

    assert corrected(residual, -0.06, context=crowded) > corrected(residual, -0.06) + 0.01


@given(came=st.floats(0.3, 100.0))
def test_one_wild_trial_moves_little(came: float) -> None:
    alone = fit([trial(-0.05, came)], at_seconds=0.0)
    among = fit([trial(-0.05, -0.05)] * 5 + [trial(-0.05, came)], at_seconds=0.0)

    assert corrected(alone, -0.05) < 0.03
    assert corrected(among, -0.05) == pytest.approx(-0.05, abs=0.02)


def test_what_was_learned_fades() -> None:
    evidence = [trial(-0.09, 0.09)] * 6

    left = [corrected(fit(evidence, at_seconds=weeks * HALF_LIFE_SECONDS), -0.09) for weeks in range(0, 16, 3)]

    assert left == sorted(left, reverse=True)
    assert left[-1] == pytest.approx(-0.09, abs=0.01)


@given(
    came=st.floats(-0.5, 0.5),
    said=st.lists(st.one_of(st.floats(-1.0, 1.0), st.just(math.nan)), min_size=1, max_size=8),
)
def test_no_promise_is_raised(came: float, said: list[float]) -> None:
    residual = fit([trial(-0.05, came)] * 6, at_seconds=0.0)

    correction = residual.correct(np.array(said), np.full((len(said), len(Role)), 0.2), LOAD)

    assert np.isfinite(correction).all()
    assert (correction >= 0.0).all()


def test_what_does_not_move_is_not_corrected() -> None:
    residual = fit([trial(-0.05, 0.2)] * 6, at_seconds=0.0)

    assert corrected(residual, 0.0, moved=(0.0, 0.0, 0.0, 0.0)) == 0.0


def test_a_load_that_is_not_known_is_taken_for_the_usual_one() -> None:
    crowded = tuple(value + 1.0 for value in LOAD)
    residual = fit([trial(-0.05, 0.05, context=crowded), trial(-0.05, -0.05)] * 4, at_seconds=0.0)

    usual = tuple(np.mean([crowded, LOAD], axis=0).tolist())
    assert corrected(residual, -0.05, context=()) == pytest.approx(corrected(residual, -0.05, context=usual))
    assert corrected(residual, -0.05, context=(math.nan,) * 6) == corrected(residual, -0.05, context=())


def test_changes_are_corrected_one_by_one_as_all_at_once() -> None:
    residual = after(8, lambda promised: promised / 3, seed=1)
    generator = np.random.default_rng(2)
    scores, moved = generator.uniform(-0.2, 0.1, 6), generator.uniform(-0.3, 0.3, (6, len(Role)))

    together = residual.correct(scores, moved, LOAD)
    alone = [residual.correct(scores[[row]], moved[[row]], LOAD) for row in range(6)]

    assert together.tolist() == np.concatenate(alone).tolist()


def test_arrays_give_back_every_bit() -> None:
    residual = after(8, lambda promised: promised / 3, seed=1)

    back = Residual.from_arrays(residual.to_arrays())

    for name, array in residual.to_arrays().items():
        np.testing.assert_array_equal(array, getattr(back, name))


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {**Residual().to_arrays(), "more": np.ones(1)},
        {**Residual().to_arrays(), "coefficients": np.ones(FEATURES - 1)},
        {**Residual().to_arrays(), "coefficients": np.full(FEATURES, np.nan)},
    ],
)
def test_arrays_that_are_no_residual_are_refused(arrays: dict[str, FloatArray]) -> None:
    with pytest.raises(ValueError, match="residual"):
        Residual.from_arrays(arrays)


def test_a_move_is_told_in_units_of_the_range_and_absent_knobs_do_not_move() -> None:
    specs = tuple(DESIGN_RANGES.values())
    before = middle(specs)
    up = KnobValues.of({role: DESIGN_RANGES[role].high for role in (Role.BASE_SLICE, Role.RESERVATION)})

    assert displacement(before, up, specs).tolist() == pytest.approx([0.5, 0.0, 0.0, 0.5])
    assert displacement(up, before, specs).tolist() == pytest.approx([-0.5, 0.0, 0.0, -0.5])
