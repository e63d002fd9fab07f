"""What speaks against answers: of a whole source, of unanswered questions, of old samples, of values that disagree."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from tuner.observe.asker import Asker
from tuner.observe.belief import Problems
from tuner.observe.meter import MeteredSource
from tuner.observe.questions import Question

MIN_ALLOCATED_RATIO: Final = 0.1
"""Share of the accelerators that must be allocated before it is odd that not one of them does anything (assumption)."""

MAX_RESTING_WATTS: Final = 120.0
"""Power that an accelerator may draw while it does nothing: those of data centres rest at 40 to 90 W (assumption)."""


def of_source(problems: Problems, source: MeteredSource, *, max_clock_skew_seconds: float) -> None:
    """Note what speaks against all answers that a source has given since it was reset."""
    if source.warnings:
        problems.add("source", "partial", "; ".join(source.warnings))
    if source.duplicates:
        problems.add("source", "duplicate", f"{source.duplicates} samples came twice; the last of each was taken")
    offset, limit = source.clock_offset_seconds, max_clock_skew_seconds
    if abs(offset) > limit:
        problems.add("source", "clock_skew", f"its clock differs from ours by {offset:+.0f} s, over {limit:g} s")


def of_questions(
    problems: Problems,
    asker: Asker,
    questions: Sequence[Question],
    *,
    answered: Collection[str],
    unreadable: Sequence[str],
    unreached: str,
) -> None:
    """Note which questions were not answered, and why.

    Args:
        problems: Where it is noted.
        asker: What asked them.
        questions: What was to be asked.
        answered: Names of those that were answered.
        unreadable: Names of those that the source cannot be asked at all.
        unreached: Why some may not have been asked.
    """
    for problem in asker.refused:
        problems.add(problem.metric, problem.reason, problem.detail)
    for name in unreadable:
        problems.add(name, "missing", "the policy names no series to scrape for it")
    for question in questions:
        if question.name not in answered and not problems.concerns(question.name):
            problems.add(question.name, "unavailable", unreached)


def of_age(problems: Problems, question: Question, age_seconds: float, *, limit_seconds: float, stopped: bool) -> None:
    """Note why there is no value of a metric: its samples stopped, or there never were any."""
    if stopped:
        age = "of unknown age" if math.isnan(age_seconds) else f"{age_seconds:.0f} s old"
        problems.add(question.name, "stale", f"newest sample is {age}; the limit is {limit_seconds:g} s")
    elif not problems.concerns(question.name):
        problems.add(question.name, "missing", f"nothing answers {question.current}")


def of_utilization(problems: Problems, metrics: Mapping[str, float], context: Mapping[str, float]) -> bool:
    """Say whether the utilisation is not to be believed: zero on every node, though they are allocated and draw power.

    Accelerators that are cut into slices (NVIDIA's MIG) show a utilisation of 0 however busy they are.

    Args:
        problems: Where it is noted.
        metrics: Current values by name; per-node ones as means over the nodes, so that 0 is 0 on every node.
        context: `accelerators_count` and `nodes_count`, where they are known; else a node counts as one accelerator.
    """
    allocated = 1.0 - metrics.get("resource_idle_ratio", math.nan)
    per_node = context.get("accelerators_count", math.nan) / context.get("nodes_count", math.nan)
    watts = metrics.get("node_power_watts", math.nan) / (per_node if per_node > 0 else 1.0)
    suspect = metrics.get("accelerator_utilization_ratio") == 0 and allocated >= MIN_ALLOCATED_RATIO
    if not (suspect and watts > MAX_RESTING_WATTS):
        return False
    detail = (
        f"0 on every node, while {allocated:.0%} of the accelerators are allocated and draw {watts:.0f} W each, over "
        f"{MAX_RESTING_WATTS:g} W; where they are cut into slices (MIG), ask for the profiling metric instead"
    )
    problems.add("accelerator_utilization_ratio", "implausible", detail)
    return True
