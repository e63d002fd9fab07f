"""The case before the judge: one proposal with all that may be known of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.judge.change_breaker import ChangeBreaker
from tuner.judge.ladder import Ladder
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
        trust: How far the twin's predicted gains came true, 0..1.
        region: The trust region, over 0 and up to 1, which bounds the steps.
        max_clock_skew_seconds: How far the newest sample may lie in the future.
        last_change_at_seconds: When settings were last changed; None where they never were.
        on_trial: Cycle of the change that is still being verified; None where there is none.
        disruptive_allowed: Whether knobs may be set that restart the scheduler or work.
        anchors: Intervals of the past from which it is known how far the twin is off without a change.
        choices: For knobs whose native setting is a word: the values that the words stand for.
        forbidden: Why people or the clock forbid changes; empty where they do not.
        directions: For knobs that a person lets move one way only: `up` or `down`; any other word keeps them in place.
        changes_today: Changes that were tried in the last 24 hours.
        max_changes_per_day: How many may be; None where it is not limited.
        change_breaker: What became of the changes before.
        ladder: How far the tuner trusts itself.
        latency_breaker_open: Whether the latency breaker is anything but closed.
        approved: Whether a person has said yes to this change.
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
    region: float = 1.0
    max_clock_skew_seconds: float
    last_change_at_seconds: float | None = None
    on_trial: int | None = None
    anchors: int = 0
    disruptive_allowed: bool = False
    choices: Mapping[Role, tuple[float, ...]] = field(default_factory=dict)
    forbidden: str = ""
    directions: Mapping[Role, str] = field(default_factory=dict)
    changes_today: int = 0
    max_changes_per_day: int | None = None
    change_breaker: ChangeBreaker = field(default_factory=ChangeBreaker)
    ladder: Ladder = field(default_factory=Ladder)
    latency_breaker_open: bool = False
    approved: bool = False

    def __post_init__(self) -> None:
        """Refuse documents that do not belong together.

        Raises:
            ValueError: Proposal and observation are of different cycles.
        """
        if self.proposal.cycle_id != self.observation.cycle_id:
            raise ValueError(
                f"proposal of cycle {self.proposal.cycle_id} with observation of cycle {self.observation.cycle_id}"
            )
