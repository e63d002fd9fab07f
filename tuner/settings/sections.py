"""The parts of a policy that say when, how long and how much: what most operators leave as it is."""

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from tuner.settings.durations import parse_duration

DURATION_FORMAT: Final = "clocktuner-duration"
"""Mark by which the generated schema knows the fields that may be written as `90s`."""

Seconds: TypeAlias = Annotated[
    float, BeforeValidator(parse_duration), Field(json_schema_extra={"format": DURATION_FORMAT})
]
"""A span of time in seconds; written as a plain number or as `90s`, `15m`, `1h30m`, `500ms`."""


class Section(BaseModel):
    """A part of a policy.

    Frozen; closed to unknown keys, so that a typing error cannot pass for a setting; strict, so that YAML's `yes` is
    not taken for the number 1, nor text for a number.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


LabelName: TypeAlias = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]
"""Name of a Prometheus label."""


class SourceSettings(Section):
    """Where metrics are read."""

    kind: Literal["prometheus", "scrape"] = "prometheus"
    """`prometheus` asks a server that speaks PromQL; `scrape` reads the scheduler's own /metrics, without history."""
    url: str = Field(default="http://127.0.0.1:9090", pattern=r"^https?://")
    """Base URL of the Prometheus-compatible server, or the full URL of the page to scrape."""
    timeout_seconds: Seconds = Field(default=5.0, gt=0, le=60)
    """Deadline of one query with its retries. A cycle asks a handful; five seconds is far beyond a healthy answer."""
    retries: int = Field(default=1, ge=0, le=3)
    """Further tries after a 5xx or a lost connection, within the deadline."""
    token_file: str | None = Field(default=None, min_length=1)
    """File that holds a bearer token; read anew for each request, never logged."""
    max_series: int = Field(default=20_000, ge=1, le=200_000)
    """Largest number of series that one answer may hold: twice 10,000 nodes. More means a label that should not be."""
    labels: dict[LabelName, str] = Field(default_factory=dict)
    """Further labels that tell this scheduler's series from others': `$labels` in a query becomes
    `cluster="<the policy's cluster>"` and one matcher a label, as in `queue_length{$labels}`."""
    max_clock_skew_seconds: Seconds = Field(default=30.0, gt=0)
    """How far the newest sample may lie in the future before the clocks are taken to disagree."""


class CycleSettings(Section):
    """When the loop runs and on what it is willing to act."""

    period_seconds: Seconds = Field(default=60.0, ge=1, le=3600)
    """Distance of two cycles. A cycle searches only when the load has moved, not because the clock ticked."""
    recent_window_seconds: Seconds = Field(default=300.0, ge=30, le=3600)
    """Window of "now": what rates and quantiles are taken over, and `$window` in queries. Five minutes, as is usual
    for alerts."""
    history_seconds: Seconds = Field(default=86_400.0, ge=1800, le=604_800)
    """How much history is kept: a day, because daily cycles need yesterday."""
    max_age_seconds: Seconds = Field(default=150.0, gt=0)
    """Oldest sample that is acted upon: two steps of a minute and a slow scrape."""
    min_coverage_ratio: float = Field(default=0.8, ge=0, le=1)
    """Smallest share of the expected samples in the recent window that is acted upon."""
    cooldown_seconds: Seconds = Field(default=600.0, ge=0)
    """Pause after a change, so that its effect can be seen apart from the next."""
    min_gain_ratio: float = Field(default=0.01, ge=0, le=1)
    """Smallest expected improvement of the score that is worth a change: one per cent."""
    min_fidelity_ratio: float = Field(default=0.3, ge=0, le=1)
    """Smallest fidelity of the twin that is acted upon (assumption: below it the twin explains little)."""
    context_shift: float = Field(default=0.15, ge=0)
    """How far the load must have moved since the last search to search again, as a log-ratio. Doubled for each search
    in a row that found nothing, up to four times."""
    retune_after_seconds: Seconds = Field(default=21_600.0, gt=0)
    """Search again after this time even when nothing seems to have moved: six hours."""
    max_searches: int | None = Field(default=None, ge=1)
    """Upper limit of searches in this process; for demonstrations and replays."""


