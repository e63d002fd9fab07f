"""`clocktuner bench sensitivity`: which assumption of the simulation drives each headline figure (simulated).

The source document claims figures of real clusters. Where the simulation gives another one, an assumption is behind it:
how dear a decision is, how long people wait, how full the cluster is. Each is moved alone over a wide range, and the
figure is taken again, of the unoptimised scheduler and of clock control that nobody touches, on the demonstration's
workload. A claim that lies in the range is explained by the level at which it is reached; one that does not is told as
out of reach. Nothing is fitted: the benchmarks and the demonstration keep the ranges of `tuner.reference.physics`.
"""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from tuner.bench import assumptions
from tuner.bench.arms import THREADS
from tuner.bench.assumptions import Assumption, World
from tuner.bench.headlines import ADAPTIVE_SLICE_ONLY, HEADLINES, Headline, averaged
from tuner.bench.replays import Outcome, replay
from tuner.bench.results import Results
from tuner.bench.tuners import Site
from tuner.errors import ConfigError
from tuner.files import explained
from tuner.reference import workloads
from tuner.reference.physics import PhysicalConstants
from tuner.reference.scheduler import warm_up
from tuner.reference.settings import ClockSettings
from tuner.values.stages import FloatArray

WORKLOAD: Final = "demo"


class Read(StrEnum):
    """What a claim is about."""

    CHANGE = "change from unoptimised"
    LEVEL = "unoptimised"


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """A claim, and the assumption that drives it.

    Attributes:
        headline: Name of the figure.
        assumption: What is moved.
        claim: What the document claims: one value, or the two ends of a range; as `read` says.
        read: Whether the claim is a change (-0.41 reads as 41 % less) or a level in the figure's unit.
        after: What the unoptimised scheduler is compared with.
        words: The claim in words.
    """

    headline: str
    assumption: Assumption
    claim: tuple[float, ...]
    words: str
    read: Read = Read.CHANGE
    after: ClockSettings = field(default_factory=ClockSettings)

    @property
    def name(self) -> str:
        """Name in figures; a headline may have two drivers."""
        return f"{self.headline}_by_{self.assumption.name}"


DRIVERS: Final = (
    Driver(
        headline="utilization_ratio",
        assumption=assumptions.LOAD,
        claim=(81 / 62 - 1,),
        words="62 % -> 81 %",
    ),
    Driver(
        headline="utilization_ratio",
        assumption=assumptions.SWITCH_COST,
        claim=(0.18,),
        words="+18 % by adaptive slices alone",
        after=ADAPTIVE_SLICE_ONLY,
    ),
    Driver(
        headline="lost_ratio",
        assumption=assumptions.SWITCH_COST,
        claim=(0.30,),
        words="30 % lost to switching and warming, unoptimised",
        read=Read.LEVEL,
    ),
    Driver(
        headline="lost_ratio",
        assumption=assumptions.COLD_START,
        claim=(0.30,),
        words="the same",
        read=Read.LEVEL,
    ),
    Driver(
        headline="completed_per_second",
        assumption=assumptions.LOAD,
        claim=(0.28, 0.45),
        words="+28 % to +45 %",
    ),
    Driver(
        headline="mean_wait_seconds",
        assumption=assumptions.LOAD,
        claim=(3.8 / 12 - 1,),
        words="12 min -> 3.8 min",
    ),
    Driver(
        headline="latency_crowded_seconds",
        assumption=assumptions.DECISION_COST,
        claim=(2.3,),
        words="2.3 s with 100 tasks and more, unoptimised",
        read=Read.LEVEL,
    ),
    Driver(
        headline="decision_seconds",
        assumption=assumptions.DECISION_COST,
        claim=(0.42 / 2.7 - 1,),
        words="2.7 s -> 420 ms",
    ),
    Driver(headline="cross_zone_gigabytes", assumption=assumptions.ZONES, claim=(-0.41,), words="-41 %"),
    Driver(headline="memory_latency_ratio", assumption=assumptions.REMOTE_MEMORY, claim=(-0.29,), words="-29 %"),
    Driver(headline="abandonment_ratio", assumption=assumptions.LOAD, claim=(-0.67,), words="-67 %"),
    Driver(headline="abandonment_ratio", assumption=assumptions.PATIENCE, claim=(-0.67,), words="the same"),
)
"""In the order of the source document. The latency of the quiet cluster and the hardware for equal work are left out:
the workload is never quiet, and each point of the other takes a search of its own."""


