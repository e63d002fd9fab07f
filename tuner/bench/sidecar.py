"""clocktuner in a replay: the real loop, with source and actuator in the same process instead of over the wire.

It reads what the shipped policy's queries would answer on a Prometheus that scrapes once a minute, rates and quantiles
over the policy's recent window, and nothing else; it writes settings, and hands its forecast over, as it does in life.
"""

import json
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from tuner import assets, wiring
from tuner.apply.actuator import Current
from tuner.apply.forecasts import forecast_document
from tuner.bench.observing import read
from tuner.bench.replays import MINUTE_SECONDS, WINDOW_SECONDS, Sidecar
from tuner.bench.tuners import Site
from tuner.demo.world import START_AT_SECONDS
from tuner.errors import ChangeConflicted
from tuner.forecast.stage import Forecasting
from tuner.observe.source import Answer, Series
from tuner.propose.scoring import Evaluate
from tuner.reference.documents import ReplayClock, forecast_of
from tuner.reference.scheduler import ReferenceScheduler
from tuner.reference.snapshot import Snapshot
from tuner.settings.loading import load_policy
from tuner.settings.model import Policy
from tuner.trying import Trying
from tuner.tuning import Search
from tuner.twin.calibration import Calibrator
from tuner.values.knobs import DESIGN_RANGES, KnobSpec, KnobValues, SchedulerMode
from tuner.values.metrics import MetricVector
from tuner.values.stages import Forecast, Step

LOOKBACK_SECONDS: Final = 300.0
"""How long a sample stands for later times, as in Prometheus."""

VERIFY_METHOD: Final = "switchback"
"""How changes are verified; the other one is `before_after`."""

_NODE_METRICS: Final[Mapping[str, Callable[[Snapshot, Snapshot], Sequence[float]]]] = {
    "accelerator_utilization_ratio": lambda before, now: np.minimum(
        (now.node_useful_seconds - before.node_useful_seconds)
        / (now.node_accelerators * (now.now_seconds - before.now_seconds)),
        1.0,
    ).tolist(),
    "node_temperature_celsius": lambda _, now: now.node_temperature_celsius.tolist(),
    "node_power_watts": lambda _, now: now.node_power_watts.tolist(),
}
"""The metrics that are per node: the values of each node, from snapshots a recent window apart."""


class MinuteSource:
    """Answers by the names of metrics and context values, from one snapshot a minute."""

    fuses: Final = False

    def __init__(self, *, window_seconds: float) -> None:
        """Begin with nothing.

        Args:
            window_seconds: What rates and quantiles are taken over.
        """
        self._snapshots: deque[Snapshot] = deque(maxlen=round(window_seconds / MINUTE_SECONDS) + 1)
        self._rows: dict[float, Mapping[str, Mapping[str, float]]] = {}
        self._newest = -np.inf

    def push(self, snapshot: Snapshot) -> None:
        """Take the snapshot of the next minute."""
        self._snapshots.append(snapshot)
        if len(self._snapshots) > 1:
            self._newest = START_AT_SECONDS + snapshot.now_seconds
            self._rows[self._newest] = _row(self._snapshots)

    def instant(self, expression: str, *, at_seconds: float) -> Answer:
        """Return the newest sample of each series at a time."""
        return self._answer(expression, [at_seconds], keep_time=True)

    def range(self, expression: str, *, start_seconds: float, end_seconds: float, step_seconds: float) -> Answer:
        """Return the newest sample at each step."""
        steps = int((end_seconds - start_seconds) / step_seconds + 1e-9) + 1
        return self._answer(expression, (start_seconds + step_seconds * np.arange(steps)).tolist(), keep_time=False)

    def _answer(self, name: str, times: Sequence[float], *, keep_time: bool) -> Answer:
        found: dict[str, tuple[list[float], list[float]]] = {}
        for at in times:
            sampled = min(at - (at - START_AT_SECONDS) % MINUTE_SECONDS, self._newest)
            if sampled <= at - LOOKBACK_SECONDS or sampled not in self._rows:
                continue
            for node, value in self._rows[sampled].get(name, {}).items():
                instants, values = found.setdefault(node, ([], []))
                instants.append(sampled if keep_time else at)
                values.append(value)
        series = tuple(
            Series({"node": node} if node else {}, np.array(instants), np.array(values))
            for node, (instants, values) in found.items()
        )
        return Answer(series=series, queries=0)


