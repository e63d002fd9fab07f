"""The reference scheduler behind HTTP, in real time.

    GET /metrics     the text format 0.0.4
    GET /config      settings as JSON, with an ETag and the name of this process
    PUT /config      replaces them: If-Match is required (428 without); 409 when it is stale, 400 for bad values
    PUT /forecast    hands over a demand forecast (204), which may be replaced at any time and so needs no If-Match
    GET /healthz     200 while the replay goes on, else 503

Refusals are JSON objects with the key `error`. `If-Match: *` is accepted, as RFC 9110 (13.1.1) has it: who sends it
says that whatever is set may be overwritten. What was accepted is served at once, and is in force from the next
decision on. An ETag never comes back: it names this process and the number of the change.
"""

import secrets
import signal
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tuner import serving
from tuner.errors import ChangeRejected
from tuner.reference.cluster import ClusterSpec
from tuner.reference.demand import DemandForecast
from tuner.reference.documents import forecast_of, settings_document, settings_of
from tuner.reference.exposition import CONTENT_TYPE, Exposition
from tuner.reference.pacing import PacedScheduler, Progress
from tuner.reference.settings import ClockSettings
from tuner.reference.trace import Trace

MAX_BODY_BYTES: Final = 1 << 20
"""Largest request: a forecast of 100,000 steps."""


INSTANCE_HEADER: Final = "Scheduler-Instance"
"""Header that names this process, so that a restart is not taken for an edit."""


class SettingsStore:
    """The settings that were last accepted, with their revision.

    Attributes:
        process: Names this process.
    """

    def __init__(self, settings: ClockSettings) -> None:
        """Begin at revision 1."""
        self._lock = threading.Lock()
        self.process: Final = secrets.token_hex(4)
        self._revision = 1
        self._settings = settings

    def read(self) -> tuple[ClockSettings, str]:
        """Return the settings and their ETag."""
        with self._lock:
            return self._settings, self._tag()

    def replace(self, settings: ClockSettings, *, condition: str) -> str | None:
        """Accept settings if a condition holds; return their ETag, or None where it does not hold.

        Equal settings are accepted without a new revision, so that a request may be sent twice.

        Args:
            settings: What is to be.
            condition: Value of If-Match: ETags separated by commas, or `*`.
        """
        with self._lock:
            if condition.strip() != "*" and self._tag() not in [tag.strip() for tag in condition.split(",")]:
                return None
            if settings != self._settings:
                self._settings = settings
                self._revision += 1
            return self._tag()

    def _tag(self) -> str:
        return f'"{self.process}-{self._revision}"'


class Controlled(Protocol):
    """A scheduler as the HTTP interface sees it: where it is, and what can be left for its next step."""

    failure: BaseException | None

    @property
    def progress(self) -> Progress:
        """Where it is."""
        ...

    def configure(self, settings: ClockSettings) -> None:
        """Leave a setting."""
        ...

    def set_forecast(self, forecast: DemandForecast) -> None:
        """Leave a forecast."""
        ...


class Service:
    """Answers requests; each is a pure look, or leaves something for the scheduler's thread."""

    def __init__(self, paced: Controlled, settings: ClockSettings) -> None:
        """Lay out the metrics."""
        self._paced = paced
        self._store = SettingsStore(settings)
        self._exposition = Exposition(paced.progress.snapshot)

    def application(self) -> Starlette:
        """Return the routes."""
        return Starlette(
            routes=[
                Route("/metrics", self._metrics, methods=["GET"]),
                Route("/config", self._config, methods=["GET"]),
                Route("/config", self._put_config, methods=["PUT"]),
                Route("/forecast", self._put_forecast, methods=["PUT"]),
                Route("/healthz", self._healthz, methods=["GET"]),
            ],
            exception_handlers={ChangeRejected: _refused},
        )

    async def _metrics(self, _: Request) -> Response:
        page = self._exposition.text(self._paced.progress.snapshot)
        return Response(page, headers={"Content-Type": CONTENT_TYPE})

    async def _config(self, _: Request) -> Response:
        settings, tag = self._store.read()
        headers = {"ETag": tag, INSTANCE_HEADER: self._store.process}
        return JSONResponse(settings_document(settings), headers=headers)

    async def _put_config(self, request: Request) -> Response:
        condition = request.headers.get("if-match")
        if condition is None:
            return _error(HTTPStatus.PRECONDITION_REQUIRED, "If-Match is missing; send the ETag of GET /config")
        settings = settings_of(await _body(request), current=self._store.read()[0])
        tag = self._store.replace(settings, condition=condition)
        if tag is None:
            _, current = self._store.read()
            return _error(HTTPStatus.CONFLICT, f"the settings are at {current}, not at {condition}; read them again")
        self._paced.configure(settings)
        return JSONResponse(settings_document(settings), headers={"ETag": tag})

    async def _put_forecast(self, request: Request) -> Response:
        self._paced.set_forecast(forecast_of(await _body(request), clock=self._paced.progress.clock))
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def _healthz(self, _: Request) -> Response:
        progress, failure = self._paced.progress, self._paced.failure
        body = {
            "live": failure is None,
            "now_seconds": round(progress.snapshot.now_seconds, 3),
            "behind_seconds": round(progress.behind_seconds, 3),
            "round": progress.round,
            "failure": None if failure is None else str(failure),
        }
        return JSONResponse(body, HTTPStatus.OK if failure is None else HTTPStatus.SERVICE_UNAVAILABLE)


