"""What one change may reach: the grid of settings around the one in force.

A setting is a point: one level number an axis. The space is cut to the slew limits here, at its root, so that no
part of the search can come up with a setting that would need two changes.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import numpy as np

from tuner.values.knobs import KnobSpec, KnobValues, Role, limit_slew
from tuner.values.stages import FloatArray

Point: TypeAlias = tuple[int, ...]
"""Level numbers, one an axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """The values of one knob.

    Attributes:
        role: The knob.
        levels: Every value that may be set, ascending.
        first: Number of the lowest level that one change may reach.
        last: Number of the highest.
        start: Number of the level nearest to the value in force, first..last.
        enumerated: Whether the native setting is a word, so that distances between levels mean little.
    """

    role: Role
    levels: tuple[float, ...]
    first: int
    last: int
    start: int
    enumerated: bool = False

    def nearest(self, value: float) -> int:
        """Return the number of the reachable level nearest to a value."""
        return min(range(self.first, self.last + 1), key=lambda number: abs(self.levels[number] - value))


@dataclass(frozen=True, slots=True)
class Space:
    """All settings that one change may reach."""

    axes: tuple[Axis, ...]

    @classmethod
    def around(
        cls,
        incumbent: KnobValues,
        specs: Sequence[KnobSpec],
        *,
        trust: float,
        choices: Mapping[Role, tuple[float, ...]],
    ) -> "Space":
        """Return the settings that one change from `incumbent` may reach.

        Args:
            incumbent: The setting in force; on the grid or off it.
            specs: The knobs.
            trust: Factor on every slew limit; at least one grid step stays allowed.
            choices: For knobs whose native setting is a word: the values that the words stand for.
        """
        lowest = limit_slew(KnobValues.of({spec.role: spec.low for spec in specs}), incumbent, specs, trust=trust)
        highest = limit_slew(KnobValues.of({spec.role: spec.high for spec in specs}), incumbent, specs, trust=trust)
        axes = []
        for spec in specs:
            if spec.role in choices:
                axes.append(_enumerated(spec, choices[spec.role], incumbent[spec.role], trust))
                continue
            first, last = spec.index(lowest[spec.role]), spec.index(highest[spec.role])
            start = min(max(spec.index(incumbent[spec.role]), first), last)
            levels = tuple(spec.at(number) for number in range(spec.steps + 1))
            axes.append(Axis(role=spec.role, levels=levels, first=first, last=last, start=start))
        return cls(tuple(axes))

    @property
    def size(self) -> int:
        """Number of settings that can be reached."""
        return math.prod(axis.last - axis.first + 1 for axis in self.axes)

    @property
    def start(self) -> Point:
        """Return the reachable setting nearest to the one in force."""
        return tuple(axis.start for axis in self.axes)

    @property
    def free(self) -> tuple[Axis, ...]:
        """Return the axes on which there is a choice."""
        return tuple(axis for axis in self.axes if axis.first < axis.last)

    @property
    def enumerated(self) -> bool:
        """Say whether there is a choice of words."""
        return any(axis.enumerated for axis in self.free)

    def points(self) -> Iterator[Point]:
        """Iterate over every reachable setting."""
        return product(*(range(axis.first, axis.last + 1) for axis in self.axes))

    def nearest(self, values: KnobValues) -> Point:
        """Return the reachable setting nearest to a full or partial one; what is not said stays as it is."""
        return tuple(axis.nearest(values[axis.role]) if axis.role in values else axis.start for axis in self.axes)

    def at(self, shares: Sequence[float]) -> Point:
        """Return the reachable setting at shares of the axes' reachable parts, each 0..1."""
        return tuple(
            min(axis.first + int(share * (axis.last - axis.first + 1)), axis.last)
            for axis, share in zip(self.axes, shares, strict=True)
        )

    def neighbours(self, point: Point) -> tuple[Point, ...]:
        """Return the settings one step away on one axis, reachable or not, inside the range."""
        return tuple(
            (*point[:place], number, *point[place + 1 :])
            for place, axis in enumerate(self.axes)
            for number in (point[place] - 1, point[place] + 1)
            if 0 <= number < len(axis.levels)
        )

    def reaches(self, point: Point) -> bool:
        """Say whether one change may reach a point."""
        return all(axis.first <= number <= axis.last for axis, number in zip(self.axes, point, strict=True))

    def values(self, point: Point) -> KnobValues:
        """Return the setting that a point stands for."""
        return KnobValues.of({axis.role: axis.levels[number] for axis, number in zip(self.axes, point, strict=True)})


def rows(settings: Iterable[KnobValues]) -> FloatArray:
    """Return settings as the twin reads them: shape (C, 4), in the order of `Role`, NaN for absent roles."""
    return np.array([[values.get(role, np.nan) for role in Role] for values in settings], dtype=np.float64)


def _enumerated(spec: KnobSpec, values: tuple[float, ...], current: float, trust: float) -> Axis:
    levels = tuple(sorted(set(values)))
    start = min(range(len(levels)), key=lambda number: abs(levels[number] - current))
    reach = max(spec.slew * trust, spec.step) + 1e-9
    within = [number for number, level in enumerate(levels) if abs(level - current) <= reach]
    # A word that is further away than one change may go stays out of reach, as for any other knob.
    return Axis(
        role=spec.role,
        levels=levels,
        first=min(within, default=start),
        last=max(within, default=start),
        start=start,
        enumerated=True,
    )
