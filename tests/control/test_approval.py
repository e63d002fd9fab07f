"""Whether a person may still say yes to what a cycle has recommended."""

from dataclasses import replace

import pytest

from tests.support.records import MIDNIGHT, applied, failed, finding
from tuner.control.approval import APPROVE_WITHIN_SECONDS, approval_fault
from tuner.values.stages import CycleRecord, Decision, Verdict


def recommended(*, others: bool = True) -> CycleRecord:
    """Return a cycle whose change was held because nobody had said yes; or because of another guard, too."""
    record = replace(applied(7, MIDNIGHT), receipt=None, decision=Decision.HOLD)
    findings = (finding("gain", passed=others), finding("tuner_mode", passed=False))
    verdict = Verdict(cycle_id=7, decision=Decision.HOLD, reason="the tuner's mode is recommend", findings=findings)
    return replace(record, verdict=verdict)


def fault(record: CycleRecord | None, *, mode: str = "recommend", age_seconds: float = 60.0) -> str:
    return approval_fault(record, 7, mode=mode, at_seconds=MIDNIGHT + age_seconds)


def test_what_only_waits_for_a_yes_can_be_approved() -> None:
    assert fault(recommended()) == ""
    assert fault(recommended(), age_seconds=APPROVE_WITHIN_SECONDS) == ""


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        (None, "cycle 7 is not in the journal; `clocktuner history` lists those that are"),
        (failed(7), "cycle 7 proposed no change (observe failed"),
        (replace(recommended(), verdict=None), "cycle 7 proposed no change"),
        (applied(7, MIDNIGHT), "the change of cycle 7 has been made"),
        (recommended(others=False), "cycle 7 does not recommend its change: gain: 0.4 % is under the limit"),
    ],
)
def test_what_is_no_recommendation_cannot(record: CycleRecord | None, complaint: str) -> None:
    assert fault(record).startswith(complaint)


def test_what_proposes_to_leave_everything_as_it_is_cannot() -> None:
    record = recommended()
    assert record.proposal is not None
    unchanged = replace(record.proposal, candidate=record.proposal.incumbent)

    assert fault(replace(record, proposal=unchanged)).startswith("cycle 7 proposed no change")


@pytest.mark.parametrize(
    ("mode", "remedy"), [("auto", "in auto mode changes need no approval"), ("observe", "set `mode: recommend`")]
)
def test_only_in_recommend_mode_a_yes_means_anything(mode: str, remedy: str) -> None:
    assert fault(recommended(), mode=mode) == f"the tuner's mode is {mode}: {remedy}"


def test_what_was_recommended_for_another_load_cannot() -> None:
    found = fault(recommended(), age_seconds=APPROVE_WITHIN_SECONDS + 1)

    assert "cycle 7 is from 2026-01-01 00:00 UTC, over 60 min ago" in found
