"""What one cycle leaves for the next, as the journal keeps it."""

import json

import pytest

from tuner.errors import JournalError
from tuner.memory import Memory
from tuner.retune import SearchHistory

STORED = json.loads(Memory().to_json())


def test_what_was_searched_comes_back() -> None:
    memory = Memory(searches=SearchHistory(searched_at_seconds=7.0, context=(1.0, 2.5), searches=3, fruitless=1))

    restored = Memory.from_json(memory.to_json())

    assert restored.searches.context == memory.searches.context
    assert restored.to_json() == memory.to_json()


@pytest.mark.parametrize("trial", ["{}", "[]", "no JSON", '{"of": "another release"}'])
def test_a_trial_of_another_release_is_told_with_a_remedy(trial: str) -> None:
    text = json.dumps({**STORED, "trial": trial, "parameters": "{}"})

    with pytest.raises(JournalError, match=r"change on trial cannot be read .* move the journal away"):
        Memory.from_json(text)
