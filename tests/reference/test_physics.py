import dataclasses

import numpy as np
import pytest

from tuner.reference.cluster import ClusterSpec
from tuner.reference.physics import CONSTANTS_TYPE, RANGES, PhysicalConstants
from tuner.reference.population import HIGH_DEMAND_MEMORY_RATIO, draw_population
from tuner.reference.synthetic import merge, tasks
from tuner.reference.workload import TaskKind, Workload


def test_every_constant_has_a_range_and_a_source() -> None:
    names = [item.name for item in dataclasses.fields(PhysicalConstants)]

    assert names == list(RANGES)
    assert all(0.0 <= limits.low < limits.high and limits.source for limits in RANGES.values())


@pytest.mark.parametrize("seed", range(20))
def test_draws_stay_in_their_ranges(seed: int) -> None:
    drawn = PhysicalConstants.draw(seed)

    assert all(RANGES[name].low <= getattr(drawn, name) <= RANGES[name].high for name in RANGES)


def test_a_seed_draws_the_same_world_again_and_another_seed_another() -> None:
    assert PhysicalConstants.draw(7) == PhysicalConstants.draw(7)
    assert PhysicalConstants.draw(7) != PhysicalConstants.draw(8)


def test_the_engine_reads_what_was_drawn() -> None:
    drawn = PhysicalConstants.draw(3)

    record = drawn.as_array()[0]

    assert record.dtype == CONSTANTS_TYPE
    assert {name: record[name] for name in RANGES} == {name: getattr(drawn, name) for name in RANGES}


@pytest.fixture
def mixed() -> Workload:
    rng = np.random.default_rng(0)
    return merge(
        tasks(np.arange(500.0), 60.0, gpus=rng.choice([0.25, 1.0, 2.0, 16.0], 500)),
        tasks(np.arange(500.0), 1.0, kind=TaskKind.INFERENCE, model=rng.integers(0, 4, 500)),
        tasks(np.arange(100.0), 30.0, kind=TaskKind.PREPROCESSING),
    )


def test_tasks_are_drawn_by_seed_alone(mixed: Workload, small: ClusterSpec) -> None:
    constants = PhysicalConstants.draw(1)

    first = draw_population(mixed, small, constants=constants, seed=1)
    again = draw_population(mixed, small, constants=constants, seed=1)
    other = draw_population(mixed, small, constants=constants, seed=2)

    assert (first.efficiency == again.efficiency).all()
    assert (first.efficiency != other.efficiency).any()


def test_gangs_and_demanding_single_tasks_run_alone_and_nobody_else(mixed: Workload, small: ClusterSpec) -> None:
    people = draw_population(mixed, small, constants=PhysicalConstants.draw(1), seed=1)

    training = mixed.kind == TaskKind.TRAINING
    assert (people.exclusive == (training & ((mixed.gpus > 1) | (people.memory > HIGH_DEMAND_MEMORY_RATIO)))).all()
    assert 0 < people.exclusive[mixed.gpus == 1.0].sum() < (mixed.gpus == 1.0).sum()
    assert not people.exclusive[~training].any()


def test_drawn_properties_are_possible(mixed: Workload, small: ClusterSpec) -> None:
    people = draw_population(mixed, small, constants=PhysicalConstants.draw(1), seed=1)

    for efficiency in (people.efficiency, people.efficiency_after):
        assert ((efficiency >= 0.05) & (efficiency <= 1.0)).all()
    assert ((people.memory >= 0.0) & (people.memory <= 1.0)).all()
    assert (people.efficiency_after[~people.changes] == people.efficiency[~people.changes]).all()
    assert ((people.group >= 0) & (people.group < people.groups)).all()
    assert not (people.grows & ~people.exclusive).any()
    # A model and one of its requests must fit on an accelerator that is empty.
    assert (people.model_memory + people.memory[mixed.kind == TaskKind.INFERENCE].max() < 1.0).all()


def test_groups_tell_models_sizes_and_classes_apart(mixed: Workload, small: ClusterSpec) -> None:
    people = draw_population(mixed, small, constants=PhysicalConstants.draw(1), seed=1)

    labels = {
        (int(kind), float(gpus) if kind == 1 else 0.0, int(model))
        for kind, gpus, model in zip(mixed.kind, mixed.gpus, mixed.model, strict=True)
    }
    assert len(set(people.group.tolist())) == len(labels)
