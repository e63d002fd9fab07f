"""What is wrong with a policy, said so that it can be mended: where, which value, which limit, what to do."""

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

KeyPath: TypeAlias = tuple[str | int, ...]
"""Keys from the top of a policy down to a value."""

MAX_SHOWN_CHARACTERS: Final = 60
"""Longest value that a message repeats in full."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One problem.

    Attributes:
        path: Where it is.
        found: The value, in words or as written.
        must: What it must be; completes "must be ...".
        remedy: What to do about it.
        line: Line in the file where that is not the line of `path`; None otherwise.
    """

    path: KeyPath
    found: str
    must: str
    remedy: str
    line: int | None = None

    def describe(self) -> str:
        """Return the problem as one sentence, without file and line."""
        return f"{dotted(self.path)} is {self.found}, must be {self.must}; {self.remedy}"


def dotted(path: KeyPath) -> str:
    """Return a path as people write it: `metrics.queue_length.query`."""
    return ".".join(str(key) for key in path) or "the policy"


def shown(value: object) -> str:
    """Return a value as it would stand in a policy, cut where it is long."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[: MAX_SHOWN_CHARACTERS - 1] + "…"


def nearest(name: object, known: Iterable[str]) -> str | None:
    """Return the known name that a mistyped one most likely meant; None where none is near."""
    found = difflib.get_close_matches(str(name), list(known), n=1)
    return found[0] if found else None


def unknown_key(path: KeyPath, known: Iterable[str], *, what: str = "key") -> Fault:
    """Return the fault of a key that no policy has, with the one that was probably meant."""
    names = sorted(known)
    meant = nearest(path[-1], names)
    remedy = f"did you mean {meant}?" if meant else "remove it, or see the schema for what there is"
    return Fault(path, f"an unknown {what}", f"one of {', '.join(names)}", remedy)


def report(faults: Iterable[Fault], *, file: str, lines: Mapping[KeyPath, int]) -> str:
    """Return all faults, one a line, in the order of the file.

    Args:
        faults: What was found.
        file: Name of the file, as the reader knows it.
        lines: Line of each key in the file; a fault at a key that does not stand there gets its parent's.
    """
    placed = sorted(
        {(fault.line or line_of(fault.path, lines), fault.describe()): None for fault in faults},
    )
    return "\n".join(f"{file}:{line}: {sentence}" for line, sentence in placed)


def line_of(path: KeyPath, lines: Mapping[KeyPath, int]) -> int:
    """Return the line of a key, or of the nearest one above it that stands in the file."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return 1
