"""Why nothing is changed, and what would have to change, from what the parts of the loop have left."""

import math
from collections.abc import Iterator
from itertools import islice
from typing import Final

from tuner.cli.safety import trial
from tuner.cli.states import States
from tuner.control.maintenance import closed_until
from tuner.control.orders import instant
from tuner.judge.limits import MIN_TRUST
from tuner.record.status import Why
from tuner.record.wording import quantity
from tuner.settings.model import TunerMode
from tuner.values.safety import BreakerState, Rung
from tuner.values.stages import Decision

LATE_PERIODS: Final = 3
"""Periods without a cycle after which the tuner is taken to stand still (assumption, as the alerts have it)."""


def why(states: States) -> tuple[Why, ...]:
    """Return why nothing is changed now: the strongest reason, or none.

    Where no cycle runs at all, what stood in the way when the last one ran is told as well.
    """
    still = tuple(_stands_still(states))
    return still + tuple(islice(_reasons(states), 1))


def _reasons(states: States) -> Iterator[Why]:
    yield from _forbidden(states)
    yield from _protecting(states)
    yield from _cautious(states)
    yield from _under_way(states)


def _stands_still(states: States) -> Iterator[Why]:
    newest, period = states.newest, 300.0 if states.policy is None else states.policy.cycle.period_seconds
    if newest is None:
        yield Why("no cycle has run yet", "start the tuner: `clocktuner run --policy FILE`")
    elif (age := states.now_seconds - newest.at_seconds) > LATE_PERIODS * period:
        every = f"one is due every {quantity(period, 's')}"
        yield Why(f"no cycle has run for {quantity(age, 's')}; {every}", "look whether the tuner runs, and at its log")


def _forbidden(states: States) -> Iterator[Why]:
    allowed, standing = states.permission, states.standing
    if allowed.by == "kill_switch":
        yield Why(allowed.sentence, "`clocktuner kill-switch off`, or remove what stops it")
    if states.policy is not None and states.policy.mode is not TunerMode.AUTO:
        cure = "`mode: auto` in the policy, or `clocktuner approve CYCLE` where it recommends"
        yield Why(f"the tuner's mode is {states.policy.mode}", cure)
    if standing.frozen_because:
        cure = "`clocktuner adopt` goes on from what is in force, `clocktuner resume` ends the freeze"
        yield Why(f"frozen: {standing.frozen_because}", cure)
    if allowed.by == "person":
        ends = "" if math.isnan(allowed.until_seconds) else f", or wait until {instant(allowed.until_seconds)}"
        yield Why(allowed.sentence, f"`clocktuner resume`{ends}")
    if allowed.by == "maintenance":
        windows = () if states.policy is None else states.policy.control.maintenance
        over = closed_until(windows, states.now_seconds)
        yield Why(allowed.sentence, "wait until then" if over is None else f"wait until {instant(over)}")


def _protecting(states: States) -> Iterator[Why]:
    breaker, degradation = states.guard.breaker, states.guard.degradation
    if breaker.state is not BreakerState.CLOSED:
        samples = states.guard_settings.latency_breaker.probe_samples
        cure = f"{samples} samples in a row within the threshold under the full policy"
        yield Why(f"the latency breaker is {breaker.state.value.replace('_', ' ')}: {breaker.reason}", cure)
    if degradation.active:
        cure = "idle accelerators, or next to no demand waiting"
        yield Why(f"only high-priority work is served: {degradation.reason}", cure)
    if states.progress.attempts:
        yield Why(
            "the settings are not as they were left, and could not be restored",
            "the scheduler has to take them; `clocktuner history --acts` has its answers",
        )


def _cautious(states: States) -> Iterator[Why]:
    breaker, ladder = states.caution.change_breaker, states.caution.ladder
    if breaker.state is BreakerState.OPEN:
        end = instant(breaker.opened_at_seconds + breaker.cool_down_seconds)
        yield Why(f"the change breaker is open: {breaker.reason}", f"wait until {end}; then one small change is tried")
    if ladder.rung >= Rung.OBSERVE_ONLY:
        cure = "these doubts have to go; then it climbs one rung a good cycle"
        if "trust" in ladder.causes:
            cure += f" (trust in the twin at {MIN_TRUST:.2f} or more)"
        yield Why(f"the tuner is {ladder.rung.label.replace('_', ' ')}: {ladder.reason}", cure)
    if states.policy is not None:
        tried, allowed = states.standing.changes_today(states.at_seconds), states.policy.control.max_changes_per_day
        if len(tried) >= allowed:
            end = instant(min(tried) + 86_400.0)
            yield Why(f"{len(tried)} of {allowed} changes a day were tried", f"wait until {end}")


def _under_way(states: States) -> Iterator[Why]:
    if states.memory.on_trial is not None:
        yield Why(f"on trial: {trial(states.memory.on_trial).said}", "it ends by itself; one change at a time")
    newest = states.newest
    if newest is None or newest.decision not in (Decision.HOLD, Decision.REJECT, "failed"):
        return
    failing = [] if newest.verdict is None else [one for one in newest.verdict.findings if not one.passed]
    more = f"`clocktuner explain {newest.cycle_id}` has the details"
    limits = [f"{one.guard.replace('_', ' ')}: {one.sentence}" for one in failing]
    yield Why(newest.reason, f"{'; '.join(limits)}: {more}" if limits else more)
