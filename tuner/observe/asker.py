"""Asks many questions in few queries, and finds the ones that spoil it for the others.

All cluster-level questions travel in one fused query. Where the source refuses it, the questions are halved until the
wrong ones stand alone; those are reported, and tried again only now and then. What is known of them is kept from cycle
to cycle, so that a policy with several wrong expressions is understood after a few cycles at most.
"""

import math
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tuner.errors import QueryRejected, QueryTooLarge, SourceUnavailable
from tuner.observe.meter import MeteredSource
from tuner.observe.promql import NEWEST_LABEL, OR, VALUE_LABEL, fuse_row, newest_at
from tuner.observe.questions import Question
from tuner.observe.source import Answer, Series
from tuner.values.stages import Problem

MAX_EXPRESSION_LENGTH: Final = 12_000
"""Length of a fused expression; VictoriaMetrics takes 16,384 bytes."""

RETRY_CYCLES: Final = 5
"""How many cycles pass before a question that was refused, or cannot be fused, is tried again like any other."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one question was answered at one time.

    Attributes:
        series: Its series, one sample each.
        newest_at_seconds: Time of the newest sample that it reads, as far as is known; the time of asking where an
            expression does not let it be told; NaN where none was ever seen.
    """

    series: tuple[Series, ...]
    newest_at_seconds: float


