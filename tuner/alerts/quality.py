"""Is it any good? Forecasts, the twin, the search, and what tuning is worth. Nothing here wakes anybody."""

from collections.abc import Iterator
from typing import Final

from tuner.alerts.rows import (
    COUNT,
    NUMBER,
    RATIO,
    WHERE,
    Alert,
    Component,
    Dashboard,
    Example,
    Group,
    Recording,
    Severity,
    counter,
    gauge,
)
from tuner.alerts.site import Site

FORECAST_ERROR: Final = "policy:clocktuner_forecast_error_ratio:avg1h"
KNOB_POSITION: Final = "knob:clocktuner_knob_position:ratio"
"""Where a knob stands in its range: 0 at the low end, 1 at the high one."""


def groups(site: Site) -> Iterator[Group]:
    """Yield the rules about forecasts and decisions, and those about what is only to be known."""
    error = f"avg by (cluster, policy) (avg_over_time({site.series('forecast_error_ratio')}[{site.span(3600)}]))"
    yield Group("clocktuner-quality", (Recording(FORECAST_ERROR, error),), (*_predictions(site), *_results(site)))
    position = (Recording(KNOB_POSITION, _position(site)),)
    yield Group("clocktuner-information", position, (*_stops(site), *_knobs(site)))


def _position(site: Site) -> str:
    low, high = (site.latest("knob_bound", "knob", bound=bound) for bound in ("low", "high"))
    join = "on (cluster, policy, knob)"
    return f"({site.latest('knob_value', 'knob')} - {join} {low})\n/ {join}\n({high} - {join} {low} > 0)"


def _predictions(site: Site) -> Iterator[Alert]:
    yield Alert(
        name="ForecastErrorHigh",
        severity=Severity.WARNING,
        component=Component.FORECAST,
        dashboard=Dashboard.FORECAST,
        summary="Forecasts are worse than none.",
        description=f"The forecasts of {WHERE} lose {NUMBER} times as much as the last value would, over an hour. See "
        "on the dashboard which series; after a lasting change of the load, train anew with `clocktuner train`.",
        expression=f"{site.recorded(FORECAST_ERROR)} > {site.limit('forecast_error_ratio')}",
        window_seconds=3600,
        keep_seconds=900,
        absence="ClockTunerCyclesFailing",
        example=Example((gauge("forecast_error_ratio", 0.8, 1.6, series="queue_length"),), shown="1.6"),
    )
    yield Alert(
        name="TwinFidelityLow",
        severity=Severity.INFO,
        component=Component.FORECAST,
        dashboard=Dashboard.FORECAST,
        summary="The twin does not reproduce what is observed.",
        description=f"The twin reproduces only {RATIO} of what is observed of {WHERE}, so no change is made on its "
        "word. It learns by the quarter of an hour; if it stays low for days, see which metric the policy maps "
        "wrongly.",
        expression=f"{site.latest('twin_fidelity_ratio')} < {site.limit('fidelity_ratio')}",
        for_seconds=7200,
        keep_seconds=900,
        absence="ClockTunerCyclesFailing",
        example=Example((gauge("twin_fidelity_ratio", 0.8, 0.1),), shown="10%"),
    )


def _results(site: Site) -> Iterator[Alert]:
    yield Alert(
        name="OptunaTrialsFailing",
        severity=Severity.WARNING,
        component=Component.CHANGES,
        dashboard=Dashboard.DECISIONS,
        summary="Searches for better settings fail.",
        description=f"{COUNT} searches of {WHERE} failed within an hour, so nothing new is tried. `clocktuner history` "
        "names the reason, and `clocktuner replay CYCLE` repeats one.",
        expression=f"{site.increase('stage_failures_total', seconds=3600, stage='propose')} "
        f"> {site.limit('failed_searches')}",
        window_seconds=3600,
        keep_seconds=300,
        example=Example((counter("stage_failures_total", 0, 0.5, stage="propose", reason="internal"),), shown="30"),
    )
    worst = f"{site.latest('value_score')} - on (cluster, policy) 1.96 * {site.latest('value_score_error')}"
    yield Alert(
        name="TuningDoesHarm",
        severity=Severity.WARNING,
        component=Component.CHANGES,
        dashboard=Dashboard.DECISIONS,
        summary="The untouched settings do better than the tuned ones.",
        description=f"Even at its best, the score of {WHERE} is {RATIO} worse tuned than untouched, as hold-backs "
        "measure it. Set `mode: recommend`, and go back with `clocktuner rollback`.",
        expression=f"{worst} > 0",
        for_seconds=3600,
        keep_seconds=900,
        absence="ClockTunerCyclesFailing",
        example=Example((gauge("value_score", -0.1, 0.15), gauge("value_score_error", 0.02, 0.02)), shown="11.08%"),
    )
    day = 86_400
    yield Alert(
        name="TunerNotImproving",
        severity=Severity.INFO,
        component=Component.CHANGES,
        dashboard=Dashboard.DECISIONS,
        summary="Changes are tried, and none is kept.",
        description=f"{COUNT} changes of {WHERE} were tried within a day, and none proved good enough to be kept. The "
        "settings may be as good as they get; see with `clocktuner report` what the twin promised and what came.",
        expression=f"{site.increase('changes_total', seconds=day)} > {site.thresholds['fruitless_changes'] - 0.5:g}\n"
        f"unless on (cluster, policy)\n{site.increase('promotions_total', seconds=day)} > 0",
        window_seconds=day,
        example=Example(
            (counter("changes_total", 0, 0.1), counter("promotions_total", 0, 0)), shown="14", bad_seconds=7200
        ),
    )


