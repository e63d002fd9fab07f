"""The section of the report that sets runs of the same load side by side."""

import math
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Final

import numpy as np

from tuner.record import canvas, plots
from tuner.record.blocks import figure, legend, section
from tuner.record.comparison import ComparisonRun, Gain, gains, improves
from tuner.record.html import Markup, table, tag
from tuner.record.plots import Line, Panel
from tuner.record.setting import Setting
from tuner.record.wording import gain, label, quantity, signed_percent
from tuner.values.metrics import METRICS, Better

RUN_STYLES: Final = (
    (canvas.MUTED, "muted"),
    (canvas.OTHER, "other"),
    (canvas.MAIN, "main"),
    (canvas.GOOD, "good"),
    (canvas.TRIAL, "trial"),
)
"""Colour and class, one a run; the last of three has the colour of what is measured."""


def outcome(runs: Sequence[ComparisonRun], *, setting: Setting) -> Markup | None:
    """Return the runs side by side; None where there are not two to compare."""
    if len(runs) < 2:
        return None
    found = gains(runs, weights=setting.weights)
    described = tag("ul", *(tag("li", tag("b", f"{run.name}: {run.title}. "), run.description) for run in runs))
    return section(
        "outcome",
        "Outcome",
        "The same load, run by run",
        described,
        tag("p", "All figures of this section are of a simulated cluster.", class_="note")
        if setting.simulated
        else None,
        tag("ol", *(_verdict(item) for item in found), class_="cycle"),
        _comparison_table(runs, found, setting),
        tag(
            "p",
            "Changes are against the run before. A metric is called worse when it moved the wrong way by more than "
            "1 %, whatever its weight; weights of 0 do not enter the score.",
            class_="note",
        ),
        legend(*((style, "━", f"{run.name}: {run.title}") for run, (_, style) in _styled(runs))),
        tag("div", *(_overlay(runs, index) for index in range(len(METRICS)) if _seen(runs, index)), class_="panels"),
    )


def _styled(runs: Sequence[ComparisonRun]) -> Iterator[tuple[ComparisonRun, tuple[str, str]]]:
    return zip(runs, cycle(RUN_STYLES), strict=False)


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
    scores = [tag("span", _signed(item.score), class_="better" if item.score < 0 else "worse") for item in found]
    rows.append([total, "", *(_signed(run.score) for run in runs), *scores])
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
        Line(times_seconds=run.times_seconds, values=run.series[index], colour=colour, width=1.2)
        for run, (colour, _) in _styled(runs)
    ]
    better = {Better.LOWER: "lower is better", Better.HIGHER: "higher is better", Better.NEITHER: "context"}[
        spec.better
    ]
    panel = Panel(title=f"{label(spec.name)} of each run", unit=spec.unit, lines=lines, from_zero=spec.unit != "°C")
    return figure(label(spec.name).capitalize(), better, plots.draw(panel))


def _signed(score: float) -> str:
    """Return a score as the logarithm that it is, with a true minus sign."""
    return "no sample" if math.isnan(score) else f"{score:+.4f}".replace("-", "−")
