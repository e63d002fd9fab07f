"""Files that are read: what is wrong with one is told with what it must be."""

from pathlib import Path

import pytest

from tuner.alerts.lint.rules import read_rules
from tuner.errors import ConfigError
from tuner.settings.documents import MAX_BYTES, read_document
from tuner.settings.loading import load_policy

UNFIT = {
    "empty": b"# nothing\n",
    "a list": b"- 1\n",
    "too large": b"#" * (MAX_BYTES + 1),
    "nested too deeply": b"[" * 20_000,
}


@pytest.mark.parametrize("content", UNFIT.values(), ids=UNFIT)
def test_a_message_says_what_the_file_must_be(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "given.yaml"
    path.write_bytes(content)

    with pytest.raises(ConfigError, match=r"must be .*a policy"):
        load_policy(path)
    with pytest.raises(ConfigError, match=r"must be .*a file of Prometheus rules") as caught:
        read_rules(path)

    assert "policy" not in str(caught.value)
    assert "policies" not in str(caught.value)


def test_a_message_ends_with_the_remedy_of_whoever_reads(tmp_path: Path) -> None:
    path = tmp_path / "given.yaml"
    path.touch()

    with pytest.raises(ConfigError, match=r"the file is empty, must be a shopping list; ask the cook$"):
        read_document(path, what="a shopping list", remedy="ask the cook")


def test_a_document_remembers_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "given.yaml"
    path.write_text("base: &base\n  low: 1\nknob:\n  <<: *base\n  high: 2\n  list:\n    - a\n    - b\n")

    document = read_document(path, what="a policy", remedy="start anew")

    assert document.data["knob"] == {"low": 1, "high": 2, "list": ["a", "b"]}
    assert document.lines[("knob", "low")] == 2
    assert document.lines[("knob", "high")] == 5
    assert document.lines[("knob", "list", 1)] == 8
    assert document.faults == ()
