"""Caution: how often clocktuner changes something, how it compares, how far it trusts itself, and what it is worth."""

from typing import Final

from tuner.dashboards.decisions import OUTCOMES
from tuner.dashboards.grafana import (
    CHANGED,
    EXPECTED,
    KEPT,
    QUIET,
    SEEN,
    UNDONE,
    Grid,
    Steps,
    Target,
    counts,
    increase,
    levels,
    runbooks,
    series,
    stat,
    state,
    timeseries,
)

CHANGES: Final = runbooks(
    levels(
        "Changes a day against the allowed",
        "Changes tried in the last 24 hours; the switches of one comparison count once.",
        [
            Target(expression=series("changes_allowed_per_day"), legend="allowed", colour=UNDONE, dashed=True),
            Target(expression=f"increase({series('changes_total')}[1d])", legend="tried", colour=SEEN),
        ],
    ),
    "RetuneRateHigh",
)
ROLLBACKS: Final = runbooks(
    counts(
        "Roll-backs and harm",
        "Changes that were undone, and times that the change breaker opened because changes did harm.",
        [
            Target(expression=increase("rollbacks_total"), legend="undone", colour=CHANGED),
            Target(expression=increase("change_breaker_openings_total"), legend="change breaker opened", colour=UNDONE),
        ],
    ),
    "RollbackRateHigh",
    "ChangeBreakerOpen",
    "TuningDoesHarm",
)
PAIRS: Final = levels(
    "Pairs compared",
    "Pairs of legs that the switchback on trial has compared: the two settings, taken in turns.",
    [Target(expression=series("verification_pairs"), legend="pairs", colour=SEEN)],
)
EVIDENCE: Final = timeseries(
    "Evidence for the change on trial",
    "Logarithm of an e-value: 3 stands for odds of 20 to 1. What promotes is set by the day's budget of false "
    "promotions.",
    [Target(expression=series("verification_evidence"), legend="evidence", colour=SEEN)],
    unit="short",
)
TRUST: Final = runbooks(
    timeseries(
        "Trust in the twin",
        "How far its promises came true, which scales the steps, and the share of changes whose gain had the promised "
        "sign.",
        [
            Target(expression=series("twin_trust_ratio"), legend="trust", colour=EXPECTED),
            Target(expression=series("twin_sign_hit_ratio"), legend="sign hits", colour=SEEN),
        ],
        unit="percentunit",
        minimum=0,
    ),
    "TwinFidelityLow",
    "TunerNotImproving",
)
AGREEMENT: Final = runbooks(
    timeseries(
        "Rank agreement",
        "Whether changes that promised more brought more: Kendall's tau of predicted and realised gains, 1 for always.",
        [Target(expression=series("twin_rank_agreement"), legend="rank agreement", colour=SEEN)],
        unit="short",
    ),
    "TunerNotImproving",
)
LADDER: Final = runbooks(
    levels(
        "Ladder",
        "Rung that the tuner stands on; one of the lines is at 1.",
        [Target(expression=f"max by (rung) ({series('ladder_rung')})", legend="{{rung}}")],
    ),
    "HoldingLastSettings",
    "TunerFrozen",
)
DRILLED: Final = runbooks(
    stat(
        "Last drill",
        "Time since it was last proven that a change can be undone.",
        Target(
            expression=f"time() - max by (cluster) ({series('drill_last_timestamp_seconds')})",
            legend="{{cluster}}",
        ),
        unit="s",
        steps=Steps(below=QUIET),
        decimals=0,
    ),
    "RollbackDrillFailed",
)
RESTORED: Final = runbooks(
    stat(
        "Restored within",
        "Time that the newest roll-back drill took to restore the setting: how long harm lasts once it is seen.",
        Target(expression=f"max by (cluster) ({series('drill_restore_seconds')})", legend="{{cluster}}"),
        unit="s",
        steps=Steps(below=KEPT, at=((60.0, CHANGED), (300.0, UNDONE))),
    ),
    "RollbackDrillFailed",
)
DRILLS: Final = runbooks(
    levels(
        "Roll-back drills",
        "Drills since clocktuner started, by result.",
        [Target(expression=f"sum by (result) ({series('drills_total')})", legend="{{result}}")],
    ),
    "RollbackDrillFailed",
)
HELD_BACK: Final = state(
    "Hold-back",
    "Whether the untouched setting is in force now, to measure what tuning is worth.",
    f"max by (cluster) ({series('hold_back_active')})",
    {0: ("none now", KEPT), 1: ("untouched", CHANGED)},
)
WORTH: Final = runbooks(
    timeseries(
        "What tuning is worth",
        "Score of the tuned against the untouched setting, from hold-backs, with two standard errors either side. "
        "Negative is better; -5 % reads as 5 % better.",
        [
            Target(
                expression=f"{series('value_score')} + 2 * {series('value_score_error')}",
                legend="upper",
                colour=SEEN,
                band_to="lower",
                hidden_legend=True,
            ),
            Target(
                expression=f"{series('value_score')} - 2 * {series('value_score_error')}",
                legend="lower",
                colour=SEEN,
                hidden_legend=True,
            ),
            Target(expression=series("value_score"), legend="tuned against untouched", colour=SEEN),
        ],
        unit="percentunit",
    ),
    "TunerNotImproving",
)


def add(grid: Grid) -> None:
    """Add the rows."""
    grid.row("Changes, and how they are compared")
    for panel in (CHANGES, runbooks(OUTCOMES, "RollbackRateHigh"), ROLLBACKS):
        grid.add(panel, width=8, height=8)
    for panel in (PAIRS, EVIDENCE):
        grid.add(panel, width=12, height=7)
    grid.row("How far it trusts itself")
    for panel in (TRUST, AGREEMENT, LADDER):
        grid.add(panel, width=8, height=8)
    grid.row("Can it step back, and what is it worth")
    for tile in (DRILLED, RESTORED, HELD_BACK):
        grid.add(tile, width=4, height=7)
    grid.add(DRILLS, width=12, height=7)
    grid.add(WORTH, width=24, height=8)
