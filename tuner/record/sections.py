"""The sections of the report, each a function of what the cycles amount to."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from tuner.record import canvas, plots, scores
from tuner.record.blocks import figure, legend, section
from tuner.record.html import Markup, table, tag, words
from tuner.record.period import Period
from tuner.record.plots import Line, Panel
from tuner.record.scores import Point
from tuner.record.setting import Setting
from tuner.record.summary import Change, Fate, Track
from tuner.record.wording import (
    INTERVAL,
    KNOB_LABELS,
    count,
    e_value,
    label,
    moves,
    quantity,
    signed_percent,
    spread,
    unit_of,
    when,
)
from tuner.values.metrics import METRIC_INDEX, METRICS
from tuner.values.stages import Outcome

FATES: Final = {
    Fate.ON_TRIAL: (canvas.TRIAL, "v", "trial", "▼"),
    Fate.KEPT: (canvas.GOOD, "o", "good", "●"),
    Fate.UNVERIFIED: (canvas.GOOD, "D", "good", "◆"),
    Fate.UNDONE: (canvas.BAD, "X", "bad", "✖"),
    Fate.ABANDONED: (canvas.MUTED, "s", "muted", "■"),
}
"""Colour, matplotlib's marker, class and sign of each fate: shape and colour both tell them apart."""

WIDE: Final = (6.4, 2.1)
"""Inches of a panel in two columns."""

MARKS_LEGEND: Final = (("trial", "▼", "change made"), ("good", "●", "kept"), ("bad", "✖", "undone"))


def heading(period: Period, *, title: str, setting: Setting) -> Markup:
    """Return title, period, and what of it was real."""
    records, noted = period.records, len(period.records) - len(period.cycles)
    span = (
        f"{when(records[0].at_seconds)[:16]} to {when(records[-1].at_seconds)[:16]} UTC" if records else "no cycles yet"
    )
    acts = f", {count(noted, 'act')} of guard and people between them" if noted else ""
    known = f"Cluster {setting.cluster}, policy {setting.policy}, mode {setting.mode}. "
    lead = tag("p", f"{known}{count(len(period.cycles), 'cycle')}{acts}, {span}.", class_="lead")
    if not setting.real and not setting.simulated:
        frame = tag(
            "p",
            "Written from the journal alone, which does not say what of this was real and what was simulated.",
            class_="note",
        )
    else:
        frame = tag("div", _listed("Real", setting.real), _listed("Simulated", setting.simulated), class_="frame")
    return tag("header", tag("h1", title), lead, frame, _strip(period))


def _listed(title: str, sentences: Sequence[str]) -> Markup:
    items = tag("ul", *(tag("li", sentence) for sentence in sentences)) if sentences else tag("p", "Nothing.")
    return tag("div", tag("h2", title), items)


def _strip(period: Period) -> Markup:
    outcomes = Counter(change.outcome for change in period.changes if change.concluded)
    kept = sum(change.kept for change in period.changes)
    undone = sum(change.fate is Fate.UNDONE for change in period.changes)
    trials = sum(record.proposal.trials for record in period.searches if record.proposal is not None)
    judged = ", ".join(f"{outcomes[outcome]} {outcome.value}" for outcome in Outcome if outcomes[outcome])
    steps = (
        (
            "Plan",
            "plan",
            count(len(period.searches), "search", "searches"),
            f"{count(trials, 'candidate')} scored on the twin",
        ),
        ("Do", "do", count(len(period.changes), "change"), "each in the journal before it was made"),
        ("Check", "check", f"{sum(outcomes.values())} concluded", judged or "none concluded yet"),
        ("Act", "act", f"{kept} kept, {undone} undone", f"{count(period.held, 'cycle')} held, {period.failed} failed"),
    )
    items = (
        tag(
            "li",
            tag("a", tag("span", step, class_="step"), tag("strong", number), tag("span", text), href=f"#{anchor}"),
        )
        for step, anchor, number, text in steps
    )
    return tag("ol", *items, class_="cycle")


# Plan.


