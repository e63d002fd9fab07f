"""The latency breaker: when it opens, what it takes to close, and that nothing wedges it."""

import math
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.judge.readings import NOW, reading
from tuner.judge.breaker import LatencyBreaker, flapping, watch_latency
from tuner.record.encoding import decode, encode
from tuner.settings.safety import LatencyBreakerSettings
from tuner.values.knobs import SchedulerMode
from tuner.values.safety import BreakerState

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN
FULL, SIMPLIFIED, PRIORITY_ONLY = SchedulerMode.FULL, SchedulerMode.SIMPLIFIED, SchedulerMode.PRIORITY_ONLY
SETTINGS = LatencyBreakerSettings()
LIMIT, WINDOW, SCRAPE, NAN = 1.0, 60.0, 15.0, math.nan
GOOD, BAD = 0.3, 4.0


def tick(
    breaker: LatencyBreaker,
    at: float,
    latency: float = NAN,
    *,
    newest: float | None = None,
    mode: SchedulerMode | None = None,
    settings: LatencyBreakerSettings = SETTINGS,
    threshold: float = LIMIT,
) -> LatencyBreaker:
    """One guard tick; the scheduler runs what the breaker asks for unless told otherwise."""
    return watch_latency(
        breaker,
        reading(at, newest_at_seconds=newest, scheduling_latency_seconds=latency),
        threshold_seconds=threshold,
        settings=settings,
        in_mode=mode or (SIMPLIFIED if breaker.state is OPEN else FULL),
        window_seconds=WINDOW,
    )


def run(
    breaker: LatencyBreaker, latencies: Iterable[float], *, start: float, mode: SchedulerMode | None = None
) -> LatencyBreaker:
    for number, latency in enumerate(latencies):
        breaker = tick(breaker, start + SCRAPE * number, latency, mode=mode)
    return breaker


def opened(at: float = NOW) -> LatencyBreaker:
    """A breaker that opens at an instant."""
    breaker = run(LatencyBreaker(), [BAD] * 5, start=at - 4 * SCRAPE)
    assert (breaker.state, breaker.opened_at_seconds) == (OPEN, at)
    return breaker


def probing(at: float = NOW) -> LatencyBreaker:
    """A breaker whose full policy is seen to run on probe since an instant."""
    breaker = tick(opened(at - 200.0), at - 5.0, GOOD)
    assert breaker.state is HALF_OPEN
    return tick(breaker, at)


def test_latency_beyond_the_threshold_for_longer_than_a_window_opens_it_and_says_why() -> None:
    breaker = run(LatencyBreaker(), [GOOD, BAD, BAD, BAD, BAD], start=NOW)
    assert breaker.state is CLOSED

    breaker = tick(breaker, NOW + 5 * SCRAPE, BAD)

    assert breaker.state is OPEN
    assert breaker.openings == (NOW + 5 * SCRAPE,)
    assert breaker.cool_down_seconds == 120.0
    assert breaker.reason == "5 samples in a row of the scheduling latency over 1 s, the last 4 s"


@pytest.mark.parametrize("height", [1.01, 100.0, 1e9])
def test_one_noisy_scrape_never_opens_it_though_a_whole_window_shows_it(height: float) -> None:
    # A scrape shows in every sample whose window holds it: four of them.
    breaker = run(LatencyBreaker(), [GOOD, height, height, height, height, GOOD, GOOD], start=NOW)

    assert (breaker.state, breaker.beyond) == (CLOSED, 0)


@given(
    gaps=st.lists(st.floats(1.0, 40.0), min_size=2, max_size=120), noisy=st.integers(0, 119), samples=st.integers(2, 6)
)
def test_no_single_scrape_opens_it_whatever_the_distance_of_scrapes(
    gaps: list[float], noisy: int, samples: int
) -> None:
    settings = SETTINGS.model_copy(update={"samples": samples})
    times = [NOW + sum(gaps[: number + 1]) for number in range(len(gaps))]
    raw = [BAD if number == noisy % len(times) else GOOD for number in range(len(times))]
    breaker = LatencyBreaker()

    for time in times:
        shown = max(value for other, value in zip(times, raw, strict=True) if time - WINDOW < other <= time)
        breaker = tick(breaker, time, shown, settings=settings)

        assert breaker.state is CLOSED


def test_fewer_samples_than_asked_for_never_open_it_however_long_they_last() -> None:
    breaker = tick(tick(LatencyBreaker(), NOW, BAD), NOW + 150.0, BAD)

    assert (breaker.state, breaker.beyond) == (CLOSED, 2)


