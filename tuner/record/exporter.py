"""The tuner's own metrics, for a scrape or for remote write at simulated time.

`Exporter.update` takes one cycle after the other. What it then knows is read in two ways: `prometheus_client` collects
it from `registry` for /metrics, and `samples` gives the same series with a time of the caller's. What is exported, and
what it means, stands in `tuner.record.families`.
"""

import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Final, NamedTuple

from prometheus_client.core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from tuner import __version__
from tuner.record.families import FAMILIES, LADDER, MODES, OBSERVED, PAUSES, RUNGS, FamilySpec, Kind
from tuner.record.ticks import Safety, Tick
from tuner.values.knobs import KnobSpec, SchedulerMode
from tuner.values.metrics import METRIC_NAMES
from tuner.values.safety import BreakerState, SettingsState
from tuner.values.stages import (
    QUANTILES,
    CycleRecord,
    Decision,
    Forecast,
    Observation,
    Proposal,
    Step,
    Verification,
)

FORECAST_LEAD_SECONDS: Final = 900.0
"""The lead at which forecasts are exported: the quarter of an hour at which they are scored."""

DURATION_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, math.inf)
"""Bounds in seconds: a small cluster's cycle takes a tenth, and one beyond the period of a minute is an incident."""


class Sample(NamedTuple):
    """One sample for remote write.

    Attributes:
        labels: All labels, `__name__` among them; shared between calls, so not to be written to.
        timestamp_ms: Unix time in milliseconds.
        value: Finite.
    """

    labels: Mapping[str, str]
    timestamp_ms: int
    value: float


class Family:
    """The series of one metric: values by the suffix of their name and the values of their labels."""

    def __init__(self, spec: FamilySpec, fixed: Mapping[str, str]) -> None:
        self.spec = spec
        self._fixed = fixed
        self._series: dict[tuple[str, tuple[str, ...]], float] = {}
        self._labels: dict[tuple[str, tuple[str, ...]], Mapping[str, str]] = {}

    def __iter__(self) -> Iterator[tuple[Mapping[str, str], float]]:
        """Iterate over the series: their labels, `__name__` among them, and their values."""
        return ((self._labels_of(key), value) for key, value in self._series.items())

    def set(self, value: float, *labels: str) -> None:
        """Let a gauge hold a value; what is not finite takes it away, because unknown is not a number."""
        if math.isfinite(value):
            self._series["", labels] = float(value)
        else:
            self._series.pop(("", labels), None)

    def add(self, amount: float, *labels: str, suffix: str = "") -> None:
        """Let a counter grow."""
        key = (suffix, labels)
        self._series[key] = self._series.get(key, 0.0) + amount

    def observe(self, value: float, *labels: str, times: int = 1) -> None:
        """Count a value into a summary or a histogram."""
        if self.spec.kind is Kind.HISTOGRAM:
            for bound in DURATION_BUCKETS:
                self.add(times * (value <= bound), *labels, _bound(bound), suffix="_bucket")
        self.add(times, *labels, suffix="_count")
        self.add(times * value, *labels, suffix="_sum")

    def choose(self, chosen: str, known: Iterable[str]) -> None:
        """Hold 1 for the chosen label and 0 for the others."""
        for label in known:
            self.set(label == chosen, label)

    def start(self, values: tuple[tuple[str, ...], ...]) -> None:
        """Let every counter exist with 0, so that its first increase is seen as one."""
        for labels in product(*values):
            if self.spec.kind is Kind.COUNTER:
                self.add(0, *labels)
            elif self.spec.kind is not Kind.GAUGE:
                self.observe(0, *labels, times=0)

    def clear(self) -> None:
        """Forget all series."""
        self._series.clear()

    def _labels_of(self, key: tuple[str, tuple[str, ...]]) -> Mapping[str, str]:
        if key not in self._labels:
            suffix, values = key
            names = self.spec.labels if suffix != "_bucket" else (*self.spec.labels, "le")
            name = self.spec.full_name + suffix
            self._labels[key] = {"__name__": name, **self._fixed, **dict(zip(names, values, strict=True))}
        return self._labels[key]


