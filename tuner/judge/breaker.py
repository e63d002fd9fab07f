"""The latency breaker: when the scheduler is put into its simplified policy, and when it gets its full one back.

The states are those of Nygard ("Release It!", chapter 5). Closed: the full policy runs. Open: it takes too long to
decide, so the simplified policy runs. Half open: the full policy is on probe, or the priority-only one, which may end
the probe but proves nothing for the full one.

What is read is looked back over a window, so one noisy scrape shows in every sample whose window holds it. Therefore
the breaker opens only where the samples beyond the threshold outlast a window, and a probe is judged only by samples
whose window lies after it began. While it is open, no latency closes it: that of the simplified policy says nothing
about the full one.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

from tuner.judge.samples import Arrival, arrival
from tuner.settings.safety import LatencyBreakerSettings
from tuner.values.knobs import SchedulerMode
from tuner.values.safety import BreakerState, Reading

METRIC: Final = "scheduling_latency_seconds"

REOPEN_SAMPLES: Final = 2
"""Samples in a row beyond the threshold that end a probe: fewer than what opens it, since there is a suspicion, but
never one (assumption)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyBreaker:
    """State of the latency breaker.

    Attributes:
        state: Closed, open, or half open.
        beyond: New samples in a row that were beyond the threshold.
        under: New samples in a row that were not, while the full policy is on probe.
        beyond_since_seconds: Time of the first of those beyond; NaN where there is none.
        opened_at_seconds: When it last opened; NaN where it never did.
        probed_mode: Policy mode that the scheduler was seen to run during the probe; simplified outside of one.
        probing_since_seconds: Since when; NaN outside a probe.
        closed_at_seconds: When it last closed; NaN where it never did.
        cool_down_seconds: Time that it stays, or last stayed, open; NaN where it never opened.
        openings: When it opened, as far back as the flap window.
        newest_at_seconds: Time of the newest sample that was seen; NaN before the first.
        reason: Why it is in its state, in one sentence; empty before it first opened.
    """

    state: BreakerState = BreakerState.CLOSED
    beyond: int = 0
    under: int = 0
    beyond_since_seconds: float = math.nan
    opened_at_seconds: float = math.nan
    probed_mode: SchedulerMode = SchedulerMode.SIMPLIFIED
    probing_since_seconds: float = math.nan
    closed_at_seconds: float = math.nan
    cool_down_seconds: float = math.nan
    openings: tuple[float, ...] = ()
    newest_at_seconds: float = math.nan
    reason: str = ""


def watch_latency(
    breaker: LatencyBreaker,
    reading: Reading,
    *,
    threshold_seconds: float,
    settings: LatencyBreakerSettings,
    in_mode: SchedulerMode,
    window_seconds: float,
) -> LatencyBreaker:
    """Return the breaker after one guard tick.

    A tick without a new sample, or with one that has no value, counts for nothing and resets nothing; a gap of three
    windows starts the count again. Where a clock was set back, waits start again, so that none lasts for ever.

    Args:
        breaker: As it was left by the tick before.
        reading: What the tick sees.
        threshold_seconds: Latency beyond which a sample counts against the full policy; NaN: there is no breaker.
        settings: Its part of the policy.
        in_mode: Policy mode that the scheduler runs.
        window_seconds: Window that the reading's queries look back over.
    """
    at = reading.at_seconds
    breaker = _not_after(breaker, at)
    if math.isnan(threshold_seconds):
        return _without_threshold(breaker, at)
    breaker, counts = _take(breaker, reading, in_mode=in_mode, window_seconds=window_seconds)
    if counts:
        breaker = _count(breaker, reading, threshold_seconds, in_mode)
    value = reading.value(METRIC)
    match breaker.state:
        case BreakerState.CLOSED:
            outlasts = breaker.newest_at_seconds - breaker.beyond_since_seconds >= window_seconds
            if breaker.beyond >= settings.samples and outlasts:
                return _open(breaker, at, settings, _over(breaker, value, threshold_seconds))
        case BreakerState.OPEN:
            # Without a sample nobody would see what the probe does.
            if not at - breaker.opened_at_seconds < breaker.cool_down_seconds and math.isfinite(value):
                return _probe(breaker)
        case BreakerState.HALF_OPEN:
            if breaker.beyond >= REOPEN_SAMPLES:
                sentence = f"the probe of the full policy failed: {_over(breaker, value, threshold_seconds)}"
                return _open(breaker, at, settings, sentence)
            if breaker.under >= settings.probe_samples:
                return _close(breaker, at, _under(breaker, value, threshold_seconds))
    return breaker


def flapping(breaker: LatencyBreaker, settings: LatencyBreakerSettings, *, at_seconds: float) -> bool:
    """Say whether it opened again and again within the flap window."""
    recent = [time for time in breaker.openings if at_seconds - time <= settings.flap_window_seconds]
    return len(recent) >= settings.flap_openings


