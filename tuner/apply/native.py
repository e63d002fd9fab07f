"""Knob values as the scheduler writes them: in its unit, rounded as it rounds, or as one of its words.

    native = round(value * scale / round_to) * round_to      or the word whose value is nearest

Both directions are exact on what the scheduler can hold: `to_native(from_native(x)) == x`.
"""

import math
from collections.abc import Mapping
from typing import Final, TypeAlias

from tuner.settings.model import KnobMapping
from tuner.values.knobs import KnobValues, Role

Native: TypeAlias = float | int | str

_DIGITS: Final = 12
"""Significant digits kept: enough for every setting, and few enough to hide that 0.1 + 0.2 is not 0.3."""


def to_native(value: float, mapping: KnobMapping) -> Native:
    """Return the native setting nearest to a value, a whole number where the scheduler rounds to whole numbers."""
    if mapping.choices:
        choices = mapping.choices
        return min(choices, key=lambda word: abs(choices[word] - value))
    native = value * mapping.scale
    if mapping.round_to is None:
        return _clean(native)
    rounded = _clean(round(native / mapping.round_to) * mapping.round_to)
    return int(rounded) if mapping.round_to.is_integer() else rounded


def from_native(native: object, mapping: KnobMapping) -> float:
    """Return the value, in the role's unit, that a native setting stands for.

    Raises:
        ValueError: It is no finite number, or none of the words that the policy knows.
    """
    if mapping.choices:
        if not isinstance(native, str) or native not in mapping.choices:
            raise ValueError(f"{native!r}, must be one of {', '.join(mapping.choices)}")
        return mapping.choices[native]
    # In Python, true is a number; in a setting it is a mistake.
    if isinstance(native, bool) or not isinstance(native, int | float) or not math.isfinite(native):
        raise ValueError(f"{native!r}, must be a finite number")
    return _clean(native / mapping.scale)


def settle(knobs: KnobValues, mappings: Mapping[Role, KnobMapping]) -> KnobValues:
    """Return what the scheduler will hold when asked for a setting; the same where nothing rounds."""
    return KnobValues.of(
        {role: from_native(to_native(value, mappings[role]), mappings[role]) for role, value in knobs.items()}
    )


def same_native(one: object, other: object) -> bool:
    """Say whether two native settings are the same but for the noise of floating point."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return one == other


def get_path(document: Mapping[str, object], path: str) -> object:
    """Return what stands at a path with dots.

    Raises:
        KeyError: Nothing stands there.
    """
    found: object = document
    for key in path.split("."):
        if not isinstance(found, Mapping) or key not in found:
            raise KeyError(path)
        found = found[key]
    return found


def put_path(document: Mapping[str, object], path: str, value: object) -> dict[str, object]:
    """Return a copy of a document with another value at a path with dots; all else is as it was.

    Raises:
        KeyError: A step of the path is there, but cannot hold keys.
    """
    key, _, rest = path.partition(".")
    if not rest:
        return {**document, key: value}
    below = document.get(key, {})
    if not isinstance(below, Mapping):
        raise KeyError(path)
    return {**document, key: put_path(below, rest, value)}


def _clean(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")
