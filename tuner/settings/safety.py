"""The parts of a policy that say when to step back: the guard tick, its breakers, and what people may stop."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tuner.settings.sections import Seconds, Section


class OnContest(StrEnum):
    """What to do where somebody else has set a knob to a valid value."""

    ADOPT = "adopt"
    """Take it for the setting in force, and tune on from there after the cool-down."""
    FREEZE = "freeze"
    """Change nothing more until a person says `clocktuner adopt` or `clocktuner resume`."""


class LatencyBreakerSettings(Section):
    """When the scheduler is put into its simplified policy, because it cannot keep up with its decisions."""

    threshold_seconds: Seconds | None = Field(default=None, gt=0)
    """Scheduling latency beyond which the scheduler is in trouble. Where absent, the limit of
    `scheduling_latency_seconds`; without either there is no latency breaker."""
    samples: int = Field(default=3, ge=2, le=100)
    """New samples in a row beyond the threshold that open the breaker: one noisy sample never does."""
    cool_down_seconds: Seconds = Field(default=120.0, ge=1)
    """Time in the simplified policy before the full one is tried again; doubled each time that fails."""
    max_cool_down_seconds: Seconds = Field(default=3600.0, ge=1)
    """Longest such time."""
    probe_samples: int = Field(default=6, ge=2, le=100)
    """New samples in a row under the threshold, in the full policy, that close the breaker."""
    flap_openings: int = Field(default=3, ge=2)
    """Openings within `flap_window_seconds` that are reported as flapping."""
    flap_window_seconds: Seconds = Field(default=3600.0, gt=0)
    """Time over which openings are counted."""


class DegradationSettings(Section):
    """When only high-priority work is served, because resources are tight."""

    enabled: bool = True
    """Whether the scheduler is ever put into its priority-only policy."""
    max_idle_ratio: float = Field(default=0.03, ge=0, le=1)
    """Tight: at most this share of the accelerators is idle, ..."""
    min_pending_ratio: float = Field(default=0.5, ge=0)
    """... at least this much demand is waiting, as a share of the capacity, ..."""
    max_high_priority_wait_seconds: Seconds | None = Field(default=None, gt=0)
    """... and protected work waits longer than this. Where absent, the limit of `high_priority_wait_seconds`; without
    either there is no degradation, because nothing would tell that it is needed."""
    samples: int = Field(default=3, ge=2, le=100)
    """New samples in a row that are tight before it begins."""
    recovery_ratio: float = Field(default=0.8, gt=0, lt=1)
    """Hysteresis: recovered where the wait is under this share of its limit, or the idle share over its limit divided
    by this."""
    recovery_samples: int = Field(default=6, ge=2, le=1000)
    """New samples in a row that have recovered before it ends."""
    dwell_seconds: Seconds = Field(default=300.0, ge=0)
    """Least time in it, and least time between two."""


class HealingSettings(Section):
    """What is done about settings that are not as we left them."""

    on_contest: Annotated[OnContest, Field(strict=False)] = OnContest.ADOPT
    """What to do about a valid edit by somebody else: `adopt` it, or `freeze`. It is never undone."""
    max_attempts: int = Field(default=5, ge=1, le=100)
    """Attempts to restore invalid or lost settings before it is given up and reported."""
    back_off_seconds: Seconds = Field(default=10.0, ge=1)
    """Pause after the first failed attempt; doubled after each."""
    max_back_off_seconds: Seconds = Field(default=600.0, ge=1)
    """Longest pause."""


class GuardSettings(Section):
    """The guard tick: a few safety metrics and the settings in force, looked at between the cycles."""

    period_seconds: Seconds = Field(default=5.0, ge=0.5, le=60)
    """Distance of two ticks. A tick that finds no new sample counts for nothing."""
    window_seconds: Seconds = Field(default=60.0, ge=10, le=600)
    """`$window` in the queries of a tick: short, so that a breach is seen soon; at least two scrape intervals."""
    latency_breaker: LatencyBreakerSettings = Field(default_factory=LatencyBreakerSettings)
    degradation: DegradationSettings = Field(default_factory=DegradationSettings)
    healing: HealingSettings = Field(default_factory=HealingSettings)


class ChangeBreakerSettings(Section):
    """When clocktuner stops changing anything, because its changes do harm."""

    harmful_changes: int = Field(default=3, ge=1)
    """Changes undone for harm within `window_seconds` that open it. A roll-back that fails, or an unexpected error
    while changing, opens it at once."""
    window_seconds: Seconds = Field(default=86_400.0, gt=0)
    """Time over which they are counted: a day."""
    cool_down_seconds: Seconds = Field(default=3600.0, ge=1)
    """Time without changes before one small trial is allowed; doubled each time that trial fails."""
    max_cool_down_seconds: Seconds = Field(default=86_400.0, ge=1)
    """Longest such time."""
    max_cost_ratio: float = Field(default=0.01, gt=0, le=1)
    """What trials that fail may cost over time, as a share of the score: after a change that was undone, nothing is
    tried until its cost, spread over the pause, is no more than that. A change 10 % worse for 15 min is followed by
    150 min without a trial. One per cent, as much as the smallest gain that is worth a change."""
    max_cost_of_gain_ratio: float = Field(default=0.25, ge=0, le=1)
    """What they may cost besides, as a share of what the changes in force have surely gained: a tuner that earns much
    may look further. A quarter (assumption), so that what it does is worth it whatever becomes of its trials."""


class MaintenanceWindow(Section):
    """A time in which nothing is changed."""

    days: tuple[Annotated[str, Field(pattern=r"^(mon|tue|wed|thu|fri|sat|sun)$")], ...] = Field(
        default=("mon", "tue", "wed", "thu", "fri", "sat", "sun"), strict=False, min_length=1
    )
    """Days of the week on which it begins."""
    start: str = Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")
    """When it begins, as local time HH:MM. A time that the clock leaves out when it is set forward is the jump."""
    end: str = Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")
    """When it ends, as local time HH:MM; on the next day where it is not after `start`. A time that the clock shows
    twice when it is set back counts from the first for `start`, to the second for `end`."""
    timezone: str = "UTC"
    """Time zone, as in Europe/Vienna: it knows when summer time begins."""


class ControlSettings(Section):
    """What people decide: when nothing may be changed, how often, and what is proven regularly."""

    kill_file: str | None = Field(default=None, min_length=1)
    """While this file exists, nothing is written; relative paths count from the policy. `<journal>.stop`, which
    `clocktuner kill-switch on` makes, always counts as well, and so does the environment variable CLOCKTUNER_STOP, set
    to anything but 0."""
    maintenance: tuple[MaintenanceWindow, ...] = Field(default=(), strict=False)
    """Times in which nothing is changed."""
    max_changes_per_day: int = Field(default=24, ge=1)
    """Changes to be tried in 24 hours at most; the switches of one comparison count once."""
    hold_back_ratio: float = Field(default=0.0, ge=0, le=0.2)
    """Share of the time in which the untouched setting is put back in force, to measure what tuning is worth."""
    drill_every_seconds: Seconds | None = Field(default=None, ge=3600)
    """Distance of two roll-back drills: a change of one step, seen effective, undone and timed. None: only by hand."""
