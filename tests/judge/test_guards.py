"""Every guard by a table of cases, and the laws that all of them keep."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.judge import guards
from tuner.judge.case import Case
from tuner.judge.change_breaker import ChangeBreaker
from tuner.judge.gate import judge
from tuner.judge.guards import GUARDS
from tuner.judge.ladder import Ladder, freeze
from tuner.settings.model import CycleSettings, TunerMode
from tuner.values.knobs import DESIGN_RANGES, KnobValues, Role, SchedulerMode, middle
from tuner.values.metrics import METRIC_INDEX, MetricVector
from tuner.values.safety import BreakerState, Rung
from tuner.values.stages import Decision, Finding, Forecast, Observation, Problem, Proposal, SeriesFrame

NOW = 1_700_000_000.0
SPECS = tuple(DESIGN_RANGES.values())
MIDDLE = middle(SPECS)
NEXT = KnobValues.of({**MIDDLE, Role.BASE_SLICE: 0.125})
REQUIRED = ("scheduling_latency_seconds", "queue_wait_seconds")
NAN = math.nan


def moved(**changes: float) -> KnobValues:
    return KnobValues.of({**MIDDLE, **{Role[name]: value for name, value in changes.items()}})


def proposal(**changes: Any) -> Proposal:
    given: dict[str, Any] = {
        "cycle_id": 7,
        "incumbent": MIDDLE,
        "candidate": NEXT,
        "score": -0.06,
        "score_error": 0.01,
        "predicted": np.ones(13),
        "predicted_incumbent": np.ones(13),
        "feasible": True,
        "violations": (),
        "trials": 100,
        "seed": 1,
        "fidelity_ratio": 0.8,
        "reason": "slice 115 ms -> 125 ms should be 6 % better",
    }
    return Proposal(**{**given, **changes})


def vector(value: float, **others: float) -> MetricVector:
    result = np.full(13, value)
    for name, other in others.items():
        result[METRIC_INDEX[name]] = other
    return result


def observation(**changes: Any) -> Observation:
    given: dict[str, Any] = {
        "cycle_id": 7,
        "at_seconds": NOW,
        "metrics": vector(1.0),
        "ages_seconds": vector(30.0),
        "coverage_ratio": vector(1.0),
        "context": {},
        "history": SeriesFrame((), NOW, np.empty((0, 0))),
        "knobs": MIDDLE,
    }
    return Observation(**{**given, **changes})


def forecast(at_seconds: float = NOW) -> Forecast:
    return Forecast(
        cycle_id=7, at_seconds=at_seconds, names=(), values=np.empty((0, 1, 3)), models=(), error_ratio=np.empty(0)
    )


def case(**changes: Any) -> Case:
    given: dict[str, Any] = {
        "proposal": proposal(),
        "observation": observation(),
        "forecast": forecast(),
        "at_seconds": NOW,
        "specs": SPECS,
        "required": REQUIRED,
        "settings": CycleSettings(),
        "tuner_mode": TunerMode.AUTO,
        "trust": 1.0,
        "max_clock_skew_seconds": 30.0,
        "anchors": 12,
    }
    return Case(**{**given, **changes})


def asked(**changes: Any) -> Case:
    return case(proposal=proposal(**changes))


def seen(**changes: Any) -> Case:
    return case(observation=observation(**changes))


DISRUPTIVE = tuple(replace(spec, disruptive=spec.role is Role.BASE_SLICE) for spec in SPECS)
WORDS = {Role.BASE_SLICE: (0.1, 0.115, 0.127)}
OUTSIDE = moved(BASE_SLICE=0.16)
UP, DOWN, STILL = ({Role.BASE_SLICE: way} for way in ("up", "down", "none"))
CAUTIOUS = Ladder(
    rung=Rung.CAUTIOUS, causes=("trust",), since_seconds=NOW, reason="trust is 0.20, at least 0.25 needed"
)
HALF_OPEN = ChangeBreaker(state=BreakerState.HALF_OPEN, harms=(NOW,), opened_at_seconds=NOW, cool_down_seconds=3600.0)
RESTING = ChangeBreaker(rests_until_seconds=NOW + 600.0, rest_reason="it was dear")
HUGE = KnobValues(((Role.BASE_SLICE, NAN), *MIDDLE.items_[1:]))

# Guard, case, whether it passes, and a part of its sentence.
TABLE: list[tuple[Callable[[Case], Finding], Case, bool, str]] = [
    (guards.bounds, case(), True, "inside its range"),
    (guards.bounds, asked(candidate=moved(BASE_SLICE=0.15)), True, "inside"),
    (guards.bounds, asked(candidate=OUTSIDE), False, "base_slice_seconds 0.16 is outside 0.08..0.15"),
    (guards.bounds, asked(candidate=moved(RESERVATION=0.14)), False, "reservation_ratio 0.14 is outside 0.15..0.25"),
    (guards.bounds, asked(candidate=HUGE), False, "base_slice_seconds nan is outside"),
    (guards.bounds, case(specs=SPECS[1:]), False, "base_slice_seconds is not a knob of the policy"),
    (guards.grid, case(), True, "can be set as it is"),
    (
        guards.grid,
        asked(candidate=moved(BASE_SLICE=0.1237)),
        False,
        "0.1237 is not a value that can be set; the nearest is 0.125",
    ),
    (guards.grid, asked(candidate=HUGE), False, "base_slice_seconds nan"),
    (guards.grid, asked(candidate=KnobValues(NEXT.items_[:3])), False, "reservation_ratio nan"),
    (guards.grid, case(choices=WORDS), False, "0.125 is not a value that can be set; the nearest is 0.127"),
    (guards.grid, case(choices=WORDS, proposal=proposal(candidate=moved(BASE_SLICE=0.127))), True, "can be set"),
    (guards.slew, case(), True, "base_slice_seconds moves by 0.01 of 0.02 at once"),
    (guards.slew, asked(candidate=moved(BASE_SLICE=0.135)), True, "moves by 0.02 of 0.02"),
    (guards.slew, asked(candidate=moved(BASE_SLICE=0.14)), False, "would move by 0.025, over 0.02 at once"),
    (guards.slew, case(region=0.5), True, "moves by 0.01 of 0.02 at once"),
    (
        guards.slew,
        case(region=0.25),
        True,
        "moves by 0.01 of 0.01 at once (0.5 of the usual, because the twin was wrong",
    ),
    (guards.slew, case(region=0.2), False, "would move by 0.01, over 0.008"),
    (guards.slew, case(region=NAN), False, "over nan"),
    (guards.slew, asked(candidate=MIDDLE), True, "no knob moves"),
    (guards.slew, asked(incumbent=KnobValues(MIDDLE.items_[1:])), False, "would move by nan"),
    (guards.slew, case(ladder=CAUTIOUS), True, "moves by 0.01 of 0.01 at once (0.5 of the usual, because the tuner is"),
    (
        guards.slew,
        case(ladder=CAUTIOUS, proposal=proposal(candidate=moved(BASE_SLICE=0.13))),
        False,
        "would move by 0.015, over 0.01 at once (0.5 of the usual, because the tuner is cautious)",
    ),
    # Below, it is the guard `ladder` that holds: these values are not wrong for it.
    (guards.slew, case(ladder=Ladder(rung=Rung.OBSERVE_ONLY)), True, "moves by 0.01 of 0.02 at once"),
    (guards.disruption, case(), True, "no knob that moves restarts anything"),
    (
        guards.disruption,
        case(specs=DISRUPTIVE),
        False,
        "base_slice_seconds restarts work, which the policy does not allow",
    ),
    (guards.disruption, case(specs=DISRUPTIVE, disruptive_allowed=True), True, "restarts work"),
    (guards.disruption, case(specs=DISRUPTIVE, proposal=proposal(candidate=moved(RESERVATION=0.21))), True, "no knob"),
    (guards.feasibility, case(), True, "no safety limit is broken"),
    (
        guards.feasibility,
        asked(feasible=False, violations=("task_abandonment_ratio",)),
        False,
        "task_abandonment_ratio",
    ),
    (guards.feasibility, asked(violations=("task_abandonment_ratio",)), False, "task_abandonment_ratio"),
    (guards.feasibility, asked(feasible=False), False, "unknown metrics"),
    (guards.knobs, case(), True, "in force: slice 115 ms"),
    (guards.knobs, seen(knobs=None), False, "could not be read"),
    (guards.knobs, seen(knobs=KnobValues(MIDDLE.items_[:3])), False, "gave no value for reservation_ratio"),
    (guards.knobs, seen(knobs=moved(RESERVATION=0.22)), False, "reservation_ratio changed since the search began"),
    (guards.required_metrics, case(), True, "all 2 required metrics have values"),
    (
        guards.required_metrics,
        seen(metrics=vector(NAN, scheduling_latency_seconds=0.0, queue_wait_seconds=0.0)),
        True,
        "all 2",
    ),
    (
        guards.required_metrics,
        seen(metrics=vector(1.0, queue_wait_seconds=NAN)),
        False,
        "no value for queue_wait_seconds",
    ),
    (guards.required_metrics, seen(metrics=vector(1.0, queue_wait_seconds=math.inf)), False, "no value for queue_wait"),
    (guards.required_metrics, case(required=()), False, "the policy requires no metric"),
    (guards.freshness, case(), True, "age of queue_wait_seconds is 30 s, limit 150 s"),
    (guards.freshness, seen(ages_seconds=vector(30.0, queue_wait_seconds=151.0)), False, "queue_wait_seconds is 151 s"),
    (guards.freshness, seen(ages_seconds=vector(30.0, queue_wait_seconds=NAN)), False, "queue_wait_seconds is unknown"),
    (guards.freshness, case(at_seconds=NOW + 121.0), False, "is 151 s, limit 150 s"),
    (guards.freshness, case(required=()), False, "requires no metric"),
    (guards.coverage, case(), True, "is 1 ratio, limit 0.8 ratio"),
    (
        guards.coverage,
        seen(coverage_ratio=vector(0.0, scheduling_latency_seconds=0.8, queue_wait_seconds=0.8)),
        True,
        "0.8",
    ),
    (
        guards.coverage,
        seen(coverage_ratio=vector(1.0, queue_wait_seconds=0.79)),
        False,
        "of queue_wait_seconds is 0.79",
    ),
    (guards.coverage, seen(coverage_ratio=vector(1.0, queue_wait_seconds=NAN)), False, "is unknown"),
    (guards.source, case(), True, "vouches for its answers"),
    (guards.source, seen(problems=(Problem("source", "partial", "one store did not answer"),)), False, "one store"),
    (guards.source, seen(problems=(Problem("source", "clock_skew", "40 s ahead"),)), False, "40 s ahead"),
    (guards.source, seen(problems=(Problem("queue_length", "stale", "old"),)), True, "vouches"),
    (guards.clock_skew, case(), True, "is -30 s, limit 30 s"),
    (guards.clock_skew, seen(ages_seconds=vector(-30.0)), True, "lead over our clock"),
    (guards.clock_skew, seen(ages_seconds=vector(30.0, queue_wait_seconds=-31.0)), False, "queue_wait_seconds is 31 s"),
    (guards.clock_skew, seen(ages_seconds=vector(NAN)), False, "is unknown"),
    (guards.arrivals, case(), True, "work arrives"),
    (guards.arrivals, seen(arriving=False), False, "no work arrived in the recent window"),
    (guards.scheduler_mode, case(), True, "full policy"),
    (guards.scheduler_mode, seen(mode=SchedulerMode.SIMPLIFIED), False, "runs its simplified policy"),
    (guards.scheduler_mode, seen(mode=SchedulerMode.PRIORITY_ONLY), False, "runs its priority_only policy"),
    (guards.forecast, case(), True, "the forecast (selected) knows samples up to 0 s ago, limit 150 s"),
    (guards.forecast, case(forecast=None), False, "there is no forecast"),
    (guards.forecast, case(forecast=forecast(NOW - 151.0)), False, "up to 151 s ago"),
    (guards.forecast, case(forecast=forecast(NAN)), False, "nan"),
    (guards.control, case(), True, "nobody forbids changes"),
    (guards.control, case(forbidden="paused by anna: rack work"), False, "forbidden: paused by anna: rack work"),
    (guards.direction, case(), True, "no way is barred"),
    (guards.direction, case(directions=UP), True, "every move is the way it may go (base_slice_seconds up)"),
    (
        guards.direction,
        case(directions=DOWN),
        False,
        "would move by +0.01, but a person has said that it may only move",
    ),
    (guards.direction, case(directions=STILL), False, "base_slice_seconds would move by +0.01, but a person has said"),
    (guards.direction, case(directions=STILL), False, "may not be moved"),
    (guards.direction, case(directions=DOWN, proposal=proposal(candidate=moved(BASE_SLICE=0.105))), True, "slice"),
    (
        guards.direction,
        case(directions=UP, proposal=proposal(candidate=moved(BASE_SLICE=0.105))),
        False,
        "only move up",
    ),
    (
        guards.direction,
        case(directions=STILL, proposal=proposal(candidate=moved(RESERVATION=0.21))),
        True,
        "every move",
    ),
    (guards.direction, case(directions=UP, proposal=proposal(candidate=HUGE)), False, "would move by +nan"),
    (
        guards.direction,
        case(directions=UP, proposal=proposal(incumbent=KnobValues(MIDDLE.items_[1:]))),
        False,
        "would move by +nan",
    ),
    (guards.ladder, case(), True, "the tuner is normal"),
    (guards.ladder, case(ladder=Ladder(rung=Rung.NO_LSTM, reason="no network")), True, "is no_lstm: no network"),
    (guards.ladder, case(ladder=Ladder(rung=Rung.CAUTIOUS, reason="low trust")), True, "is cautious: low trust"),
    (guards.ladder, case(ladder=Ladder(rung=Rung.OBSERVE_ONLY, reason="blind")), False, "is observe_only: blind"),
    (guards.ladder, case(ladder=freeze(Ladder(), "contested", at_seconds=NOW)), False, "is frozen: contested"),
    (guards.trust, case(region=0.25), True, "it was wrong: searches look only 0.50 of a full step far"),
    (guards.change_breaker, case(), True, "the change breaker is closed"),
    (
        guards.change_breaker,
        case(change_breaker=ChangeBreaker(state=BreakerState.OPEN, reason="3 changes did harm")),
        False,
        "the change breaker is open: 3 changes did harm",
    ),
    (guards.change_breaker, case(change_breaker=RESTING), False, "rests for another 600 s: it was dear"),
    (guards.change_breaker, case(change_breaker=replace(RESTING, rests_until_seconds=NOW)), True, "is closed"),
    (
        guards.change_breaker,
        case(change_breaker=replace(HALF_OPEN, rests_until_seconds=NOW + 9.0)),
        False,
        "another 9 s",
    ),
    (guards.change_breaker, case(change_breaker=HALF_OPEN), False, "moves by 2 steps, at most 1 allowed"),
    (
        guards.change_breaker,
        case(change_breaker=HALF_OPEN, proposal=proposal(candidate=moved(BASE_SLICE=0.11, RESERVATION=0.21))),
        True,
        "moves by 1 steps, at most 1",
    ),
    (
        guards.change_breaker,
        case(change_breaker=HALF_OPEN, proposal=proposal(candidate=HUGE)),
        False,
        "base_slice_seconds moves by inf steps",
    ),
    (guards.latency_breaker, case(), True, "the latency breaker is closed"),
    (guards.latency_breaker, case(latency_breaker_open=True), False, "is open, or on probe"),
    (guards.churn, case(changes_today=99), True, "99 changes in the last 24 h, which are not limited"),
    (guards.churn, case(changes_today=23, max_changes_per_day=24), True, "23 changes in the last 24 h, at most 24"),
    (guards.churn, case(changes_today=24, max_changes_per_day=24), False, "24 changes in the last 24 h, at most 24"),
    (guards.one_change, case(), True, "no change is on trial"),
    (guards.one_change, case(on_trial=3), False, "the change of cycle 3 is still on trial"),
    (guards.one_change, case(on_trial=0), False, "cycle 0"),
    (guards.verifiable, case(), True, "12 intervals tell how far the twin is off"),
    (guards.verifiable, case(anchors=3), True, "3 intervals"),
    (guards.verifiable, case(anchors=2), False, "at least 3 needed"),
    (guards.cooldown, case(), True, "nothing was changed yet"),
    (guards.cooldown, case(last_change_at_seconds=NOW - 600.0), True, "last change 600 s ago, cool-down 600 s"),
    (guards.cooldown, case(last_change_at_seconds=NOW - 599.0), False, "last change 599 s ago"),
    (guards.cooldown, case(last_change_at_seconds=NOW + 5.0), False, "last change -5 s ago"),
    (guards.cooldown, case(last_change_at_seconds=NAN), False, "nan"),
    (guards.fidelity, case(), True, "the twin explains 80 % of what is observed, at least 30 % needed"),
    (guards.fidelity, asked(fidelity_ratio=0.29), False, "explains 29 %"),
    (guards.fidelity, asked(fidelity_ratio=NAN), False, "has not been compared with the cluster yet"),
    (guards.trust, case(), True, "is 1.00, at least 0.15 needed"),
    (guards.trust, case(trust=0.04), False, "is 0.04"),
    (guards.trust, case(trust=NAN), False, "is nan"),
    (guards.difference, case(), True, "6 % better"),
    (guards.difference, asked(candidate=MIDDLE, reason="no candidate of 100 is better"), False, "no candidate of 100"),
    (guards.gain, case(), True, "expected score -0.0600 ± 0.0100, so -0.0500 with its error; must be below -0.0100"),
    (guards.gain, asked(score=-0.02, score_error=0.0101), False, "so -0.0099 with its error"),
    (guards.gain, asked(score=-0.0101, score_error=0.0), True, "so -0.0101"),
    (guards.gain, asked(score=NAN), False, "expected score +nan"),
    (guards.gain, asked(score_error=NAN), False, "± nan"),
    (guards.gain, asked(score=-math.inf), False, "-inf"),
    (guards.tuner_mode, case(), True, "the tuner's mode is auto"),
    (guards.tuner_mode, case(tuner_mode=TunerMode.RECOMMEND), False, "is recommend, so changes are told but not made"),
    (guards.tuner_mode, case(tuner_mode=TunerMode.OBSERVE), False, "is observe, so changes are told"),
    (
        guards.tuner_mode,
        case(tuner_mode=TunerMode.RECOMMEND, approved=True),
        True,
        "is recommend, and a person has approved this change",
    ),
    (guards.tuner_mode, case(tuner_mode=TunerMode.OBSERVE, approved=True), False, "is observe, so changes are told"),
]
NEVER = {"bounds", "grid", "slew", "disruption", "feasibility"}


@pytest.mark.parametrize(
    ("guard", "given_case", "passed", "part"), TABLE, ids=lambda value: getattr(value, "__name__", "")
)
def test_each_guard_says_what_it_saw(
    guard: Callable[[Case], Finding], given_case: Case, passed: bool, part: str
) -> None:
    finding = guard(given_case)

    assert finding.passed is passed
    assert part in finding.sentence
    assert finding.guard == guard.__name__
    assert finding.severity is (Decision.REJECT if guard.__name__ in NEVER else Decision.HOLD)


def test_every_guard_has_a_row_that_passes_and_one_that_fails() -> None:
    assert {guard.__name__ for guard, _, passed, _ in TABLE if passed} == {guard.__name__ for guard in GUARDS}
    assert {guard.__name__ for guard, _, passed, _ in TABLE if not passed} == {guard.__name__ for guard in GUARDS}


def test_every_public_guard_is_in_the_table_of_guards_once() -> None:
    public = {
        value
        for name, value in vars(guards).items()
        if callable(value) and getattr(value, "__annotations__", {}).get("return") is Finding and name[0] != "_"
    }

    assert set(GUARDS) == public
    assert len(GUARDS) == len(public)


@given(
    score=st.floats(allow_nan=True, allow_infinity=True),
    error=st.floats(min_value=0, allow_infinity=True),
    age=st.floats(allow_nan=True, allow_infinity=True),
    coverage=st.floats(allow_nan=True),
    fidelity=st.floats(allow_nan=True),
    since=st.floats(-1e6, 1e6),
    loose=st.tuples(st.floats(0, 1), st.floats(1, 1e4), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1e5)),
    slack=st.tuples(st.floats(0, 1), st.floats(0, 1e4), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1e5)),
)
def test_a_stricter_limit_never_turns_a_hold_into_a_pass(
    *,
    score: float,
    error: float,
    age: float,
    coverage: float,
    fidelity: float,
    since: float,
    loose: tuple[float, ...],
    slack: tuple[float, ...],
) -> None:
    given_case = case(
        proposal=proposal(score=score, score_error=error, fidelity_ratio=fidelity),
        observation=observation(ages_seconds=vector(age), coverage_ratio=vector(coverage)),
        last_change_at_seconds=NOW - since,
    )
    strict = (
        min(loose[0] + slack[0], 1.0),
        max(loose[1] - slack[1], 1e-3),
        min(loose[2] + slack[2], 1.0),
        min(loose[3] + slack[3], 1.0),
        loose[4] + slack[4],
    )

    by_loose, by_strict = (judge(replace(given_case, settings=_settings(limits))) for limits in (loose, strict))

    for before, after in zip(by_loose.findings, by_strict.findings, strict=True):
        assert before.passed or not after.passed
    assert not (by_strict.decision is Decision.APPLY and by_loose.decision is not Decision.APPLY)


@given(region=st.floats(0, 1), less=st.floats(0, 1), target=st.floats(0.08, 0.15))
def test_a_smaller_trust_region_never_lets_a_larger_move_through(region: float, less: float, target: float) -> None:
    given_case = asked(candidate=moved(BASE_SLICE=target))

    full, part = (guards.slew(replace(given_case, region=value)) for value in (region, region * less))

    assert full.passed or not part.passed


@given(rung=st.sampled_from(list(Rung)), deeper=st.sampled_from(list(Rung)), target=st.floats(0.08, 0.15))
def test_a_deeper_rung_never_lets_through_what_a_higher_one_holds(rung: Rung, deeper: Rung, target: float) -> None:
    given_case = asked(candidate=moved(BASE_SLICE=SPECS[0].snap(target)))

    high, low = (judge(replace(given_case, ladder=Ladder(rung=one))) for one in sorted((rung, deeper)))

    assert high.decision is Decision.APPLY or low.decision is not Decision.APPLY


@given(steps=st.lists(st.integers(-3, 3), min_size=4, max_size=4), state=st.sampled_from(list(BreakerState)))
def test_the_change_breaker_lets_only_a_small_trial_through_until_it_is_closed(
    steps: list[int], state: BreakerState
) -> None:
    target = {
        spec.role: spec.at(spec.index(MIDDLE[spec.role]) + count) for spec, count in zip(SPECS, steps, strict=True)
    }
    breaker = replace(HALF_OPEN, state=state)

    finding = guards.change_breaker(case(proposal=proposal(candidate=KnobValues.of(target)), change_breaker=breaker))

    small = max(abs(count) for count in steps) <= 1
    assert finding.passed is {BreakerState.CLOSED: True, BreakerState.OPEN: False, BreakerState.HALF_OPEN: small}[state]


@given(sign=st.sampled_from([-1, 1]), way=st.text(max_size=4))
def test_a_direction_that_is_not_understood_keeps_the_knob_in_place(sign: int, way: str) -> None:
    given_case = case(
        proposal=proposal(candidate=moved(BASE_SLICE=0.115 + sign * 0.005)), directions={Role.BASE_SLICE: way}
    )

    assert guards.direction(given_case).passed is ((way, sign) in {("up", 1), ("down", -1)})


def test_what_a_person_approved_still_has_to_pass_every_other_guard() -> None:
    approved = case(tuner_mode=TunerMode.RECOMMEND, approved=True)

    assert judge(approved).decision is Decision.APPLY
    assert judge(replace(approved, forbidden="paused")).decision is Decision.HOLD
    assert judge(replace(approved, ladder=Ladder(rung=Rung.OBSERVE_ONLY))).decision is Decision.HOLD
    assert judge(replace(approved, proposal=proposal(candidate=OUTSIDE))).decision is Decision.REJECT


def _settings(limits: tuple[float, ...]) -> CycleSettings:
    names = ("min_gain_ratio", "max_age_seconds", "min_coverage_ratio", "min_fidelity_ratio", "cooldown_seconds")
    return CycleSettings.model_validate(dict(zip(names, limits, strict=True)))


@pytest.mark.parametrize("field", ["metrics", "ages_seconds", "coverage_ratio"])
def test_an_unknown_required_metric_never_passes(field: str) -> None:
    verdict = judge(seen(**{field: vector(1.0, queue_wait_seconds=NAN)}))

    assert verdict.decision is Decision.HOLD
    assert "queue_wait_seconds" in verdict.reason
