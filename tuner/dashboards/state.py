"""State: is it working, may it act, and is the scheduler healthy."""

from typing import Final

from tuner.dashboards.grafana import (
    CHANGED,
    EXPECTED,
    KEPT,
    QUIET,
    UNDONE,
    Grid,
    Steps,
    Target,
    series,
    stat,
    state,
)

LATE_SECONDS: Final = 180.0
STALLED_SECONDS: Final = 900.0
"""Three periods of a minute without a cycle are late, fifteen minutes are an incident."""

TILES: Final = (
    stat(
        "Last good cycle",
        "Time since a cycle last ended without a failure. Late: look at the failures and at the metrics source.",
        Target(
            expression=f"time() - max by (cluster) ({series('cycle_last_success_timestamp_seconds')})",
            legend="{{cluster}}",
        ),
        unit="s",
        steps=Steps(at=((LATE_SECONDS, CHANGED), (STALLED_SECONDS, UNDONE))),
        decimals=0,
    ),
    state(
        "It may",
        "How far clocktuner may go: only observe, recommend, or act by itself. Set in the policy.",
        f"sum by (cluster) ({series('mode', mode='recommend')}) + 2 * sum by (cluster) ({series('mode', mode='auto')})",
        {0: ("observe", QUIET), 1: ("recommend", EXPECTED), 2: ("act", KEPT)},
    ),
    state(
        "Scheduler runs",
        "How much of its policy the scheduler runs: all, simplified while latency is out of hand, or high-priority "
        "work only while resources are tight.",
        f"sum by (cluster) ({series('scheduler_mode', mode='simplified')})"
        f" + 2 * sum by (cluster) ({series('scheduler_mode', mode='priority_only')})",
        {0: ("in full", KEPT), 1: ("simplified", CHANGED), 2: ("priority only", UNDONE)},
    ),
    state(
        "Change on trial",
        "Whether a change is being verified. While one is, no other is made.",
        f"max by (cluster) ({series('change_on_trial')})",
        {0: ("none", KEPT), 1: ("on trial", CHANGED)},
    ),
    state(
        "Forecasts by",
        "Rung of the forecasting ladder: the models chosen series by series, or a simpler one standing in.",
        f"sum by (cluster) ({series('forecast_rung', rung='smoothing')})"
        f" + 2 * sum by (cluster) ({series('forecast_rung', rung='last_value')})",
        {0: ("best model", KEPT), 1: ("smoothing", CHANGED), 2: ("last value", UNDONE)},
    ),
    stat(
        "Failed cycles",
        "Cycles that a stage ended in the time shown. The panel of failures tells which stage, and why.",
        Target(
            expression=f"sum by (cluster) (increase({series('decisions_total', decision='failed')}[$__range]))",
            legend="{{cluster}}",
        ),
        unit="short",
        steps=Steps(at=((1, CHANGED), (10, UNDONE))),
        decimals=0,
    ),
)


def add(grid: Grid) -> None:
    """Add the row."""
    grid.row("State")
    for tile in TILES:
        grid.add(tile, width=4, height=4)