def _row(snapshots: Sequence[Snapshot]) -> Mapping[str, Mapping[str, float]]:
    """Return every value at the newest of some snapshots, by name and node; no node's name is the cluster's."""
    before, now = snapshots[0], snapshots[-1]
    row: dict[str, Mapping[str, float]] = {name: {"": value} for name, value in read(before, now).items()}
    # The policy averages what its window holds, which is what was scraped after the window began.
    allocated = float(np.mean([each.accelerators_allocated for each in list(snapshots)[1:]]))
    row["resource_idle_ratio"] = {"": 1.0 - allocated / now.accelerators}
    for name, values in _NODE_METRICS.items():
        row[name] = dict(zip(now.node_names, values(before, now), strict=True))
    return row


class DirectActuator:
    """Reads and writes the settings of a scheduler in the same process."""

    def __init__(self, scheduler: ReferenceScheduler) -> None:
        self._scheduler = scheduler
        self._revision = 0

    def read(self) -> Current:
        """Return the settings that were last asked for: they are in force when time goes on."""
        settings = self._scheduler.settings
        return Current(settings.knobs, settings.mode, str(self._revision), {})

    def await_effect(self, knobs: KnobValues, *, mode: SchedulerMode | None = None) -> Current:
        """Return what is in force: time stands still while the tuner thinks, so there is nothing to await."""
        del knobs, mode
        return self.read()

    def write(self, knobs: KnobValues, *, expected_revision: str | None, mode: SchedulerMode | None = None) -> Current:
        """Bring settings into force; see `Actuator`.

        Raises:
            ChangeConflicted: The revision is not the one in force.
            ChangeRejected: A value is outside the scheduler's limits.
        """
        current = self.read()
        if knobs.differs(current.knobs) or (mode is not None and mode is not current.mode):
            if expected_revision not in (None, current.revision):
                raise ChangeConflicted(f"the settings are at revision {current.revision}, not at {expected_revision}")
            settings = replace(self._scheduler.settings.with_knobs(knobs), mode=mode or current.mode)
            self._scheduler.configure(settings)
            self._revision += 1
        return self.read()


@dataclass(frozen=True, slots=True, kw_only=True)
class Instead:
    """What stands in for a part of the loop; the default is the product as it is shipped.

    Attributes:
        evaluate: The twin; None for the one that is shipped.
        forecasting: Class of the forecasting stage; None for the one that is shipped.
        source: Class of what the loop reads from.
        search: What finds settings; None for the search that is shipped.
        calibrator: Class of what keeps the twin like the scheduler; None for the one that is shipped.
        trying: What tries changes out; None for what is shipped.
    """

    evaluate: Evaluate | None = None
    forecasting: type[Forecasting] | None = None
    source: type[MinuteSource] = MinuteSource
    search: Search | None = None
    calibrator: type[Calibrator] | None = None
    trying: type[Trying] | None = None

    def parts(self, policy: Policy) -> Mapping[str, Any]:
        """Return what `wiring.assemble` is given instead of its own."""
        parts: dict[str, Any] = {"evaluate": self.evaluate, "planted": self.search, "trying": self.trying}
        if self.calibrator is not None:
            parts["calibrator"] = self.calibrator()
        if self.forecasting is not None:
            parts["forecasting"] = self.forecasting(policy.forecast, seed=policy.search.seed)
        return {name: part for name, part in parts.items() if part is not None}


