"""What a sequence of cycles amounts to: changes and what came of them, forecasts and what came true, guards.

Pure functions of records in time order; the report, `status` and `explain` say what these find.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np

from tuner.record.wording import INTERVAL
from tuner.values.knobs import KnobValues
from tuner.values.metrics import METRIC_INDEX
from tuner.values.stages import CycleRecord, Decision, FloatArray, Outcome, Receipt, Step

INTERRUPTED: Final = "interrupted"
"""Reason under which the failure of a cycle is counted whose process ended before its record was written."""

LEAD_SECONDS: Final = 900.0
"""How far ahead forecasts are judged: a quarter of an hour."""


class Fate(StrEnum):
    """What became of a change."""

    ON_TRIAL = "on trial"
    KEPT = "kept"
    UNVERIFIED = "kept unverified"
    UNDONE = "undone"
    ABANDONED = "abandoned"
    """Nobody could judge it to the end: somebody else changed the settings, or the process was interrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change and what came of it.

    Attributes:
        cycle_id: Number of the cycle that made it.
        at_seconds: When it was made.
        before: Setting before.
        after: Setting after.
        expected_score: Score that the twin predicted; NaN where it made no prediction.
        fate: What became of it.
        reason: Sentence of the last look, or of the change itself where there was none.
        looked_at_seconds: When the last look was; NaN while there was none.
        outcome: Result of the last look; None while there was none.
        observed_score: Score at the last look; NaN while unknown.
        score_error: Its standard error; NaN while unknown.
        switches: How often the two settings took turns; 0 where they were not compared so.
        pairs: Pairs of legs that were compared; 0 where the comparison is not a switchback.
        evidence: Evidence for the change at the last look, as the logarithm of an e-value; NaN where there is none.
        harm: Whether it was found to do harm.
    """

    cycle_id: int
    at_seconds: float
    before: KnobValues
    after: KnobValues
    expected_score: float
    fate: Fate
    reason: str
    looked_at_seconds: float = math.nan
    outcome: Outcome | None = None
    observed_score: float = math.nan
    score_error: float = math.nan
    switches: int = 0
    pairs: int = 0
    evidence: float = math.nan
    harm: bool = False

    @property
    def kept(self) -> bool:
        """Whether it stayed in force, verified or not."""
        return self.fate in (Fate.KEPT, Fate.UNVERIFIED)

    @property
    def concluded(self) -> bool:
        """Whether it was judged to the end, and kept or undone."""
        return self.fate in (Fate.KEPT, Fate.UNVERIFIED, Fate.UNDONE)

    @property
    def came_true(self) -> bool:
        """Whether the prediction lies within the 95 % interval of what was observed; False while unknown."""
        return abs(self.observed_score - self.expected_score) <= INTERVAL * self.score_error


def of_guard(record: CycleRecord) -> bool:
    """Say whether a guard tick or a person's order left a record: it holds what was done, and nothing that was seen."""
    interrupted = record.failure is not None and record.failure.reason == INTERRUPTED
    return record.observation is None and not record.stage_seconds and not interrupted


def cycles(records: Iterable[CycleRecord]) -> tuple[CycleRecord, ...]:
    """Return the records of cycles, without those of guard ticks and orders."""
    return tuple(record for record in records if not of_guard(record))


def in_force(record: CycleRecord) -> KnobValues | None:
    """Return the setting in force after a record; None where it tells of none."""
    if record.receipt is not None and record.receipt.applied and record.receipt.after:
        return record.receipt.after
    return None if record.observation is None else record.observation.knobs


def changes(records: Iterable[CycleRecord]) -> tuple[Change, ...]:
    """Return the changes that were tried, oldest first, each with the last look at it.

    One trial is one change, however often its two settings take turns; a hold-back and what a guard writes are none.
    """
    made: dict[int, tuple[CycleRecord, Receipt]] = {}
    looks: dict[int, CycleRecord] = {}
    switches: Counter[int] = Counter()
    for record in records:
        if record.decision == Decision.APPLY and record.receipt is not None and record.receipt.applied:
            made[record.cycle_id] = (record, record.receipt)
        if record.verification is not None:
            number = record.verification.change_cycle_id
            looks[number] = record
            switches[number] += _switched(record)
    newest = max(made, default=0)
    return tuple(
        replace(_change(*made[number], looks.get(number), newest=number == newest), switches=switches[number])
        for number in made
    )


