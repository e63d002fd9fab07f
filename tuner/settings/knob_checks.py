"""What a knob of a policy must be: its bounds, its words, and how the scheduler rounds it."""

from collections.abc import Iterator
from typing import Final

from tuner.settings.faults import Fault, KeyPath, shown
from tuner.settings.model import KnobMapping
from tuner.values.knobs import DESIGN_RANGES, Role

_EPSILON: Final = 1e-9


def knob_faults(path: KeyPath, role: Role, knob: KnobMapping) -> Iterator[Fault]:
    """Yield what is wrong with a knob that the scheduler has.

    Args:
        path: Where it stands in the policy.
        role: Which knob it is.
        knob: What the policy says of it.
    """
    yield from _bounds(path, role, knob)
    yield from _choices(path, role, knob)
    yield from _rounding(path, role, knob)


def _bounds(path: KeyPath, role: Role, knob: KnobMapping) -> Iterator[Fault]:
    low, high, step, slew = knob.bounds(role)
    design = DESIGN_RANGES[role]
    remedy = f"the design has {design.low:g} to {design.high:g} in steps of {design.step:g}"
    if role is Role.RESERVATION:
        if not 0 <= low < 1:
            yield Fault((*path, "low"), f"{low:g}", "at least 0 and under 1", remedy)
        if not high < 1:
            yield Fault((*path, "high"), f"{high:g}", "under 1: it is a ratio, not a percentage", remedy)
    elif not low > 0:
        yield Fault((*path, "low"), f"{low:g}", "over 0", remedy)
    if not low < high:
        yield Fault((*path, "high"), f"{high:g}", f"over low ({low:g})", remedy)
    elif step > high - low + _EPSILON:
        yield Fault((*path, "step"), f"{step:g}", f"at most high - low ({high - low:g})", "set a smaller step")
    if slew < step - _EPSILON:
        yield Fault((*path, "slew"), f"{slew:g}", f"at least step ({step:g})", "set a larger slew, or none")


def _choices(path: KeyPath, role: Role, knob: KnobMapping) -> Iterator[Fault]:
    if knob.choices is None:
        return
    low, high, _, _ = knob.bounds(role)
    if len(knob.choices) < 2:
        remedy = "list every word the scheduler knows, or declare the role absent"
        yield Fault((*path, "choices"), shown(knob.choices), "two words or more", remedy)
    taken: dict[float, str] = {}
    for word, value in knob.choices.items():
        at = (*path, "choices", word)
        if not low - _EPSILON <= value <= high + _EPSILON:
            yield Fault(at, f"{value:g}", f"in the range {low:g} to {high:g}", "change it, or low and high")
        if value in taken:
            yield Fault(at, f"{value:g}", "unlike the others", f"{taken[value]} stands for it already")
        taken[value] = word
    for name in ("scale", "round_to"):
        if name in knob.model_fields_set:
            yield Fault((*path, name), shown(getattr(knob, name)), "left out beside choices", "remove it")


def _rounding(path: KeyPath, role: Role, knob: KnobMapping) -> Iterator[Fault]:
    """Rounding must not move grid points, or what is read back would never be what was asked for."""
    if knob.round_to is None or knob.choices is not None:
        return
    low, _, step, _ = knob.bounds(role)
    for name, value in (("low", low), ("step", step)):
        native = value * knob.scale / knob.round_to
        if abs(native - round(native)) > 1e-6 or (name == "step" and round(native) == 0):
            must = f"a multiple of {knob.round_to / knob.scale:g}, to which the scheduler rounds (round_to / scale)"
            yield Fault((*path, name), f"{value:g}", must, "change it, or round_to")
