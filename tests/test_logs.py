"""Logs: strict JSON, no secrets."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from tuner import logs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    out = io.StringIO()
    logs.configure(stream=out)
    yield out
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_a_line_is_one_json_object_with_the_event_and_its_fields(stream: io.StringIO) -> None:
    logs.get("cycle").info("change_applied", cycle_id=12, gain_ratio=0.07)

    line = json.loads(stream.getvalue())
    assert (line["event"], line["part"], line["cycle_id"], line["gain_ratio"]) == ("change_applied", "cycle", 12, 0.07)
    assert line["level"] == "info"
    assert line["timestamp"].endswith("Z")


def test_numbers_that_json_does_not_know_become_null(stream: io.StringIO) -> None:
    logs.get("cycle").info("cycle_ended", score=float("nan"), nested={"inf": float("inf")}, series=[1.0, float("nan")])

    line = json.loads(stream.getvalue())
    assert line["score"] is None
    assert line["nested"] == {"inf": None}
    assert line["series"] == [1.0, None]


def test_secrets_are_not_written(stream: io.StringIO) -> None:
    logs.get("apply").info("request_sent", bearer_token="abc123", url="http://127.0.0.1")

    assert "abc123" not in stream.getvalue()


def test_lines_of_libraries_have_the_same_form(stream: io.StringIO) -> None:
    logging.getLogger("some.library").warning("look out")

    assert json.loads(stream.getvalue())["event"] == "look out"


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="log level is 'loud'"):
        logs.configure(level="loud")
