"""The demonstration: the same day of real traces three times over, once with clocktuner in the loop."""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tuner import assets, logs, serving, wiring
from tuner.demo import lockstep, view
from tuner.demo.prometheus_server import prometheus_server
from tuner.demo.store import Store
from tuner.demo.world import CLUSTER_LABEL, START_AT_SECONDS, World, chunks
from tuner.record.comparison import ComparisonRun
from tuner.record.report import write_report
from tuner.record.setting import Setting, save_setting
from tuner.reference import workloads
from tuner.reference.settings import ClockSettings, QueueOrder
from tuner.settings.loading import load_policy
from tuner.settings.model import Policy
from tuner.values.stages import FloatArray

CYCLE_SECONDS: Final = 300.0
MAX_SEARCHES: Final = 60

UNOPTIMISED: Final = ClockSettings(
    # First come, first served; one fixed slice; no prediction, no tiers, nothing reserved.
    base_slice_seconds=0.1,
    decision_period_seconds=1.0,
    reservation_ratio=0.0,
    order=QueueOrder.FCFS,
    adaptive_slice=False,
    prewarm=False,
    tiers=False,
)
"""The scheduler of the source document before anything was done to it; its slice and period are assumptions."""

MIDDLE: Final = ClockSettings()
"""Clock control with the middle of the recommended ranges."""

RUNS: Final[Mapping[str, tuple[str, ClockSettings]]] = {
    "a": ("unoptimised: first come, first served, fixed slice, no prediction, no tiers", UNOPTIMISED),
    "b": ("clock control, the middle of the recommended ranges, untouched", MIDDLE),
    "c": ("clock control with clocktuner in the loop", MIDDLE),
}
TUNED: Final = "c"


class Stopwatch:
    """Wall-clock time by what it was spent on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def at(self, what: str) -> Iterator[None]:
        """Count the time of a block."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.add(what, time.perf_counter() - started)

    def add(self, what: str, seconds: float) -> None:
        """Count some time."""
        self.seconds[what] = self.seconds.get(what, 0.0) + seconds


def show(*, output: Path, seed: int, hours: float, embedded: bool) -> None:
    """Run the demonstration, print what happens, and write journal and report.

    Args:
        output: Folder to write to; what an earlier demonstration left there is replaced.
        seed: Seed of all randomness; the same seed gives the same decisions on any machine.
        hours: Simulated hours.
        embedded: Read the scheduler's own page even where there is a Prometheus.
    """
    logs.configure(level="error")
    console = Console()
    output.mkdir(parents=True, exist_ok=True)
    watch = Stopwatch()
    with ExitStack() as stack:
        with watch.at("traces"):
            workload = workloads.build("demo", seed=seed, hours=hours)
        console.print(workload.describe(), highlight=False)
        server = None if embedded else stack.enter_context(prometheus_server())
        if server is None:
            console.print("[yellow]No Prometheus: reading the scheduler's own metrics page instead.[/]")
        else:
            console.print(f"Prometheus at {server.url}, filled by remote write with simulated times")
        with watch.at("compile"):
            world = World(workload, RUNS, seed=seed)
        stack.callback(world.close)
        page = serving.start(lockstep.application(world.runs[TUNED], MIDDLE), listen="127.0.0.1:0")
        stack.callback(page.stop)
        policy = demo_policy(page.url, server.url if server else None, output=output, seed=seed)
        parts = wiring.assemble(policy, clock=None)
        stack.callback(parts.close)
        with watch.at("compile"):
            parts.warm_up()
        save_setting(parts.journal, _setting(policy, workload, real_server=server is not None))
        store = None
        if server is not None:
            store = Store(server.write_url, world.runs)
            stack.callback(store.close)
        replay = Replay(world, parts, store, console=console, watch=watch)
        replay.run(hours)
        compared = replay.compared(policy)
        with watch.at("report"):
            report = write_report(parts.journal, output / "report.html", comparison=compared)
    console.print(view.table(compared, weights=policy.weights()))
    console.print(f"time by stage: {view.stage_times(watch.seconds)}", highlight=False)
    console.print(f"journal: {policy.journal.path} (try: clocktuner history --journal {policy.journal.path})")
    console.print(f"[bold]report: {report}[/]")


