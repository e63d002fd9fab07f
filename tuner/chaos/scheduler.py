"""A scheduler's settings behind HTTP, which outlives the tuner and remembers everything that was asked of it."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tuner import serving
from tuner.values.knobs import DESIGN_RANGES, middle

PERSON: Final = "X-Person"
"""Header of writes that are not the tuner's."""


@dataclass(frozen=True, slots=True)
class Put:
    """One write that was accepted.

    Attributes:
        document: What was set.
        foretold: Whether the tuner's journal knew of it when it came; None where a person wrote.
    """

    document: dict[str, object]
    foretold: bool | None


@dataclass(slots=True)
class Settings:
    """What is set, and what was.

    Attributes:
        document: In force.
        puts: Accepted writes, in order.
        foretold: Says of a document whether a journal holds an open intent for it.
        forgets: Keys of which it does not take up what is written.
        instance: Name of its process.
    """

    document: dict[str, object] = field(default_factory=dict)
    puts: list[Put] = field(default_factory=list)
    foretold: Callable[[dict[str, object]], bool] = lambda _: False
    forgets: frozenset[str] = frozenset()
    instance: int = 1
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def tag(self) -> str:
        """Entity tag of what is in force; each write has another one."""
        return f'"{self.instance}-{len(self.puts)}"'

    def restart(self) -> None:
        """Come back as another process, with the defaults."""
        self.instance += 1
        self.document = _middle()

    async def get(self, _: Request) -> Response:
        """Serve what is in force."""
        return JSONResponse(self.document, headers={"ETag": self.tag, "Scheduler-Instance": str(self.instance)})

    async def put(self, request: Request) -> Response:
        """Accept a write by whoever knows the newest tag."""
        document = json.loads(await request.body())
        condition = request.headers.get("if-match")
        with self._lock:
            if condition not in (self.tag, "*"):
                return JSONResponse({"error": f"at {self.tag}, not at {condition}"}, HTTPStatus.CONFLICT)
            ours = PERSON.lower() not in request.headers
            self.puts.append(Put(document, self.foretold(document) if ours else None))
            kept = {key: self.document[key] for key in self.forgets if ours}
            self.document = {**document, **kept}
            return JSONResponse(document, headers={"ETag": self.tag})


@contextmanager
def settings_server() -> Iterator[tuple[str, Settings]]:
    """Serve settings for the length of a `with` block; yields the URL of the settings, and themselves."""
    settings = Settings(_middle())
    routes = [
        Route("/config", settings.get, methods=["GET"]),
        Route("/config", settings.put, methods=["PUT"]),
    ]
    server = serving.start(Starlette(routes=routes), listen="127.0.0.1:0")
    try:
        yield f"{server.url}/config", settings
    finally:
        server.stop()


def _middle() -> dict[str, object]:
    return {role.value: value for role, value in middle(DESIGN_RANGES.values()).items()} | {"mode": "full"}
