"""Placeholders in queries.

    $window    the recent window, as a PromQL duration: `300s`
    $cluster   the policy's cluster, for use inside quotes: `{cluster="$cluster"}`
    $labels    matchers for the cluster and the labels of the source: `{$labels}` or `{$labels,class="training"}`

`$1` and `${name}`, which `label_replace` uses, are left as they are.
"""

import re
from collections.abc import Mapping
from typing import Final

from tuner.settings.model import Policy

PLACEHOLDERS: Final[tuple[str, ...]] = ("cluster", "labels", "window")
"""Names that a query may use."""

_PLACEHOLDER: Final = re.compile(r"\$([a-zA-Z_]\w*)")
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': r"\x22", "'": r"\x27", "`": r"\x60", "\n": r"\n"})
# Quotes are written as \x.. because that is right in strings of either quote, which \" is not.


def expand(query: str, policy: Policy) -> str:
    """Return a query with its placeholders replaced, in one pass: what is put in is never expanded again.

    Raises:
        ValueError: The query names a placeholder that does not exist; a loaded policy never does.
    """
    values = _values(policy)

    def replaced(match: re.Match[str]) -> str:
        try:
            return values[match[1]]
        except KeyError:
            raise ValueError(f"query names ${match[1]}, must be one of {', '.join(PLACEHOLDERS)}") from None

    return _PLACEHOLDER.sub(replaced, query)


def placeholders(query: str) -> tuple[str, ...]:
    """Name the placeholders of a query, known or not, without the dollar."""
    return tuple(dict.fromkeys(_PLACEHOLDER.findall(query)))


def escape(value: str) -> str:
    """Return text so that it stands for itself inside a quoted PromQL string, and cannot end it."""
    return value.translate(_ESCAPES)


def _values(policy: Policy) -> Mapping[str, str]:
    matchers = {"cluster": policy.cluster, **policy.source.labels}
    return {
        "window": _promql_duration(policy.cycle.recent_window_seconds),
        "cluster": escape(policy.cluster),
        "labels": ",".join(f'{name}="{escape(value)}"' for name, value in matchers.items()),
    }


def _promql_duration(seconds: float) -> str:
    # Prometheus 2 knows no fractions in durations.
    return f"{seconds:.0f}s" if seconds.is_integer() else f"{seconds * 1000:.0f}ms"