def _stops(site: Site) -> Iterator[Alert]:
    paused = "{{ $labels.by }}"
    yield Alert(
        name="TunerPaused",
        severity=Severity.INFO,
        component=Component.CONTROL,
        dashboard=Dashboard.OVERVIEW,
        summary="clocktuner is paused.",
        description=f"clocktuner of {WHERE} changes nothing, because of: {paused}. Say `clocktuner resume` when it "
        "may go on.",
        expression=f"{site.latest('paused', 'by', by='!kill_switch')} == 1",
        for_seconds=60,
        keep_seconds=120,
        example=Example((gauge("paused", 0, 1, by="person"),), labels={"by": "person"}),
    )
    yield Alert(
        name="KillSwitchActive",
        severity=Severity.INFO,
        component=Component.CONTROL,
        dashboard=Dashboard.OVERVIEW,
        summary="The kill switch is on.",
        description=f"The kill switch of {WHERE} is on: clocktuner changes nothing. Remove the file, or the "
        "environment variable CLOCKTUNER_STOP, when the reason is gone.",
        expression=f"{site.latest('paused', by='kill_switch')} == 1",
        for_seconds=60,
        keep_seconds=120,
        example=Example((gauge("paused", 0, 1, by="kill_switch"),)),
    )
    yield Alert(
        name="TunerDryRun",
        severity=Severity.INFO,
        component=Component.CONTROL,
        dashboard=Dashboard.OVERVIEW,
        summary="clocktuner only looks or recommends.",
        description=f"clocktuner of {WHERE} is in a mode that changes nothing by itself. Set `mode: auto` in the "
        "policy when you trust what it recommends; `clocktuner report` shows it.",
        expression=f"{site.latest('mode', mode='auto')} == 0",
        for_seconds=300,
        keep_seconds=120,
        example=Example((gauge("mode", 1, 0, mode="auto"),)),
    )


def _knobs(site: Site) -> Iterator[Alert]:
    position = site.recorded(KNOB_POSITION)
    yield Alert(
        name="ConfigChanged",
        severity=Severity.INFO,
        component=Component.CONTROL,
        dashboard=Dashboard.DECISIONS,
        summary="Settings of the scheduler were changed.",
        description=f"clocktuner has made {COUNT} changes to {WHERE} within a quarter of an hour. `clocktuner explain "
        "CYCLE` tells which and why.",
        expression=f"{site.increase('changes_total', seconds=900)} > 0",
        window_seconds=900,
        example=Example((counter("changes_total", 0, 1),), shown="15"),
    )
    yield Alert(
        name="ParameterAtBound",
        severity=Severity.INFO,
        component=Component.CONTROL,
        dashboard=Dashboard.DECISIONS,
        summary="A knob has stood at the end of its range for long.",
        description=f"The knob {{{{ $labels.knob }}}} of {WHERE} has stood at {RATIO} of its range for six hours: a "
        "better value may lie beyond that end. Widen the range in the policy, if the scheduler allows it.",
        # One step is a hundredth of the range or more.
        expression=f"{position} < 0.001 or {position} > 0.999",
        for_seconds=21_600,
        keep_seconds=600,
        example=Example(
            (
                gauge("knob_bound", 0.08, 0.08, knob="base_slice_seconds", bound="low"),
                gauge("knob_bound", 0.15, 0.15, knob="base_slice_seconds", bound="high"),
                gauge("knob_value", 0.1, 0.15, knob="base_slice_seconds"),
            ),
            labels={"knob": "base_slice_seconds"},
            shown="100%",
        ),
    )
