"""What travels over the reference scheduler's HTTP interface: settings and forecasts as JSON.

A setting is one object with exactly these keys, all of them in every answer and every request:

    base_slice_seconds, prediction_window_seconds, decision_period_seconds, reservation_ratio, mode
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tuner.errors import ChangeRejected
from tuner.reference.demand import DemandForecast
from tuner.reference.settings import ClockSettings
from tuner.values.knobs import Role, SchedulerMode

_KNOBS: Final = tuple(role.value for role in Role)
_KEYS: Final = (*_KNOBS, "mode")

_FORECAST_KEYS: Final = (
    "at_seconds",
    "step_seconds",
    "inference_arrivals_per_second",
    "window_start_seconds",
    "window_end_seconds",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayClock:
    """How the time of a replay goes with that of the wall.

    Attributes:
        origin_seconds: Unix time of the start of the replay.
        speed: Seconds of the replay in a second of the wall.
    """

    origin_seconds: float
    speed: float

    def replay_seconds(self, unix_seconds: float) -> float:
        """Return the time in the replay, which may lie before its start."""
        return (unix_seconds - self.origin_seconds) * self.speed


def settings_document(settings: ClockSettings) -> dict[str, object]:
    """Return a setting as a JSON object."""
    return {key: getattr(settings, key) for key in _KNOBS} | {"mode": settings.mode.value}


def settings_of(body: bytes, *, current: ClockSettings) -> ClockSettings:
    """Return the setting that a request asks for; what has no key in JSON stays as it is.

    Raises:
        ChangeRejected: The body is not such an object, or a value is outside its limits; the message names field,
            value and limit.
    """
    document = _object(body, _KEYS)
    missing = [key for key in _KEYS if key not in document]
    if missing:
        raise ChangeRejected(f"{', '.join(missing)} is missing; send all of {', '.join(_KEYS)}")
    values: dict[str, Any] = {key: _number(document, key) for key in _KNOBS}
    try:
        mode = SchedulerMode(document["mode"])
    except ValueError:
        raise ChangeRejected(f"mode is {document['mode']!r}, must be one of {', '.join(SchedulerMode)}") from None
    return replace(current, **values, mode=mode)


def forecast_of(body: bytes, *, clock: ReplayClock) -> DemandForecast:
    """Return the forecast that a request brings, in the time of the replay.

    Its times are Unix seconds; a window that is null or missing is none.

    Raises:
        ChangeRejected: The body is not such an object, or a value makes no sense.
    """
    document = _object(body, _FORECAST_KEYS)
    rates = document.get("inference_arrivals_per_second", [])
    if not isinstance(rates, list) or not all(_is_number(rate) for rate in rates):
        raise ChangeRejected("inference_arrivals_per_second must be a list of numbers")
    window = {
        key: clock.replay_seconds(_number(document, key))
        for key in ("window_start_seconds", "window_end_seconds")
        if document.get(key) is not None
    }
    return DemandForecast(
        at_seconds=clock.replay_seconds(_number(document, "at_seconds")),
        step_seconds=_number(document, "step_seconds") * clock.speed,
        inference_arrivals_per_second=np.array(rates, dtype=np.float64) / clock.speed,
        **window,
    )


def _object(body: bytes, allowed: tuple[str, ...]) -> Mapping[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ChangeRejected(f"the body is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ChangeRejected(f"the body is {type(document).__name__}, must be a JSON object")
    unknown = [key for key in document if key not in allowed]
    if unknown:
        raise ChangeRejected(f"{', '.join(unknown)} is unknown, must be one of {', '.join(allowed)}")
    return document


def _number(document: Mapping[str, Any], key: str) -> float:
    value = document.get(key)
    if not _is_number(value):
        raise ChangeRejected(f"{key} is {value!r}, must be a number")
    return float(value)  # type: ignore[arg-type]


def _is_number(value: object) -> bool:
    # In Python, true is a number; in a setting it is a mistake.
    return isinstance(value, int | float) and not isinstance(value, bool)
