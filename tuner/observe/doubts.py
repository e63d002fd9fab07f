"""What speaks against answers: of a source as a whole, of questions that were not answered, and of old samples."""

import math
from collections.abc import Collection, Sequence

from tuner.observe.asker import Asker
from tuner.observe.belief import Problems
from tuner.observe.meter import MeteredSource
from tuner.observe.questions import Question


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
