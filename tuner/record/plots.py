"""Panels over time: metrics, knobs and forecasts, with the changes marked."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np

from tuner.record.canvas import BAD, GOOD, MAIN, MUTED, TRIAL, canvas, svg
from tuner.record.wording import quantity, when
from tuner.values.stages import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_COLUMNS: Final = 480
"""Points a line has at most: more than a panel has pixels for; longer series are averaged and their range shaded."""

TICKS: Final = 6
"""Marks that a time axis has at most."""

_TICK_STEPS: Final = (
    *(1, 5, 15, 30),
    *(60 * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(3600 * hours for hours in (1, 2, 3, 6, 12)),
    *(86_400 * days for days in (1, 2, 7, 14, 28)),
)
"""Distances in seconds at which people expect marks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A series to draw.

    Attributes:
        times_seconds: Ascending, shape (n,).
        values: Shape (n,); NaN where the line breaks.
        colour: One of the stand-ins.
        width: Of the line, in points.
        low: Lower edge of a band, shape (n,); None where there is none.
        high: Upper edge.
        steps: Whether values hold until the next, as settings do.
        dashed: Whether the line is dashed.
    """

    times_seconds: FloatArray
    values: FloatArray
    colour: str = MAIN
    width: float = 1.4
    low: FloatArray | None = None
    high: FloatArray | None = None
    steps: bool = False
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Instants to mark on every panel.

    Attributes:
        changed: When changes were made.
        kept: When they were kept.
        undone: When they were undone.
    """

    changed: Sequence[float] = ()
    kept: Sequence[float] = ()
    undone: Sequence[float] = ()


