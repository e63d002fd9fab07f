"""Where the files lie that the product ships beside its code: policies and dashboards."""

from pathlib import Path

from tuner.errors import ConfigError


def folder(name: str) -> Path:
    """Return a folder of shipped files: inside the installed package, or at the top of a checkout.

    Raises:
        ConfigError: The installation lacks it.
    """
    package = Path(__file__).parent
    for candidate in (package / "_assets" / name, package.parent / name):
        if candidate.is_dir():
            return candidate
    raise ConfigError(f"the folder {name!r} is missing from the installation; install clocktuner again")
