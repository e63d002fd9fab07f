"""The documents of a cycle as strict JSON, and back.

One codec serves every frozen dataclass that is made of numbers, texts, enums, tuples, mappings, arrays, `KnobValues`
and other such dataclasses; it follows the type hints, so that a new field needs no line here. Rules:

* NaN and the infinities become null, and null becomes NaN again where the hint says float: strict parsers can read
  what is written, and an infinity is not told from "no sample" afterwards.
* Finite floats return bit for bit: they are written with as many digits as tell them apart.
* A field that a document lacks takes its default, and one that the class no longer has is skipped: a journal
  outlives the release that wrote it.

No pickle: a document is data and cannot run anything.
"""

import dataclasses
import json
import math
import types
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from tuner.errors import JournalError
from tuner.values.knobs import KnobValues, Role

T = TypeVar("T")


def encode(value: object) -> str:
    """Return a value as JSON text.

    Raises:
        TypeError: It holds something that JSON cannot, such as a set or a function.
    """
    return json.dumps(jsonable(value), allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def decode(kind: type[T], text: str) -> T:
    """Return the value that a JSON text describes.

    Args:
        kind: The dataclass that was encoded.
        text: What `encode` returned, perhaps long ago.

    Raises:
        JournalError: The text is not JSON, or does not describe a valid `kind`; the message names the field.
    """
    try:
        value: T = _build(kind, json.loads(text), kind.__name__)
    except (ValueError, TypeError, KeyError) as error:
        raise JournalError(
            f"a {kind.__name__} in the journal cannot be read: {error}; it was damaged, or written by a release that "
            f"this one does not know. Restore the journal from a backup, or move it away to begin a new one"
        ) from error
    return value


def jsonable(value: object) -> Any:  # noqa: ANN401 - JSON is any of its kinds.
    """Return a value as nested lists and dicts of what JSON has; numbers that it lacks become None."""
    if isinstance(value, np.ndarray):
        return _array_out(value)
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [jsonable(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return _scalar_out(value)


def _scalar_out(value: object) -> str | int | float | None:
    if isinstance(value, Enum | np.generic):
        value = value.value if isinstance(value, Enum) else value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def _array_out(array: np.ndarray[Any, Any]) -> Any:  # noqa: ANN401
    if array.size == 0:
        return {"shape": list(array.shape)}  # Nested lists would forget the lengths of the other axes.
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        objects = array.astype(object)
        objects[~np.isfinite(array)] = None
        return objects.tolist()
    return array.tolist()


def _build(hint: Any, data: Any, path: str) -> Any:  # noqa: ANN401, PLR0911 - One return a kind reads as the table it is.
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        # Only "or does not exist" is used in the documents, so there is one other arm.
        arm = next(argument for argument in get_args(hint) if argument is not types.NoneType)
        return None if data is None else _build(arm, data, path)
    if origin is np.ndarray:
        return _array_in(data, path)
    if origin is tuple:
        return _tuple_in(get_args(hint), _expect(list, data, path), path)
    if origin is not None and issubclass(origin, Mapping):
        item = get_args(hint)[1]
        return {key: _build(item, entry, f"{path}.{key}") for key, entry in _expect(dict, data, path).items()}
    if hint is KnobValues:
        return KnobValues.of({Role(role): value for role, value in _expect(dict, data, path).items()})
    if dataclasses.is_dataclass(hint):
        return _dataclass_in(hint, _expect(dict, data, path), path)
    if issubclass(hint, Enum):
        return hint(data)
    if hint is float:
        return math.nan if data is None else float(_expect(int | float, data, path))
    return _expect(hint, data, path)


def _dataclass_in(kind: Any, data: dict[str, Any], path: str) -> Any:  # noqa: ANN401
    hints = _hints(kind)
    return kind(**{name: _build(hints[name], data[name], f"{path}.{name}") for name in hints if name in data})


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _tuple_in(arguments: tuple[Any, ...], data: list[Any], path: str) -> tuple[Any, ...]:
    kinds = [arguments[0]] * len(data) if arguments[-1] is Ellipsis else list(arguments)
    return tuple(
        _build(kind, item, f"{path}[{index}]") for index, (kind, item) in enumerate(zip(kinds, data, strict=True))
    )


def _array_in(data: Any, path: str) -> np.ndarray[Any, np.dtype[np.float64]]:  # noqa: ANN401
    if isinstance(data, dict):
        return np.empty(data["shape"])
    return np.array(_expect(list, data, path), dtype=np.float64)  # None becomes NaN.


def _expect(kind: Any, data: Any, path: str) -> Any:  # noqa: ANN401
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise ValueError(f"{path} is {str(data)[:60]!r}, must be {getattr(kind, '__name__', 'a number')}")
    return data
