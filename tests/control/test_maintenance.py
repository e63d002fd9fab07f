"""Maintenance windows: what the clock on the wall says, also where it jumps."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.control.maintenance import Span, closed_between, closed_until
from tuner.settings.safety import MaintenanceWindow

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def window(start: str, end: str, *, days: tuple[str, ...] = DAYS, timezone: str = "UTC") -> MaintenanceWindow:
    return MaintenanceWindow(start=start, end=end, days=days, timezone=timezone)


def at(text: str) -> float:
    """Return the instant of a time that is given with its offset; UTC where it has none."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def open_(*windows: MaintenanceWindow, when: str) -> bool:
    return closed_until(windows, at(when)) is not None


def test_without_windows_nothing_is_closed() -> None:
    assert closed_until((), at("2026-01-01 12:00")) is None
    assert not closed_between((), Span(0.0, 86_400.0))


@pytest.mark.parametrize(
    ("when", "closed"),
    [
        ("2026-01-01 21:59:59", False),
        ("2026-01-01 22:00", True),
        ("2026-01-02 01:59:59", True),
        ("2026-01-02 02:00", False),
    ],
)
def test_a_window_may_last_over_midnight(when: str, closed: bool) -> None:
    assert open_(window("22:00", "02:00"), when=when) is closed


@pytest.mark.parametrize(
    ("when", "closed"),
    [
        ("2026-01-02 23:00", True),  # A Friday.
        ("2026-01-03 01:00", True),  # It began on the Friday.
        ("2026-01-03 23:00", False),
        ("2026-01-02 01:00", False),  # It would have begun on the Thursday.
    ],
)
def test_the_day_is_the_one_on_which_it_begins(when: str, closed: bool) -> None:
    assert open_(window("22:00", "02:00", days=("fri",)), when=when) is closed


def test_a_window_that_ends_when_it_starts_lasts_a_day() -> None:
    sunday = window("00:00", "00:00", days=("sun",))

    assert closed_until([sunday], at("2026-01-04 00:00")) == at("2026-01-05 00:00")
    assert closed_until([sunday], at("2026-01-03 23:59:59")) is None
    assert closed_until([sunday], at("2026-01-05 00:00")) is None


def test_the_time_is_that_of_the_zone() -> None:
    night = window("01:00", "05:00", timezone="Europe/Vienna")

    assert open_(night, when="2026-01-01 01:00+00:00") is not open_(night, when="2026-01-01 01:00+02:00")
    assert open_(night, when="2026-01-01 01:00+01:00")
    assert open_(night, when="2026-07-01 01:00+02:00")
    assert not open_(night, when="2026-07-01 01:00+03:00")


# Vienna, 29 March 2026: after 01:59:59 comes 03:00.


@pytest.mark.parametrize(
    ("start", "end", "opens", "closes"),
    [
        ("02:30", "04:00", "2026-03-29 03:00+02:00", "2026-03-29 04:00+02:00"),  # Its start is never shown.
        ("01:00", "02:30", "2026-03-29 01:00+01:00", "2026-03-29 03:00+02:00"),  # Its end is never shown.
        ("01:30", "03:30", "2026-03-29 01:30+01:00", "2026-03-29 03:30+02:00"),  # An hour shorter than on other days.
        ("22:00", "02:15", "2026-03-28 22:00+01:00", "2026-03-29 03:00+02:00"),  # Over midnight, and over the jump.
        ("02:00", "03:00", "2026-03-29 03:00+02:00", None),  # Nothing of it is ever shown.
        ("02:10", "02:50", "2026-03-29 03:00+02:00", None),
    ],
)
def test_where_the_clock_is_set_forward_a_time_that_is_never_shown_is_the_jump(
    start: str, end: str, opens: str, closes: str | None
) -> None:
    night = [window(start, end, timezone="Europe/Vienna")]

    assert closed_until(night, at(opens) - 1) is None
    assert closed_until(night, at(opens)) == (None if closes is None else at(closes))


# Vienna, 25 October 2026: after 02:59:59 summer time comes 02:00 winter time.