class Exporter(Collector):
    """The state of all exported metrics; safe to be read by another thread.

    Attributes:
        registry: To be rendered for /metrics.
    """

    def __init__(
        self,
        *,
        cluster: str,
        policy: str,
        specs: Iterable[KnobSpec],
        guards: Iterable[str] = (),
        mode: str = "observe",
        extra_labels: Mapping[str, str] | None = None,
    ) -> None:
        """Start with all counters at 0.

        Args:
            cluster: Value of the label `cluster`.
            policy: Value of the label `policy`.
            specs: The knobs that the policy has.
            guards: Names of the guards, for their counters.
            mode: How far the tuner may go: `observe`, `recommend` or `auto`.
            extra_labels: Further labels on everything.
        """
        fixed = {"cluster": cluster, "policy": policy, **(extra_labels or {})}
        self._families = {spec.name: Family(spec, fixed) for spec in FAMILIES}
        self._guard = threading.Lock()
        self._specs = tuple(specs)
        for spec in FAMILIES:
            self._families[spec.name].start((tuple(guards),) if spec.labels == ("guard",) else spec.values)
        self._families["build_info"].set(1, __version__)
        self._families["change_on_trial"].set(0)
        self.set_mode(mode)
        for knob in self._specs:
            self._families["knob_bound"].set(knob.low, knob.role.value, "low")
            self._families["knob_bound"].set(knob.high, knob.role.value, "high")
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def set_mode(self, mode: str) -> None:
        """Say how far the tuner may go from now on."""
        with self._guard:
            self._families["mode"].choose(mode, MODES)

    def update(
        self, record: CycleRecord, *, trust_ratio: float = math.nan, queries: int = 0, read_bytes: int = 0
    ) -> None:
        """Take in what a cycle saw and did.

        Args:
            record: The cycle.
            trust_ratio: How far the twin is trusted now, 0..1; NaN while unknown.
            queries: Queries that the cycle sent to the metrics source.
            read_bytes: Bytes that they read.
        """
        with self._guard:
            self._families["source_queries_total"].add(queries)
            self._families["source_read_bytes_total"].add(read_bytes)
            self._families["twin_trust_ratio"].set(trust_ratio)
            self._cycle(record)
            self._observation(record.observation)
            self._forecast(record.forecast)
            self._knobs(record)
            if record.proposal is not None:
                self._proposal(record.proposal)
            for finding in () if record.verdict is None else record.verdict.findings:
                self._families["guard_failures_total"].add(not finding.passed, finding.guard)
            if record.verification is not None:
                self._verification(record.verification)
            self._change(record)

    def limits(self, limits: Mapping[str, float], *, latency_threshold_seconds: float, changes_per_day: int) -> None:
        """Say what the policy allows: safety limits by metric, threshold of the breaker, changes a day."""
        with self._guard:
            for metric, limit in limits.items():
                self._families["safety_limit"].set(limit, metric)
            self._families["scheduling_latency_threshold_seconds"].set(latency_threshold_seconds)
            self._families["changes_allowed_per_day"].set(changes_per_day)

    def breaker_opened(self, *, opened: bool, degraded: bool) -> None:
        """Count what a tick began: the simplified policy, the priority-only one."""
        with self._guard:
            self._families["latency_breaker_openings_total"].add(opened)
            self._families["degradations_total"].add(degraded)

    def noted(self, record: CycleRecord) -> None:
        """Count what a tick noted."""
        with self._guard:
            self._families["decisions_total"].add(1, record.decision)
            if record.failure is not None:
                self._families["stage_failures_total"].add(1, record.failure.stage, record.failure.reason)

    def tick(self, tick: Tick) -> None:
        """Take in what a guard tick found."""
        with self._guard:
            families = self._families
            families["guard_last_timestamp_seconds"].set(tick.at_seconds)
            families["guard_duration_seconds"].observe(tick.seconds)
            families["guard_delay_seconds"].set(tick.delay_seconds)
            families["guard_ticks_total"].add(1, tick.result)
            families["source_up"].set(tick.result != "blind")
            families["source_clock_offset_seconds"].set(tick.clock_offset_seconds)
            if tick.latency_beyond is not None:
                families["scheduling_latency_samples_total"].add(1)
                families["scheduling_latency_beyond_total"].add(tick.latency_beyond)
            families["latency_breaker_state"].choose(tick.breaker, tuple(BreakerState))
            families["latency_breaker_flapping"].set(tick.flapping)
            families["latency_breaker_opened_timestamp_seconds"].set(tick.breaker_opened_at_seconds)
            families["degraded"].set(tick.degraded)
            families["degraded_timestamp_seconds"].set(tick.degraded_at_seconds)
            self._kept(tick.settings, tick.kept, exhausted=tick.heal_exhausted)

    def _kept(self, state: SettingsState, done: str | None, *, exhausted: bool) -> None:
        self._families["settings_state"].choose(state, tuple(SettingsState))
        self._families["heal_exhausted"].set(exhausted)
        self._families["contested_total"].add(done in ("adopted", "frozen"))
        if state in (SettingsState.INVALID, SettingsState.LOST) or done == "heal":
            self._families["heals_total"].add(done == "heal", "healed")
            self._families["heals_total"].add(done == "failed", "failed")

    def safety(self, state: Safety) -> None:
        """Take in how far the tuner trusts itself, and what people forbid."""
        with self._guard:
            self._families["change_breaker_state"].choose(state.change_breaker, tuple(BreakerState))
            self._families["change_breaker_openings_total"].add(state.change_breaker_opened)
            self._families["ladder_rung"].choose(state.rung.label, LADDER)
            for by in PAUSES:
                self._families["paused"].set(by == state.paused_by, by)
            self._families["paused_timestamp_seconds"].set(state.paused_at_seconds)
            self._families["twin_rank_agreement"].set(state.rank_agreement)
            self._families["twin_sign_hit_ratio"].set(state.sign_hit_ratio)

    def drilled(self, *, at_seconds: float, passed: bool, restore_seconds: float) -> None:
        """Take in a roll-back drill: when it ended, whether it passed, and how long restoring took."""
        with self._guard:
            self._families["drills_total"].add(1, "passed" if passed else "failed")
            self._families["drill_last_timestamp_seconds"].set(at_seconds)
            self._families["drill_restore_seconds"].set(restore_seconds)

    def worth(self, *, holding_back: bool, score: float, score_error: float) -> None:
        """Take in what hold-backs say tuning is worth, and whether one is under way."""
        with self._guard:
            self._families["hold_back_active"].set(holding_back)
            self._families["value_score"].set(score)
            self._families["value_score_error"].set(score_error)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for a page."""
        with self._guard:
            pages = [_page(family) for family in self._families.values()]
        yield from pages

    def samples(self, timestamp_ms: int) -> list[Sample]:
        """Return one sample a series, all with the same time; names and labels are those of the page."""
        with self._guard:
            return [
                Sample(labels, timestamp_ms, value) for family in self._families.values() for labels, value in family
            ]

    def _cycle(self, record: CycleRecord) -> None:
        self._families["cycle_last_timestamp_seconds"].set(record.at_seconds)
        self._families["cycle_duration_seconds"].observe(sum(record.stage_seconds.values()))
        for stage, seconds in record.stage_seconds.items():
            self._families["stage_duration_seconds"].observe(seconds, stage)
        self._families["decisions_total"].add(1, str(record.decision))
        if record.failure is None:
            self._families["cycle_last_success_timestamp_seconds"].set(record.at_seconds)
        else:
            self._families["stage_failures_total"].add(1, record.failure.stage, record.failure.reason)

    def _observation(self, observation: Observation | None) -> None:
        for index, (spec, metric) in enumerate(zip(OBSERVED, METRIC_NAMES, strict=True)):
            # What an observation lacks goes away: yesterday's value would pass for today's.
            value, age, coverage = (
                (observation.metrics[index], observation.ages_seconds[index], observation.coverage_ratio[index])
                if observation is not None
                else (math.nan, math.nan, 0.0)
            )
            self._families[spec.name].set(value)
            self._families["observation_age_seconds"].set(age, metric)
            self._families["observation_coverage_ratio"].set(coverage, metric)
        if observation is None:
            return
        self._families["scheduler_mode"].choose(observation.mode.value, (mode.value for mode in SchedulerMode))
        for problem in observation.problems:
            self._families["observation_problems_total"].add(1, problem.reason)

    def _forecast(self, forecast: Forecast | None) -> None:
        for name in ("forecast_value", "forecast_error_ratio"):
            self._families[name].clear()
        window = None if forecast is None else forecast.best_window
        self._families["best_window_start_timestamp_seconds"].set(
            math.nan if window is None else window.start_at_seconds
        )
        self._families["best_window_end_timestamp_seconds"].set(math.nan if window is None else window.end_at_seconds)
        self._families["best_window_headroom_ratio"].set(math.nan if window is None else window.headroom_ratio)
        if forecast is None:
            return
        self._families["forecast_rung"].choose(forecast.rung, RUNGS)
        model = self._families["forecast_model"]
        for labels, _ in list(model):
            model.set(0, labels["series"], labels["model"])
        column = min(round(FORECAST_LEAD_SECONDS / forecast.step_seconds), forecast.values.shape[1]) - 1
        for row, series in enumerate(forecast.names):
            for index, level in enumerate(QUANTILES):
                self._families["forecast_value"].set(forecast.values[row, column, index], series, f"{level:g}")
            self._families["forecast_error_ratio"].set(forecast.error_ratio[row], series)
            model.set(1, series, forecast.models[row])

    def _knobs(self, record: CycleRecord) -> None:
        receipt = record.receipt
        seen = None if record.observation is None else record.observation.knobs
        in_force = receipt.after if receipt is not None and receipt.applied else seen
        for spec in self._specs:
            value = math.nan if in_force is None else in_force.get(spec.role, math.nan)
            self._families["knob_value"].set(value, spec.role.value)

    def _proposal(self, proposal: Proposal) -> None:
        self._families["searches_total"].add(1)
        self._families["trials_total"].add(proposal.trials)
        self._families["proposals_total"].add(proposal.changes)
        self._families["predicted_score"].set(proposal.score)
        self._families["predicted_score_error"].set(proposal.score_error)
        self._families["twin_fidelity_ratio"].set(proposal.fidelity_ratio)
        for role, value in proposal.candidate.items():
            self._families["knob_proposed"].set(value, role.value)

    def _verification(self, verification: Verification) -> None:
        self._families["verification_expected_score"].set(verification.expected_score)
        self._families["verification_observed_score"].set(verification.observed_score)
        self._families["verification_score_error"].set(verification.score_error)
        self._families["verification_pairs"].set(verification.pairs)
        self._families["verification_evidence"].set(verification.evidence)

    def _change(self, record: CycleRecord) -> None:
        written = record.receipt is not None and record.receipt.applied
        if record.decision == Decision.APPLY and written:
            self._families["changes_total"].add(1)
            self._families["last_change_timestamp_seconds"].set(record.at_seconds)
        elif record.decision == Step.ROLL_BACK and written:
            self._families["rollbacks_total"].add(1)
            self._families["last_rollback_timestamp_seconds"].set(record.at_seconds)
        elif record.decision == Step.PROMOTE:
            self._families["promotions_total"].add(1)
            self._families["last_promotion_timestamp_seconds"].set(record.at_seconds)
        concluded = record.decision in (Step.PROMOTE, Step.KEEP) or (record.decision == Step.ROLL_BACK and written)
        if concluded and record.verification is not None:
            self._families["verifications_total"].add(1, record.verification.outcome.value)
        if record.decision != "failed":
            # A failed cycle, or a write that was refused, says nothing of the change on trial: it is still there.
            on_trial = record.decision == Step.WAIT or (record.decision == Decision.APPLY and written)
            self._families["change_on_trial"].set(on_trial)


def _page(family: Family) -> Metric:
    spec = family.spec
    # A counter is announced without its suffix, and its samples carry it.
    metric = Metric(spec.full_name.removesuffix("_total"), spec.help, spec.kind.value)
    for labels, value in family:
        metric.add_sample(labels["__name__"], {key: text for key, text in labels.items() if key != "__name__"}, value)
    return metric


def _bound(bound: float) -> str:
    return "+Inf" if bound == math.inf else str(bound)
