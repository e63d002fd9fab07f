"""Rounding to significant digits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.values.rounding import significant


@given(st.floats(min_value=-1e12, max_value=1e12), st.integers(1, 8))
def test_rounding_to_digits_is_near_and_stable(value: float, digits: int) -> None:
    once = significant(np.array([value]), digits)

    assert once[0] == pytest.approx(value, rel=10.0 ** (1 - digits), abs=1e-249)
    np.testing.assert_allclose(significant(once, digits), once, rtol=1e-12)


def test_sums_in_another_order_become_the_same_number() -> None:
    parts = np.random.default_rng(1).random(1000)

    forth, back = sum(parts.tolist()), sum(parts[::-1].tolist())

    assert forth != back
    assert significant(np.array([forth]), 9) == significant(np.array([back]), 9)


def test_what_is_no_number_stays_what_it_is() -> None:
    rounded = significant(np.array([np.nan, np.inf, -np.inf, 0.0]), 3)

    np.testing.assert_array_equal(rounded, [np.nan, np.inf, -np.inf, 0.0])
