"""The windows in which the published forecast did most harm, drawn: what it said, what came, and last value."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from tuner.files import explained
from tuner.forecast.naive import LastValue
from tuner.forecast.scoring import SPACING_STEPS, Windows
from tuner.forecast.selection import pinball
from tuner.forecast.traces import Trace
from tuner.values.stages import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS: Final = 3
"""Windows that are drawn of each trace, each of another series where there are enough."""

HISTORY_STEPS: Final = 90
"""Minutes before the origin that are drawn."""


@dataclass(frozen=True, slots=True)
class Worst:
    """One window.

    Attributes:
        label: Trace, series and step of the origin.
        history: What was seen before, the origin last, shape (steps,).
        actual: What came, shape (SCORED_STEPS,).
        told: Published quantiles, shape (SCORED_STEPS, 3).
        last: Last value's.
        harm: Quantile loss beyond last value's, in normal changes of the series.
    """

    label: str
    history: FloatArray
    actual: FloatArray
    told: FloatArray
    last: FloatArray
    harm: float


def worst_of(trace: Trace, windows: Windows, served: FloatArray, *, count: int = COLUMNS) -> list[Worst]:
    """Return the windows with the greatest harm, at most one a series.

    Args:
        trace: Where they are from.
        windows: All windows of the trace.
        served: What was published in each, shape (windows, horizon, 3).
        count: Windows that are wanted.
    """
    last = LastValue().forecast(windows.batch)
    scale = np.repeat(_scales(trace), windows.counts)
    harm = (pinball(served, windows.actual) - pinball(last, windows.actual)).mean(axis=1) / scale
    found: dict[int, Worst] = {}
    for row in np.argsort(-np.nan_to_num(harm, nan=-np.inf)):
        which = int(np.searchsorted(windows.starts, row, side="right")) - 1
        if which in found:
            continue
        origin = trace.train_steps[which] - 1 + SPACING_STEPS * int(row - windows.starts[which])
        found[which] = Worst(
            label=f"{trace.name}: {trace.names[which]}, minute {origin}",
            history=trace.series[which][max(origin + 1 - HISTORY_STEPS, 0) : origin + 1],
            actual=windows.actual[row],
            told=served[row, : windows.actual.shape[1]],
            last=last[row, : windows.actual.shape[1]],
            harm=float(harm[row]),
        )
        if len(found) == count:
            break
    return list(found.values())


def draw(worst: Sequence[Worst], path: Path) -> None:
    """Write the windows as a PNG, three a row.

    Raises:
        TunerError: The file cannot be written.
    """
    from matplotlib.figure import Figure

    rows = -(-len(worst) // COLUMNS)
    figure = Figure(figsize=(5 * COLUMNS, 3 * rows + 0.6), layout="constrained")
    grid = figure.subplots(rows, COLUMNS, squeeze=False)
    for axes, one in zip(grid.flat, worst, strict=False):
        _draw(axes, one)
    for axes in grid.flat[len(worst) :]:
        axes.set_visible(False)
    grid[0, 0].legend(fontsize="x-small", loc="best")
    figure.suptitle("Windows in which the published forecast lost most to last value (minutes from the origin)")
    with explained(path):
        figure.savefig(path, dpi=80)


def _draw(axes: "Axes", one: Worst) -> None:
    ahead = np.arange(1, len(one.actual) + 1)
    axes.plot(np.arange(1 - len(one.history), 1), one.history, color="0.4", linewidth=1, label="seen")
    axes.plot(ahead, one.actual, color="black", linewidth=2, label="came")
    axes.fill_between(ahead, one.told[:, 0], one.told[:, 2], color="tab:blue", alpha=0.25, label="published 0.1-0.9")
    axes.plot(ahead, one.told[:, 1], color="tab:blue", linewidth=2, label="published median")
    for quantile, style in zip(range(3), (":", "--", ":"), strict=True):
        label = "last value, and its 0.1-0.9" if quantile == 1 else None
        axes.plot(ahead, one.last[:, quantile], color="tab:orange", linestyle=style, label=label)
    axes.axvline(0, color="0.8", linewidth=0.8)
    axes.set_title(f"{one.label}: +{one.harm:.2g} changes", fontsize="small")


def _scales(trace: Trace) -> FloatArray:
    """Return each series' mean change over the scored horizon in its training part, > 0."""
    changes = [
        np.nanmean(np.abs(one[SPACING_STEPS:steps] - one[: steps - SPACING_STEPS]))
        for one, steps in zip(trace.series, trace.train_steps, strict=True)
    ]
    return np.maximum(changes, 1e-9)
