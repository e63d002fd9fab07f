import math

import pytest

from tests.support.policies import policy_of
from tests.support.scripted import ScriptedSource
from tuner.errors import QueryRejected, QueryTooLarge, SourceUnavailable
from tuner.observe.asker import RETRY_CYCLES, Asker
from tuner.observe.meter import MAX_QUERIES, MeteredSource
from tuner.observe.questions import questions
from tuner.observe.source import Answer
from tuner.values.context import CONTEXT_NAMES
from tuner.values.stages import FloatArray

AT = 1_796_067_600.0


def asker(source: ScriptedSource, *, count: int = 23, reserve: int = 4) -> tuple[MeteredSource, Asker]:
    """Ask for context values, each by an expression named x0, x1, ..."""
    context = {name: {"query": f"x{index}"} for index, name in enumerate(CONTEXT_NAMES[:count])}
    metered = MeteredSource(source)
    asked = questions(policy_of({}, context=context), fuses=source.fuses)
    return metered, Asker(metered, asked, reserve=reserve)


def healthy(count: int = 23) -> ScriptedSource:
    return ScriptedSource({f"x{index}": float(index) for index in range(count)})


def test_everything_is_asked_in_one_query_while_nothing_is_refused() -> None:
    source = healthy(len(CONTEXT_NAMES))
    metered, asking = asker(source, count=len(CONTEXT_NAMES))

    readings = asking.instant(AT)

    assert metered.queries == 1
    assert [reading.series[0].values[0] for reading in readings.values()] == list(range(len(CONTEXT_NAMES)))


@pytest.mark.parametrize("bad", range(21))
def test_one_wrong_expression_is_isolated_and_the_others_are_read_in_the_same_cycle(bad: int) -> None:
    source = healthy(21)
    source.refusals[f"x{bad}"] = QueryRejected("parse error")
    metered, asking = asker(source, count=21)

    readings = asking.instant(AT)

    (problem,) = asking.refused
    assert (problem.metric, problem.reason, problem.detail) == (CONTEXT_NAMES[bad], "rejected", "parse error")
    assert len(readings) == 20
    assert metered.queries <= MAX_QUERIES - 4


def test_afterwards_the_wrong_one_rests_and_the_others_travel_together_again() -> None:
    source = healthy()
    source.refusals["x7"] = QueryRejected("parse error")
    metered, asking = asker(source, count=21)
    asking.instant(AT)

    metered.reset()
    readings = asking.instant(AT + 60)

    assert metered.queries == 1
    assert len(readings) == 20
    assert len(asking.refused) == 1, "it is still told"


def test_a_wrong_expression_that_comes_right_is_read_again() -> None:
    source = healthy()
    source.refusals["x7"] = QueryRejected("many-to-many")
    metered, asking = asker(source, count=21)
    asking.instant(AT)
    del source.refusals["x7"]

    for cycle in range(RETRY_CYCLES + 1):
        metered.reset()
        readings = asking.instant(AT + 60 * cycle)

    assert asking.refused == ()
    assert len(readings) == 21
    assert metered.queries == 1


def test_several_wrong_expressions_are_understood_within_a_few_cycles_and_never_at_more_than_the_limit() -> None:
    source = healthy()
    for bad in (1, 2, 8, 15, 20):
        source.refusals[f"x{bad}"] = QueryRejected("parse error")
    metered, asking = asker(source, count=21)

    for cycle in range(5):
        metered.reset()
        readings = asking.instant(AT + 60 * cycle)
        assert metered.queries <= MAX_QUERIES - 4

    assert len(asking.refused) == 5
    assert len(readings) == 16


def test_a_moment_of_confusion_does_not_leave_an_expression_alone_for_ever() -> None:
    class Confused(ScriptedSource):
        confused = True

        def _answer(self, kind: str, expression: str, times: FloatArray) -> Answer:
            if self.confused and "label_replace((x3\n)" in expression:
                raise QueryRejected("many-to-many matching not allowed")
            return super()._answer(kind, expression, times)

    source = Confused({f"x{index}": float(index) for index in range(5)})
    metered, asking = asker(source, count=5)
    asking.instant(AT)
    source.confused = False

    for cycle in range(RETRY_CYCLES + 2):
        metered.reset()
        readings = asking.instant(AT + 60 * cycle)
        assert len(readings) == 5

    assert metered.queries == 1


