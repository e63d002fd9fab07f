"""The documents that pass from stage to stage of a cycle.

Observation -> Forecast -> Proposal -> Verdict(findings) -> Receipt -> Verification -> CycleRecord

All are frozen and check their invariants when made. Times are Unix seconds in UTC (`_at_seconds`); NaN means
"no sample", None means "does not exist". Arrays must not be written to after they were handed over.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tuner.values.knobs import KnobValues, SchedulerMode
from tuner.values.metrics import METRIC_COUNT, MetricVector

FloatArray: TypeAlias = NDArray[np.float64]

STEP_SECONDS: Final = 60.0
"""Distance of samples in histories and forecasts: the step at which the forecasters were trained and are scored."""

MIN_ANCHORS: Final = 3
"""Fewest intervals before a change from which it is told how far the twin is off without it (assumption)."""

QUANTILES: Final[tuple[float, ...]] = (0.1, 0.5, 0.9)
"""Levels of every forecast."""


@dataclass(frozen=True, slots=True)
class SeriesFrame:
    """Several series on one grid of times.

    Attributes:
        names: One a series, unique.
        end_at_seconds: Time of the last column.
        values: Shape (series, steps), `STEP_SECONDS` apart, oldest first; NaN where no sample was had.
        step_seconds: Distance of the columns.
    """

    names: tuple[str, ...]
    end_at_seconds: float
    values: FloatArray
    step_seconds: float = STEP_SECONDS

    def __post_init__(self) -> None:
        """Refuse frames whose shape and names disagree.

        Raises:
            ValueError: The number of rows is not the number of names, or a name stands twice.
        """
        if self.values.ndim != 2 or self.values.shape[0] != len(self.names):
            raise ValueError(f"{len(self.names)} names but values of shape {self.values.shape}")
        if len(set(self.names)) != len(self.names):
            raise ValueError("a series name stands twice")

    def __getitem__(self, name: str) -> FloatArray:
        """Return one series, shape (steps,); KeyError where there is none of that name."""
        try:
            row: FloatArray = self.values[self.names.index(name)]
        except ValueError:
            raise KeyError(name) from None
        return row

    def __contains__(self, name: object) -> bool:
        """Say whether there is a series of that name."""
        return name in self.names


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that an observation lacks, or refused to believe.

    Attributes:
        metric: Name of the metric or context value, or "source" for all.
        reason: A label from a small set: `missing`, `stale`, `non_finite`, `out_of_range`, `duplicate`,
            `too_many_series`, `partial`, `rejected`, `unavailable`, `clock_skew`, `implausible`.
        detail: One sentence with value, limit and unit.
    """

    metric: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is known of the cluster at one instant.

    Attributes:
        cycle_id: Number of the cycle.
        at_seconds: Evaluation time of every query.
        metrics: Current value of each metric, shape (13,).
        ages_seconds: Age of the newest sample of each metric, shape (13,); NaN where there is none.
        coverage_ratio: Share of the expected samples of the recent window that came, shape (13,), 0..1.
        context: Optional values by name (see `tuner.values.context`).
        history: Cluster-level series: the metrics that are not per node, the means over nodes of those that are,
            and the context; up to a day long.
        nodes: Per-node series by metric name, short.
        knobs: Settings in force, as read from the scheduler; None where they could not be read.
        revision: Opaque revision of the settings, for compare-and-set.
        mode: Policy mode in force.
        problems: What is missing or refused.
        arriving: Whether work arrived in the recent window; False tells "idle" from "no data".
    """

    cycle_id: int
    at_seconds: float
    metrics: MetricVector
    ages_seconds: MetricVector
    coverage_ratio: MetricVector
    context: Mapping[str, float]
    history: SeriesFrame
    nodes: Mapping[str, SeriesFrame] = field(default_factory=dict)
    knobs: KnobValues | None = None
    revision: str = ""
    mode: SchedulerMode = SchedulerMode.FULL
    problems: tuple[Problem, ...] = ()
    arriving: bool = True

    def __post_init__(self) -> None:
        """Refuse vectors that are not in catalogue order.

        Raises:
            ValueError: A vector does not have one entry a metric.
        """
        for name in ("metrics", "ages_seconds", "coverage_ratio"):
            shape = getattr(self, name).shape
            if shape != (METRIC_COUNT,):
                raise ValueError(f"{name} has shape {shape}, must be ({METRIC_COUNT},)")


@dataclass(frozen=True, slots=True)
class BestWindow:
    """The interval with most expected headroom, for work that can wait.

    Attributes:
        start_at_seconds: When it begins.
        end_at_seconds: When it ends.
        headroom_ratio: Expected free share of the accelerators in it, 0..1.
    """

    start_at_seconds: float
    end_at_seconds: float
    headroom_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Quantiles of the load ahead.

    Attributes:
        cycle_id: Number of the cycle.
        at_seconds: Time of the last sample that it knows.
        names: Cluster-level series.
        values: Shape (series, horizon steps, 3): quantiles 0.1, 0.5, 0.9, ordered, finite.
        models: Model in charge, one a series.
        error_ratio: Rolling quantile loss of the model in charge over that of last value, one a series; NaN while
            nothing has closed.
        nodes: Per-node forecasts by metric name: names of nodes and values of shape (nodes, horizon steps, 3).
        rung: Rung of the ladder that the fleet as a whole is on: `selected`, `smoothing` or `last_value`.
        best_window: Where deferrable work fits best; None where nothing is known of it.
        step_seconds: Distance of the horizon steps.
    """

    cycle_id: int
    at_seconds: float
    names: tuple[str, ...]
    values: FloatArray
    models: tuple[str, ...]
    error_ratio: FloatArray
    nodes: Mapping[str, tuple[tuple[str, ...], FloatArray]] = field(default_factory=dict)
    rung: str = "selected"
    best_window: BestWindow | None = None
    step_seconds: float = STEP_SECONDS

    def __post_init__(self) -> None:
        """Refuse forecasts that could mislead the search.

        Raises:
            ValueError: Shapes disagree, a value is not finite, or quantiles cross.
        """
        if self.values.ndim != 3 or self.values.shape[0] != len(self.names) or self.values.shape[2] != len(QUANTILES):
            raise ValueError(f"{len(self.names)} names but values of shape {self.values.shape}")
        if not np.isfinite(self.values).all():
            raise ValueError("a forecast value is not finite")
        if (self.values[..., 1:] < self.values[..., :-1]).any():
            raise ValueError("quantiles cross")

    def __getitem__(self, name: str) -> FloatArray:
        """Return the forecast of one series, shape (horizon steps, 3); KeyError where there is none."""
        try:
            row: FloatArray = self.values[self.names.index(name)]
        except ValueError:
            raise KeyError(name) from None
        return row


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A setting that the search believes in, beside the one in force.

    Attributes:
        cycle_id: Number of the cycle.
        incumbent: The setting in force.
        candidate: The setting proposed; equal to `incumbent` where nothing better was found.
        score: Expected score of the candidate against the incumbent; negative is better; 0 where they are equal.
        score_error: Standard error of that score over scenarios and draws; >= 0.
        predicted: Expected metrics under the candidate, shape (13,).
        predicted_incumbent: The same under the incumbent.
        feasible: Whether the candidate breaks no safety limit in the twin.
        violations: Names of the safety metrics that it breaks.
        trials: Number of candidates that were scored on all scenarios.
        seed: Seed of the search.
        fidelity_ratio: How well the twin reproduces what was observed, 0..1; NaN while unknown.
        reason: Why this candidate, in one sentence.
    """

    cycle_id: int
    incumbent: KnobValues
    candidate: KnobValues
    score: float
    score_error: float
    predicted: MetricVector
    predicted_incumbent: MetricVector
    feasible: bool
    violations: tuple[str, ...]
    trials: int
    seed: int
    fidelity_ratio: float
    reason: str

    def __post_init__(self) -> None:
        """Refuse proposals without a reason.

        Raises:
            ValueError: The reason is empty, or the error is negative.
        """
        if not self.reason:
            raise ValueError("a proposal needs a reason")
        if self.score_error < 0:
            raise ValueError(f"score_error is {self.score_error}, must be 0 or more")

    @property
    def changes(self) -> bool:
        """Whether it proposes anything but what is in force."""
        return bool(self.candidate.differs(self.incumbent))


class Decision(StrEnum):
    """What the judge says of a proposal."""

    APPLY = "apply"
    HOLD = "hold"
    REJECT = "reject"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one guard saw.

    Attributes:
        guard: Name of the guard.
        passed: Whether it lets the change through.
        severity: What a failure means: `HOLD` not now, `REJECT` never with these values.
        observed: The value it looked at; NaN where there is none.
        limit: The value it compared with; NaN where there is none.
        unit: Unit of both.
        sentence: What was seen, with value, limit and unit; never empty.
    """

    guard: str
    passed: bool
    severity: Decision
    observed: float
    limit: float
    unit: str
    sentence: str

    def __post_init__(self) -> None:
        """Refuse findings without a sentence.

        Raises:
            ValueError: The sentence is empty.
        """
        if not self.sentence:
            raise ValueError(f"finding of {self.guard} needs a sentence")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judge's decision with all findings, passed and failed.

    Attributes:
        cycle_id: Number of the cycle.
        decision: Apply, hold or reject.
        reason: The sentence that decided; never empty.
        findings: One a guard, in the order in which they ran.
    """

    cycle_id: int
    decision: Decision
    reason: str
    findings: tuple[Finding, ...]

    def __post_init__(self) -> None:
        """Refuse verdicts that contradict their findings.

        Raises:
            ValueError: The reason is empty, or the decision is to apply although a finding failed.
        """
        if not self.reason:
            raise ValueError("a verdict needs a reason")
        if self.decision is Decision.APPLY and not all(finding.passed for finding in self.findings):
            raise ValueError("a verdict to apply has a failed finding")


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What came of a write to the scheduler.

    Attributes:
        cycle_id: Number of the cycle.
        before: Setting in force before.
        after: Setting in force after, as read back.
        revision: Revision after the write.
        effective_at_seconds: When the new value was seen to be in force; NaN where it was not.
        applied: Whether `after` is what was asked for.
        detail: One sentence.
        mode: Policy mode in force after; None where it was not asked for.
    """

    cycle_id: int
    before: KnobValues
    after: KnobValues
    revision: str
    effective_at_seconds: float
    applied: bool
    detail: str
    mode: SchedulerMode | None = None