@dataclass(frozen=True, slots=True)
class Curve:
    """What a figure becomes where an assumption is moved; one entry a level.

    Attributes:
        levels: Of the assumption, shape (levels,).
        before: Figure of the unoptimised scheduler, means over seeds, shape (levels,).
        after: Figure of what it is compared with, shape (levels,).
    """

    levels: FloatArray
    before: FloatArray
    after: FloatArray

    def of(self, read: Read) -> FloatArray:
        """Return what the claim is about, shape (levels,)."""
        if read is Read.LEVEL:
            return self.before
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(self.before > 0, self.after / self.before - 1, np.nan))

    def reached(self, driver: Driver) -> float:
        """Return the level at which the claim is met, by interpolation; NaN where none of the range does."""
        values, low, high = self.of(driver.read), min(driver.claim), max(driver.claim)
        known = np.isfinite(values)
        levels, values = self.levels[known], values[known]
        for place, value in enumerate(values):
            if low <= value <= high:
                return float(levels[place])
            if place + 1 == len(values):
                break
            end, following = (high if value > high else low), values[place + 1]
            if (following - end) * (value - end) <= 0:
                share = (end - value) / (following - value)
                return float(levels[place] + share * (levels[place + 1] - levels[place]))
        return math.nan


def run(*, plot: Path | None = None, quick: bool = False) -> Results:
    """Move every assumption, print what each figure becomes, and return the figures.

    Args:
        plot: File to draw all curves to, as PNG.
        quick: Four hours and one seed instead of a day and two.

    Raises:
        ConfigError: The picture cannot be written.
    """
    seeds, hours = ((1,), 4.0) if quick else ((1, 2), 24.0)
    warm_up()
    setting = {"quick": quick, "seeds": list(seeds), "hours": hours, "workload": WORKLOAD, "simulated": True}
    results = Results("sensitivity", setting=setting)
    with ThreadPoolExecutor(THREADS, thread_name_prefix="replay") as pool:
        laboratory = _Laboratory(pool, seeds=seeds, hours=hours)
        curves = {driver.name: laboratory.curve(driver) for driver in DRIVERS}
    for driver in DRIVERS:
        curve = curves[driver.name]
        for level, value in zip(curve.levels.tolist(), curve.of(driver.read).tolist(), strict=True):
            results.add(f"sensitivity_{driver.name}_at_{level:g}", value)
        results.add(f"sensitivity_{driver.name}_claim_reached_at", curve.reached(driver))
    _print(curves)
    if plot is not None:
        _plot(curves, plot)
    return results


