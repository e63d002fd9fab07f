"""The sidecar itself: how long cycles take, what fails, and how good what it sees is."""

from typing import Final

from tuner.dashboards.grafana import (
    CYCLES,
    EXPECTED,
    SEEN,
    Grid,
    Target,
    counts,
    increase,
    quantiles,
    rate,
    series,
    timeseries,
)

CYCLE: Final = timeseries(
    "Time of a cycle",
    "Wall-clock time of whole cycles, half and 95 % of them.",
    quantiles("cycle_duration_seconds", (0.5, "p50", SEEN), (0.95, "p95", EXPECTED)),
    unit="s",
    minimum=0,
    interval=CYCLES,
)
STAGES: Final = timeseries(
    "Time by stage",
    "Mean wall-clock time of each stage of a cycle. No line means that the stage did not run.",
    [
        Target(
            expression=f"sum by (stage) (rate({series('stage_duration_seconds_sum')}[$__rate_interval]))"
            f" / (sum by (stage) (rate({series('stage_duration_seconds_count')}[$__rate_interval])) > 0)",
            legend="{{stage}}",
        )
    ],
    unit="s",
    minimum=0,
    interval=CYCLES,
)
FAILURES, REASONS = (
    counts(
        f"Failures by {label}",
        "Cycles that a stage ended. Temporary failures pass by themselves; permanent ones need a person. "
        "`clocktuner history` has the messages.",
        [
            Target(
                expression=f"sum by ({label}) (increase({series('stage_failures_total')}[$__rate_interval]))",
                legend=f"{{{{{label}}}}}",
            )
        ],
    )
    for label in ("stage", "reason")
)

QUERIES: Final = timeseries(
    "Queries",
    "Queries sent to the metrics source; they do not grow with the length of the history.",
    [Target(expression=rate("source_queries_total"), legend="queries", colour=SEEN)],
    unit="reqps",
    minimum=0,
    interval=CYCLES,
)

BYTES: Final = timeseries(
    "Bytes read",
    "Bytes read from the metrics source.",
    [Target(expression=rate("source_read_bytes_total"), legend="read", colour=SEEN)],
    unit="Bps",
    minimum=0,
    interval=CYCLES,
)

SINCE: Final = timeseries(
    "Time since a cycle",
    "Time since the newest cycle ran, and since the newest that did not fail; saw teeth of one period are as it should "
    "be.",
    [
        Target(expression=f"time() - {series('cycle_last_timestamp_seconds')}", legend="any", colour=SEEN),
        Target(expression=f"time() - {series('cycle_last_success_timestamp_seconds')}", legend="good", colour=EXPECTED),
    ],
    unit="s",
    minimum=0,
)

AGE: Final = timeseries(
    "Age of what is seen",
    "Age of the newest sample of each metric. Old metrics are not acted upon.",
    [Target(expression=series("observation_age_seconds"), legend="{{metric}}")],
    unit="s",
    minimum=0,
)
COVERAGE: Final = timeseries(
    "Least coverage",
    "Share of the expected samples that came, of the metric with the fewest. Optional metrics that the policy "
    "does not map count as 0, so look at the age, too.",
    [
        Target(
            expression=f"min by (cluster) ({series('observation_coverage_ratio')} > 0)",
            legend="{{cluster}}",
            colour=SEEN,
        )
    ],
    unit="percentunit",
    minimum=0,
)
PROBLEMS: Final = counts(
    "Not believed",
    "Values that were missing, or that were refused because they cannot be right, by reason.",
    [Target(expression=increase("observation_problems_total", by="reason"), legend="{{reason}}")],
)


def add(grid: Grid) -> None:
    """Add the row."""
    grid.row("The sidecar itself")
    for panel in (CYCLE, STAGES, FAILURES, REASONS):
        grid.add(panel, width=6, height=8)
    for panel in (AGE, COVERAGE, PROBLEMS):
        grid.add(panel, width=8, height=8)
    for panel in (QUERIES, BYTES, SINCE):
        grid.add(panel, width=8, height=6)
