"""Response curves: what one knob does, by the twin and by the reference scheduler."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from tuner.bench.cases import WIDE, BoundSet
from tuner.bench.twin_trials import Fate, live
from tuner.reference.workloads import NamedWorkload
from tuner.values.knobs import KnobSpec, KnobValues
from tuner.values.metrics import FLOORS, METRIC_INDEX, score
from tuner.values.stages import FloatArray

POINTS: Final = 6
"""Values a knob, spread over the wide range as logarithms."""
HOURS: Final = (8, 14, 20)
FATES: Final = 2
ROWS: Final = ("score", "queue_wait_seconds", "high_priority_wait_seconds", "switch_overhead_ratio")
"""What is drawn: the score, and the logarithm of metrics against the untouched setting."""


def draw(makers: Sequence[Callable[[int], NamedWorkload]], path: Path, *, quick: bool, seed: int) -> None:
    """Write the response curves of workloads, one knob at a time from the untouched setting of the wide bounds.

    Args:
        makers: Make the workloads.
        path: PNG file.
        quick: One fate and every second value.
        seed: Of workloads and constants.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 11), layout="constrained")
    axes = figure.subplots(len(ROWS), len(WIDE.specs), sharex="col", sharey="row")
    values = {spec: _values(spec, POINTS // 2 if quick else POINTS) for spec in WIDE.specs}
    settings = [_moved(WIDE, spec, value) for spec, found in values.items() for value in found]
    for number, maker in enumerate(makers):
        seeds = [seed + 1000 * index for index in range(1 if quick else FATES)]
        fates = [live(maker(one), WIDE, hours=HOURS, settings=settings, seed=one, physics=seed) for one in seeds]
        name = maker(seed).name
        for row, what in enumerate(ROWS):
            came, foretold = _responses(fates, what, came=True), _responses(fates, what, came=False)
            begin = 0
            for column, (spec, found) in enumerate(values.items()):
                part = slice(begin, begin + len(found))
                begin += len(found)
                mean, error = came[:, part].mean(axis=0), came[:, part].std(axis=0) / np.sqrt(len(came))
                axis = axes[row, column]
                axis.errorbar(found, mean, error, color=f"C{number}", label=f"{name}, reference", capsize=2)
                axis.plot(found, foretold[:, part].mean(axis=0), color=f"C{number}", ls="--", label=f"{name}, twin")
                axis.set_xscale("log")
                axis.minorticks_off()
                axis.set_xticks(found[::2], [f"{value:g}" for value in found[::2]])
                if row == len(ROWS) - 1:
                    axis.set_xlabel(spec.role.value)
            axes[row, 0].set_ylabel(what if what == "score" else f"ln {what}")
    axes[0, 0].legend(fontsize=7)
    figure.suptitle("Response to one knob against the untouched setting; simulated, mean and standard error")
    figure.savefig(path, dpi=90)


def _values(spec: KnobSpec, count: int) -> list[float]:
    low = max(spec.low, 0.02)
    return sorted({spec.snap(float(value)) for value in np.geomspace(low, spec.high, count)})


def _moved(bounds: BoundSet, spec: KnobSpec, value: float) -> KnobValues:
    return KnobValues.of({**bounds.start, spec.role: value})


def _responses(fates: Sequence[Fate], what: str, *, came: bool) -> FloatArray:
    """Return the response of each interval to each setting, shape (intervals, settings)."""
    metrics = np.concatenate([fate.came if came else fate.foretold for fate in fates])
    if what == "score":
        return score(metrics[:, 1:], metrics[:, :1])
    logs: FloatArray = np.log(np.maximum(metrics[..., METRIC_INDEX[what]], FLOORS[METRIC_INDEX[what]]))
    return logs[:, 1:] - logs[:, :1]
