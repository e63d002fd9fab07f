import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.support.actuators import http_scheduler
from tuner.apply.exchange import MAX_ANSWER_BYTES, exchange
from tuner.errors import ActuatorUnavailable


@contextmanager
def raw_server(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """Serve one connection with whatever `talk` sends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                talk(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/config?a=b"
        thread.join()


def drip(*, head: bytes) -> Callable[[socket.socket], None]:
    def talk(connection: socket.socket) -> None:
        connection.sendall(head)
        stopped = threading.Event()
        try:
            while True:
                connection.sendall(b"x")
                stopped.wait(0.02)
        except OSError:
            pass  # The client hung up.

    return talk


def get(url: str, *, timeout_seconds: float = 5.0) -> tuple[int, str, bytes]:
    answer = exchange("GET", url, timeout_seconds=timeout_seconds, headers={})
    return answer.status, answer.etag, answer.body


def test_an_answer_is_returned_whatever_its_status() -> None:
    with http_scheduler({"a": 1}) as scheduler:
        assert get(f"{scheduler.url}/config") == (200, '"1"', b'{"a": 1}')
        scheduler.faults.get_status = 503
        assert get(f"{scheduler.url}/config") == (503, '"1"', b"out of order")


def test_the_query_of_an_address_is_sent() -> None:
    with http_scheduler({}) as scheduler:
        get(f"{scheduler.url}/config?who=me")

        assert scheduler.requests[0][1] == "/config?who=me"


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Long: ",
        b"",
    ],
    ids=["body", "closing", "old", "header", "status"],
)
def test_a_server_that_drips_is_cut_off_at_the_deadline(head: bytes) -> None:
    with raw_server(drip(head=head)) as url, pytest.raises(ActuatorUnavailable, match=r"answer within 0\.3 s"):
        get(url, timeout_seconds=0.3)


def test_a_silent_server_is_given_up_at_the_deadline() -> None:
    with http_scheduler({}) as scheduler:
        scheduler.faults.answer_after_seconds = 1.0

        with pytest.raises(ActuatorUnavailable, match=r"GET http://127.0.0.1:\d+/config: no answer within 0.2 s"):
            get(f"{scheduler.url}/config", timeout_seconds=0.2)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (MAX_ANSWER_BYTES + 1),
    ],
    ids=["nothing", "another protocol", "cut short", "too much"],
)
def test_what_is_no_whole_answer_is_told_with_the_address(sent: bytes) -> None:
    with (
        raw_server(lambda connection: connection.sendall(sent)) as url,
        pytest.raises(ActuatorUnavailable, match=r"GET http://127.0.0.1:\d+/config: "),
    ):
        get(url)


def test_a_closed_port_is_told_with_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/config"

    with pytest.raises(ActuatorUnavailable, match="Connection refused"):
        get(url)


def test_a_server_without_a_certificate_is_not_trusted() -> None:
    with http_scheduler({}) as scheduler, pytest.raises(ActuatorUnavailable, match="GET https://"):
        get(scheduler.url.replace("http", "https") + "/config")
