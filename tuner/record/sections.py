"""The sections of the report, each a function of what the cycles amount to."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from tuner.record import plots
from tuner.record.comparison import ComparisonRun, Gain, gains, improves
from tuner.record.findings import Findings
from tuner.record.html import Markup, table, tag, words
from tuner.record.plots import Line, Panel, Point
from tuner.record.setting import Setting
from tuner.record.summary import INTERVAL, Change, Fate, Track
from tuner.record.wording import KNOB_LABELS, gain, label, moves, quantity, signed_percent, unit_of, when
from tuner.values.metrics import METRIC_INDEX, METRICS, Better
from tuner.values.stages import Outcome

RUN_COLOURS: Final = (plots.MUTED, plots.OTHER, plots.MAIN, plots.GOOD, plots.TRIAL)
FATES: Final = {
    Fate.ON_TRIAL: (plots.TRIAL, "v", "trial"),
    Fate.KEPT: (plots.GOOD, "o", "good"),
    Fate.UNDONE: (plots.BAD, "X", "bad"),
    Fate.ABANDONED: (plots.MUTED, "s", "muted"),
}
"""Colour, matplotlib's marker and class of each fate: shape and colour both tell them apart."""

SIGNS: Final = {Fate.ON_TRIAL: "▼", Fate.KEPT: "●", Fate.UNDONE: "✖", Fate.ABANDONED: "■"}
"""The same shapes as characters."""

WIDE: Final = (6.4, 2.1)
"""Inches of a panel in two columns."""

RUN_CLASSES: Final = ("muted", "other", "main", "good", "trial")
"""One a run, the last run of three in the colour of what is measured."""


def heading(found: Findings, *, title: str, setting: Setting) -> Markup:
    """Return title, period, and what of it was real."""
    records = found.records
    period = (
        f"{when(records[0].at_seconds)[:16]} to {when(records[-1].at_seconds)[:16]} UTC" if records else "no cycles yet"
    )
    known = f"Cluster {setting.cluster}, policy {setting.policy}, mode {setting.mode}. "
    lead = tag("p", f"{known}{len(records)} cycles, {period}.", class_="lead")
    if not setting.real and not setting.simulated:
        frame = tag(
            "p",
            "Written from the journal alone, which does not say what of this was real and what was simulated.",
            class_="note",
        )
    else:
        frame = tag("div", _listed("Real", setting.real), _listed("Simulated", setting.simulated), class_="frame")
    return tag("header", tag("h1", title), lead, frame, _strip(found))


def _listed(title: str, sentences: Sequence[str]) -> Markup:
    items = tag("ul", *(tag("li", sentence) for sentence in sentences)) if sentences else tag("p", "Nothing.")
    return tag("div", tag("h2", title), items)


def _strip(found: Findings) -> Markup:
    outcomes = Counter(change.outcome for change in found.changes if change.concluded)
    kept = sum(change.fate is Fate.KEPT for change in found.changes)
    undone = sum(change.fate is Fate.UNDONE for change in found.changes)
    trials = sum(record.proposal.trials for record in found.searches if record.proposal is not None)
    judged = ", ".join(f"{outcomes[outcome]} {outcome.value}" for outcome in Outcome if outcomes[outcome])
    steps = (
        ("Plan", "plan", f"{len(found.searches)} searches", f"{trials:,} candidates scored on the twin"),
        ("Do", "do", f"{len(found.changes)} changes", f"by {len(found.records)} cycles, each change journalled first"),
        ("Check", "check", f"{sum(outcomes.values())} verified", judged or "none concluded yet"),
        ("Act", "act", f"{kept} kept, {undone} undone", f"{found.held} cycles held their hand, {found.failed} failed"),
    )
    items = (
        tag(
            "li",
            tag("a", tag("span", step, class_="step"), tag("strong", number), tag("span", text), href=f"#{anchor}"),
        )
        for step, anchor, number, text in steps
    )
    return tag("ol", *items, class_="cycle")