def test_a_sample_counts_once_however_often_it_is_looked_at() -> None:
    breaker = LatencyBreaker()
    for number in range(100):
        breaker = tick(breaker, NOW + 5.0 * number, BAD, newest=NOW)

    assert (breaker.state, breaker.beyond) == (CLOSED, 1)


def test_a_counter_reset_is_a_gap_in_the_values_and_opens_nothing() -> None:
    breaker = run(LatencyBreaker(), [GOOD, NAN, BAD, NAN, GOOD, NAN, NAN, BAD, GOOD], start=NOW)

    assert (breaker.state, breaker.beyond) == (CLOSED, 0)


def test_a_sample_without_a_value_neither_counts_nor_resets() -> None:
    breaker = run(LatencyBreaker(), [BAD, NAN, BAD, NAN, NAN, math.inf], start=NOW)
    assert breaker.beyond == 2

    assert run(breaker, [BAD], start=NOW + 6 * SCRAPE).state is OPEN


def test_a_gap_of_more_than_three_windows_starts_the_count_again() -> None:
    breaker = run(LatencyBreaker(), [BAD] * 4, start=NOW)

    assert tick(breaker, NOW + 3 * SCRAPE + 180.0, BAD).state is OPEN
    assert tick(breaker, NOW + 3 * SCRAPE + 181.0, BAD).beyond == 1


def test_a_threshold_that_is_just_met_is_kept() -> None:
    breaker = run(LatencyBreaker(), [LIMIT] * 20, start=NOW)

    assert (breaker.state, breaker.beyond) == (CLOSED, 0)


def test_without_a_threshold_there_is_no_breaker() -> None:
    breaker = LatencyBreaker()
    for number in range(20):
        breaker = tick(breaker, NOW + SCRAPE * number, BAD, threshold=NAN)
    assert breaker == LatencyBreaker()

    closed = tick(opened(), NOW + 5.0, threshold=NAN)

    assert closed.state is CLOSED
    assert "names no threshold" in closed.reason


def test_samples_of_the_simplified_policy_do_not_open_it() -> None:
    assert run(LatencyBreaker(), [BAD] * 20, start=NOW, mode=SIMPLIFIED).beyond == 0


def test_a_count_that_the_simplified_policy_interrupts_starts_again() -> None:
    breaker = run(LatencyBreaker(), [BAD] * 3, start=NOW)
    breaker = run(breaker, [GOOD], start=NOW + 45.0, mode=SIMPLIFIED)

    assert run(breaker, [BAD] * 2, start=NOW + 60.0).beyond == 2


def test_while_it_is_open_no_latency_closes_it() -> None:
    breaker = run(opened(), [GOOD] * 7, start=NOW + SCRAPE)
    assert breaker.state is OPEN

    # The cool-down has passed: it is tried again, and not closed.
    assert tick(breaker, NOW + 120.0, GOOD).state is HALF_OPEN


def test_nothing_is_tried_without_a_sample_that_would_show_what_it_does() -> None:
    breaker = tick(opened(), NOW + 500.0)
    assert breaker.state is OPEN

    assert tick(breaker, NOW + 505.0, BAD).state is HALF_OPEN


def test_a_probe_is_judged_only_by_windows_that_lie_after_it_began() -> None:
    # The first four windows still hold what was before.
    breaker = run(probing(), [BAD, BAD, BAD, BAD], start=NOW + SCRAPE)
    assert (breaker.state, breaker.beyond, breaker.under) == (HALF_OPEN, 0, 0)

    assert run(breaker, [BAD], start=NOW + 75.0).beyond == 1
    assert run(breaker, [GOOD], start=NOW + 75.0).under == 1


def test_proof_closes_it() -> None:
    breaker = run(probing(), [GOOD] * 5, start=NOW + 75.0)
    assert (breaker.state, breaker.under) == (HALF_OPEN, 5)

    breaker = tick(breaker, NOW + 150.0, GOOD)

    assert (breaker.state, breaker.closed_at_seconds) == (CLOSED, NOW + 150.0)
    assert breaker.reason == (
        "6 samples in a row of the scheduling latency within 1 s under the full policy, the last 0.3 s"
    )


def test_one_noisy_sample_only_delays_the_proof() -> None:
    breaker = run(probing(), [GOOD] * 5 + [BAD] + [GOOD] * 5, start=NOW + 75.0)
    assert (breaker.state, breaker.under) == (HALF_OPEN, 5)

    assert tick(breaker, NOW + 300.0, GOOD).state is CLOSED