@pytest.mark.parametrize(
    ("start", "end", "opens", "closes"),
    [
        ("02:15", "02:45", "2026-10-25 02:15+02:00", "2026-10-25 02:45+01:00"),  # Shown twice: both, and between them.
        ("01:00", "02:30", "2026-10-25 01:00+02:00", "2026-10-25 02:30+01:00"),
        ("02:30", "04:00", "2026-10-25 02:30+02:00", "2026-10-25 04:00+01:00"),  # No gap from 02:00 to 02:30.
        ("23:00", "05:00", "2026-10-24 23:00+02:00", "2026-10-25 05:00+01:00"),  # An hour longer than on other days.
        ("00:00", "00:00", "2026-10-25 00:00+02:00", "2026-10-26 00:00+01:00"),  # 25 hours.
    ],
)
def test_where_the_clock_is_set_back_what_is_shown_twice_is_closed_twice(
    start: str, end: str, opens: str, closes: str
) -> None:
    night = [window(start, end, days=("sat", "sun") if start > end else ("sun",), timezone="Europe/Vienna")]

    assert closed_until(night, at(opens) - 1) is None
    for minute in range(0, round(at(closes) - at(opens)), 300):
        assert closed_until(night, at(opens) + minute) == at(closes)
    assert closed_until(night, at(closes)) is None


def test_a_day_that_a_calendar_leaves_out_is_survived() -> None:
    # Samoa went from the 29th to the 31st of December 2011.
    nights = [window("22:00", "03:00", timezone="Pacific/Apia")]

    assert open_(*nights, when="2011-12-29 22:00-10:00")
    assert open_(*nights, when="2011-12-31 02:59+14:00")
    assert not open_(*nights, when="2011-12-31 03:00+14:00")
    assert open_(*nights, when="2011-12-31 22:00+14:00")


def test_windows_that_overlap_or_touch_are_one_maintenance() -> None:
    windows = [window("22:00", "01:00"), window("00:30", "03:00"), window("03:00", "04:00"), window("05:00", "06:00")]

    assert closed_until(windows, at("2026-01-01 22:00")) == at("2026-01-02 04:00")
    assert closed_until(windows, at("2026-01-02 04:00")) is None


def test_windows_in_several_zones_are_one_maintenance() -> None:
    windows = [window("01:00", "02:00", timezone="Europe/Vienna"), window("01:00", "02:00", timezone="Europe/London")]

    assert closed_until(windows, at("2026-01-01 00:00")) == at("2026-01-01 02:00")


def test_a_maintenance_without_an_end_does_not_take_forever_to_tell() -> None:
    over = closed_until([window("00:00", "00:00")], at("2026-01-01 12:00"))

    assert over is not None
    assert over > at("2026-01-08 00:00")


@pytest.mark.parametrize(
    ("first", "last", "closed"),
    [
        ("2026-01-01 20:00", "2026-01-01 22:00", False),
        ("2026-01-01 20:00", "2026-01-01 22:00:01", True),
        ("2026-01-01 20:00", "2026-01-02 12:00", True),  # All of it lies within.
        ("2026-01-01 23:00", "2026-01-01 23:30", True),
        ("2026-01-02 02:00", "2026-01-02 03:00", False),
    ],
)
def test_whether_a_time_is_free_of_maintenance(first: str, last: str, closed: bool) -> None:
    assert closed_between([window("22:00", "02:00")], Span(at(first), at(last))) is closed


ZONES = ("UTC", "Europe/Vienna", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia")
CLOCK = st.times().map(lambda moment: f"{moment:%H:%M}")
WINDOWS = st.builds(
    window,
    CLOCK,
    CLOCK,
    days=st.lists(st.sampled_from(DAYS), min_size=1, unique=True).map(tuple),
    timezone=st.sampled_from(ZONES),
)
INSTANTS = st.integers(1_262_304_000, 2_208_988_800).map(float)
"""From 2010 to 2040."""


@given(WINDOWS, INSTANTS)
def test_it_is_closed_whenever_the_clock_on_the_wall_shows_a_time_within(
    night: MaintenanceWindow, instant: float
) -> None:
    wall = datetime.fromtimestamp(instant, ZoneInfo(night.timezone))
    begun = wall.date() if f"{wall:%H:%M}" >= night.start else wall.date() - timedelta(days=1)
    shown = f"{wall:%H:%M}"
    over_midnight = night.end <= night.start
    within = (shown >= night.start or shown < night.end) if over_midnight else night.start <= shown < night.end

    if within and DAYS[begun.weekday()] in night.days:
        assert closed_until([night], instant) is not None


@given(WINDOWS, INSTANTS)
def test_what_is_said_to_be_over_is_over_then_and_not_before(night: MaintenanceWindow, instant: float) -> None:
    over = closed_until([night], instant)

    if over is not None and len(night.days) < len(DAYS):
        assert over > instant
        assert closed_until([night], over - 1) == over
        assert closed_until([night], over) is None


@given(st.lists(WINDOWS, max_size=4), INSTANTS)
def test_several_windows_close_what_any_of_them_closes(nights: list[MaintenanceWindow], instant: float) -> None:
    closed = closed_until(nights, instant) is not None

    assert closed == any(closed_until([night], instant) is not None for night in nights)
    assert closed_between(nights, Span(instant, instant + 1)) or not closed
