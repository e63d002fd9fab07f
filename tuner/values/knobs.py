"""The roles of knob that are tuned, their ranges, and full settings of them."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Role(StrEnum):
    """What a knob does in the scheduler; the value is its code name with its unit."""

    BASE_SLICE = "base_slice_seconds"
    PREDICTION_WINDOW = "prediction_window_seconds"
    DECISION_PERIOD = "decision_period_seconds"
    RESERVATION = "reservation_ratio"


class SchedulerMode(StrEnum):
    """How much of its policy the scheduler runs."""

    FULL = "full"
    SIMPLIFIED = "simplified"
    PRIORITY_ONLY = "priority_only"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobSpec:
    """One tunable of the scheduler.

    Attributes:
        role: What it does; its name tells the unit.
        low: Smallest value that may be set.
        high: Largest value that may be set; > low.
        step: Distance of neighbouring values, counted from `low`; 0 < step <= high - low.
        slew: Largest change at once, in the knob's unit; >= step.
        disruptive: Whether setting it restarts the scheduler or work.
    """

    role: Role
    low: float
    high: float
    step: float
    slew: float
    disruptive: bool = False

    def __post_init__(self) -> None:
        """Refuse ranges that cannot be searched.

        Raises:
            ValueError: A bound is not finite, or the order low < high, 0 < step <= slew does not hold.
        """
        if not all(math.isfinite(value) for value in (self.low, self.high, self.step, self.slew)):
            raise ValueError(f"{self.role}: low, high, step and slew must be finite")
        if not self.low < self.high:
            raise ValueError(f"{self.role}: high is {self.high}, must exceed low ({self.low})")
        if not 0 < self.step <= self.high - self.low + 1e-12:
            raise ValueError(f"{self.role}: step is {self.step}, must be over 0 and at most high - low")
        if self.slew < self.step:
            raise ValueError(f"{self.role}: slew is {self.slew}, must be at least step ({self.step})")

    @property
    def steps(self) -> int:
        """Number of the last grid point; the grid is `low + i * step` for i in 0..steps."""
        return math.floor((self.high - self.low) / self.step + 1e-9)

    def index(self, value: float) -> int:
        """Return the number of the grid point nearest to a value, 0..steps."""
        return min(max(round((value - self.low) / self.step), 0), self.steps)

    def at(self, index: int) -> float:
        """Return the grid point of a number, rounded so that equal points are equal floats."""
        return round(self.low + index * self.step, 9)

    def snap(self, value: float) -> float:
        """Return the grid point nearest to a value, inside the range."""
        return self.at(self.index(value))

    def contains(self, value: float) -> bool:
        """Say whether a value lies in the range, whether or not on the grid."""
        return self.low - 1e-9 <= value <= self.high + 1e-9

    def position(self, value: float) -> float:
        """Return where a value lies in the range, 0 at `low` and 1 at `high`."""
        return (value - self.low) / (self.high - self.low)


DESIGN_RANGES: Final[Mapping[Role, KnobSpec]] = {
    spec.role: spec
    for spec in (
        # The ranges are those of the source document; one change may move a knob a quarter of its range or so.
        KnobSpec(role=Role.BASE_SLICE, low=0.080, high=0.150, step=0.005, slew=0.020),
        KnobSpec(role=Role.PREDICTION_WINDOW, low=600.0, high=1200.0, step=60.0, slew=180.0),
        KnobSpec(role=Role.DECISION_PERIOD, low=0.5, high=1.0, step=0.05, slew=0.15),
        KnobSpec(role=Role.RESERVATION, low=0.15, high=0.25, step=0.01, slew=0.03),
    )
}


@dataclass(frozen=True, slots=True)
class KnobValues(Mapping[Role, float]):
    """A full setting of the knobs that a policy has, in role order; hashable and comparable.

    Attributes:
        items_: Pairs of role and value, one a role, in the order of `Role`.
    """

    items_: tuple[tuple[Role, float], ...]

    @classmethod
    def of(cls, values: Mapping[Role, float]) -> "KnobValues":
        """Return a setting made of a mapping, whatever its order.

        Raises:
            ValueError: A value is not finite.
        """
        for role, value in values.items():
            if not math.isfinite(value):
                raise ValueError(f"{role} is {value}, must be a finite number")
        return cls(tuple((role, float(values[role])) for role in Role if role in values))

    def __getitem__(self, role: Role) -> float:
        """Return the value of a role; KeyError where the policy declares it absent."""
        for name, value in self.items_:
            if name == role:
                return value
        raise KeyError(role)

    def __iter__(self) -> Iterator[Role]:
        """Iterate over the roles."""
        return (role for role, _ in self.items_)

    def __len__(self) -> int:
        """Return the number of roles."""
        return len(self.items_)

    def differs(self, other: "KnobValues") -> tuple[Role, ...]:
        """Name the roles whose values differ by more than rounding."""
        return tuple(
            role
            for role, value in self.items_
            if role not in other or not math.isclose(value, other[role], rel_tol=1e-9)
        )

    def describe(self) -> str:
        """Return the setting in words, with units: `slice 95 ms, window 900 s, period 0.6 s, reservation 18 %`."""
        return ", ".join(_describe(role, value) for role, value in self.items_)


def _describe(role: Role, value: float) -> str:
    match role:
        case Role.BASE_SLICE:
            return f"slice {value * 1000:g} ms"
        case Role.PREDICTION_WINDOW:
            return f"window {value:g} s"
        case Role.DECISION_PERIOD:
            return f"period {value:g} s"
        case Role.RESERVATION:
            return f"reservation {value * 100:g} %"


def middle(specs: Iterable[KnobSpec]) -> KnobValues:
    """Return the middle of each range, on the grid: what an operator would set without knowing better."""
    return KnobValues.of({spec.role: spec.snap((spec.low + spec.high) / 2) for spec in specs})


def snap(values: KnobValues, specs: Iterable[KnobSpec]) -> KnobValues:
    """Return the nearest setting on the grids; roles without a specification are dropped."""
    return KnobValues.of({spec.role: spec.snap(values[spec.role]) for spec in specs if spec.role in values})


def limit_slew(target: KnobValues, current: KnobValues, specs: Iterable[KnobSpec], *, trust: float = 1.0) -> KnobValues:
    """Return the setting nearest to `target` that one change from `current` may reach, on the grid.

    A value in force outside its range, further than a change may go, is brought to the end of the range: nothing else
    may be set.

    Args:
        target: What is wanted.
        current: What is in force.
        specs: The knobs; each `slew` is the largest step at full trust.
        trust: Factor on every slew, over 0; at least one grid step stays allowed.
    """
    reached = {}
    for spec in specs:
        reach = max(spec.slew * trust, spec.step)
        low, high = current[spec.role] - reach, current[spec.role] + reach
        value = spec.snap(min(max(target[spec.role], low), high))
        # Snapping may round past the limit: step back towards the current value.
        if abs(value - current[spec.role]) > reach + 1e-9:
            value = spec.snap(value + (spec.step if value < current[spec.role] else -spec.step))
        reached[spec.role] = value
    return KnobValues.of(reached)