class Asker:
    """Questions that are asked again and again."""

    def __init__(self, source: MeteredSource, questions: Sequence[Question], *, reserve: int) -> None:
        """Start with everything in one group, or each by itself where the source cannot fuse.

        Args:
            source: Where they are asked.
            questions: What is asked; names are unique.
            reserve: Requests of a cycle that are left to others.
        """
        self._source: Final = source
        self._reserve: Final = reserve
        self._now: Final = {each.name: each.current for each in questions}
        self._past: Final = {each.name: each.expression for each in questions}
        # Each with its label, ready to be joined.
        self._now_rows: Final = {name: fuse_row(name, text, age=True) for name, text in self._now.items()}
        self._past_rows: Final = {name: fuse_row(name, text) for name, text in self._past.items()}
        self._groups: list[list[str]] = [list(self._now)]
        self._aged: Final = {name for name, text in self._now.items() if newest_at(text)}
        self._newest_seen: dict[str, float] = {}
        self._alone: set[str] = set() if source.fuses else set(self._now)
        self._refused: dict[str, Problem] = {}
        self._rests: dict[str, int] = {}  # Cycles until one that is alone or refused is tried again.

    @property
    def refused(self) -> tuple[Problem, ...]:
        """Problems of the questions that the source refuses."""
        return tuple(self._refused.values())

    def instant(self, at_seconds: float, *, leave: Collection[str] = ()) -> dict[str, Reading]:
        """Ask everything at one time; questions that were not reached in this cycle are not in the answer.

        Args:
            at_seconds: Evaluation time, Unix seconds.
            leave: Names of questions that are not asked this time; what is known of them stays.

        Raises:
            SourceUnavailable: The source is down; what is known of the questions stays.
        """
        readings: dict[str, Reading] = {}
        queue = deque(self._due(leave))
        while queue and not self._exhausted:
            queue += self._read(queue.popleft(), at_seconds, readings)
        # What was left joins those again that it was known to get on with.
        sound, *others = ([name for name in group if name in leave] for group in self._groups)
        self._groups = [[*readings, *sound], *queue, *filter(None, others)]
        return readings

    def range(self, names: Sequence[str], *, start: float, end: float, step: float) -> dict[str, tuple[Series, ...]]:
        """Ask for the past of some questions.

        Raises:
            SourceUnavailable, QueryRejected, QueryTooLarge: See `Source`.
        """
        found: dict[str, tuple[Series, ...]] = {}
        for group in self._packed(names, self._past_rows):
            alone = group[0] in self._alone
            text = self._past[group[0]] if alone else OR.join(self._past_rows[name] for name in group)
            answer = self._source.range(text, start_seconds=start, end_seconds=end, step_seconds=step)
            found |= {group[0]: answer.series} if alone else _by_name(answer, VALUE_LABEL)
        return found

    @property
    def _exhausted(self) -> bool:
        return self._source.fuses and self._source.remaining <= self._reserve

    def _read(self, group: list[str], at_seconds: float, readings: dict[str, Reading]) -> list[list[str]]:
        """Ask a group; where it is refused, find the first question to blame by halving it.

        Returns:
            Groups that are still to be asked.
        """
        try:
            readings |= self._ask(group, at_seconds)
        except (QueryRejected, QueryTooLarge) as error:
            refusal: QueryRejected | QueryTooLarge = error
        else:
            return []
        suspects, rest = group, list[str]()
        while len(suspects) > 1:
            if self._exhausted:
                return [suspects, rest] if rest else [suspects]
            first, second = suspects[: len(suspects) // 2], suspects[len(suspects) // 2 :]
            try:
                readings |= self._ask(first, at_seconds)
            except (QueryRejected, QueryTooLarge) as error:
                suspects, rest, refusal = first, second + rest, error
            else:
                suspects = second
        return [each for each in (self._blame(suspects[0], refusal), rest) if each]

    def _due(self, leave: Collection[str]) -> Iterator[list[str]]:
        """Yield the groups to ask in this cycle, one question that has rested among them as if nothing were known."""
        self._rests = {name: cycles - 1 for name, cycles in self._rests.items()}
        rested = next((name for name, cycles in self._rests.items() if cycles <= 0), None)
        if rested is not None:
            self._acquit(rested)
            self._groups = [*([name for name in group if name != rested] for group in self._groups), [rested]]
        for group in self._groups:
            yield from self._packed([name for name in group if name not in leave], self._now_rows)

    def _packed(self, names: Sequence[str], rows: Mapping[str, str]) -> Iterator[list[str]]:
        """Yield groups whose fused expression is not too long, and by itself what cannot be fused."""
        group: list[str] = []
        length = 0
        for name in names:
            if name in self._alone:
                yield [name]
                continue
            if group and length + len(rows[name]) > MAX_EXPRESSION_LENGTH:
                yield group
                group, length = [], 0
            group.append(name)
            length += len(rows[name]) + len(OR)
        if group:
            yield group

    def _ask(self, group: Sequence[str], at_seconds: float) -> dict[str, Reading]:
        if group[0] in self._alone:
            values = {group[0]: self._source.instant(self._now[group[0]], at_seconds=at_seconds).series}
        else:
            answer = self._source.instant(OR.join(self._now_rows[name] for name in group), at_seconds=at_seconds)
            values = _by_name(answer, VALUE_LABEL)
            # A series that stopped has no newest sample any more, though a rate over its past goes on: what was seen
            # before is its age.
            for name, (newest,) in _by_name(answer, NEWEST_LABEL).items():
                self._newest_seen[name] = float(newest.values[-1])
        return {name: Reading(values.get(name, ()), self._newest(name, values.get(name, ()))) for name in group}

    def _newest(self, name: str, series: Sequence[Series]) -> float:
        if name in self._aged and name not in self._alone:
            return self._newest_seen.get(name, math.nan)
        return max((float(each.times_seconds[-1]) for each in series), default=math.nan)

    def _blame(self, name: str, error: QueryRejected | QueryTooLarge) -> list[str]:
        """Note that a question spoils every query that it is in; return it where it should be asked by itself."""
        if name not in self._alone:
            # It may be a scalar, which cannot be fused, or be spoilt by the question of its age.
            self._alone.add(name)
            self._rests[name] = RETRY_CYCLES
            return [name]
        self._refused[name] = Problem(name, label(error), str(error))
        self._rests[name] = RETRY_CYCLES
        return []

    def _acquit(self, name: str) -> None:
        """Forget what is held against a question."""
        self._refused.pop(name, None)
        self._rests.pop(name, None)
        if self._source.fuses:
            self._alone.discard(name)


def label(error: QueryRejected | QueryTooLarge | SourceUnavailable) -> str:
    """Return the reason under which a failed query is reported in an observation."""
    if isinstance(error, SourceUnavailable):
        return "unavailable"
    return "too_many_series" if isinstance(error, QueryTooLarge) else "rejected"


def _by_name(answer: Answer, label: str) -> dict[str, tuple[Series, ...]]:
    """Return the series of a fused answer by the name under a label."""
    found: dict[str, list[Series]] = {}
    for each in answer:
        if label in each.labels:
            found.setdefault(each.labels[label], []).append(each)
    return {name: tuple(series) for name, series in found.items()}
