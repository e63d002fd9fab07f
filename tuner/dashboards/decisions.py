"""Decisions: what was decided, what was changed, and what came of it."""

from typing import Final

from tuner.dashboards.grafana import (
    CHANGED,
    CYCLES,
    EXPECTED,
    KEPT,
    QUIET,
    SEEN,
    UNDONE,
    Grid,
    Target,
    counts,
    increase,
    levels,
    series,
    timeseries,
)

DECIDED: Final = counts(
    "Decisions",
    "What cycles ended with. Mostly holding is as it should be: it retunes when the load has moved.",
    [Target(expression=increase("decisions_total", by="decision"), legend="{{decision}}")],
)
CHANGES: Final = levels(
    "Changes",
    "Changes made, kept and undone since clocktuner started.",
    [
        Target(expression=f"sum({series(f'{name}_total')})", legend=legend, colour=colour)
        for name, legend, colour in (
            ("changes", "made", CHANGED),
            ("promotions", "kept", KEPT),
            ("rollbacks", "undone", UNDONE),
        )
    ],
)
VERIFIED: Final = timeseries(
    "Predicted against observed",
    "Score that the twin predicted for the change last looked at, and the score that it shows, with its 95 % "
    "interval. Negative is better; the closer they are, the better the twin.",
    [
        Target(
            expression=f"{series('verification_observed_score')} + 1.96 * {series('verification_score_error')}",
            legend="upper",
            colour=SEEN,
            band_to="lower",
            hidden_legend=True,
        ),
        Target(
            expression=f"{series('verification_observed_score')} - 1.96 * {series('verification_score_error')}",
            legend="lower",
            colour=SEEN,
            hidden_legend=True,
        ),
        Target(expression=series("verification_expected_score"), legend="predicted", colour=EXPECTED, dashed=True),
        Target(expression=series("verification_observed_score"), legend="observed", colour=SEEN),
    ],
    unit="percentunit",
)
PROPOSED: Final = timeseries(
    "Predicted score of the newest proposal",
    "What the twin promises for the newest proposal, made or not. Negative is better; -5 % reads as 5 % better.",
    [
        Target(expression=series("predicted_score"), legend="predicted", colour=EXPECTED),
        Target(
            expression=f"{series('predicted_score')} + 1.96 * {series('predicted_score_error')}",
            legend="at worst",
            colour=QUIET,
            dashed=True,
        ),
    ],
    unit="percentunit",
    steps=True,
)
TRUST: Final = timeseries(
    "Trust in the twin",
    "Fidelity: how well it reproduces what was observed. Trust: how far its promises came true; it scales the "
    "steps that are taken.",
    [
        Target(expression=series("twin_fidelity_ratio"), legend="fidelity", colour=SEEN),
        Target(expression=series("twin_trust_ratio"), legend="trust", colour=EXPECTED),
    ],
    unit="percentunit",
    minimum=0,
)
OUTCOMES: Final = counts(
    "Verifications",
    "Changes that were judged, by outcome. Inconclusive and error never count as success.",
    [Target(expression=increase("verifications_total", by="outcome"), legend="{{outcome}}")],
)
GUARDS: Final = counts(
    "Guards that said no",
    "Findings that held or rejected a change, by guard. `clocktuner explain CYCLE` tells value and limit.",
    [Target(expression=increase("guard_failures_total", by="guard"), legend="{{guard}}")],
)
SEARCHES: Final = timeseries(
    "Searches",
    "Searches for a better setting, and those that proposed a change.",
    [
        Target(expression=f"sum(increase({series(f'{name}_total')}[$__rate_interval]))", legend=name, colour=colour)
        for name, colour in (("searches", SEEN), ("proposals", CHANGED))
    ],
    unit="short",
    minimum=0,
    interval=CYCLES,
)
CANDIDATES: Final = timeseries(
    "Candidates scored",
    "Candidates that searches scored on the twin.",
    [Target(expression=increase("trials_total"), legend="candidates", colour=SEEN)],
    unit="short",
    minimum=0,
    interval=CYCLES,
)


def add(grid: Grid) -> None:
    """Add the row."""
    grid.row("Decisions, and what came of them")
    for panel in (VERIFIED, CHANGES):
        grid.add(panel, width=12, height=9)
    for panel in (DECIDED, GUARDS, OUTCOMES):
        grid.add(panel, width=8, height=8)
    for panel in (PROPOSED, TRUST, SEARCHES, CANDIDATES):
        grid.add(panel, width=6, height=8)
