"""Files that a person names: where one cannot be written, a sentence says which, why, and what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.errors import ConfigError


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn errors of the file system into one that names the path and a remedy.

    Raises:
        ConfigError: The path cannot be written.
    """
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigError(f"{path} cannot be written ({why}); name another place, or check the rights on it") from error