def _section(anchor: str, step: str, title: str, *content: Markup | None) -> Markup:
    header = tag("header", tag("div", step, class_="step"), tag("h2", title))
    return tag("section", header, *content, id=anchor)


def _figure(title: str, detail: str, drawing: str) -> Markup:
    return tag("figure", tag("figcaption", tag("b", title), tag("small", detail)), Markup(drawing))


def _legend(*entries: tuple[str, str, str]) -> Markup:
    """Return a legend of (class, sign, text)."""
    return tag(
        "ul", *(tag("li", tag("i", sign, class_=colour), text) for colour, sign, text in entries), class_="legend"
    )


MARKS_LEGEND: Final = (("trial", "▼", "change made"), ("good", "●", "kept"), ("bad", "✖", "undone"))


# Outcome: the runs side by side.


def outcome(runs: Sequence[ComparisonRun], *, setting: Setting) -> Markup | None:
    """Return the runs side by side; None where there are not two to compare."""
    if len(runs) < 2:
        return None
    found = gains(runs, weights=setting.weights)
    described = tag("ul", *(tag("li", tag("b", f"{run.name}: {run.title}. "), run.description) for run in runs))
    return _section(
        "outcome",
        "Outcome",
        "The same load, run by run",
        described,
        tag("ol", *(_verdict(item) for item in found), class_="cycle"),
        _comparison_table(runs, found, setting),
        tag(
            "p",
            "Changes are against the run before. A metric is called worse when it moved the wrong way by more than "
            "1 %, whatever its weight; weights of 0 do not enter the score.",
            class_="note",
        ),
        _legend(*((RUN_CLASSES[i % 5], "━", f"{run.name}: {run.title}") for i, run in enumerate(runs))),
        tag("div", *(_overlay(runs, index) for index in range(len(METRICS)) if _seen(runs, index)), class_="panels"),
    )


def _verdict(item: Gain) -> Markup:
    worse = f"Worse: {', '.join(label(name) for name in item.worse)}." if item.worse else "No metric is worse."
    return tag(
        "li",
        tag("span", f"{item.earlier} → {item.later}, by score", class_="muted"),
        tag("strong", gain(item.score), class_="better" if item.score < 0 else "worse"),
        tag("span", worse),
    )


def _comparison_table(runs: Sequence[ComparisonRun], found: Sequence[Gain], setting: Setting) -> Markup:
    head = ["metric", "weight", *(run.name for run in runs), *(f"{item.earlier} → {item.later}" for item in found)]
    rows: list[list[str]] = [
        [
            label(spec.name),
            f"{setting.weights[index]:.2f}".rstrip("0").rstrip("."),
            *(quantity(float(run.metrics[index]), spec.unit) for run in runs),
            *(_moved(item, index) for item in found),
        ]
        for index, spec in enumerate(METRICS)
    ]
    total = tag("span", "score", class_="total")
    scores = [tag("span", signed_percent(item.score), class_="better" if item.score < 0 else "worse") for item in found]
    rows.append([total, "", *(signed_percent(run.score) for run in runs), *scores])
    return table(head, rows, caption="Metrics over the whole run, and the score (negative is better)")


def _moved(item: Gain, index: int) -> Markup:
    change, spec = float(item.change_ratio[index]), METRICS[index]
    if spec.name in item.worse:
        return tag("span", f"{signed_percent(change)} worse", class_="worse")
    better = improves(index, change)
    return tag("span", signed_percent(change), class_="better" if better else "muted")


def _seen(runs: Sequence[ComparisonRun], index: int) -> bool:
    return any(np.isfinite(run.series[index]).any() for run in runs)


