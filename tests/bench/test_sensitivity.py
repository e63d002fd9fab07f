"""Each assumption is moved alone, and a claim is told as reached only where the curve meets it."""

import math
from dataclasses import fields

import numpy as np
import pytest

from tests.bench.tuning_world import small
from tuner.bench import assumptions
from tuner.bench.assumptions import Assumption, World
from tuner.bench.headlines import HEADLINES
from tuner.bench.replays import replay
from tuner.bench.sensitivity import DRIVERS, Curve, Driver, Read, replayed
from tuner.bench.tuners import Site
from tuner.reference.physics import PhysicalConstants
from tuner.reference.settings import ClockSettings

ALL = (
    assumptions.LOAD,
    assumptions.DECISION_COST,
    assumptions.SWITCH_COST,
    assumptions.COLD_START,
    assumptions.PATIENCE,
    assumptions.ZONES,
    assumptions.REMOTE_MEMORY,
)


def world() -> World:
    return World(small(minutes=5.0), PhysicalConstants.draw(1))


def driver(*claim: float, read: Read = Read.CHANGE) -> Driver:
    return Driver(headline="lost_ratio", assumption=assumptions.LOAD, claim=claim, words="", read=read)


def curve(*after: float) -> Curve:
    """Return a curve of changes from 1."""
    return Curve(np.arange(1.0, len(after) + 1), np.ones(len(after)), 1.0 + np.array(after))


@pytest.mark.parametrize(
    ("values", "claim", "reached"),
    [
        ((-0.1, -0.2, -0.4), (-0.3,), 2.5),
        ((-0.4, -0.2, -0.1), (-0.3,), 1.5),
        ((-0.1, -0.3, -0.4), (-0.3,), 2.0),
        ((0.0, 0.1, 0.9), (0.28, 0.45), 2.225),
        ((0.3, 0.1, 0.9), (0.28, 0.45), 1.0),
        ((0.9, 0.5, 0.1), (0.28, 0.45), 2.125),
        ((0.0, 0.4, 0.9), (0.28, 0.45), 1.7),
        ((-0.1, -0.1, -0.1), (-0.3,), math.nan),
        ((0.1, math.nan, 0.5), (0.3,), 2.0),
    ],
)
def test_a_claim_is_reached_where_the_curve_meets_it_first(
    values: tuple[float, ...], claim: tuple[float, ...], reached: float
) -> None:
    found = curve(*values).reached(driver(*claim))

    assert found == pytest.approx(reached, nan_ok=True)


def test_a_level_is_read_of_the_unoptimised_scheduler_and_a_change_between_both() -> None:
    both = Curve(np.array([1.0]), np.array([2.0]), np.array([3.0]))

    assert both.of(Read.LEVEL).tolist() == [2.0]
    assert both.of(Read.CHANGE).tolist() == [0.5]
    assert math.isnan(Curve(np.array([1.0]), np.array([0.0]), np.array([3.0])).of(Read.CHANGE)[0])


@pytest.mark.parametrize("assumption", ALL, ids=lambda each: each.name)
def test_what_is_moved_is_moved_alone(assumption: Assumption) -> None:
    before = world()

    after = assumption.move(before, 2.0)

    moved_constants = {
        item.name
        for item in fields(PhysicalConstants)
        if getattr(before.constants, item.name) != getattr(after.constants, item.name)
    }
    columns = before.workload.trace.workload.columns()
    moved_columns = {
        name for name, column in after.workload.trace.workload.columns().items() if (column != columns[name]).any()
    }
    moved_cluster = before.workload.cluster != after.workload.cluster
    expected = {
        "load": (set(), set(), True),
        "decision_cost": (
            {"decision_base_seconds", "decision_node_seconds", "decision_candidate_seconds"},
            set(),
            False,
        ),
        "switch_cost": (
            {"context_switch_seconds", "training_refill_seconds", "inference_refill_seconds"},
            set(),
            False,
        ),
        "cold_start": ({"init_seconds", "load_seconds"}, set(), False),
        "patience": (set(), {"patience_seconds"}, False),
        "zones": (set(), set(), False),  # The small cluster has two zones by itself.
        "remote_memory": ({"numa_latency_ratio"}, set(), False),
    }
    assert (moved_constants, moved_columns, moved_cluster) == expected[assumption.name]


def test_twice_the_load_is_half_the_nodes() -> None:
    assert assumptions.LOAD.move(world(), 2.0).workload.cluster.nodes == 1
    assert assumptions.LOAD.move(world(), 1.0).workload.cluster.nodes == 2


def test_at_the_usual_level_a_replay_is_the_usual_one() -> None:
    usual, settings = world(), ClockSettings()

    found = replayed(usual, settings, seed=1)

    site = Site(specs=(), start=settings.knobs, seed=1)
    expected = replay(usual.workload, settings, site=site)
    assert np.array_equal(found.metrics, expected.metrics, equal_nan=True)
    assert found.facts == pytest.approx(expected.facts, abs=0, nan_ok=True)


def test_a_dearer_decision_takes_longer() -> None:
    usual, settings = world(), ClockSettings.unoptimised()

    cheap, dear = (
        replayed(assumptions.DECISION_COST.move(usual, factor), settings, seed=1).facts["decision_seconds"]
        for factor in (1.0, 10.0)
    )

    assert dear > 5 * cheap


def test_every_driver_drives_a_headline_and_its_levels_ascend_around_the_usual_one() -> None:
    names = {headline.name for headline in HEADLINES}

    for each in DRIVERS:
        levels = each.assumption.levels
        assert each.headline in names
        assert sorted(set(levels)) == list(levels)
        assert math.isnan(each.assumption.usual) or each.assumption.usual in levels
    assert len({each.name for each in DRIVERS}) == len(DRIVERS)
