"""What `explain` prints of one cycle, act of the guard, or order: renderables for rich."""

import math
from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tuner.record.summary import LEAD_SECONDS, changes, of_guard
from tuner.record.terminal import came, titled_table, who, word
from tuner.record.wording import (
    cell,
    count,
    e_value,
    gain,
    label,
    moves,
    quantity,
    signed_percent,
    spread,
    unit_of,
    when,
    written,
)
from tuner.values.metrics import METRIC_INDEX, METRICS
from tuner.values.stages import CycleRecord, Forecast, Observation, Proposal, Receipt, Verdict

_MEANINGS: Final = {
    "simplify": "The latency breaker opened: the scheduler was to run its simplified policy.",
    "probe": "The latency breaker went half open: the full policy is tried again.",
    "recover": "The latency breaker closed: the full policy has proven itself.",
    "protect": "Resources were tight: only high-priority work was to be served.",
    "release": "Resources had eased: all work was to be served again.",
    "heal": "Settings that nobody can have meant, or that were lost, were put back.",
    "frozen": "Somebody else has set the scheduler, and the policy says to freeze.",
    "adopted": "A setting that somebody else has made was taken to go on from.",
    "drill": "A roll-back drill: a change of one step, seen in force and undone.",
    "order": "A person's order; it writes nothing by itself.",
    "hold": "What was to be done was not allowed.",
    "failed": "What was to be done could not be.",
    "roll_back": "A setting was put back.",
    "switch": "The two settings that are compared take turns: this put the other one in force.",
    "hold_back": "The untouched setting, to measure what tuning is worth.",
}
"""What decisions of guard and people stand for, and those of cycles that need a word."""


_LOOKS: Final = ("switch", "hold_back")


def explain(record: CycleRecord | None, *, looks: Sequence[CycleRecord] = ()) -> RenderableType:
    """Return what a cycle saw and expected, what it proposed, how that was judged, and what came of it.

    Args:
        record: The cycle; None where the journal does not have it.
        looks: The cycles that looked at its change (`Journal.looks`), for what came of it.
    """
    if record is None:
        return Text("The journal does not have that cycle; `clocktuner history` lists those that it has.")
    parts: list[RenderableType | None] = [
        Text(
            f"{who(record).capitalize()} {record.cycle_id}, {when(record.at_seconds)} UTC: {word(record.decision)}",
            style="bold",
        ),
        Text(record.reason),
        _told(record),
        _failure(record),
        None if record.observation is None else _problems(record.observation),
        None
        if record.forecast is None or record.observation is None
        else _expected(record.forecast, record.observation),
        None if record.proposal is None else _proposed(record.proposal),
        None if record.verdict is None else _judged(record.verdict),
        None if record.receipt is None else _written(record.receipt),
        _verified(record),
        _compared(record),
        _outcome(record, looks),
        _looks(looks),
        None if of_guard(record) else Text(_times(record), style="dim"),
    ]
    return Group(*(part for part in parts if part is not None))


def _failure(record: CycleRecord) -> Text | None:
    failure = record.failure
    return None if failure is None else Text(f"Failed in {failure.stage}, counted as {failure.reason}.", style="red")


def _problems(observation: Observation) -> Text | None:
    said = [
        f"{problem.metric} {problem.reason.replace('_', ' ')}: {problem.detail}" for problem in observation.problems
    ]
    return Text("Not believed: " + "; ".join(said), style="yellow") if said else None


def _expected(forecast: Forecast, observation: Observation) -> Table:
    """Show the series that are expected to move most: those are the ones that mattered."""
    table = titled_table("series", "now", "in 15 min", "10 % to 90 %", "model", title="Expected")
    column = min(round(LEAD_SECONDS / forecast.step_seconds), forecast.values.shape[1]) - 1
    for name in _most_moved(forecast, observation, column):
        low, middle, high = (quantity(float(value), _unit(name)) for value in forecast[name][column])
        now = quantity(_now(observation, name), _unit(name))
        table.add_row(label(name), now, middle, f"{low} to {high}", forecast.models[forecast.names.index(name)])
    return table


def _most_moved(forecast: Forecast, observation: Observation, column: int, *, count: int = 6) -> list[str]:
    def moved(name: str) -> float:
        now, then = _now(observation, name), float(forecast[name][column, 1])
        scale = max(abs(now), abs(then))
        return abs(then - now) / scale if math.isfinite(now) and scale > 0 else 0.0

    return sorted(forecast.names, key=moved, reverse=True)[:count]


