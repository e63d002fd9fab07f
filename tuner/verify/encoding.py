"""Trials as strict JSON: numbers survive exactly, what is not finite becomes null and comes back as NaN."""

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tuner.settings.model import VerifySettings
from tuner.values.knobs import KnobValues, Role

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Stored = TypeVar("Stored", bound=DataclassInstance)


def to_json(trial: "DataclassInstance") -> str:
    """Return the text of a flat dataclass of numbers, words, arrays and settings."""
    return json.dumps({item.name: _to_plain(getattr(trial, item.name)) for item in fields(trial)}, allow_nan=False)


def from_json(kind: "type[Stored]", text: str) -> "Stored":
    """Return what `to_json` wrote; words come back as plain text.

    Raises:
        ValueError: The text is something else, or of another version.
    """
    plain = json.loads(text)
    names = {item.name for item in fields(kind)}
    if not isinstance(plain, dict) or set(plain) != names:
        raise ValueError(f"stored {kind.__name__.lower()} has other fields than {sorted(names)}")
    values: dict[str, Any] = {name: _from_plain(name, value) for name, value in plain.items()}
    return kind(**values)


def _to_plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return {"shape": list(value.shape), "values": [_to_plain(number) for number in value.ravel().tolist()]}
    if isinstance(value, KnobValues):
        return {role.value: number for role, number in value.items()}
    if isinstance(value, VerifySettings):
        return value.model_dump(mode="json")
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _from_plain(name: str, value: object) -> object:
    if name == "terms":
        return VerifySettings.model_validate(value)
    if not isinstance(value, dict):
        return np.nan if value is None else value
    if name in {"before", "after"}:
        return KnobValues.of({Role(role): number for role, number in value.items()})
    return np.array(value["values"], dtype=np.float64).reshape(value["shape"])