class Replay:
    """The loop of the demonstration: advance the runs, write their samples, run a cycle, and again."""

    def __init__(
        self, world: World, parts: wiring.Parts, store: Store | None, *, console: Console, watch: Stopwatch
    ) -> None:
        """Take the parts."""
        self._world = world
        self._parts = parts
        self._store = store
        self._console = console
        self._watch = watch
        self._series: dict[str, list[FloatArray]] = {key: [] for key in world.runs}
        self._times: list[float] = []

    def run(self, hours: float) -> None:
        """Replay so many hours."""
        decisions = view.Decisions(self._console)
        pieces = chunks(hours, chunk_seconds=CYCLE_SECONDS)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"))
        with Progress(*columns, TimeRemainingColumn(), console=self._console, transient=True) as progress:
            task = progress.add_task("replaying", total=len(pieces))
            ahead: dict[str, Future[FloatArray]] = {}
            for index, times in enumerate(pieces):
                with self._watch.at("simulate"):
                    under_way = {key: ahead[key] if key in ahead else self._world.start(key, times) for key in self._world.runs}
                    values = {key: future.result() for key, future in under_way.items()}
                self._write(times, values)
                # The runs that nobody tunes go on while the tuner thinks.
                if index + 1 < len(pieces):
                    ahead = {key: self._world.start(key, pieces[index + 1]) for key in values if key != TUNED}
                self._cycle(float(times[-1]), decisions)
                progress.update(task, advance=1, description=f"{times[-1] / 3600:4.1f} h simulated")
        decisions.flush()

    def _write(self, times: FloatArray, values: Mapping[str, FloatArray]) -> None:
        self._times.append(START_AT_SECONDS + float(times[-1]))
        for key, run in self._world.runs.items():
            self._series[key].append(run.scheduler.snapshot().recent)
            if self._store is not None:
                with self._watch.at("write"):
                    self._store.write_run(key, times, values[key])

    def _cycle(self, seconds: float, decisions: view.Decisions) -> None:
        at = START_AT_SECONDS + seconds
        with self._watch.at("refit"):
            self._parts.forecasting.refit()
        record = self._parts.cycle.run(at_seconds=at)
        for stage, spent in record.stage_seconds.items():
            self._watch.add(stage, spent)
        decisions.show(record)
        if self._store is not None:
            with self._watch.at("write"):
                self._store.write_tuner(self._parts.metrics.samples(round(at * 1000)), at)

    def compared(self, policy: Policy) -> list[ComparisonRun]:
        """Return what came of each run."""
        runs = [
            ComparisonRun(
                name=key,
                title=run.title,
                metrics=run.tally.metrics(),
                score=float("nan"),
                times_seconds=np.array(self._times),
                series=np.stack(self._series[key], axis=1),
            )
            for key, run in self._world.runs.items()
        ]
        del policy
        return runs


def demo_policy(page_url: str, prometheus_url: str | None, *, output: Path, seed: int) -> Policy:
    """Return the reference policy, with the addresses and budgets of the demonstration.

    Args:
        page_url: Where the tuned scheduler is served.
        prometheus_url: Where its metrics are; None to scrape its own page.
        output: Folder of the journal, which begins anew.
        seed: Seed of the searches.
    """
    journal = output / "journal.sqlite"
    for leftover in (journal, Path(f"{journal}-wal"), Path(f"{journal}-shm"), Path(f"{journal}.lock")):
        leftover.unlink(missing_ok=True)
    policy = load_policy(assets.folder("policies") / "reference.yaml")
    source: dict[str, object] = {"labels": {"run": TUNED}, "kind": "prometheus", "url": prometheus_url}
    if prometheus_url is None:
        source = {"kind": "scrape", "url": f"{page_url}/metrics"}
    changed = {
        "cluster": CLUSTER_LABEL,
        "source": policy.source.model_copy(update=source),
        "actuator": policy.actuator.model_copy(
            update={"url": f"{page_url}/config", "forecast_url": f"{page_url}/forecast"}
        ),
        "cycle": policy.cycle.model_copy(update={"period_seconds": CYCLE_SECONDS, "max_searches": MAX_SEARCHES}),
        "search": policy.search.model_copy(update={"seed": seed}),
        "journal": policy.journal.model_copy(update={"path": str(journal)}),
    }
    return Policy.model_validate(policy.model_copy(update=changed).model_dump(exclude_unset=False))


def _setting(policy: Policy, workload: workloads.NamedWorkload, *, real_server: bool) -> Setting:
    return Setting(
        cluster=policy.cluster,
        policy=policy.name,
        mode=policy.mode.value,
        specs=policy.knob_specs(),
        weights=policy.weights(),
        real=(
            f"the traces: {workload.describe().splitlines()[0]}",
            "the metrics server: Prometheus" if real_server else "the metrics page, scraped without Prometheus",
        ),
        simulated=("the cluster and its scheduler (the reference scheduler)", "the clock"),
    )
