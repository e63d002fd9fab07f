"""Guards: the reasons a proposal may not go to the cluster.

Each guard is one pure function of what the cycle already knows. It returns a `Finding` for every outcome, so that a
report can show what passed as well as what failed. `gate.judge` runs all of them and decides; guards never decide.

Comparisons are written as "not <=" where NaN, which compares false, must fail the guard. A guard to come is one
function and one row of `GUARDS`.
"""

import math
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from tuner.judge.case import Case
from tuner.judge.change_breaker import resting_seconds
from tuner.judge.ladder import Ladder, trust_factor
from tuner.judge.limits import MIN_TRUST, SOURCE_DOUBTS
from tuner.judge.reach import step_ratio
from tuner.settings.model import TunerMode
from tuner.values.knobs import KnobSpec, SchedulerMode
from tuner.values.metrics import METRIC_INDEX
from tuner.values.safety import BreakerState, Rung
from tuner.values.stages import MIN_ANCHORS, Decision, Finding

GAIN_ERRORS: Final = 1.0
"""Standard errors by which an expected gain must exceed the minimum: one, that is about 84 % one-sided."""

_ROUNDING: Final = 1e-9
"""Difference of two settings that is rounding."""

_TOLD: Final = ", so changes are told but not made"


Guard: TypeAlias = Callable[[Case], Finding]


def knobs(case: Case) -> Finding:
    """Hold unless the settings in force are known and are those that the search started from."""
    live = case.observation.knobs
    if live is None:
        return _finding("knobs", passed=False, sentence="the settings in force could not be read")
    missing = [spec.role for spec in case.specs if spec.role not in live]
    if missing:
        return _finding("knobs", passed=False, sentence=f"the scheduler gave no value for {', '.join(missing)}")
    moved = case.proposal.incumbent.differs(live)
    if moved:
        return _finding("knobs", passed=False, sentence=f"{', '.join(moved)} changed since the search began")
    return _finding("knobs", passed=True, sentence=f"in force: {live.describe()}")


def bounds(case: Case) -> Finding:
    """Reject values outside the policy's ranges, and knobs that the policy does not have."""
    specs = {spec.role: spec for spec in case.specs}
    for role, value in case.proposal.candidate.items():
        spec = specs.get(role)
        if spec is None:
            sentence = f"{role} is not a knob of the policy"
            return _finding("bounds", passed=False, severity=Decision.REJECT, observed=value, sentence=sentence)
        if not spec.contains(value):
            limit = spec.low if value < spec.low else spec.high
            sentence = f"{role} {value:g} is outside {spec.low:g}..{spec.high:g}"
            return _finding(
                "bounds", passed=False, severity=Decision.REJECT, observed=value, limit=limit, sentence=sentence
            )
    return _finding("bounds", passed=True, severity=Decision.REJECT, sentence="every value is inside its range")


def grid(case: Case) -> Finding:
    """Reject values between the grid points, or that no word of the native setting stands for."""
    for spec in case.specs:
        value = case.proposal.candidate.get(spec.role, math.nan)
        near = min(case.choices.get(spec.role, (_snap(spec, value),)), key=lambda choice: abs(choice - value))
        if not abs(value - near) <= _ROUNDING * max(1.0, abs(near)):
            sentence = f"{spec.role} {value:g} is not a value that can be set; the nearest is {near:g}"
            return _finding(
                "grid", passed=False, severity=Decision.REJECT, observed=value, limit=near, sentence=sentence
            )
    return _finding("grid", passed=True, severity=Decision.REJECT, sentence="every value can be set as it is")


