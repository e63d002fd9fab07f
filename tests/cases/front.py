"""The reference scheduler behind a Prometheus that can be bent, over real HTTP, with the real loop beside it.

The front answers Prometheus's API from the scheduler's own page. It understands the few forms of PromQL that the tuner
sends for series that are asked for by their names; what it says can then be made wrong, one promise of a server at a
time.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pytest

from tests.loop.harness import Simulation, Wires, simulation_of
from tests.support.faulty import Handler, Request, answer, faulty_server
from tuner import assets, tuning
from tuner.apply.http import HttpActuator
from tuner.observe.prometheus import PrometheusSource
from tuner.observe.promql import NEWEST_LABEL, VALUE_LABEL
from tuner.observe.scrape import ScrapeSource
from tuner.observe.source import Series, Source
from tuner.propose.inputs import SearchInputs
from tuner.propose.planted import planted
from tuner.settings.loading import load_policy
from tuner.settings.model import SeriesMapping, SourceSettings
from tuner.values.knobs import Role
from tuner.values.stages import Proposal

QUEUE: Final = "reference_queue_length"
COMPLETED: Final = "reference_recent_tasks_completed_per_second"
LATENCY: Final = "reference_recent_scheduling_latency_seconds"
REMAINING: Final = "reference_running_remaining_seconds"
IDLE: Final = "reference_recent_resource_idle_ratio"
UTILIZATION: Final = "reference_recent_accelerator_utilization_ratio"
POWER: Final = "reference_node_power_watts"
WAITS: Final = ("reference_recent_queue_wait_seconds", "reference_recent_high_priority_wait_seconds")

EAGER: Final = {"cooldown_seconds": 300, "context_shift": 0.0, "min_gain_ratio": 0.0, "min_fidelity_ratio": 0.0}
"""Cycle settings with which the tuner acts on whatever it finds."""

_AGE: Final = re.compile(rf'label_replace\(\(min\(.*?"{NEWEST_LABEL}", "([^"]+)", "", ""\)', re.DOTALL)
_ROW: Final = re.compile(rf'label_replace\(\((.*?)\n\), "{VALUE_LABEL}", "([^"]+)", "", ""\)', re.DOTALL)
_MEAN_OR_MAX: Final = re.compile(r"(avg|max)\(\((\w+)\n\) > -Inf < \+Inf\)")
_BY_NODE: Final = re.compile(r"(?:avg|max) by \(\w+\) \((\w+)\n\)")
_AHEAD: Final = "max_over_time(timestamp("

Told: TypeAlias = str | Callable[[float], str] | None
"""What is said instead of the truth: always the same, nothing at all, or made of the time."""


class Front:
    """A server that speaks Prometheus's API.

    Attributes:
        url: Where it listens.
        page: Where it reads; None answers nothing.
        told: Values that it tells instead of the true ones, by the name of the series.
        status: Status with which it answers everything; 200 for the truth.
        refused: Names of series that it takes for a wrong query.
        empty: Whether every answer is a success without any series.
        flood: Name of a series that it gives once a job instead, and how many jobs there are.
        ahead_seconds: How far in the future its newest sample lies; NaN for none.
        clock_ahead_seconds: How far its clock is ahead.
        token: What must be shown to be let in; empty where everybody is.
    """

    def __init__(self) -> None:
        self.url = ""
        self.page: Source | None = None
        self.told: dict[str, Told] = {}
        self.status = 200
        self.refused: frozenset[str] = frozenset()
        self.empty = False
        self.flood: tuple[str, int] = ("", 0)
        self.ahead_seconds = float("nan")
        self.clock_ahead_seconds = 0.0
        self.token = ""

    def reply(self, handler: Handler, request: Request) -> None:
        """Answer one request."""
        if self.clock_ahead_seconds:
            told = partial(Handler.date_time_string, handler, time.time() + self.clock_ahead_seconds)
            handler.date_time_string = told  # type: ignore[method-assign]
        asked = request.body_parameters
        if self.token and handler.headers.get("Authorization") != f"Bearer {self.token}":
            answer(handler, 401, b"token expired")
        elif self.status != 200:
            answer(handler, self.status, b'{"status": "error", "errorType": "internal", "error": "out of order"}')
        elif any(name in asked["query"] for name in self.refused):
            answer(handler, 400, b'{"status": "error", "errorType": "bad_data", "error": "parse error"}')
        else:
            many = request.path.endswith("query_range")
            result = [] if self.empty else self._result(asked, many=many)
            document = {"status": "success", "data": {"resultType": "matrix" if many else "vector", "result": result}}
            answer(handler, 200, json.dumps(document, separators=(",", ":")).encode())

    def _result(self, asked: Mapping[str, str], *, many: bool) -> list[dict[str, Any]]:
        query = asked["query"]
        start = float(asked["start" if many else "time"])
        times = np.arange(start, float(asked["end"]) + 1e-6, float(asked["step"])) if many else np.array([start])
        if _AHEAD in query:
            at = start - 86_400 + self.ahead_seconds
            return [] if np.isnan(at) else [_series({}, times, [str(at)], many=many)]
        rows = _ROW.findall(_AGE.sub("", query))
        found = [
            _series({**labels, VALUE_LABEL: name}, times, values, many=many)
            for text, name in rows
            for labels, values in self._expression(text, times)
        ]
        found += [
            _series({NEWEST_LABEL: name}, times, [str(start)], many=many)
            for name in _AGE.findall(query)
            if any(self._expression(text, times) for text, row in rows if row == name)
        ]
        return found or [_series(labels, times, values, many=many) for labels, values in self._expression(query, times)]

    def _expression(self, text: str, times: np.ndarray) -> list[tuple[dict[str, str], list[str | None]]]:
        if reduced := _MEAN_OR_MAX.fullmatch(text):
            how, name = reduced.groups()
            columns = zip(*(values for _, values in self._read(name, times)), strict=True)
            merged = [_merged(column, how) for column in columns]
            return [({}, merged)] if any(value is not None for value in merged) else []
        by_node = _BY_NODE.fullmatch(text)
        return self._read(by_node.group(1) if by_node else text, times)

    def _read(self, name: str, times: np.ndarray) -> list[tuple[dict[str, str], list[str | None]]]:
        """Return labels and values of each series of a name, None where it has no sample."""
        if name == self.flood[0]:
            return [({"job_id": str(number)}, ["1"] * len(times)) for number in range(self.flood[1])]
        if self.page is None or not re.fullmatch(r"\w+", name):
            return []
        if len(times) == 1:
            series: Sequence[Series] = self.page.instant(name, at_seconds=float(times[0])).series
        else:
            step = float(times[1] - times[0])
            series = self.page.range(
                name, start_seconds=float(times[0]), end_seconds=float(times[-1]), step_seconds=step
            ).series
        found = []
        for each in series:
            labels = {label: value for label, value in each.labels.items() if label != "__name__"}
            known = dict(zip(each.times_seconds.tolist(), each.values.tolist(), strict=True))
            values = [
                self._told(name, at, known.get(at, np.nan if len(times) > 1 else each.values[-1])) for at in times
            ]
            if any(value is not None for value in values):
                found.append((labels, values))
        return found

    def _told(self, name: str, at_seconds: float, true: float) -> str | None:
        if name not in self.told:
            return None if np.isnan(true) else repr(float(true))
        told = self.told[name]
        return told(at_seconds) if callable(told) else told


def _series(
    labels: Mapping[str, str], times: np.ndarray, values: Sequence[str | None], *, many: bool
) -> dict[str, Any]:
    samples = [[at, value] for at, value in zip(times.tolist(), values, strict=True) if value is not None]
    return {"metric": dict(labels), **({"values": samples} if many else {"value": samples[0]})}


def _merged(column: Sequence[str | None], how: str) -> str | None:
    """Return the mean or the largest of the finite values of one time."""
    values = [float(text) for text in column if text is not None]
    finite = [value for value in values if np.isfinite(value)]
    if not finite:
        return None
    return repr(max(finite) if how == "max" else sum(finite) / len(finite))


class _FusedWires(Wires):
    fuses = True  # type: ignore[misc]


class PrometheusSimulation(Simulation):
    """A scheduler with clocktuner beside it, which reads it through a Prometheus.

    Attributes:
        front: The Prometheus.
    """

    front: Front

    def _wire(self) -> Wires:
        policy = self.policy
        self.front = FRONTS[policy.source.url]
        self.front.page = ScrapeSource(SourceSettings(kind="scrape", url=f"{self.page_url}/metrics"))
        return _FusedWires(PrometheusSource(policy.source), HttpActuator(policy.actuator, policy.knobs))  # type: ignore[arg-type]

    def _scrape(self) -> None:
        assert self.front.page is not None
        self.front.page.instant(QUEUE, at_seconds=self.now)

    def exported(self, name: str, **labels: str) -> float | None:
        """Return a value of the tuner's own page; None where there is no such series."""
        common = {"cluster": self.policy.cluster, "policy": self.policy.name}
        return self.parts.metrics.registry.get_sample_value(f"clocktuner_{name}", {**common, **labels})


