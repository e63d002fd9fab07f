"""What the reference scheduler shows of itself, as Prometheus text and as samples for remote write.

An `Exposition` lays out all series once: their labels never change while a cluster lives. Afterwards a snapshot is one
vector of values, so that a replay of thousands of steps spends its time elsewhere.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import isinf, isnan
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tuner.reference.families import FAMILIES, AnyFamily, Family, label_values, read_values
from tuner.reference.snapshot import Snapshot

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of the text format."""

LabelPairs: TypeAlias = tuple[tuple[str, str], ...]
"""Labels of one series as pairs, the metric's name first, under `__name__`."""

FamilyRow: TypeAlias = tuple[str, str, str, str, list[tuple[Mapping[str, str], float]]]
"""Name, type, help, unit, and labels with value of each series; buckets and sums bear names of their own."""

_UNITS: Final = ("seconds", "ratio", "celsius", "watts", "bytes")


@dataclass(frozen=True, slots=True)
class _Block:
    """The series of one family."""

    family: AnyFamily
    labels: tuple[LabelPairs, ...]


class Exposition:
    """The series of one cluster, and how a snapshot becomes their values."""

    def __init__(self, snapshot: Snapshot, *, extra_labels: Mapping[str, str] | None = None) -> None:
        """Lay out the series.

        Args:
            snapshot: Any snapshot of the cluster; names of nodes and bounds of buckets are taken from it.
            extra_labels: Labels that every series bears besides its own, such as `cluster` and `run`.
        """
        extra = tuple((extra_labels or {}).items())
        self._blocks = tuple(_Block(family, tuple(_layout(family, snapshot, extra))) for family in FAMILIES)
        self.labels: Final[tuple[LabelPairs, ...]] = tuple(labels for block in self._blocks for labels in block.labels)
        """Labels of every series, in the order of `values`."""
        self._heads = [[_text_head(labels) for labels in block.labels] for block in self._blocks]

    def values(self, snapshot: Snapshot) -> NDArray[np.float64]:
        """Return the value of every series, shape (series,); NaN for "no sample".

        Raises:
            ValueError: The snapshot is of another cluster than the layout.
        """
        values = np.concatenate([read_values(family, snapshot) for family in FAMILIES])
        if values.size != len(self.labels):
            raise ValueError(f"{values.size} values for {len(self.labels)} series: the snapshot is of another cluster")
        return values

    def samples(self, snapshot: Snapshot) -> list[tuple[LabelPairs, float]]:
        """Return labels and value of every series that has a sample."""
        values = self.values(snapshot)
        return [
            (labels, value)
            for labels, value, missing in zip(self.labels, values.tolist(), np.isnan(values).tolist(), strict=True)
            if not missing
        ]

    def text(self, snapshot: Snapshot) -> str:
        """Return the page in the text format 0.0.4; series without a sample are left out."""
        values = self.values(snapshot).tolist()
        lines: list[str] = []
        start = 0
        for block, heads in zip(self._blocks, self._heads, strict=True):
            family = block.family
            lines += (f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {_type(family)}")
            own = values[start : start + len(heads)]
            lines += [head + _number(value) for head, value in zip(heads, own, strict=True) if not isnan(value)]
            start += len(heads)
        return "\n".join(lines) + "\n"


def families(snapshot: Snapshot, *, extra_labels: Mapping[str, str] | None = None) -> Iterator[FamilyRow]:
    """Yield every family of a snapshot in full, for readers who do not mind the time; `Exposition` is the fast way."""
    extra = tuple((extra_labels or {}).items())
    for family in FAMILIES:
        pairs = zip(_layout(family, snapshot, extra), read_values(family, snapshot).tolist(), strict=True)
        yield family.name, _type(family), family.help, _unit(family.name), [(dict(key), value) for key, value in pairs]


def _layout(family: AnyFamily, snapshot: Snapshot, extra: LabelPairs) -> Iterable[LabelPairs]:
    """Yield the labels of a family's series, in the order of `read_values`."""
    axes = [label_values(axis, snapshot) for axis in family.axes]
    for chosen in product(*axes):
        own = (*zip(family.axes, chosen, strict=True), *extra)
        if isinstance(family, Family):
            yield (("__name__", family.name), *own)
        else:
            bounds = [*map(repr, family.read(snapshot)[0].bounds.tolist()), "+Inf"]
            yield from ((("__name__", f"{family.name}_bucket"), *own, ("le", bound)) for bound in bounds)
            yield from ((("__name__", family.name + suffix), *own) for suffix in ("_sum", "_count"))


def _type(family: AnyFamily) -> str:
    return family.type.value if isinstance(family, Family) else "histogram"


def _unit(name: str) -> str:
    parts = name.removesuffix("_total").split("_")
    return parts[-1] if parts[-1] in _UNITS else ""


def _text_head(labels: LabelPairs) -> str:
    (_, name), *others = labels
    inside = ",".join(f'{key}="{_escaped(value)}"' for key, value in others)
    return f"{name}{{{inside}}} " if inside else f"{name} "


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    if isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    # Whole numbers are written as such: 3, not 3.0.
    return str(int(value)) if value.is_integer() else repr(value)
