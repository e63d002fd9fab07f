"""What happens in a scenario: cycles and ticks at simulated times, and what people and the cluster do between them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tuner import wiring
from tuner.apply.exchange import exchange
from tuner.chaos.plant import PlantedSource, planted_search
from tuner.chaos.policy import CYCLE_SECONDS, eager
from tuner.chaos.scheduler import PERSON
from tuner.control import spool
from tuner.control.orders import Order, OrderKind, new_id
from tuner.demo.world import START_AT_SECONDS
from tuner.values.knobs import Role

TICK_SECONDS: Final = 15.0
_LATENCY: Final = "reference_recent_scheduling_latency_seconds"


@dataclass(slots=True)
class Stage:
    """One tuner at work in a scenario.

    Attributes:
        parts: The tuner.
        source: What it sees.
        url: Where the settings are.
        now: Unix seconds.
        decisions: What was decided so far.
    """

    parts: wiring.Parts
    source: PlantedSource
    url: str
    now: float
    decisions: list[str] = field(default_factory=list)

    def cycles(self, count: int) -> None:
        """Let periods pass, each with a cycle."""
        for _ in range(count):
            self.now += CYCLE_SECONDS
            self.decisions.append(self.parts.cycle.run(at_seconds=self.now).decision)

    def until(self, *decisions: str, most: int = 40) -> None:
        """Run cycles until one decides so."""
        for _ in range(most):
            self.cycles(1)
            if self.decisions[-1] in decisions:
                return

    def ticks(self, count: int) -> None:
        """Let short times pass, each with a guard tick."""
        for _ in range(count):
            self.now += TICK_SECONDS
            self.decisions += [record.decision for record in self.parts.guard.tick(at_seconds=self.now)]

    def edit(self, **changes: object) -> None:
        """Set the scheduler as a person would."""
        document = json.loads(exchange("GET", self.url, timeout_seconds=10, headers={}, body=None).body)
        body = json.dumps({**document, **changes}, allow_nan=False).encode()
        exchange("PUT", self.url, timeout_seconds=10, headers={"If-Match": "*", PERSON: "yes"}, body=body)

    def order(self, kind: OrderKind) -> None:
        """Leave an order as the command line does."""
        folder = spool.folder_of(Path(self.parts.policy.journal.path))
        order = Order(order_id=new_id(self.now), kind=kind, at_seconds=self.now, by="alice")
        spool.leave(folder, order)


def _promote(stage: Stage) -> None:
    stage.source.effect_ratio = 0.93  # Little enough that several pairs are needed, and the settings switch.
    stage.until("promote", "keep", "roll_back")


def _undo(stage: Stage) -> None:
    stage.source.effect_ratio = 3.0
    stage.until("roll_back")


def _breaker(stage: Stage) -> None:
    stage.ticks(2)
    stage.source.shown[_LATENCY] = 9.0
    stage.ticks(8)
    del stage.source.shown[_LATENCY]
    stage.ticks(30)


def _drift(stage: Stage) -> None:
    stage.ticks(2)
    stage.edit(base_slice_seconds=4.9)
    stage.ticks(2)
    stage.edit(reservation_ratio=0.23)
    stage.ticks(2)
    stage.cycles(1)


def _orders(stage: Stage) -> None:
    stage.ticks(1)
    stage.edit(reservation_ratio=0.22)
    stage.ticks(1)
    stage.order(OrderKind.PAUSE)
    stage.ticks(1)
    stage.order(OrderKind.DRILL)
    stage.ticks(1)
    stage.order(OrderKind.ROLL_BACK)
    stage.ticks(1)
    stage.order(OrderKind.RESUME)
    stage.ticks(1)


SCENARIOS: Final[Mapping[str, Callable[[Stage], None]]] = {
    "promote": _promote,
    "undo": _undo,
    "breaker": _breaker,
    "drift": _drift,
    "orders": _orders,
}
"""A good change from its first write to its promotion; a bad one to its end; the latency breaker; settings that are not
as they were left; people's orders."""


def open_stage(journal: Path, url: str, *, started_at: float = START_AT_SECONDS) -> Stage:
    """Return a tuner with real journal, writer, actuator and guard, before a planted cluster."""
    policy = eager(journal, source={"kind": "scrape", "url": "http://127.0.0.1:9/metrics"}, actuator={"url": url})
    reader = wiring.actuator_of(policy)
    source = PlantedSource(slice_seconds=lambda: reader.read().knobs.get(Role.BASE_SLICE, 0.0))
    parts = wiring.assemble(policy, source=source, clock=None, planted=planted_search)
    return Stage(parts=parts, source=source, url=url, now=started_at)
