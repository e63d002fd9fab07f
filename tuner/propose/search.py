"""The search: Optuna proposes settings, the twin scores them, and the best is doubted before it is believed.

1. The space is what one change may reach (`space`). Small spaces are tried out in full.
2. Larger ones are searched by generations: the setting in force, the middle of the ranges, warm starts and a Sobol
   sequence first, then what the sampler asks for. One call of the twin scores a generation, on common scenarios; no
   setting is scored twice.
3. The best are scored again on fresh draws, because the best of many noisy scores flatters itself; a candidate that is
   bad where it is worst, or that stands on a cliff, is passed over.
4. Moves that bring nothing are taken back, so that a direction in which the twin is flat stays where it is.

A search is a pure function of its `SearchInputs`: budgets count candidates, never time. Only a deadline can cut one
short, and then `trials` repeats it.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

import numpy as np

from tuner.propose.explain import explain_found, explain_nothing
from tuner.propose.inputs import SearchInputs
from tuner.propose.scoring import IN_FORCE, Evaluate, Scored
from tuner.propose.space import Point, Space, rows
from tuner.twin.model import evaluate as evaluate_on_twin
from tuner.twin.parameters import TwinParameters
from tuner.values.knobs import KnobValues, middle
from tuner.values.stages import Proposal

if TYPE_CHECKING:
    import optuna

__all__ = ["Evaluate", "SearchInputs", "search"]

MAX_TRIALS: Final = 300
"""Trials a study may hold: the cost of asking grows with the square of their number."""

CONFIRMED: Final = 5
"""Candidates that are scored again on fresh draws."""

MAX_TAIL_SCORE: Final = 0.05
"""How much worse a candidate may be in the worst tenth of the scenarios: what verification would undo by default."""

MAX_CLIFF_SCORE: Final = 0.05
"""How much worse a setting one step away may be; beyond, a small error of the twin would turn gain into harm."""

IDLE_MOVE_SCORE: Final = 0.005
"""Gain below which moving a knob is not worth it: half of the least gain that is worth a change by default."""

_SOBOL_BLOCK: Final = 64
"""Points drawn at once; a power of two keeps the sequence balanced."""


def search(
    inputs: SearchInputs,
    *,
    deadline_at: Callable[[], bool] | None = None,
    trials: int | None = None,
    evaluate: Evaluate = evaluate_on_twin,
) -> Proposal:
    """Return the best setting that one change may reach, or the one in force where none is better.

    Args:
        inputs: All that the search may know.
        deadline_at: Says whether the time is over; asked once a generation. The best so far is still confirmed.
        trials: Budget instead of the settings': `Proposal.trials` of a search that was cut short repeats it exactly.
        evaluate: The twin.

    Returns:
        A proposal whose score, error and metrics come from the fresh draws alone.
    """
    inputs = replace(inputs, parameters=_anchored(inputs.parameters, inputs.incumbent))
    space = Space.around(inputs.incumbent, inputs.specs, trust=inputs.trust, choices=inputs.choices)
    scored = Scored(inputs, space, inputs.scenarios, evaluate)
    budget = min(trials or MAX_TRIALS, inputs.settings.trials, MAX_TRIALS)
    for generation in _generations(space, inputs, scored, budget):
        scored.measure(generation)
        if len(scored) >= budget or (deadline_at is not None and deadline_at()):
            break
    return _choose(inputs, scored, Scored(inputs, space, inputs.confirm_scenarios, evaluate))


def _anchored(parameters: TwinParameters, incumbent: KnobValues) -> TwinParameters:
    """Return the parameters with the setting in force known to them.

    Where it is not, the twin could not hold its draws to what is observed.
    """
    known = np.where(np.isnan(parameters.knobs), rows([incumbent])[0], parameters.knobs)
    return replace(parameters, knobs=known)


def _generations(space: Space, inputs: SearchInputs, scored: Scored, budget: int) -> Iterator[list[Point]]:
    """Yield what to score next: everything where that is affordable, else what a study asks for."""
    # By the settings' budget, so that a search that is repeated with fewer trials takes the same path.
    if space.size > min(inputs.settings.trials, MAX_TRIALS):
        yield from _asked(space, inputs, scored, budget)
    else:
        yield from _outwards(space, size=inputs.settings.generation)


def _outwards(space: Space, *, size: int) -> Iterator[list[Point]]:
    """Yield every setting, from the one in force outwards, so that a deadline leaves the nearest scored."""
    points = sorted(space.points(), key=lambda point: (_distance(point, space.start), point))
    for begin in range(0, len(points), size):
        yield points[begin : begin + size]


def _distance(point: Point, other: Point) -> int:
    return sum(abs(a - b) for a, b in zip(point, other, strict=True))


def _asked(space: Space, inputs: SearchInputs, scored: Scored, budget: int) -> Iterator[list[Point]]:
    """Yield generations by ask and tell; what the sampler repeats is replaced by settings that are still unknown."""
    study, distributions = _study(space, inputs)
    spread = _spread(space, inputs)
    size = min(inputs.settings.generation, inputs.settings.trials)
    first = list(islice(_unlike(chain(_known(space, inputs), spread)), size))
    # Only the first generation is enqueued: CMA-ES would take a later one for its own draw of another point.
    for point in first:
        study.enqueue_trial({axis.role: point[place] for place, axis in enumerate(space.axes) if axis in space.free})
    while True:
        trials = [study.ask(distributions) for _ in range(size)]
        points = [tuple(trial.params.get(axis.role, axis.start) for axis in space.axes) for trial in trials]
        candidates = chain(points, _around_best(space, scored), spread)
        fresh = (point for point in _unlike(candidates) if point not in scored.metrics)
        # Whatever is over the budget is not scored: the search ends here.
        yield list(islice(fresh, min(size, budget - len(scored))))
        assessment = scored.assess(points)
        for trial, value, violation in zip(trials, assessment.rank_value, assessment.violation, strict=True):
            if space.enumerated:  # CMA-ES knows no constraints: there the value alone ranks the infeasible last.
                trial.set_constraint("safety", violation)
            study.tell(trial, value)


def _known(space: Space, inputs: SearchInputs) -> list[Point]:
    """Return where to begin: what is in force, what one would set without knowing better, what did well before."""
    warm_starts = inputs.warm_starts[: inputs.settings.generation // 2]
    return [space.start, *map(space.nearest, (middle(inputs.specs), *warm_starts))]


def _spread(space: Space, inputs: SearchInputs) -> Iterator[Point]:
    """Yield points that fill the space evenly, without end."""
    from scipy.stats import qmc

    sequence = qmc.Sobol(d=len(space.axes), rng=inputs.seed)
    while True:
        yield from map(space.at, sequence.random(_SOBOL_BLOCK))


def _around_best(space: Space, scored: Scored) -> Iterator[Point]:
    """Yield the reachable settings one step away from the best so far."""
    points = [point for point in scored.metrics if point != IN_FORCE]
    best = points[int(np.argmin(scored.assess(points).rank_value))]
    yield from (point for point in space.neighbours(best) if space.reaches(point))


def _unlike(points: Iterable[Point]) -> Iterator[Point]:
    """Yield each point once."""
    seen = set()
    for point in points:
        if point not in seen:
            seen.add(point)
            yield point


def _study(
    space: Space, inputs: SearchInputs
) -> "tuple[optuna.Study, dict[str, optuna.distributions.BaseDistribution]]":
    """Return a fresh study in memory, and the distributions of the axes on which there is a choice."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    distributions: dict[str, optuna.distributions.BaseDistribution] = {}
    for axis in space.free:
        numbers = range(axis.first, axis.last + 1)
        distributions[axis.role] = (
            optuna.distributions.CategoricalDistribution(tuple(numbers))
            if axis.enumerated
            else optuna.distributions.IntDistribution(axis.first, axis.last)
        )
    with warnings.catch_warnings():
        # `with_margin` is marked experimental; the version of Optuna is bounded for that reason. CMA-ES starts in the
        # middle of what can be reached, which is the setting in force unless that lies near an end of its range.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler: optuna.samplers.BaseSampler = (
            optuna.samplers.TPESampler(seed=inputs.seed)
            if space.enumerated
            else optuna.samplers.CmaEsSampler(
                seed=inputs.seed, popsize=min(inputs.settings.generation, inputs.settings.trials), with_margin=True
            )
        )
    return optuna.create_study(sampler=sampler), distributions


