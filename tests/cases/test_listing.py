"""The table of cases says what is true: every test that it names exists, and every case is in it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs" / "cases.md").read_text(encoding="utf-8")


def test_every_case_is_listed_once() -> None:
    assert re.findall(r"^\| (C\d\d):", TABLE, re.MULTILINE) == [f"C{number:02d}" for number in range(1, 20)]


def test_every_test_that_is_named_exists() -> None:
    file = ""
    named = re.findall(r"`((?:tests/[\w/]*/)?[\w/]*test_\w+\.py)?(?:::(test_\w+))?`", TABLE)
    named = [(path, name) for path, name in named if path or name]
    for path, name in named:
        file = path or file
        text = (ROOT / (file if file.startswith("tests/") else f"tests/cases/{file}")).read_text(encoding="utf-8")
        assert not name or f"def {name}(" in text, (file, name)
    assert len(named) > 30
