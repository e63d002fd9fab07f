from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.bench.tuning_world import small
from tuner.bench.ablations import ABLATED_ARMS, ABLATIONS, Unbounded, Unlearning
from tuner.bench.adapting import by_part
from tuner.bench.arms import WHOLE, Case, Laboratory, Outcomes
from tuner.bench.cases import CLOCKTUNER, UNTOUCHED, WIDE
from tuner.bench.parts import lost
from tuner.bench.remembered import Remembered
from tuner.bench.replays import Outcome, replay
from tuner.bench.sidecar import Clocktuner
from tuner.bench.tuners import Site
from tuner.twin.residual import Residual
from tuner.values.metrics import METRIC_COUNT

SITE = Site(specs=WIDE.specs, start=WIDE.start, seed=1)


@pytest.fixture
def laboratory(tmp_path: Path) -> Iterator[Laboratory]:
    laboratory = Laboratory(Remembered(tmp_path), say=lambda _: None, threads=1)
    yield laboratory
    laboratory.close()


def outcome(level: float) -> Outcome:
    metrics = np.full(METRIC_COUNT, level)
    return Outcome(metrics=metrics, windows=np.full((6, METRIC_COUNT), level), changes=0, rollbacks=0, facts={})


@pytest.mark.timeout(120)
def test_a_replay_in_a_process_of_its_own_is_the_one_made_here(laboratory: Laboratory) -> None:
    workload = small(minutes=40)
    case = Case(name="small", bounds=WIDE, workload=lambda _: workload, seeds=(1,))

    (there,) = laboratory.tuned(case, "no_twin", ABLATED_ARMS["no_twin"])

    here = replay(workload, WIDE.settings, site=SITE, tuner=ABLATED_ARMS["no_twin"])
    np.testing.assert_array_equal(there.windows, here.windows)
    assert there.changes == here.changes


@pytest.mark.parametrize("arm", ABLATIONS)
def test_every_ablation_takes_something_out_of_what_is_shipped(arm: str) -> None:
    tuner = Clocktuner(SITE, instead=ABLATIONS[arm])
    try:
        assert ABLATIONS[arm].parts(tuner._policy)
    finally:
        tuner.close()


def test_without_a_trust_region_nothing_is_shortened_and_without_a_residual_nothing_is_learned() -> None:
    assert Unbounded().region_ratio == 1.0
    assert Unbounded().proven
    assert repr(Unlearning().residual) == repr(Residual())


def test_a_part_is_worth_what_is_lost_without_it() -> None:
    found = Outcomes({UNTOUCHED: (outcome(1.0),) * 2, CLOCKTUNER: (outcome(0.8),) * 2, "no_twin": (outcome(0.9),) * 2})

    spread = lost(found, "no_twin", WHOLE)

    assert spread.mean == pytest.approx(found.scores("no_twin")[0] - found.scores(CLOCKTUNER)[0])
    assert spread.mean != 0


def test_the_parts_of_a_day_are_scored_apart() -> None:
    untouched = outcome(1.0)
    windows = untouched.windows.copy()
    windows[4:] = 0.5
    tuned = Outcome(metrics=untouched.metrics, windows=windows, changes=0, rollbacks=0, facts={})

    first, second, third = by_part(tuned, untouched)

    assert first == second == 0
    assert third != 0