def slew(case: Case) -> Finding:
    """Reject moves that are larger than one change may make in the present trust region, and rung of the ladder."""
    largest, limit, role = 0.0, math.nan, "no knob"
    # A rung that allows no change at all is for the guard `ladder` to say: these values are not wrong for it.
    factor = step_ratio(case.region, case.ladder)
    wrong = factor < (trust_factor(case.ladder) or 1.0)
    because = "the twin was wrong" if wrong else f"the tuner is {case.ladder.rung.label}"
    why = "" if factor == 1.0 else f" ({factor:g} of the usual, because {because})"
    for spec in case.specs:
        reach = max(spec.slew * factor, spec.step)
        move = abs(case.proposal.candidate.get(spec.role, math.nan) - case.proposal.incumbent.get(spec.role, math.nan))
        if not move <= reach + _ROUNDING:
            sentence = f"{spec.role} would move by {move:g}, over {reach:g} at once{why}"
            return _finding(
                "slew", passed=False, severity=Decision.REJECT, observed=move, limit=reach, sentence=sentence
            )
        if move > largest:
            largest, limit, role = move, reach, spec.role
    sentence = f"{role} moves by {largest:g}" + ("" if math.isnan(limit) else f" of {limit:g} at once{why}")
    return _finding("slew", passed=True, severity=Decision.REJECT, observed=largest, limit=limit, sentence=sentence)


def disruption(case: Case) -> Finding:
    """Reject moves of knobs that restart something, unless the operator has agreed to that."""
    moved = case.proposal.candidate.differs(case.proposal.incumbent)
    disruptive = [spec.role for spec in case.specs if spec.disruptive and spec.role in moved]
    passed = not disruptive or case.disruptive_allowed
    sentence = f"{', '.join(disruptive)} restarts work" if disruptive else "no knob that moves restarts anything"
    if not passed:
        sentence += ", which the policy does not allow"
    return _finding("disruption", passed=passed, severity=Decision.REJECT, sentence=sentence)


def feasibility(case: Case) -> Finding:
    """Reject candidates that break a safety limit in the twin."""
    broken = case.proposal.violations
    passed = case.proposal.feasible and not broken
    sentence = (
        "no safety limit is broken" if passed else f"breaks the limit of {', '.join(broken) or 'unknown metrics'}"
    )
    return _finding(
        "feasibility", passed=passed, severity=Decision.REJECT, observed=len(broken), limit=0.0, sentence=sentence
    )


def required_metrics(case: Case) -> Finding:
    """Hold while a metric that the policy needs has no value."""
    missing = [name for name in case.required if not math.isfinite(case.observation.metrics[METRIC_INDEX[name]])]
    sentence = (
        f"no value for {', '.join(missing)}" if missing else f"all {len(case.required)} required metrics have values"
    )
    passed = bool(case.required) and not missing
    if not case.required:
        sentence = "the policy requires no metric, so nothing could tell harm"
    return _finding(
        "required_metrics", passed=passed, observed=len(missing), limit=0.0, unit="metrics", sentence=sentence
    )


def freshness(case: Case) -> Finding:
    """Hold while the newest sample of a required metric is too old to describe the cluster."""
    # Ages count from the observation; what the cycle took since then comes on top.
    since = case.at_seconds - case.observation.at_seconds
    ages = [(name, since + float(case.observation.ages_seconds[METRIC_INDEX[name]])) for name in case.required]
    return _worst("freshness", ages, limit=case.settings.max_age_seconds, unit="s", noun="age", highest=True)


def coverage(case: Case) -> Finding:
    """Hold while too few samples of a required metric arrived in the recent window."""
    shares = [(name, float(case.observation.coverage_ratio[METRIC_INDEX[name]])) for name in case.required]
    return _worst(
        "coverage", shares, limit=case.settings.min_coverage_ratio, unit="ratio", noun="coverage", highest=False
    )


def clock_skew(case: Case) -> Finding:
    """Hold while samples come from the future: then no age can be believed."""
    ahead = [(name, -float(case.observation.ages_seconds[METRIC_INDEX[name]])) for name in case.required]
    return _worst(
        "clock_skew", ahead, limit=case.max_clock_skew_seconds, unit="s", noun="lead over our clock", highest=True
    )


