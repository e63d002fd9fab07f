from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tuner.settings.durations import parse_duration
from tuner.settings.schema import DURATION_PATTERN, policy_schema
from tuner.values.metrics import METRIC_NAMES

POLICIES = Path(__file__).parent / "policies"
SCHEMA = policy_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

BEYOND_A_SCHEMA = {
    "choices_wrong",
    "key_twice",
    "native_missing",
    "node_label_missing",
    "placeholder_unknown",
    "rounding_off_grid",
}
"""Policies whose mistake lies between two fields, or is lost when YAML is read."""


def fields(schema: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    sections = [("Policy", schema), *schema["$defs"].items()]
    return [
        (f"{name}.{field}", body) for name, section in sections for field, body in section.get("properties", {}).items()
    ]


def test_the_schema_is_a_schema() -> None:
    meta = jsonschema.Draft202012Validator(jsonschema.Draft202012Validator.META_SCHEMA)

    assert SCHEMA["$schema"] == meta.schema["$id"]
    assert [error.message for error in meta.iter_errors(SCHEMA)] == []


@pytest.mark.parametrize("path", sorted((POLICIES / "good").glob("*.yaml")), ids=lambda path: path.stem)
def test_good_policies_fit_the_schema(path: Path) -> None:
    policy = yaml.safe_load(path.read_text())

    assert [error.message for error in VALIDATOR.iter_errors(policy)] == []


@pytest.mark.parametrize("path", sorted((POLICIES / "bad").glob("*.yaml")), ids=lambda path: path.stem)
def test_bad_policies_do_not_fit_unless_the_mistake_is_between_fields(path: Path) -> None:
    try:
        raw = yaml.safe_load(path.read_text())
    except yaml.YAMLError:
        return

    assert VALIDATOR.is_valid(raw) == (path.stem in BEYOND_A_SCHEMA)


@pytest.mark.parametrize(("name", "body"), fields(SCHEMA), ids=[name for name, _ in fields(SCHEMA)])
def test_every_field_is_described(name: str, body: dict[str, Any]) -> None:
    del name
    assert body.get("description")


def test_bounds_and_defaults_are_written_out() -> None:
    description = SCHEMA["$defs"]["SearchSettings"]["properties"]["trials"]["description"]

    assert description.endswith("Bounds: at least 8, at most 300. Default: 100.")


def test_every_metric_has_its_unit() -> None:
    metrics = SCHEMA["properties"]["metrics"]["properties"]

    assert tuple(metrics) == METRIC_NAMES
    assert all("Unit: " in metric["description"] for metric in metrics.values())


@pytest.mark.parametrize("written", ["90s", "1h30m", " 2d ", "90", "0.5", "1.5h", "500ms"])
def test_the_pattern_of_durations_admits_what_is_read(written: str) -> None:
    jsonschema.validate(written, {"type": "string", "pattern": DURATION_PATTERN})
    assert parse_duration(written) > 0


@pytest.mark.parametrize("written", ["", "soon", "5 minutes", "1h-30m", "m5"])
def test_the_pattern_of_durations_refuses_what_is_not(written: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(written, {"type": "string", "pattern": DURATION_PATTERN})
