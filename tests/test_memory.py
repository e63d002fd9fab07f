"""What one cycle leaves for the next, as the journal keeps it."""

import json

import pytest

from tuner.errors import JournalError
from tuner.memory import Memory
from tuner.values.knobs import KnobValues, Role

STORED = json.loads(Memory(in_force=KnobValues.of({Role.BASE_SLICE: 0.1})).to_json())


def test_what_is_in_force_comes_back() -> None:
    memory = Memory(in_force=KnobValues.of({Role.BASE_SLICE: 0.1}), known_good=KnobValues.of({Role.BASE_SLICE: 0.09}))

    assert Memory.from_json(memory.to_json()).to_json() == memory.to_json()


@pytest.mark.parametrize("trial", ["{}", "[]", "no JSON", '{"of": "another release"}'])
def test_a_trial_of_another_release_is_told_with_a_remedy(trial: str) -> None:
    text = json.dumps({**STORED, "trial": trial, "parameters": "{}"})

    with pytest.raises(JournalError, match=r"change on trial cannot be read .* move the journal away"):
        Memory.from_json(text)
