"""A promise that past changes have corrected is believed as corrected."""

import numpy as np
import pytest

from tuner.values.metrics import METRIC_COUNT, metric_vector
from tuner.verify.belief import corrected

TERMS = metric_vector({"queue_wait_seconds": -0.06, "resource_idle_ratio": -0.02})


@pytest.mark.parametrize(
    ("promised", "kept"),
    [(-0.08, 1.0), (-0.04, 0.5), (0.01, 0.0), (-0.5, 1.0)],
    ids=["as told", "half", "none", "never more"],
)
def test_what_was_taken_off_the_promise_is_taken_off_every_metric(promised: float, kept: float) -> None:
    told = corrected(TERMS, promised)

    assert np.allclose(told, TERMS * kept, equal_nan=True)


def test_without_a_promise_the_terms_stay() -> None:
    assert np.array_equal(corrected(TERMS, np.nan), TERMS, equal_nan=True)
    assert np.isnan(corrected(np.full(METRIC_COUNT, np.nan), -0.1)).all()