def _switched(record: CycleRecord) -> bool:
    return record.decision == Step.SWITCH and record.receipt is not None and record.receipt.applied


def _change(record: CycleRecord, receipt: Receipt, look: CycleRecord | None, *, newest: bool) -> Change:
    change = Change(
        cycle_id=record.cycle_id,
        at_seconds=record.at_seconds,
        before=receipt.before,
        after=receipt.after,
        expected_score=math.nan if record.proposal is None else record.proposal.score,
        fate=_fate(look, newest=newest),
        reason=record.reason,
    )
    if look is None or look.verification is None:
        return change
    seen = look.verification
    return replace(
        change,
        looked_at_seconds=look.at_seconds,
        outcome=seen.outcome,
        observed_score=seen.observed_score,
        score_error=seen.score_error,
        reason=seen.reason,
        pairs=seen.pairs,
        evidence=seen.evidence,
        harm=seen.harm,
    )


def _fate(look: CycleRecord | None, *, newest: bool) -> Fate:
    if look is not None and look.decision == Step.PROMOTE:
        return Fate.KEPT
    if look is not None and look.decision == Step.KEEP:
        return Fate.UNVERIFIED
    if look is not None and look.decision == Step.ROLL_BACK:
        return Fate.UNDONE
    # One change at a time: what a newer one follows, or what was given up, is on trial no more.
    return Fate.ON_TRIAL if newest and (look is None or _goes_on(look)) else Fate.ABANDONED


def _goes_on(look: CycleRecord) -> bool:
    """Say whether a trial goes on after a look that has not ended it.

    A trial is given up where somebody else has set what was on trial: then there was nothing to be done about it, and
    the cycle did something else. A write that failed is tried again.
    """
    if look.decision in (Step.WAIT, Step.SWITCH):
        return True
    return look.decision == "failed" and look.verification is not None and look.verification.step is not Step.WAIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """A forecast series against what came, at one lead.

    Attributes:
        name: Series.
        times_seconds: Times that the forecasts were for, shape (n,).
        quantiles: What was forecast, shape (n, 3): levels 0.1, 0.5, 0.9.
        actual: What came at those times, between the nearest two cycles; shape (n,), NaN where none are near.
        persisted: The value when the forecast was made, shape (n,): the forecast of those who do not forecast.
        model: Model in charge at the end.
    """

    name: str
    times_seconds: FloatArray
    quantiles: FloatArray
    actual: FloatArray
    persisted: FloatArray
    model: str

    @property
    def coverage_ratio(self) -> float:
        """Share of what came that lies within the band, of which 0.8 was promised; NaN where nothing came."""
        known = np.isfinite(self.actual)
        inside = (self.actual >= self.quantiles[:, 0]) & (self.actual <= self.quantiles[:, 2])
        return float(inside[known].mean()) if known.any() else math.nan

    @property
    def error_ratio(self) -> float:
        """Mean absolute error of the median over that of "it stays as it is"; under 1 is better, NaN where unknown."""
        known = np.isfinite(self.actual) & np.isfinite(self.persisted)
        naive = np.abs(self.actual - self.persisted)[known].sum()
        return float(np.abs(self.actual - self.quantiles[:, 1])[known].sum() / naive) if naive > 0 else math.nan


