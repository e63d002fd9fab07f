"""Logs: one JSON object a line, an event name that states a past fact, values as fields.

Every line of a cycle carries its `cycle_id`. Non-finite numbers become null, so that any JSON parser reads the lines.
"""

import logging
import math
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, Final, TextIO

import structlog

_SECRET_WORDS: Final = ("token", "password", "secret", "authorization")


def configure(*, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send all logs, also those of libraries, to a stream as JSON lines.

    Args:
        level: Name of the lowest level that is shown.
        stream: Where to; standard error where absent.

    Raises:
        ValueError: There is no level of that name.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"log level is {level!r}, must be one of debug, info, warning, error")
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _redact,
        _strict,
    ]
    renderer = structlog.processors.JSONRenderer(sort_keys=False, allow_nan=False)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    for noisy in ("apscheduler", "urllib3", "uvicorn", "numba", "matplotlib"):
        logging.getLogger(noisy).setLevel(max(number, logging.WARNING))
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(number),
        cache_logger_on_first_use=False,
    )


def get(name: str) -> Any:  # noqa: ANN401 - structlog's loggers are typed as Any by their own factory.
    """Return the logger of a part of the product."""
    return structlog.stdlib.get_logger(name).bind(part=name)


def _redact(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key in event:
        if any(word in key.lower() for word in _SECRET_WORDS):
            event[key] = "redacted"
    return event


def _strict(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {key: _finite(value) for key, value in event.items()}


def _finite(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
