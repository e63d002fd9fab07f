"""With the metrics broken over a real wire, in the midst of a trial where that is a moment of it, the promises hold.

`clocktuner chaos` does so with journal, clock, scheduler, people and other tuners as well, at all moments.
"""

import pytest

from tuner.chaos.run import trouble
from tuner.chaos.troubles import TROUBLES

pytestmark = pytest.mark.timeout(120)


METRICS = [name for name in TROUBLES if name.startswith("metrics")]


def test_everything_that_is_broken_is_broken_at_some_moment() -> None:
    assert len(METRICS) >= 20
    assert len(TROUBLES) >= 60
    assert all(TROUBLES.values())


@pytest.mark.parametrize("name", METRICS)
def test_whatever_goes_wrong_over_the_wire_the_promises_hold_and_work_goes_on(name: str) -> None:
    moments = tuple(TROUBLES[name])
    outcome = trouble(name, "on trial" if "on trial" in moments else moments[0])

    assert outcome.violations == ()
    assert outcome.resumed_after > 0
