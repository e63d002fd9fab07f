import gzip
import math
import socket
import ssl
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.faulty import Handler, Request, answer, faulty_server
from tests.support.servers import require_program
from tuner.errors import SourceUnavailable
from tuner.observe.transport import GuardedSession, Retryable, is_loopback, with_retries
from tuner.settings.model import SourceSettings


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:9090", True),
        ("http://127.8.8.8", True),
        ("http://[::1]:9090/x", True),
        ("https://user:word@localhost:9090", True),
        ("http://prometheus:9090", False),
        ("http://10.0.0.1", False),
        ("http://localhost.example", False),
    ],
)
def test_proxies_are_left_out_for_this_machine_only(url: str, expected: bool) -> None:
    assert is_loopback(url) is expected
    assert GuardedSession(url).trust_env is not expected


@pytest.mark.parametrize("date", ["yesterday", "", "Mon, 99 Nov 2026 00:00:00 GMT"])
def test_a_date_that_is_none_tells_nothing_of_the_clock(date: str) -> None:
    def serve(handler: Handler, _: Request) -> None:
        handler.date_time_string = lambda timestamp=None: date  # type: ignore[method-assign]
        answer(handler, 200, b"fine")

    with faulty_server(serve) as server:
        session = GuardedSession(server.url)
        session.get(server.url)

    assert session.last.body == b"fine"
    assert math.isnan(session.last.clock_offset_seconds)


def test_a_deadline_that_has_passed_asks_nothing() -> None:
    with faulty_server(lambda handler, _: answer(handler, 200, b"")) as server:
        session = GuardedSession(server.url)
        session.deadline_at = time.monotonic() - 1
        with pytest.raises(SourceUnavailable, match="no time left"):
            session.get(server.url)

    assert server.requests == []


def test_connections_are_kept_between_questions_and_made_anew_after_a_deadline() -> None:
    peers: list[int] = []

    def serve(handler: Handler, _: Request) -> None:
        peers.append(handler.client_address[1])
        if len(peers) == 3:
            handler.rfile.read(1)  # Says nothing until the other side hangs up.
        else:
            answer(handler, 200, b"")

    settings = SourceSettings(timeout_seconds=0.3, retries=0)
    with faulty_server(serve) as server:
        session = GuardedSession(server.url)

        def ask() -> None:
            with_retries(session, settings, lambda _: session.get(server.url))

        ask()
        ask()
        with pytest.raises(SourceUnavailable):
            ask()
        ask()

    assert peers[0] == peers[1] == peers[2] != peers[3]


def test_compressed_answers_are_read_and_count_unpacked() -> None:
    text = b"x" * 100_000

    def serve(handler: Handler, _: Request) -> None:
        answer(handler, 200, gzip.compress(text), Content_Encoding="gzip")

    with faulty_server(serve) as server:
        session = GuardedSession(server.url)
        response = session.get(server.url)

    assert response.content == session.last.body == text


def test_a_deadline_holds_behind_tls(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    request = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([require_program("openssl"), *request, *names], check=True, capture_output=True, timeout=30)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    class Dripping(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            for _ in range(1000):
                try:
                    self.wfile.write(b" ")
                except OSError:
                    return
                time.sleep(0.01)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Dripping)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        session = GuardedSession(url := f"https://localhost:{server.server_address[1]}")
        session.verify = str(certificate)
        session.deadline_at = (started := time.monotonic()) + 1.0
        with pytest.raises(SourceUnavailable, match="did not answer within"):
            session.get(url)
        assert time.monotonic() - started < 6.0, "the server would take ten seconds"
    finally:
        server.shutdown()
        server.server_close()


def test_a_plain_get_keeps_its_parameters_in_the_url() -> None:
    with faulty_server(lambda handler, _: answer(handler, 200, b"")) as server:
        GuardedSession(server.url).request("GET", server.url, params={"a": "b"})
        GuardedSession(server.url).request("POST", server.url, params={"a": "b"})

    get, post = server.requests
    assert (get.url_parameters, get.body_parameters) == ({"a": "b"}, {})
    assert (post.url_parameters, post.body_parameters) == ({}, {"a": "b"})


def test_a_closed_port_is_told_in_plain_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        where = f"127.0.0.1:{listener.getsockname()[1]}"

    with pytest.raises(Retryable) as caught:
        GuardedSession(f"http://{where}").get(f"http://{where}/api/v1/query")

    assert str(caught.value) == f"{where}: Connection refused"
