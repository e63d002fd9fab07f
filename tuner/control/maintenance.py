"""Maintenance windows: times of the day, in a time zone, in which nothing is changed.

A window lasts from the first instant at which the clock on the wall shows its start to the last one at which it shows
its end. So where the clock is set back and shows an hour twice, the window covers both; where it is set forward, a
start or an end that the clock never shows is taken to be the instant of the jump.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from tuner.settings.safety import MaintenanceWindow

_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY: Final = timedelta(days=1)
_REACH_DAYS: Final = range(-2, 2)
"""Days on which a window may begin that is on today: a day and an hour long at most, on a calendar that may leave out
a day, as Samoa's did in 2011."""

_HOPS: Final = 16
"""Windows in a row that are followed to tell when it is over: two weeks of nights; longer ones are told anew then."""


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A time between two instants.

    Attributes:
        start_seconds: Its first instant.
        end_seconds: The first instant after it.
    """

    start_seconds: float
    end_seconds: float

    def __contains__(self, at_seconds: float) -> bool:
        """Say whether an instant lies in it."""
        return self.start_seconds <= at_seconds < self.end_seconds


def closed_until(windows: Iterable[MaintenanceWindow], at_seconds: float) -> float | None:
    """Return when the maintenance is over that is on at an instant; None where none is.

    Windows that overlap or follow each other without a gap are one maintenance.
    """
    known = tuple(windows)
    end, until = None, at_seconds
    for _ in range(_HOPS):
        ends = [span.end_seconds for span in _spans(known, until) if until in span]
        if not ends:
            break
        end = until = max(ends)
    return end


def closed_between(windows: Iterable[MaintenanceWindow], span: Span) -> bool:
    """Say whether there is any maintenance within a time of up to a day."""
    known = tuple(windows)
    return any(
        found.start_seconds < span.end_seconds and span.start_seconds < found.end_seconds
        for instant in (span.start_seconds, span.end_seconds)
        for found in _spans(known, instant)
    )


def _spans(windows: Iterable[MaintenanceWindow], near_seconds: float) -> Iterator[Span]:
    """Yield the windows that begin on days around an instant."""
    for window in windows:
        zone = ZoneInfo(window.timezone)
        today = datetime.fromtimestamp(near_seconds, zone).date()
        for days in _REACH_DAYS:
            day = today + days * _DAY
            if _DAYS[day.weekday()] in window.days:
                yield _span(window, day, zone)


def _span(window: MaintenanceWindow, day: date, zone: ZoneInfo) -> Span:
    start, end = time.fromisoformat(window.start), time.fromisoformat(window.end)
    last = day if end > start else day + _DAY
    first_shown, _ = _shown(datetime.combine(day, start), zone)
    _, last_shown = _shown(datetime.combine(last, end), zone)
    return Span(first_shown, last_shown)


def _shown(wall: datetime, zone: ZoneInfo) -> tuple[float, float]:
    """Return the first and the last instant at which the clock shows a time, or the jump where it never does."""
    first, last = (wall.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1))
    if datetime.fromtimestamp(first, zone).replace(tzinfo=None) == wall:
        return first, last
    # Never shown: read with the offset before the jump it lies after it, and the other way round.
    jump = _jump(last, first, zone)
    return jump, jump


def _jump(before: float, after: float, zone: ZoneInfo) -> float:
    """Return the instant between two at which the clock is set forward, to the second."""
    low, high = round(before), round(after)
    offset = datetime.fromtimestamp(low, zone).utcoffset()
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if datetime.fromtimestamp(middle, zone).utcoffset() == offset else (low, middle)
    return float(high)
