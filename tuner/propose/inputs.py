"""All that a search reads, in one value that can be stored and read back without losing a bit.

A decision can be explained only as long as it can be repeated: what is not in `SearchInputs` must not influence a
search. The bytes are a NumPy archive of plain arrays and one JSON text; nothing in them can run code.
"""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np

from tuner.settings.model import SearchSettings
from tuner.twin.parameters import TwinParameters
from tuner.twin.residual import Residual
from tuner.twin.trust import CONTEXT_COMPONENTS
from tuner.twin.workload import Scenarios
from tuner.values.knobs import KnobSpec, KnobValues, Role
from tuner.values.metrics import METRIC_COUNT, MetricVector

_FORMAT: Final = 2
"""Version of the bytes; raised whenever an older reader would misread them."""

_READABLE: Final = (1, _FORMAT)
"""Versions that can be read: the first knew no residual, and so corrected nothing."""

_RESIDUAL: Final = "residual."

_FORMER: Final = f"{_RESIDUAL}covariance"
"""An array that was stored once and is read no more."""

_SCENARIOS: Final = ("scenarios", "confirm_scenarios")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchInputs:
    """What a search may know.

    Attributes:
        cycle_id: Number of the cycle.
        specs: The knobs that the policy has.
        incumbent: The setting in force, with a value for each of them.
        scenarios: Loads on which candidates are scored.
        confirm_scenarios: Fresh draws on which the best are scored again.
        parameters: The calibrated twin.
        weights: Weights of the score, shape (13,).
        limits: Limits of the safety metrics, shape (13,); NaN where there is none.
        warm_starts: Settings that did well under similar loads, best first.
        trust: Factor on every slew limit, over 0: how far the twin is trusted.
        seed: Seed of all randomness.
        settings: Budgets.
        choices: For knobs whose native setting is a word: the values that the words stand for.
        residual: What verified changes say of the twin's promises.
        context: Load, as of `context_vector`, for which they are corrected; empty where it is not known.
    """

    cycle_id: int
    specs: tuple[KnobSpec, ...]
    incumbent: KnobValues
    scenarios: Scenarios
    confirm_scenarios: Scenarios
    parameters: TwinParameters
    weights: MetricVector
    limits: MetricVector
    warm_starts: tuple[KnobValues, ...]
    trust: float
    seed: int
    settings: SearchSettings
    choices: Mapping[Role, tuple[float, ...]] = field(default_factory=dict)
    residual: Residual = field(default_factory=Residual)
    context: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Refuse inputs that cannot be searched.

        Raises:
            ValueError: There is no knob, the incumbent lacks one, a vector is not in catalogue order or not of its
                length, a knob has no choice, or trust is not over 0.
        """
        if not self.specs:
            raise ValueError("a search needs at least one knob")
        missing = [spec.role for spec in self.specs if spec.role not in self.incumbent]
        if missing:
            raise ValueError(f"the incumbent has no value for {', '.join(missing)}")
        for name in ("weights", "limits"):
            shape = getattr(self, name).shape
            if shape != (METRIC_COUNT,):
                raise ValueError(f"{name} has shape {shape}, must be ({METRIC_COUNT},)")
        for role, values in self.choices.items():
            if not values:
                raise ValueError(f"{role} has no choices")
        if len(self.context) not in (0, CONTEXT_COMPONENTS):
            raise ValueError(f"context has {len(self.context)} components, must have none or {CONTEXT_COMPONENTS}")
        if not self.trust > 0:
            raise ValueError(f"trust is {self.trust}, must be over 0")

    def to_bytes(self) -> bytes:
        """Return the inputs as bytes, from which `from_bytes` makes an equal value."""
        arrays = {"weights": self.weights, "limits": self.limits, "context": np.array(self.context, dtype=np.float64)}
        arrays |= {f"{_RESIDUAL}{name}": array for name, array in self.residual.to_arrays().items()}
        plain: dict[str, Any] = {
            "format": _FORMAT,
            "cycle_id": self.cycle_id,
            "specs": [_spec_to_json(spec) for spec in self.specs],
            "incumbent": _knobs_to_json(self.incumbent),
            "parameters": self.parameters.to_json(),
            "warm_starts": [_knobs_to_json(values) for values in self.warm_starts],
            "trust": self.trust,
            "seed": self.seed,
            "settings": self.settings.model_dump(mode="json"),
            "choices": {role.value: list(values) for role, values in self.choices.items()},
        }
        for group in _SCENARIOS:
            arrays |= {f"{group}.{name}": array for name, array in getattr(self, group).to_arrays().items()}
        buffer = io.BytesIO()
        text = np.array(json.dumps(plain, allow_nan=False))
        np.savez_compressed(buffer, allow_pickle=False, inputs=text, **arrays)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> "SearchInputs":
        """Return the inputs that `to_bytes` wrote.

        Raises:
            ValueError: The bytes are not such inputs, or of another version.
        """
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            arrays.pop(_FORMER, None)
            plain = json.loads(arrays.pop("inputs").item())
        except (OSError, EOFError, KeyError, AttributeError, ValueError, BadZipFile) as error:
            raise ValueError(f"stored search inputs cannot be read: {error}") from error
        if plain["format"] not in _READABLE:
            known = ", ".join(map(str, _READABLE))
            raise ValueError(f"stored search inputs have format {plain['format']}, this version reads {known}")
        return cls(
            cycle_id=plain["cycle_id"],
            specs=tuple(KnobSpec(**{**spec, "role": Role(spec["role"])}) for spec in plain["specs"]),
            incumbent=_knobs_from_json(plain["incumbent"]),
            scenarios=_scenarios(arrays, "scenarios"),
            confirm_scenarios=_scenarios(arrays, "confirm_scenarios"),
            parameters=TwinParameters.from_json(plain["parameters"]),
            weights=arrays["weights"],
            limits=arrays["limits"],
            warm_starts=tuple(_knobs_from_json(values) for values in plain["warm_starts"]),
            trust=plain["trust"],
            seed=plain["seed"],
            settings=SearchSettings.model_validate(plain["settings"]),
            choices={Role(role): tuple(values) for role, values in plain["choices"].items()},
            residual=Residual.from_arrays(_group(arrays, _RESIDUAL)) if plain["format"] > 1 else Residual(),
            context=tuple(arrays["context"].tolist()) if plain["format"] > 1 else (),
        )


def _knobs_to_json(values: KnobValues) -> dict[str, float]:
    return {role.value: value for role, value in values.items()}


def _knobs_from_json(plain: Mapping[str, float]) -> KnobValues:
    return KnobValues.of({Role(role): value for role, value in plain.items()})


def _spec_to_json(spec: KnobSpec) -> dict[str, Any]:
    return {item.name: getattr(spec, item.name) for item in fields(spec)}


def _scenarios(arrays: Mapping[str, Any], group: str) -> Scenarios:
    return Scenarios.from_arrays(_group(arrays, f"{group}."))


def _group(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the arrays whose names begin in a way, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
