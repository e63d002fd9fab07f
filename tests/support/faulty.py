"""A small real HTTP server that answers as a test tells it to: well, badly, slowly, or not at all."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit


@dataclass
class Request:
    """What came in: method, path, body, and the parameters of URL and body apart."""

    method: str
    path: str
    url_parameters: dict[str, str]
    body_parameters: dict[str, str]
    body: bytes


@dataclass
class FaultyServer:
    """The running server: its URL, and every request that it has seen."""

    url: str
    requests: list[Request] = field(default_factory=list)


Handler = BaseHTTPRequestHandler
Reply = Callable[[Handler, Request], None]


def answer(handler: Handler, status: int, body: bytes, **headers: str) -> None:
    """Send one whole answer; underscores in header names become dashes."""
    handler.send_response(status)
    for name, value in ({"Content_Type": "application/json"} | headers).items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@contextmanager
def faulty_server(*replies: Reply) -> Iterator[FaultyServer]:
    """Answer the first request with the first reply and so on; the last one serves all that follow."""
    server = FaultyServer("")

    class _Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # Headers and body are sent apart: each answer would wait for the other's turn.

        def do_POST(self) -> None:
            self._reply("POST")

        def do_GET(self) -> None:
            self._reply("GET")

        def _reply(self, method: str) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            text = body.decode(errors="replace")
            address = urlsplit(self.path)
            request = Request(method, address.path, dict(parse_qsl(address.query)), dict(parse_qsl(text)), body)
            server.requests.append(request)
            try:
                replies[min(len(server.requests), len(replies)) - 1](self, request)
            except OSError:  # The client has hung up, as it should on an answer that takes too long.
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{http.server_address[1]}"
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
