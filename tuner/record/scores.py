"""Drawings of scores: what was predicted of each change, and what was measured."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.record.canvas import MAIN, MUTED, SURFACE, canvas, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    with canvas((4.8, 3.4), left=0.62, bottom=0.5) as (figure, axes):
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
        return svg(figure, title=title, description=described)


def sequence(points: Sequence[Point], *, title: str) -> str:
    """Return predicted and measured scores, in per cent, change after change, as SVG."""
    with canvas((4.8, 3.4), left=0.62, bottom=0.5) as (figure, axes):
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
        return svg(figure, title=title, description=described)


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