def _not_after(breaker: LatencyBreaker, at: float) -> LatencyBreaker:
    """Return it without times in the future, which a clock that was set back leaves: waits start again from now."""
    return replace(
        breaker,
        # In this order, NaN stays NaN.
        opened_at_seconds=min(breaker.opened_at_seconds, at),
        probing_since_seconds=min(breaker.probing_since_seconds, at),
        closed_at_seconds=min(breaker.closed_at_seconds, at),
        openings=tuple(min(time, at) for time in breaker.openings),
    )


def _without_threshold(breaker: LatencyBreaker, at: float) -> LatencyBreaker:
    if breaker.state is BreakerState.CLOSED:
        return _recount(breaker)
    return _close(breaker, at, "the policy names no threshold of the scheduling latency any more")


def _take(
    breaker: LatencyBreaker, reading: Reading, *, in_mode: SchedulerMode, window_seconds: float
) -> tuple[LatencyBreaker, bool]:
    """Note the newest sample, and say whether it tells anything about the full policy."""
    breaker = _seen_probing(breaker, reading.at_seconds, in_mode)
    newest = reading.newest(METRIC)
    came = arrival(newest, newest_at_seconds=breaker.newest_at_seconds, window_seconds=window_seconds)
    if came is Arrival.OLD or not math.isfinite(reading.value(METRIC)):
        return breaker, False
    if came is Arrival.APART or in_mode is SchedulerMode.SIMPLIFIED:
        breaker = _recount(breaker)
    breaker = replace(breaker, newest_at_seconds=newest)
    match breaker.state:
        case BreakerState.CLOSED:
            return breaker, in_mode is not SchedulerMode.SIMPLIFIED
        case BreakerState.OPEN:
            return breaker, False
        case BreakerState.HALF_OPEN:
            return breaker, newest > breaker.probing_since_seconds + window_seconds


def _seen_probing(breaker: LatencyBreaker, at: float, in_mode: SchedulerMode) -> LatencyBreaker:
    """Note since when the mode that is on probe is seen to run; what was counted in another proves nothing."""
    if breaker.state is not BreakerState.HALF_OPEN or in_mode is breaker.probed_mode:
        return breaker
    since = math.nan if in_mode is SchedulerMode.SIMPLIFIED else at
    return replace(_recount(breaker), probed_mode=in_mode, probing_since_seconds=since)


def _count(breaker: LatencyBreaker, reading: Reading, threshold: float, in_mode: SchedulerMode) -> LatencyBreaker:
    if reading.value(METRIC) > threshold:
        since = reading.newest(METRIC) if breaker.beyond == 0 else breaker.beyond_since_seconds
        return replace(breaker, beyond=breaker.beyond + 1, under=0, beyond_since_seconds=since)
    proves = breaker.state is BreakerState.HALF_OPEN and in_mode is SchedulerMode.FULL
    return replace(_recount(breaker), under=breaker.under + 1 if proves else 0)


def _recount(breaker: LatencyBreaker) -> LatencyBreaker:
    return replace(breaker, beyond=0, under=0, beyond_since_seconds=math.nan)


def _outside_probe(breaker: LatencyBreaker) -> LatencyBreaker:
    return replace(_recount(breaker), probed_mode=SchedulerMode.SIMPLIFIED, probing_since_seconds=math.nan)


def _open(breaker: LatencyBreaker, at: float, settings: LatencyBreakerSettings, reason: str) -> LatencyBreaker:
    quiet = breaker.state is BreakerState.CLOSED and not (
        at - breaker.closed_at_seconds <= settings.flap_window_seconds
    )
    # A proof that did not hold for long is as good as a probe that failed.
    cool_down = settings.cool_down_seconds if quiet else 2.0 * breaker.cool_down_seconds
    kept = (time for time in breaker.openings if at - time <= settings.flap_window_seconds)
    return replace(
        _outside_probe(breaker),
        state=BreakerState.OPEN,
        opened_at_seconds=at,
        cool_down_seconds=min(cool_down, settings.max_cool_down_seconds),
        openings=(*kept, at),
        reason=reason,
    )


def _probe(breaker: LatencyBreaker) -> LatencyBreaker:
    sentence = f"the cool-down of {breaker.cool_down_seconds:.0f} s has passed: the full policy is tried again"
    return replace(_outside_probe(breaker), state=BreakerState.HALF_OPEN, reason=sentence)


def _close(breaker: LatencyBreaker, at: float, reason: str) -> LatencyBreaker:
    return replace(_outside_probe(breaker), state=BreakerState.CLOSED, closed_at_seconds=at, reason=reason)


def _over(breaker: LatencyBreaker, value: float, threshold: float) -> str:
    return f"{breaker.beyond} samples in a row of the scheduling latency over {threshold:.3g} s, the last {value:.3g} s"


def _under(breaker: LatencyBreaker, value: float, threshold: float) -> str:
    return (
        f"{breaker.under} samples in a row of the scheduling latency within {threshold:.3g} s under the full policy, "
        f"the last {value:.3g} s"
    )
