"""What is kept beside a decision, so that it can be repeated."""

import json
import struct
import zlib
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from tests.support.policies import policy_of
from tuner import replaying
from tuner.errors import JournalError
from tuner.judge.case import Case, required_metrics
from tuner.judge.change_breaker import ChangeBreaker, failed
from tuner.judge.gate import judge
from tuner.judge.ladder import Doubt, Ladder, freeze, step
from tuner.propose.inputs import SearchInputs
from tuner.record.encoding import encode
from tuner.settings.safety import ChangeBreakerSettings
from tuner.twin.parameters import TwinParameters
from tuner.twin.workload import Scenarios
from tuner.values.knobs import DESIGN_RANGES, KnobValues, Role, middle
from tuner.values.metrics import DEFAULT_WEIGHTS
from tuner.values.safety import Rung
from tuner.values.stages import CycleRecord, Observation, Proposal, SeriesFrame, Verdict

NOW = 1_700_000_000.0 + 1 / 3
SPECS = tuple(DESIGN_RANGES.values())
MIDDLE = middle(SPECS)
POLICY = policy_of({"queue_wait_seconds": {"query": "queue_wait"}})
OPENED = failed(
    ChangeBreaker(harms=(NOW,)), at_seconds=NOW, settings=ChangeBreakerSettings(), reason="roll-back failed"
)
DOUBTED = step(Ladder(), [Doubt(rung=Rung.CAUTIOUS, cause="trust", sentence="trust is low")], at_seconds=NOW, good=True)
OTHERS: dict[str, Any] = {
    "region": 0.5,
    "disruptive_allowed": True,
    "forbidden": "paused by anna: rack work",
    "directions": {Role.BASE_SLICE: "up", Role.RESERVATION: "none"},
    "changes_today": 3,
    "max_changes_per_day": 24,
    "change_breaker": OPENED,
    "ladder": DOUBTED,
    "latency_breaker_open": True,
    "approved": True,
}


def inputs() -> SearchInputs:
    scenarios = Scenarios.from_arrays({name: np.ones(2) for name in Scenarios.__slots__})
    return SearchInputs(
        cycle_id=7,
        specs=SPECS,
        incumbent=MIDDLE,
        scenarios=scenarios,
        confirm_scenarios=scenarios,
        parameters=TwinParameters(),
        weights=DEFAULT_WEIGHTS,
        limits=np.full(13, np.nan),
        warm_starts=(),
        trust=1.0,
        seed=1,
        settings=POLICY.search,
    )


def case(**changes: Any) -> Case:
    proposal = Proposal(
        cycle_id=7,
        incumbent=MIDDLE,
        candidate=KnobValues.of({**MIDDLE, Role.BASE_SLICE: 0.125}),
        score=-0.06,
        score_error=0.01,
        predicted=np.ones(13),
        predicted_incumbent=np.ones(13),
        feasible=True,
        violations=(),
        trials=100,
        seed=1,
        fidelity_ratio=0.8,
        reason="slice 115 ms -> 125 ms should be 6 % better",
    )
    observation = Observation(
        cycle_id=7,
        at_seconds=NOW,
        metrics=np.ones(13),
        ages_seconds=np.ones(13),
        coverage_ratio=np.ones(13),
        context={},
        history=SeriesFrame((), NOW, np.empty((0, 0))),
        knobs=MIDDLE,
    )
    given: dict[str, Any] = {
        "proposal": proposal,
        "observation": observation,
        "forecast": None,
        "at_seconds": NOW,
        "specs": SPECS,
        "required": required_metrics(POLICY),
        "settings": POLICY.cycle,
        "tuner_mode": POLICY.mode,
        "trust": 1 / 3,
        "max_clock_skew_seconds": POLICY.source.max_clock_skew_seconds,
        "last_change_at_seconds": NOW - 1000.1,
        "on_trial": 3,
        "anchors": 12,
    }
    return Case(**{**given, **changes})


def record_of(given: Case) -> CycleRecord:
    return CycleRecord(
        cycle_id=7,
        at_seconds=NOW,
        observation=given.observation,
        forecast=None,
        proposal=given.proposal,
        verdict=judge(given),
        receipt=None,
        verification=None,
        failure=None,
        decision="hold",
        reason="told",
        stage_seconds={},
    )


def unpacked(packed: bytes, given: Case) -> Case:
    return replaying._unpack(packed, record_of(given))[1]


def repacked(packed: bytes, **changes: Any) -> bytes:
    """Return what was packed with other, or (None) without some, values beside the search's inputs."""
    (length,) = struct.unpack_from(">I", packed)
    beside = json.loads(zlib.decompress(packed[4 : 4 + length])) | changes
    text = zlib.compress(json.dumps({name: value for name, value in beside.items() if value is not None}).encode())
    return struct.pack(">I", len(text)) + text + packed[4 + length :]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        *({name: value} for name, value in OTHERS.items()),
        OTHERS,
        {"ladder": freeze(Ladder(), "no", at_seconds=NOW)},
    ],
    ids=",".join,
)
def test_a_case_returns_bit_for_bit_and_is_judged_alike(changes: dict[str, Any]) -> None:
    given = case(**changes)

    again = unpacked(replaying.pack(inputs(), given, policy=POLICY), given)

    for field in fields(Case):
        assert repr(getattr(again, field.name)) == repr(getattr(given, field.name)), field.name
    assert encode(judge(again)) == encode(judge(given))


def test_every_field_of_a_case_that_may_differ_from_its_default_is_tried_above() -> None:
    defaulted = {field.name for field in fields(Case)} - {
        *("proposal", "observation", "forecast", "at_seconds", "specs", "required", "settings", "tuner_mode", "trust"),
        *("max_clock_skew_seconds", "last_change_at_seconds", "on_trial", "anchors"),
        # Comes with the search's inputs.
        "choices",
    }

    assert defaulted == set(OTHERS)


def test_a_journal_of_before_these_fields_existed_is_read_as_if_nothing_stood_in_the_way() -> None:
    given = case()
    old = repacked(replaying.pack(inputs(), given, policy=POLICY), **dict.fromkeys(OTHERS))

    assert encode(judge(unpacked(old, given))) == encode(judge(given))


def without(verdict: Verdict, guard: str) -> Verdict:
    return replace(verdict, findings=tuple(finding for finding in verdict.findings if finding.guard != guard))


def test_a_guard_that_did_not_exist_differs_only_where_it_speaks_against_the_change() -> None:
    passing, forbidden = judge(case()), judge(case(forbidden="paused"))

    assert replaying._judged_otherwise(passing, without(passing, "control")) == ()
    assert replaying._judged_otherwise(forbidden, without(forbidden, "control")) == ("control",)


def test_a_guard_that_finds_otherwise_or_is_gone_differs() -> None:
    passing, forbidden = judge(case()), judge(case(forbidden="paused"))

    assert replaying._judged_otherwise(passing, forbidden) == ("control",)
    assert replaying._judged_otherwise(without(passing, "control"), passing) == ("control",)


@pytest.mark.parametrize(
    "damage",
    [{"directions": {"torque": "up"}}, {"directions": 3}, {"change_breaker": {"state": "ajar"}}, {"ladder": [1]}],
    ids=str,
)
def test_what_cannot_be_read_is_an_error_with_the_cycle_and_the_field(damage: dict[str, Any]) -> None:
    given = case()
    damaged = repacked(replaying.pack(inputs(), given, policy=POLICY), **damage)

    with pytest.raises(JournalError, match="what cycle 7 knew cannot be read"):
        unpacked(damaged, given)
