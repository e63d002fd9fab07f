"""What a reader of the journal has to know beside the cycles: whose they are, within which bounds, and how real."""

from dataclasses import dataclass, field
from typing import Final, Self

from tuner.record.encoding import decode, encode
from tuner.record.journal import Journal
from tuner.settings.model import Policy
from tuner.values.knobs import DESIGN_RANGES, KnobSpec
from tuner.values.metrics import DEFAULT_WEIGHTS, MetricVector

STATE_NAME: Final = "setting"
"""Under which it lies in the journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The frame in which cycles ran.

    Attributes:
        cluster: Name of the cluster.
        policy: Name of the policy.
        mode: How far the tuner might go.
        specs: The knobs with their bounds.
        weights: Weights of the score, shape (13,).
        real: What of it was real, a sentence each: the traces, the metrics server, the clock.
        simulated: What of it was simulated.
    """

    cluster: str = "unknown"
    policy: str = "unknown"
    mode: str = "unknown"
    specs: tuple[KnobSpec, ...] = tuple(DESIGN_RANGES.values())
    weights: MetricVector = field(default_factory=DEFAULT_WEIGHTS.copy)
    real: tuple[str, ...] = ()
    simulated: tuple[str, ...] = ()

    @classmethod
    def of(cls, policy: Policy, *, real: tuple[str, ...] = (), simulated: tuple[str, ...] = ()) -> Self:
        """Return the frame that a policy sets."""
        return cls(
            cluster=policy.cluster,
            policy=policy.name,
            mode=policy.mode.value,
            specs=policy.knob_specs(),
            weights=policy.weights(),
            real=real,
            simulated=simulated,
        )


def save_setting(journal: Journal, setting: Setting) -> None:
    """Keep a setting in the journal, so that a report needs nothing else."""
    journal.save_state(STATE_NAME, encode(setting))


def load_setting(journal: Journal) -> Setting:
    """Return the setting that the journal holds; the design's ranges and weights where it holds none."""
    document = journal.load_state(STATE_NAME)
    return Setting() if document is None else decode(Setting, document)
