"""The overview: is it working, what does it see, what has it set, what does it expect, what did it decide.

Rows go from state over symptoms to decisions; the last shows the sidecar itself. What is drawn is what
`tuner.record.families` exports, whatever the scheduler.
"""

import json
from pathlib import Path
from typing import Final

from tuner.dashboards import cluster, decisions, sidecar, state
from tuner.dashboards.grafana import (
    CHANGED,
    KEPT,
    UNDONE,
    Grid,
    Json,
    annotation,
    dashboard,
    series,
    variable,
)

UID: Final = "clocktuner-overview"
"""Never changed: alerts and other dashboards link to it."""

EVENTS: Final = (
    ("change made", "last_change_timestamp_seconds", CHANGED),
    ("change kept", "last_promotion_timestamp_seconds", KEPT),
    ("rolled back", "last_rollback_timestamp_seconds", UNDONE),
)
"""What is marked on every panel: a name, the series that holds when, and its colour."""


def overview() -> Json:
    """Return the dashboard."""
    grid = Grid()
    state.add(grid)
    cluster.add_metrics(grid)
    cluster.add_knobs(grid)
    cluster.add_forecasts(grid)
    decisions.add(grid)
    sidecar.add(grid)
    return dashboard(
        uid=UID,
        title="clocktuner / overview",
        description="What clocktuner sees, expects, sets and achieves. Generated; see tuner/dashboards.",
        panels=grid.panels,
        annotations=[
            annotation(name, f"{series(metric)} * 1000", colour=colour, text="{{cluster}}")
            for name, metric, colour in EVENTS
        ],
        variables=[
            variable("cluster", "Cluster", "label_values(clocktuner_build_info, cluster)"),
            variable("policy", "Policy", 'label_values(clocktuner_build_info{cluster=~"$cluster"}, policy)'),
        ],
    )


def build(path: Path) -> Path:
    """Write the dashboard, and return where it lies; equal code gives equal bytes."""
    path.write_text(text(), encoding="utf-8")
    return path


def text() -> str:
    """Return the dashboard as the JSON that is shipped."""
    return json.dumps(overview(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
