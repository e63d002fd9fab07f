"""The observer: what is known of the cluster now, and what was known of it over the last day.

History is read once; afterwards each cycle asks only for what is new, so that its cost does not grow with the length
of the history. A cycle costs two fused queries, one for now and one for the new columns, and one for each metric that
is per node.

What is missing stays missing: no answer is ever turned into a zero, and what cannot be believed is left out and said.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from tuner.errors import QueryRejected, QueryTooLarge, SourceUnavailable
from tuner.observe import doubts
from tuner.observe.asker import Asker, Reading, label
from tuner.observe.belief import Problems, believable, combine, idle
from tuner.observe.meter import MAX_QUERIES, MeteredSource
from tuner.observe.progress import Progress
from tuner.observe.promql import selectors
from tuner.observe.questions import Question, Reduction, questions, unreadable
from tuner.observe.source import Source
from tuner.observe.window import Window, last_full_step
from tuner.settings.model import Policy
from tuner.values.metrics import METRIC_INDEX, metric_vector
from tuner.values.stages import STEP_SECONDS, Observation

NODE_COLUMNS: Final = 60
"""How much is kept a node: an hour, twice what the forecasters look back."""

HISTORY_COLUMNS: Final = 120
"""How much of the history is asked for at first: two hours; see `Progress`."""

FUTURE_SECONDS: Final = 86_400.0
"""How far ahead samples are looked for when there are no fresh ones: a server's clock may have been a day ahead."""

_UTILIZATION: Final = "accelerator_utilization_ratio"

_USED_UP: Final = f"its {MAX_QUERIES} queries are used up by finding out which expressions are refused"


@dataclass(frozen=True, slots=True)
class _Now:
    """Current value of one metric, NaN where there is none, and the age of its newest sample."""

    value: float
    age_seconds: float


