"""What the fields of a policy must be to one another.

Each check looks at the parts that are sound by themselves, so that a mistake in one place does not hide those in
others. All are pure and yield every fault they see.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from tuner.settings.expansion import PLACEHOLDERS, placeholders
from tuner.settings.faults import Fault, KeyPath, nearest, shown, unknown_key
from tuner.settings.knob_checks import knob_faults
from tuner.settings.model import (
    CycleSettings,
    ForecastSettings,
    HttpActuator,
    KnobMapping,
    MetricMapping,
    NoActuator,
    SearchSettings,
    Section,
    SeriesMapping,
    SourceSettings,
    TunerMode,
    VerifySettings,
)
from tuner.settings.safety import ChangeBreakerSettings, ControlSettings, GuardSettings
from tuner.settings.safety_checks import change_breaker_faults, control_faults, guard_faults, switchback_faults
from tuner.values.context import CONTEXT_NAMES
from tuner.values.knobs import Role
from tuner.values.metrics import METRIC_INDEX, METRIC_NAMES, METRICS
from tuner.values.stages import STEP_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The sound parts of a policy, which as a whole may not be sound.

    Attributes:
        named: Names under `metrics` and `knobs`, sound or not.
        mode: How far the tuner may go; None where that is not sound, as for all that follow.
    """

    named: frozenset[str]
    mode: TunerMode | None
    metrics: Mapping[str, MetricMapping]
    context: Mapping[str, SeriesMapping]
    knobs: Mapping[Role, KnobMapping]
    actuator: HttpActuator | NoActuator | None
    source: SourceSettings | None
    cycle: CycleSettings | None
    search: SearchSettings | None
    verify: VerifySettings | None
    forecast: ForecastSettings | None
    guard: GuardSettings | None
    change_breaker: ChangeBreakerSettings | None
    control: ControlSettings | None


def faults(draft: Draft) -> Iterator[Fault]:
    """Yield all that does not fit together."""
    yield from _missing(draft)
    for name, metric in draft.metrics.items():
        yield from _metric(name, metric)
    yield from _weights(draft)
    yield from (
        unknown_key(("context", name), CONTEXT_NAMES, what="context value")
        for name in draft.context
        if name not in CONTEXT_NAMES
    )
    yield from _series(draft)
    for role, knob in draft.knobs.items():
        path: KeyPath = ("knobs", role.value)
        yield from knob_faults(path, role, knob) if knob.absent is None else _only_absent(path, knob)
    yield from _writing(draft)
    yield from _times(draft)
    yield from _safety(draft)


def _missing(draft: Draft) -> Iterator[Fault]:
    for spec in METRICS:
        if spec.name not in draft.named and not spec.optional:
            remedy = f"add {spec.name}: {{query: ...}}, or {spec.name}: {{absent: why}} where the scheduler lacks it"
            yield Fault(("metrics", spec.name), "missing", "mapped or declared absent", remedy)
    for role in Role:
        if role.value not in draft.named:
            remedy = f"add {role}: {{native: ...}}, or {role}: {{absent: why}} where the scheduler lacks it"
            yield Fault(("knobs", role.value), "missing", "mapped or declared absent", remedy)


