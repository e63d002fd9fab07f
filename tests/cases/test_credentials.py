"""What renewed credentials did to others: they are read anew for each request, and shown to nobody."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.cases.front import PrometheusSimulation, watched_world
from tests.support.actuators import MIDDLE, HttpScheduler, http_scheduler
from tests.support.faulty import Handler, Request, answer, faulty_server
from tuner import logs
from tuner.apply.http import HttpActuator
from tuner.errors import PermanentError, SourceUnavailable
from tuner.observe.prometheus import PrometheusSource
from tuner.observe.scrape import ScrapeSource
from tuner.observe.source import Source
from tuner.settings.loading import load_policy
from tuner.settings.model import HttpActuator as HttpActuatorSettings
from tuner.settings.model import KnobMapping, SourceSettings
from tuner.values.knobs import KnobValues, Role
from tuner.values.stages import Decision

pytestmark = pytest.mark.timeout(120)

OLD, NEW = "old-secret", "new-secret"
AT = 1_796_067_600.0
ONE = {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [AT, "1"]}]}}


class Door:
    """Answers 401 to whoever does not show the token that is good now."""

    def __init__(self) -> None:
        self.good = OLD
        self.shown: list[str] = []

    def __call__(self, handler: Handler, request: Request) -> None:
        self.shown.append(handler.headers.get("Authorization", ""))
        if self.shown[-1] != f"Bearer {self.good}":
            answer(handler, 401, b"token expired")
        elif request.path == "/metrics":
            answer(handler, 200, b"x 1\n", Content_Type="text/plain; version=0.0.4")
        else:
            answer(handler, 200, json.dumps(ONE, separators=(",", ":")).encode())


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{OLD}\n")
    return path


@pytest.mark.parametrize("kind", ["prometheus", "scrape"])
def test_a_source_that_wants_a_renewed_token_gets_it_with_the_next_request(token: Path, kind: str) -> None:
    """kubernetes-client/python#1768: after a token was renewed in place, requests went on with the old one."""
    door = Door()
    with faulty_server(door) as server:
        source = _source(server.url, kind, token)
        before = source.instant("x", at_seconds=AT)
        door.good = NEW
        with pytest.raises(SourceUnavailable, match="answers 401: token expired") as refused:
            source.instant("x", at_seconds=AT + 60)
        token.write_text(NEW)
        after = source.instant("x", at_seconds=AT + 120)

    assert len(before) == len(after) == 1
    assert door.shown == [f"Bearer {OLD}", f"Bearer {OLD}", f"Bearer {NEW}"]
    assert "secret" not in str(refused.value)


def _source(url: str, kind: str, token: Path, **settings: Any) -> Source:
    where = {"kind": kind, "url": f"{url}/metrics" if kind == "scrape" else url, "token_file": str(token)}
    parsed = SourceSettings.model_validate({**where, **settings})
    return ScrapeSource(parsed) if kind == "scrape" else PrometheusSource(parsed)


@pytest.mark.parametrize("content", [b"", b"two secret words", b"secret\r\nX-Other: 1", b"s\xe9cret", None])
def test_an_unusable_token_is_told_without_being_shown_and_nothing_is_asked(token: Path, content: bytes | None) -> None:
    """kubernetes-client/python#2591: requests without their header must not go out at all."""
    token.unlink()
    if content is not None:
        token.write_bytes(content)
    door = Door()
    with faulty_server(door) as server:
        source = _source(server.url, "prometheus", token)
        with pytest.raises(SourceUnavailable, match=r"check source\.token_file") as refused:
            source.instant("x", at_seconds=AT)

    assert door.shown == []
    assert "cret" not in str(refused.value)


def test_a_scheduler_that_wants_a_renewed_token_gets_it_with_the_next_request(
    token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kubernetes-client/python#2591: no header after an upgrade, 401 after a rotation."""
    knobs = {role: KnobMapping(native=role.value) for role in Role}
    with http_scheduler() as scheduler:
        _close_to(scheduler, monkeypatch, good := [OLD])
        settings = HttpActuatorSettings(url=f"{scheduler.url}/config", token_file=str(token))
        actuator = HttpActuator(settings, knobs)
        actuator.read()
        good[0] = NEW
        with pytest.raises(PermanentError, match="answers 401") as refused:
            actuator.read()
        token.write_text(NEW)
        written = actuator.write(KnobValues.of({**MIDDLE, Role.BASE_SLICE: 0.1}), expected_revision=scheduler.etag)

        assert written.knobs[Role.BASE_SLICE] == 0.1
        assert "secret" not in str(refused.value)
        assert all(headers["Authorization"].startswith("Bearer ") for _, _, headers, _ in scheduler.requests)


def _close_to(scheduler: HttpScheduler, monkeypatch: pytest.MonkeyPatch, good: list[str]) -> None:
    """Let a scheduler refuse whoever does not show the token that is good now."""
    get = HttpScheduler.get

    def guarded(self: HttpScheduler) -> tuple[int, bytes]:
        shown = self.requests[-1][2].get("Authorization")
        return get(self) if shown == f"Bearer {good[0]}" else (401, b"token expired")

    monkeypatch.setattr(HttpScheduler, "get", guarded)


@contextmanager
def logged() -> Iterator[StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = StringIO()
    logs.configure(level="debug", stream=stream)
    try:
        yield stream
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.reset_defaults()


def test_the_loop_goes_on_over_a_rotation_and_no_secret_is_logged_or_kept(tmp_path: Path, token: Path) -> None:
    """kubernetes-client/python#1768: a random 401 after a rotation; and apache/airflow#21087: what was lost is read."""
    with logged() as stream, watched_world(tmp_path) as world:
        _let_in(world, token)
        first = world.cycle()
        world.front.token = NEW
        locked_out = world.cycle()
        world.tick()
        blind = world.exported("source_up")
        token.write_text(NEW)
        again = world.cycle()
        world.tick()

        assert first.failure is None
        assert locked_out.decision == "failed"
        assert "answers 401" in locked_out.reason
        assert again.decision == Decision.HOLD
        assert again.failure is None
        assert (blind, world.exported("source_up")) == (0, 1)
        assert world.exported("stage_failures_total", stage="observe", reason="source_unavailable") == 1
        kept = (tmp_path / "journal.sqlite").read_bytes() + (tmp_path / "journal.sqlite-wal").read_bytes()
    assert "secret" not in stream.getvalue()
    assert b"-secret" not in kept


def _let_in(world: PrometheusSimulation, token: Path) -> None:
    """Close the front to whoever shows no token, and give ours to the tuner."""
    world.front.token = OLD
    source = world.policy.source.model_copy(update={"token_file": str(token)})
    world.policy = world.policy.model_copy(update={"source": source})
    world.parts.close()
    world.wires = world._wire()
    world.parts = world._assemble()


def test_the_path_of_a_token_counts_from_the_policy(tmp_path: Path) -> None:
    """kubernetes-client/python#1768: a path that is resolved elsewhere is a token that is not found."""
    policy = tmp_path / "policy.yaml"
    shipped = Path(__file__).parents[2] / "policies" / "reference.yaml"
    policy.write_text(
        shipped.read_text().replace(
            "  url: http://127.0.0.1:9090", "  url: http://127.0.0.1:9090\n  token_file: tokens/t"
        )
    )

    assert load_policy(policy).source.token_file == str(tmp_path / "tokens" / "t")
