"""The gate: one failed guard is enough, and the reason is the one that weighs most."""

from typing import Any

import numpy as np
import pytest

from tuner.judge.case import Case
from tuner.judge.gate import judge
from tuner.judge.guards import GUARDS
from tuner.settings.model import CycleSettings, TunerMode
from tuner.values.knobs import DESIGN_RANGES, KnobValues, Role, middle
from tuner.values.stages import Decision, Forecast, Observation, Proposal, SeriesFrame

NOW = 1_700_000_000.0
SPECS = tuple(DESIGN_RANGES.values())
MIDDLE = middle(SPECS)
REASON = "slice 115 ms -> 125 ms should be 6 % better"


def case(
    *, slice_seconds: float = 0.125, score: float = -0.06, arriving: bool = True, cycle_id: int = 7, **changes: Any
) -> Case:
    proposal = Proposal(
        cycle_id=7,
        incumbent=MIDDLE,
        candidate=KnobValues.of({**MIDDLE, Role.BASE_SLICE: slice_seconds}),
        score=score,
        score_error=0.01,
        predicted=np.ones(13),
        predicted_incumbent=np.ones(13),
        feasible=True,
        violations=(),
        trials=100,
        seed=1,
        fidelity_ratio=0.8,
        reason=REASON,
    )
    observation = Observation(
        cycle_id=cycle_id,
        at_seconds=NOW,
        metrics=np.ones(13),
        ages_seconds=np.ones(13),
        coverage_ratio=np.ones(13),
        context={},
        history=SeriesFrame((), NOW, np.empty((0, 0))),
        knobs=MIDDLE,
        arriving=arriving,
    )
    forecast = Forecast(
        cycle_id=7, at_seconds=NOW, names=(), values=np.empty((0, 1, 3)), models=(), error_ratio=np.empty(0)
    )
    given: dict[str, Any] = {
        "proposal": proposal,
        "observation": observation,
        "forecast": forecast,
        "at_seconds": NOW,
        "specs": SPECS,
        "required": ("queue_wait_seconds",),
        "settings": CycleSettings(),
        "tuner_mode": TunerMode.AUTO,
        "trust": 1.0,
        "max_clock_skew_seconds": 30.0,
        "anchors": 12,
    }
    return Case(**{**given, **changes})


def test_a_sound_proposal_is_applied_with_the_gain_as_its_reason() -> None:
    verdict = judge(case())

    assert verdict.decision is Decision.APPLY
    assert verdict.reason == REASON
    assert verdict.cycle_id == 7


def test_every_guard_is_heard_in_order_whatever_the_others_say() -> None:
    names = [guard.__name__ for guard in GUARDS]

    assert [finding.guard for finding in judge(case()).findings] == names
    assert [finding.guard for finding in judge(case(slice_seconds=0.2, arriving=False)).findings] == names


@pytest.mark.parametrize(
    ("changes", "decision", "part"),
    [
        ({"arriving": False}, Decision.HOLD, "no work arrived"),
        ({"score": 0.0}, Decision.HOLD, "expected score +0.0000"),
        # Of two holds the first in the order of guards is the reason.
        ({"arriving": False, "score": 0.0}, Decision.HOLD, "no work arrived"),
        ({"slice_seconds": 0.2}, Decision.REJECT, "outside 0.08..0.15"),
        # A reject outweighs a hold.
        ({"slice_seconds": 0.2, "arriving": False, "tuner_mode": TunerMode.OBSERVE}, Decision.REJECT, "outside"),
        # A mode that does not act is the reason only where nothing else is.
        ({"score": 0.0, "tuner_mode": TunerMode.RECOMMEND}, Decision.HOLD, "expected score +0.0000"),
    ],
)
def test_reject_outweighs_hold_and_the_first_of_the_severest_is_the_reason(
    changes: dict[str, Any], decision: Decision, part: str
) -> None:
    verdict = judge(case(**changes))

    assert verdict.decision is decision
    assert part in verdict.reason


@pytest.mark.parametrize("mode", [TunerMode.OBSERVE, TunerMode.RECOMMEND])
def test_a_mode_that_does_not_act_says_what_it_would_have_done(mode: TunerMode) -> None:
    verdict = judge(case(tuner_mode=mode))

    assert verdict.decision is Decision.HOLD
    assert verdict.reason.startswith(f"would have applied: {REASON}; the tuner's mode is {mode}")


def test_documents_of_different_cycles_are_refused() -> None:
    with pytest.raises(ValueError, match="proposal of cycle 7 with observation of cycle 6"):
        case(cycle_id=6)
