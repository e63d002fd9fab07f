"""What guard ticks and cycles tell the exporter of the safety parts."""

from dataclasses import dataclass

from tuner.values.safety import BreakerState, Rung, SettingsState


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """One guard tick, for the metrics.

    Attributes:
        at_seconds: When it ran.
        seconds: How long it took.
        delay_seconds: How much later than planned it began.
        result: What it found: `new` samples, `nothing_new`, or no answer (`blind`).
        latency_beyond: Whether a new sample of the scheduling latency was beyond the threshold; None without one.
        breaker: State of the latency breaker.
        breaker_opened_at_seconds: When it last opened; NaN where it never did.
        flapping: Whether it opens again and again.
        degraded: Whether only high-priority work is served.
        degraded_at_seconds: When that last began or ended; NaN where it never did.
        settings: What the settings in force are.
        kept: What was done about them: a decision of the keeper; None where nothing was.
        heal_exhausted: Whether restoring them was given up.
        clock_offset_seconds: Clock of the metrics source less ours; NaN where it does not tell.
    """

    at_seconds: float
    seconds: float
    delay_seconds: float
    result: str
    latency_beyond: bool | None
    breaker: BreakerState
    breaker_opened_at_seconds: float
    flapping: bool
    degraded: bool
    degraded_at_seconds: float
    settings: SettingsState
    kept: str | None
    heal_exhausted: bool
    clock_offset_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Safety:
    """How far the tuner may go, for the metrics.

    Attributes:
        change_breaker: State of the change breaker.
        change_breaker_opened: Whether it has opened since it was last told.
        rung: How far the tuner trusts itself.
        paused_by: Who keeps it from changing anything: `person`, `kill_switch`, `maintenance`; empty where nobody does.
        paused_at_seconds: When that began; NaN where nobody does.
        rank_agreement: Rank agreement of predicted and realised gains, -1..1; NaN while unknown.
        sign_hit_ratio: Share of gains with the predicted sign, 0..1; NaN while unknown.
    """

    change_breaker: BreakerState
    change_breaker_opened: bool
    rung: Rung
    paused_by: str
    paused_at_seconds: float
    rank_agreement: float
    sign_hit_ratio: float