def test_a_failed_probe_opens_it_again_for_twice_as_long() -> None:
    breaker = run(probing(), [BAD, BAD], start=NOW + 75.0)

    assert (breaker.state, breaker.cool_down_seconds) == (OPEN, 240.0)
    assert "the probe of the full policy failed: 2 samples in a row" in breaker.reason
    assert tick(breaker, NOW + 90.0 + 239.0, GOOD).state is OPEN
    assert tick(breaker, NOW + 90.0 + 240.0, GOOD).state is HALF_OPEN


def test_the_cool_down_has_an_upper_limit() -> None:
    breaker, at, cool_downs = opened(), NOW, []
    for _ in range(8):
        at += breaker.cool_down_seconds
        breaker = run(tick(tick(breaker, at, GOOD), at + 5.0), [BAD, BAD], start=at + 75.0)
        cool_downs.append(breaker.cool_down_seconds)
        at += 90.0

    assert cool_downs == [240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0, 3600.0, 3600.0]


@pytest.mark.parametrize(("quiet", "cool_down"), [(3500.0, 240.0), (3700.0, 120.0)])
def test_a_proof_that_does_not_hold_backs_off_too_and_a_quiet_hour_forgives(quiet: float, cool_down: float) -> None:
    closed = run(probing(), [GOOD] * 6, start=NOW + 75.0)

    breaker = run(closed, [BAD] * 5, start=closed.closed_at_seconds + quiet - 60.0)

    assert (breaker.state, breaker.cool_down_seconds) == (OPEN, cool_down)


def test_the_priority_only_policy_may_end_a_probe_but_never_proves_the_full_one() -> None:
    half = tick(opened(NOW - 200.0), NOW - 5.0, GOOD)
    seen = tick(half, NOW, mode=PRIORITY_ONLY)

    assert run(seen, [GOOD] * 50, start=NOW + 75.0, mode=PRIORITY_ONLY).state is HALF_OPEN
    assert run(seen, [BAD] * 2, start=NOW + 75.0, mode=PRIORITY_ONLY).state is OPEN


def test_a_probe_that_the_scheduler_does_not_follow_counts_for_nothing() -> None:
    half = tick(opened(NOW - 200.0), NOW - 5.0, GOOD)

    stuck = run(half, [BAD, GOOD] * 10, start=NOW, mode=SIMPLIFIED)

    assert (stuck.state, stuck.beyond, stuck.under) == (HALF_OPEN, 0, 0)
    assert run(run(stuck, [NAN], start=NOW + 400.0), [GOOD] * 6, start=NOW + 475.0).state is CLOSED


def test_a_probe_that_somebody_breaks_off_counts_for_nothing() -> None:
    broken_off = run(probing(), [BAD], start=NOW + 75.0)

    for number in range(20):
        broken_off = tick(broken_off, NOW + 90.0 + SCRAPE * number, BAD, mode=SIMPLIFIED)
        assert (broken_off.state, broken_off.beyond) == (HALF_OPEN, 0)


def test_a_change_of_mode_in_the_probe_starts_it_again() -> None:
    breaker = run(probing(), [GOOD] * 5, start=NOW + 75.0)

    breaker = run(breaker, [GOOD], start=NOW + 150.0, mode=PRIORITY_ONLY)
    breaker = run(breaker, [GOOD], start=NOW + 165.0)

    assert (breaker.state, breaker.under, breaker.probing_since_seconds) == (HALF_OPEN, 0, NOW + 165.0)


def test_opening_again_and_again_is_flapping_until_the_window_has_passed() -> None:
    breaker = replace(opened(), openings=(NOW - 3000.0, NOW - 1000.0, NOW))

    assert not flapping(opened(), SETTINGS, at_seconds=NOW)
    assert flapping(breaker, SETTINGS, at_seconds=NOW + 600.0)
    assert not flapping(breaker, SETTINGS, at_seconds=NOW + 601.0)


def test_a_clock_that_is_set_back_does_not_prolong_flapping() -> None:
    breaker = replace(opened(), openings=(NOW - 3000.0, NOW - 1000.0, NOW))

    back = tick(breaker, NOW - 86_400.0)

    assert flapping(back, SETTINGS, at_seconds=NOW - 86_400.0 + 3600.0)
    assert not flapping(back, SETTINGS, at_seconds=NOW - 86_400.0 + 3601.0)


def test_openings_older_than_the_flap_window_are_forgotten() -> None:
    old = replace(LatencyBreaker(), openings=(NOW - 4000.0, NOW - 100.0), cool_down_seconds=120.0)

    assert run(old, [BAD] * 5, start=NOW - 60.0).openings == (NOW - 100.0, NOW)


