"""The demonstration: the same day of real traces three times over, once with clocktuner in the loop."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from tuner import logs, serving, wiring
from tuner.demo import bad_hour, lockstep, view
from tuner.demo.policy import demo_policy
from tuner.demo.prometheus_server import PrometheusServer, prometheus_server
from tuner.demo.replay import TUNED, UNTOUCHED, Replay, Stopwatch
from tuner.demo.store import Store
from tuner.demo.world import World
from tuner.files import explained
from tuner.record.report import write_report
from tuner.record.setting import Setting, save_setting
from tuner.reference import workloads
from tuner.reference.settings import ClockSettings, QueueOrder
from tuner.settings.model import Policy

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
    UNTOUCHED: ("clock control, the middle of the recommended ranges, untouched", MIDDLE),
    TUNED: ("clock control with clocktuner in the loop", MIDDLE),
}


@dataclass(frozen=True, slots=True)
class Demo:
    """The demonstration, put together and ready to run.

    Attributes:
        workload: What is replayed.
        server: The Prometheus, while the demonstration is open; None where the scheduler's own page is read.
        parts: clocktuner.
        replay: The loop.
    """

    workload: workloads.NamedWorkload
    server: PrometheusServer | None
    parts: wiring.Parts
    replay: Replay


def show(*, output: Path, seed: int, hours: float, embedded: bool, skip_bad_hour: bool = False) -> None:
    """Run the demonstration, print what happens, and write journals and reports.

    Args:
        output: Folder to write to; what an earlier demonstration left there is replaced.
        seed: Seed of all randomness; the same seed gives the same decisions on any machine.
        hours: Simulated hours.
        embedded: Read the scheduler's own page even where there is a Prometheus.
        skip_bad_hour: Leave out the second story, in which things go wrong.
    """
    logs.configure(level="error")
    console = view.console()
    watch = Stopwatch()
    with opened(output=output, seed=seed, hours=hours, embedded=embedded, console=console, watch=watch) as demo:
        weights = demo.parts.policy.weights()
        journal = demo.parts.journal
        demo.replay.run(hours)
        compared = demo.replay.compared(weights)
        with watch.at("report"):
            report = write_report(journal, output / "report.html", comparison=compared)
        console.print(view.table(compared, weights=weights, hours=hours))
        for run in compared:
            console.print(f"({run.name}) {run.title}", highlight=False)
        console.print(f"time by stage: {view.stage_times(watch.seconds)}", highlight=False)
        console.print(f"journal: {journal.path} (try: clocktuner history --journal {journal.path})")
        console.print(f"[bold]report: {report}[/]")
        if not skip_bad_hour:
            bad_hour.show(output=output, seed=seed, hours=hours, server=demo.server, console=console)


@contextmanager
def opened(
    *, output: Path, seed: int, hours: float, embedded: bool, console: Console, watch: Stopwatch
) -> Iterator[Demo]:
    """Put the demonstration together, and take it apart again, whatever happens; see `show` for the arguments."""
    with explained(output):
        output.mkdir(parents=True, exist_ok=True)
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
        policy = demo_policy(
            page.url, server.url if server else None, run=TUNED, journal=output / "journal.sqlite", seed=seed
        )
        parts = wiring.assemble(policy, clock=None)
        stack.callback(parts.close)
        with watch.at("compile"):
            parts.warm_up()
        save_setting(parts.journal, _setting(policy, workload, real_server=server is not None))
        store = None
        if server is not None:
            store = Store(server.write_url, world.runs)
            stack.callback(store.close)
        yield Demo(workload, server, parts, Replay(world, parts, store, console=console, watch=watch))


def _setting(policy: Policy, workload: workloads.NamedWorkload, *, real_server: bool) -> Setting:
    return Setting.of(
        policy,
        real=(
            f"the traces: {workload.describe().splitlines()[0]}",
            "the metrics server: Prometheus" if real_server else "the metrics page, scraped without Prometheus",
        ),
        simulated=("the cluster and its scheduler (the reference scheduler)", "the clock"),
    )