def plan(period: Period) -> Markup:
    """Return the forecasts against what came, and what the searches proposed."""
    panels = [_forecast(track, period) for track in period.tracks]
    predicted = _predicted(period)
    return section(
        "plan",
        "Plan",
        "What was expected",
        tag(
            "p",
            "Forecasts made a quarter of an hour ahead, against what came. The band spans the 10 % and the 90 % "
            "quantile: four of five values should lie in it.",
        ),
        legend(("ink", "━", "what came"), ("main", "━", "median forecast"), ("main", "▒", "10 % to 90 %")),
        tag("div", *panels, class_="panels wide")
        if panels
        else tag("p", "No forecasts in this period.", class_="note"),
        predicted,
    )


def _forecast(track: Track, period: Period) -> Markup:
    times, actual = period.series(track.name)
    lines = [
        Line(
            times_seconds=track.times_seconds,
            values=track.quantiles[:, 1],
            low=track.quantiles[:, 0],
            high=track.quantiles[:, 2],
            width=1.1,
        ),
        Line(times_seconds=times, values=actual, colour=canvas.INK, width=1.1),
    ]
    unit = METRICS[METRIC_INDEX[track.name]].unit if track.name in METRIC_INDEX else unit_of(track.name)
    panel = Panel(title=f"{label(track.name)}, forecast and actual", unit=unit, lines=lines, from_zero=True, size=WIDE)
    said = f"{quantity(track.coverage_ratio, 'ratio')} in the band; {track.model}"
    if np.isfinite(track.error_ratio):
        said += f"; error {track.error_ratio:.2f} times that of last value"
    if np.isnan(track.coverage_ratio):
        said = f"nothing has come yet to hold it against; {track.model}"
    return figure(label(track.name).capitalize(), said, plots.draw(panel))


def _predicted(period: Period) -> Markup | None:
    proposals = [record.proposal for record in period.searches if record.proposal is not None]
    if not proposals:
        return None
    changed = [proposal for proposal in proposals if proposal.changes]
    promised = np.array([proposal.score for proposal in changed])
    said = f"{count(len(proposals), 'search', 'searches')} proposed {count(len(changed), 'change')}"
    if changed:
        said += f", with a predicted score of {signed_percent(float(np.median(promised)))} in the median"
    return tag("p", f"{said}. The twin's fidelity was {quantity(proposals[-1].fidelity_ratio, 'ratio')} at the end.")


# Do.


def do(period: Period, *, setting: Setting) -> Markup:
    """Return the knobs over time and the changes that moved them."""
    panels = [_knob(period, setting, index) for index in range(len(setting.specs))]
    return section(
        "do",
        "Do",
        "What was changed",
        legend(("main", "━", "in force"), ("muted", "┈", "bounds"), *MARKS_LEGEND),
        tag("div", *panels, class_="panels wide"),
    )


def _knob(period: Period, setting: Setting, index: int) -> Markup:
    spec = setting.specs[index]
    times, values = period.knob(spec.role)
    unit = unit_of(spec.role.value)
    panel = Panel(
        title=f"{KNOB_LABELS[spec.role]} over time",
        unit=unit,
        lines=[Line(times_seconds=times, values=values, steps=True, width=1.6)],
        bounds=(spec.low, spec.high),
        marks=period.marks,
        size=WIDE,
    )
    detail = f"{quantity(spec.low, unit)} to {quantity(spec.high, unit)}, in steps of {quantity(spec.step, unit)}"
    return figure(KNOB_LABELS[spec.role].capitalize(), detail, plots.draw(panel))


# Check.


def check(period: Period) -> Markup:
    """Return what was predicted against what was measured, change by change."""
    if not period.changes:
        return section("check", "Check", "What came of it", tag("p", "No change was made in this period."))
    judged = [change for change in period.changes if np.isfinite(change.observed_score)]
    points = [_point(change) for change in judged]
    foresight = scores.scatter(points, title="Predicted against measured score of each change")
    order = scores.sequence(points, title="Predicted and measured score, change after change")
    return section(
        "check",
        "Check",
        "What came of it",
        tag("p", _foresight(judged)),
        legend(*((FATES[fate][2], FATES[fate][3], fate.value) for fate in Fate), ("main", "━", "predicted")),
        tag(
            "div",
            figure("Predicted against measured", "bars are 95 % intervals; on the diagonal it came true", foresight),
            figure("Change after change", "a dash is what was predicted, a mark with its bar what was measured", order),
            class_="panels wide",
        ),
        _change_table(period.changes),
    )


