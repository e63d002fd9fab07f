"""Values are said in units that people think in, with no more digits than mean something."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.guarded import act, receipt
from tests.support.records import MIDDLE, MIDNIGHT
from tuner.record import wording
from tuner.record.families import DECISIONS
from tuner.values.knobs import KnobValues, Role, SchedulerMode
from tuner.values.metrics import METRICS


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (0.187354, "s", "187 ms"),
        (0.0, "s", "0 s"),
        (1.0, "s", "1 s"),
        (119.4, "s", "119 s"),
        (1718.0, "s", "28.6 min"),
        (86_400.0, "s", "24 h"),
        (172_800.0, "s", "2 d"),
        (-0.05, "s", "-50 ms"),
        (0.6214, "ratio", "62.1 %"),
        (1.0, "ratio", "100 %"),
        (0.0002, "ratio", "0.02 %"),
        (2.4, "1/s", "2.4 /s"),
        (66.14, "°C", "66.1 °C"),
        (2124.0, "W", "2124 W"),
        (17.0, "tasks", "17 tasks"),
        (17.0, "", "17"),
        (0.00000123, "", "1.23e-06"),
        (5e9, "W", "5.00e+09 W"),
        (math.nan, "s", "no sample"),
        (math.inf, "W", "inf W"),
    ],
)
def test_quantities(value: float, unit: str, said: str) -> None:
    assert wording.quantity(value, unit) == said


@pytest.mark.parametrize(
    ("name", "said", "unit"),
    [
        ("queue_wait_seconds", "queue wait", "s"),
        ("accelerator_utilization_ratio", "accelerator utilization", "ratio"),
        ("tasks_completed_per_second", "tasks completed", "1/s"),
        ("node_temperature_celsius", "node temperature", "°C"),
        ("node_power_watts", "node power", "W"),
        ("queue_length", "queue length", ""),
        ("arrivals_per_second:inference", "arrivals of inference", "1/s"),
        ("waiting_tasks:training", "waiting tasks of training", ""),
        ("accelerators_count", "accelerators", ""),
    ],
)
def test_names_lose_their_unit_and_nothing_else(name: str, said: str, unit: str) -> None:
    assert wording.label(name) == said
    assert wording.unit_of(name) == unit


def test_the_labels_of_all_metrics_differ() -> None:
    assert len({wording.label(spec.name) for spec in METRICS}) == len(METRICS)


@pytest.mark.parametrize(
    ("score", "words", "signed"),
    [
        (-0.0234, "2.3 % better", "−2.3 %"),
        (0.01, "1.0 % worse", "+1.0 %"),
        (0.0, "no difference", "0.0 %"),
        (-0.0002, "no difference", "0.0 %"),
        (math.nan, "unknown", "–"),
    ],
)
def test_scores(score: float, words: str, signed: str) -> None:
    assert wording.gain(score) == words
    assert wording.signed_percent(score) == signed


def test_moves_name_only_what_moves() -> None:
    after = KnobValues.of({**MIDDLE, Role.BASE_SLICE: 0.1, Role.RESERVATION: 0.22})

    assert wording.moves(MIDDLE, after) == "base slice 115 ms → 100 ms, reservation 20 % → 22 %"
    assert wording.moves(MIDDLE, MIDDLE) == "nothing"
    assert wording.moves(KnobValues(()), KnobValues.of({Role.BASE_SLICE: 0.1})) == "base slice unset → 100 ms"


def test_numbers_of_things_and_spreads() -> None:
    assert [wording.count(number, "search", "searches") for number in (0, 1, 2)] == [
        "0 searches",
        "1 search",
        "2 searches",
    ]
    assert wording.count(3200, "candidate") == "3,200 candidates"
    assert wording.spread(0.01) == " ± 2.0"
    assert wording.spread(math.nan) == ""


def test_instants_are_said_in_utc() -> None:
    assert wording.when(MIDNIGHT + 3661) == "2026-01-01 01:01:01"


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["s", "ratio", "1/s", "W", ""]))
def test_every_finite_value_can_be_said(value: float, unit: str) -> None:
    assert wording.quantity(value, unit)


def test_a_cell_is_empty_where_there_is_nothing_to_say() -> None:
    assert wording.cell(math.nan, "s") == ""
    assert wording.cell(0.5, "s") == "500 ms"


@pytest.mark.parametrize(
    ("evidence", "said"), [(math.nan, ""), (0.0, "1"), (math.log(20), "20"), (-20.0, "< 0.001"), (5000.0, "1.01e+304")]
)
def test_evidence_reads_as_an_e_value(evidence: float, said: str) -> None:
    assert wording.e_value(evidence) == said


@pytest.mark.parametrize(
    ("mode", "after", "said"),
    [
        (None, MIDDLE, "nothing"),
        (SchedulerMode.PRIORITY_ONLY, MIDDLE, "policy mode priority only"),
        (None, KnobValues.of({**MIDDLE, Role.RESERVATION: 0.22}), "reservation 20 % → 22 %"),
        (
            SchedulerMode.FULL,
            KnobValues.of({**MIDDLE, Role.RESERVATION: 0.22}),
            "reservation 20 % → 22 %, policy mode full",
        ),
    ],
)
def test_a_write_tells_knobs_and_policy_mode(mode: SchedulerMode | None, after: KnobValues, said: str) -> None:
    assert wording.written(receipt(1, after=after, mode=mode)) == said


def test_every_decision_has_a_word_of_its_own_and_a_drill_that_failed_is_no_good_end() -> None:
    failed = act(1, 0, "drill", after=MIDDLE)
    assert failed.receipt is not None

    assert set(wording.DECISION_WORDS) == set(DECISIONS)
    assert len(set(wording.DECISION_WORDS.values())) == len(DECISIONS)
    assert wording.tone(failed) == "good"
    assert wording.tone(replace(failed, receipt=replace(failed.receipt, applied=False))) == "bad"
    assert wording.tone(act(1, 0, "hold")) == "muted"
