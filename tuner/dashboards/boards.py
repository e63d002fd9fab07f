"""The shipped dashboards: which rows each has, and how they are written to files.

The overview goes from state over symptoms to decisions; the others show one concern each, and are what alerts link to.
What is drawn is what `tuner.record.families` exports, whatever the scheduler.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tuner.dashboards import caution, cluster, decisions, protection, sidecar, state
from tuner.dashboards.grafana import (
    CHANGED,
    EXPECTED,
    KEPT,
    RUNBOOKS,
    SEEN,
    UNDONE,
    Grid,
    Json,
    annotation,
    dashboard,
    series,
    textbox,
    variable,
)


@dataclass(frozen=True, slots=True)
class Event:
    """What is marked on every panel of a dashboard.

    Attributes:
        name: What happened.
        metric: Series that holds when.
        colour: Of the mark.
    """

    name: str
    metric: str
    colour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One dashboard.

    Attributes:
        uid: Never changed: alerts and other dashboards link to it.
        title: After `clocktuner / `.
        description: What it shows.
        rows: Add its rows, in this order.
        events: What is marked on every panel.
    """

    uid: str
    title: str
    description: str
    rows: tuple[Callable[[Grid], None], ...]
    events: tuple[Event, ...]

    def json(self) -> Json:
        """Return the dashboard."""
        grid = Grid()
        for add in self.rows:
            add(grid)
        linked = any(panel.get("links") for panel in grid.panels)
        return dashboard(
            uid=self.uid,
            title=f"clocktuner / {self.title}",
            description=f"{self.description} Generated; see tuner/dashboards.",
            panels=grid.panels,
            annotations=[
                annotation(event.name, f"{series(event.metric)} * 1000", colour=event.colour, text="{{cluster}}")
                for event in self.events
            ],
            variables=[
                variable("cluster", "Cluster", "label_values(clocktuner_build_info, cluster)"),
                variable("policy", "Policy", 'label_values(clocktuner_build_info{cluster=~"$cluster"}, policy)'),
                *([textbox("runbooks", "Address of the runbooks", RUNBOOKS)] if linked else []),
            ],
        )

    def text(self) -> str:
        """Return the dashboard as the JSON that is shipped."""
        return json.dumps(self.json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


TRIALS: Final = (
    Event("change made", "last_change_timestamp_seconds", CHANGED),
    Event("change kept", "last_promotion_timestamp_seconds", KEPT),
    Event("rolled back", "last_rollback_timestamp_seconds", UNDONE),
)
GUARDED: Final = (
    Event("latency breaker opened", "latency_breaker_opened_timestamp_seconds", UNDONE),
    Event("degradation began or ended", "degraded_timestamp_seconds", CHANGED),
    Event("paused", "paused_timestamp_seconds", EXPECTED),
    Event("drill", "drill_last_timestamp_seconds", SEEN),
)

BOARDS: Final[Mapping[str, Board]] = {
    "overview": Board(
        uid="clocktuner-overview",
        title="overview",
        description="What clocktuner sees, expects, sets and achieves.",
        rows=(
            state.add,
            cluster.add_metrics,
            cluster.add_knobs,
            cluster.add_forecasts,
            decisions.add,
            sidecar.add,
        ),
        events=TRIALS,
    ),
    "safety": Board(
        uid="clocktuner-safety",
        title="safety",
        description="What protects the scheduler, what keeps clocktuner from doing harm, and whether it can step back.",
        rows=(protection.add, caution.add),
        events=GUARDED,
    ),
    "decisions": Board(
        uid="clocktuner-decisions",
        title="decisions",
        description="What clocktuner decided, changed and achieved, and the knobs that it moved.",
        rows=(decisions.add, cluster.add_knobs),
        events=TRIALS,
    ),
    "forecast": Board(
        uid="clocktuner-forecast",
        title="forecast",
        description="What clocktuner expects of the load, against what came.",
        rows=(cluster.add_forecasts,),
        events=(),
    ),
    "sidecar": Board(
        uid="clocktuner-sidecar",
        title="sidecar",
        description="Whether clocktuner itself works: its cycles, its failures, its sight, and its guard.",
        rows=(sidecar.add, protection.add_guard),
        events=(),
    ),
}
"""By the name of the file."""


def build(folder: Path) -> tuple[Path, ...]:
    """Write all dashboards into a folder, and return where they lie; equal code gives equal bytes."""
    written = []
    for name, board in BOARDS.items():
        path = folder / f"{name}.json"
        path.write_text(board.text(), encoding="utf-8")
        written.append(path)
    return tuple(written)