class _Laboratory:
    """Makes replays side by side; each is made once."""

    def __init__(self, pool: ThreadPoolExecutor, *, seeds: Sequence[int], hours: float) -> None:
        self._pool = pool
        self._worlds = {
            seed: World(workloads.build(WORKLOAD, seed=seed, hours=hours), PhysicalConstants.draw(seed))
            for seed in seeds
        }
        self._known: dict[tuple[str, float, ClockSettings], tuple[Outcome, ...]] = {}

    def curve(self, driver: Driver) -> Curve:
        """Return what a figure becomes at every level that the workload allows."""
        headline = next(each for each in HEADLINES if each.name == driver.headline)
        rows = [
            (level, *self._pair(driver, headline, level))
            for level in driver.assumption.levels
            if self._possible(driver.assumption, level)
        ]
        levels, before, after = np.array(rows).T
        return Curve(levels, before, after)

    def _possible(self, assumption: Assumption, level: float) -> bool:
        """Say whether the cluster can be so: a zone needs a node, and the largest gang its accelerators."""
        try:
            self._outcomes(assumption, level, ClockSettings.unoptimised())
        except ConfigError:
            return False
        return True

    def _pair(self, driver: Driver, headline: Headline, level: float) -> tuple[float, float]:
        return (
            averaged(headline, self._outcomes(driver.assumption, level, ClockSettings.unoptimised())),
            averaged(headline, self._outcomes(driver.assumption, level, driver.after)),
        )

    def _outcomes(self, assumption: Assumption, level: float, settings: ClockSettings) -> tuple[Outcome, ...]:
        key = (assumption.name, level, settings)
        if key not in self._known:
            self._known[key] = tuple(
                self._pool.map(
                    lambda pair: replayed(assumption.move(pair[1], level), settings, seed=pair[0]),
                    self._worlds.items(),
                )
            )
        return self._known[key]


def replayed(world: World, settings: ClockSettings, *, seed: int) -> Outcome:
    """Replay a world with a scheduler that nobody touches.

    Raises:
        ConfigError: A task can never run on this cluster.
    """
    site = Site(specs=(), start=settings.knobs, seed=seed)
    return replay(world.workload, settings, site=site, constants=world.constants)


def _print(curves: Mapping[str, Curve]) -> None:
    table = Table(
        "figure",
        "claim",
        "assumption moved",
        "at each level (simulated)",
        "claim reached at",
        title="which assumption drives each headline figure",
        title_justify="left",
    )
    for driver in DRIVERS:
        curve = curves[driver.name]
        shown = [
            f"{level:g}: {_told(value, driver.read)}"
            for level, value in zip(curve.levels.tolist(), curve.of(driver.read).tolist(), strict=True)
        ]
        reached = curve.reached(driver)
        table.add_row(
            driver.headline,
            driver.words,
            driver.assumption.words,
            ", ".join(shown),
            "not in this range" if math.isnan(reached) else f"{reached:.3g}",
        )
    Console(width=180).print(table)


def _told(value: float, read: Read) -> str:
    if math.isnan(value):
        return "no sample"
    return f"{value:+.0%}" if read is Read.CHANGE else f"{value:.3g}"


def _plot(curves: Mapping[str, Curve], path: Path) -> None:
    from matplotlib.figure import Figure

    columns = 3
    rows = math.ceil(len(DRIVERS) / columns)
    figure = Figure(figsize=(4.6 * columns, 3.3 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, driver in zip(grid.flat, DRIVERS, strict=False):
        curve = curves[driver.name]
        percent = 100.0 if driver.read is Read.CHANGE else 1.0
        axes.axhspan(percent * min(driver.claim), percent * max(driver.claim), color="tab:orange", alpha=0.25)
        for end in driver.claim:
            axes.axhline(percent * end, color="tab:orange", label=f"claimed: {driver.words}")
        axes.plot(curve.levels, percent * curve.of(driver.read), marker="o", color="tab:blue", label="simulated")
        if math.isfinite(driver.assumption.usual):
            axes.axvline(driver.assumption.usual, color="0.75", linewidth=0.8)
        if driver.assumption.proportional:
            axes.set_xscale("log")
            axes.minorticks_off()
        axes.set_xticks(curve.levels, [f"{level:g}" for level in curve.levels.tolist()])
        axes.set_xlabel(driver.assumption.words, fontsize="x-small")
        axes.set_ylabel("change, %" if driver.read is Read.CHANGE else "unoptimised", fontsize="small")
        axes.set_title(driver.headline, fontsize="medium")
        handles, labels = axes.get_legend_handles_labels()
        axes.legend(handles[-2:], labels[-2:], fontsize="x-small")
    for axes in grid.flat[len(DRIVERS) :]:
        axes.set_visible(False)
    figure.suptitle("Headline figures of the source document against assumptions (simulated)")
    with explained(path):
        figure.savefig(path, dpi=110)