def _choose(inputs: SearchInputs, scored: Scored, fresh: Scored) -> Proposal:
    """Doubt the best candidates one after another, and propose the first that stands."""
    trials = len(scored)
    points = [key for key in scored.metrics if scored.values(key).differs(inputs.incumbent)]
    broken, best = _best(points, scored)
    fresh.measure(best)
    doubts = Counter({"broke a safety limit": broken})
    for point in sorted(best, key=lambda point: float(fresh.assess([point]).rank_value[0])):
        doubt = _doubt(point, scored, fresh)
        if not doubt:
            return _proposal(inputs, fresh, _without_idle_moves(point, scored, fresh), trials, doubts)
        doubts[doubt] += 1
    return _proposal(inputs, fresh, IN_FORCE, trials, doubts)


def _best(points: Sequence[Point], scored: Scored) -> tuple[int, list[Point]]:
    """Return how many points break a limit, and the few best of the others."""
    if not points:
        return 0, []
    assessment = scored.assess(points)
    order = np.argsort(assessment.rank_value, kind="stable")
    feasible = [points[place] for place in order if assessment.feasible[place]]
    return len(points) - len(feasible), feasible[:CONFIRMED]


def _doubt(point: Point, scored: Scored, fresh: Scored) -> str:
    """Return what speaks against a candidate, as the end of "3 candidates ..."; empty where nothing does."""
    confirmed = fresh.assess([point])
    if not confirmed.feasible[0]:
        return "broke a safety limit on fresh draws"
    if not confirmed.score[0] < 0:
        return "did not hold up on fresh draws"
    if not confirmed.tail[0] <= MAX_TAIL_SCORE:
        return "would do harm where the load is worst"
    # Only ways on which it moves: on the others, the setting in force stands as near to an edge itself.
    moved = [place for place, axis in enumerate(scored.space.axes) if point[place] != axis.start]
    near = [other for other in scored.space.neighbours(point) if any(other[place] != point[place] for place in moved)]
    around = scored.assess([point, *near]).score
    # A neighbour that still beats the setting in force is a slope, not a cliff. NaN is taken for the worst.
    steady = (around[1:] <= around[0] + MAX_CLIFF_SCORE) | (around[1:] <= 0)
    return "" if steady.all() else "stood on a cliff: one step away is over 5 % worse"


