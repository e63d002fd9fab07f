"""A store of metrics that speaks Prometheus's API, and may say anything but the truth.

It knows the series of the planted cluster by their names, and of PromQL the forms in which the tuner sends a question
whose query is such a name.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs

import numpy as np

from tuner.chaos.plant import PlantedSource
from tuner.chaos.wire import Reply, Request
from tuner.observe.promql import NEWEST_LABEL, VALUE_LABEL
from tuner.observe.source import Series

_AGE: Final = re.compile(rf'label_replace\(\(min\(.*?"{NEWEST_LABEL}", "([^"]+)", "", ""\)', re.DOTALL)
_ROW: Final = re.compile(rf'label_replace\(\((.*?)\n\), "{VALUE_LABEL}", "([^"]+)", "", ""\)', re.DOTALL)
_NAME: Final = re.compile(r"reference_\w+")
_AHEAD: Final = "max_over_time(timestamp("
"""By this the tuner asks whether samples lie in the future."""


@dataclass(slots=True)
class Store:
    """Answers queries.

    Attributes:
        planted: The cluster.
        bend: Makes something else of a right answer.
        told: Makes something else of a value, given the name of its series.
        warnings: What every answer says against itself.
        labels: Further labels of every series: those of somebody else's cluster.
        twice: Whether every series comes a second time under other labels.
        silent: Names of series that are not there.
        asked: Requests so far.
    """

    planted: PlantedSource
    bend: Callable[[Reply], Reply] = lambda reply: reply
    told: Callable[[str, float], float] = lambda _, value: value
    warnings: tuple[str, ...] = ()
    twice: bool = False
    silent: frozenset[str] = field(default_factory=frozenset)
    asked: int = 0

    def answer(self, request: Request) -> Reply:
        """Answer one request, rightly or as told."""
        self.asked += 1
        asked = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        many = request.path.startswith("/api/v1/query_range")
        start = float(asked["start" if many else "time"])
        times = np.arange(start, float(asked["end"]) + 1e-6, float(asked["step"])) if many else np.array([start])
        data = {"resultType": "matrix" if many else "vector", "result": self._result(asked["query"], times, many=many)}
        document: dict[str, Any] = {"status": "success", "data": data}
        if self.warnings:
            document["warnings"] = list(self.warnings)
        body = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
        return self.bend(Reply(body=body, headers={"Content-Type": "application/json"}))

    def _result(self, query: str, times: np.ndarray, *, many: bool) -> list[dict[str, Any]]:
        if _AHEAD in query:
            return []
        rows = _ROW.findall(_AGE.sub("", query))
        found = [
            _document({**each.labels, VALUE_LABEL: name}, each.times_seconds, values, many=many)
            for text, name in rows
            for each, values in self._read(text, times)
        ]
        known = {name for text, name in rows if any(True for _ in self._read(text, times))}
        found += [
            _document({NEWEST_LABEL: name}, times, times, many=many) for name in _AGE.findall(query) if name in known
        ]
        if rows:
            return found
        return [
            _document(each.labels, each.times_seconds, values, many=many) for each, values in self._read(query, times)
        ]

    def _read(self, text: str, times: np.ndarray) -> list[tuple[Series, np.ndarray]]:
        """Return the series that an expression names, with the values that are told of them."""
        named = _NAME.search(text)
        if named is None or named.group() in self.silent:
            return []
        name = named.group()
        if len(times) == 1:
            answer = self.planted.instant(name, at_seconds=float(times[0]))
        else:
            start, end, step = float(times[0]), float(times[-1]), float(times[1] - times[0])
            answer = self.planted.range(name, start_seconds=start, end_seconds=end, step_seconds=step)
        found = [(each, np.array([self.told(name, float(value)) for value in each.values])) for each in answer]
        if self.twice:
            found += [
                (Series({**each.labels, "cluster": "other"}, each.times_seconds, each.values), values * 40)
                for each, values in found
            ]
        return found


def _document(labels: Any, times: np.ndarray, values: np.ndarray, *, many: bool) -> dict[str, Any]:  # noqa: ANN401 - A mapping of labels.
    samples = [[at, _text(value)] for at, value in zip(times.tolist(), values.tolist(), strict=True)]
    return {"metric": dict(labels), **({"values": samples} if many else {"value": samples[0]})}


def _text(value: float) -> str:
    """Return a number as Prometheus writes it."""
    if np.isnan(value):
        return "NaN"
    return repr(value) if np.isfinite(value) else ("+Inf" if value > 0 else "-Inf")