def _metric(name: str, metric: MetricMapping) -> Iterator[Fault]:
    path: KeyPath = ("metrics", name)
    if name not in METRIC_INDEX:
        yield unknown_key(path, METRIC_NAMES, what="metric")
        return
    if metric.absent is not None:
        yield from _only_absent(path, metric)
        return
    spec = METRICS[METRIC_INDEX[name]]
    if not metric.query:
        yield Fault((*path, "query"), "missing", "given", "write the PromQL expression, or absent: why there is none")
    if spec.per_node and metric.node_label is None:
        remedy = "name the label of the series that tells the nodes apart, such as node or instance"
        yield Fault((*path, "node_label"), "missing", "given for a metric that is per node", remedy)
    if not spec.per_node and metric.node_label is not None:
        remedy = "remove it, and let the query answer with one series for the whole cluster"
        yield Fault((*path, "node_label"), shown(metric.node_label), "left out for a metric of the cluster", remedy)
    if not spec.objective and metric.weight:
        remedy = "remove it; only objective metrics enter the score"
        yield Fault((*path, "weight"), shown(metric.weight), "left out or 0", remedy)
    if metric.limit is None:
        return
    if not spec.safety:
        remedy = "remove it; limits exist for " + ", ".join(safe.name for safe in METRICS if safe.safety)
        yield Fault((*path, "limit"), shown(metric.limit), "left out", remedy)
    elif not 0 < metric.limit <= spec.upper:
        must = f"over 0 and at most {spec.upper:g}" if spec.upper < float("inf") else "over 0"
        yield Fault((*path, "limit"), shown(metric.limit), must, f"the unit is {spec.unit}")


def _only_absent(path: KeyPath, mapping: Section) -> Iterator[Fault]:
    for name in sorted(mapping.model_fields_set - {"absent"}):
        value = getattr(mapping, name)
        yield Fault((*path, name), shown(value), "left out where absent is given", "remove one of the two")


def _weights(draft: Draft) -> Iterator[Fault]:
    objectives = [spec for spec in METRICS if spec.objective]
    if not all(spec.name in draft.metrics or spec.optional for spec in objectives):
        return  # Another fault says so, and the sum is not known.
    mapped = [(spec, draft.metrics[spec.name]) for spec in objectives if spec.name in draft.metrics]
    weights = [
        spec.weight if metric.weight is None else metric.weight for spec, metric in mapped if metric.absent is None
    ]
    if not sum(weights) > 0:
        yield Fault(("metrics",), "without any weight", "weighed", "give a weight to at least one objective metric")


def _series(draft: Draft) -> Iterator[Fault]:
    queried: list[tuple[KeyPath, SeriesMapping]] = [(("metrics", name), part) for name, part in draft.metrics.items()]
    queried += [(("context", name), part) for name, part in draft.context.items()]
    for path, part in queried:
        for name in placeholders(part.query):
            if name not in PLACEHOLDERS:
                meant = nearest(name, PLACEHOLDERS)
                remedy = f"did you mean ${meant}?" if meant else "write ${name} with braces if PromQL is to see it"
                yield Fault((*path, "query"), f"naming ${name}", "made with $cluster, $labels or $window", remedy)
    if draft.source is None:
        return
    if draft.source.labels and not any("labels" in placeholders(part.query) for _, part in queried):
        remedy = "write {$labels} behind the names of series, or remove the labels"
        yield Fault(("source", "labels"), shown(draft.source.labels), "used by a query", remedy)
    if "cluster" in draft.source.labels:
        yield Fault(("source", "labels", "cluster"), "given", "left out", "the policy's cluster is used; set that")
    if draft.source.kind == "scrape":
        for path, part in queried:
            if part.scrape is None and getattr(part, "absent", None) is None:
                yield Fault((*path, "scrape"), "missing", "given where source.kind is scrape", "name the series")


def _writing(draft: Draft) -> Iterator[Fault]:
    if isinstance(draft.actuator, NoActuator) and draft.mode is TunerMode.AUTO:
        yield Fault(("mode",), "auto", "observe or recommend where actuator.kind is none", "add an actuator")
    if draft.source is not None:
        yield from _address(("source", "url"), draft.source.url)
    if not isinstance(draft.actuator, HttpActuator):
        return
    for name in ("url", "forecast_url"):
        url = getattr(draft.actuator, name)
        if url is not None:
            yield from _address(("actuator", name), url)
            if "@" in url.partition("://")[2].partition("/")[0]:
                yield Fault(("actuator", name), "given with credentials", "given without", "use actuator.token_file")
    mode_key = draft.actuator.mode_key
    taken = {} if mode_key is None else {mode_key: "actuator.mode_key"}
    for role, knob in draft.knobs.items():
        path: KeyPath = ("knobs", role.value, "native")
        if knob.absent is not None or (knob.native is None and role is Role.PREDICTION_WINDOW):
            continue  # The prediction window may live inside the tuner alone.
        if knob.native is None:
            remedy = "name the scheduler's setting, or declare the role absent"
            yield Fault(path, "missing", "given where the actuator writes", remedy)
            continue
        for other, owner in taken.items():
            if knob.native == other or knob.native.startswith(f"{other}.") or other.startswith(f"{knob.native}."):
                yield Fault(path, shown(knob.native), f"apart from {owner} ({other})", "one setting, one owner")
        taken[knob.native] = f"knobs.{role}.native"


