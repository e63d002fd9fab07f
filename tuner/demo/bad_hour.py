"""The bad hour: what clocktuner does when things go wrong, in a second, smaller story of its own.

Five things happen to a scheduler on a made-up load: a person edits a setting, somebody writes garbage into another,
clocktuner itself is made to try a harmful change, a surge outruns the scheduler's decisions, and most nodes fail.
Scheduler page, remote write, PromQL, writer, guard and cycle are those of the demonstration; only the load, the failure
and the harmful proposal are planted.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console

from tuner import serving, wiring
from tuner.demo import incidents, lockstep, trouble, view
from tuner.demo.policy import demo_policy
from tuner.demo.prometheus_server import PrometheusServer
from tuner.demo.replay import CYCLE_SECONDS, Stopwatch
from tuner.demo.store import Store
from tuner.demo.story import KEY, TICK_SECONDS, Story, harmful, load
from tuner.demo.world import START_AT_SECONDS, open_run
from tuner.record.report import write_report
from tuner.record.setting import Setting, save_setting
from tuner.reference.settings import ClockSettings
from tuner.settings.model import Policy
from tuner.values.knobs import Role

BREAKER_SECONDS: Final = 6.0
"""Scheduling latency at which the breaker counts: twice what a change may lead to, so that a harmful change is found by
its comparison, as it is meant to be, and not by the breaker."""

FATE_SEED: Final = 1
"""Seed of the scheduler's physics, whatever the seed of the demonstration: the accidents are made up to its size."""

START: Final = ClockSettings()


@contextmanager
def opened(
    *,
    output: Path,
    seed: int,
    hours: float,
    server: PrometheusServer | None,
    console: Console,
    watch: Stopwatch,
) -> Iterator[Story]:
    """Put the story together, and take it apart again, whatever happens.

    Args:
        output: Folder of the journal, which begins anew.
        seed: Seed of the load and of the searches.
        hours: Hours that were replayed before; its time goes on from there, as a Prometheus demands.
        server: Where samples are written to and read from; None to scrape the scheduler's own page.
        console: Where the story is told.
        watch: Counts where the time goes.
    """
    origin = START_AT_SECONDS + round(hours * 3600 / CYCLE_SECONDS) * CYCLE_SECONDS
    with ExitStack() as stack:
        run = open_run(KEY, "the bad hour", trouble.hall(), load(seed), START, seed=FATE_SEED)
        page = serving.start(lockstep.application(run, START, origin_seconds=origin), listen="127.0.0.1:0")
        stack.callback(page.stop)
        policy = bad_policy(page.url, server.url if server else None, output=output, seed=seed)
        parts = wiring.assemble(policy, clock=None, planted=harmful)
        stack.callback(parts.close)
        save_setting(parts.journal, _setting(policy, real_server=server is not None))
        store = None
        if server is not None:
            store = Store(server.write_url, {KEY: run}, origin_seconds=origin)
            stack.callback(store.close)
        yield Story(run, parts, store, origin_seconds=origin, console=console, watch=watch)


def bad_policy(page_url: str, prometheus_url: str | None, *, output: Path, seed: int) -> Policy:
    """Return the demonstration's policy, with a knob that is far too wide, and a guard with a minute's sight."""
    policy = demo_policy(page_url, prometheus_url, run=KEY, journal=output / "bad-hour.sqlite", seed=seed)
    period = policy.knobs[Role.DECISION_PERIOD].model_copy(update={"low": 0.5, "high": 30.5, "step": 0.5, "slew": 30.0})
    breaker = policy.guard.latency_breaker.model_copy(update={"threshold_seconds": BREAKER_SECONDS})
    changed = {
        "knobs": {**policy.knobs, Role.DECISION_PERIOD: period},
        "guard": policy.guard.model_copy(update={"period_seconds": TICK_SECONDS, "latency_breaker": breaker}),
        "cycle": policy.cycle.model_copy(update={"max_searches": 1}),
        "verify": policy.verify.model_copy(update={"min_samples": 2}),
    }
    return Policy.model_validate(policy.model_copy(update=changed).model_dump(exclude_unset=False))


def _setting(policy: Policy, *, real_server: bool) -> Setting:
    return Setting.of(
        policy,
        real=("the metrics server: Prometheus" if real_server else "the metrics page, scraped without Prometheus",),
        simulated=(
            "the load and all that goes wrong: made up",
            "the harmful change: planted",
            "the cluster and its scheduler (the reference scheduler)",
            "the clock",
        ),
    )


def show(
    *,
    output: Path,
    seed: int,
    hours: float,
    server: PrometheusServer | None,
    console: Console,
) -> None:
    """Tell the story, print what was done in a table, and write its report; see `opened` for the arguments."""
    watch = Stopwatch()
    size = f"{trouble.hall().gpus} accelerators"
    console.print(f"\n[bold]A bad hour[/]: a scheduler of its own with {size}, load and accidents made up")
    with opened(
        output=output,
        seed=seed,
        hours=hours,
        server=server,
        console=console,
        watch=watch,
    ) as story:
        rows = story.play()
        with watch.at("report"):
            report = write_report(
                story.parts.journal, output / "bad-hour.html", title="What clocktuner did in a bad hour"
            )
        journal = story.parts.journal.path
    console.print(incidents.table(rows))
    console.print(f"time by stage: {view.stage_times(watch.seconds)}", highlight=False)
    console.print(f"journal: {journal} (try: clocktuner history --journal {journal})")
    console.print(f"[bold]report of the bad hour: {report}[/]")