def test_an_outage_loses_no_question() -> None:
    source = healthy()
    source.refusals["x7"] = QueryRejected("parse error")
    metered, asking = asker(source, count=21)
    asking.instant(AT)
    for cycle in range(RETRY_CYCLES + 3):
        source.refusals = {f"x{index}": SourceUnavailable("down") for index in range(21)}
        metered.reset()
        with pytest.raises(SourceUnavailable):
            asking.instant(AT + 60 * cycle)
    source.refusals = {}
    metered.reset()

    asking.instant(AT + 3600)
    readings = asking.instant(AT + 3660)

    assert len(readings) == 21


def test_too_many_series_are_told_apart_from_a_wrong_expression() -> None:
    source = healthy(5)
    source.refusals["x3"] = QueryTooLarge("50000 series")
    _, asking = asker(source, count=5)

    asking.instant(AT)

    assert [problem.reason for problem in asking.refused] == ["too_many_series"]


def test_an_expression_that_is_only_understood_alone_is_asked_alone() -> None:
    class Scalars(ScriptedSource):
        def _answer(self, kind: str, expression: str, times: FloatArray) -> Answer:
            if "label_replace((x3\n)" in expression:
                raise QueryRejected("expected type instant vector, got scalar")
            return super()._answer(kind, expression, times)

    source = Scalars({f"x{index}": float(index) for index in range(5)})
    metered, asking = asker(source, count=5)
    asking.instant(AT)
    metered.reset()

    readings = asking.instant(AT + 60)
    past = asking.range(list(readings), start=AT, end=AT + 60, step=60)

    assert asking.refused == ()
    assert metered.queries == 4, "two for now and two for the past"
    assert readings[CONTEXT_NAMES[3]].series[0].values[0] == 3.0
    assert readings[CONTEXT_NAMES[3]].newest_at_seconds == AT + 60
    assert past[CONTEXT_NAMES[3]][0].values.tolist() == [3.0, 3.0]


def test_a_source_that_is_down_is_told_at_once_and_nothing_is_blamed() -> None:
    source = healthy(5)
    source.refusals["x3"] = SourceUnavailable("down")
    metered, asking = asker(source, count=5)

    with pytest.raises(SourceUnavailable):
        asking.instant(AT)

    assert metered.queries == 1
    source.refusals.clear()
    assert len(asking.instant(AT)) == 5


def test_long_expressions_are_split_over_queries() -> None:
    source = healthy(0)
    context = {name: {"query": "x" * 3000 + str(index)} for index, name in enumerate(CONTEXT_NAMES[:8])}
    metered = MeteredSource(source)
    asking = Asker(metered, questions(policy_of({}, context=context), fuses=True), reserve=0)

    readings = asking.instant(AT)

    assert metered.queries == 8, "each is asked for its value and for its age, which makes 6,000 bytes"
    assert len(readings) == 8
    assert all(math.isfinite(reading.newest_at_seconds) for reading in readings.values())


def test_a_series_that_stopped_is_as_old_as_its_last_sample_was() -> None:
    source = healthy(2)
    source.newest_at["x1"] = AT - 30
    _, asking = asker(source, count=2)
    asking.instant(AT)
    source.newest_at["x1"] = math.nan  # The selector finds nothing any more, though a rate over its past still does.

    readings = asking.instant(AT + 240)

    assert readings[CONTEXT_NAMES[1]].newest_at_seconds == AT - 30
    assert readings[CONTEXT_NAMES[0]].newest_at_seconds == AT + 240


def test_a_source_without_promql_is_asked_one_by_one() -> None:
    source = ScriptedSource({f"x{index}": float(index) for index in range(30)}, fuses=False)
    context = {name: {"query": "-", "scrape": f"x{index}"} for index, name in enumerate(CONTEXT_NAMES)}
    asking = Asker(MeteredSource(source), questions(policy_of({}, context=context), fuses=False), reserve=4)

    readings = asking.instant(AT)

    assert len(source.asked) == len(readings) == len(CONTEXT_NAMES)
    assert {names for _, names, _, _ in source.asked} == {(f"x{index}",) for index in range(len(CONTEXT_NAMES))}
