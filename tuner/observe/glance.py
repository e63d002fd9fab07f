"""The guard's eyes: the few metrics that say whether to step in at once, read in one query.

A glance is as cheap for 10,000 nodes as for ten, because the store reduces: one series a metric crosses the wire, and
one that tells the time of its newest sample, so that a sample which was seen before is not taken for news.

What the store has to evaluate node by node is not asked in every tick: at 10,000 nodes it takes most of its time.
Temperatures follow power with a lag of minutes, so the hottest node is asked for every half minute; in between, what
was seen last stands, with the time of its own sample, and grows stale like any other. A node that becomes too hot is
thus seen at most `SLOW_SECONDS` and one period of the guard after its sample came.
"""

import math
from collections.abc import Mapping
from typing import Final

from tuner.observe import asker, doubts
from tuner.observe.asker import Asker
from tuner.observe.belief import Problems, combine
from tuner.observe.meter import MAX_QUERIES, MeteredSource
from tuner.observe.questions import questions, unreadable
from tuner.observe.source import Source
from tuner.settings.model import Policy
from tuner.values.metrics import metric_vector
from tuner.values.safety import Reading
from tuner.values.stages import Problem

GUARDED: Final = (
    "scheduling_latency_seconds",
    "resource_idle_ratio",
    "task_abandonment_ratio",
    "node_temperature_celsius",
    "pending_demand_ratio",
    "high_priority_wait_seconds",
)
"""Metrics that are read, in catalogue order."""

SLOW: Final = frozenset({"node_temperature_celsius"})
"""Those of them that a store evaluates for each node, and that move slowly."""

SLOW_SECONDS: Final = 30.0
"""Longest time from one question about them to the next, half a window where that is shorter: a fraction of the one to
three minutes in which a heat sink follows the power (assumption, as in the reference scheduler)."""

MAX_AGE_WINDOWS: Final = 2.0
"""Oldest sample that is believed, in windows of the guard.

A window holds at least two scrapes, so the newest sample of a series that is alive is at most half a window old, and a
whole one after a failed scrape. The second window is for a slow store, or a clock that is a little off. Gauges, which
Prometheus goes on to show for five minutes, have been silent for three scrapes by then.
"""

DEADLINE_PERIODS: Final = 0.5
"""Time that a glance may take, in periods of the guard. No query is begun after it, and none takes longer, so that even
the search for a refused expression ends with the period."""


class Glance:
    """Reads the guarded metrics of one cluster; for one thread, with a source of its own."""

    def __init__(self, source: Source, policy: Policy) -> None:
        """Prepare; nothing is asked yet.

        Args:
            source: Where they are read: made for `guard_policy(policy)`, so that its deadline is that of a tick.
            policy: What to read, and `guard`.

        Raises:
            ConfigError: The policy names a node by what is no label.
        """
        seen = guard_policy(policy)
        self._source: Final = MeteredSource(source, max_seconds=seen.source.timeout_seconds)
        self._questions: Final = questions(seen, fuses=source.fuses)
        self._unreadable: Final = unreadable(seen, fuses=source.fuses)
        self._asker: Final = Asker(self._source, self._questions, reserve=0)
        self._slow_every_seconds: Final = min(SLOW_SECONDS, policy.guard.window_seconds / 2) if source.fuses else 0.0
        self._slow: Mapping[str, asker.Reading] = {}
        self._slow_at_seconds = math.nan
        self._last_asked = 0
        self._last_problems: tuple[Problem, ...] = ()
        self._max_age_seconds: Final = MAX_AGE_WINDOWS * policy.guard.window_seconds
        self._max_clock_skew_seconds: Final = policy.source.max_clock_skew_seconds
        self._unreached: Final = (
            f"not asked in this tick: its {MAX_QUERIES} queries or {seen.source.timeout_seconds:g} s are used up by "
            "finding out which expressions are refused"
        )

    @property
    def last_queries(self) -> int:
        """Requests that the last reading took."""
        return self._source.queries

    @property
    def last_asked(self) -> int:
        """Metrics that the last reading asked for; the others were carried over, or rest after a refusal."""
        return self._last_asked

    @property
    def last_problems(self) -> tuple[Problem, ...]:
        """What the last reading lacked, or did not believe."""
        return self._last_problems

    @property
    def last_bytes(self) -> int:
        """Bytes of answers that the last reading took."""
        return self._source.bytes_read

    @property
    def clock_offset_seconds(self) -> float:
        """Clock of the source less ours, as of the last reading; NaN where it did not tell."""
        return self._source.clock_offset_seconds

    def read(self, *, at_seconds: float) -> Reading:
        """Return what is known now.

        The newest sample of an expression whose age cannot be told, because it gives a scalar, counts as of
        `at_seconds`, or as of when it was last asked.

        Args:
            at_seconds: Evaluation time, Unix seconds.

        Raises:
            SourceUnavailable: The source did not answer.
        """
        self._source.reset()
        problems = Problems()
        answers = self._ask(at_seconds)
        doubts.of_questions(
            problems,
            self._asker,
            self._questions,
            answered=answers,
            unreadable=self._unreadable,
            unreached=self._unreached,
        )
        metrics: dict[str, float] = {}
        newest: dict[str, float] = {}
        limit = self._max_age_seconds
        for question in self._questions:
            if question.name not in answers:
                continue
            answer = answers[question.name]
            _, values = combine(answer.series, question, question.current_reduction, problems)
            age = at_seconds - answer.newest_at_seconds
            value = float(values[-1]) if len(values) and age <= limit else math.nan
            if math.isnan(value):
                stopped = not age <= limit and bool(len(values) or not math.isnan(age))
                doubts.of_age(problems, question, age, limit_seconds=limit, stopped=stopped)
            metrics[question.name], newest[question.name] = value, answer.newest_at_seconds
        doubts.of_source(problems, self._source, max_clock_skew_seconds=self._max_clock_skew_seconds)
        self._last_problems = problems.all()
        return Reading(
            at_seconds=at_seconds,
            metrics=metric_vector(metrics),
            newest_at_seconds=metric_vector(newest),
            problems=self._last_problems,
        )

    def _ask(self, at_seconds: float) -> dict[str, asker.Reading]:
        """Ask what is due, and return it with what is carried over."""
        since = at_seconds - self._slow_at_seconds  # Negative where the clock was set back.
        due = not self._slow or not 0 <= since < self._slow_every_seconds
        carried = {} if due else self._slow
        answers = self._asker.instant(at_seconds, leave=carried.keys())
        self._last_asked = len(answers)
        if due:
            # What gave nothing is not carried over: it is asked again in the next tick.
            self._slow = {name: answers[name] for name in SLOW & answers.keys() if answers[name].series}
            self._slow_at_seconds = at_seconds
        return {**answers, **carried}


def guard_policy(policy: Policy) -> Policy:
    """Return a policy as the guard sees it: its metrics, its window, and a deadline that keeps its pace."""
    timeout_seconds = min(policy.source.timeout_seconds, DEADLINE_PERIODS * policy.guard.period_seconds)
    changed = {
        "metrics": {name: policy.metrics[name] for name in GUARDED if name in policy.metrics},
        "context": {},
        "source": policy.source.model_copy(update={"timeout_seconds": timeout_seconds}),
        "cycle": policy.cycle.model_copy(update={"recent_window_seconds": policy.guard.window_seconds}),
    }
    return policy.model_copy(update=changed)
