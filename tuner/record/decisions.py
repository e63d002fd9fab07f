"""The log of decisions in the report: one line a cycle, guard act or order, all findings behind it."""

from collections.abc import Sequence
from typing import Final

from tuner.record.html import Markup, join, table, tag, words
from tuner.record.summary import of_guard
from tuner.record.wording import (
    DECISION_WORDS,
    cell,
    count,
    e_value,
    moves,
    signed_percent,
    spread,
    tone,
    when,
    written,
)
from tuner.values.stages import CycleRecord, Decision, Finding, Step

SHOWN: Final = 400
"""Decisions that the page lists with their findings, the newest; the JSON beside it has all."""


def log(records: Sequence[CycleRecord]) -> Markup:
    """Return the decisions, the newest first; quiet cycles stand apart and folded."""
    telling = [record for record in records if tells(record)]
    quiet = [record for record in records if not tells(record)]
    left_out = max(0, len(telling) - SHOWN)
    header = tag("header", tag("div", "The log", class_="step"), tag("h2", "Every decision, with its reasons"))
    return tag(
        "section",
        header,
        tag("p", "The newest first; open a line to see what each guard saw, against which limit."),
        tag("div", *(_row(record) for record in telling[: -SHOWN - 1 : -1])),
        tag("p", f"The JSON has {count(left_out, 'older decision')}.", class_="note") if left_out else None,
        _quiet(quiet),
        id="log",
    )


def tells(record: CycleRecord) -> bool:
    """Say whether a record tells of more than a cycle that looked and waited."""
    quiet = record.decision in (Decision.HOLD, Step.WAIT) and record.proposal is None
    return not quiet or of_guard(record)


def _row(record: CycleRecord) -> Markup:
    word = DECISION_WORDS.get(record.decision, record.decision.replace("_", " "))
    return tag(
        "details",
        tag(
            "summary",
            tag("time", when(record.at_seconds)[5:16]),
            tag("span", word, class_=f"badge {tone(record)}"),
            tag("span", record.reason),
        ),
        tag("div", _facts(record), _findings(() if record.verdict is None else record.verdict.findings)),
        class_="row",
        id=f"cycle-{record.cycle_id}",
    )


def _facts(record: CycleRecord) -> Markup:
    who = "guard" if of_guard(record) else "cycle"
    facts = [(who, f"{record.cycle_id}, {when(record.at_seconds)} UTC")]
    if record.proposal is not None:
        proposal = record.proposal
        facts += [
            ("proposed", f"{moves(proposal.incumbent, proposal.candidate)} ({count(proposal.trials, 'candidate')})"),
            ("predicted", f"{signed_percent(proposal.score)}{spread(proposal.score_error)}: {proposal.reason}"),
        ]
    if record.receipt is not None:
        facts.append(("written", f"{written(record.receipt)}; {record.receipt.detail}"))
    if record.verification is not None:
        seen = record.verification
        fate = f"{seen.outcome.value} after {count(seen.samples, 'sample')}, {seen.step.value.replace('_', ' ')}"
        facts.append(("verified", f"{fate}: {seen.reason}"))
        if seen.pairs:
            facts.append(("compared", f"{count(seen.pairs, 'pair')}, evidence {e_value(seen.evidence)}"))
    if record.failure is not None:
        facts.append(("failed", f"{record.failure.stage} ({record.failure.reason}): {record.failure.detail}"))
    problems = () if record.observation is None else record.observation.problems
    facts += [("problem", f"{problem.metric}: {problem.detail}") for problem in problems]
    return tag("dl", *(join((tag("dt", name), tag("dd", text))) for name, text in facts))


def _findings(findings: Sequence[Finding]) -> Markup | None:
    if not findings:
        return None
    rows = [
        [
            finding.guard.replace("_", " "),
            tag("span", "passed", class_="better")
            if finding.passed
            else tag("span", finding.severity.value, class_="worse"),
            cell(finding.observed, finding.unit),
            cell(finding.limit, finding.unit),
            words(finding.sentence),
        ]
        for finding in findings
    ]
    head = ("guard", "finding", "observed", "limit", words("in words"))
    return table(head, rows, caption="What the guards saw")


def _quiet(records: Sequence[CycleRecord]) -> Markup | None:
    if not records:
        return None
    rows = [
        [f"{record.cycle_id}", when(record.at_seconds)[:16], words(record.reason)]
        for record in records[: -SHOWN - 1 : -1]
    ]
    return tag(
        "details",
        tag("summary", f"{count(len(records), 'cycle')} looked, and neither searched nor concluded anything"),
        table(("cycle", "at (UTC)", words("why")), rows, caption="Quiet cycles, the newest first"),
        class_="quiet",
    )
