"""How the engine is compiled: without the interpreter lock, exact, and cached until any of its sources changes."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])

OPTIONS: Final[dict[str, Any]] = {
    "nogil": True,
    "error_model": "numpy",
    # Nothing is allocated in here, so nothing needs counting: atomic reference counts took four fifths of the time.
    "_nrt": False,
}
INNER: Final[dict[str, Any]] = {
    # Only compiled code calls these; wrappers for Python would double the time to compile.
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


def compiled(function: Function) -> Function:
    """Compile a function that other compiled functions call."""
    return cast("Function", njit(**OPTIONS, **INNER)(function))


def cached(function: Function) -> Function:
    """Compile an entry point and keep it on disk between processes.

    numba notices changes of the file that holds an entry point, not of the files that it calls into. Entry points
    therefore close over `sources_digest()`, which makes it part of their key in the cache.
    """
    return cast("Function", njit(cache=True, **OPTIONS)(function))


def sources_digest() -> int:
    """Return a number that changes with any source of the engine; never 0."""
    sources = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return int.from_bytes(hashlib.sha256(sources).digest()[:7], "big") or 1
