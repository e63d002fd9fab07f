"""A metrics source in memory for what no real server does on demand: refuse some questions, warn, fail, differ."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tuner.errors import TunerError
from tuner.observe.promql import NEWEST_LABEL, VALUE_LABEL
from tuner.observe.source import Answer, Series
from tuner.values.stages import FloatArray

_ROW = re.compile(rf'\((?P<expression>[^()]*)\n\), "{VALUE_LABEL}", "(?P<name>[^"]+)"')
_AGE = re.compile(rf'"{NEWEST_LABEL}", "([^"]+)"')


Values: TypeAlias = float | Callable[[FloatArray], FloatArray]
"""Value of a series: always the same, or made of the times."""


@dataclass
class ScriptedSource:
    """Knows expressions that are plain names, alone or fused.

    Attributes:
        values: Value of each name; or the values by node, where it has several series.
        refusals: Errors by the name that provokes them, wherever it stands in a query.
        newest_at: Time of the newest sample by name; the time of asking where nothing is said.
        fuses: Whether it takes PromQL.
        warnings, duplicates, clock_offset_seconds: What its answers say.
        asked: Every question, as ("instant" or "range", names, first time, last time).
    """

    values: dict[str, Values | Mapping[str, Values]]
    refusals: dict[str, TunerError] = field(default_factory=dict)
    newest_at: dict[str, float] = field(default_factory=dict)
    fuses: bool = True
    warnings: tuple[str, ...] = ()
    duplicates: int = 0
    clock_offset_seconds: float = float("nan")
    asked: list[tuple[str, tuple[str, ...], float, float]] = field(default_factory=list)

    def instant(self, expression: str, *, at_seconds: float) -> Answer:
        return self._answer("instant", expression, np.array([at_seconds]))

    def range(self, expression: str, *, start_seconds: float, end_seconds: float, step_seconds: float) -> Answer:
        return self._answer("range", expression, np.arange(start_seconds, end_seconds + 1e-6, step_seconds))

    def _answer(self, kind: str, expression: str, times: FloatArray) -> Answer:
        rows = [(match["name"], match["expression"]) for match in _ROW.finditer(expression)]
        bare = not rows
        rows = rows or [(expression, expression)]
        self.asked.append((kind, tuple(name for name, _ in rows), float(times[0]), float(times[-1])))
        for _, text in rows:
            if text in self.refusals:
                raise self.refusals[text]
        series = [
            Series({**labels, **({} if bare else {VALUE_LABEL: name})}, times, values)
            for name, text in rows
            for labels, values in self._series(text, times)
        ]
        names = dict(rows)
        for name in _AGE.findall(expression):
            newest = self.newest_at.get(names[name], times[0])
            if not np.isnan(newest):
                series.append(Series({NEWEST_LABEL: name}, times, np.full(len(times), newest)))
        return Answer(
            series=tuple(series),
            warnings=self.warnings,
            duplicates=self.duplicates,
            bytes_read=100,
            clock_offset_seconds=self.clock_offset_seconds,
        )

    def _series(self, text: str, times: FloatArray) -> list[tuple[dict[str, str], FloatArray]]:
        known = self.values.get(text, {})
        by_node = known if isinstance(known, Mapping) else {"": known}
        return [
            ({"node": node} if node else {}, value(times) if callable(value) else np.full(len(times), value))
            for node, value in by_node.items()
        ]