def _address(path: KeyPath, url: str) -> Iterator[Fault]:
    try:
        parts = urlsplit(url)
        sound = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    if not sound:
        yield Fault(path, shown(url), "an address with a host, such as http://127.0.0.1:9090", "correct it")


def _times(draft: Draft) -> Iterator[Fault]:
    if draft.cycle is not None:
        yield from _cycle_times(draft.cycle, draft)
    if draft.verify is not None:
        needed = draft.verify.min_samples * STEP_SECONDS
        if draft.verify.window_seconds < needed:
            must = f"at least {needed:g}: {draft.verify.min_samples} samples (verify.min_samples), one a minute"
            yield Fault(("verify", "window_seconds"), f"{draft.verify.window_seconds:g}", must, "lengthen it")
        yield from switchback_faults(draft.verify, draft.cycle)
    if draft.search is not None and draft.search.generation > draft.search.trials:
        must = f"at most search.trials ({draft.search.trials})"
        yield Fault(("search", "generation"), shown(draft.search.generation), must, "the defaults are 20 of 100")
    window = draft.knobs.get(Role.PREDICTION_WINDOW)
    if draft.forecast is not None and window is not None and window.absent is None:
        high = window.bounds(Role.PREDICTION_WINDOW).high
        if draft.forecast.horizon_seconds < high:
            must = f"at least {high:g}, the largest prediction window"
            remedy = "lengthen it, or lower knobs.prediction_window_seconds.high"
            yield Fault(("forecast", "horizon_seconds"), f"{draft.forecast.horizon_seconds:g}", must, remedy)


def _cycle_times(cycle: CycleSettings, draft: Draft) -> Iterator[Fault]:
    recent = cycle.recent_window_seconds
    if cycle.history_seconds < 2 * recent:
        must = f"at least two recent windows ({2 * recent:g})"
        yield Fault(("cycle", "history_seconds"), f"{cycle.history_seconds:g}", must, "the default is a day")
    if draft.source is not None and draft.source.timeout_seconds >= cycle.period_seconds:
        must = f"under cycle.period_seconds ({cycle.period_seconds:g})"
        remedy = "a query may not outlast its cycle: shorten it, or lengthen the period"
        yield Fault(("source", "timeout_seconds"), f"{draft.source.timeout_seconds:g}", must, remedy)
    if draft.search is not None and draft.search.deadline_seconds >= cycle.period_seconds:
        must = f"under cycle.period_seconds ({cycle.period_seconds:g})"
        remedy = "a search may not outlast its cycle: shorten it, or lengthen the period"
        yield Fault(("search", "deadline_seconds"), f"{draft.search.deadline_seconds:g}", must, remedy)
    if draft.verify is not None and draft.verify.wash_out_seconds < recent:
        must = f"at least cycle.recent_window_seconds ({recent:g})"
        remedy = "until then, what is read still looks back beyond the change"
        yield Fault(("verify", "wash_out_seconds"), f"{draft.verify.wash_out_seconds:g}", must, remedy)


def _safety(draft: Draft) -> Iterator[Fault]:
    if draft.guard is not None:
        yield from guard_faults(draft.guard, [name for name, part in draft.metrics.items() if part.absent is None])
    if draft.change_breaker is not None:
        yield from change_breaker_faults(draft.change_breaker)
    if draft.control is not None:
        yield from control_faults(draft.control)
