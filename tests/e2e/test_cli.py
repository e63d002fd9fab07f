"""The command line as a person types it: help, versions, and errors that are sentences."""

import json
import re
from pathlib import Path

import pytest

from tests.support.commands import clocktuner
from tuner import __version__

pytestmark = pytest.mark.e2e

POLICIES = Path(__file__).parents[2] / "policies"

COMMANDS = (
    ("run", "Look after a scheduler until told to stop."),
    ("once", "Run one cycle"),
    ("check", "Tell, per metric and knob"),
    ("status", "Say in what state the tuner is"),
    ("history", "List the last cycles"),
    ("explain", "Explain one cycle"),
    ("replay", "Repeat a decision from the journal"),
    ("report", "Write the plan-do-check-act report"),
    ("demo", "Replay real traces three times"),
    ("reference", "Run the reference scheduler in real time"),
    ("train", "Train the forecasting network"),
    ("schema", "Print the JSON schema of policies"),
    ("bench", "Measure"),
)


def test_help_names_every_command_with_what_it_does() -> None:
    done = clocktuner("--help")

    assert done.returncode == 0
    for command, purpose in COMMANDS:
        assert re.search(rf"\b{command}\b.*{re.escape(purpose)}", done.stdout), command


def test_the_version_is_the_package_s() -> None:
    done = clocktuner("--version")

    assert (done.returncode, done.stdout) == (0, f"clocktuner {__version__}\n")


def test_the_schema_is_the_one_that_is_shipped(tmp_path: Path) -> None:
    printed = clocktuner("schema")
    written = clocktuner("schema", "--output", str(tmp_path / "schema.json"))

    assert (printed.returncode, written.returncode) == (0, 0)
    assert json.loads(printed.stdout)["title"]
    assert printed.stdout == (tmp_path / "schema.json").read_text(encoding="utf-8")
    assert printed.stdout == (POLICIES / "schema.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["run", "once", "check"])
def test_a_missing_policy_is_a_sentence_and_exit_status_2(command: str, tmp_path: Path) -> None:
    policy = tmp_path / "nowhere.yaml"

    done = clocktuner(command, "--policy", str(policy))

    assert done.returncode == 2
    assert done.stderr.startswith(f"clocktuner: {policy}")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_wrong_policy_is_told_with_file_and_line(tmp_path: Path) -> None:
    text = (POLICIES / "reference.yaml").read_text(encoding="utf-8").replace("version: 1", "version: 7")
    policy = tmp_path / "policy.yaml"
    policy.write_text(text, encoding="utf-8")
    line = 1 + text[: text.index("version: 7")].count("\n")

    done = clocktuner("check", "--policy", str(policy))

    assert done.returncode == 2
    assert f"{policy}:{line}: version is 7" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_journal_is_a_sentence(tmp_path: Path) -> None:
    done = clocktuner("status", "--journal", str(tmp_path / "none.sqlite"))

    assert done.returncode in {2, 3}
    assert "there is no journal" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_source_that_does_not_answer_is_found_by_check(tmp_path: Path) -> None:
    done = clocktuner(
        "check", "--policy", str(POLICIES / "reference.yaml"), "--prometheus", "http://127.0.0.1:1", timeout_seconds=120
    )

    assert done.returncode == 1
    assert "check source.url" in done.stdout
    assert "Traceback" not in done.stderr


def test_an_unknown_log_level_is_refused_with_the_known_ones() -> None:
    done = clocktuner("run", "--policy", str(POLICIES / "reference.yaml"), "--log-level", "loud")

    assert done.returncode == 2
    for level in ("debug", "info", "warning", "error"):
        assert level in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_command_exits_with_status_2() -> None:
    done = clocktuner("tune")

    assert done.returncode == 2
    assert "No such command 'tune'" in done.stderr


def test_a_trace_of_an_unknown_format_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("submit_seconds,duration_seconds,gpus\n0,1,1\n", encoding="utf-8")

    done = clocktuner("reference", "--trace", str(trace), "--format", "xls", "--listen", "127.0.0.1:0")

    assert done.returncode == 2
    assert "format is 'xls', must be one of" in done.stderr
    assert "Traceback" not in done.stderr
