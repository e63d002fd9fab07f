"""The drawings of the report: small SVG panels that follow the page's colours, light or dark.

matplotlib draws; its colours are then replaced by CSS variables, so that one drawing serves both themes, and its text
stays text, so that it can be selected, searched and read aloud. Equal input gives equal bytes.
"""

import hashlib
import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC
from html import escape
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from tuner.record.wording import quantity
from tuner.values.stages import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Stand-ins: colours that nothing else has, each replaced by the variable of its name in the page's style sheet.
# The hues behind them are those of Okabe and Ito, which people with any common colour blindness can tell apart.
INK: Final = "#010101"
MUTED: Final = "#020202"
GRID: Final = "#030303"
MAIN: Final = "#040404"
GOOD: Final = "#050505"
BAD: Final = "#060606"
TRIAL: Final = "#070707"
OTHER: Final = "#080808"
SURFACE: Final = "#090909"
_VARIABLES: Final = {
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    MAIN: "main",
    GOOD: "good",
    BAD: "bad",
    TRIAL: "trial",
    OTHER: "other",
    SURFACE: "surface",
}

MAX_COLUMNS: Final = 480
"""Points a line has at most: more than a panel has pixels for; longer series are averaged and their range shaded."""

_STYLE: Final = {
    "svg.fonttype": "none",
    "svg.hashsalt": "clocktuner",
    "font.size": 9.0,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "axes.labelcolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.major.size": 3.0,
    "ytick.major.size": 0.0,
    "figure.facecolor": "none",
    "text.parse_math": False,
    "timezone": "UTC",
}


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
    with _figure(panel.size, left=0.62, bottom=0.3) as (figure, axes):
        for line in panel.lines:
            _line(axes, line, factor)
        for bound in panel.bounds:
            axes.axhline(bound * factor, color=MUTED, linewidth=0.8, linestyle=(0, (1, 2)))
        _limits(axes, panel, factor, suffix)
        _time_axis(axes, panel.lines)
        _marks(axes, panel.marks)
        return _svg(figure, title=panel.title, description=_description(panel))


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A change whose score was predicted and measured.

    Attributes:
        predicted: Score that the twin predicted.
        measured: Score that was measured.
        error: Half the width of its 95 % interval; NaN while unknown.
        colour: One of the stand-ins.
        marker: matplotlib's letter for the shape, so that colour is not all that tells them apart.
    """

    predicted: float
    measured: float
    error: float
    colour: str
    marker: str


def scatter(points: Sequence[Point], *, title: str) -> str:
    """Return predicted against measured scores, in per cent, with the diagonal of perfect foresight, as SVG."""
    with _figure((4.8, 3.4), left=0.62, bottom=0.5) as (figure, axes):
        extent = 115 * max([0.01, *(abs(point.predicted) for point in points), *(abs(p.measured) for p in points)])
        axes.axhline(0, color=MUTED, linewidth=0.8)
        axes.axvline(0, color=MUTED, linewidth=0.8)
        axes.plot([-extent, extent], [-extent, extent], color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)))
        for point in points:
            _point(axes, point.predicted * 100, point)
        axes.set_xlim(-extent, extent)
        axes.set_ylim(-extent, extent)
        axes.set_xlabel("predicted score, % (negative is better)")
        axes.set_ylabel("measured score, %")
        described = f"{len(points)} changes; on the dashed diagonal the prediction came true."
        return _svg(figure, title=title, description=described)


def sequence(points: Sequence[Point], *, title: str) -> str:
    """Return predicted and measured scores, in per cent, change after change, as SVG."""
    with _figure((4.8, 3.4), left=0.62, bottom=0.5) as (figure, axes):
        axes.axhline(0, color=MUTED, linewidth=0.8)
        for number, point in enumerate(points, start=1):
            axes.plot(number, point.predicted * 100, "_", color=MAIN, markersize=9, markeredgewidth=1.8)
            _point(axes, number, point)
        axes.set_xlim(0.3, len(points) + 0.7)
        axes.locator_params(axis="x", integer=True)
        axes.grid(visible=False, axis="x")
        axes.set_xlabel("change, in order of time")
        axes.set_ylabel("score, % (negative is better)")
        described = f"{len(points)} changes in order of time; a dash is what was predicted, a mark what was measured."
        return _svg(figure, title=title, description=described)


def _point(axes: "Axes", x: float, point: Point) -> None:
    error = 0.0 if math.isnan(point.error) else point.error * 100
    axes.errorbar(x, point.measured * 100, yerr=error, color=point.colour, linewidth=0.9, alpha=0.55)
    axes.plot(
        x,
        point.measured * 100,
        point.marker,
        color=point.colour,
        markersize=5.5,
        markeredgecolor=SURFACE,
        markeredgewidth=0.6,
    )


@contextmanager
def _figure(size: tuple[float, float], *, left: float, bottom: float) -> Iterator[tuple["Figure", "Axes"]]:
    """Yield axes with fixed margins in inches, so that panels below each other align."""
    # Imported late: it takes half a second and forty megabytes, and only the report draws.
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Defaults first, so that a matplotlibrc of the machine does not change the report.
    with mpl.rc_context(cast("Any", {**mpl.rcParamsDefault, **_STYLE})):
        figure = Figure(figsize=size)
        width, height = size
        box = (left / width, bottom / height, 1 - (left + 0.22) / width, 1 - (bottom + 0.14) / height)
        yield figure, figure.add_axes(box)


def _line(axes: "Axes", line: Line, factor: float) -> None:
    times, values, low, high = thin(line)
    days = times / 86_400
    if low is not None and high is not None:
        axes.fill_between(days, low * factor, high * factor, color=line.colour, alpha=0.18, linewidth=0)
    axes.plot(
        days,
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
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    times = np.concatenate([line.times_seconds for line in lines]) / 86_400
    if len(times) and times.min() < times.max():
        axes.set_xlim(times.min(), times.max())
    locator = AutoDateLocator(maxticks=6, minticks=3, tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC, show_offset=False))  # type: ignore[no-untyped-call]
    axes.grid(visible=False, axis="x")


def _marks(axes: "Axes", marks: Marks) -> None:
    # Above the panel and not on the lines; a hairline joins each change to what followed.
    top = axes.get_xaxis_transform()
    for at_seconds in marks.changed:
        axes.axvline(at_seconds / 86_400, color=TRIAL, linewidth=0.5, alpha=0.55 if len(marks.changed) < 12 else 0.25)
    for times, shape, colour in ((marks.changed, "v", TRIAL), (marks.kept, "o", GOOD), (marks.undone, "X", BAD)):
        days = np.array(times) / 86_400
        axes.plot(
            days,
            np.full(len(days), 1.04),
            shape,
            transform=top,
            clip_on=False,
            color=colour,
            markersize=4.2,
            markeredgewidth=0,
        )


def _description(panel: Panel) -> str:
    """Say in words what the last line shows."""
    values = panel.lines[-1].values if panel.lines else np.empty(0)
    known = values[np.isfinite(values)]
    if not known.size:
        return "No samples."
    first, last, least, most = (quantity(float(v), panel.unit) for v in (known[0], known[-1], known.min(), known.max()))
    changes = f" Changes marked: {len(panel.marks.changed)}." if panel.marks.changed else ""
    return f"From {first} at the start to {last} at the end, between {least} and {most}.{changes}"


def _svg(figure: "Figure", *, title: str, description: str) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return themed(buffer.getvalue(), title=title, description=description)


def themed(svg: str, *, title: str, description: str) -> str:
    """Return matplotlib's SVG as an element for the page: themed, accessible, and with ids of its own."""
    key = hashlib.sha256((svg + title).encode()).hexdigest()[:8]
    body = svg[svg.index("<svg") :]
    view = re.search(r'viewBox="([^"]+)"', body)
    body = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", body, flags=re.DOTALL)
    body = body[body.index(">") + 1 :]
    # Drawings on one page must not share ids: only those that are referred to stay, under names of their own.
    body = re.sub(r' id="(?![mp][0-9a-f]{10}")[^"]*"', "", body)
    body = re.sub(r'\bid="', f'id="{key}-', body)
    body = re.sub(r'(?:xlink:)?(href="|url\()#', rf"\1#{key}-", body)
    for stand_in, variable in _VARIABLES.items():
        body = body.replace(stand_in, f"var(--{variable})")
    # The page has its own type face and size; matplotlib only places the text.
    body = re.sub(r"font-(?:size|family): [^;\"]*; ", "", body)
    # A hundredth of a point is finer than any screen.
    body = re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", body)
    body = re.sub(r"\s*\n\s*", " ", body)
    return (
        f'<svg class="plot" role="img" viewBox="{view[1] if view else "0 0 1 1"}" aria-labelledby="{key}-t {key}-d">'
        f'<title id="{key}-t">{escape(title)}</title><desc id="{key}-d">{escape(description)}</desc>{body}'
    )
