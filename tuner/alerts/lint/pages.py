"""Names of the series on saved /metrics pages."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tuner.errors import ConfigError

_NAME: Final = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{.*\})?\s+[-+\dNI]", re.MULTILINE)
SYNTHETIC: Final = frozenset(
    {"up", "scrape_duration_seconds", "scrape_samples_scraped", "scrape_samples_post_metric_relabeling"}
    | {"scrape_series_added", "ALERTS", "ALERTS_FOR_STATE"}
)
"""Series that Prometheus makes by itself."""


def read_names(pages: Iterable[Path]) -> frozenset[str]:
    """Return the names on some pages in the text format of Prometheus or OpenMetrics, with Prometheus's own.

    Raises:
        ConfigError: A page cannot be read, or has no series.
    """
    names = set(SYNTHETIC)
    for page in pages:
        try:
            found = _NAME.findall(page.read_text(encoding="utf-8", errors="replace"))
        except OSError as error:
            raise ConfigError(f"{page}: the file cannot be read ({error.strerror}); check its name") from None
        if not found:
            raise ConfigError(f"{page}: has no series, must be a saved /metrics page; check its name")
        names.update(found)
    return frozenset(names)
