"""One HTTP request and its answer, for control: no retries, no redirects, no proxies, a deadline that holds.

A library that follows redirects, repeats requests or reads credentials from a file in the home folder is a risk where
a write must happen once, and a token must go to one place. Python's own client does none of these.
"""

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from tuner.errors import ActuatorUnavailable

MAX_ANSWER_BYTES: Final = 1 << 20
"""Largest answer that is read: settings have a few kilobytes."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back.

    Attributes:
        status: HTTP status.
        etag: The entity tag as sent, quotes and all; empty where there is none.
        body: The content.
        headers: The other headers by their names in lower case; of several with one name the last.
    """

    status: int
    etag: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


def exchange(
    method: str, url: str, *, timeout_seconds: float, headers: Mapping[str, str], body: bytes | None = None
) -> Answer:
    """Send one request and read its answer.

    Args:
        method: GET or PUT.
        url: Where to; http or https, whose certificate is verified.
        timeout_seconds: Time for all of it, but for the look-up of the host's name.
        headers: Sent as they are.
        body: Content to send.

    Raises:
        ActuatorUnavailable: There was no whole answer in time. A request that was sent may have had its effect.
    """
    parts = urlsplit(url)
    where = f"{method} {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    connection = _connection(parts.scheme, parts.hostname or "", parts.port, timeout_seconds)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    expired = threading.Event()
    opened: list[socket.socket] = []

    def cut_off() -> None:
        expired.set()
        for each in opened:
            with suppress(OSError):
                socket.socket.shutdown(each, socket.SHUT_RDWR)  # Not TLS's own, which would wait for its peer.

    # A timeout of the socket limits each wait for bytes; only the timer stops a server that drips them.
    timer = threading.Timer(timeout_seconds, cut_off)
    timer.daemon = True
    timer.start()
    try:
        connection.connect()
        # Remembered here, because the client forgets its socket as soon as the server announces to close it.
        opened.append(connection.sock)
        connection.request(method, target, body=body, headers=dict(headers))
        response = connection.getresponse()
        content = response.read(MAX_ANSWER_BYTES + 1)
    except (OSError, http.client.HTTPException) as error:
        late = expired.is_set() or isinstance(error, TimeoutError)
        what = f"no answer within {timeout_seconds:g} s" if late else str(error) or type(error).__name__
        raise ActuatorUnavailable(f"{where}: {what}") from error
    finally:
        timer.cancel()
        connection.close()
    if expired.is_set():  # A body without a stated length looks complete when it is cut off.
        raise ActuatorUnavailable(f"{where}: no whole answer within {timeout_seconds:g} s")
    if len(content) > MAX_ANSWER_BYTES:
        raise ActuatorUnavailable(f"{where}: the answer has more than {MAX_ANSWER_BYTES} bytes")
    if response.length:  # What is still to come of the length that was announced.
        raise ActuatorUnavailable(f"{where}: the answer ends {response.length} bytes early")
    others = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, others.pop("etag", ""), content, others)


def _connection(scheme: str, host: str, port: int | None, timeout_seconds: float) -> http.client.HTTPConnection:
    if scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=timeout_seconds, context=context)
    return http.client.HTTPConnection(host, port, timeout=timeout_seconds)
