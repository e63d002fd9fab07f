"""What is written as JSON returns as it was, and strict parsers can read it."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.support.records import day, failed, same, simplest
from tuner.errors import JournalError
from tuner.record.condense import DIGITS, SUMMARY, condense
from tuner.record.encoding import decode, encode
from tuner.values.knobs import KnobValues, Role
from tuner.values.metrics import METRIC_COUNT
from tuner.values.stages import (
    BestWindow,
    CycleRecord,
    Decision,
    Finding,
    Forecast,
    Observation,
    Outcome,
    Problem,
    Proposal,
    Receipt,
    SeriesFrame,
    StageFailure,
    Step,
    Verdict,
    Verification,
)

finite = st.floats(allow_nan=False, allow_infinity=False)
unknown = finite | st.just(math.nan)
measured = st.floats(min_value=-1e300, max_value=1e300) | st.just(math.nan)  # Nodes are added up.
words = st.text(min_size=1, max_size=8)
numbers = st.integers(min_value=0, max_value=2**53)
vectors = arrays(np.float64, METRIC_COUNT, elements=unknown)
knobs = st.dictionaries(st.sampled_from(Role), finite).map(KnobValues.of)


@st.composite
def frames(draw: st.DrawFn) -> SeriesFrame:
    names = draw(st.lists(words, max_size=3, unique=True))
    steps = draw(st.integers(min_value=0, max_value=40))
    values = draw(arrays(np.float64, (len(names), steps), elements=measured))
    return SeriesFrame(tuple(names), draw(finite), values)


@st.composite
def forecasts(draw: st.DrawFn) -> Forecast:
    names = draw(st.lists(words, max_size=3, unique=True))
    shape = (len(names), draw(st.integers(min_value=1, max_value=4)), 3)
    nodes = draw(st.integers(min_value=0, max_value=3))
    node_values = np.sort(
        draw(arrays(np.float64, (nodes, 2, 3), elements=st.floats(min_value=-1e300, max_value=1e300))), axis=2
    )
    return Forecast(
        cycle_id=draw(numbers),
        at_seconds=draw(finite),
        names=tuple(names),
        values=np.sort(draw(arrays(np.float64, shape, elements=finite)), axis=2),
        models=tuple("lstm" for _ in names),
        error_ratio=draw(arrays(np.float64, len(names), elements=unknown)),
        nodes={"node_power_watts": (tuple(f"n{index}" for index in range(nodes)), node_values)},
        best_window=draw(st.none() | st.builds(BestWindow, finite, finite, finite)),
    )


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    return Observation(
        cycle_id=draw(numbers),
        at_seconds=draw(finite),
        metrics=draw(vectors),
        ages_seconds=draw(vectors),
        coverage_ratio=draw(vectors),
        context=draw(st.dictionaries(words, unknown, max_size=3)),
        history=draw(frames()),
        nodes=draw(st.dictionaries(words, frames(), max_size=2)),
        knobs=draw(st.none() | knobs),
        revision=draw(st.text(max_size=5)),
        problems=tuple(draw(st.lists(st.builds(Problem, words, words, words), max_size=2))),
        arriving=draw(st.booleans()),
    )


proposals = st.builds(
    Proposal,
    cycle_id=numbers,
    incumbent=knobs,
    candidate=knobs,
    score=unknown,
    score_error=st.floats(min_value=0, allow_infinity=False),
    predicted=vectors,
    predicted_incumbent=vectors,
    feasible=st.booleans(),
    violations=st.lists(words, max_size=2).map(tuple),
    trials=numbers,
    seed=numbers,
    fidelity_ratio=unknown,
    reason=words,
)
findings = st.builds(
    Finding,
    guard=words,
    passed=st.booleans(),
    severity=st.sampled_from([Decision.HOLD, Decision.REJECT]),
    observed=unknown,
    limit=unknown,
    unit=words,
    sentence=words,
)
verdicts = st.builds(
    Verdict,
    cycle_id=numbers,
    decision=st.just(Decision.HOLD),
    reason=words,
    findings=st.lists(findings, max_size=3).map(tuple),
)
receipts = st.builds(
    Receipt,
    cycle_id=numbers,
    before=knobs,
    after=knobs,
    revision=words,
    effective_at_seconds=unknown,
    applied=st.booleans(),
    detail=words,
)
verifications = st.builds(
    Verification,
    cycle_id=numbers,
    change_cycle_id=numbers,
    outcome=st.sampled_from(Outcome),
    step=st.sampled_from(Step),
    samples=numbers,
    expected_score=unknown,
    observed_score=unknown,
    score_error=unknown,
    observed=vectors,
    counterfactual=vectors,
    reason=words,
)
records = st.builds(
    CycleRecord,
    cycle_id=numbers,
    at_seconds=finite,
    observation=st.none() | observations(),
    forecast=st.none() | forecasts(),
    proposal=st.none() | proposals,
    verdict=st.none() | verdicts,
    receipt=st.none() | receipts,
    verification=st.none() | verifications,
    failure=st.none() | st.builds(StageFailure, stage=words, reason=words, detail=words),
    decision=words,
    reason=words,
    stage_seconds=st.dictionaries(words, finite, max_size=3),
)


@settings(deadline=None)
@given(record=records)
def test_every_record_returns_bit_for_bit(record: CycleRecord) -> None:
    assert same(decode(CycleRecord, encode(record)), record)


@settings(deadline=None)
@given(record=records)
def test_condensing_twice_changes_nothing_more(record: CycleRecord) -> None:
    once = condense(record)

    assert same(condense(once), once)
    assert same(decode(CycleRecord, encode(once)), once)


@given(value=finite)
def test_a_finite_float_returns_as_the_same_float(value: float) -> None:
    assert decode(BestWindow, encode(BestWindow(value, 0.0, 0.0))).start_at_seconds.hex() == value.hex()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_null_and_returns_as_nan(value: float) -> None:
    text = encode(BestWindow(value, 0.0, 0.5))

    assert json.loads(text, parse_constant=pytest.fail)["start_at_seconds"] is None
    assert math.isnan(decode(BestWindow, text).start_at_seconds)


def test_arrays_without_entries_keep_their_other_axes() -> None:
    frame = SeriesFrame((), 0.0, np.empty((0, 7)))

    assert decode(SeriesFrame, encode(frame)).values.shape == (0, 7)


def test_numpy_scalars_are_written_as_the_numbers_they_are() -> None:
    assert encode((np.float64(0.1), np.int64(3), np.bool_(True), np.float32(math.nan))) == "[0.1,3,true,null]"


def test_a_field_from_a_newer_release_is_skipped_and_a_missing_one_takes_its_default() -> None:
    document = json.loads(encode(simplest().forecast))
    document["invented_later"] = 1
    del document["rung"]

    assert decode(Forecast, json.dumps(document)).rung == "selected"


def test_a_set_is_refused() -> None:
    with pytest.raises(TypeError, match="set cannot be written as JSON"):
        encode({1, 2})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cycle_id": "seven"}, "CycleRecord.cycle_id is 'seven', must be int"),
        ({"cycle_id": True}, "CycleRecord.cycle_id is 'True'"),
        ({"reason": ""}, "needs a reason"),
        ({"failure": {"stage": "observe"}}, "missing 2 required"),
        ({"observation": 3}, "CycleRecord.observation is '3', must be dict"),
        ({"at_seconds": "noon"}, "CycleRecord.at_seconds is 'noon', must be a number"),
    ],
)
def test_a_damaged_document_is_an_error_that_names_the_field(change: dict[str, object], message: str) -> None:
    document = json.loads(encode(failed())) | change

    with pytest.raises(JournalError, match=message):
        decode(CycleRecord, json.dumps(document))


def test_text_that_is_not_json_is_an_error_with_a_remedy() -> None:
    with pytest.raises(JournalError, match="Restore the journal from a backup"):
        decode(CycleRecord, "{")


def test_half_an_hour_of_history_and_a_summary_of_the_nodes_are_kept() -> None:
    record = simplest()
    assert record.observation is not None

    kept = condense(record).observation

    assert kept is not None
    assert kept.history.values.shape == (len(record.observation.history.names), 30)
    assert kept.history.end_at_seconds == record.observation.history.end_at_seconds
    np.testing.assert_allclose(kept.history.values, record.observation.history.values[:, -30:], rtol=10.0**-DIGITS * 5)
    frame = record.observation.nodes["node_temperature_celsius"].values[:, -30:]
    summary = kept.nodes["node_temperature_celsius"]
    assert summary.names == SUMMARY
    np.testing.assert_allclose(summary.values, [frame.min(0), frame.mean(0), frame.max(0)], rtol=1e-5)


def test_a_step_in_which_no_node_has_a_sample_stays_unknown() -> None:
    record = simplest()
    assert record.observation is not None
    holes = SeriesFrame(("a", "b"), 0.0, np.array([[1.0, math.nan, math.nan], [3.0, 5.0, math.nan]]))

    kept = condense(
        dataclasses.replace(record, observation=dataclasses.replace(record.observation, nodes={"x": holes}))
    )

    assert kept.observation is not None
    np.testing.assert_array_equal(
        kept.observation.nodes["x"].values, [[1.0, 5.0, math.nan], [2.0, 5.0, math.nan], [3.0, 5.0, math.nan]]
    )


def test_the_vectors_of_the_moment_and_the_documents_of_the_decision_are_kept_exactly() -> None:
    for record in day(60):
        kept = condense(record)
        if record.observation is not None and kept.observation is not None:
            assert same(kept.observation.metrics, record.observation.metrics)
        for name in ("proposal", "verdict", "receipt", "verification", "failure", "reason", "stage_seconds"):
            assert same(getattr(kept, name), getattr(record, name)), name
