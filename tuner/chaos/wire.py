"""An HTTP server that may misbehave as servers do: late, cut short, or not there at all."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked.

    Attributes:
        method: GET, POST or PUT.
        path: With the query, as sent.
        headers: By their names in lower case.
        body: The content.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What is answered.

    Attributes:
        status: HTTP status; 0 closes the connection without a word.
        body: The content.
        headers: Beside the length.
        after_seconds: How long whoever asks is kept waiting.
        sent_ratio: Share of the content that is sent before the connection breaks.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    after_seconds: float = 0.0
    sent_ratio: float = 1.0


class Wire:
    """A server on a port of its own, which can be taken away and come back."""

    def __init__(self, answer: Callable[[Request], Reply]) -> None:
        """Listen at once, on the loopback interface."""
        self._answer = answer
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self.start()
        self.url: Final = f"http://127.0.0.1:{self._port}"
        """Where it listens, also after it was away."""

    def start(self) -> None:
        """Be there."""
        answer = self._answer

        class Handler(_Handler):
            def respond(self, request: Request) -> Reply:
                return answer(request)

        self._server = _Server(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Be away: connections are refused, and those that are open are cut."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


@contextmanager
def wire(answer: Callable[[Request], Reply]) -> Iterator[Wire]:
    """Answer requests for the length of a `with` block."""
    served = Wire(answer)
    try:
        yield served
    finally:
        served.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - As the base class has it.
        """Say nothing: who has asked may well be gone, and that is the point."""


class _Handler(BaseHTTPRequestHandler, ABC):
    disable_nagle_algorithm = True

    @abstractmethod
    def respond(self, request: Request) -> Reply:
        """Return what a request is answered."""

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self.respond(Request(self.command, self.path, headers, self.rfile.read(length)))
        time.sleep(reply.after_seconds)
        with suppress(OSError):
            if reply.status:
                self._send(reply)
        self.close_connection = True

    do_GET = do_POST = do_PUT = _serve  # noqa: N815 - As the base class has it.

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in {**reply.headers, "Content-Length": str(len(reply.body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body[: round(len(reply.body) * reply.sent_ratio)])

    def log_message(self, *_: object) -> None:
        """Say nothing."""
