"""The case before the judge: one proposal with all that may be known of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.settings.model import CycleSettings, Policy, TunerMode
from tuner.values.knobs import KnobSpec, Role
from tuner.values.metrics import METRICS
from tuner.values.stages import Forecast, Observation, Proposal


def required_metrics(policy: Policy) -> tuple[str, ...]:
    """Name the metrics without which nothing is changed: all that are read, but for the optional ones.

    An optional metric may well have no sample: where no protected task starts, nobody waits.
    """
    optional = {spec.name for spec in METRICS if spec.optional}
    return tuple(name for name in policy.mapped_metrics if name not in optional)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """All that the judge may know of a proposal.

    Attributes:
        proposal: The change that is asked for.
        observation: What is known of the cluster.
        forecast: What is expected of it; None where there is none.
        at_seconds: Now.
        specs: The knobs that the policy has.
        required: Names of the metrics without which nothing is changed.
        settings: Limits of the policy.
        tuner_mode: How far the tuner may go.
        trust: How far the twin's predicted gains came true, 0..1; also the factor on the slew limits.
        max_clock_skew_seconds: How far the newest sample may lie in the future.
        last_change_at_seconds: When settings were last changed; None where they never were.
        on_trial: Cycle of the change that is still being verified; None where there is none.
        disruptive_allowed: Whether knobs may be set that restart the scheduler or work.
        anchors: Intervals of the past from which it is known how far the twin is off without a change.
        choices: For knobs whose native setting is a word: the values that the words stand for.
    """

    proposal: Proposal
    observation: Observation
    forecast: Forecast | None
    at_seconds: float
    specs: tuple[KnobSpec, ...]
    required: tuple[str, ...]
    settings: CycleSettings
    tuner_mode: TunerMode
    trust: float
    max_clock_skew_seconds: float
    last_change_at_seconds: float | None = None
    on_trial: int | None = None
    anchors: int = 0
    disruptive_allowed: bool = False
    choices: Mapping[Role, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse documents that do not belong together.

        Raises:
            ValueError: Proposal and observation are of different cycles.
        """
        if self.proposal.cycle_id != self.observation.cycle_id:
            raise ValueError(
                f"proposal of cycle {self.proposal.cycle_id} with observation of cycle {self.observation.cycle_id}"
            )
