"""What `clocktuner check` tells: whether a policy fits the cluster that it is meant for.

Every query is asked once and every knob read once; nothing is written. Each row says what was found and, where that is
not right, what to do. The check passes unless a row failed: warnings are for people to judge.
"""

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from tuner.apply.actuator import Actuator, Current
from tuner.apply.native import get_path
from tuner.check_report import CheckReport, Row, Status, render
from tuner.errors import ActuatorUnavailable, SourceUnavailable, TunerError
from tuner.observe.promql import newest_at, selectors
from tuner.observe.source import Answer, Source
from tuner.settings.expansion import expand
from tuner.settings.model import HttpActuator, MetricMapping, NoActuator, Policy, SeriesMapping
from tuner.values.knobs import KnobSpec, Role
from tuner.values.metrics import METRICS, MetricSpec

__all__ = ["CheckReport", "Row", "Status", "check", "render"]

MAX_UNANSWERED: Final = 2
"""Queries without an answer, one after another, after which the source counts as down and is asked no more."""

MAX_NAMED: Final = 3
"""How many nodes or selectors a message names."""


def check(policy: Policy, source: Source, actuator: Actuator, *, at_seconds: float) -> CheckReport:
    """Ask every query and read every knob of a policy.

    Args:
        policy: What to check.
        source: Where metrics are read.
        actuator: Where settings are read; nothing is written.
        at_seconds: Evaluation time of every query.
    """
    inquiry = _Inquiry(policy, source, at_seconds)
    metrics = tuple(inquiry.metrics())
    context = tuple(inquiry.context())
    return CheckReport((*inquiry.source_rows(), *_score(policy), *metrics, *context, *_settings(policy, actuator)))