class Clocktuner(Sidecar):
    """The product: its loop, with the shipped policy."""

    def __init__(self, site: Site, *, instead: Instead = Instead()) -> None:
        """Prepare a loop, which is put together when it meets its scheduler."""
        self._instead = instead
        self._folder = Path(tempfile.mkdtemp(prefix="clocktuner-bench-"))
        self._policy = policy_for(site, journal=self._folder / "journal.sqlite")
        self._source = instead.source(window_seconds=self._policy.cycle.recent_window_seconds)
        self._scheduler: ReferenceScheduler | None = None
        self._parts: wiring.Parts | None = None
        self._rollbacks = 0

    @property
    def rollbacks(self) -> int:
        """Changes that it undid because they did harm, or could not be shown not to."""
        return self._rollbacks

    @property
    def parts(self) -> wiring.Parts:
        """The loop, once it has met the scheduler.

        Raises:
            RuntimeError: It has not.
        """
        if self._parts is None:
            raise RuntimeError("the loop has not been attached to a scheduler")
        return self._parts

    def attach(self, scheduler: ReferenceScheduler) -> None:
        """Put the loop together."""
        self._scheduler = scheduler
        self._parts = wiring.assemble(
            self._policy,
            source=self._source,
            actuator=DirectActuator(scheduler),
            clock=None,
            **self._instead.parts(self._policy),
        )

    def watch(self, snapshot: Snapshot) -> None:
        """Scrape."""
        self._source.push(snapshot)

    def ask(self) -> KnobValues:
        """Run a cycle, and return what is in force after it."""
        scheduler, parts = self._scheduler, self.parts
        if scheduler is None:
            raise RuntimeError("the loop has not been attached to a scheduler")
        parts.forecasting.refit()
        record = parts.cycle.run(at_seconds=START_AT_SECONDS + scheduler.now_seconds)
        if record.forecast is not None:
            hand_over(record.forecast, scheduler)
        self._rollbacks += record.decision == Step.ROLL_BACK
        return scheduler.settings.knobs

    def tell(self, score: float, metrics: MetricVector) -> None:
        """Ignore: it reads for itself."""
        del score, metrics

    def close(self) -> None:
        """Close the journal, and remove it."""
        if self._parts is not None:
            self._parts.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def hand_over(forecast: Forecast, scheduler: ReferenceScheduler) -> None:
    """Give a forecast to a scheduler, in the form in which it travels over the wire."""
    body = json.dumps(forecast_document(forecast), allow_nan=False).encode()
    scheduler.set_forecast(forecast_of(body, clock=ReplayClock(origin_seconds=START_AT_SECONDS, speed=1.0)))


def policy_for(site: Site, *, journal: Path) -> Policy:
    """Return the shipped policy with the bounds of a site, read by names from a `MinuteSource`."""
    policy = load_policy(assets.folder("policies") / "reference.yaml")
    changed: dict[str, Any] = {
        "metrics": {name: each.model_copy(update={"scrape": name}) for name, each in policy.metrics.items()},
        "context": {name: each.model_copy(update={"scrape": name}) for name, each in policy.context.items()},
        "knobs": {spec.role: policy.knobs[spec.role].model_copy(update=_bounds(spec)) for spec in site.specs},
        "cycle": policy.cycle.model_copy(update={"period_seconds": WINDOW_SECONDS}),
        "search": policy.search.model_copy(update={"seed": site.seed}),
        "verify": policy.verify.model_copy(update={"method": VERIFY_METHOD}),
        "journal": policy.journal.model_copy(update={"path": str(journal)}),
    }
    return Policy.model_validate(policy.model_copy(update=changed).model_dump(exclude_unset=False))


def _bounds(spec: KnobSpec) -> Mapping[str, float]:
    """Return the bounds as a policy says them; nothing where they are the design's."""
    if spec == DESIGN_RANGES[spec.role]:
        return {}
    return {"low": spec.low, "high": spec.high, "step": spec.step, "slew": spec.slew}