def source(case: Case) -> Finding:
    """Hold while the source speaks against itself: its answers are partial, or its clock disagrees with ours."""
    doubts = [
        problem.detail
        for problem in case.observation.problems
        if problem.metric == "source" and problem.reason in SOURCE_DOUBTS
    ]
    sentence = f"the source is in doubt: {'; '.join(doubts)}" if doubts else "the source vouches for its answers"
    return _finding("source", passed=not doubts, observed=len(doubts), limit=0.0, unit="doubts", sentence=sentence)


def arrivals(case: Case) -> Finding:
    """Hold while nothing arrives: an idle cluster cannot tell settings apart."""
    arriving = case.observation.arriving
    sentence = "work arrives" if arriving else "no work arrived in the recent window; an idle cluster teaches nothing"
    return _finding("arrivals", passed=arriving, sentence=sentence)


def scheduler_mode(case: Case) -> Finding:
    """Hold while the scheduler does not run its full policy: the knobs act differently then."""
    mode = case.observation.mode
    return _finding(
        "scheduler_mode", passed=mode is SchedulerMode.FULL, sentence=f"the scheduler runs its {mode} policy"
    )


def forecast(case: Case) -> Finding:
    """Hold without a forecast, or on one that is older than the samples may be."""
    limit = case.settings.max_age_seconds
    if case.forecast is None:
        return _finding("forecast", passed=False, limit=limit, unit="s", sentence="there is no forecast")
    age = case.at_seconds - case.forecast.at_seconds
    sentence = f"the forecast ({case.forecast.rung}) knows samples up to {age:.0f} s ago, limit {limit:.0f} s"
    return _finding("forecast", passed=age <= limit, observed=age, limit=limit, unit="s", sentence=sentence)


def control(case: Case) -> Finding:
    """Hold while people, or the clock, forbid changes: a pause, the kill switch, a maintenance window."""
    sentence = f"changes are forbidden: {case.forbidden}" if case.forbidden else "nobody forbids changes"
    return _finding("control", passed=not case.forbidden, sentence=sentence)


def direction(case: Case) -> Finding:
    """Hold while a knob would move against the direction that a person left it."""
    before, after = case.proposal.incumbent, case.proposal.candidate
    for role in after.differs(before):
        allowed = case.directions.get(role)
        move = after[role] - before.get(role, math.nan)
        if allowed is not None and not {"up": move, "down": -move}.get(allowed, math.nan) > 0:
            way = f"may only move {allowed}" if allowed in ("up", "down") else "may not be moved"
            sentence = f"{role} would move by {move:+g}, but a person has said that it {way}"
            return _finding("direction", passed=False, observed=move, limit=0.0, sentence=sentence)
    bound = ", ".join(f"{role} {allowed}" for role, allowed in case.directions.items())
    return _finding(
        "direction", passed=True, sentence=f"every move is the way it may go ({bound})" if bound else "no way is barred"
    )


def churn(case: Case) -> Finding:
    """Hold once as many changes were tried within a day as the policy allows."""
    tried, limit = case.changes_today, case.max_changes_per_day
    if limit is None:
        sentence = f"{tried} changes in the last 24 h, which are not limited"
        return _finding("churn", passed=True, observed=tried, unit="changes", sentence=sentence)
    sentence = f"{tried} changes in the last 24 h, at most {limit} allowed"
    return _finding("churn", passed=tried < limit, observed=tried, limit=limit, unit="changes", sentence=sentence)