class _Inquiry:
    """The queries of one check, and what they tell of the source itself."""

    def __init__(self, policy: Policy, source: Source, at_seconds: float) -> None:
        self._policy = policy
        self._source = source
        self._at_seconds = at_seconds
        self._unanswered = 0
        self._silence = ""
        self._clock_offset_seconds = math.nan
        self._warnings: dict[str, None] = {}

    def source_rows(self) -> Iterator[Row]:
        """Say how the source did; to be asked last."""
        settings = self._policy.source
        name = f"{settings.kind} {settings.url.rpartition('@')[2]}"
        if self._unanswered >= MAX_UNANSWERED:
            yield Row(area="source", name=name, status=Status.FAILED, detail=_with_remedy(self._silence))
        elif abs(self._clock_offset_seconds) > settings.max_clock_skew_seconds:
            limit = settings.max_clock_skew_seconds
            detail = f"its clock is {self._clock_offset_seconds:+.0f} s off ours, over {limit:g} s: set both by NTP"
            yield Row(area="source", name=name, status=Status.FAILED, detail=detail)
        elif self._warnings:
            detail = "it warns: " + "; ".join(self._warnings)
            yield Row(area="source", name=name, status=Status.WARNING, detail=detail)
        else:
            yield Row(area="source", name=name, status=Status.OK)

    def metrics(self) -> Iterator[Row]:
        for spec in METRICS:
            mapping = self._policy.metrics.get(spec.name)
            if mapping is None:
                yield Row(area="metrics", name=spec.name, status=Status.ABSENT, detail="optional, and not mapped")
            elif mapping.absent is not None:
                yield Row(area="metrics", name=spec.name, status=Status.ABSENT, detail=mapping.absent)
            else:
                yield self._row("metrics", spec.name, mapping, spec)

    def context(self) -> Iterator[Row]:
        for name, mapping in self._policy.context.items():
            yield self._row("context", name, mapping, None)

    def _row(self, area: str, name: str, mapping: SeriesMapping, spec: MetricSpec | None) -> Row:
        def failed(detail: str) -> Row:
            return Row(area=area, name=name, status=Status.FAILED, detail=detail)

        expression = expand(mapping.query if self._source.fuses else mapping.scrape or "", self._policy)
        if not expression:
            missing = Status.FAILED if spec else Status.WARNING
            detail = "names no series to scrape, and the source takes no PromQL: set scrape"
            return Row(area=area, name=name, status=missing, detail=detail)
        try:
            answer = self._ask(expression)
            if not len(answer):
                status, detail = self._why_empty(expression, optional=spec is None)
                return Row(area=area, name=name, status=status, detail=detail, unit=_unit(name, spec), series=0)
            age_seconds = self._age(expression, answer)
        except SourceUnavailable as error:
            return failed(str(error))
        except TunerError as error:
            return failed(f"{error}; correct the {'query' if self._source.fuses else 'scrape'}")
        status, detail = self._judge(answer, mapping, spec, age_seconds)
        values = [series.values[-1] * mapping.scale for series in answer]
        return Row(
            area=area,
            name=name,
            status=status,
            detail=detail,
            value=float(sum(values) / len(values)),
            unit=_unit(name, spec),
            series=len(answer),
            age_seconds=age_seconds,
        )

    def _ask(self, expression: str) -> Answer:
        if self._unanswered >= MAX_UNANSWERED:
            raise SourceUnavailable("not asked: the source does not answer")
        try:
            answer = self._source.instant(expression, at_seconds=self._at_seconds)
        except SourceUnavailable as error:
            self._unanswered += 1
            self._silence = str(error)
            raise
        self._unanswered = 0
        self._warnings.update(dict.fromkeys(answer.warnings))
        if math.isfinite(answer.clock_offset_seconds):
            self._clock_offset_seconds = answer.clock_offset_seconds
        return answer

    def _why_empty(self, expression: str, *, optional: bool) -> tuple[Status, str]:
        """Tell a series that does not exist from one of which nothing can be said at the moment."""
        parts = selectors(expression) if self._source.fuses else (expression,)
        missing = [part for part in parts if not len(self._ask(part))]
        if missing:
            named = ", ".join(missing[:MAX_NAMED])
            detail = f"no series matches {named}: check its name and labels, and whether it is scraped"
            return (Status.WARNING if optional else Status.FAILED), detail
        return Status.WARNING, "no value now, though its series exist: nothing happened in the recent window"

    def _age(self, expression: str, answer: Answer) -> float:
        if not self._source.fuses:
            return self._at_seconds - max(float(series.times_seconds[-1]) for series in answer)
        newest = newest_at(expression)
        found = self._ask(newest).series if newest else ()
        return self._at_seconds - float(found[0].values[-1]) if found else math.nan

    def _judge(
        self, answer: Answer, mapping: SeriesMapping, spec: MetricSpec | None, age_seconds: float
    ) -> tuple[Status, str]:
        """Return the worst that can be said of an answer with series."""
        problem = _shape(answer, mapping, spec)
        if problem:
            return Status.FAILED, problem
        values = [float(series.values[-1]) * mapping.scale for series in answer]
        problem = _range(values, spec)
        if problem:
            return Status.FAILED, problem
        limit = self._policy.cycle.max_age_seconds
        if age_seconds > limit:
            return (
                Status.FAILED,
                f"the newest sample is {age_seconds:.0f} s old, over {limit:g} s: check its scrape job",
            )
        bound = mapping.limit if isinstance(mapping, MetricMapping) else None
        if bound is not None and max(values) > bound:
            return Status.WARNING, f"{max(values):g} is beyond its limit {bound:g} already: few changes will be allowed"
        return Status.OK, ""


def _with_remedy(silence: str) -> str:
    """Return why the source does not answer, with what to do, which some errors tell themselves."""
    return silence if "source.url" in silence else f"{silence}; check source.url, and whether it runs"


def _shape(answer: Answer, mapping: SeriesMapping, spec: MetricSpec | None) -> str:
    """Return what is wrong with the number of series and their labels; empty where nothing is."""
    if spec is None or not spec.per_node:
        if len(answer) > 1:
            return f"answers with {len(answer)} series, must be one: aggregate them, for example with sum()"
        return ""
    label = mapping.node_label if isinstance(mapping, MetricMapping) and mapping.node_label else "node"
    nodes = [series.labels.get(label) for series in answer]
    if None in nodes:
        seen = ", ".join(sorted({name for series in answer for name in series.labels})) or "no labels"
        return f"a series has no label {label}, only {seen}: correct node_label, or keep the label in the query"
    twice = sorted({str(node) for node in nodes if nodes.count(node) > 1})
    if twice:
        return f"several series for {', '.join(twice[:MAX_NAMED])}: aggregate them, with by ({label})"
    return ""