def _now(observation: Observation, name: str) -> float:
    if name in METRIC_INDEX:
        return float(observation.metrics[METRIC_INDEX[name]])
    return float(observation.context.get(name, math.nan))


def _unit(name: str) -> str:
    return METRICS[METRIC_INDEX[name]].unit if name in METRIC_INDEX else unit_of(name)


def _proposed(proposal: Proposal) -> Group:
    table = titled_table("metric", "if untouched", "if changed", title="Predicted by the twin")
    for index, spec in enumerate(METRICS):
        before, after = (float(vector[index]) for vector in (proposal.predicted_incumbent, proposal.predicted))
        table.add_row(label(spec.name), quantity(before, spec.unit), quantity(after, spec.unit))
    error = spread(proposal.score_error)
    broken = f"; it breaks {', '.join(map(label, proposal.violations))}" if proposal.violations else ""
    fidelity = quantity(proposal.fidelity_ratio, "ratio")
    return Group(
        Text(f"Proposed: {moves(proposal.incumbent, proposal.candidate)}"),
        Text(f"because {proposal.reason}"),
        Text(
            f"Predicted score {signed_percent(proposal.score)}{error} ({gain(proposal.score)}){broken}; "
            f"{count(proposal.trials, 'candidate')}, fidelity of the twin {fidelity}, seed {proposal.seed}"
        ),
        table,
    )


def _judged(verdict: Verdict) -> Table:
    table = titled_table("guard", "finding", "observed", "limit", "in words", title="Judged")
    for finding in verdict.findings:
        table.add_row(
            finding.guard.replace("_", " "),
            Text("passed", style="green") if finding.passed else Text(finding.severity.value, style="red"),
            cell(finding.observed, finding.unit),
            cell(finding.limit, finding.unit),
            escape(finding.sentence),
        )
    return table


def _written(receipt: Receipt) -> Text:
    said = written(receipt)
    return Text(f"Written: {said}" + (f"; {receipt.detail}" if receipt.detail != said else ""))


def _verified(record: CycleRecord) -> Text | None:
    seen = record.verification
    if seen is None:
        return None
    outcome = f"{seen.outcome.value} after {count(seen.samples, 'sample')}"
    change = f"the change of cycle {seen.change_cycle_id} is {outcome}"
    return Text(f"Verified: {change}, so {word(seen.step.value)}: {seen.reason}")


def _told(record: CycleRecord) -> Text | None:
    """Say in general what a record of guard or people stands for; its reason says it in particular."""
    told = _MEANINGS.get(record.decision)
    return Text(told, style="dim") if told and (of_guard(record) or record.decision in _LOOKS) else None


def _compared(record: CycleRecord) -> Table | None:
    """Return what a look at a change on trial showed."""
    return None if record.verification is None else _looks([record])


def _looks(looks: Sequence[CycleRecord]) -> Table | None:
    """Return what each look at a change brought; looks that brought no pair are left out but for the last."""
    seen = [(look, look.verification) for look in looks if look.verification is not None]
    if not any(found.pairs for _, found in seen):
        return None
    table = titled_table("cycle", "at (UTC)", "pairs", "expected", "observed, 95 %", "e-value", "outcome", "step")
    table.title = "Compared in turns"
    pairs = 0
    for index, (look, found) in enumerate(seen):
        if found.pairs > pairs or index == len(seen) - 1:
            pairs = found.pairs
            table.add_row(
                str(look.cycle_id),
                when(look.at_seconds)[5:16],
                str(found.pairs),
                signed_percent(found.expected_score),
                signed_percent(found.observed_score) + spread(found.score_error),
                e_value(found.evidence),
                Text(f"{found.outcome.value}, harm", style="red") if found.harm else found.outcome.value,
                word(found.step.value),
            )
    return table


def _outcome(record: CycleRecord, looks: Sequence[CycleRecord]) -> Text | None:
    """Say what came of the change that a cycle made, from the cycles that followed."""
    made = changes([record, *looks])
    return Text(f"What came of it: {came(made[0])}") if made else None


def _times(record: CycleRecord) -> str:
    said = ", ".join(f"{stage} {quantity(seconds, 's')}" for stage, seconds in record.stage_seconds.items())
    return f"Time by stage: {said or 'not measured'}."
