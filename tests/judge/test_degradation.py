"""Degradation: when only protected work is served, and when all is again."""

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.judge.readings import NOW, reading
from tuner.judge.degradation import Degradation, has_eased, is_tight, watch_resources
from tuner.record.encoding import decode, encode
from tuner.settings.safety import DegradationSettings
from tuner.values.metrics import METRIC_INDEX

SETTINGS = DegradationSettings()
LIMIT, SCRAPE, NAN = 10.0, 15.0, math.nan
Values = tuple[float, float, float]
# Idle share of the accelerators, waiting demand as a share of the capacity, wait of protected work.
TIGHT: Values = (0.01, 0.8, 30.0)
CALM: Values = (0.3, 0.05, 1.0)
HELD_BACK: Values = (0.0, 0.9, 0.5)
UNKNOWN: Values = (NAN, NAN, NAN)


def tick(
    degradation: Degradation,
    at: float,
    values: Values,
    *,
    newest: float | None = None,
    settings: DegradationSettings = SETTINGS,
    limit: float = LIMIT,
) -> Degradation:
    idle, pending, wait = values
    return watch_resources(
        degradation,
        reading(
            at,
            newest_at_seconds=newest,
            resource_idle_ratio=idle,
            pending_demand_ratio=pending,
            high_priority_wait_seconds=wait,
        ),
        wait_limit_seconds=limit,
        settings=settings,
        window_seconds=60.0,
    )


def run(degradation: Degradation, story: Iterable[Values], *, start: float) -> Degradation:
    for number, values in enumerate(story):
        degradation = tick(degradation, start + SCRAPE * number, values)
    return degradation


def active(at: float = NOW) -> Degradation:
    """A degradation that begins at an instant."""
    degradation = run(Degradation(), [TIGHT] * 3, start=at - 2 * SCRAPE)
    assert (degradation.active, degradation.since_seconds) == (True, at)
    return degradation


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (TIGHT, True),
        ((0.03, 0.5, 10.1), True),
        ((0.031, 0.5, 10.1), False),
        ((0.03, 0.49, 10.1), False),
        ((0.03, 0.5, 10.0), False),
        # A missing value may only leave open what the others do not decide.
        ((NAN, 0.5, 10.1), None),
        ((0.03, NAN, 10.1), None),
        ((0.03, 0.5, NAN), None),
        ((0.03, 0.5, math.inf), None),
        ((0.5, NAN, NAN), False),
        ((NAN, 0.1, NAN), False),
        (UNKNOWN, None),
    ],
)
def test_resources_are_tight_where_nothing_is_idle_much_waits_and_protected_work_waits_too_long(
    values: Values, expected: bool | None
) -> None:
    idle, pending, wait = values
    seen = reading(NOW, resource_idle_ratio=idle, pending_demand_ratio=pending, high_priority_wait_seconds=wait)

    assert is_tight(seen, wait_limit_seconds=LIMIT, settings=SETTINGS) is expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        # Room for what comes back.
        ((0.038, 0.9, 7.9), True),
        ((0.037, 0.9, 7.9), False),
        ((0.3, 0.9, 8.0), False),
        # Most of the cluster idle: the wait that is still shown is history.
        ((0.5, 0.9, 200.0), False),
        ((0.51, 0.9, 200.0), True),
        ((0.51, NAN, 200.0), True),
        # Hardly anything to come back.
        ((0.0, 0.39, 7.9), True),
        ((0.0, 0.4, 7.9), False),
        ((0.0, 0.39, 8.0), False),
        # Protected work waits less because the rest is held back: that alone says nothing.
        (HELD_BACK, False),
        # Nobody protected waits, and accelerators are idle: they are held back for nobody.
        ((0.3, 0.9, NAN), True),
        ((0.3, NAN, NAN), True),
        # A missing value never speaks for it.
        ((0.0, 0.1, NAN), None),
        ((NAN, 0.1, NAN), None),
        ((NAN, NAN, 0.0), None),
        ((NAN, 0.9, 0.0), None),
        ((0.0, NAN, 0.0), None),
        ((0.0, 0.9, NAN), False),
        ((NAN, NAN, 9.0), False),
        (UNKNOWN, None),
    ],
)
def test_resources_have_eased_where_there_is_room_or_little_would_come_back(
    values: Values, expected: bool | None
) -> None:
    idle, pending, wait = values
    seen = reading(NOW, resource_idle_ratio=idle, pending_demand_ratio=pending, high_priority_wait_seconds=wait)

    assert has_eased(seen, wait_limit_seconds=LIMIT, settings=SETTINGS) is expected


