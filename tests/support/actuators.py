"""Schedulers for tests of what writes to them: one in memory, and one behind real HTTP that can misbehave."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from tuner.apply.actuator import Current
from tuner.errors import ActuatorUnavailable, ChangeConflicted, ChangeRejected
from tuner.values.knobs import DESIGN_RANGES, KnobValues, Role, SchedulerMode, middle

MIDDLE: Final = middle(DESIGN_RANGES.values())


class MemoryActuator:
    """A scheduler in memory that keeps the contract, and fails when told to.

    Attributes:
        current: What is in force.
        writes: Number of writes that changed something.
        unreachable: While True, it cannot be reached.
        lose_answers: While True, writes have their effect but report that they cannot tell.
        largest: Values over it are refused.
    """

    def __init__(self, knobs: KnobValues = MIDDLE, *, mode: SchedulerMode = SchedulerMode.FULL) -> None:
        self.current = Current(knobs, mode, "1", {role.value: value for role, value in knobs.items()})
        self.writes = 0
        self.unreachable = False
        self.lose_answers = False
        self.largest = float("inf")

    def read(self) -> Current:
        if self.unreachable:
            raise ActuatorUnavailable("the scheduler cannot be reached")
        return self.current

    def await_effect(self, knobs: KnobValues, *, mode: SchedulerMode | None = None) -> Current:
        del knobs, mode
        return self.read()

    def write(self, knobs: KnobValues, *, expected_revision: str | None, mode: SchedulerMode | None = None) -> Current:
        before = self.read()
        wanted = KnobValues.of({**before.knobs, **knobs})
        if not wanted.differs(before.knobs) and mode in {None, before.mode}:
            return before
        if expected_revision is not None and before.revision != expected_revision:
            raise ChangeConflicted(f"at revision {before.revision}, not at {expected_revision}; nothing was written")
        if max(knobs.values()) > self.largest:
            raise ChangeRejected(f"a value is over {self.largest}; nothing was written")
        self.edit(wanted, mode=mode or before.mode)
        self.writes += 1
        if self.lose_answers:
            raise ActuatorUnavailable("the answer was lost")
        return self.current

    def edit(self, knobs: KnobValues, *, mode: SchedulerMode = SchedulerMode.FULL) -> None:
        """Change the settings as somebody else would."""
        native = {role.value: value for role, value in knobs.items()}
        self.current = Current(knobs, mode, str(int(self.current.revision) + 1), native)


@dataclass(slots=True)
class Faults:
    """How a scheduler behind HTTP misbehaves.

    Attributes:
        answer_after_seconds: Delay of each answer.
        put_answer_after_seconds: Further delay of the answer to a PUT, after it had its effect.
        put_status: Status of every PUT instead of the right one; 0 for the right one.
        put_applies: Whether a PUT with a wrong status has its effect all the same.
        get_status: Status of every GET instead of the right one; 0 for the right one.
        ignores_writes: Whether PUT says that all is well and does nothing.
        round_to: Values are rounded to multiples of this before they are stored; 0 keeps them.
        effective_after_gets: GETs after a PUT that still show the old settings.
        body: Answer to every GET instead of the settings.
        etag: Whether there is an ETag.
        instance: Name of its process that it tells; empty tells none.
    """

    answer_after_seconds: float = 0.0
    put_answer_after_seconds: float = 0.0
    put_status: int = 0
    put_applies: bool = True
    get_status: int = 0
    ignores_writes: bool = False
    round_to: float = 0.0
    effective_after_gets: int = 0
    body: bytes = b""
    etag: bool = True
    instance: str = ""


@dataclass(slots=True)
class HttpScheduler:
    """The settings of a scheduler behind HTTP, as the reference scheduler serves them.

    Attributes:
        url: Base URL.
        settings: What is in force.
        faults: How it misbehaves.
        generation: Counts changes; the ETag is made of it.
        requests: Method, path, headers and body of each request so far.
    """

    url: str
    settings: dict[str, Any]
    faults: Faults = field(default_factory=Faults)
    generation: int = 1
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    pending: list[dict[str, Any]] = field(default_factory=list)

    def edit(self, **changes: object) -> None:
        """Change settings as somebody else would."""
        self.settings = {**self.settings, **changes}
        self.generation += 1

    @property
    def etag(self) -> str:
        return f'"{self.generation}"'

    def puts(self, path: str = "/config") -> list[dict[str, Any]]:
        """Return the bodies of all PUTs to a path."""
        return [json.loads(body) for method, at, _, body in self.requests if (method, at) == ("PUT", path)]

    def get(self) -> tuple[int, bytes]:
        if self.faults.get_status:
            return self.faults.get_status, b"out of order"
        if self.pending:
            self.faults.effective_after_gets -= 1
            if self.faults.effective_after_gets < 0:
                self.edit(**self.pending.pop())
        return 200, self.faults.body or json.dumps(self.settings).encode()

    def put(self, body: bytes, *, if_match: str) -> tuple[int, bytes]:
        if if_match != self.etag:
            return 409, json.dumps({"error": f"the settings are at {self.etag}, not at {if_match}"}).encode()
        document = json.loads(body)
        if any(isinstance(value, float) and value > 5000 for value in document.values()):
            return 422, json.dumps({"error": "a value is over 5000"}).encode()
        if self.faults.put_applies and not self.faults.ignores_writes:
            self._apply(document)
        status = self.faults.put_status or 200
        return status, json.dumps(self.settings).encode() if status == 200 else b"something broke"

    def _apply(self, document: dict[str, Any]) -> None:
        step = self.faults.round_to
        if step:
            document = {k: round(v / step) * step if isinstance(v, float) else v for k, v in document.items()}
        if self.faults.effective_after_gets:
            self.pending.append(document)
        else:
            self.edit(**document)


@contextmanager
def http_scheduler(settings: dict[str, Any] | None = None) -> Iterator[HttpScheduler]:
    """Serve a scheduler's settings at `/config`, and take forecasts at `/forecast`, on a free loopback port."""
    if settings is None:
        settings = {role.value: MIDDLE[role] for role in Role} | {"mode": "full", "tiers": True}
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    scheduler = HttpScheduler(f"http://127.0.0.1:{server.server_port}", settings)
    server.scheduler = scheduler  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield scheduler
    finally:
        scheduler.faults = replace(scheduler.faults, answer_after_seconds=0, put_answer_after_seconds=0)
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer("GET")

    def do_PUT(self) -> None:
        self._answer("PUT")

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""

    def handle(self) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # The client gives up, as some tests want it to.
            super().handle()

    def _answer(self, method: str) -> None:
        scheduler: HttpScheduler = self.server.scheduler  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        scheduler.requests.append((method, self.path, dict(self.headers), body))
        if self.path == "/forecast":
            status, content = scheduler.faults.put_status or 200, b"{}"
        elif method == "GET":
            status, content = scheduler.get()
        else:
            status, content = scheduler.put(body, if_match=self.headers.get("If-Match", ""))
        patience = scheduler.faults.put_answer_after_seconds if method == "PUT" else 0.0
        time.sleep(scheduler.faults.answer_after_seconds + patience)
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        if scheduler.faults.etag:
            self.send_header("ETag", scheduler.etag)
        if scheduler.faults.instance:
            self.send_header("Scheduler-Instance", scheduler.faults.instance)
        self.end_headers()
        self.wfile.write(content)