async def _body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise ChangeRejected(f"the body is longer than {MAX_BODY_BYTES} bytes")
    return body


def _error(status: HTTPStatus, message: str) -> Response:
    return JSONResponse({"error": message}, status)


async def _refused(_: Request, error: Exception) -> Response:
    return _error(HTTPStatus.BAD_REQUEST, str(error))


class ReferenceServer:
    """A running scheduler and its HTTP interface; use as a context manager, or call `stop`."""

    def __init__(
        self,
        trace: Trace,
        cluster: ClusterSpec,
        *,
        settings: ClockSettings,
        seed: int,
        listen: str,
        speed: float = 1.0,
    ) -> None:
        """Listen and let time begin; returns once requests are answered.

        Args:
            trace: What is submitted, repeated without end.
            cluster: Where it runs.
            settings: The first setting.
            seed: Seed of all that is random.
            listen: `HOST:PORT`; port 0 picks a free one.
            speed: Seconds of the replay in a second of the wall; over 0.

        Raises:
            ConfigError: The address is malformed or in use, or another argument makes no sense.
        """
        # Before the scheduler is built, which takes seconds for a long trace.
        bound = serving.bind(listen)
        try:
            self._paced = PacedScheduler(trace, cluster, settings=settings, seed=seed, speed=speed)
        except BaseException:
            bound.close()
            raise
        self._server = serving.start(Service(self._paced, settings).application(), listen=bound)
        self.url: Final = self._server.url
        """Base URL without a trailing slash."""
        self._paced.start()

    def __enter__(self) -> "ReferenceServer":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    @property
    def failure(self) -> BaseException | None:
        """What ended the replay although nobody stopped it; None while all is well."""
        return self._paced.failure

    def stop(self) -> None:
        """Stop accepting, let answers and the step under way end, and wait for both threads."""
        self._server.stop()
        self._paced.stop()


def serve(
    trace: Trace,
    cluster: ClusterSpec,
    *,
    settings: ClockSettings,
    seed: int,
    listen: str,
    speed: float = 1.0,
    ready: Callable[[str], None] | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Serve until SIGINT, SIGTERM or `stop`; see `ReferenceServer` for the arguments.

    Args:
        trace: What is submitted.
        cluster: Where it runs.
        settings: The first setting.
        seed: Seed of all that is random.
        listen: `HOST:PORT`.
        speed: Seconds of the replay in a second of the wall.
        ready: Called with the base URL once requests are answered.
        stop: Ends it when set; signals are only watched without it, which needs the main thread.

    Raises:
        ConfigError: An argument makes no sense.
        BaseException: Whatever ended the replay although nobody stopped it.
    """
    ended = stop or _on_signals()
    with ReferenceServer(trace, cluster, settings=settings, seed=seed, listen=listen, speed=speed) as server:
        if ready is not None:
            ready(server.url)
        while not ended.wait(0.2) and server.failure is None:
            pass
        if server.failure is not None:
            raise server.failure


def _on_signals() -> threading.Event:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    return ended
