"""Protection: breaker, degradation and settings, as the guard tick sees and keeps them."""

from typing import Final

from tuner.dashboards.cluster import UNITS
from tuner.dashboards.grafana import (
    CHANGED,
    EXPECTED,
    KEPT,
    SEEN,
    TICKS,
    UNDONE,
    Grid,
    Json,
    Steps,
    Target,
    counts,
    increase,
    levels,
    quantiles,
    rate,
    runbooks,
    series,
    stat,
    state,
    timeseries,
)
from tuner.values.metrics import METRICS

STALLED_SECONDS: Final = 60.0
LATE_SECONDS: Final = 15.0
"""Three ticks of five seconds that did not come are late, and a minute without one is an incident."""

BREAKER: Final = {0: ("closed", KEPT), 1: ("half open", CHANGED), 2: ("open", UNDONE)}
SETTINGS: Final = ("ours", "contested", "lost", "invalid", "unreadable")
RUNGS: Final = ("normal", "no_lstm", "cautious", "observe_only", "frozen")
PAUSES: Final = ("person", "maintenance", "kill_switch")


def _ranked(name: str, label: str, values: tuple[str, ...]) -> str:
    """Return 1 while a family is at the first of some values, 2 while it is at the second, ...; else 0."""
    return " + ".join(
        f"{rank} * sum by (cluster) ({series(name, **{label: value})})" for rank, value in enumerate(values, start=1)
    )


def _breaker(title: str, family: str, description: str, *alerts: str) -> Json:
    tile = state(title, description, _ranked(f"{family}_state", "state", ("half_open", "open")), BREAKER)
    return runbooks(tile, *alerts)


TILES: Final = (
    _breaker(
        "Latency breaker",
        "latency_breaker",
        "Open: the scheduler takes too long to decide and runs its simplified policy. Half open: the full one is on "
        "probe.",
        "CircuitBreakerOpen",
        "CircuitBreakerFlapping",
        "CircuitBreakerWithoutEffect",
    ),
    runbooks(
        state(
            "Degraded",
            "Whether only high-priority work is served, because resources are tight.",
            f"max by (cluster) ({series('degraded')})",
            {0: ("no", KEPT), 1: ("priority only", UNDONE)},
        ),
        "DegradedModeTooLong",
        "HighPriorityStarvation",
    ),
    runbooks(
        state(
            "Settings",
            "Whether the settings in force are those that clocktuner left. Contested: somebody else has set a valid "
            "value, which is never undone. Lost and invalid ones are restored.",
            _ranked("settings_state", "state", SETTINGS[1:]),
            {
                0: ("ours", KEPT),
                1: ("contested", CHANGED),
                2: ("lost", UNDONE),
                3: ("invalid", UNDONE),
                4: ("unreadable", UNDONE),
            },
        ),
        "ConfigContested",
        "ConfigInvalid",
        "SchedulerUnreachableFromTuner",
    ),
    _breaker(
        "Change breaker",
        "change_breaker",
        "Open: changes did harm, and none is tried. Half open: one small one may be.",
        "ChangeBreakerOpen",
        "TuningDoesHarm",
    ),
    runbooks(
        state(
            "Trusts itself",
            "Rung of the ladder: how far the tuner trusts itself. From observe only on it changes nothing.",
            _ranked("ladder_rung", "rung", RUNGS[1:]),
            {
                0: ("fully", KEPT),
                1: ("no network", EXPECTED),
                2: ("cautious", CHANGED),
                3: ("observes only", CHANGED),
                4: ("frozen", UNDONE),
            },
        ),
        "TunerFrozen",
        "HoldingLastSettings",
        "TwinFidelityLow",
    ),
    runbooks(
        state(
            "Paused",
            "Who keeps the tuner from changing anything. The scheduler stays protected but for the kill switch, which "
            "stops every write.",
            _ranked("paused", "by", PAUSES),
            {
                0: ("by nobody", KEPT),
                1: ("by a person", CHANGED),
                2: ("maintenance", EXPECTED),
                3: ("kill switch", UNDONE),
            },
        ),
        "TunerPaused",
        "KillSwitchActive",
        "TunerChangingWhileStopped",
    ),
    runbooks(
        stat(
            "Guard ran",
            "Time since the newest guard tick. Without ticks nobody steps in.",
            Target(
                expression=f"time() - max by (cluster) ({series('guard_last_timestamp_seconds')})",
                legend="{{cluster}}",
            ),
            unit="s",
            steps=Steps(at=((LATE_SECONDS, CHANGED), (STALLED_SECONDS, UNDONE))),
            decimals=0,
        ),
        "ClockTunerGuardStalled",
        "ClockTunerGuardLate",
        "ClockTunerNoGuard",
    ),
    runbooks(
        state(
            "Restoring",
            "Whether restoring lost or invalid settings was given up after all attempts.",
            f"max by (cluster) ({series('heal_exhausted')})",
            {0: ("works", KEPT), 1: ("given up", UNDONE)},
        ),
        "SelfHealFailing",
        "ConfigDriftUnrepaired",
    ),
)