def _range(values: list[float], spec: MetricSpec | None) -> str:
    """Return what is wrong with the values, in the unit of the name; empty where nothing is."""
    unusable = sum(not math.isfinite(value) for value in values)
    if unusable:
        return f"{unusable} of {len(values)} values are NaN or infinite: guard the query, as in x / (y > 0)"
    low, high = min(values), max(values)
    if low < 0 and (spec is None or spec.unit != "°C"):
        return f"{low:g} is negative: correct the query"
    if spec is not None and high > spec.upper * (1 + 1e-6):
        return (
            f"{high:g} is over {spec.upper:g} {spec.unit}, the largest possible: correct the scale (0.01 for percent)"
        )
    return ""


def _unit(name: str, spec: MetricSpec | None) -> str:
    if spec is not None:
        return spec.unit
    base = name.partition(":")[0]
    units = {"_per_second": "1/s", "_seconds": "s", "_ratio": "ratio", "_accelerators": "accelerators"}
    return next((unit for suffix, unit in units.items() if base.endswith(suffix)), "")


def _score(policy: Policy) -> Iterator[Row]:
    total = float(policy.weights().sum())
    if math.isclose(total, 1.0, abs_tol=1e-6):
        yield Row(area="score", name="weights", status=Status.OK, value=total)
    else:
        detail = f"they sum to {total:g}, not to 1: a score of -0.05 does not read as 5 % better"
        yield Row(area="score", name="weights", status=Status.WARNING, value=total, detail=detail)


def _settings(policy: Policy, actuator: Actuator) -> Iterator[Row]:
    current: Current | None = None
    status, detail = Status.WARNING, "none: nothing is written, and the middle of each range is taken to be in force"
    try:
        current = actuator.read()
    except ActuatorUnavailable as error:
        status, detail = Status.FAILED, f"{error}; check actuator.url, and whether the scheduler runs"
    except TunerError as error:
        status, detail = Status.FAILED, str(error)
    else:
        if not isinstance(policy.actuator, NoActuator):
            status, detail = Status.OK, f"mode {current.mode}, revision {current.revision}"
    yield Row(area="actuator", name=policy.actuator.kind, status=status, detail=detail)
    if isinstance(policy.actuator, HttpActuator):
        yield from _modes(policy.actuator.mode_key, current)
    specs = {spec.role: spec for spec in policy.knob_specs()}
    for role in Role:
        absent = policy.knobs[role].absent
        if absent is not None:
            yield Row(area="knobs", name=role.value, status=Status.ABSENT, detail=absent)
        else:
            yield _knob(specs[role], current)


def _modes(key: str | None, current: Current | None) -> Iterator[Row]:
    """Yield what is to be said of the policy modes; nothing where the scheduler has them."""
    row = partial(Row, area="actuator", name="policy mode")
    if key is None:
        yield row(
            status=Status.ABSENT,
            detail="none (actuator.mode_key is null): latency breaker and degradation are watched, and change nothing",
        )
    elif current is not None and not _has(current.native, key):
        yield row(
            status=Status.WARNING,
            detail=f"the settings have no key {key}, to which latency breaker and degradation would write: correct "
            "actuator.mode_key, or write null where the scheduler has no policy modes",
        )


def _has(document: Mapping[str, object], path: str) -> bool:
    try:
        get_path(document, path)
    except KeyError:
        return False
    return True


def _knob(spec: KnobSpec, current: Current | None) -> Row:
    unit = "ratio" if spec.role is Role.RESERVATION else "s"
    if current is None or spec.role not in current.knobs:
        return Row(area="knobs", name=spec.role.value, status=Status.FAILED, detail="cannot be read", unit=unit)
    value = current.knobs[spec.role]
    if spec.contains(value):
        return Row(area="knobs", name=spec.role.value, status=Status.OK, value=value, unit=unit)
    detail = f"outside the range {spec.low:g} to {spec.high:g}: check scale, or widen low and high"
    return Row(area="knobs", name=spec.role.value, status=Status.WARNING, detail=detail, value=value, unit=unit)
