import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.settings.durations import parse_duration


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (90, 90.0),
        (0.5, 0.5),
        ("90", 90.0),
        ("90s", 90.0),
        ("500ms", 0.5),
        ("15m", 900.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        (" 2d ", 172_800.0),
        ("1w", 604_800.0),
    ],
)
def test_reads_what_people_write(written: object, seconds: float) -> None:
    assert parse_duration(written) == pytest.approx(seconds)


@pytest.mark.parametrize("written", ["", "soon", "5 minutes", "5m x", "m5", "1h-30m", True, None, [90], {"s": 1}])
def test_refuses_what_is_no_duration_and_says_what_would_be(written: object) -> None:
    with pytest.raises(ValueError, match="is not a duration; write seconds, or text such as 90s, 15m, 1h30m"):
        parse_duration(written)


@given(hours=st.integers(0, 99), minutes=st.integers(0, 59), seconds=st.integers(0, 59))
def test_parts_add_up(hours: int, minutes: int, seconds: int) -> None:
    assert parse_duration(f"{hours}h{minutes}m{seconds}s") == hours * 3600 + minutes * 60 + seconds
