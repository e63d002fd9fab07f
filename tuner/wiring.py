"""The composition root: one place knows which classes stand behind the ports, and puts the loop together."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tuner import logs
from tuner.apply.actuator import Actuator
from tuner.apply.http import HttpActuator
from tuner.apply.null import NoActuator
from tuner.control.permission import stop_reason
from tuner.cycle import Cycle
from tuner.forecast.stage import Forecasting
from tuner.guard import Guard
from tuner.judge.guards import GUARDS
from tuner.keeper import Keeper
from tuner.observe.glance import Glance, guard_policy
from tuner.observe.observer import Observer
from tuner.observe.source import Source
from tuner.people import People
from tuner.propose.scoring import Evaluate
from tuner.record.exporter import Exporter
from tuner.record.journal import Journal
from tuner.record.policy import save_policy
from tuner.record.setting import Setting, save_setting
from tuner.settings.model import HttpActuator as HttpActuatorSettings
from tuner.settings.model import Policy, TunerMode
from tuner.trying import Trying
from tuner.tuning import Search
from tuner.twin import model
from tuner.twin.calibration import STATE_NAME, Calibrator
from tuner.values.stages import Forecast
from tuner.writer import Writer


@dataclass(frozen=True, slots=True)
class Parts:
    """The loop, put together."""

    policy: Policy
    source: Source
    observer: Observer
    actuator: Actuator
    forecasting: Forecasting
    calibrator: Calibrator
    journal: Journal
    metrics: Exporter
    writer: Writer
    keeper: Keeper
    people: People
    cycle: Cycle
    guard: Guard

    def warm_up(self) -> None:
        """Compile the kernels, so that no cycle has to wait for them."""
        model.warm_up()

    def close(self) -> None:
        """Close the journal; the scheduler keeps its settings."""
        self.journal.close()


def assemble(
    policy: Policy,
    *,
    source: Source | None = None,
    actuator: Actuator | None = None,
    clock: Callable[[], float] | None = time.monotonic,
    stop: Callable[[], str] | None = None,
    planted: Search | None = None,
    evaluate: Evaluate = model.evaluate,
    forecasting: Forecasting | None = None,
    calibrator: Calibrator | None = None,
    trying: type[Trying] = Trying,
) -> Parts:
    """Put the loop together for a policy.

    Args:
        policy: What to look after, and how.
        source: Where to read, instead of what the policy says.
        actuator: What to write to, instead of what the policy says.
        clock: Monotonic seconds, for deadlines; None in replays, where budgets count trials so that a seed gives the
            same decisions on any machine.
        stop: Says why nothing at all may be written; the kill switch of the policy where absent.
        planted: What finds settings instead of a search, for a scenario; None to search.
        evaluate: The twin, instead of the one that is shipped.
        forecasting: The forecasting stage, instead of what the policy says.
        calibrator: What keeps the twin like the scheduler, instead of one that goes on with what the journal knows.
        trying: What tries changes out, instead of what is shipped.

    Raises:
        JournalError: The journal cannot be opened for writing.
    """
    watched = source or source_of(guard_policy(policy))
    source = source or source_of(policy)
    actuator = actuator or actuator_of(policy)
    observer = Observer(source, policy)
    forecasting = forecasting or Forecasting(policy.forecast, seed=policy.search.seed, clock=clock)
    journal = Journal(Path(policy.journal.path))
    calibrator = calibrator or _calibrator(journal)
    save_setting(journal, Setting.of(policy))
    save_policy(journal, policy)
    metrics = _exporter(policy)
    switch = stop or partial(stop_reason, policy.control, Path(policy.journal.path), os.environ)
    writer = Writer(actuator, journal, specs=policy.knob_specs(), mappings=policy.knobs, stop=switch, clock=clock)

    def on_trial() -> bool:
        return cycle.memory.on_trial is not None

    keeper = Keeper(policy, writer, journal, on_trial=on_trial)
    people = People(policy, actuator=actuator, writer=writer, journal=journal, metrics=metrics, on_trial=on_trial)
    cycle = Cycle(
        policy=policy,
        observer=observer,
        actuator=actuator,
        writer=writer,
        keeper=keeper,
        people=people,
        forecasting=forecasting,
        calibrator=calibrator,
        journal=journal,
        metrics=metrics,
        hand_over=_hand_over(policy, actuator),
        planted=planted,
        evaluate=evaluate,
        trying=trying,
        deadline_clock=clock,
    )
    guard = Guard(
        policy=policy,
        glance=Glance(watched, policy),
        actuator=actuator,
        writer=writer,
        keeper=keeper,
        people=people,
        journal=journal,
        metrics=metrics,
    )
    metrics.limits(
        {name: mapping.limit for name, mapping in policy.mapped_metrics.items() if mapping.limit is not None},
        latency_threshold_seconds=guard.threshold_seconds,
        changes_per_day=policy.control.max_changes_per_day,
    )
    if isinstance(actuator, HttpActuator) and writer.standing.knobs is not None:
        actuator.resume(writer.standing.knobs)
    return Parts(
        policy=policy,
        source=source,
        observer=observer,
        actuator=actuator,
        forecasting=forecasting,
        calibrator=calibrator,
        journal=journal,
        metrics=metrics,
        writer=writer,
        keeper=keeper,
        people=people,
        cycle=cycle,
        guard=guard,
    )


def _exporter(policy: Policy) -> Exporter:
    return Exporter(
        cluster=policy.cluster,
        policy=policy.name,
        specs=policy.knob_specs(),
        guards=[guard.__name__ for guard in GUARDS],
        mode=policy.mode.value,
        extra_labels=policy.source.labels,
    )


def _calibrator(journal: Journal) -> Calibrator:
    """Return a calibrator that goes on with what an earlier process learned; what cannot be read is learned anew."""
    stored = journal.load_state(STATE_NAME)
    if stored is None:
        return Calibrator()
    try:
        return Calibrator.from_json(stored)
    except ValueError as error:
        logs.get("wiring").warning("calibration_begins_anew", reason=str(error))
        return Calibrator()


def source_of(policy: Policy) -> Source:
    """Return the source that a policy names."""
    if policy.source.kind == "scrape":
        from tuner.observe.scrape import ScrapeSource

        return ScrapeSource(policy.source)
    from tuner.observe.prometheus import PrometheusSource

    return PrometheusSource(policy.source)


def actuator_of(policy: Policy) -> Actuator:
    """Return the actuator that a policy names."""
    if isinstance(policy.actuator, HttpActuatorSettings):
        return HttpActuator(policy.actuator, policy.knobs)
    return NoActuator(policy.knobs)


def _hand_over(policy: Policy, actuator: Actuator) -> Callable[[Forecast], None] | None:
    # A forecast changes what the scheduler does: only a tuner that may act hands one over.
    acts = policy.mode is TunerMode.AUTO
    if acts and isinstance(actuator, HttpActuator) and isinstance(policy.actuator, HttpActuatorSettings):
        return actuator.send_forecast if policy.actuator.forecast_url else None
    return None
