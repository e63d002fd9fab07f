import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.twin.parameters import HIGH, LOW, PARAMETERS, PRIOR, SPREAD, TwinParameters

UNITS = ("_seconds", "_ratio", "_share", "_count", "_stretch", "_accelerators", "_exponent", "burstiness")
numbers = st.floats(-20.0, 20.0)


def test_every_prior_lies_within_its_bounds_and_names_its_unit() -> None:
    assert ((LOW < PRIOR) & (PRIOR < HIGH)).all()
    for spec in PARAMETERS:
        assert spec.name.endswith(UNITS)
        assert spec.spread > 0
        assert spec.summary.endswith(".")


@given(st.lists(numbers, min_size=len(PARAMETERS), max_size=len(PARAMETERS)), st.floats(0.0, 1.0))
def test_survives_json_exactly(values: list[float], fidelity: float) -> None:
    before = replace(TwinParameters(), log_values=np.array(values), fidelity_ratio=fidelity, records=7, offered_low=0.1)

    after = TwinParameters.from_json(before.to_json())

    for name in TwinParameters.__slots__:
        assert np.array_equal(getattr(before, name), getattr(after, name), equal_nan=True), name
    assert after.to_json() == before.to_json()


def test_writes_strict_json_in_which_unknown_is_null() -> None:
    document = json.loads(TwinParameters().to_json(), parse_constant=pytest.fail)

    assert document["fidelity_ratio"] is None
    assert document["knobs"] == [None] * 4


def test_refuses_parameters_of_another_version() -> None:
    document = json.loads(TwinParameters().to_json())
    document["parameters"][0] = "another_seconds"

    with pytest.raises(ValueError, match="another version; calibrate anew"):
        TwinParameters.from_json(json.dumps(document))


@pytest.mark.parametrize("text", ["[]", "{}", '{"levels": []}'])
def test_refuses_other_documents(text: str) -> None:
    with pytest.raises(ValueError, match="missing or unknown"):
        TwinParameters.from_json(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"levels": np.zeros(3)}, r"levels has shape \(3,\), must be \(13,\)"),
        ({"log_values": PRIOR * np.nan}, "not finite"),
    ],
)
def test_refuses_vectors_that_cannot_be(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(TwinParameters(), **change)  # type: ignore[arg-type]


def test_gives_values_in_their_unit() -> None:
    assert TwinParameters().value("switch_seconds") == pytest.approx(0.004)
    assert math.isclose(math.log(TwinParameters().value("burstiness")), PRIOR[12])


def test_says_which_parameters_are_as_assumed() -> None:
    errors = SPREAD.copy()
    errors[[0, 3]] *= 0.5

    told = {spec.name for spec in PARAMETERS} - set(replace(TwinParameters(), log_errors=errors).untold)

    assert told == {PARAMETERS[0].name, PARAMETERS[3].name}
    assert len(TwinParameters().untold) == len(PARAMETERS)
