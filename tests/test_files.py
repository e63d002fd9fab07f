"""What is told where a file that a person named cannot be written."""

from pathlib import Path

import pytest

from tuner.bench.results import Results
from tuner.errors import ConfigError
from tuner.files import explained


def test_the_path_the_reason_and_a_remedy_are_told(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match=r"x\.json cannot be written \(No such file or directory\); name another"),
        explained(tmp_path / "x.json"),
    ):
        (tmp_path / "none" / "x.json").write_text("")


def test_figures_that_cannot_be_written_are_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        Results(name="twin", figures={}).write(tmp_path / "none" / "x.json")
