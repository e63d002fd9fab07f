"""The JSON schema of a policy, generated from the classes, for editors and for reading.

`python -m tuner.settings.schema > policies/schema.json` writes the one that is shipped.
"""

import json
import math
import sys
from typing import Any, Final, TypeAlias

from tuner.settings.model import Policy
from tuner.settings.sections import DURATION_FORMAT
from tuner.values.context import CONTEXT_NAMES
from tuner.values.knobs import DESIGN_RANGES, KnobSpec
from tuner.values.metrics import METRICS, MetricSpec

Schema: TypeAlias = dict[str, Any]

DURATION_PATTERN: Final = r"^\s*(\d+(\.\d+)?(ms|s|m|h|d|w))+\s*$|^\s*\d+(\.\d+)?\s*$"
"""Text that `parse_duration` reads; the bounds of a duration hold for it, too, but no schema can say so."""

_BOUNDS: Final = {
    "exclusiveMinimum": "over",
    "minimum": "at least",
    "exclusiveMaximum": "under",
    "maximum": "at most",
}


def policy_schema() -> Schema:
    """Return the JSON schema (2020-12) of a policy.

    Every field's description ends with its bounds and its default; every metric and knob has its unit. Some rules
    between fields are beyond a schema: `load_policy` has the last word.
    """
    schema = Policy.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "clocktuner policy"
    for section in (schema, *schema["$defs"].values()):
        for field in section.get("properties", {}).values():
            _describe(field, schema["$defs"])
    for kind in ("HttpActuator", "NoActuator"):
        # The kind has a default only for use from Python; in a file it tells the actuators apart.
        actuator = schema["$defs"][kind]
        actuator["required"] = ["kind", *actuator.get("required", ())]
    properties = schema["properties"]
    _entries(properties["metrics"], {spec.name: _metric(spec) for spec in METRICS})
    properties["metrics"]["required"] = [spec.name for spec in METRICS if not spec.optional]
    _entries(properties["context"], dict.fromkeys(CONTEXT_NAMES, ""))
    _entries(properties["knobs"], {str(role): _knob(spec) for role, spec in DESIGN_RANGES.items()})
    properties["knobs"]["required"] = [str(role) for role in DESIGN_RANGES]
    return schema


def schema_text() -> str:
    """Return the schema as the file that is shipped."""
    return json.dumps(policy_schema(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _describe(field: Schema, definitions: Schema) -> None:
    field.pop("title", None)
    number = next((part for part in field.get("anyOf", ()) if part.get("type") in {"number", "integer"}), field)
    facts = []
    bounds = [f"{words} {number[key]:g}" for key, words in _BOUNDS.items() if key in number]
    if bounds:
        facts.append("Bounds: " + ", ".join(bounds) + ".")
    default = field.get("default")
    is_duration = field.get("format") == DURATION_FORMAT
    if default is not None and default != "" and not isinstance(default, dict):
        facts.append(f"Default: {json.dumps(default, allow_nan=False)}{' seconds' if is_duration else ''}.")
    meaning = field.get("description") or definitions.get(field.get("$ref", "").split("/")[-1], {})["description"]
    description = " ".join(meaning.split())
    field["description"] = " ".join([description, *facts]).strip()
    if is_duration:
        _allow_text(field)


def _allow_text(field: Schema) -> None:
    """Let a duration be a number of seconds, within its bounds, or text."""
    del field["format"]
    number = {key: field.pop(key) for key in ("type", *_BOUNDS) if key in field}
    field["anyOf"] = [number, {"type": "string", "pattern": DURATION_PATTERN}]


def _entries(mapping: Schema, descriptions: dict[str, str]) -> None:
    """Turn a mapping of any names into one of known names, each with its own description."""
    entry = mapping.pop("additionalProperties")
    mapping.pop("propertyNames", None)
    mapping["additionalProperties"] = False
    mapping["properties"] = {
        name: {**entry, "description": description} if description else dict(entry)
        for name, description in descriptions.items()
    }


def _metric(spec: MetricSpec) -> str:
    facts = [f"{spec.summary} Unit: {spec.unit}."]
    if spec.per_node:
        facts.append("One series a node: node_label is required.")
    if spec.objective:
        facts.append(f"Objective, {spec.better} is better; default weight {spec.weight:g}.")
    if spec.safety:
        facts.append("Safety metric: may have a limit.")
    if math.isfinite(spec.upper):
        facts.append(f"At most {spec.upper:g}.")
    if spec.optional:
        facts.append("Optional.")
    return " ".join(facts)


def _knob(spec: KnobSpec) -> str:
    unit = "ratio" if spec.role.endswith("_ratio") else "s"
    return (
        f"Unit: {unit}. Design range {spec.low:g} to {spec.high:g} in steps of {spec.step:g}, "
        f"at most {spec.slew:g} in one change."
    )


if __name__ == "__main__":
    sys.stdout.write(schema_text())
