"""YAML files as data that remembers its lines.

Only plain YAML is read: no tags that make objects, no key twice. Anchors and merge keys work. Nothing is taken from
the environment: a policy means the same on every machine and can be reviewed as it stands; a secret belongs into a
file of its own that the policy names.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from tuner.errors import ConfigError
from tuner.settings.faults import Fault, KeyPath

MAX_BYTES: Final = 1_048_576
"""Largest file that is read: policies and rules have some kilobytes, so more is another file given by mistake."""

MAX_NODES: Final = 100_000
"""Largest number of values after anchors are expanded; a few nested anchors can stand for billions."""

_MERGE: Final = "tag:yaml.org,2002:merge"


@dataclass(frozen=True, slots=True)
class Document:
    """A file as it stands.

    Attributes:
        data: The mapping in it.
        lines: Line of each key and list item, counted from 1.
        faults: Keys that stand twice.
    """

    data: dict[str, object]
    lines: Mapping[KeyPath, int]
    faults: tuple[Fault, ...]


@dataclass(slots=True)
class _Index:
    """What one walk over the nodes of a file collects."""

    lines: dict[KeyPath, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    visited: int = 0

    def walk(self, node: yaml.Node, path: KeyPath) -> None:
        self.visited += 1
        if self.visited > MAX_NODES:
            raise yaml.MarkedYAMLError(
                problem=f"anchors expand to more than {MAX_NODES} values", problem_mark=node.start_mark
            )
        if isinstance(node, yaml.MappingNode):
            self._walk_mapping(node, path)
        elif isinstance(node, yaml.SequenceNode):
            for position, item in enumerate(node.value):
                self.lines[(*path, position)] = item.start_mark.line + 1
                self.walk(item, (*path, position))

    def _walk_mapping(self, node: yaml.MappingNode, path: KeyPath) -> None:
        # What is merged comes first, so that the keys written out here take their lines from here.
        for merged in _merged(node):
            self.walk(merged, path)
        seen: dict[str, int] = {}
        for key, value in node.value:
            line, name = key.start_mark.line + 1, str(key.value)
            if name in seen:
                remedy = f"line {seen[name]} has it already: remove one of them"
                self.faults.append(Fault((*path, name), "given twice", "given once", remedy, line))
            seen[name] = line
            if key.tag != _MERGE:
                self.lines[(*path, name)] = line
                self.walk(value, (*path, name))


def _merged(node: yaml.MappingNode) -> Iterator[yaml.Node]:
    for key, value in node.value:
        if key.tag == _MERGE:
            yield from reversed(value.value) if isinstance(value, yaml.SequenceNode) else (value,)


def read_document(path: Path, *, what: str, remedy: str) -> Document:
    """Read a YAML file that holds one mapping.

    Args:
        path: The file.
        what: What it must be, with its article, for the messages.
        remedy: What to do where it is none.

    Raises:
        ConfigError: The file cannot be read, is not UTF-8 or not YAML, is too large, or holds no mapping.
    """
    text = _read_text(path, what)
    try:
        return _parse(text, path, what, remedy)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}:{line}: the file is not plain YAML: {_explain(error)}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: the file is not plain YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError(
            f"{path}: the file is nested too deeply, must be {what}; check its brackets, and anchors in themselves"
        ) from None
    except ValueError as error:
        raise ConfigError(f"{path}: a value cannot be read: {error}; put it in quotes if it is text") from None


def _read_text(path: Path, what: str) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"{path}: the file cannot be read ({error.strerror}), must be a readable YAML file; "
            "check its name and permissions"
        ) from None
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{path}: the file has more than {MAX_BYTES} bytes, must be {what}; check its name")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ConfigError(
            f"{path}:{line}: the byte {raw[error.start]:#04x} is not UTF-8, must be text in UTF-8; "
            "save the file in that encoding"
        ) from None


def _parse(text: str, path: Path, what: str, remedy: str) -> Document:
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            raise ConfigError(f"{path}: the file is empty, must be {what}; {remedy}")
        index = _Index()
        index.walk(node, ())
        # A node is indexed before it is built, because building resolves the merge keys in place.
        data = loader.construct_document(node)
    finally:
        loader.dispose()
    if not isinstance(data, dict):
        kind = type(data).__name__
        raise ConfigError(f"{path}:1: the file holds a {kind}, must be a mapping of keys to values, {what}; {remedy}")
    return Document(data, index.lines, tuple(index.faults))


def _explain(error: yaml.MarkedYAMLError) -> str:
    if error.problem and "'\\t'" in error.problem:
        return "a tab stands where YAML wants spaces; indent with spaces"
    what = ", ".join(part for part in (error.context, error.problem) if part)
    return f"{what}; quote text that holds special characters, and check the indentation"
