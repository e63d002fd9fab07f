"""With anything broken over real wires, the promises hold, and work goes on.

Each trouble breaks at one of its moments here; `clocktuner chaos` breaks each at all of them.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from zlib import crc32

import pytest

from tuner.chaos.kill import Outcome
from tuner.chaos.run import trouble
from tuner.chaos.troubles import TROUBLES
from tuner.twin import model

pytestmark = pytest.mark.timeout(240)


def moment_of(name: str) -> str:
    """Return one of the moments of a trouble: always the same, whatever other troubles there are."""
    moments = sorted(TROUBLES[name])
    return moments[crc32(name.encode()) % len(moments)]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Iterator[Mapping[str, Future[Outcome]]]:
    """What comes of each trouble that is looked at in this run; two are under way at a time."""
    called = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    names = [call.params["name"] for call in called if call is not None]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), initializer=model.warm_up) as pool:
        yield {name: pool.submit(trouble, name, moment_of(name)) for name in names}
        pool.shutdown(cancel_futures=True)


def test_there_are_troubles_of_every_kind_and_they_are_looked_at_at_every_moment() -> None:
    kinds = ("journal", "clock", "metrics", "scheduler", "a person", "second tuner", "orders")

    assert len(TROUBLES) >= 60
    assert all(any(name.startswith(kind) for name in TROUBLES) for kind in kinds)
    moments = [moment_of(name) for name in TROUBLES]
    assert all(moments.count(moment) >= 10 for moment in ("before a change", "on trial", "in harm"))


@pytest.mark.parametrize("name", TROUBLES)
def test_whatever_goes_wrong_over_the_wire_the_promises_hold_and_work_goes_on(
    name: str, outcomes: Mapping[str, Future[Outcome]]
) -> None:
    outcome = outcomes[name].result()

    assert outcome.violations == ()
    assert outcome.resumed_after > 0
    assert outcome.writes > 0
