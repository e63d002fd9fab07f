"""`bench guard`, small: what it measures is the guard as it is shipped, against a real Prometheus."""

import pytest

from tests.support.servers import require_program
from tuner.bench.guard import Alongside, run
from tuner.errors import PermanentError

pytestmark = pytest.mark.timeout(240)


def test_a_tick_asks_one_question_whose_answer_does_not_grow_with_the_nodes() -> None:
    require_program("prometheus")

    few, more = (run(nodes=nodes, quick=True).figures for nodes in (20, 60))

    assert few["guard_queries_per_tick"] == more["guard_queries_per_tick"] == 1
    assert more["guard_bytes_per_tick"] <= few["guard_bytes_per_tick"] + 64
    assert few["guard_metrics"] == 6
    assert few["guard_whole_ratio"] == more["guard_whole_ratio"] == 1 / 6, "the nodes are asked every half minute"
    assert few["guard_ticks_beside"] >= 1


def test_a_tick_that_fails_beside_the_cycles_fails_the_measurement() -> None:
    def fail(_: float) -> None:
        raise ValueError("a bug")

    alongside = Alongside(fail, at_seconds=0.0, period_seconds=0.01)

    def until_it_fails() -> None:
        with alongside.ticking():
            while alongside.failure is None:
                pass

    with pytest.raises(PermanentError, match="a bug"):
        until_it_fails()