@pytest.mark.parametrize("back", [30.0, 3600.0, 86_400.0])
def test_a_clock_that_is_set_back_while_it_is_open_starts_the_cool_down_again(back: float) -> None:
    breaker = tick(opened(), NOW - back, GOOD)
    assert breaker.opened_at_seconds == NOW - back

    assert tick(breaker, NOW - back + 119.0, GOOD).state is OPEN
    assert tick(breaker, NOW - back + 120.0, GOOD).state is HALF_OPEN


def test_a_clock_that_is_set_back_in_the_probe_starts_the_probe_again() -> None:
    breaker = run(probing(), [GOOD] * 5, start=NOW + 75.0)

    back = tick(breaker, NOW - 86_400.0, GOOD)
    again = run(back, [GOOD] * 6, start=NOW - 86_400.0 + 75.0)

    assert (back.state, back.under) == (HALF_OPEN, 0)
    assert again.state is CLOSED


def test_a_clock_that_is_set_back_lets_the_quiet_hour_begin_again() -> None:
    closed = run(probing(), [GOOD] * 6, start=NOW + 75.0)
    back = tick(closed, NOW - 86_400.0, GOOD)

    assert run(back, [BAD] * 5, start=NOW - 86_400.0 + 3700.0).cool_down_seconds == 120.0


def test_a_clock_that_was_set_back_does_not_blind_it() -> None:
    ahead = run(LatencyBreaker(), [GOOD] * 3, start=NOW + 86_400.0)

    assert run(ahead, [BAD] * 5, start=NOW).state is OPEN


def test_it_returns_from_the_journal_as_it_was() -> None:
    for breaker in (LatencyBreaker(), opened(), probing(), run(probing(), [GOOD] * 6, start=NOW + 75.0)):
        assert encode(decode(LatencyBreaker, encode(breaker))) == encode(breaker)
        assert repr(decode(LatencyBreaker, encode(breaker))) == repr(breaker)


VALUES = st.sampled_from([GOOD, BAD, NAN])


@given(samples=st.integers(2, 8), latencies=st.lists(VALUES, max_size=60))
def test_it_never_opens_on_fewer_new_samples_in_a_row_than_asked_for(samples: int, latencies: list[float]) -> None:
    settings = SETTINGS.model_copy(update={"samples": samples})
    breaker, row, first, last = LatencyBreaker(), 0, NAN, NAN
    for number, latency in enumerate(latencies):
        at = NOW + SCRAPE * number
        if not math.isnan(latency):
            row = 0 if at - last > 3 * WINDOW else row
            row, first = (row + 1, first if row else at) if latency > LIMIT else (0, NAN)
            last = at
        breaker = tick(breaker, at, latency, settings=settings)

        expected = row >= samples and last - first >= WINDOW
        assert (breaker.state is OPEN) == expected
        if expected:
            return


@given(
    story=st.lists(
        st.tuples(st.floats(-200_000.0, 4000.0), VALUES, st.sampled_from([FULL, SIMPLIFIED, PRIORITY_ONLY])),
        max_size=40,
    )
)
def test_whatever_happened_it_closes_once_latency_is_good_and_time_passes(
    story: list[tuple[float, float, SchedulerMode]],
) -> None:
    breaker, at = LatencyBreaker(), NOW
    for wait, latency, mode in story:
        at += wait
        breaker = tick(breaker, at, latency, mode=mode)

    # The longest cool-down, the window, and the proof; the clock runs forward from now on.
    for _ in range(int((3600.0 + 2 * WINDOW) / SCRAPE) + SETTINGS.probe_samples + 10):
        at += SCRAPE
        breaker = tick(breaker, at, GOOD)

    assert breaker.state is CLOSED


@given(
    story=st.lists(
        st.tuples(st.floats(0.0, 400.0), VALUES, st.sampled_from([FULL, SIMPLIFIED, PRIORITY_ONLY])), max_size=60
    )
)
def test_it_never_closes_without_the_proof_and_never_opens_while_closed_in_the_simplified_policy(
    story: list[tuple[float, float, SchedulerMode]],
) -> None:
    breaker, at, proofs = opened(), NOW, 0
    for wait, latency, mode in story:
        at += wait
        before, breaker = breaker, tick(breaker, at, latency, mode=mode)
        if breaker.state is HALF_OPEN and latency == GOOD and mode is FULL:
            proofs += 1
        if before.state is not CLOSED and breaker.state is CLOSED:
            assert before.state is HALF_OPEN
            assert proofs >= SETTINGS.probe_samples - 1
            assert (latency, mode) == (GOOD, FULL)
        if before.state is CLOSED and mode is SIMPLIFIED:
            assert breaker.state is CLOSED
