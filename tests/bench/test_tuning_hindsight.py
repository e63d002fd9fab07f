from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.bench.cases import BOUND_SETS, RECOMMENDED, WIDE, BoundSet
from tuner.bench.hindsight import Job, best_fixed
from tuner.values.knobs import KnobValues, Role


class Bowl:
    """Scores of a smooth valley whose bottom differs a little from seed to seed, less those of the start."""

    def __init__(self, bounds: BoundSet, bottom: KnobValues, *, spread: float = 0.02) -> None:
        self.bounds = bounds
        self.bottom = bottom
        self.spread = spread
        self.asked: list[Job] = []

    def run(self, jobs: Sequence[Job]) -> list[float]:
        self.asked += jobs
        return [self._depth(knobs, number) - self._depth(self.bounds.start, number) for knobs, number in jobs]

    def _depth(self, knobs: KnobValues, number: int) -> float:
        return sum(
            (spec.position(knobs[spec.role]) - spec.position(self.bottom[spec.role]) - self.spread * (number - 1)) ** 2
            for spec in self.bounds.specs
        )


def _bottom(bounds: BoundSet, share: float) -> KnobValues:
    return KnobValues.of({spec.role: spec.snap(spec.low + share * (spec.high - spec.low)) for spec in bounds.specs})


@pytest.mark.parametrize("bounds", BOUND_SETS, ids=lambda bounds: bounds.name)
@pytest.mark.parametrize("share", [0.15, 0.5, 0.9])
def test_the_search_finds_the_bottom_of_a_valley(bounds: BoundSet, share: float) -> None:
    bowl = Bowl(bounds, _bottom(bounds, share))

    found = best_fixed(bounds.specs, bounds.start, seeds=3, budget=150, run=bowl.run)

    assert found.runs == len(bowl.asked) <= 150
    for spec in bounds.specs:
        assert spec.position(found.knobs[spec.role]) == pytest.approx(share, abs=0.15)
    bottom = np.mean(bowl.run([(bowl.bottom, number) for number in range(3)]))
    assert np.mean(found.scores) == pytest.approx(bottom, abs=0.02)


def test_the_untouched_setting_stays_where_nothing_is_better() -> None:
    bowl = Bowl(RECOMMENDED, RECOMMENDED.start, spread=0.0)

    found = best_fixed(RECOMMENDED.specs, RECOMMENDED.start, seeds=2, budget=60, run=bowl.run)

    assert found.knobs == RECOMMENDED.start
    assert found.scores == (0.0, 0.0)


def test_no_replay_is_asked_for_twice() -> None:
    bowl = Bowl(WIDE, _bottom(WIDE, 0.3))

    best_fixed(WIDE.specs, WIDE.start, seeds=3, budget=150, run=bowl.run)

    assert len(set(bowl.asked)) == len(bowl.asked)


@given(budget=st.integers(1, 60), seeds=st.integers(1, 4), share=st.floats(0.0, 1.0))
def test_the_budget_is_kept_and_the_winner_known_on_every_seed(budget: int, seeds: int, share: float) -> None:
    bowl = Bowl(RECOMMENDED, _bottom(RECOMMENDED, share))

    found = best_fixed(RECOMMENDED.specs, RECOMMENDED.start, seeds=seeds, budget=budget, run=bowl.run)

    assert len(bowl.asked) <= budget
    assert len(found.scores) == seeds
    assert np.mean(found.scores) <= 0.0
    assert all(spec.contains(found.knobs[spec.role]) for spec in RECOMMENDED.specs)


def test_one_lucky_seed_does_not_win() -> None:
    lucky = KnobValues.of({**RECOMMENDED.start, Role.BASE_SLICE: 0.1})

    def run(jobs: Sequence[Job]) -> list[float]:
        return [(-1.0 if number == 0 else 1.0) if knobs == lucky else 0.1 for knobs, number in jobs]

    found = best_fixed(RECOMMENDED.specs, RECOMMENDED.start, seeds=3, budget=100, run=run)

    assert found.knobs == RECOMMENDED.start
