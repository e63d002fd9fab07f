"""Durations as people write them."""

import re
from typing import Final

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")


def parse_duration(value: object) -> float:
    """Return a duration in seconds.

    Args:
        value: A number of seconds, or text such as `90s`, `15m`, `1h30m`, `500ms`, `0.5`.

    Raises:
        ValueError: The value is neither; the message shows what would be right.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        # Not a TypeError: pydantic turns only a ValueError into a message that names the field.
        raise ValueError(  # noqa: TRY004
            f"{value!r} is not a duration; write seconds, or text such as 90s, 15m, 1h30m"
        )
    if isinstance(value, int | float):
        return float(value)
    text = value.strip()
    parts = _PART.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return sum(float(number) * _UNITS[unit] for number, unit in parts)
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{value!r} is not a duration; write seconds, or text such as 90s, 15m, 1h30m") from None