def test_it_begins_after_enough_tight_samples_in_a_row_and_says_why() -> None:
    degradation = run(Degradation(), [TIGHT, TIGHT, CALM, TIGHT, TIGHT], start=NOW)
    assert (degradation.active, degradation.tight) == (False, 2)

    degradation = tick(degradation, NOW + 5 * SCRAPE, TIGHT)

    assert degradation.active
    assert degradation.reason == (
        "resources are tight, 3 samples in a row: 1 % of the accelerators idle, 80 % of the capacity asked for by "
        "waiting work, protected work waits 30 s, limit 10 s"
    )


def test_a_sample_counts_once_however_often_it_is_looked_at() -> None:
    degradation = Degradation()
    for number in range(50):
        degradation = tick(degradation, NOW + 5.0 * number, TIGHT, newest=NOW)

    assert (degradation.active, degradation.tight) == (False, 1)


def test_it_waits_for_a_new_sample_of_every_value() -> None:
    degradation = Degradation()
    names = ("resource_idle_ratio", "pending_demand_ratio", "high_priority_wait_seconds")
    for number in range(20):
        seen = reading(NOW + SCRAPE * number, **dict(zip(names, TIGHT, strict=True)))
        seen.newest_at_seconds[METRIC_INDEX["high_priority_wait_seconds"]] = NOW
        degradation = watch_resources(
            degradation, seen, wait_limit_seconds=LIMIT, settings=SETTINGS, window_seconds=60.0
        )

    assert (degradation.active, degradation.tight) == (False, 1)


def test_a_missing_value_neither_counts_nor_resets() -> None:
    degradation = run(Degradation(), [TIGHT, UNKNOWN, TIGHT, (0.01, 0.8, NAN), UNKNOWN], start=NOW)
    assert degradation.tight == 2

    assert tick(degradation, NOW + 5 * SCRAPE, TIGHT).active


def test_a_long_gap_starts_the_count_again() -> None:
    degradation = run(Degradation(), [TIGHT] * 2, start=NOW)

    assert tick(degradation, NOW + SCRAPE + 180.0, TIGHT).active
    assert tick(degradation, NOW + SCRAPE + 181.0, TIGHT).tight == 1


def test_it_ends_after_the_dwell_time_and_enough_samples_and_says_why() -> None:
    degradation = run(active(), [CALM] * 19, start=NOW + SCRAPE)
    assert (degradation.active, degradation.eased) == (True, 19)

    degradation = tick(degradation, NOW + 300.0, CALM)

    assert (degradation.active, degradation.since_seconds) == (False, NOW + 300.0)
    assert degradation.reason == (
        "resources have eased: 30 % of the accelerators idle, 5 % of the capacity asked for by waiting work, "
        "protected work waits 1 s, limit 10 s"
    )


def test_one_sample_that_has_not_eased_starts_the_count_again() -> None:
    degradation = run(active(), [CALM] * 5 + [HELD_BACK] + [CALM] * 5, start=NOW + 400.0)
    assert (degradation.active, degradation.eased) == (True, 5)

    assert not tick(degradation, NOW + 400.0 + 11 * SCRAPE, CALM).active


def test_a_short_wait_while_the_rest_is_held_back_does_not_end_it() -> None:
    assert run(active(), [HELD_BACK] * 200, start=NOW + SCRAPE).active


def test_missing_values_never_end_it() -> None:
    assert run(active(), [UNKNOWN] * 500, start=NOW + SCRAPE) == active()