def _foresight(judged: Sequence[Change]) -> str:
    done = [change for change in judged if change.concluded]
    if not done:
        return "No change has been concluded yet, so nothing is claimed."
    true = sum(change.came_true for change in done)
    predicted = float(np.mean([change.expected_score for change in done]))
    measured = float(np.mean([change.observed_score for change in done]))
    return (
        f"Of {count(len(done), 'concluded change')}, those undone included, the prediction lay within the 95 % "
        f"interval of what was measured for {true}. On average {signed_percent(predicted)} was predicted and "
        f"{signed_percent(measured)} was measured, against {_against(done)}."
    )


def _against(done: Sequence[Change]) -> str:
    """Say what changes were compared with: the other setting in turns, or a forecast of what would have been."""
    in_turns = sum(change.pairs > 0 for change in done)
    forecast = "the forecast of what would have been without the change"
    if not in_turns:
        return forecast
    turns = "the setting before, put back in force in turns"
    return turns if in_turns == len(done) else f"{turns} for {in_turns}, and {forecast} for the others"


def _point(change: Change) -> Point:
    colour, marker, _, _ = FATES[change.fate]
    return Point(
        predicted=change.expected_score,
        measured=change.observed_score,
        error=INTERVAL * change.score_error,
        colour=colour,
        marker=marker,
    )


def _change_table(changes: Sequence[Change]) -> Markup:
    # Where nothing was compared in turns, there are no pairs to tell of.
    in_turns = any(change.pairs or change.switches for change in changes)
    rows = [
        [
            f"{change.cycle_id}",
            when(change.at_seconds)[5:16],
            words(moves(change.before, change.after)),
            signed_percent(change.expected_score),
            signed_percent(change.observed_score) + spread(change.score_error),
            *((str(change.pairs or ""), e_value(change.evidence)) if in_turns else ()),
            tag("span", change.fate.value, class_=f"badge {FATES[change.fate][2]}"),
            words(change.reason),
        ]
        for change in changes
    ]
    compared = ("pairs", "e-value") if in_turns else ()
    head = ("cycle", "made (UTC)", words("what moved"), "predicted", "measured, 95 %", *compared, "fate", words("why"))
    return table(head, rows, caption="Every change of the period")


# Act.


def act(period: Period) -> Markup:
    """Return what was kept and undone, why the hand was held, and how the guards judged."""
    guards = [
        [row.guard.replace("_", " "), str(row.passed), str(row.held), str(row.rejected), words(row.example)]
        for row in period.guards
    ]
    reasons = [[str(number), words(reason)] for reason, number in period.reasons]
    return section(
        "act",
        "Act",
        "What was concluded",
        tag("p", period.conclusion),
        table(
            ("cycles", words("why nothing was done")),
            reasons,
            caption="Held, by reason; numbers are those of the newest",
        )
        if reasons
        else None,
        table(
            ("guard", "passed", "held", "rejected", words("newest sentence, of a failure where there was one")),
            guards,
            caption="How the guards judged",
        )
        if guards
        else None,
    )


# The metrics.


def metrics(period: Period) -> Markup:
    """Return the metrics over time, with the changes marked."""
    panels = [_metric(period, index) for index in range(len(METRICS))]
    return section(
        "metrics",
        "The cluster",
        "What was seen",
        legend(*MARKS_LEGEND),
        tag("div", *(panel for panel in panels if panel is not None), class_="panels"),
    )


def _metric(period: Period, index: int) -> Markup | None:
    spec = METRICS[index]
    times, values = period.series(spec.name)
    if not np.isfinite(values).any():
        return None
    panel = Panel(
        title=f"{label(spec.name)} over time",
        unit=spec.unit,
        lines=[Line(times_seconds=times, values=values)],
        marks=period.marks,
        from_zero=spec.unit != "°C",
    )
    return figure(label(spec.name).capitalize(), spec.summary, plots.draw(panel))
