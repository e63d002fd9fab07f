"""The cluster: its metrics as clocktuner sees them, its knobs, and what is forecast of it."""

from typing import Final

from tuner.dashboards.grafana import CHANGED, EXPECTED, QUIET, SEEN, Grid, Target, series, timeseries
from tuner.values.knobs import Role
from tuner.values.metrics import METRIC_NAMES, METRICS

UNITS: Final = {"s": "s", "ratio": "percentunit", "tasks": "short", "1/s": "cps", "°C": "celsius", "W": "watt"}
"""Grafana's names of the catalogue's units."""

KNOB_TITLES: Final = {
    Role.BASE_SLICE: ("Base time slice", "s", "Adjusted to the mix of task types."),
    Role.PREDICTION_WINDOW: ("Prediction window", "s", "Adjusted to the mean run time of tasks."),
    Role.DECISION_PERIOD: ("Decision period", "s", "Adjusted to the size of the cluster."),
    Role.RESERVATION: ("Reservation", "percentunit", "Adjusted to what high-priority work has to be granted."),
}

FORECAST: Final = ("queue_wait_seconds", "queue_length", "accelerator_utilization_ratio", "pending_demand_ratio")
"""Series whose forecasts drive decisions."""

QUALITY: Final = (
    timeseries(
        "Forecast error",
        "Rolling loss of the model in charge over that of last value, by series. Over 1 it would be better not to "
        "forecast at all.",
        [Target(expression=series("forecast_error_ratio"), legend="{{series}}")],
        unit="short",
        minimum=0,
    ),
    timeseries(
        "Models in charge",
        "Number of series for which each model is in charge.",
        [Target(expression=f"sum by (model) ({series('forecast_model')})", legend="{{model}}")],
        unit="short",
        minimum=0,
    ),
    timeseries(
        "Best window for work that can wait",
        "When the interval with most expected headroom begins and ends, from now, for work that can be deferred.",
        [
            Target(expression=f"{series(f'best_window_{edge}_timestamp_seconds')} - time()", legend=edge, colour=colour)
            for edge, colour in (("start", SEEN), ("end", EXPECTED))
        ],
        unit="s",
    ),
    timeseries(
        "Room in the best window",
        "Share of the accelerators that is expected to be free in that interval.",
        [Target(expression=series("best_window_headroom_ratio"), legend="{{cluster}}")],
        unit="percentunit",
        minimum=0,
    ),
)


def add_metrics(grid: Grid) -> None:
    """Add the metrics, in catalogue order."""
    grid.row("The cluster, as clocktuner sees it")
    for spec in METRICS:
        better = {"lower": " Lower is better.", "higher": " Higher is better."}.get(spec.better.value, "")
        panel = timeseries(
            spec.name.replace("_", " ").capitalize(),
            f"{spec.summary}{better} No line means that there was no sample.",
            [Target(expression=series(f"observed_{spec.name}"), legend="{{cluster}}")],
            unit=UNITS[spec.unit],
            minimum=None if spec.unit == "°C" else 0,
        )
        grid.add(panel, width=6, height=7)


def add_knobs(grid: Grid) -> None:
    """Add the knobs, in the order of the roles."""
    grid.row("The knobs, with their bounds")
    for role, (title, unit, adjusted) in KNOB_TITLES.items():
        panel = timeseries(
            title,
            f"Setting in force, the one last proposed, and the range that the policy allows. {adjusted}",
            [
                *(_bound(role, bound) for bound in ("low", "high")),
                Target(expression=series("knob_proposed", knob=role.value), legend="proposed", colour=CHANGED),
                Target(expression=series("knob_value", knob=role.value), legend="in force", colour=SEEN),
            ],
            unit=unit,
            steps=True,
        )
        grid.add(panel, width=6, height=8)


def _bound(role: Role, bound: str) -> Target:
    return Target(
        expression=series("knob_bound", knob=role.value, bound=bound), legend=bound, colour=QUIET, dashed=True
    )


def add_forecasts(grid: Grid) -> None:
    """Add forecasts against what came, and how good they are."""
    grid.row("Forecast against actual")
    for name in FORECAST:
        spec = METRICS[METRIC_NAMES.index(name)]
        # Shifted by its lead, so that a forecast stands where it was for.
        quantile = {
            level: f"{series('forecast_value', series=name, level=level)} offset 15m" for level in ("0.1", "0.5", "0.9")
        }
        panel = timeseries(
            f"{spec.name.replace('_', ' ').capitalize()}: forecast and actual",
            "What came, against what was forecast for this time a quarter of an hour before. Four of five values "
            "should lie in the band.",
            [
                Target(expression=quantile["0.9"], legend="90 %", colour=EXPECTED, band_to="10 %", hidden_legend=True),
                Target(expression=quantile["0.1"], legend="10 %", colour=EXPECTED, hidden_legend=True),
                Target(expression=quantile["0.5"], legend="median forecast", colour=EXPECTED, dashed=True),
                Target(expression=series(f"observed_{name}"), legend="actual", colour=SEEN),
            ],
            unit=UNITS[spec.unit],
            minimum=0,
        )
        grid.add(panel, width=12, height=8)
    for panel in QUALITY:
        grid.add(panel, width=6, height=8)