LATENCY: Final = runbooks(
    timeseries(
        "Scheduling latency against its threshold",
        "Beyond the threshold for several samples in a row, the latency breaker opens.",
        [
            Target(
                expression=series("scheduling_latency_threshold_seconds"),
                legend="threshold",
                colour=UNDONE,
                dashed=True,
            ),
            Target(expression=series("observed_scheduling_latency_seconds"), legend="latency", colour=SEEN),
        ],
        unit="s",
        minimum=0,
    ),
    "SchedulingLatencyBudgetBurn",
    "CircuitBreakerOpen",
)
BEYOND: Final = runbooks(
    timeseries(
        "Samples beyond the threshold",
        "Share of the new samples of the scheduling latency that were beyond it: what the error budget is spent on.",
        [
            Target(
                expression=f"sum(rate({series('scheduling_latency_beyond_total')}[$__rate_interval]))"
                f" / (sum(rate({series('scheduling_latency_samples_total')}[$__rate_interval])) > 0)",
                legend="beyond",
                colour=SEEN,
            )
        ],
        unit="percentunit",
        minimum=0,
        interval=TICKS,
    ),
    "SchedulingLatencyBudgetBurn",
)
OPENINGS: Final = runbooks(
    counts(
        "Steps taken to protect",
        "Times that the latency breaker opened, and that only high-priority work began to be served.",
        [
            Target(expression=increase("latency_breaker_openings_total"), legend="breaker opened", colour=UNDONE),
            Target(expression=increase("degradations_total"), legend="priority only", colour=CHANGED),
        ],
        interval=TICKS,
    ),
    "CircuitBreakerOpen",
    "DegradedModeTooLong",
)
FLAPPING: Final = runbooks(
    levels(
        "Breaker and degradation",
        "1 while the latency breaker opens again and again, while it is not closed, and while only high-priority work "
        "is served.",
        [
            Target(expression=series("latency_breaker_flapping"), legend="flapping", colour=UNDONE),
            Target(
                expression=f"1 - {series('latency_breaker_state', state='closed')}",
                legend="breaker not closed",
                colour=CHANGED,
            ),
            Target(expression=series("degraded"), legend="priority only", colour=EXPECTED),
        ],
    ),
    "CircuitBreakerFlapping",
)
LIMITS: Final = tuple(
    timeseries(
        f"{spec.name.replace('_', ' ').capitalize()} against its limit",
        f"{spec.summary} A change under which it goes beyond its limit is undone. Without a dashed line the policy "
        "sets none.",
        [
            Target(
                expression=series("safety_limit", metric=spec.name),
                legend="limit",
                colour=UNDONE,
                dashed=True,
            ),
            Target(expression=series(f"observed_{spec.name}"), legend="observed", colour=SEEN),
        ],
        unit=UNITS[spec.unit],
        minimum=None if spec.unit == "°C" else 0,
    )
    for spec in METRICS
    if spec.safety and spec.name != "scheduling_latency_seconds"
)
"""The safety metrics but the latency, which has a panel of its own."""