class Observer:
    """Observes one cluster for one policy; call it with times that do not go back.

    The grid of its histories consists of full minutes. Its last column is the last full minute at or before the time
    of the observation: a minute that has not ended would be judged by part of its samples, and asked for again.
    """

    def __init__(self, source: Source, policy: Policy) -> None:
        """Prepare; nothing is asked yet.

        Raises:
            ConfigError: The policy names a node by what is no label.
        """
        self._policy: Final = policy
        self._source: Final = MeteredSource(source)
        self._questions: Final = questions(policy, fuses=source.fuses)
        self._unreadable: Final = unreadable(policy, fuses=source.fuses)
        self._node_questions: Final = tuple(each for each in self._questions if each.nodes)
        self._asker: Final = Asker(self._source, self._questions, reserve=1 + len(self._node_questions))
        names = [each.name for each in self._questions]
        self._history: Final = Window(math.ceil(policy.cycle.history_seconds / STEP_SECONDS), names=names)
        self._progress: Final = Progress(self._history, first_columns=HISTORY_COLUMNS)
        self._recent_columns: Final = max(1, round(policy.cycle.recent_window_seconds / STEP_SECONDS))
        self._nodes: Final = {each.name: Window(NODE_COLUMNS) for each in self._node_questions}
        self._node_progress: Final = {
            name: Progress(window, first_columns=NODE_COLUMNS) for name, window in self._nodes.items()
        }
        self._problems = Problems()

    @property
    def last_queries(self) -> int:
        """Requests that the last observation took."""
        return self._source.queries

    @property
    def last_bytes(self) -> int:
        """Bytes of answers that the last observation read."""
        return self._source.bytes_read

    @property
    def last_query_seconds(self) -> tuple[float, ...]:
        """Time of each query of the last observation."""
        return tuple(self._source.seconds)

    def observe(self, *, cycle_id: int, at_seconds: float) -> Observation:
        """Return what is known at a time; knobs, revision and mode are left to be filled in.

        Args:
            cycle_id: Number of the cycle.
            at_seconds: Evaluation time of every query, Unix seconds.

        Raises:
            SourceUnavailable: The source did not answer what is now. What it then fails to answer is a problem in the
                observation.
        """
        self._source.reset()
        self._problems = Problems()
        self._start(last_full_step(at_seconds))
        readings = self._asker.instant(at_seconds)
        doubts.of_questions(
            self._problems,
            self._asker,
            self._questions,
            answered=readings,
            unreadable=self._unreadable,
            unreached=f"not asked in this cycle: {_USED_UP}",
        )
        self._read_history(readings)
        self._read_nodes(readings)
        return self._tell(readings, cycle_id=cycle_id, at_seconds=at_seconds)

    def _start(self, end: float) -> None:
        """Move all windows to their new last column; where that lies back in time, read everything anew."""
        if end < self._history.end_at_seconds:
            for progress in (self._progress, *self._node_progress.values()):
                progress.forget()
        for window in (self._history, *self._nodes.values()):
            window.advance(end)

    def _read_history(self, readings: Mapping[str, Reading]) -> None:
        """Fill the history with what is new, and with older columns that are still unread."""
        window = self._history
        max_age_seconds = self._policy.cycle.max_age_seconds

        def ask(names: Sequence[str], start: float, end: float) -> None:
            found = self._asker.range(names, start=start, end=end, step=window.step_seconds)
            for question in self._questions:
                times, values = combine(found.get(question.name, ()), question, question.reduction, self._problems)
                if len(times):
                    # A rate goes on for its window after the last sample: later columns would only repeat it.
                    newest = readings[question.name].newest_at_seconds
                    values = np.where(times > newest + max_age_seconds, np.nan, values)
                    window.place(window.rows([question.name] * len(times)), times, values)

        reserve = len(self._node_questions)
        try:
            self._progress.read(list(readings), ask, may_ask=lambda: self._source.remaining > reserve)
        except (SourceUnavailable, QueryRejected, QueryTooLarge) as error:
            self._problems.add("source", label(error), f"history: {error}")

    def _read_nodes(self, readings: Mapping[str, Reading]) -> None:
        """Fill the windows of the metrics that are per node."""
        for question in self._node_questions:
            if question.name not in readings:
                continue
            if self._source.remaining == 0:
                self._problems.add(question.name, "unavailable", f"not asked per node: {_USED_UP}")
                continue
            progress = self._node_progress[question.name]
            ask = partial(self._read_node_metric, question)
            try:
                progress.read([question.name], ask, may_ask=lambda: self._source.remaining >= len(self._nodes))
            except (SourceUnavailable, QueryRejected, QueryTooLarge) as error:
                self._problems.add(question.name, label(error), f"per node: {error}")

    def _read_node_metric(self, question: Question, _names: Sequence[str], start: float, end: float) -> None:
        window = self._nodes[question.name]
        answer = self._source.range(
            question.nodes or "", start_seconds=start, end_seconds=end, step_seconds=window.step_seconds
        )
        named = [each for each in answer if question.node_label in each.labels]
        if len(named) < len(answer):
            detail = f"{len(answer) - len(named)} of {len(answer)} series have no label {question.node_label!r}"
            self._problems.add(question.name, "missing", detail)
        if not named:
            return
        nodes = [each.labels[question.node_label] for each in named]
        if len(set(nodes)) < len(nodes):
            detail = f"{len(nodes)} series for {len(set(nodes))} values of the label {question.node_label!r}"
            self._problems.add(question.name, "duplicate", detail)
        window.add_rows(nodes)
        samples = [len(each.times_seconds) for each in named]
        rows = np.repeat(window.rows(nodes), samples)
        values = believable(np.concatenate([each.values for each in named]), question, self._problems)
        window.place(rows, np.concatenate([each.times_seconds for each in named]), values)
        window.drop_empty_rows()

    def _tell(self, readings: Mapping[str, Reading], *, cycle_id: int, at_seconds: float) -> Observation:
        """Put the observation together."""
        newest = (each.tolist() for each in self._history.newest())
        past = dict(zip(self._history.names, zip(*newest, strict=True), strict=True))
        current = {
            each.name: self._now(each, readings.get(each.name), past[each.name], at_seconds) for each in self._questions
        }
        known = {name: now for name, now in current.items() if name in METRIC_INDEX}
        context = {name: now.value for name, now in current.items() if name not in known and not math.isnan(now.value)}
        metrics = {name: now.value for name, now in known.items()}
        if doubts.of_utilization(self._problems, metrics, context):
            metrics[_UTILIZATION] = math.nan
            self._history.forget(_UTILIZATION, self._recent_columns)
        coverage = dict(zip(self._history.names, self._history.coverage_ratio(self._recent_columns), strict=True))
        doubts.of_source(
            self._problems, self._source, max_clock_skew_seconds=self._policy.source.max_clock_skew_seconds
        )
        if not any(now.age_seconds <= self._policy.cycle.max_age_seconds for now in known.values()):
            self._look_ahead(at_seconds)
        return Observation(
            cycle_id=cycle_id,
            at_seconds=at_seconds,
            metrics=metric_vector(metrics),
            ages_seconds=metric_vector({name: now.age_seconds for name, now in known.items()}),
            coverage_ratio=np.nan_to_num(metric_vector({name: coverage[name] for name in known})),
            context=context,
            history=self._history.frame(),
            nodes={name: window.frame() for name, window in self._nodes.items()},
            problems=self._problems.all(),
            arriving=not idle(context, metrics),
        )

    def _now(self, question: Question, reading: Reading | None, past: tuple[float, float], at_seconds: float) -> _Now:
        """Return the newest value of a metric that is fresh, noting why there is none.

        Args:
            question: The metric.
            reading: What is now; None where it was not asked.
            past: Newest value of its history, and its time.
            at_seconds: Time of the observation.
        """
        problems = self._problems
        _, values = combine(reading.series if reading else (), question, question.current_reduction, problems)
        value = float(values[-1]) if len(values) else math.nan
        newest = reading.newest_at_seconds if reading else math.nan
        limit = self._policy.cycle.max_age_seconds
        stopped = not at_seconds - newest <= limit and bool(len(values) or not math.isnan(newest))
        if math.isnan(value) and question.current_reduction is not Reduction.MAX:
            # A lost scrape or a moment of NaN: the last good column stands in, as long as it is fresh.
            value, at = past
            newest = float(np.fmin(at, newest))
        age = at_seconds - newest
        if not age <= limit:
            value = math.nan
        # Context values may be missing: what does not run has no run time.
        if math.isnan(value) and question.name in METRIC_INDEX:
            doubts.of_age(problems, question, age, limit_seconds=limit, stopped=stopped)
        return _Now(value, age)

    def _look_ahead(self, at_seconds: float) -> None:
        """Where nothing is fresh, see whether samples lie in the future: then a clock has been wrong."""
        selector = next((found for each in self._questions for found in selectors(each.expression)), None)
        if selector is None or not self._source.fuses or self._source.remaining == 0:
            return
        span = f"{FUTURE_SECONDS:.0f}s:300s"  # Steps no wider than the lookback of Prometheus miss nothing.
        expression = f"max(max_over_time(timestamp({selector})[{span}]))"
        try:
            answer = self._source.instant(expression, at_seconds=at_seconds + FUTURE_SECONDS)
        except (SourceUnavailable, QueryRejected, QueryTooLarge):
            return  # It only explains what is wrong already.
        ahead = max((float(each.values[-1]) for each in answer), default=-math.inf) - at_seconds
        limit = self._policy.source.max_clock_skew_seconds
        if ahead > limit:
            detail = f"its newest sample lies {ahead:.0f} s in the future, over {limit:g} s"
            self._problems.add("source", "clock_skew", detail)