NO_MARKS: Final = Marks()


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One small drawing over time.

    Attributes:
        title: What it shows, for those who do not see it.
        unit: Unit of the values, as `quantity` knows it.
        lines: What is drawn, the last on top.
        marks: Instants to mark.
        bounds: Horizontal limits to draw, such as the range of a knob; () for none.
        from_zero: Whether the axis starts at zero.
        size: Width and height in inches of 72 points.
    """

    title: str
    unit: str
    lines: Sequence[Line]
    marks: Marks = NO_MARKS
    bounds: tuple[float, ...] = ()
    from_zero: bool = False
    size: tuple[float, float] = field(default=(4.4, 1.9))


def draw(panel: Panel) -> str:
    """Return a panel as an SVG element."""
    factor, suffix = axis_unit(panel.unit, _largest(panel))
    with canvas(panel.size, left=0.62, bottom=0.3) as (figure, axes):
        for line in panel.lines:
            _line(axes, line, factor)
        for bound in panel.bounds:
            axes.axhline(bound * factor, color=MUTED, linewidth=0.8, linestyle=(0, (1, 2)))
        _limits(axes, panel, factor, suffix)
        _time_axis(axes, panel.lines)
        _marks(axes, panel.marks)
        return svg(figure, title=panel.title, description=_description(panel))


def _line(axes: "Axes", line: Line, factor: float) -> None:
    times, values, low, high = thin(line)
    if low is not None and high is not None:
        axes.fill_between(times, low * factor, high * factor, color=line.colour, alpha=0.18, linewidth=0)
    axes.plot(
        times,
        values * factor,
        color=line.colour,
        linewidth=line.width,
        linestyle=(0, (4, 2)) if line.dashed else "solid",
        drawstyle="steps-post" if line.steps else "default",
        solid_joinstyle="round",
    )


def thin(line: Line) -> tuple[FloatArray, FloatArray, FloatArray | None, FloatArray | None]:
    """Return times, values and band of a line with at most `MAX_COLUMNS` points.

    A longer line is averaged by equal numbers of points and its range becomes the band, so that no peak is lost; a line
    in steps is never averaged, because its steps are few.
    """
    count = len(line.times_seconds)
    if count <= MAX_COLUMNS or line.steps:
        return line.times_seconds, line.values, line.low, line.high
    groups = np.array_split(np.arange(count), MAX_COLUMNS)
    low = line.values if line.low is None else line.low
    high = line.values if line.high is None else line.high
    return (
        np.array([line.times_seconds[group].mean() for group in groups]),
        np.array([_over(np.mean, line.values[group]) for group in groups]),
        np.array([_over(np.min, low[group]) for group in groups]),
        np.array([_over(np.max, high[group]) for group in groups]),
    )


def _over(reduce: Callable[[FloatArray], np.float64], values: FloatArray) -> float:
    known = values[np.isfinite(values)]
    return float(reduce(known)) if known.size else math.nan


def _largest(panel: Panel) -> float:
    values = np.concatenate([*(line.values for line in panel.lines), np.array(panel.bounds)])
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def _limits(axes: "Axes", panel: Panel, factor: float, suffix: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.margins(x=0, y=0.08)
    if panel.from_zero:
        axes.set_ylim(bottom=0)
    elif panel.bounds:
        low, high = min(panel.bounds) * factor, max(panel.bounds) * factor
        axes.set_ylim(low - 0.08 * (high - low), high + 0.08 * (high - low))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}{suffix}".replace("-", "−")))


def axis_unit(unit: str, largest: float) -> tuple[float, str]:
    """Return the factor and the suffix in which an axis up to `largest` reads best: in milliseconds, per cent, ..."""
    match unit:
        case "ratio":
            return 100.0, " %"
        case "s" if largest <= 1.2:
            return 1000.0, " ms"
        case "s" if largest > 180:
            return 1 / 60, " min"
        case "1/s":
            return 1.0, " /s"
        case "tasks" | "":
            return 1.0, ""
    return 1.0, f" {unit}"


def _time_axis(axes: "Axes", lines: Sequence[Line]) -> None:
    times = np.concatenate([line.times_seconds for line in lines])
    axes.grid(visible=False, axis="x")
    if not len(times):
        axes.set_xticks([])
        return
    start, end = float(times.min()), float(times.max())
    if start < end:
        axes.set_xlim(start, end)
    ticks = time_ticks(start, end)
    axes.set_xticks([at_seconds for at_seconds, _ in ticks], [text for _, text in ticks])


def time_ticks(start_seconds: float, end_seconds: float) -> list[tuple[float, str]]:
    """Return a few round instants of a span with their names in UTC: times of day, and the date at midnight."""
    span = end_seconds - start_seconds
    fitting = (step for step in _TICK_STEPS if span / step < TICKS)
    step = next(fitting, math.ceil(span / TICKS / _TICK_STEPS[-1]) * _TICK_STEPS[-1])
    first = math.ceil(start_seconds / step) * step
    count = max(0, math.floor((end_seconds - first) / step) + 1)
    return [(first + index * step, _tick(first + index * step, step)) for index in range(count)]


def _tick(at_seconds: float, step: float) -> str:
    if at_seconds % 86_400 == 0:
        return datetime.fromtimestamp(at_seconds, UTC).strftime("%b %-d")
    return when(at_seconds)[11 : 19 if step < 60 else 16]


def _marks(axes: "Axes", marks: Marks) -> None:
    # Above the panel and not on the lines; a hairline joins each change to what followed.
    top = axes.get_xaxis_transform()
    for at_seconds in marks.changed:
        axes.axvline(at_seconds, color=TRIAL, linewidth=0.5, alpha=0.55 if len(marks.changed) < 12 else 0.25)
    for times, shape, colour in ((marks.changed, "v", TRIAL), (marks.kept, "o", GOOD), (marks.undone, "X", BAD)):
        heights = np.full(len(times), 1.04)
        axes.plot(times, heights, shape, transform=top, clip_on=False, color=colour, markersize=4.2, markeredgewidth=0)


def _description(panel: Panel) -> str:
    """Say in words what the last line shows."""
    values = panel.lines[-1].values if panel.lines else np.empty(0)
    known = values[np.isfinite(values)]
    if not known.size:
        return "No samples."
    first, last, least, most = (quantity(float(v), panel.unit) for v in (known[0], known[-1], known.min(), known.max()))
    changes = f" Changes marked: {len(panel.marks.changed)}." if panel.marks.changed else ""
    return f"From {first} at the start to {last} at the end, between {least} and {most}.{changes}"