def change_breaker(case: Case) -> Finding:
    """Hold while the change breaker is open or rests; while it is half open, let no knob move by more than one step."""
    breaker = case.change_breaker
    left = resting_seconds(breaker, at_seconds=case.at_seconds)
    if left > 0 and breaker.state is not BreakerState.OPEN:
        sentence = f"the change breaker rests for another {left:.0f} s: {breaker.rest_reason}"
        return _finding("change_breaker", passed=False, observed=left, limit=0.0, unit="s", sentence=sentence)
    if breaker.state is BreakerState.CLOSED:
        return _finding("change_breaker", passed=True, sentence="the change breaker is closed")
    if breaker.state is BreakerState.OPEN:
        return _finding("change_breaker", passed=False, sentence=f"the change breaker is open: {breaker.reason}")
    steps, role = max(((_steps(case, spec), str(spec.role)) for spec in case.specs), default=(0.0, "no knob"))
    sentence = f"the change breaker is half open: {role} moves by {steps:.3g} steps, at most 1 allowed"
    passed = steps <= 1.0 + _ROUNDING
    return _finding("change_breaker", passed=passed, observed=steps, limit=1.0, unit="steps", sentence=sentence)


def ladder(case: Case) -> Finding:
    """Hold while the tuner trusts itself too little to change anything, or was told to change nothing."""
    rung, reason = case.ladder.rung, case.ladder.frozen_because or case.ladder.reason
    sentence = f"the tuner is {rung.label}" + (f": {reason}" if reason and rung > Rung.NORMAL else "")
    passed, limit = rung <= Rung.CAUTIOUS, float(Rung.CAUTIOUS)
    return _finding("ladder", passed=passed, observed=float(rung), limit=limit, unit="rung", sentence=sentence)


def latency_breaker(case: Case) -> Finding:
    """Hold while the scheduler is in trouble, or its full policy on probe: a change would blur what the probe shows."""
    passed = not case.latency_breaker_open
    sentence = "the latency breaker is closed" if passed else "the latency breaker is open, or on probe"
    return _finding("latency_breaker", passed=passed, sentence=sentence)


def one_change(case: Case) -> Finding:
    """Hold while another change is on trial: two at once could not be told apart."""
    passed = case.on_trial is None
    sentence = "no change is on trial" if passed else f"the change of cycle {case.on_trial} is still on trial"
    return _finding("one_change", passed=passed, sentence=sentence)


def verifiable(case: Case) -> Finding:
    """Hold until enough is known of the time before a change to judge it by."""
    seen, limit = case.anchors, MIN_ANCHORS
    sentence = f"{seen} intervals tell how far the twin is off without a change, at least {limit} needed"
    return _finding("verifiable", passed=seen >= limit, observed=seen, limit=limit, unit="intervals", sentence=sentence)


def cooldown(case: Case) -> Finding:
    """Hold for a while after a change, whoever made it."""
    limit = case.settings.cooldown_seconds
    if case.last_change_at_seconds is None:
        return _finding("cooldown", passed=True, limit=limit, unit="s", sentence="nothing was changed yet")
    since = case.at_seconds - case.last_change_at_seconds
    sentence = f"last change {since:.0f} s ago, cool-down {limit:.0f} s"
    return _finding("cooldown", passed=since >= limit, observed=since, limit=limit, unit="s", sentence=sentence)


def fidelity(case: Case) -> Finding:
    """Hold while the twin reproduces too little of what is observed."""
    seen, limit = case.proposal.fidelity_ratio, case.settings.min_fidelity_ratio
    sentence = (
        "the twin has not been compared with the cluster yet"
        if math.isnan(seen)
        else f"the twin explains {seen * 100:.0f} % of what is observed, at least {limit * 100:.0f} % needed"
    )
    return _finding("fidelity", passed=seen >= limit, observed=seen, limit=limit, unit="ratio", sentence=sentence)


def trust(case: Case) -> Finding:
    """Hold while the twin's predicted gains do not come true."""
    sentence = f"trust in the twin's predictions is {case.trust:.2f}, at least {MIN_TRUST:.2f} needed"
    if (ratio := step_ratio(case.region, Ladder())) < 1.0:
        sentence += f"; it was wrong: searches look only {ratio:.2f} of a full step far"
    passed = case.trust >= MIN_TRUST
    return _finding("trust", passed=passed, observed=case.trust, limit=MIN_TRUST, unit="ratio", sentence=sentence)


