"""Hardware for equal work: how few nodes a better scheduler needs for the same waiting."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tuner.bench.arms import Case, Laboratory
from tuner.bench.cases import FIXED_ARMS, TUNED_ARMS, BoundSet
from tuner.bench.headlines import smallest
from tuner.bench.replays import Outcome
from tuner.errors import ConfigError
from tuner.reference.workloads import NamedWorkload

LEAST_RATIO: Final = 0.5
"""Share of the nodes below which nothing is tried."""


def nodes_for_equal_wait(laboratory: Laboratory, case: Case, arm: str) -> float:
    """Return the smallest share of the nodes on which an arm waits no longer than the unoptimised scheduler on all.

    Args:
        laboratory: Makes the replays.
        case: Workload, bounds and seeds, of which the first counts.
        arm: Untouched, or one that is tuned.

    Returns:
        Over 0.5 to 1; 1 also where the arm waits longer on all of them.
    """
    nodes = case.workload(case.seeds[0]).cluster.nodes
    unoptimised = _waits(laboratory, case, "unoptimised", nodes)

    def good(count: int) -> bool:
        try:
            return _waits(laboratory, case, arm, count) <= unoptimised
        except ConfigError:
            return False  # A gang does not fit on so few.

    found = smallest(range(math.ceil(LEAST_RATIO * nodes), nodes), good)
    return (found or nodes) / nodes


def _waits(laboratory: Laboratory, case: Case, arm: str, nodes: int) -> float:
    """Return the mean wait of an arm on so many nodes; infinity where nothing started."""
    smaller = replace(case, workload=_sized(case.workload, nodes), seeds=case.seeds[:1])
    (outcome,) = _outcomes(laboratory, smaller, arm, case.bounds)
    wait = outcome.facts["mean_wait_seconds"]
    return math.inf if math.isnan(wait) else wait


def _outcomes(laboratory: Laboratory, case: Case, arm: str, bounds: BoundSet) -> tuple[Outcome, ...]:
    if arm in TUNED_ARMS:
        return laboratory.tuned(case, arm, TUNED_ARMS[arm])
    return laboratory.fixed(case, FIXED_ARMS[arm](bounds), title=f"{arm} on {case.workload(1).cluster.name}")


def _sized(make: Callable[[int], NamedWorkload], nodes: int) -> Callable[[int], NamedWorkload]:
    """Return what makes the same workload on another number of nodes; on all of them it is the very same."""

    def made(seed: int) -> NamedWorkload:
        workload = make(seed)
        if nodes == workload.cluster.nodes:
            return workload
        return replace(workload, cluster=workload.cluster.sized(nodes))

    return made