def _overlay(runs: Sequence[ComparisonRun], index: int) -> Markup:
    spec = METRICS[index]
    lines = [
        Line(times_seconds=run.times_seconds, values=run.series[index], colour=RUN_COLOURS[number % 5], width=1.2)
        for number, run in enumerate(runs)
    ]
    better = {Better.LOWER: "lower is better", Better.HIGHER: "higher is better", Better.NEITHER: "context"}[
        spec.better
    ]
    panel = Panel(title=f"{label(spec.name)} of each run", unit=spec.unit, lines=lines, from_zero=spec.unit != "°C")
    return _figure(label(spec.name).capitalize(), better, plots.draw(panel))


# Plan.


def plan(found: Findings) -> Markup:
    """Return the forecasts against what came, and what the searches proposed."""
    panels = [_forecast(track, found) for track in found.tracks]
    predicted = _predicted(found)
    return _section(
        "plan",
        "Plan",
        "What was expected",
        tag(
            "p",
            "Forecasts made a quarter of an hour ahead, against what came. The band spans the 10 % and the 90 % "
            "quantile: four of five values should lie in it.",
        ),
        _legend(("ink", "━", "what came"), ("main", "━", "median forecast"), ("main", "▒", "10 % to 90 %")),
        tag("div", *panels, class_="panels wide")
        if panels
        else tag("p", "No forecasts in this period.", class_="note"),
        predicted,
    )


def _forecast(track: Track, found: Findings) -> Markup:
    times, actual = found.series(track.name)
    lines = [
        Line(
            times_seconds=track.times_seconds,
            values=track.quantiles[:, 1],
            low=track.quantiles[:, 0],
            high=track.quantiles[:, 2],
            width=1.1,
        ),
        Line(times_seconds=times, values=actual, colour=plots.INK, width=1.1),
    ]
    unit = METRICS[METRIC_INDEX[track.name]].unit if track.name in METRIC_INDEX else unit_of(track.name)
    panel = Panel(title=f"{label(track.name)}, forecast and actual", unit=unit, lines=lines, from_zero=True, size=WIDE)
    inside = quantity(track.coverage_ratio, "ratio")
    said = f"{inside} in the band; error {track.error_ratio:.2f} times that of last value; {track.model}"
    return _figure(label(track.name).capitalize(), said, plots.draw(panel))


def _predicted(found: Findings) -> Markup | None:
    proposals = [record.proposal for record in found.searches if record.proposal is not None]
    if not proposals:
        return None
    changed = [proposal for proposal in proposals if proposal.changes]
    scores = np.array([proposal.score for proposal in changed])
    said = f"{len(proposals)} searches proposed {len(changed)} changes"
    if changed:
        said += f", with a predicted score of {signed_percent(float(np.median(scores)))} in the median"
    return tag("p", f"{said}. The twin's fidelity was {quantity(proposals[-1].fidelity_ratio, 'ratio')} at the end.")


# Do.


def do(found: Findings, *, setting: Setting) -> Markup:
    """Return the knobs over time and the changes that moved them."""
    panels = [_knob(found, setting, index) for index in range(len(setting.specs))]
    return _section(
        "do",
        "Do",
        "What was changed",
        _legend(("main", "━", "in force"), ("muted", "┈", "bounds"), *MARKS_LEGEND),
        tag("div", *panels, class_="panels wide"),
    )


def _knob(found: Findings, setting: Setting, index: int) -> Markup:
    spec = setting.specs[index]
    times, values = found.knob(spec.role)
    unit = unit_of(spec.role.value)
    panel = Panel(
        title=f"{KNOB_LABELS[spec.role]} over time",
        unit=unit,
        lines=[Line(times_seconds=times, values=values, steps=True, width=1.6)],
        bounds=(spec.low, spec.high),
        marks=found.marks,
        size=WIDE,
    )
    detail = f"{quantity(spec.low, unit)} to {quantity(spec.high, unit)}, in steps of {quantity(spec.step, unit)}"
    return _figure(KNOB_LABELS[spec.role].capitalize(), detail, plots.draw(panel))


# Check.


