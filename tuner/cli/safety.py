"""What `status` tells of the safety parts: what stands, since when, and by whom, one line a part."""

import math

from tuner.cli.states import States
from tuner.control.orders import instant
from tuner.judge.breaker import flapping
from tuner.memory import OnTrial
from tuner.record.status import Point
from tuner.record.wording import KNOB_LABELS, count, e_value
from tuner.settings.model import TunerMode
from tuner.values.knobs import SchedulerMode
from tuner.values.safety import BreakerState, Rung
from tuner.verify.legs import Leg, Switchback


def points(states: States) -> tuple[Point, ...]:
    """Return what stands, one line a part."""
    return (
        _latency_breaker(states),
        _degradation(states),
        _settings(states),
        _change_breaker(states),
        _ladder(states),
        _people(states),
        _directions(states),
        _changes(states),
        trial(states.memory.on_trial),
        _last_drill(states),
    )


def _latency_breaker(states: States) -> Point:
    breaker, settings = states.guard.breaker, states.guard_settings.latency_breaker
    again = ", opening again and again" if flapping(breaker, settings, at_seconds=states.at_seconds) else ""
    match breaker.state:
        case BreakerState.OPEN:
            end = instant(breaker.opened_at_seconds + breaker.cool_down_seconds)
            said = f"open since {instant(breaker.opened_at_seconds)}{again}, probed from {end}: {breaker.reason}"
            return Point("latency breaker", said, "bad")
        case BreakerState.HALF_OPEN:
            said = f"on probe{again}, {breaker.under} of {settings.probe_samples} good samples: {breaker.reason}"
            return Point("latency breaker", said, "trial")
    closed = "" if math.isnan(breaker.closed_at_seconds) else f" since {instant(breaker.closed_at_seconds)}"
    return Point("latency breaker", f"closed{closed}{again}", "trial" if again else "good")


def _degradation(states: States) -> Point:
    degradation = states.guard.degradation
    if degradation.active:
        said = f"only high-priority work is served, since {instant(degradation.since_seconds)}: {degradation.reason}"
        return Point("degradation", said, "bad")
    ended = "" if math.isnan(degradation.since_seconds) else f", since {instant(degradation.since_seconds)}"
    return Point("degradation", f"none{ended}", "good")


def _settings(states: States) -> Point:
    standing, progress = states.standing, states.progress
    limit = states.guard_settings.healing.max_attempts
    mode = "" if standing.mode is SchedulerMode.FULL else f"; policy mode {standing.mode.value.replace('_', ' ')}"
    if standing.mode_is_theirs:
        mode = f"; somebody else has chosen the policy mode {standing.mode.value.replace('_', ' ')}"
    if standing.frozen_because:
        return Point("settings", f"contested: {standing.frozen_because}{mode}", "bad")
    if progress.attempts >= limit:
        return Point("settings", f"not as they were left; given up after {count(limit, 'attempt')}{mode}", "bad")
    if progress.attempts:
        said = f"not as they were left; attempt {progress.attempts} of {limit} to restore them failed"
        return Point("settings", f"{said}, the next from {instant(progress.next_at_seconds)}{mode}", "bad")
    if progress.told:
        return Point("settings", f"{progress.told}{mode}", "bad")
    if standing.knobs is None:
        return Point("settings", "not read yet", "")
    changed = standing.changed_at_seconds
    since = "" if math.isnan(changed) else f", last changed {instant(changed)}"
    return Point("settings", f"ours{since}{mode}", "trial" if mode else "good")


def _change_breaker(states: States) -> Point:
    breaker, settings = states.caution.change_breaker, states.change_settings
    recent = [time for time in breaker.harms if states.at_seconds - time <= settings.window_seconds]
    match breaker.state:
        case BreakerState.OPEN:
            end = instant(breaker.opened_at_seconds + breaker.cool_down_seconds)
            said = f"open since {instant(breaker.opened_at_seconds)}, one small change from {end}: {breaker.reason}"
            return Point("change breaker", said, "bad")
        case BreakerState.HALF_OPEN:
            return Point("change breaker", f"half open: {breaker.reason}", "trial")
    harms = f", {len(recent)} of {settings.harmful_changes} harms that open it" if recent else ""
    return Point("change breaker", f"closed{harms}", "good")


def _ladder(states: States) -> Point:
    ladder = states.caution.ladder
    since = "" if math.isnan(ladder.since_seconds) else f" since {instant(ladder.since_seconds)}"
    causes = f" ({', '.join(cause.replace('_', ' ') for cause in ladder.causes)})" if ladder.causes else ""
    reason = f": {ladder.frozen_because or ladder.reason}" if ladder.rung > Rung.NORMAL else ""
    tone = "good" if ladder.rung is Rung.NORMAL else "trial" if ladder.rung <= Rung.CAUTIOUS else "bad"
    return Point("trusts itself", f"{ladder.rung.label.replace('_', ' ')}{since}{causes}{reason}", tone)


def _people(states: States) -> Point:
    if not states.permission.allowed:
        return Point("may change", f"no: {states.permission.sentence}", "bad")
    if states.standing.frozen_because:
        since = states.caution.ladder.since_seconds
        known = states.caution.ladder.rung is Rung.FROZEN and math.isfinite(since)
        return Point("may change", f"no: frozen{f' since {instant(since)}' if known else ''}", "bad")
    if states.policy is not None and states.policy.mode is not TunerMode.AUTO:
        return Point("may change", f"no: the tuner's mode is {states.policy.mode}", "")
    windows = () if states.policy is None else states.policy.control.maintenance
    return Point("may change", f"yes{'; maintenance windows are set' if windows else ''}", "good")


def _directions(states: States) -> Point:
    barred = [f"{KNOB_LABELS[role]} not {direction.value}" for role, direction in states.control.barred]
    return Point("barred", ", ".join(barred) or "no direction", "trial" if barred else "good")


def _changes(states: States) -> Point:
    tried = len(states.standing.changes_today(states.at_seconds))
    if states.policy is None:
        return Point("changes", f"{tried} in the last 24 h", "")
    allowed = states.policy.control.max_changes_per_day
    return Point("changes", f"{tried} of {allowed} in the last 24 h", "good" if tried < allowed else "bad")


def trial(on_trial: OnTrial | None) -> Point:
    """Return what stands of the change on trial."""
    if on_trial is None:
        return Point("trial", "none", "")
    trial = on_trial.trial
    what = "hold-back" if on_trial.hold_back else f"the change of cycle {trial.change_cycle_id}"
    if not isinstance(trial, Switchback):
        return Point("trial", f"{what}, against the forecast", "trial")
    before, after = ("tuned", "untouched") if on_trial.hold_back else ("old", "new")
    leg = before if trial.in_force is Leg.BEFORE else after
    needed = "" if on_trial.hold_back else f", e-value {e_value(trial.gain_evidence)} of {1 / trial.alpha:.3g} needed"
    pairs = f"{trial.pairs} of {count(trial.terms.max_pairs, 'pair')}"
    return Point("trial", f"{what}: {pairs}{needed}; now the {leg} setting is in force", "trial")


def _last_drill(states: States) -> Point:
    at = states.drilled.at_seconds
    if math.isnan(at):
        return Point("last drill", "none yet; `clocktuner drill` does one", "")
    if states.drill is None:
        return Point("last drill", instant(at), "")
    passed = states.drill.receipt is not None and states.drill.receipt.applied
    return Point("last drill", f"{instant(at)}: {states.drill.reason}", "good" if passed else "bad")
