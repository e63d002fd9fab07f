"""`clocktuner bench sweeps`: how each knob acts on the reference scheduler, one at a time, with all else held still.

Each sweep moves one knob over a wide range in three unlike conditions: the slice against the task mix, the window
against the mean run time, the period against the size of the cluster, and the reservation against how protected work
arrives. Workloads are made up, so that a condition changes nothing else; every point is the mean of paired seeds, each
of which draws its own physics. Scores are against the middle of the recommended ranges. A direction that is flat inside
the recommended range shows as a small spread: it is published, not tuned away.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from tuner.bench.results import Results
from tuner.reference.cluster import PRESETS, ClusterSpec
from tuner.reference.scheduler import ReferenceScheduler
from tuner.reference.settings import ClockSettings
from tuner.reference.synthetic import bursts, merge, poisson, popularity, tasks
from tuner.reference.tally import Tally
from tuner.reference.workload import Priority, TaskKind, Workload
from tuner.values.knobs import DESIGN_RANGES, Role
from tuner.values.metrics import METRIC_COUNT, METRIC_INDEX, score
from tuner.values.stages import FloatArray

WARM_UP_SECONDS: Final = 1800.0
"""Left out of every run: the cluster fills, and models are loaded for the first time."""

SPAN_SECONDS: Final = 9000.0
"""Length of a run."""

LOOK_SECONDS: Final = 60.0
"""Time between two looks at gauges."""

SLA_SECONDS: Final[tuple[float, ...]] = (3.0, 6.0, 12.0)
"""Waits of protected work for which the smallest reservation that keeps them is told."""

Maker = Callable[[np.random.Generator], Workload]


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What a knob is swept in.

    Attributes:
        name: Name for figures.
        words: The same in words.
        cluster: The machines.
        make: Makes the workload from a random stream.
        base: Settings around the knob.
    """

    name: str
    words: str
    cluster: ClusterSpec
    make: Maker
    base: ClockSettings = field(default_factory=ClockSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One knob, its values and the conditions.

    Attributes:
        role: The knob.
        values: In its unit, ascending; they hold the recommended range and go beyond it.
        against: What the conditions differ in, in words.
        conditions: Ordered: the best value should rise, or fall, from the first to the last.
    """

    role: Role
    values: tuple[float, ...]
    against: str
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Curve:
    """What a sweep found in one condition.

    Attributes:
        values: Of the knob, shape (values,).
        scores: Against the middle of the recommended range, means over seeds, shape (values,).
        errors: Standard errors of the scores over seeds, shape (values,); NaN for one seed.
        metrics: Means over seeds, shape (values, 13).
    """

    values: FloatArray
    scores: FloatArray
    errors: FloatArray
    metrics: FloatArray

    @property
    def best(self) -> float:
        """The value with the best score."""
        return float(self.values[np.argmin(self.scores)])

    def spread(self, low: float, high: float) -> float:
        """Return the difference of the worst and the best score inside a range."""
        inside = self.scores[(self.values >= low - 1e-9) & (self.values <= high + 1e-9)]
        return float(inside.max() - inside.min())


def run(*, plots: Path | None = None, quick: bool = False) -> Results:
    """Run all sweeps.

    Args:
        plots: Folder to write one picture a sweep to; made if missing.
        quick: Whether to take one seed instead of three, and every second value.

    Returns:
        Best value and spread inside the recommended range, one a condition, and the reservations that SLAs need.
    """
    seeds = (1,) if quick else (1, 2, 3)
    results = Results("sweeps", setting={"seeds": list(seeds), "span_seconds": SPAN_SECONDS, "simulated": True})
    for sweep in SWEEPS:
        values = sweep.values[::2] if quick else sweep.values
        curves = {condition.name: measure(condition, sweep.role, values, seeds) for condition in sweep.conditions}
        _report(results, sweep, curves)
        if plots is not None:
            plots.mkdir(parents=True, exist_ok=True)
            _plot(sweep, curves, plots / f"sweep-{_short(sweep.role)}.png")
    return results


def measure(condition: Condition, role: Role, values: tuple[float, ...], seeds: tuple[int, ...]) -> Curve:
    """Measure a knob in a condition; all values of one seed meet the same tasks and the same physics."""
    scores, metrics = np.zeros((len(seeds), len(values))), np.zeros((len(seeds), len(values), METRIC_COUNT))
    for row, seed in enumerate(seeds):
        work = condition.make(np.random.default_rng(seed))
        middle = _replay(condition.cluster, work, condition.base, seed)
        for column, value in enumerate(values):
            setting = condition.base.with_knobs(condition.base.knobs.of({**condition.base.knobs, role: value}))
            metrics[row, column] = _replay(condition.cluster, work, setting, seed)
            scores[row, column] = score(metrics[row, column], middle)
    errors = scores.std(axis=0, ddof=1) / np.sqrt(len(seeds)) if len(seeds) > 1 else np.full(len(values), np.nan)
    return Curve(np.array(values), scores.mean(axis=0), errors, np.nanmean(metrics, axis=0))


def _replay(cluster: ClusterSpec, work: Workload, setting: ClockSettings, seed: int) -> FloatArray:
    scheduler = ReferenceScheduler(cluster, work, settings=setting, seed=seed)
    tally = Tally()
    for at_seconds in np.arange(WARM_UP_SECONDS, SPAN_SECONDS + 1.0, LOOK_SECONDS):
        scheduler.advance(float(at_seconds))
        tally.add(scheduler.snapshot())
    return tally.metrics()


def _report(results: Results, sweep: Sweep, curves: Mapping[str, Curve]) -> None:
    spec = DESIGN_RANGES[sweep.role]
    for name, curve in curves.items():
        results.add(f"sweep_{_short(sweep.role)}_best_{name}", curve.best)
        results.add(f"sweep_{_short(sweep.role)}_spread_ratio_{name}", curve.spread(spec.low, spec.high))
    if sweep.role is Role.RESERVATION:
        for name, curve in curves.items():
            for sla in SLA_SECONDS:
                results.add(f"sweep_reservation_for_{sla:g}_seconds_{name}", smallest_for(curve, sla))


def smallest_for(curve: Curve, sla_seconds: float) -> float:
    """Return the smallest value at which protected work waits no longer than an SLA (p95); NaN where none keeps it."""
    kept = curve.metrics[:, METRIC_INDEX["high_priority_wait_seconds"]] <= sla_seconds
    return float(curve.values[np.argmax(kept)]) if kept.any() else float("nan")


def _short(role: Role) -> str:
    return {
        Role.BASE_SLICE: "slice",
        Role.PREDICTION_WINDOW: "window",
        Role.DECISION_PERIOD: "period",
        Role.RESERVATION: "reservation",
    }[role]


def _plot(sweep: Sweep, curves: Mapping[str, Curve], path: Path) -> None:
    from matplotlib.figure import Figure

    spec = DESIGN_RANGES[sweep.role]
    figure = Figure(figsize=(7.0, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.axvspan(spec.low, spec.high, color="0.92", label="recommended range")
    for condition in sweep.conditions:
        curve = curves[condition.name]
        axes.errorbar(curve.values, curve.scores, yerr=curve.errors, marker="o", capsize=2, label=condition.words)
    axes.axhline(0.0, color="0.6", linewidth=0.8)
    if sweep.role is not Role.RESERVATION:
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.set_xticks(sweep.values, [f"{value:g}" for value in sweep.values], rotation=60, fontsize="small")
    axes.set_xlabel(sweep.role.value)
    axes.set_ylabel("score against the middle (lower is better)")
    axes.set_title(f"{_short(sweep.role)} against {sweep.against} (simulated)")
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)


def _requests(
    rng: np.random.Generator,
    submit: FloatArray,
    *,
    seconds: float,
    high_share: float = 1.0,
    models: int = 12,
    zones: int = 4,
) -> Workload:
    """Return inference requests of exponential length, protected as a share says, with models of unlike popularity."""
    size = submit.size
    return tasks(
        submit,
        0.05 + rng.exponential(seconds, size),
        kind=TaskKind.INFERENCE,
        priority=np.where(rng.random(size) < high_share, Priority.HIGH, Priority.NORMAL),
        patience_seconds=120.0,
        model=popularity(rng, models=models, size=size),
        zone=rng.integers(0, zones, size),
    )


def _pods(rng: np.random.Generator, *, per_second: float, seconds: float) -> Workload:
    """Return training pods that share accelerators, an eighth of the memory each."""
    submit = poisson(rng, per_second=per_second, span_seconds=SPAN_SECONDS)
    return tasks(
        submit,
        10.0 + rng.exponential(seconds, submit.size),
        gpus=0.125,
        patience_seconds=1800.0,
        zone=rng.integers(0, 4, submit.size),
    )


def _gangs(rng: np.random.Generator, *, gpus: int, load: float, seconds: float = 900.0, zones: int = 4) -> Workload:
    """Return gangs of two, four and eight that ask for a share of so many accelerators."""
    submit = poisson(rng, per_second=load * gpus / (seconds * 14.0 / 3.0), span_seconds=SPAN_SECONDS)
    return tasks(
        submit,
        30.0 + rng.exponential(seconds, submit.size),
        gpus=rng.choice([2.0, 4.0, 8.0], submit.size),
        patience_seconds=3600.0,
        zone=rng.integers(0, zones, submit.size),
    )


def _mix(cluster: ClusterSpec, *, seconds: float) -> Maker:
    """Make protected requests of a length that share accelerators with pods: a twelfth and most of the capacity."""

    def make(rng: np.random.Generator) -> Workload:
        submit = poisson(rng, per_second=0.08 * cluster.gpus / seconds, span_seconds=SPAN_SECONDS)
        pods = _pods(rng, per_second=0.72 * cluster.gpus / 120.0, seconds=120.0)
        return merge(_requests(rng, submit, seconds=seconds, models=4), pods)

    return make


def _rarity(cluster: ClusterSpec, *, seconds: float) -> Maker:
    """Make requests of a length that ask for the same capacity: the longer, the rarer each model is asked for."""

    def make(rng: np.random.Generator) -> Workload:
        rate = 0.12 * cluster.gpus / seconds
        submit = bursts(rng, per_second=rate, span_seconds=SPAN_SECONDS, period_seconds=3600.0, contrast=0.6)
        return merge(
            _requests(rng, submit, seconds=seconds, high_share=0.7, models=60),
            _gangs(rng, gpus=cluster.gpus, load=0.4),
        )

    return make


def _sized(cluster: ClusterSpec) -> Maker:
    """Make a load in proportion to the cluster."""

    def make(rng: np.random.Generator) -> Workload:
        submit = poisson(rng, per_second=0.12 * cluster.gpus / 2.0, span_seconds=SPAN_SECONDS)
        return merge(
            _requests(rng, submit, seconds=2.0, high_share=0.7, zones=cluster.zones),
            _gangs(rng, gpus=cluster.gpus, load=0.35, zones=cluster.zones),
        )

    return make


def _bursty(cluster: ClusterSpec, *, contrast: float) -> Maker:
    """Make protected requests whose rate swings, against gangs that would take all they get."""

    def make(rng: np.random.Generator) -> Workload:
        submit = bursts(
            rng,
            per_second=0.12 * cluster.gpus / 2.0,
            span_seconds=SPAN_SECONDS,
            period_seconds=1200.0,
            contrast=contrast,
        )
        return merge(_requests(rng, submit, seconds=2.0), _gangs(rng, gpus=cluster.gpus, load=1.0))

    return make


_SHARED: Final = ClusterSpec(name="shared", zone_nodes=(1,) * 4, gpus_per_node=8)
_DEMO: Final = PRESETS["demo"]

SWEEPS: Final[tuple[Sweep, ...]] = (
    Sweep(
        role=Role.BASE_SLICE,
        values=(0.02, 0.04, 0.06, 0.08, 0.1, 0.115, 0.13, 0.15, 0.2, 0.3, 0.5),
        against="the task mix",
        conditions=tuple(
            Condition(
                name=name,
                words=f"protected requests of {seconds:g} s beside pods",
                cluster=_SHARED,
                make=_mix(_SHARED, seconds=seconds),
                # Without a reserve, so that protected and other tasks share accelerators.
                base=ClockSettings(reservation_ratio=0.0),
            )
            for name, seconds in (("short", 0.1), ("medium", 1.0), ("long", 5.0))
        ),
    ),
    Sweep(
        role=Role.PREDICTION_WINDOW,
        values=(120.0, 300.0, 600.0, 720.0, 900.0, 1080.0, 1200.0, 1800.0, 3600.0),
        against="the mean run time",
        conditions=tuple(
            Condition(
                name=name,
                words=f"requests of {seconds:g} s",
                cluster=_DEMO,
                make=_rarity(_DEMO, seconds=seconds),
            )
            for name, seconds in (("short", 1.0), ("medium", 4.0), ("long", 16.0))
        ),
    ),
    Sweep(
        role=Role.DECISION_PERIOD,
        values=(0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0, 1.5, 3.0),
        against="the size of the cluster",
        conditions=tuple(
            Condition(
                name=f"{nodes}_nodes",
                words=f"{nodes} nodes",
                cluster=PRESETS["reference"].sized(nodes),
                make=_sized(PRESETS["reference"].sized(nodes)),
            )
            for nodes in (4, 32, 160)
        ),
    ),
    Sweep(
        role=Role.RESERVATION,
        values=(0.0, 0.05, 0.1, 0.15, 0.18, 0.2, 0.22, 0.25, 0.35, 0.5),
        against="how protected work arrives",
        conditions=tuple(
            Condition(name=name, words=f"{name} protected work", cluster=_DEMO, make=_bursty(_DEMO, contrast=contrast))
            for name, contrast in (("steady", 0.0), ("swinging", 0.5), ("bursty", 0.95))
        ),
    ),
)
"""The four sweeps."""