def _without_idle_moves(point: Point, scored: Scored, fresh: Scored) -> Point:
    """Take back every move that brings nothing, so that only knobs that matter are touched."""
    space, limit = fresh.space, float(fresh.assess([point]).score[0]) + IDLE_MOVE_SCORE
    for place, axis in enumerate(space.axes):
        if point[place] == axis.start or axis.levels[axis.start] != fresh.inputs.incumbent[axis.role]:
            continue
        simpler = (*point[:place], axis.start, *point[place + 1 :])
        if fresh.assess([simpler]).score[0] <= limit and not _doubt(simpler, scored, fresh):
            point = simpler
    return point


def _proposal(inputs: SearchInputs, fresh: Scored, key: Point, trials: int, doubts: Mapping[str, int]) -> Proposal:
    confirmed = fresh.assess([key])
    predicted, untouched = confirmed.predicted[0], fresh.assess([IN_FORCE]).predicted[0]
    candidate, score, error = fresh.values(key), float(confirmed.score[0]), float(confirmed.error[0])
    found = bool(candidate.differs(inputs.incumbent))
    return Proposal(
        cycle_id=inputs.cycle_id,
        incumbent=inputs.incumbent,
        candidate=candidate,
        score=score if found else 0.0,
        score_error=error if found else 0.0,
        predicted=predicted,
        predicted_incumbent=untouched,
        feasible=bool(confirmed.feasible[0]) if found else True,
        violations=confirmed.violations(0),
        trials=trials,
        seed=inputs.seed,
        fidelity_ratio=inputs.parameters.fidelity_ratio,
        reason=explain_found(
            candidate,
            inputs.incumbent,
            score=score,
            error=error,
            predicted=predicted,
            predicted_incumbent=untouched,
            weights=inputs.weights,
            correction=float(confirmed.correction[0]),
        )
        if found
        else explain_nothing(trials, doubts),
    )