def test_between_hysteresis_and_limit_it_stays_as_it_is() -> None:
    between: Values = (0.035, 0.45, 9.0)

    assert run(active(), [between] * 100, start=NOW + SCRAPE).active
    assert not run(Degradation(), [between] * 100, start=NOW).active


def test_two_of_them_are_a_dwell_time_apart() -> None:
    ended = run(active(), [CALM] * 20, start=NOW + SCRAPE)

    again = run(ended, [TIGHT] * 19, start=NOW + 315.0)
    assert (again.active, again.tight) == (False, 19)

    assert tick(again, NOW + 600.0, TIGHT).active


@pytest.mark.parametrize(
    ("settings", "limit"), [(DegradationSettings(enabled=False), LIMIT), (SETTINGS, NAN)], ids=["off", "no limit"]
)
def test_where_the_policy_asks_for_none_there_is_none(settings: DegradationSettings, limit: float) -> None:
    degradation = Degradation()
    for number in range(10):
        degradation = tick(degradation, NOW + SCRAPE * number, TIGHT, settings=settings, limit=limit)
    assert not degradation.active

    ended = tick(active(), NOW + 1.0, TIGHT, settings=settings, limit=limit)

    assert not ended.active
    assert ended.reason == "the policy asks for no degradation any more"


def test_a_clock_that_is_set_back_starts_the_dwell_time_again() -> None:
    back = NOW - 86_400.0
    degradation = run(active(), [CALM] * 20, start=back)
    assert degradation.active

    assert not tick(degradation, back + 300.0, CALM).active


def test_it_returns_from_the_journal_as_it_was() -> None:
    for degradation in (Degradation(), active(), run(active(), [CALM] * 20, start=NOW + SCRAPE)):
        assert repr(decode(Degradation, encode(degradation))) == repr(degradation)


RATIOS = st.one_of(st.just(NAN), st.floats(0.0, 1.0))
VALUES = st.one_of(
    st.sampled_from([TIGHT, CALM, HELD_BACK, UNKNOWN]), st.tuples(RATIOS, RATIOS, st.one_of(RATIOS, st.floats(0, 50)))
)


@given(values=VALUES)
def test_nothing_is_tight_and_eased_at_once(values: Values) -> None:
    idle, pending, wait = values
    seen = reading(NOW, resource_idle_ratio=idle, pending_demand_ratio=pending, high_priority_wait_seconds=wait)

    tight, eased = (judge(seen, wait_limit_seconds=LIMIT, settings=SETTINGS) for judge in (is_tight, has_eased))

    assert not (tight and eased)


@given(values=VALUES, hidden=st.sets(st.integers(0, 2)))
def test_a_value_that_goes_missing_never_makes_resources_tight(values: Values, hidden: set[int]) -> None:
    names = ("resource_idle_ratio", "pending_demand_ratio", "high_priority_wait_seconds")
    full = dict(zip(names, values, strict=True))
    part = full | {names[index]: NAN for index in hidden}

    known, hid = (
        is_tight(reading(NOW, **given_values), wait_limit_seconds=LIMIT, settings=SETTINGS)
        for given_values in (full, part)
    )

    assert known or not hid


@given(story=st.lists(st.tuples(st.floats(0.0, 400.0), VALUES), max_size=60))
def test_it_changes_only_after_the_dwell_time_and_enough_samples(story: list[tuple[float, Values]]) -> None:
    degradation, at = active(), NOW
    counted = 0
    for wait, values in story:
        at += wait
        before, degradation = degradation, tick(degradation, at, values)
        counted += 1
        if degradation.active is not before.active:
            assert at - before.since_seconds >= SETTINGS.dwell_seconds
            assert counted >= (SETTINGS.recovery_samples if before.active else SETTINGS.samples)
            counted = 0


@given(story=st.lists(st.tuples(st.floats(-200_000.0, 4000.0), VALUES), max_size=40))
def test_whatever_happened_it_ends_once_resources_have_eased_and_time_passes(
    story: list[tuple[float, Values]],
) -> None:
    degradation, at = Degradation(), NOW
    for passed, values in story:
        at += passed
        degradation = tick(degradation, at, values)

    assert not run(degradation, [CALM] * 30, start=at + SCRAPE).active