def check(found: Findings) -> Markup:
    """Return what was predicted against what was measured, change by change."""
    if not found.changes:
        return _section("check", "Check", "What came of it", tag("p", "No change was made in this period."))
    judged = [change for change in found.changes if np.isfinite(change.observed_score)]
    points = [_point(change) for change in judged]
    foresight = plots.scatter(points, title="Predicted against measured score of each change")
    order = plots.sequence(points, title="Predicted and measured score, change after change")
    return _section(
        "check",
        "Check",
        "What came of it",
        tag("p", _foresight(judged)),
        _legend(
            ("good", "●", "kept"), ("bad", "✖", "undone"), ("trial", "▼", "still on trial"), ("main", "━", "predicted")
        ),
        tag(
            "div",
            _figure("Predicted against measured", "bars are 95 % intervals; on the diagonal it came true", foresight),
            _figure(
                "Change after change", "a dash is what was predicted, a mark with its bar what was measured", order
            ),
            class_="panels wide",
        ),
        _change_table(found.changes),
    )


def _foresight(judged: Sequence[Change]) -> str:
    done = [change for change in judged if change.concluded]
    if not done:
        return "No change has been concluded yet, so nothing is claimed."
    true = sum(change.came_true for change in done)
    predicted = float(np.mean([change.expected_score for change in done]))
    measured = float(np.mean([change.observed_score for change in done]))
    return (
        f"Of {len(done)} concluded changes, those undone included, the prediction lay within the 95 % interval of what "
        f"was measured for {true}. On average {signed_percent(predicted)} was predicted and {signed_percent(measured)} "
        f"was measured against the forecast of what would have been without the change."
    )


def _point(change: Change) -> Point:
    colour, marker, _ = FATES[change.fate]
    return Point(
        predicted=change.expected_score,
        measured=change.observed_score,
        error=INTERVAL * change.score_error,
        colour=colour,
        marker=marker,
    )


def _change_table(changes: Sequence[Change]) -> Markup:
    rows = [
        [
            f"{change.cycle_id}",
            when(change.at_seconds)[5:16],
            words(moves(change.before, change.after)),
            signed_percent(change.expected_score),
            f"{signed_percent(change.observed_score)} ± {INTERVAL * change.score_error * 100:.1f}",
            tag("span", change.fate.value, class_=f"badge {FATES[change.fate][2]}"),
            words(change.reason),
        ]
        for change in changes
    ]
    head = ("cycle", "made (UTC)", words("what moved"), "predicted", "measured, 95 %", "fate", words("why"))
    return table(head, rows, caption="Every change of the period")


# Act.


def act(found: Findings) -> Markup:
    """Return what was kept and undone, why the hand was held, and how the guards judged."""
    guards = [
        [count.guard.replace("_", " "), str(count.passed), str(count.held), str(count.rejected), words(count.example)]
        for count in found.guards
    ]
    reasons = [[str(count), words(reason)] for reason, count in found.reasons]
    return _section(
        "act",
        "Act",
        "What was concluded",
        tag("p", found.conclusion),
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


def metrics(found: Findings) -> Markup:
    """Return the metrics over time, with the changes marked."""
    panels = [_metric(found, index) for index in range(len(METRICS))]
    return _section(
        "metrics",
        "The cluster",
        "What was seen",
        _legend(*MARKS_LEGEND),
        tag("div", *(panel for panel in panels if panel is not None), class_="panels"),
    )


def _metric(found: Findings, index: int) -> Markup | None:
    spec = METRICS[index]
    times, values = found.series(spec.name)
    if not np.isfinite(values).any():
        return None
    panel = Panel(
        title=f"{label(spec.name)} over time",
        unit=spec.unit,
        lines=[Line(times_seconds=times, values=values)],
        marks=found.marks,
        from_zero=spec.unit != "°C",
    )
    return _figure(label(spec.name).capitalize(), spec.summary, plots.draw(panel))
