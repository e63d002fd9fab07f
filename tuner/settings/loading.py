"""Reading a policy: one file in, one `Policy` out, or one error that lists all that is wrong with it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from tuner.errors import ConfigError
from tuner.settings import checks
from tuner.settings.documents import read_document
from tuner.settings.faults import Fault, report
from tuner.settings.model import (
    CycleSettings,
    ForecastSettings,
    HttpActuator,
    KnobMapping,
    MetricMapping,
    NoActuator,
    Policy,
    SearchSettings,
    Section,
    SeriesMapping,
    SourceSettings,
    TunerMode,
    VerifySettings,
)
from tuner.settings.safety import ChangeBreakerSettings, ControlSettings, GuardSettings
from tuner.settings.validation import field_faults
from tuner.values.knobs import Role

AnyPart = TypeVar("AnyPart")
AnySection = TypeVar("AnySection", bound=Section)


def load_policy(path: Path) -> Policy:
    """Read and check a policy.

    Relative paths in it (the journal, a token file, a kill file) count from the folder of the policy, and come out
    resolved.

    Raises:
        ConfigError: The file cannot be read, or the policy is wrong. The message lists all problems, one a line:
            `file:line: field.path is VALUE, must be LIMIT; remedy`.
    """
    document = read_document(path, what="a policy", remedy="start from policies/reference.yaml")
    policy, faults = _validate(document.data)
    all_faults = [*document.faults, *faults]
    if policy is None or all_faults:
        raise ConfigError(report(all_faults, file=str(path), lines=document.lines))
    return _resolve_paths(policy, path.parent)


def with_overrides(
    policy: Policy,
    *,
    prometheus_url: str | None = None,
    mode: str | None = None,
    journal: Path | None = None,
    listen: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Policy:
    """Return a policy with what the command line says instead; None leaves what the policy says.

    Args:
        policy: A loaded policy.
        prometheus_url: Server to ask; the source becomes a Prometheus.
        mode: How far the tuner may go; a `TunerMode` or its name.
        journal: SQLite file for decisions.
        listen: Address and port of the tuner's own pages.
        labels: Further labels of this scheduler's series, in place of the policy's.

    Raises:
        ConfigError: The result would not be a sound policy.
    """
    data = policy.model_dump(mode="json", exclude_unset=True)
    data["actuator"] = {**data.get("actuator", {}), "kind": policy.actuator.kind}
    source: dict[str, object] = {}
    if prometheus_url is not None:
        source |= {"kind": "prometheus", "url": prometheus_url}
    if labels is not None:
        source["labels"] = dict(labels)
    data["source"] = {**data.get("source", {}), **source}
    if mode is not None:
        data["mode"] = str(mode)
    if journal is not None:
        data["journal"] = {**data.get("journal", {}), "path": str(journal)}
    if listen is not None:
        data["web"] = {**data.get("web", {}), "listen": listen}
    changed, faults = _validate(data)
    if changed is None or faults:
        raise ConfigError("\n".join(f"policy {policy.name}, as overridden: {fault.describe()}" for fault in faults))
    return changed


def _validate(data: Mapping[str, object]) -> tuple[Policy | None, list[Fault]]:
    """Return the policy, where its fields are sound, and all faults of fields and between fields."""
    found = list(checks.faults(_draft(data)))
    try:
        return Policy.model_validate(data), found
    except ValidationError as error:
        return None, [*field_faults(error, data), *found]


def _draft(data: Mapping[str, object]) -> checks.Draft:
    metrics, knobs = _mapping(data.get("metrics")), _mapping(data.get("knobs"))
    sound_knobs = dict(_sound_entries(KnobMapping, knobs))
    return checks.Draft(
        named=frozenset(metrics) | frozenset(knobs),
        mode=_sound(TypeAdapter(TunerMode), data.get("mode", TunerMode.OBSERVE)),
        metrics=dict(_sound_entries(MetricMapping, metrics)),
        context=dict(_sound_entries(SeriesMapping, _mapping(data.get("context")))),
        knobs={role: sound_knobs[role.value] for role in Role if role.value in sound_knobs},
        actuator=_sound(TypeAdapter(HttpActuator | NoActuator), data.get("actuator", {"kind": "none"})),
        source=_sound_section(SourceSettings, data, "source"),
        cycle=_sound_section(CycleSettings, data, "cycle"),
        search=_sound_section(SearchSettings, data, "search"),
        verify=_sound_section(VerifySettings, data, "verify"),
        forecast=_sound_section(ForecastSettings, data, "forecast"),
        guard=_sound_section(GuardSettings, data, "guard"),
        change_breaker=_sound_section(ChangeBreakerSettings, data, "change_breaker"),
        control=_sound_section(ControlSettings, data, "control"),
    )


def _mapping(value: object) -> Mapping[str, object]:
    return {str(key): part for key, part in value.items()} if isinstance(value, Mapping) else {}


def _sound_entries(model: type[AnySection], entries: Mapping[str, object]) -> Iterator[tuple[str, AnySection]]:
    for name, raw in entries.items():
        part = _sound(TypeAdapter(model), raw)
        if part is not None:
            yield name, part


def _sound_section(model: type[AnySection], data: Mapping[str, object], name: str) -> AnySection | None:
    return _sound(TypeAdapter(model), data.get(name, {}))


def _sound(kind: TypeAdapter[AnyPart], raw: object) -> AnyPart | None:
    try:
        return kind.validate_python(raw)
    except ValidationError:
        return None  # Validating the whole policy reports it.


def _resolve_paths(policy: Policy, folder: Path) -> Policy:
    journal = policy.journal.model_copy(update={"path": str(folder / policy.journal.path)})
    actuator = policy.actuator
    if isinstance(actuator, HttpActuator) and actuator.token_file is not None:
        actuator = actuator.model_copy(update={"token_file": str(folder / actuator.token_file)})
    source = policy.source
    if source.token_file is not None:
        source = source.model_copy(update={"token_file": str(folder / source.token_file)})
    control = policy.control
    if control.kill_file is not None:
        control = control.model_copy(update={"kill_file": str(folder / control.kill_file)})
    placed = {"journal": journal, "source": source, "actuator": actuator, "control": control}
    return policy.model_copy(update=placed)