FRONTS: Final[dict[str, Front]] = {}
"""The running fronts by their URLs."""


@contextmanager
def watched_world(folder: Path, **sections: Any) -> Iterator[PrometheusSimulation]:
    """Run a scheduler with clocktuner beside it, which reads it through a front."""
    front = Front()
    with faulty_server(front.reply) as server:
        front.url = server.url
        FRONTS[server.url] = front
        try:
            source = {"kind": "prometheus", "url": server.url, "retries": 0}
            told = {"metrics": _by_name("metrics"), "context": _by_name("context"), "source": source}
            with simulation_of(PrometheusSimulation, folder, **{"cycle": EAGER, **told, **sections}) as world:
                yield world
        finally:
            del FRONTS[server.url]


def _by_name(section: str) -> dict[str, Any]:
    """Return the mappings of the shipped policy with plain names for queries."""
    policy = load_policy(assets.folder("policies") / "reference.yaml")
    mappings: Mapping[str, SeriesMapping] = getattr(policy, section)
    return {
        name: {**mapping.model_dump(mode="json", exclude_unset=True), "query": mapping.scrape or "no_such_series"}
        for name, mapping in mappings.items()
    }


def propose(monkeypatch: pytest.MonkeyPatch, **moves: float) -> Callable[..., Proposal]:
    """Let the search propose one setting, and promise wonders of it; returns that search."""

    def search(inputs: SearchInputs, **_: object) -> Proposal:
        wanted = {Role(role): value for role, value in moves.items()}
        return planted(inputs, wanted, score=-0.5, reason="planted by a test")

    monkeypatch.setattr(tuning, "search", search)
    return search
