"""HTTP as a sidecar needs it: one try, a deadline that holds, bounded answers, errors of our own.

`requests` limits each wait for bytes but not the whole, so a server that drips can hold a caller for ever. Here a
timer shuts the connection's socket down when the deadline comes, wherever the exchange stands.
"""

import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit
from weakref import WeakSet

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from tuner.errors import QueryRejected, QueryTooLarge, SourceUnavailable
from tuner.settings.model import SourceSettings
from tuner.settings.tokens import authorization

MAX_ANSWER_BYTES: Final = 32 << 20
"""Largest answer that is read, decompressed: 10,000 nodes x an hour of minutes is 15 MB, and parsing takes tenfold."""

_CHUNK_BYTES: Final = 1 << 20

_FIRST_PAUSE_SECONDS: Final = 0.1
"""Pause before the second try; doubles with each."""

Result = TypeVar("Result")

_QUERY_IS_WRONG: Final = frozenset({400, 413, 414, 422, 431})
"""Statuses that speak of the query: malformed, too long, not executable. 401, 403 and 404 speak of the way to it."""

_TOO_MANY: Final = ("too many samples", "maximum resolution", "-search.maxsamples", "-search.maxpoints")
"""What Prometheus and VictoriaMetrics say when a shorter range would do."""


class Retryable(SourceUnavailable):
    """Another try may succeed at once: the connection broke, or the server asked for patience.

    Attributes:
        after_seconds: What the server asked for; 0 where it did not.
    """

    def __init__(self, message: str, *, after_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.after_seconds = after_seconds


class TooManySamples(QueryTooLarge):
    """The server refuses to load so many samples: a shorter range may pass."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What is remembered of the last answer.

    Attributes:
        body: The answer, decompressed.
        clock_offset_seconds: Clock of the server less ours, to about a second; NaN where it does not tell.
    """

    body: bytes = b""
    clock_offset_seconds: float = float("nan")


class GuardedSession(requests.Session):
    """A session whose requests end by a deadline and whose failures are ours.

    Parameters of a POST travel in its body, so that long expressions fit. Redirects are not followed: a query that is
    redirected meets a login page. Not for use by several threads at once.
    """

    def __init__(
        self,
        url: str,
        *,
        token_file: str | None = None,
        inspect: Callable[[bytes], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepare connections to one server.

        Args:
            url: Its base URL; proxies of the environment are not used for loopback addresses.
            token_file: File with a bearer token, read anew for each request because tokens are renewed in place.
            inspect: Looks at the body of each good answer before anything is made of it, and may raise.
            clock: Unix seconds, to compare with the server's.
        """
        super().__init__()
        self.last = Exchange()
        self.deadline_at = float("inf")
        self.where: Final = urlsplit(url).netloc.rpartition("@")[2]  # Without credentials: it stands in messages.
        self.trust_env = not is_loopback(url)
        self._token_file = token_file
        self._inspect = inspect
        self._clock = clock
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self.guard(url)

    def guard(self, prefix: str) -> None:
        """Use watched connections, without retries of their own, for URLs that start so."""
        self.mount(prefix, _WatchedAdapter(self._sockets))

    def prepare_request(self, request: requests.Request) -> requests.PreparedRequest:
        """Move the parameters of a POST into its body."""
        if request.method == "POST" and not request.data:
            request.data, request.params = request.params, {}
        return super().prepare_request(request)

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:  # noqa: ANN401
        """Send a request and read its answer, all before `deadline_at` (monotonic seconds).

        Raises:
            Retryable: The connection failed or broke, or the server answers 408, 429 or 5xx.
            SourceUnavailable: The deadline came, or the server answers anything else but 200.
            QueryRejected: The server answers that the query is wrong.
            QueryTooLarge: The answer is too large to be read.
            TooManySamples: The server says that the query would load too much.
        """
        remaining = self.deadline_at - time.monotonic()
        if remaining <= 0:
            raise SourceUnavailable(f"{self.where}: no time left to ask")
        try:
            request.headers.update(authorization(self._token_file, key="source.token_file"))
        except ValueError as error:
            raise SourceUnavailable(str(error)) from None
        kwargs |= {"stream": True, "allow_redirects": False, "timeout": min(remaining, threading.TIMEOUT_MAX)}
        self.last = Exchange()
        with self._cut_off(remaining) as expired:
            try:
                response = super().send(request, **kwargs)
                with response:
                    body = self._read(response)
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
                if expired.is_set() or time.monotonic() >= self.deadline_at:
                    raise SourceUnavailable(f"{self.where} did not answer within {remaining:.2g} s") from error
                raise Retryable(f"{self.where}: {_root(error)}") from error
            if expired.is_set():  # A body without a stated length looks complete when it is cut off.
                raise SourceUnavailable(f"{self.where} did not answer within {remaining:.2g} s")
        self.last = Exchange(body, self._offset(response.headers.get("Date")))
        self._check(response, body)
        self._inspect(body)
        response.raw = io.BytesIO(body)
        return response

    @contextmanager
    def _cut_off(self, after_seconds: float) -> Iterator[threading.Event]:
        """Shut all sockets down after some time; yields the event that tells that it happened."""
        expired = threading.Event()

        def cut() -> None:
            expired.set()
            for each in list(self._sockets):
                with suppress(OSError):
                    socket.socket.shutdown(each, socket.SHUT_RDWR)  # Not TLS's own, which would wait for its peer.

        timer = threading.Timer(min(after_seconds, threading.TIMEOUT_MAX), cut)
        timer.daemon = True
        timer.start()
        try:
            yield expired
        finally:
            timer.cancel()

    def _read(self, response: requests.Response) -> bytes:
        parts: list[bytes] = []
        size = 0
        for part in response.raw.stream(_CHUNK_BYTES, decode_content=True):
            parts.append(part)
            size += len(part)
            if size > MAX_ANSWER_BYTES:
                raise TooManySamples(f"{self.where} answers more than {MAX_ANSWER_BYTES >> 20} MiB")
        return b"".join(parts)

    def _check(self, response: requests.Response, body: bytes) -> None:
        """Raise unless the status is 200."""
        status = response.status_code
        if status == requests.codes.ok:
            return
        detail = f"{self.where} answers {status}: {_error_text(body)}"
        if status in _QUERY_IS_WRONG:
            raise rejection(detail)
        if status in {408, 429} or status >= 500:
            raise Retryable(detail, after_seconds=_retry_after(response.headers.get("Retry-After")))
        target = response.headers.get("Location")
        hint = f", redirects to {target}" if target else ""
        raise SourceUnavailable(f"{detail}{hint}; check source.url and what stands between")

    def _offset(self, date: str | None) -> float:
        try:
            # The header is cut to whole seconds, so on average the server is half a second further.
            return parsedate_to_datetime(date).timestamp() + 0.5 - self._clock() if date else float("nan")
        except ValueError:
            return float("nan")


def with_retries(session: GuardedSession, settings: SourceSettings, ask: Callable[[int], Result]) -> Result:
    """Return what asking gives, asking again as long as that may help and the deadline allows.

    Args:
        session: Through which it asks; its deadline is set.
        settings: Deadline and number of further tries.
        ask: Makes one request; is given the number of the try, from 1 on.

    Raises:
        SourceUnavailable: All tries failed, or there is no time for another one.
    """
    session.deadline_at = time.monotonic() + settings.timeout_seconds
    for attempt in range(settings.retries):
        try:
            return ask(attempt + 1)
        except Retryable as error:
            pause = max(error.after_seconds, _FIRST_PAUSE_SECONDS * 2**attempt)
            if time.monotonic() + pause >= session.deadline_at:
                raise
            time.sleep(pause)
    return ask(settings.retries + 1)


class _WatchedAdapter(HTTPAdapter):
    """Opens connections whose sockets are known, and never retries."""

    def __init__(self, sockets: WeakSet[socket.socket]) -> None:
        self._sockets = sockets
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        super().init_poolmanager(*args, **kwargs)
        sockets = self._sockets

        class WatchedHTTP(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                sockets.add(self.sock)

        class WatchedHTTPS(HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                sockets.add(self.sock)

        class PoolHTTP(HTTPConnectionPool):
            ConnectionCls = WatchedHTTP

        class PoolHTTPS(HTTPSConnectionPool):
            ConnectionCls = WatchedHTTPS

        self.poolmanager.pool_classes_by_scheme = {"http": PoolHTTP, "https": PoolHTTPS}


def _root(error: BaseException) -> str:
    """Return what went wrong at the bottom, without the names of the library's objects around it."""
    inner: object = error
    while isinstance(inner, BaseException):
        error = inner
        inner = getattr(error, "reason", None)  # Of urllib3's errors; a text in OpenSSL's.
        if not isinstance(inner, BaseException):
            inner = error.__cause__ or (error.args[-1] if error.args else None)
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


def _error_text(body: bytes) -> str:
    """Return the `error` of a JSON answer, else its first words."""
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return body[:300].decode(errors="replace").strip()


def rejection(detail: str) -> QueryRejected | TooManySamples:
    """Return the error for a refused query: too large where the text says so, else wrong."""
    lowered = detail.lower()
    return TooManySamples(detail) if any(text in lowered for text in _TOO_MANY) else QueryRejected(detail)


def is_loopback(url: str) -> bool:
    """Say whether a URL leads to this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _retry_after(header: str | None) -> float:
    """Return the seconds of a Retry-After header; 0 where there are none, for dates count as none."""
    return float(header) if header and header.isdecimal() else 0.0