def track(records: Sequence[CycleRecord], name: str, *, lead_seconds: float = LEAD_SECONDS) -> Track | None:
    """Return one series' forecasts against what came; None where it was never forecast so far ahead."""
    made = [
        (record, record.forecast, round(lead_seconds / record.forecast.step_seconds) - 1)
        for record in records
        if record.forecast is not None and name in record.forecast.names
    ]
    made = [(record, forecast, column) for record, forecast, column in made if 0 <= column < forecast.values.shape[1]]
    if not made:
        return None
    times, values = observed(records, name)
    # Targets stand on the grid of the forecast, which starts at its last sample.
    targets = np.array([forecast.at_seconds + lead_seconds for _, forecast, _ in made])
    return Track(
        name=name,
        times_seconds=targets,
        quantiles=np.array([forecast[name][column] for _, forecast, column in made]),
        actual=_between(times, values, targets),
        persisted=np.array([observed_in(record, name) for record, _, _ in made]),
        model=made[-1][1].models[made[-1][1].names.index(name)],
    )


def observed(records: Iterable[CycleRecord], name: str) -> tuple[FloatArray, FloatArray]:
    """Return times and values of a metric or of a context series, one a cycle; NaN where it was not seen."""
    pairs = [(record.at_seconds, observed_in(record, name)) for record in records if not of_guard(record)]
    return np.array([time for time, _ in pairs]), np.array([value for _, value in pairs])


def observed_in(record: CycleRecord, name: str) -> float:
    """Return the value of a metric or of a context series in one cycle; NaN where it was not seen."""
    if record.observation is None:
        return math.nan
    if name in METRIC_INDEX:
        return float(record.observation.metrics[METRIC_INDEX[name]])
    return float(record.observation.context.get(name, math.nan))


def _between(times: FloatArray, values: FloatArray, targets: FloatArray) -> FloatArray:
    """Interpolate in time; NaN outside, beside a NaN, and in gaps of more than two steps."""
    if len(times) < 2:
        return np.full(len(targets), np.nan)
    right = np.clip(np.searchsorted(times, targets), 1, len(times) - 1)
    left = right - 1
    gap = times[right] - times[left]
    share = (targets - times[left]) / np.where(gap > 0, gap, 1.0)
    usable = (gap > 0) & (gap <= 2.5 * np.median(np.diff(times))) & (share >= 0) & (share <= 1)
    # Written so that a target upon a cycle needs no neighbour.
    value = np.where(share == 1, values[right], values[left])
    inside = (share > 0) & (share < 1)
    value[inside] += (share * (values[right] - values[left]))[inside]
    return np.where(usable, value, np.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardCount:
    """How one guard judged.

    Attributes:
        guard: Its name.
        passed: Findings that let a change through.
        held: Findings that meant "not now".
        rejected: Findings that meant "never with these values".
        example: The newest sentence of a failure, else of a pass.
    """

    guard: str
    passed: int
    held: int
    rejected: int
    example: str


def guard_counts(records: Iterable[CycleRecord]) -> tuple[GuardCount, ...]:
    """Return one row a guard, in the order in which they ran."""
    passed: Counter[str] = Counter()
    failed: Counter[tuple[str, Decision]] = Counter()
    examples: dict[str, str] = {}
    for record in records:
        for finding in () if record.verdict is None else record.verdict.findings:
            if finding.passed:
                passed[finding.guard] += 1
            else:
                failed[finding.guard, finding.severity] += 1
            if not finding.passed or not any(failed[finding.guard, severity] for severity in Decision):
                examples[finding.guard] = finding.sentence
    return tuple(
        GuardCount(
            guard=guard,
            passed=passed[guard],
            held=failed[guard, Decision.HOLD],
            rejected=failed[guard, Decision.REJECT],
            example=example,
        )
        for guard, example in examples.items()
    )


def held_reasons(records: Iterable[CycleRecord]) -> tuple[tuple[str, int], ...]:
    """Return why nothing was done, the most frequent first: the newest sentence of each kind, and how many."""
    counts: Counter[str] = Counter()
    newest: dict[str, str] = {}
    for record in cycles(records):
        if record.decision in (Decision.HOLD, Decision.REJECT, "failed"):
            kind = kind_of(record.reason)
            counts[kind] += 1
            newest[kind] = record.reason
    return tuple((newest[kind], count) for kind, count in counts.most_common())


def kind_of(reason: str) -> str:
    """Return what sentences have in common that differ in their numbers alone."""
    return re.sub(r"\d+(\.\d+)?", "#", reason)
