"""Sharing in closed form against an oracle that walks every slice in plain Python."""

import math
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tuner.reference.engine import sharing
from tuner.reference.engine.state import FIRST, GPU, LOADING

Joins = list[tuple[float, float, float, float]]
"""Time of joining, work, slice, switch cost."""


@numba.njit
def _share(gpus: NDArray[Any], joins: NDArray[np.float64], ends: NDArray[np.float64]) -> None:
    """Run tasks on one accelerator event by event, as the engine does; fills in when each ends."""
    gpu = gpus[0]
    now, coming = 0.0, 0
    while True:
        due = now + sharing.next_milestone(gpu)
        arrives = joins[coming, 0] if coming < joins.shape[0] else math.inf
        if due == math.inf and arrives == math.inf:
            break
        at = min(due, arrives)
        if gpu["n"] > 0:
            sharing.run(gpu, at - now)
        now = at
        if due <= arrives:
            slot = gpu["due_slot"]
            ends[gpu["task"][slot]] = now
            sharing.leave(gpu, slot)
        else:
            sharing.join(gpu, coming, 1, joins[coming, 1], 0.5, joins[coming, 2], joins[coming, 3])
            coming += 1


class _Oracle:
    """The same, one turn after another, in the plainest words."""

    def __init__(self, joins: Joins) -> None:
        self.coming = [[index, *join] for index, join in enumerate(joins)]
        self.ring: list[list[float]] = []
        self.ends = [0.0] * len(joins)
        self.switched = 0.0
        self.now = 0.0

    def _admit(self) -> None:
        while self.coming and self.coming[0][1] <= self.now + 1e-12:
            index, _, work, slice_seconds, cost = self.coming.pop(0)
            self.ring.append([index, work, slice_seconds, cost])

    def _pass(self, seconds: float) -> float:
        """Let time pass, but not beyond the next arrival; return what was not spent."""
        until = self.coming[0][1] if self.coming else math.inf
        spent = min(seconds, until - self.now)
        self.now += spent
        return seconds - spent

    def run(self) -> "_Oracle":
        self._admit()
        while self.ring or self.coming:
            if not self.ring:
                self.now = self.coming[0][1]
                self._admit()
            self._turn()
        return self

    def _turn(self) -> None:
        current = self.ring.pop(0)
        owed = current[3]
        while owed > 0:
            rest = self._pass(owed)
            self.switched += owed - rest
            owed = rest
            self._admit()
        granted = current[2]
        while current[1] > 1e-9 and (granted > 1e-9 or not self.ring):
            alone = not self.ring
            wanted = current[1] if alone else min(granted, current[1])
            spent = wanted - self._pass(wanted)
            current[1] -= spent
            # One that was alone begins a full slice when company comes.
            granted = current[2] if alone else granted - spent
            self._admit()
        if current[1] <= 1e-9:
            self.ends[int(current[0])] = self.now
        else:
            self.ring.append(current)


joins = st.lists(
    st.tuples(
        st.floats(0.0, 5.0).map(lambda value: round(value, 3)),
        st.floats(0.01, 4.0).map(lambda value: round(value, 3)),
        st.floats(0.02, 0.5).map(lambda value: round(value, 3)),
        st.floats(0.0, 0.05).map(lambda value: round(value, 3)),
    ),
    min_size=1,
    max_size=8,
)


def _run(cases: Joins) -> tuple[NDArray[np.float64], Any]:
    gpus = np.zeros(1, dtype=GPU)
    ends = np.zeros(len(cases))
    _share(gpus, np.array(cases), ends)
    return ends, gpus[0]


@given(cases=joins)
@settings(deadline=None, max_examples=300)
def test_rounds_jumped_in_closed_form_end_tasks_when_slice_by_slice_walking_does(cases: Joins) -> None:
    # Tasks that join at one instant join in order, so their times are kept apart.
    cases = sorted((round(at + 0.0137 * index, 4), *rest) for index, (at, *rest) in enumerate(cases))  # type: ignore[misc]

    ends, gpu = _run(cases)

    oracle = _Oracle(cases).run()
    assert ends.tolist() == pytest.approx(oracle.ends, abs=1e-6)
    assert gpu["switch"] == pytest.approx(oracle.switched, abs=1e-6)


@given(cases=joins)
@settings(deadline=None, max_examples=100)
def test_every_second_is_booked_once(cases: Joins) -> None:
    cases = sorted(cases)

    _, gpu = _run(cases)

    work = sum(case[1] for case in cases)
    assert gpu["useful"] + gpu["idle"] == pytest.approx(work)
    assert gpu["useful"] == pytest.approx(0.5 * work)


def test_a_lone_resident_is_switched_in_once_however_long_it_runs() -> None:
    ends, gpu = _run([(0.0, 1000.0, 0.1, 0.01)])

    assert ends[0] == pytest.approx(1000.01)
    assert gpu["switch"] == pytest.approx(0.01)


def test_equal_residents_pay_one_switch_a_slice_each() -> None:
    ends, gpu = _run([(0.0, 1.0, 0.1, 0.01), (0.0, 1.0, 0.1, 0.01)])

    # Twenty turns of 0.11 s; the last is the second one's.
    assert max(ends) == pytest.approx(2.2)
    assert gpu["switch"] == pytest.approx(0.2)


def test_time_that_a_model_loads_is_booked_as_warming_up() -> None:
    gpus = np.zeros(1, dtype=GPU)

    _load(gpus, 2.0)

    assert gpus[0]["warmup"] == pytest.approx(2.0)
    assert gpus[0]["useful"] == 0.0


@numba.njit
def _load(gpus: NDArray[Any], seconds: float) -> None:
    gpu = gpus[0]
    sharing.join(gpu, 0, LOADING, seconds, 0.9, 0.1, 0.0)
    sharing.run(gpu, seconds)


@numba.njit
def _join_twice_and_leave(gpus: NDArray[Any]) -> None:
    gpu = gpus[0]
    for number in range(3):
        sharing.join(gpu, number, FIRST, 10.0, 0.5, 0.1, 0.01)
    sharing.run(gpu, 0.05)
    sharing.leave(gpu, gpu["turn"])


def test_work_of_whole_slices_ends_with_the_last_of_them_despite_rounding() -> None:
    # 0.429 / 0.143 is 3.0000000000000004 in floating point; a fourth turn for the crumb would be absurd.
    ends, _ = _run([(0.0, 0.429, 0.143, 0.0), (0.0, 3.0, 0.1, 0.0)])

    assert ends[0] == pytest.approx(3 * 0.143 + 2 * 0.1)


def test_when_the_one_whose_turn_it_is_leaves_the_next_in_the_ring_is_switched_in() -> None:
    gpus = np.zeros(1, dtype=GPU)

    _join_twice_and_leave(gpus)

    gpu = gpus[0]
    assert gpu["n"] == 2
    assert gpu["task"][gpu["turn"]] == 1
    assert gpu["lead"] == pytest.approx(0.01)
    assert gpu["quantum"] == pytest.approx(0.1)