def difference(case: Case) -> Finding:
    """Hold where the search found nothing better than what is in force."""
    changes = case.proposal.changes
    return _finding("difference", passed=changes, sentence=case.proposal.reason)


def gain(case: Case) -> Finding:
    """Hold unless the expected gain, less its error, is worth a change."""
    score, error, limit = case.proposal.score, case.proposal.score_error, -case.settings.min_gain_ratio
    cautious = score + GAIN_ERRORS * error
    sentence = (
        f"expected score {score:+.4f} ± {error:.4f}, so {cautious:+.4f} with its error; must be below {limit:+.4f}"
    )
    return _finding(
        "gain",
        passed=math.isfinite(cautious) and cautious < limit,
        observed=cautious,
        limit=limit,
        unit="score",
        sentence=sentence,
    )


def tuner_mode(case: Case) -> Finding:
    """Hold unless the operator lets the tuner act, or has approved what it recommends."""
    acts = case.tuner_mode is TunerMode.AUTO
    approved = case.tuner_mode is TunerMode.RECOMMEND and case.approved
    consequence = "" if acts else ", and a person has approved this change" if approved else _TOLD
    sentence = f"the tuner's mode is {case.tuner_mode}{consequence}"
    return _finding("tuner_mode", passed=acts or approved, sentence=sentence)


GUARDS: Final[tuple[Guard, ...]] = (
    # What may never be written.
    bounds,
    grid,
    slew,
    disruption,
    feasibility,
    # What must be known.
    knobs,
    required_metrics,
    source,
    clock_skew,
    freshness,
    coverage,
    arrivals,
    scheduler_mode,
    forecast,
    # When it may be done: what people say, what came of the changes before, and what is going on.
    control,
    direction,
    ladder,
    change_breaker,
    latency_breaker,
    churn,
    one_change,
    cooldown,
    verifiable,
    # Whether it is worth it.
    fidelity,
    trust,
    difference,
    gain,
    # Last, because its sentence is the reason only where everything else passed.
    tuner_mode,
)
"""Every guard, in the order in which they run and in which their reasons count."""


def _finding(
    guard: str,
    *,
    passed: bool,
    sentence: str,
    severity: Decision = Decision.HOLD,
    observed: float = math.nan,
    limit: float = math.nan,
    unit: str = "",
) -> Finding:
    return Finding(
        guard=guard,
        passed=bool(passed),
        severity=severity,
        observed=observed,
        limit=limit,
        unit=unit,
        sentence=sentence,
    )


def _steps(case: Case, spec: KnobSpec) -> float:
    """Return by how many steps a knob would move; infinity where it is unknown."""
    move = abs(case.proposal.candidate.get(spec.role, math.nan) - case.proposal.incumbent.get(spec.role, math.nan))
    return math.inf if math.isnan(move) else move / spec.step


def _snap(spec: KnobSpec, value: float) -> float:
    return spec.snap(value) if math.isfinite(value) else spec.low


def _worst(
    guard: str, values: Iterable[tuple[str, float]], *, limit: float, unit: str, noun: str, highest: bool
) -> Finding:
    """Compare the worst of several values with a limit; an unknown one is the worst of all."""
    sign = 1.0 if highest else -1.0
    ranked = sorted(values, key=lambda item: math.inf if math.isnan(item[1]) else sign * item[1])
    if not ranked:
        return _finding(guard, passed=False, limit=limit, unit=unit, sentence="the policy requires no metric")
    name, value = ranked[-1]
    passed = value <= limit if highest else value >= limit
    sentence = (
        f"{noun} of {name} is unknown"
        if math.isnan(value)
        else f"{noun} of {name} is {value:.3g} {unit}, limit {limit:.3g} {unit}"
    )
    return _finding(guard, passed=passed, observed=value, limit=limit, unit=unit, sentence=sentence)
