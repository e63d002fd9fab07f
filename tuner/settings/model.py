"""The shape of a policy: what to read, what to tune, and within which limits.

These classes check each field by itself. What fields must be to one another is checked by `tuner.settings.checks`
when a policy is loaded; the helper methods of `Policy` rely on it.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

import numpy as np
from pydantic import Field

from tuner.settings.safety import ChangeBreakerSettings, ControlSettings, GuardSettings
from tuner.settings.sections import (
    CycleSettings,
    ForecastSettings,
    JournalSettings,
    SearchSettings,
    Seconds,
    Section,
    SourceSettings,
    VerifySettings,
    WebSettings,
)
from tuner.values.knobs import DESIGN_RANGES, KnobSpec, Role
from tuner.values.metrics import METRIC_INDEX, METRICS, MetricVector, metric_vector

__all__ = [
    "Actuator",
    "Bounds",
    "CycleSettings",
    "ForecastSettings",
    "HttpActuator",
    "JournalSettings",
    "KnobMapping",
    "MetricMapping",
    "NoActuator",
    "Policy",
    "SearchSettings",
    "Section",
    "SeriesMapping",
    "SourceSettings",
    "TunerMode",
    "VerifySettings",
    "WebSettings",
]


class TunerMode(StrEnum):
    """How far clocktuner may go; operators move from the first to the last as they come to trust it."""

    OBSERVE = "observe"
    RECOMMEND = "recommend"
    AUTO = "auto"


class SeriesMapping(Section):
    """How one value is read."""

    query: str = Field(min_length=1)
    """PromQL expression. `$window` is replaced by the recent window, `$cluster` by the policy's cluster, `$labels` by
    matchers for the cluster and the labels of the source. An empty answer means "no sample"; never let it be 0."""
    scale: float = Field(default=1.0, gt=0)
    """Factor from the unit of the series to the unit in the name: 0.001 for milliseconds, 0.01 for percent."""
    scrape: str | None = None
    """Series to read where there is no PromQL: the name of a gauge, with labels if needed."""


class MetricMapping(SeriesMapping):
    """How one of the metrics is read, weighed and limited; or why it is not."""

    query: str = ""
    """PromQL expression as for any series; left out only where the metric is declared absent."""
    absent: str | None = Field(default=None, min_length=1)
    """Why the scheduler cannot serve this metric; with it, all other fields are left out."""

    node_label: str | None = None
    """Label that names the node; needed for the metrics that are per node."""
    weight: float | None = Field(default=None, ge=0, le=1)
    """Weight in the score; the catalogue's default where absent."""
    limit: float | None = None
    """For safety metrics: the value that a change must never lead beyond, in the metric's unit."""


class Bounds(NamedTuple):
    """Bounds of a knob, in its role's unit."""

    low: float
    high: float
    step: float
    slew: float


class KnobMapping(Section):
    """How one role of knob is set."""

    absent: str | None = Field(default=None, min_length=1)
    """Why the scheduler lacks this role; with it, all other fields are left out."""
    low: float | None = None
    """Smallest value, in the role's unit; the design's range where absent."""
    high: float | None = None
    """Largest value, in the role's unit."""
    step: float | None = Field(default=None, gt=0)
    """Distance of neighbouring values, counted from `low`, in the role's unit; the design's where absent."""
    slew: float | None = Field(default=None, gt=0)
    """Largest change at once, in the role's unit. Where absent: the design's with the design's range, else a quarter
    of the range, in whole steps."""
    native: str | None = Field(default=None, pattern=r"^[^.\s]+(\.[^.\s]+)*$")
    """Name of the native setting, for actuators a path with dots; absent where the role lives inside the tuner only."""
    scale: float = Field(default=1.0, gt=0)
    """Native value = value x scale: 1000 where the native unit is milliseconds, 100 where it is percent."""
    round_to: float | None = Field(default=None, gt=0)
    """Native values are rounded to multiples of this: 1 for whole numbers."""
    choices: dict[str, float] | None = None
    """Where the native setting is a word: each word and the value, in the role's unit, that it stands for."""
    disruptive: bool = False
    """Whether setting it restarts the scheduler or work."""

    def bounds(self, role: Role) -> Bounds:
        """Return the bounds in force, with the design's where the policy sets none; they may still contradict."""
        design = DESIGN_RANGES[role]
        low = design.low if self.low is None else self.low
        high = design.high if self.high is None else self.high
        step = design.step if self.step is None else self.step
        if self.slew is not None:
            slew = self.slew
        elif (low, high, step) == (design.low, design.high, design.step):
            slew = design.slew
        else:
            slew = max(step, round(math.floor((high - low) / 4 / step + 1e-9) * step, 9))
        return Bounds(low, high, step, slew)

    def spec(self, role: Role) -> KnobSpec:
        """Return the knob as the search knows it.

        Raises:
            ValueError: The bounds contradict each other; a loaded policy never does.
        """
        return KnobSpec(role=role, disruptive=self.disruptive, **self.bounds(role)._asdict())


