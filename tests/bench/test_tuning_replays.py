import math
from collections.abc import Callable

import numpy as np
import pytest

from tests.bench.tuning_world import small
from tuner.bench.cases import RECOMMENDED, WIDE
from tuner.bench.facts import Ledger
from tuner.bench.replays import Outcome, replay, windows_of
from tuner.bench.tuners import Site
from tuner.reference.scheduler import ReferenceScheduler
from tuner.reference.tally import Tally
from tuner.values.knobs import KnobValues, Role
from tuner.values.metrics import METRIC_COUNT, METRIC_INDEX, MetricVector, metric_vector

SITE = Site(specs=RECOMMENDED.specs, start=RECOMMENDED.start, seed=1)


class Scripted:
    """Asks for given settings, one a decision, and remembers what it was told."""

    def __init__(self, *settings: KnobValues) -> None:
        self.settings = list(settings)
        self.told: list[tuple[float, MetricVector]] = []

    def ask(self) -> KnobValues:
        return self.settings.pop(0) if self.settings else RECOMMENDED.start

    def tell(self, score: float, metrics: MetricVector) -> None:
        self.told.append((score, metrics))


def _with(**values: float) -> KnobValues:
    return KnobValues.of({**RECOMMENDED.start, **{Role(name): value for name, value in values.items()}})


def _same(first: Outcome, second: Outcome) -> bool:
    return (
        np.array_equal(first.metrics, second.metrics, equal_nan=True)
        and np.array_equal(first.windows, second.windows, equal_nan=True)
        and (first.changes, first.rollbacks) == (second.changes, second.rollbacks)
        and repr(first.facts) == repr(second.facts)
    )


def test_a_replay_repeats() -> None:
    workload = small()

    assert _same(replay(workload, RECOMMENDED.settings, site=SITE), replay(workload, RECOMMENDED.settings, site=SITE))


def test_a_tuner_that_leaves_all_as_it_is_gets_what_untouched_gets() -> None:
    workload = small()

    untouched = replay(workload, RECOMMENDED.settings, site=SITE)
    idle = replay(workload, RECOMMENDED.settings, site=SITE, tuner=lambda _: Scripted())

    assert _same(idle, untouched)
    assert idle.score(untouched) == 0.0
    assert idle.harmful_minutes(untouched) == 0.0


def test_windows_and_whole_are_what_a_plain_run_tallies() -> None:
    workload = small()
    scheduler = ReferenceScheduler(workload.cluster, workload.trace.workload, settings=RECOMMENDED.settings, seed=1)
    whole, last_window = Tally(), Tally()
    whole.add(scheduler.snapshot())
    for minute in range(1, 21):
        scheduler.advance(minute * 60.0)
        whole.add(scheduler.snapshot())
        if minute >= 15:
            last_window.add(scheduler.snapshot())

    outcome = replay(workload, RECOMMENDED.settings, site=SITE)

    assert outcome.windows.shape == (4, METRIC_COUNT)
    np.testing.assert_array_equal(outcome.metrics, whole.metrics())
    np.testing.assert_array_equal(outcome.windows[-1], last_window.metrics())


def test_a_tuner_decides_between_windows_and_is_told_each_one_before() -> None:
    tuner = Scripted(_with(base_slice_seconds=0.08), _with(base_slice_seconds=0.08), RECOMMENDED.start)

    outcome = replay(small(), RECOMMENDED.settings, site=SITE, tuner=lambda _: tuner)

    assert windows_of(small()) == 4
    assert len(tuner.told) == 3
    for (_, metrics), window in zip(tuner.told, outcome.windows, strict=False):
        np.testing.assert_array_equal(metrics, window)
    assert tuner.told[0][0] == 0.0
    assert outcome.changes == 2


def test_a_setting_is_in_force_from_its_window_on() -> None:
    slow = _with(decision_period_seconds=5.0)
    workload = small(per_minute=20)

    untouched = replay(workload, RECOMMENDED.settings, site=SITE)
    late = replay(workload, RECOMMENDED.settings, site=SITE, tuner=lambda _: Scripted(RECOMMENDED.start, slow, slow))

    np.testing.assert_array_equal(late.windows[:2], untouched.windows[:2])
    latency = METRIC_INDEX["scheduling_latency_seconds"]
    assert (late.windows[2:, latency] > 2 * untouched.windows[2:, latency]).all()
    assert late.score(untouched) > 0.05
    assert late.harmful_minutes(untouched) == 10.0


