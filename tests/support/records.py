"""A day of cycles as a tuner might live it: made up, but of the shapes, sizes and turns of a real one.

The load has a daily wave and a burst; a change improves waiting a little, one harms and is rolled back, one cannot be
told; the metrics source is away for two cycles. Everything follows from the seed.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from tuner.record.comparison import ComparisonRun
from tuner.values.context import CONTEXT_NAMES
from tuner.values.knobs import DESIGN_RANGES, KnobValues, middle
from tuner.values.metrics import METRIC_NAMES, METRICS, MetricVector, metric_vector, score
from tuner.values.stages import (
    BestWindow,
    CycleRecord,
    Decision,
    Finding,
    FloatArray,
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

MIDNIGHT = 1_767_225_600.0
"""2026-01-01 00:00 UTC."""

PERIOD_SECONDS = 300.0
SPECS = tuple(DESIGN_RANGES.values())
MIDDLE = middle(SPECS)
GUARDS = ("bounds", "slew", "cooldown", "freshness", "coverage", "gain", "safety", "fidelity", "one_change", "mode")
STAGE_SECONDS = {"observe": 0.041, "forecast": 0.112, "propose": 0.214, "judge": 0.0004, "record": 0.006}
NODES = 16


def load_at(seconds: float) -> float:
    """Return the offered load, about 0.6 at night and 1.05 in the afternoon, with a burst at 15:30."""
    hour = (seconds - MIDNIGHT) / 3600
    burst = 0.18 * math.exp(-(((hour - 15.5) / 0.6) ** 2))
    return 0.82 - 0.22 * math.cos(2 * math.pi * (hour - 3) / 24) + burst


def metrics_at(seconds: float, *, factor: float = 1.0, noise: float = 0.0, seed: int = 0) -> MetricVector:
    """Return metrics under the load of an instant.

    Args:
        seconds: The instant.
        factor: What the setting does to waiting and overhead; below 1 is better.
        noise: Relative spread.
        seed: Seed of the noise; the same instant and seed give the same noise.
    """
    load = load_at(seconds)
    rng = np.random.default_rng([seed, int(seconds)])
    wait = 40.0 * load**6 * factor
    values = {
        "scheduling_latency_seconds": 0.18 + 0.5 * load**8 * factor,
        "resource_idle_ratio": max(0.02, 0.9 - 0.8 * load),
        "accelerator_utilization_ratio": min(0.93, 0.78 * load / factor**0.25),
        "queue_length": round(30 * load**5 * factor),
        "queue_wait_seconds": wait,
        "tasks_completed_per_second": 2.4 * min(load, 1.0),
        "task_abandonment_ratio": 0.004 * load**6 * factor,
        "running_task_remaining_seconds": 1400.0 + 500 * load,
        "node_temperature_celsius": 48 + 22 * min(load, 1.0),
        "node_power_watts": 900 + 1500 * min(load, 1.0),
        "pending_demand_ratio": 0.3 * load**5 * factor,
        "switch_overhead_ratio": 0.09 * factor,
        "high_priority_wait_seconds": 1.1 * load**4 * factor,
    }
    spread = np.exp(noise * rng.standard_normal(len(values)))
    vector: MetricVector = metric_vector(values) * spread
    return np.minimum(vector, [spec.upper for spec in METRICS])


def context_at(seconds: float) -> dict[str, float]:
    """Return the context of an instant."""
    load = load_at(seconds)
    shares = {"preprocessing": 0.35, "training": 0.1, "inference": 0.55}
    values = {
        "accelerators_count": 512.0,
        "nodes_count": 64.0,
        "high_priority_share_ratio": 0.22,
        "decision_seconds": 0.21,
    }
    values |= {"cold_start_ratio": 0.06, "cold_start_seconds": 7.5}
    for kind, share in shares.items():
        values[f"arrivals_per_second:{kind}"] = 2.5 * share * load
        values[f"service_seconds:{kind}"] = 600 * share
        values[f"demand_accelerators:{kind}"] = 1 + 3 * share
        values[f"running_tasks:{kind}"] = 300 * share * load
        values[f"waiting_tasks:{kind}"] = 60 * share * load**5
    return {name: values[name] for name in CONTEXT_NAMES}


def observation(cycle_id: int, at_seconds: float, *, factor: float = 1.0, knobs: KnobValues = MIDDLE) -> Observation:
    """Return what is seen at an instant."""
    times = at_seconds - 60.0 * np.arange(59, -1, -1)
    rows = [metrics_at(time, factor=factor, noise=0.04) for time in times]
    context = [list(context_at(time).values()) for time in times]
    rng = np.random.default_rng(cycle_id)
    temperature = 50 + 20 * rng.random((NODES, 60))
    return Observation(
        cycle_id=cycle_id,
        at_seconds=at_seconds,
        metrics=rows[-1],
        ages_seconds=np.full(len(METRIC_NAMES), 12.0),
        coverage_ratio=np.ones(len(METRIC_NAMES)),
        context=context_at(at_seconds),
        history=SeriesFrame(METRIC_NAMES + CONTEXT_NAMES, at_seconds, np.hstack([rows, context]).T),
        nodes={
            "node_temperature_celsius": SeriesFrame(
                tuple(f"node-{index:02d}" for index in range(NODES)), at_seconds, temperature
            )
        },
        knobs=knobs,
        revision=f'"{cycle_id}"',
        problems=()
        if cycle_id % 40
        else (Problem("node_power_watts", "stale", "newest sample of node_power_watts is 190 s old, over 150 s"),),
    )


def forecast(cycle_id: int, at_seconds: float, *, factor: float = 1.0) -> Forecast:
    """Return a forecast that is right on average and knows how unsure it is."""
    names = METRIC_NAMES + CONTEXT_NAMES[6:]
    times = at_seconds + 60.0 * np.arange(1, 21)
    median = np.array([[*metrics_at(time, factor=factor), *list(context_at(time).values())[6:]] for time in times]).T
    # The further ahead, the wider; a forecast keeps a small error of its own.
    error = np.random.default_rng(cycle_id).normal(0, 0.03)
    spread = 0.05 + 0.008 * np.arange(20)
    centre = median * np.exp(error)
    values = np.stack([centre * np.exp(-1.28 * spread), centre, centre * np.exp(1.28 * spread)], axis=2)
    models = tuple(("lstm", "smoothing", "damped_trend")[index % 3] for index in range(len(names)))
    return Forecast(
        cycle_id=cycle_id,
        at_seconds=at_seconds,
        names=names,
        values=values,
        models=models,
        error_ratio=np.linspace(0.7, 1.1, len(names)),
        nodes={"node_temperature_celsius": (("node-00", "node-01"), np.sort(np.full((2, 20, 3), 60.0), axis=2))},
        best_window=BestWindow(at_seconds + 600, at_seconds + 1500, 0.18),
    )


def finding(guard: str, *, passed: bool = True, severity: Decision = Decision.HOLD) -> Finding:
    """Return a finding with plausible numbers."""
    observed = 0.034 if passed else 0.004
    word = "over" if passed else "under"
    return Finding(
        guard=guard,
        passed=passed,
        severity=severity,
        observed=observed,
        limit=0.01,
        unit="ratio",
        sentence=f"{guard}: {observed * 100:.1f} % is {word} the limit of 1.0 %",
    )


@dataclass
class Tuner:
    """The state of the made-up tuner while its day is written."""

    knobs: KnobValues = MIDDLE
    factor: float = 1.0
    previous: tuple[KnobValues, float] = (MIDDLE, 1.0)
    trial: tuple[int, float, float] | None = None  # Cycle of the change, expected score, factor that it truly brings.
    age: int = 0
    turn: int = 0
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))


TRUE_FACTORS = (0.93, 0.96, 1.12, 0.99, 0.95, 1.0, 0.97)
"""What each change truly does; the third harms."""


@cache
def day(cycles: int = 288) -> tuple[CycleRecord, ...]:
    """Return so many cycles, five minutes apart, from midnight on."""
    return tuple(_cycles(Tuner(), cycles))


def _cycles(tuner: Tuner, cycles: int) -> Iterator[CycleRecord]:
    for cycle_id in range(1, cycles + 1):
        at_seconds = MIDNIGHT + PERIOD_SECONDS * cycle_id
        if 90 <= cycle_id < 92:
            yield failed(cycle_id, at_seconds)
            continue
        tuner.age += 1
        seen = observation(cycle_id, at_seconds, factor=tuner.factor, knobs=tuner.knobs)
        ahead = forecast(cycle_id, at_seconds, factor=tuner.factor)
        if tuner.trial is not None:
            yield _verified(tuner, seen, ahead)
        elif tuner.age >= 6:
            tuner.age = 0
            yield _searched(tuner, seen, ahead)
        else:
            yield quiet(seen, ahead)


def failed(cycle_id: int = 90, at_seconds: float = MIDNIGHT) -> CycleRecord:
    """Return a cycle that got no metrics."""
    message = "http://127.0.0.1:9090 did not answer within 5 s"
    return CycleRecord(
        cycle_id=cycle_id,
        at_seconds=at_seconds,
        observation=None,
        forecast=None,
        proposal=None,
        verdict=None,
        receipt=None,
        verification=None,
        failure=StageFailure(stage="observe", reason="source_unavailable", detail=message),
        decision="failed",
        reason=f"observe failed: {message}",
        stage_seconds={"observe": 5.0},
    )


def quiet(seen: Observation, ahead: Forecast) -> CycleRecord:
    """Return a cycle that saw no need to search."""
    return CycleRecord(
        cycle_id=seen.cycle_id,
        at_seconds=seen.at_seconds,
        observation=seen,
        forecast=ahead,
        proposal=None,
        verdict=None,
        receipt=None,
        verification=None,
        failure=None,
        decision=Decision.HOLD,
        reason="the load moved by 0.04 since the last search, less than 0.15",
        stage_seconds={"observe": 0.041, "forecast": 0.112, "record": 0.006},
    )


def _searched(tuner: Tuner, seen: Observation, ahead: Forecast) -> CycleRecord:
    tuner.turn += 1
    specs = [SPECS[tuner.turn % 4], SPECS[(tuner.turn + 1) % 4]]
    moved = {spec.role: spec.snap(tuner.knobs[spec.role] + spec.step * tuner.rng.integers(-2, 3)) for spec in specs}
    candidate = KnobValues.of({**tuner.knobs, **moved})
    expected = -float(tuner.rng.uniform(0.012, 0.06)) if tuner.turn % 4 else -0.004
    proposed = Proposal(
        cycle_id=seen.cycle_id,
        incumbent=tuner.knobs,
        candidate=candidate,
        score=expected,
        score_error=0.006,
        predicted=metrics_at(seen.at_seconds, factor=tuner.factor * (1 + 2 * expected)),
        predicted_incumbent=metrics_at(seen.at_seconds, factor=tuner.factor),
        feasible=True,
        violations=(),
        trials=100,
        seed=seen.cycle_id,
        fidelity_ratio=0.74,
        reason=f"{candidate.describe()} is expected to be {-expected * 100:.1f} % better, mostly by shorter waiting",
    )
    failing = "gain" if expected > -0.01 else "one_change" if not proposed.changes else None
    findings = tuple(finding(guard, passed=guard != failing) for guard in GUARDS)
    base = replace(quiet(seen, ahead), proposal=proposed, stage_seconds=STAGE_SECONDS)
    if failing is not None:
        reason = next(item.sentence for item in findings if not item.passed)
        verdict = Verdict(cycle_id=seen.cycle_id, decision=Decision.HOLD, reason=reason, findings=findings)
        return replace(base, verdict=verdict, reason=reason)
    verdict = Verdict(cycle_id=seen.cycle_id, decision=Decision.APPLY, reason=proposed.reason, findings=findings)
    receipt = receipt_of(seen, before=tuner.knobs, after=candidate)
    truth = TRUE_FACTORS[tuner.turn % len(TRUE_FACTORS)]
    tuner.previous = (tuner.knobs, tuner.factor)
    tuner.trial = (seen.cycle_id, expected, truth)
    tuner.knobs, tuner.factor = candidate, tuner.factor * truth
    return replace(base, verdict=verdict, receipt=receipt, decision=Decision.APPLY, reason=proposed.reason)


def receipt_of(seen: Observation, *, before: KnobValues, after: KnobValues) -> Receipt:
    """Return the receipt of a write that went well."""
    return Receipt(
        cycle_id=seen.cycle_id,
        before=before,
        after=after,
        revision=f'"{seen.cycle_id + 1}"',
        effective_at_seconds=seen.at_seconds + 1.0,
        applied=True,
        detail="written and read back",
    )


def _verified(tuner: Tuner, seen: Observation, ahead: Forecast) -> CycleRecord:
    assert tuner.trial is not None
    change, expected, truth = tuner.trial
    age = seen.cycle_id - change
    expected_metrics = metrics_at(seen.at_seconds, factor=tuner.factor / truth)
    true_score = float(score(metrics_at(seen.at_seconds, factor=tuner.factor), expected_metrics))
    error = 0.02 / math.sqrt(age)
    observed = true_score + float(tuner.rng.normal(0, error / 2))
    outcome, step = Outcome.INCONCLUSIVE, Step.WAIT
    if age >= 4:
        outcome = Outcome.FAILED if observed > 0.02 else Outcome.SUCCESSFUL if observed < 0 else Outcome.INCONCLUSIVE
        step = Step.PROMOTE if outcome is Outcome.SUCCESSFUL else Step.ROLL_BACK
    low, high = (observed - 1.96 * error) * 100, (observed + 1.96 * error) * 100
    verification = Verification(
        cycle_id=seen.cycle_id,
        change_cycle_id=change,
        outcome=outcome,
        step=step,
        samples=age * 4,
        expected_score=expected,
        observed_score=observed,
        score_error=error,
        observed=metrics_at(seen.at_seconds, factor=tuner.factor, noise=0.02),
        counterfactual=expected_metrics,
        reason=f"score {low:+.1f} %..{high:+.1f} % against the forecast, {age * 4} samples",
    )
    receipt = None
    if step is not Step.WAIT:
        tuner.trial, tuner.age = None, 0
    if step is Step.ROLL_BACK:
        receipt = receipt_of(seen, before=tuner.knobs, after=tuner.previous[0])
        tuner.knobs, tuner.factor = tuner.previous
    return replace(
        quiet(seen, ahead), verification=verification, receipt=receipt, decision=step, reason=verification.reason
    )


def simplest(cycle_id: int = 1, at_seconds: float = MIDNIGHT) -> CycleRecord:
    """Return a cycle that saw and forecast, and held."""
    return quiet(observation(cycle_id, at_seconds), forecast(cycle_id, at_seconds))


def applied(cycle_id: int = 1, at_seconds: float = MIDNIGHT) -> CycleRecord:
    """Return a cycle that made a change."""
    tuner = Tuner()
    return _searched(tuner, observation(cycle_id, at_seconds), forecast(cycle_id, at_seconds))


def same(left: Any, right: Any) -> bool:
    """Compare with NaN equal to NaN, and arrays by shape and values."""
    if isinstance(left, np.ndarray):
        return left.shape == right.shape and np.array_equal(left, right, equal_nan=True)
    if isinstance(left, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, Mapping) and not isinstance(left, KnobValues):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if is_dataclass(left) and not isinstance(left, KnobValues):
        pairs = ((getattr(left, item.name), getattr(right, item.name)) for item in fields(left))
        return type(left) is type(right) and all(same(*pair) for pair in pairs)
    return bool(left == right) and isinstance(left, bool) is isinstance(right, bool)


def runs() -> tuple[ComparisonRun, ...]:
    """Return three runs of the made-up load: unoptimised, untouched, tuned."""
    times: FloatArray = MIDNIGHT + PERIOD_SECONDS * np.arange(1.0, 289.0)
    described = (("a", "unoptimised", 1.9), ("b", "clock control, untouched", 1.0), ("c", "clock control, tuned", 0.86))
    series = [np.array([metrics_at(time, factor=factor, noise=0.05) for time in times]).T for _, _, factor in described]
    series[2][9] *= 1.04  # The tuned one draws more power, and the table has to say so.
    means = [values.mean(axis=1) for values in series]
    return tuple(
        ComparisonRun(
            name=name,
            title=title,
            metrics=mean,
            score=float(score(mean, means[1])),
            times_seconds=times,
            series=values,
            description="The same trace and seed.",
        )
        for (name, title, _), mean, values in zip(described, means, series, strict=True)
    )