class HttpActuator(Section):
    """Settings live behind HTTP: GET answers JSON and an ETag, PUT with If-Match writes."""

    kind: Literal["http"] = "http"
    """Settings live behind HTTP."""
    url: str = Field(pattern=r"^https?://")
    """Where the settings are read and written."""
    forecast_url: str | None = Field(default=None, pattern=r"^https?://")
    """Where forecasts and the best window are sent, for schedulers that take them."""
    mode_key: str | None = Field(default="mode", min_length=1)
    """Key of the policy mode in the JSON; null where the scheduler has no policy modes: then latency breaker and
    degradation only watch, and say what they would do."""
    timeout_seconds: Seconds = Field(default=5.0, gt=0, le=60)
    """Deadline of one request."""
    token_file: str | None = None
    """File that holds a bearer token; read anew for each request, never logged."""
    effective_within_seconds: Seconds = Field(default=10.0, gt=0)
    """How long the scheduler may take until a written value is in force."""
    instance_header: str = Field(default="Scheduler-Instance", pattern=r"^[A-Za-z0-9-]+$")
    """Header of the answer to GET that names the scheduler's process, other after each restart. Without it, settings
    that a restart brought back are taken for an edit."""


class NoActuator(Section):
    """Nothing is ever written: for observing only."""

    kind: Literal["none"] = "none"
    """Nothing is ever written."""


Actuator: TypeAlias = Annotated[HttpActuator | NoActuator, Field(discriminator="kind")]


_PLACES: Final[Mapping[str, bool | set[str]]] = {
    "journal": True,
    "web": True,
    "control": {"kill_file"},
    "source": {"url", "token_file"},
    "actuator": {"url", "forecast_url", "token_file", "instance_header"},
}
"""What a policy says about where things are."""


class Policy(Section):
    """One scheduler, and how clocktuner looks after it."""

    version: Literal[1]
    """Version of this format."""
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=63)
    """Name of the policy."""
    cluster: str = Field(min_length=1, max_length=63)
    """Value of the label `cluster` on everything that clocktuner exports."""
    mode: Annotated[TunerMode, Field(strict=False)] = TunerMode.OBSERVE
    """How far it may go: `observe` only looks, `recommend` also says what it would do, `auto` acts."""
    metrics: dict[str, MetricMapping]
    """The metrics, by their names in the catalogue. Each is mapped or declared absent; an optional one may be left
    out."""
    context: dict[str, SeriesMapping] = Field(default_factory=dict)
    """Optional values that describe the load, by name."""
    knobs: dict[Annotated[Role, Field(strict=False)], KnobMapping]
    """The four roles of knob; each is mapped or declared absent."""
    actuator: Actuator = Field(default_factory=NoActuator)
    """How settings are written."""
    source: SourceSettings = Field(default_factory=SourceSettings)
    cycle: CycleSettings = Field(default_factory=CycleSettings)
    search: SearchSettings = Field(default_factory=SearchSettings)
    verify: VerifySettings = Field(default_factory=VerifySettings)
    guard: GuardSettings = Field(default_factory=GuardSettings)
    change_breaker: ChangeBreakerSettings = Field(default_factory=ChangeBreakerSettings)
    control: ControlSettings = Field(default_factory=ControlSettings)
    forecast: ForecastSettings = Field(default_factory=ForecastSettings)
    journal: JournalSettings = Field(default_factory=JournalSettings)
    web: WebSettings = Field(default_factory=WebSettings)

    @property
    def has_modes(self) -> bool:
        """Whether the scheduler has policy modes, which latency breaker and degradation set."""
        return isinstance(self.actuator, HttpActuator) and self.actuator.mode_key is not None

    @property
    def mapped_metrics(self) -> Mapping[str, MetricMapping]:
        """The metrics that are read, by name, in catalogue order."""
        mapped = {name: mapping for name, mapping in self.metrics.items() if mapping.absent is None}
        return {spec.name: mapped[spec.name] for spec in METRICS if spec.name in mapped}

    def knob_specs(self) -> tuple[KnobSpec, ...]:
        """Return the knobs that are tuned, in role order, without those that are declared absent."""
        return tuple(
            self.knobs[role].spec(role) for role in Role if role in self.knobs and self.knobs[role].absent is None
        )

    def knob_choices(self) -> Mapping[Role, tuple[float, ...]]:
        """Return, for knobs whose native setting is a word, the values that the words stand for."""
        return {role: tuple(knob.choices.values()) for role, knob in self.knobs.items() if knob.choices}

    def weights(self) -> MetricVector:
        """Return the weights of the score, shape (13,).

        They are used as they stand: nothing scales them to a sum of 1, so that equal scores of two policies mean the
        same only where their weights do. A metric that is not read weighs 0: what cannot be seen cannot be verified.
        """
        weights = np.zeros(len(METRICS))
        for name, mapping in self.mapped_metrics.items():
            index = METRIC_INDEX[name]
            weights[index] = METRICS[index].weight if mapping.weight is None else mapping.weight
        return weights

    def limits(self) -> MetricVector:
        """Return the safety limits, shape (13,), in the metrics' units; NaN where there is none."""
        return metric_vector(
            {name: mapping.limit for name, mapping in self.metrics.items() if mapping.limit is not None}
        )

    def fingerprint(self) -> str:
        """Return the SHA-256 of everything here that can change a decision, as 64 hexadecimal digits.

        Addresses and files are left out: the same samples, read at another port, lead to the same decisions.
        """
        deciding = self.model_dump(mode="json", exclude=_PLACES)
        canonical = json.dumps(deciding, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(canonical.encode()).hexdigest()
