"""What a policy wants to know, as expressions for its source."""

import math
from dataclasses import dataclass
from enum import StrEnum

from tuner.errors import ConfigError
from tuner.observe.promql import LABEL_NAME
from tuner.settings.expansion import expand
from tuner.settings.model import MetricMapping, Policy, SeriesMapping
from tuner.values.context import CONTEXT_NAMES
from tuner.values.metrics import METRICS, MetricSpec


class Reduction(StrEnum):
    """How the series of one answer become one value."""

    ONLY = "only"
    MEAN = "avg"
    MAX = "max"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One metric or context value, and how it is asked for.

    Attributes:
        name: Its name in the catalogue.
        expression: What gives its history, for the cluster as a whole.
        reduction: How several series of `expression` become one.
        current: What gives its current value.
        current_reduction: The same for `current`: where safety is at stake, the worst node counts.
        nodes: What gives one series a node; None where it is not per node.
        node_label: Label that names the node; empty where it is not per node.
        scale: Factor from the unit of the series to the unit in the name.
        upper: Largest possible value, after scaling.
    """

    name: str
    expression: str
    reduction: Reduction
    current: str
    current_reduction: Reduction
    nodes: str | None
    node_label: str
    scale: float
    upper: float


def questions(policy: Policy, *, fuses: bool) -> tuple[Question, ...]:
    """Return a question for each metric and context value that a policy maps, in catalogue order.

    Args:
        policy: What to read.
        fuses: Whether the source takes PromQL; else series are read by their `scrape` names, where they have one.

    Raises:
        ConfigError: A node label is not a label name.
        ValueError: A query holds a placeholder that does not exist; a loaded policy never does.
    """
    asked = [
        _of_metric(spec, policy.metrics[spec.name], policy, fuses=fuses)
        for spec in METRICS
        if spec.name in policy.metrics and _text(policy.metrics[spec.name], fuses=fuses)
    ]
    asked += [
        _of_cluster(name, policy.context[name], policy, fuses=fuses, upper=1.0 if name.endswith("_ratio") else math.inf)
        for name in CONTEXT_NAMES
        if name in policy.context and _text(policy.context[name], fuses=fuses)
    ]
    return tuple(asked)


def unreadable(policy: Policy, *, fuses: bool) -> tuple[str, ...]:
    """Name the metrics that a policy maps, but not for this kind of source; context values are optional anyway."""
    return tuple(
        name for name, mapping in policy.metrics.items() if mapping.absent is None and not _text(mapping, fuses=fuses)
    )


def _of_metric(spec: MetricSpec, mapping: MetricMapping, policy: Policy, *, fuses: bool) -> Question:
    label = mapping.node_label
    if not spec.per_node or label is None:
        return _of_cluster(spec.name, mapping, policy, fuses=fuses, upper=spec.upper)
    if not LABEL_NAME.fullmatch(label):
        raise ConfigError(
            f"metrics.{spec.name}.node_label is {label!r}, must be letters, digits and _, not starting with a digit"
        )
    text = expand(_text(mapping, fuses=fuses), policy)
    current = Reduction.MAX if spec.safety else Reduction.MEAN
    return Question(
        name=spec.name,
        expression=f"avg({_finite(text)})" if fuses else text,
        reduction=Reduction.MEAN,
        current=f"{current}({_finite(text)})" if fuses else text,
        current_reduction=current,
        # Grouping leaves one label a series, which is most of what an answer weighs.
        nodes=f"{current} by ({label}) ({text}\n)" if fuses else text,
        node_label=label,
        scale=mapping.scale,
        upper=spec.upper,
    )


def _of_cluster(name: str, mapping: SeriesMapping, policy: Policy, *, fuses: bool, upper: float) -> Question:
    text = expand(_text(mapping, fuses=fuses), policy)
    return Question(
        name=name,
        expression=text,
        reduction=Reduction.ONLY,
        current=text,
        current_reduction=Reduction.ONLY,
        nodes=None,
        node_label="",
        scale=mapping.scale,
        upper=upper,
    )


def _text(mapping: SeriesMapping, *, fuses: bool) -> str:
    return mapping.query if fuses else mapping.scrape or ""


def _finite(text: str) -> str:
    """Return an expression without its non-finite samples, one of which would spoil the mean of all nodes."""
    return f"({text}\n) > -Inf < +Inf"