DURATION: Final = runbooks(
    timeseries(
        "Time of a guard tick",
        "Wall-clock time of ticks, half and 99 % of them.",
        quantiles("guard_duration_seconds", (0.5, "p50", SEEN), (0.99, "p99", EXPECTED)),
        unit="s",
        minimum=0,
        interval=TICKS,
    ),
    "ClockTunerGuardLate",
)
DELAY: Final = runbooks(
    timeseries(
        "Delay of guard ticks",
        "How much later than planned the newest tick began.",
        [Target(expression=series("guard_delay_seconds"), legend="{{cluster}}")],
        unit="s",
        minimum=0,
    ),
    "ClockTunerGuardLate",
)
FOUND: Final = runbooks(
    timeseries(
        "Guard ticks by what they found",
        "New samples, none that are newer than the last ones, or no answer. Blind ticks keep the settings, and step in "
        "nowhere.",
        [Target(expression=rate("guard_ticks_total", by="result"), legend="{{result}}")],
        unit="cps",
        minimum=0,
        interval=TICKS,
    ),
    "PrometheusUnreachableFromTuner",
    "SchedulerMetricStale",
)
CLOCKS: Final = runbooks(
    timeseries(
        "Metrics source",
        "Clock of the metrics source less ours.",
        [Target(expression=series("source_clock_offset_seconds"), legend="clock offset", colour=SEEN)],
        unit="s",
    ),
    "ClockSkew",
)
ANSWERS: Final = runbooks(
    levels(
        "Metrics source answers",
        "1 where it answered the newest question, 0 where it did not.",
        [Target(expression=series("source_up"), legend="{{cluster}}")],
    ),
    "PrometheusUnreachableFromTuner",
)

STATE: Final = runbooks(
    levels(
        "State of the settings",
        "What the settings in force were found to be; one of the lines is at 1.",
        [Target(expression=f"max by (state) ({series('settings_state')})", legend="{{state}}")],
    ),
    "ConfigContested",
    "ConfigInvalid",
)
HEALS: Final = runbooks(
    counts(
        "Restorations",
        "Restorations of invalid or lost settings, by result.",
        [Target(expression=increase("heals_total", by="result"), legend="{{result}}")],
        interval=TICKS,
    ),
    "SelfHealFailing",
    "ConfigDriftUnrepaired",
)
CONTESTED: Final = runbooks(
    counts(
        "Edits by others",
        "Times that somebody else was found to have set a knob or the policy mode. They are never undone.",
        [Target(expression=increase("contested_total"), legend="edits", colour=CHANGED)],
        interval=TICKS,
    ),
    "ConfigContested",
    "ConfigChanged",
)


def add(grid: Grid) -> None:
    """Add the rows."""
    grid.row("State")
    for tile in TILES:
        grid.add(tile, width=3, height=4)
    grid.row("The scheduler, and what protects it")
    grid.add(LATENCY, width=12, height=8)
    for panel in (BEYOND, FLAPPING):
        grid.add(panel, width=6, height=8)
    for panel in (OPENINGS, *LIMITS):
        grid.add(panel, width=6, height=8)
    add_guard(grid)
    grid.row("The settings")
    for panel in (STATE, HEALS, CONTESTED):
        grid.add(panel, width=8, height=7)


def add_guard(grid: Grid) -> None:
    """Add the row of the guard tick."""
    grid.row("The guard tick")
    for panel in (DURATION, DELAY, FOUND):
        grid.add(panel, width=8, height=7)
    for panel in (CLOCKS, ANSWERS):
        grid.add(panel, width=12, height=6)