def test_a_planted_tuner_that_knows_better_beats_untouched_on_every_seed() -> None:
    better = KnobValues.of({**WIDE.start, Role.DECISION_PERIOD: 0.3})

    def knows(_: Site) -> Scripted:
        return Scripted(*[better] * 10)

    for seed in (1, 2):
        site = Site(specs=WIDE.specs, start=WIDE.start, seed=seed)
        workload = small(seed, minutes=40)
        untouched = replay(workload, WIDE.settings, site=site)
        assert replay(workload, WIDE.settings, site=site, tuner=knows).score(untouched) < -0.005


def test_seeds_differ_in_their_physics() -> None:
    other = Site(specs=RECOMMENDED.specs, start=RECOMMENDED.start, seed=2)

    first, second = (replay(small(), RECOMMENDED.settings, site=site) for site in (SITE, other))

    assert not _same(first, second)


@pytest.mark.parametrize(("waits", "minutes"), [((10.0, 10.0), 0.0), ((10.0, 13.0), 5.0), ((20.0, 20.0), 10.0)])
def test_windows_are_harmful_beyond_five_per_cent(waits: tuple[float, float], minutes: float) -> None:
    def outcome(*values: float) -> Outcome:
        windows = np.array([metric_vector({"queue_wait_seconds": value}) for value in values])
        return Outcome(metrics=windows[0], windows=windows)

    assert outcome(*waits).harmful_minutes(outcome(10.0, 10.0)) == minutes


def test_facts_hold_what_the_snapshots_say() -> None:
    workload = small()
    scheduler = ReferenceScheduler(workload.cluster, workload.trace.workload, settings=RECOMMENDED.settings, seed=1)
    ledger = Ledger()
    ledger.add(scheduler.snapshot())
    for minute in range(1, 6):
        scheduler.advance(minute * 60.0)
        ledger.add(scheduler.snapshot())
    end = scheduler.snapshot()

    facts = ledger.facts()

    lost = end.switch_seconds + end.warmup_seconds
    assert facts["lost_ratio"] == pytest.approx(lost / (lost + end.useful_seconds))
    assert facts["mean_wait_seconds"] == pytest.approx(end.queue_wait.mean)
    assert facts["latency_quiet_seconds"] == pytest.approx(end.scheduling_latency.mean)
    assert np.isnan(facts["latency_crowded_seconds"])
    assert facts["cross_zone_bytes"] == end.cross_zone_bytes


def test_without_snapshots_there_are_no_facts() -> None:
    assert Ledger().facts() == {}


@pytest.mark.parametrize(("minutes", "windows"), [(2.0, 1), (5.0, 1), (14.0, 2), (60.0, 12)])
def test_only_whole_windows_are_replayed_but_one_at_least(minutes: float, windows: int) -> None:
    assert windows_of(small(minutes=minutes)) == windows


def test_a_score_is_told_even_where_a_tuner_leaves_out_roles() -> None:
    partial: Callable[[Site], Scripted] = lambda _: Scripted(KnobValues.of({Role.RESERVATION: 0.25}))  # noqa: E731

    assert replay(small(minutes=10), RECOMMENDED.settings, site=SITE, tuner=partial).changes == 1


def test_the_score_of_windows_sees_what_a_whole_replay_hides_and_leaves_out_empty_ones() -> None:
    def outcome(*waits: float) -> Outcome:
        windows = np.array([metric_vector({"queue_wait_seconds": wait}) for wait in waits])
        return Outcome(metrics=metric_vector({"queue_wait_seconds": 10.0}), windows=windows)

    untouched, harmed = outcome(10.0, 10.0, math.nan, 10.0), outcome(10.0, 10.0, 10.0, 40.0)

    assert harmed.score(untouched) == 0.0
    assert harmed.window_score(untouched) == pytest.approx(0.25 * math.log(4.0) / 3)
    assert math.isnan(outcome(math.nan).window_score(outcome(10.0)))
