"""Every metric that clocktuner exports of itself: name, kind, labels, meaning.

This table is the contract with dashboards and alerts. All series carry `cluster` and `policy`. Labels take their
values from catalogues and enums, so that their number is known beforehand; counters exist from the start with 0, so
that the first increase is seen; gauges exist once there is something to say, and never hold NaN.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tuner import errors
from tuner.values.context import CONTEXT_NAMES
from tuner.values.knobs import Role, SchedulerMode
from tuner.values.metrics import METRIC_NAMES, METRICS
from tuner.values.safety import BreakerState, Rung, SettingsState
from tuner.values.stages import QUANTILES, Decision, Outcome, Step

PREFIX: Final = "clocktuner_"

STAGES: Final = ("start", "observe", "learn", "forecast", "propose", "judge", "apply", "verify", "record")
GUARDED: Final = ("simplify", "probe", "recover", "protect", "release", "heal", "frozen")
"""What a guard tick does: the latency breaker opens, tries the full policy again and closes; high-priority work is
protected and released; settings are restored, or everything is frozen because of somebody else's."""
DECISIONS: Final = (
    *(item.value for item in Decision),
    *(item.value for item in Step),
    "adopted",
    "failed",
    *GUARDED,
    "drill",
    "hold_back",
    "order",
)
"""What a record may end with: a decision on a proposal, a step of a change on trial, yielding to a setting that
somebody else made, a failure, an act of the guard, a roll-back drill, a hold-back, or a person's order."""
PROBLEMS: Final = (
    "clock_skew",
    "duplicate",
    "implausible",
    "missing",
    "non_finite",
    "out_of_range",
    "partial",
    "rejected",
    "stale",
    "too_many_series",
    "unavailable",
)
"""What an observation may lack or refuse; the reasons of `tuner.values.stages.Problem`."""
RUNGS: Final = ("selected", "smoothing", "last_value")
MODES: Final = ("observe", "recommend", "auto")
BOUNDS: Final = ("low", "high")
LADDER: Final = tuple(rung.label for rung in Rung)
TICKS: Final = ("new", "nothing_new", "blind")
"""What a guard tick found: new samples, none that are newer than the last ones, or no answer."""
PAUSES: Final = ("person", "kill_switch", "maintenance")
"""Who may keep the tuner from changing anything."""


def reasons() -> tuple[str, ...]:
    """Return the labels under which failures are counted: one for each kind of error."""
    kinds = (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.TunerError))
    return tuple(sorted({kind.reason for kind in kinds}))


