"""The faults of single fields: what pydantic finds, in the words of this project."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from tuner.settings.faults import Fault, KeyPath, shown, unknown_key
from tuner.settings.model import Policy, Section
from tuner.settings.sections import DURATION_FORMAT
from tuner.values.knobs import Role

_ACTUATOR_KINDS: Final = ("http", "none")

_TYPES: Final[Mapping[str, str]] = {
    "float_type": "a number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "string_type": "text",
    "finite_number": "a finite number",
    "dict_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
}
_LIMITS: Final[Mapping[str, str]] = {
    "greater_than": "over {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "under {lt}",
    "less_than_equal": "at most {le}",
    "string_too_short": "at least {min_length} characters long",
    "string_too_long": "at most {max_length} characters long",
    "string_pattern_mismatch": "text that matches {pattern}",
    "literal_error": "{expected}",
    "enum": "{expected}",
}


def field_faults(error: ValidationError, data: object) -> Iterator[Fault]:
    """Translate the findings of pydantic, each with its value, limit and a remedy.

    Args:
        error: What validating `data` as a policy raised.
        data: The policy as read from its file.
    """
    for detail in error.errors(include_url=False):
        yield _fault(detail, _path(detail["loc"]), data)


def _fault(detail: ErrorDetails, path: KeyPath, data: object) -> Fault:
    kind = detail["type"]
    context = detail.get("ctx", {})
    if kind == "extra_forbidden":
        section = section_at(path[:-1], data)
        return unknown_key(path, section.model_fields if section else ())
    if path[-1:] == ("[key]",):
        return _key_fault(path[:-1], kind)
    if kind in {"union_tag_invalid", "union_tag_not_found"}:
        tag = context.get("tag")
        must = " or ".join(_ACTUATOR_KINDS)
        return Fault((*path, "kind"), shown(tag) if tag else "missing", must, f"write kind: {_ACTUATOR_KINDS[0]}")
    return _value_fault(detail, path, data)


def _value_fault(detail: ErrorDetails, path: KeyPath, data: object) -> Fault:
    kind = detail["type"]
    context = detail.get("ctx", {})
    if kind == "missing":
        return Fault(path, "missing", "given", _remedy(path, data))
    if kind == "value_error":
        return Fault(path, shown(detail["input"]), "a duration", "write seconds, or text such as 90s, 15m, 1h30m")
    limits = {name: shown(limit) if isinstance(limit, float) else limit for name, limit in context.items()}
    must = _TYPES.get(kind) or (_LIMITS[kind].format(**limits) if kind in _LIMITS else detail["msg"])
    if detail["input"] is None or detail["input"] == "":
        return Fault(path, "empty", must, "give it a value, or remove the key")
    return Fault(path, shown(detail["input"]), must, _remedy(path, data))


def _key_fault(path: KeyPath, kind: str) -> Fault:
    if kind == "enum":
        return unknown_key(path, [role.value for role in Role], what="role")
    if kind == "string_type":
        return Fault(path, "a key that YAML does not read as text", "text", "put it in quotes")
    return Fault(path, "a key that cannot be used", "letters, digits and _, not beginning with a digit", "rename it")


def _path(location: tuple[int | str, ...]) -> KeyPath:
    # Pydantic puts the kind of actuator between "actuator" and the field; the file has no such level.
    if location[:1] == ("actuator",) and location[1:2] and location[1] in _ACTUATOR_KINDS:
        return (location[0], *location[2:])
    return location


def _remedy(path: KeyPath, data: object) -> str:
    """Return what to do about a field: its default where it has one, else what it is for."""
    section = section_at(path[:-1], data)
    info = section.model_fields.get(str(path[-1])) if section else None
    if info is None:
        return "correct it"
    default = info.get_default(call_default_factory=False)
    if isinstance(default, bool | int | float | str) and default != "":
        return f"the default is {shown(default)}" + _duration_hint(info)
    meaning = (info.description or "").split(". ")[0].replace("\n", " ").rstrip(".")
    return f"correct it ({meaning})" if meaning else "correct it"


def _duration_hint(info: FieldInfo) -> str:
    extra = info.json_schema_extra
    is_duration = isinstance(extra, dict) and extra.get("format") == DURATION_FORMAT
    return " seconds" if is_duration else ""


def section_at(path: KeyPath, data: object) -> type[Section] | None:
    """Return the class that describes what stands at a path of a policy; None where there is none.

    Args:
        path: Where to look.
        data: The policy as read, by which the kinds of actuator are told apart.
    """
    section: type[Section] | None = Policy
    for depth, key in enumerate(path):
        if section is None:
            return None
        if depth == 1 and path[0] in {"metrics", "context", "knobs"}:
            continue  # The name of an entry: the class is the same for all.
        info = section.model_fields.get(str(key))
        section = _section_of(info.annotation, _kind(data)) if info else None
    return section


def _kind(data: object) -> object:
    actuator = data.get("actuator") if isinstance(data, dict) else None
    return actuator.get("kind") if isinstance(actuator, dict) else None


def _section_of(annotation: Any, kind: object) -> type[Section] | None:  # noqa: ANN401 - annotations have no type.
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    sections = [found for part in get_args(annotation) if (found := _section_of(part, kind))]
    if len(sections) > 1:
        return next((found for found in sections if found.model_fields["kind"].default == kind), sections[0])
    return sections[0] if sections else None