class Outcome(StrEnum):
    """Result of comparing a change with what would have been without it."""

    SUCCESSFUL = "successful"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"


class Step(StrEnum):
    """What to do with a change on trial.

    To switch is to put the other of the two settings that are compared in force. To keep a change is to leave it in
    force without calling it a success: it is neither remembered as verified nor a setting to fall back to.
    """

    WAIT = "wait"
    SWITCH = "switch"
    PROMOTE = "promote"
    KEEP = "keep"
    ROLL_BACK = "roll_back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a change on trial has done so far, and what to do with it.

    Attributes:
        cycle_id: Number of the cycle that looked.
        change_cycle_id: Number of the cycle that made the change.
        outcome: Result so far.
        step: What to do.
        samples: Number of usable samples after wash-out.
        expected_score: Score that the twin predicted.
        observed_score: Score of what was observed against the counterfactual; NaN while unknown.
        score_error: Standard error of the observed score; NaN while unknown.
        observed: Mean metrics observed since the change was effective, shape (13,).
        counterfactual: Metrics expected at the observed load without the change, shape (13,).
        reason: Why, in one sentence; never empty.
        pairs: Pairs of legs compared so far; 0 where the comparison is not a switchback.
        evidence: Evidence for the change, as the logarithm of an e-value; NaN where the comparison is no sequential
            test.
        harm: Whether the change was found to do harm: what the change breaker counts.
    """

    cycle_id: int
    change_cycle_id: int
    outcome: Outcome
    step: Step
    samples: int
    expected_score: float
    observed_score: float
    score_error: float
    observed: MetricVector
    counterfactual: MetricVector
    reason: str
    pairs: int = 0
    evidence: float = math.nan
    harm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFailure:
    """A stage that could not do its work.

    Attributes:
        stage: Name of the stage.
        reason: Label of the error (`TunerError.reason`), or `internal`.
        detail: The error's message.
    """

    stage: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleRecord:
    """All that one cycle saw, thought and did: what the journal keeps and the report shows.

    What a guard tick did is a record, too, with nothing but its decision, its reason, and what was written.

    Attributes:
        cycle_id: Number of the cycle.
        at_seconds: When it ran.
        observation: What was seen; None where observing failed.
        forecast: What was expected; None where the cycle did not get that far.
        proposal: What the search proposed; None where it did not search.
        verdict: What the judge said; None where there was nothing to judge.
        receipt: What was written; None where nothing was.
        verification: State of the change on trial; None where none is.
        failure: The stage that failed; None where all worked.
        decision: What happened, as one word; `tuner.record.families.DECISIONS` lists them.
        reason: Why, in one sentence; never empty.
        stage_seconds: Time by stage, wall clock; never part of a decision.
    """

    cycle_id: int
    at_seconds: float
    observation: Observation | None = None
    forecast: Forecast | None = None
    proposal: Proposal | None = None
    verdict: Verdict | None = None
    receipt: Receipt | None = None
    verification: Verification | None = None
    failure: StageFailure | None = None
    decision: str
    reason: str
    stage_seconds: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse records without a reason.

        Raises:
            ValueError: The reason is empty, or the time is not finite.
        """
        if not self.reason:
            raise ValueError("a cycle record needs a reason")
        if not math.isfinite(self.at_seconds):
            raise ValueError("a cycle record needs a time")
