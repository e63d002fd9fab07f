"""Run an ASGI application in a thread of this process, on loopback unless told otherwise, and stop it cleanly."""

import socket
import threading
import time
from dataclasses import dataclass
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from tuner.errors import ConfigError

_START_WITHIN_SECONDS: Final = 10.0
_STOP_WITHIN_SECONDS: Final = 5.0


@dataclass(slots=True)
class Server:
    """A server that runs until `stop` is called.

    Attributes:
        host: Address that it listens on.
        port: Port that it listens on, also where port 0 was asked for.
    """

    host: str
    port: int
    _server: uvicorn.Server
    _thread: threading.Thread

    @property
    def url(self) -> str:
        """Base URL without a trailing slash."""
        return f"http://{self.host}:{self.port}"

    def stop(self) -> None:
        """Stop accepting, let answers under way finish, and wait for the thread."""
        self._server.should_exit = True
        self._thread.join(_STOP_WITHIN_SECONDS)


def split_listen(listen: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`.

    Raises:
        ConfigError: It is not of that form.
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f"listen address is {listen!r}, must be HOST:PORT, such as 127.0.0.1:9464")
    return host, int(port)


def bind(listen: str) -> socket.socket:
    """Return a socket on an address, for `start`; so an address in use is an error of the caller and not of a thread.

    Args:
        listen: `HOST:PORT`; port 0 picks a free one.

    Raises:
        ConfigError: The address is malformed or in use; the message says which.
    """
    host, port = split_listen(listen)
    # asyncio sends without delay only where the protocol is named; else each answer on a kept connection takes 40 ms.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ConfigError(f"cannot listen on {listen}: {error.strerror}; choose another port, or 0 for any") from error
    return bound


def start(app: ASGIApp, *, listen: str | socket.socket) -> Server:
    """Serve an application in a daemon thread and return once it accepts connections.

    Args:
        app: The ASGI application.
        listen: `HOST:PORT`, or a socket from `bind`, which is closed with the server.

    Raises:
        ConfigError: The address is malformed or in use, or the server does not start.
    """
    bound = bind(listen) if isinstance(listen, str) else listen
    host, port = bound.getsockname()[:2]
    # lifespan "on" would need the application to speak that protocol; nothing here starts or stops with the server.
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, name="web", daemon=True)
    thread.start()
    deadline = time.monotonic() + _START_WITHIN_SECONDS
    while not server.started and thread.is_alive() and time.monotonic() < deadline:
        time.sleep(0.005)
    if not server.started:
        raise ConfigError(f"the server on {host}:{port} did not start within {_START_WITHIN_SECONDS:g} s")
    return Server(host=host, port=port, _server=server, _thread=thread)