class Kind(StrEnum):
    """How a metric behaves."""

    GAUGE = "gauge"
    COUNTER = "counter"
    SUMMARY = "summary"
    """Two series, `_count` and `_sum`: enough for a mean, cheap enough for every stage."""
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class FamilySpec:
    """One exported metric.

    Attributes:
        name: Without the prefix; counters end in `_total`.
        kind: How it behaves.
        help: One sentence with the unit where the name does not tell it.
        labels: Names of its labels, beside `cluster` and `policy`.
        values: Known values of each label; empty where only the life of the cluster tells them.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    values: tuple[tuple[str, ...], ...] = ()

    @property
    def full_name(self) -> str:
        """Name as it stands on the page."""
        return PREFIX + self.name


_KNOBS: Final = tuple(role.value for role in Role)
_LEVELS: Final = tuple(f"{level:g}" for level in QUANTILES)  # Prometheus keeps the label `quantile` to summaries.
_SERIES: Final = METRIC_NAMES + CONTEXT_NAMES


def _gauge(name: str, text: str, **labels: tuple[str, ...]) -> FamilySpec:
    return FamilySpec(name, Kind.GAUGE, text, tuple(labels), tuple(labels.values()))


def _counter(name: str, text: str, **labels: tuple[str, ...]) -> FamilySpec:
    return FamilySpec(name, Kind.COUNTER, text, tuple(labels), tuple(labels.values()))


OBSERVED: Final = tuple(_gauge(f"observed_{spec.name}", f"{spec.summary} Unit: {spec.unit}.") for spec in METRICS)
"""The metrics of the scheduler as the tuner last saw them, in catalogue order."""

FAMILIES: Final[tuple[FamilySpec, ...]] = (
    # Is it working?
    _gauge("build_info", "Version of clocktuner; always 1.", version=()),
    _gauge("mode", "How far clocktuner may go: 1 for the mode in force.", mode=MODES),
    _gauge("cycle_last_timestamp_seconds", "When the newest cycle ran, as Unix time."),
    _gauge("cycle_last_success_timestamp_seconds", "When the newest cycle that did not fail ran, as Unix time."),
    FamilySpec("cycle_duration_seconds", Kind.HISTOGRAM, "Wall-clock time of a whole cycle."),
    FamilySpec("stage_duration_seconds", Kind.SUMMARY, "Wall-clock time of a stage.", ("stage",), (STAGES,)),
    _counter("stage_failures_total", "Cycles that a stage ended, by its reason.", stage=STAGES, reason=reasons()),
    _counter("source_queries_total", "Queries sent to the metrics source."),
    _counter("source_read_bytes_total", "Bytes read from the metrics source."),
    _gauge("source_up", "Whether the metrics source answered the newest question: 1 or 0."),
    _gauge("source_clock_offset_seconds", "Clock of the metrics source less ours."),
    # What is seen.
    *OBSERVED,
    _gauge("observation_age_seconds", "Age of the newest sample of a metric.", metric=METRIC_NAMES),
    _gauge("observation_coverage_ratio", "Share of expected samples that came, 0..1.", metric=METRIC_NAMES),
    _counter("observation_problems_total", "Values that were missing or not believed.", reason=PROBLEMS),
    # The knobs.
    _gauge("scheduler_mode", "Policy mode of the scheduler: 1 for the one in force.", mode=tuple(SchedulerMode)),
    _gauge("knob_value", "Setting in force, in the unit of the knob's name.", knob=_KNOBS),
    _gauge("knob_proposed", "Setting last proposed, in the unit of the knob's name.", knob=_KNOBS),
    _gauge("knob_bound", "Range of a knob, in the unit of its name.", knob=_KNOBS, bound=BOUNDS),
    # What is expected.
    _gauge(
        "forecast_value",
        "Quantiles of a cluster-level series, forecast 15 minutes ahead.",
        series=_SERIES,
        level=_LEVELS,
    ),
    _gauge("forecast_error_ratio", "Rolling loss over that of last value; under 1 is better.", series=_SERIES),
    _gauge("forecast_model", "Forecasting model: 1 for the one in charge of a series.", series=_SERIES, model=()),
    _gauge("forecast_rung", "Rung of the forecasting ladder: 1 for the one in use.", rung=RUNGS),
    _gauge("best_window_start_timestamp_seconds", "Start of the best window for deferrable work, as Unix time."),
    _gauge("best_window_end_timestamp_seconds", "End of the best window for deferrable work, as Unix time."),
    _gauge("best_window_headroom_ratio", "Expected free share of the accelerators in the best window, 0..1."),
    # What is decided.
    _gauge("twin_fidelity_ratio", "How well the twin reproduces what was observed, 0..1."),
    _gauge("twin_trust_ratio", "How far the twin's promises came true; scales the steps, 0..1."),
    _counter("searches_total", "Searches for a better setting."),
    _counter("trials_total", "Candidates scored by searches."),
    _counter("proposals_total", "Searches that proposed a change."),
    _gauge("predicted_score", "Score that the twin predicts for the newest proposal; negative is better."),
    _gauge("predicted_score_error", "Standard error of the predicted score."),
    _counter("decisions_total", "Cycles by what they ended with.", decision=DECISIONS),
    _counter("guard_failures_total", "Findings that held or rejected a change, by guard.", guard=()),
    # What came of it.
    _counter("changes_total", "Changes made to the scheduler's settings, rollbacks aside."),
    _counter("rollbacks_total", "Changes undone."),
    _counter("promotions_total", "Changes verified and kept."),
    _gauge("change_on_trial", "Whether a change is on trial: 1 or 0."),
    _counter("verifications_total", "Changes that were judged, by outcome.", outcome=tuple(Outcome)),
    _gauge("verification_expected_score", "Score that the twin had predicted for the change on trial."),
    _gauge("verification_observed_score", "Score that the change on trial shows; negative is better."),
    _gauge("verification_score_error", "Standard error of the observed score."),
    _gauge("last_change_timestamp_seconds", "When a change was last made, as Unix time."),
    _gauge("last_rollback_timestamp_seconds", "When a change was last undone, as Unix time."),
    _gauge("last_promotion_timestamp_seconds", "When a change was last kept, as Unix time."),
    _gauge("verification_pairs", "Pairs that the switchback on trial has compared."),
    _gauge("verification_evidence", "Evidence for the change on trial, as the logarithm of an e-value."),
    # What keeps it safe: the guard tick.
    _gauge("guard_last_timestamp_seconds", "When the newest guard tick ran, as Unix time."),
    FamilySpec("guard_duration_seconds", Kind.HISTOGRAM, "Wall-clock time of a guard tick."),
    _gauge("guard_delay_seconds", "How much later than planned the newest guard tick began."),
    _counter("guard_ticks_total", "Guard ticks by what they found.", result=TICKS),
    _gauge("safety_limit", "Limit of a safety metric, in its unit.", metric=METRIC_NAMES),
    _gauge("scheduling_latency_threshold_seconds", "Scheduling latency beyond which the latency breaker counts."),
    _counter("scheduling_latency_samples_total", "New samples of the scheduling latency that guard ticks saw."),
    _counter("scheduling_latency_beyond_total", "Those of them that were beyond the threshold."),
    _gauge("latency_breaker_state", "Latency breaker: 1 for its state.", state=tuple(BreakerState)),
    _counter("latency_breaker_openings_total", "Times that the latency breaker opened."),
    _gauge("latency_breaker_flapping", "Whether the latency breaker opens again and again: 1 or 0."),
    _gauge("latency_breaker_opened_timestamp_seconds", "When the latency breaker last opened, as Unix time."),
    _gauge("degraded", "Whether only high-priority work is served, because resources are tight: 1 or 0."),
    _counter("degradations_total", "Times that only high-priority work began to be served."),
    _gauge("degraded_timestamp_seconds", "When that last began, as Unix time."),
    _gauge("settings_state", "What the settings in force are: 1 for the state.", state=tuple(SettingsState)),
    _counter("contested_total", "Times that somebody else was found to have set a knob or the policy mode."),
    _counter("heals_total", "Restorations of invalid or lost settings, by result.", result=("healed", "failed")),
    _gauge("heal_exhausted", "Whether restoring the settings was given up after all attempts: 1 or 0."),
    _gauge("change_breaker_state", "Change breaker: 1 for its state.", state=tuple(BreakerState)),
    _counter("change_breaker_openings_total", "Times that the change breaker opened."),
    _gauge("ladder_rung", "How far the tuner trusts itself: 1 for its rung.", rung=LADDER),
    _gauge("paused", "Whether nothing may be changed, and by whom: 1 or 0.", by=PAUSES),
    _gauge("paused_timestamp_seconds", "When a pause last began, as Unix time."),
    _gauge("changes_allowed_per_day", "Largest number of changes that may be tried in 24 hours."),
    # What it is worth, and whether it can step back.
    _gauge("twin_rank_agreement", "Rank agreement of predicted and realised gains (Kendall's tau), -1..1."),
    _gauge("twin_sign_hit_ratio", "Share of changes whose gain had the predicted sign, 0..1."),
    _gauge("hold_back_active", "Whether the untouched setting is in force to measure what tuning is worth: 1 or 0."),
    _gauge("value_score", "Score of the tuned against the untouched setting, from hold-backs; negative is better."),
    _gauge("value_score_error", "Standard error of that score."),
    _counter("drills_total", "Roll-back drills by result.", result=("passed", "failed")),
    _gauge("drill_last_timestamp_seconds", "When the newest roll-back drill ended, as Unix time."),
    _gauge("drill_restore_seconds", "Time that the newest roll-back drill took to restore the setting."),
)
"""In the order of the page; names are unique."""