class SearchSettings(Section):
    """How candidates are found and scored on the twin."""

    trials: int = Field(default=100, ge=8, le=300)
    """Candidates a search scores; Optuna's cost grows with the square, so 300 is the cap."""
    generation: int = Field(default=20, ge=4, le=50)
    """Candidates asked for at once; larger generations fall back to random search."""
    draws: int = Field(default=2, ge=1, le=8)
    """Random draws a forecast quantile, common to all candidates."""
    confirm_draws: int = Field(default=8, ge=2, le=32)
    """Fresh draws with which the best five are scored again."""
    deadline_seconds: Seconds = Field(default=10.0, gt=0)
    """Time after which the daemon takes the best so far; replays count trials only."""
    seed: int = Field(default=1, ge=0)
    """Seed of all randomness."""


class VerifySettings(Section):
    """How a change is judged after it was made."""

    method: Literal["switchback", "before_after"] = "switchback"
    """`switchback` puts the setting before and the one on trial in force in turns (ABBA) and compares pairs of
    neighbours; `before_after` compares with the twin's forecast of what would have been, and is what knobs get whose
    change is disruptive."""
    leg_seconds: Seconds = Field(default=600.0, ge=60)
    """Switchback: time over which each setting is looked at in its turn, after its wash-out; at least
    `cycle.recent_window_seconds`."""
    max_pairs: int = Field(default=5, ge=1, le=50)
    """Switchback: pairs after which a comparison without a result ends."""
    max_wash_out_seconds: Seconds = Field(default=1800.0, ge=0)
    """Switchback: the wash-out is learned from the queue wait (work placed under the other setting must have gone); it
    is never shorter than `wash_out_seconds` and never longer than this."""
    false_promotion_ratio_per_day: float = Field(default=0.05, gt=0, le=0.5)
    """Chance that any change without effect is promoted in a day, over all trials of the day and however often they
    are looked at."""
    wash_out_seconds: Seconds = Field(default=300.0, ge=0)
    """Time after a change whose samples are thrown away, because rates over the recent window still look back beyond
    the change, and work placed before it still shows. At least `cycle.recent_window_seconds`."""
    window_seconds: Seconds = Field(default=900.0, ge=60)
    """Time over which a change is compared with the forecast of what would have been without it."""
    min_samples: int = Field(default=5, ge=1)
    """Fewest usable samples for any verdict but inconclusive."""
    harm_ratio: float = Field(default=0.05, gt=0, le=1)
    """Worsening of the score at which a change is undone at once when it is certain, at the end when it is likely."""
    max_inconclusive: int = Field(default=1, ge=0)
    """How often a comparison may be extended by another window before the change is undone."""
    max_errors: int = Field(default=3, ge=1)
    """Consecutive looks without usable data before the change is undone."""


class ForecastSettings(Section):
    """How the load ahead is forecast."""

    horizon_seconds: Seconds = Field(default=1200.0, ge=900, le=3600)
    """How far ahead: the upper bound of the prediction window. Scored at 15 minutes."""
    lstm: bool = True
    """Whether the neural network takes part; without it the process stays small."""
    statistical: bool = True
    """Whether statsmodels takes part on the series that drive decisions."""
    refit_seconds: Seconds = Field(default=300.0, ge=60)
    """Distance of two fits of the statistical models, which run outside the cycle."""
    deadline_seconds: Seconds = Field(default=3.0, gt=0)
    """Time a model may take before a lower rung stands in."""


class JournalSettings(Section):
    """Where decisions are kept."""

    path: str = "clocktuner.sqlite"
    """SQLite file, on a local disk; created with its folder where missing. Relative paths count from the policy."""
    retention_seconds: Seconds = Field(default=30 * 86_400.0, ge=86_400)
    """Age at which records are pruned: thirty days."""


class WebSettings(Section):
    """Where clocktuner itself can be looked at."""

    listen: str = Field(default="127.0.0.1:9464", pattern=r"^[^:\s]+:\d{1,5}$")
    """Address and port of /metrics, /healthz and /readyz. Loopback unless told otherwise; port 0 picks a free one."""
