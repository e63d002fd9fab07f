"""The best fixed setting in hindsight: what could have been set from the beginning, had one known.

One setting for all seeds, found in three steps: points that fill the bounds evenly (Sobol) on the first seed, the best
of them on the others, and from the best of those a search of its neighbourhood with ever smaller steps, each round on
the first seed first. The untouched setting is always among the candidates, at no cost.

The winner of many is lucky, too: its gain is somewhat too high. That is to the disadvantage of whoever is measured
against it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from tuner.values.knobs import KnobSpec, KnobValues

FINALISTS: Final = 6
"""Points of the first step that are tried on the other seeds."""
CHALLENGERS: Final = 2
"""Neighbours of a round that are tried on the other seeds."""
FIRST_STEP: Final = 1 / 6
"""First step of the neighbourhood search, as a share of each range."""

Job: TypeAlias = tuple[KnobValues, int]
"""A setting, and the number of the seed to try it on."""


@dataclass(frozen=True, slots=True)
class Hindsight:
    """The best fixed setting.

    Attributes:
        knobs: The setting.
        scores: Against untouched, one a seed.
        runs: Replays that the search took, whether made now or remembered.
    """

    knobs: KnobValues
    scores: tuple[float, ...]
    runs: int


def best_fixed(
    specs: Sequence[KnobSpec],
    start: KnobValues,
    *,
    seeds: int,
    budget: int,
    run: Callable[[Sequence[Job]], Sequence[float]],
    seed: int = 1,
) -> Hindsight:
    """Search the best fixed setting.

    Args:
        specs: Bounds and steps.
        start: The untouched setting, which scores 0 on every seed.
        seeds: Number of seeds.
        budget: Most replays.
        run: Replays settings and returns their scores against untouched, in the same order.
        seed: Of the Sobol points.
    """
    book = _Book(start, seeds=seeds, budget=budget, run=run)
    book.ask([(knobs, 0) for knobs in _sobol(specs, _screened(budget), seed=seed)])
    book.complete(book.ranked()[:FINALISTS])
    step = FIRST_STEP
    while book.left > 0 and step * max(spec.steps for spec in specs) >= 0.5:
        centre = book.best
        around = list(_neighbours(centre, specs, step))
        book.ask([(knobs, 0) for knobs in around])
        near = [knobs for knobs in book.ranked() if knobs in around]
        book.complete(near[:CHALLENGERS])
        if book.best == centre:
            step /= 2
    return Hindsight(book.best, book.scores(book.best), book.runs)


class _Book:
    """What has been tried."""

    def __init__(
        self, start: KnobValues, *, seeds: int, budget: int, run: Callable[[Sequence[Job]], Sequence[float]]
    ) -> None:
        self._seeds = seeds
        self._budget = budget
        self._run = run
        self._known: dict[Job, float] = {(start, number): 0.0 for number in range(seeds)}
        self.runs = 0

    @property
    def left(self) -> int:
        """Replays that are left."""
        return self._budget - self.runs

    @property
    def best(self) -> KnobValues:
        """The best setting of those that were tried on every seed."""
        whole = [knobs for knobs, number in self._known if number == 0 and self._tried(knobs)]
        return min(whole, key=lambda knobs: float(np.mean(self.scores(knobs))))

    def scores(self, knobs: KnobValues) -> tuple[float, ...]:
        """Return the scores of a setting that was tried on every seed."""
        return tuple(self._known[knobs, number] for number in range(self._seeds))

    def ranked(self) -> list[KnobValues]:
        """Return the settings by their score on the first seed, best first."""
        return sorted((knobs for knobs, number in self._known if number == 0), key=lambda knobs: self._known[knobs, 0])

    def complete(self, settings: Sequence[KnobValues]) -> None:
        """Try settings on all seeds, as many as the budget allows in full."""
        jobs: list[Job] = []
        for knobs in settings:
            new = [(knobs, number) for number in range(self._seeds) if (knobs, number) not in self._known]
            if len(jobs) + len(new) <= self.left:
                jobs += new
        self.ask(jobs)

    def ask(self, jobs: Sequence[Job]) -> None:
        """Try what is not known yet, as far as the budget goes."""
        new = [job for job in dict.fromkeys(jobs) if job not in self._known][: self.left]
        self._known |= zip(new, self._run(new), strict=True) if new else {}
        self.runs += len(new)

    def _tried(self, knobs: KnobValues) -> bool:
        return all((knobs, number) in self._known for number in range(self._seeds))


def _screened(budget: int) -> int:
    """Return the largest power of two within half a budget: Sobol points are even in such numbers."""
    return 1 << max(budget // 2, 1).bit_length() - 1


def _sobol(specs: Sequence[KnobSpec], count: int, *, seed: int) -> list[KnobValues]:
    from scipy.stats import qmc

    points = qmc.Sobol(len(specs), seed=seed).random(count)
    return [
        KnobValues.of({spec.role: spec.at(round(share * spec.steps)) for spec, share in zip(specs, point, strict=True)})
        for point in points.tolist()
    ]


def _neighbours(centre: KnobValues, specs: Sequence[KnobSpec], step: float) -> Iterator[KnobValues]:
    """Yield the settings that lie one step away on one knob, inside the bounds."""
    for spec in specs:
        here = spec.index(centre[spec.role])
        for way in (-1, 1):
            there = min(max(here + way * max(1, round(step * spec.steps)), 0), spec.steps)
            if there != here:
                yield KnobValues.of({**centre, spec.role: spec.at(there)})
