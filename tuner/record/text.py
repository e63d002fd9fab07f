"""What `status`, `history` and `explain` print: renderables for rich, from the journal alone."""

import math
from collections.abc import Sequence
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tuner.record.journal import Intent, Journal
from tuner.record.setting import Setting, load_setting
from tuner.record.summary import LEAD_SECONDS, Change, Fate, changes
from tuner.record.wording import (
    KNOB_LABELS,
    count,
    gain,
    knob,
    label,
    moves,
    quantity,
    signed_percent,
    spread,
    unit_of,
    when,
)
from tuner.values.knobs import KnobValues
from tuner.values.metrics import METRIC_INDEX, METRICS
from tuner.values.stages import CycleRecord, Forecast, Observation, Proposal, Receipt, Verdict

_STYLES: Final = {
    "apply": "yellow",
    "promote": "green",
    "keep": "green",
    "roll_back": "red",
    "reject": "red",
    "failed": "red",
    "adopted": "yellow",
}


def status(journal: Journal, *, now_seconds: float | None = None) -> RenderableType:
    """Return what is in force, what is on trial, and whether cycles are still run.

    Args:
        journal: Of the tuner.
        now_seconds: Present time, to tell the age of the newest cycle; None to leave it out.
    """
    setting, newest = load_setting(journal), journal.records(limit=1)
    if not newest:
        return Text("No cycle has been recorded yet.")
    record = newest[-1]
    recent = journal.records(since_seconds=record.at_seconds - 86_400)
    # What a guard tick or an order noted tells nothing of knobs and metrics: the newest cycle that saw them does.
    seen = next((one for one in reversed(recent) if one.observation is not None), record)
    lines: list[RenderableType] = [
        Text.assemble(
            (f"{setting.cluster}", "bold"),
            f" · policy {setting.policy} · mode {setting.mode} · ",
            _age(record, now_seconds),
        ),
        Text(
            f"cycle {record.cycle_id}: {_word(record.decision)}: {record.reason}",
            style=_STYLES.get(record.decision, ""),
        ),
        *(_interrupted(intent) for intent in journal.open_intents()),
        _knobs(next((one for one in reversed(recent) if _in_force(one) is not None), record), setting),
        _trial(changes(recent)),
        Text(_day(recent)),
    ]
    if seen.observation is not None:
        lines.insert(-1, _metrics(seen.observation))
    return Group(*lines)


def _table(*columns: str, title: str | None = None) -> Table:
    return Table(
        *columns, title=title, title_justify="left", title_style="bold", header_style="dim", box=box.SIMPLE_HEAD
    )


def _age(record: CycleRecord, now_seconds: float | None) -> str:
    ago = "" if now_seconds is None else f" {quantity(max(0.0, now_seconds - record.at_seconds), 's')} ago,"
    return f"newest cycle{ago} at {when(record.at_seconds)} UTC"


def _word(decision: str) -> str:
    return decision.replace("_", " ")


def _interrupted(intent: Intent) -> Text:
    moved = moves(intent.before, intent.target)
    return Text(f"change of cycle {intent.cycle_id} was interrupted: {moved} may be in force", style="bold red")


def _knobs(record: CycleRecord, setting: Setting) -> Table:
    table = _table("knob", "in force", "low", "high", title="Knobs")
    values = _in_force(record)
    for spec in setting.specs:
        value = math.nan if values is None else values.get(spec.role, math.nan)
        table.add_row(KNOB_LABELS[spec.role], *(knob(spec.role, item) for item in (value, spec.low, spec.high)))
    return table


def _in_force(record: CycleRecord) -> KnobValues | None:
    if record.receipt is not None and record.receipt.applied:
        return record.receipt.after
    return None if record.observation is None else record.observation.knobs


def _metrics(observation: Observation) -> Table:
    table = _table("metric", "now", "age", "coverage", title="Metrics")
    for index, spec in enumerate(METRICS):
        table.add_row(
            label(spec.name),
            quantity(float(observation.metrics[index]), spec.unit),
            quantity(float(observation.ages_seconds[index]), "s"),
            quantity(float(observation.coverage_ratio[index]), "ratio"),
        )
    return table


def _trial(made: Sequence[Change]) -> Text:
    if not made or made[-1].fate is not Fate.ON_TRIAL:
        return Text("No change is on trial.")
    return Text(f"Since {when(made[-1].at_seconds)}: {_came(made[-1])}", style="yellow")


def _day(records: Sequence[CycleRecord]) -> str:
    made = changes(records)
    kept = sum(change.kept for change in made)
    undone = sum(change.fate is Fate.UNDONE for change in made)
    failed = sum(record.failure is not None for record in records)
    return (
        f"Last 24 h: {len(records)} cycles, {len(made)} changes, {kept} kept, {undone} undone, {failed} cycles failed."
    )


def history(journal: Journal, *, limit: int = 20) -> RenderableType:
    """Return the newest cycles, one line each, the newest last.

    Args:
        journal: Of the tuner.
        limit: How many.
    """
    table = _table("cycle", "at (UTC)", "decision", "score", "why")
    table.caption = "score: predicted where a change is proposed, measured where one is on trial; negative is better"
    for column in table.columns[:-1]:
        column.no_wrap = True
    for record in journal.records(limit=limit):
        table.add_row(
            str(record.cycle_id),
            when(record.at_seconds)[5:16],
            Text(_word(record.decision), style=_STYLES.get(record.decision, "")),
            _score(record),
            escape(record.reason),
        )
    return table


def _score(record: CycleRecord) -> str:
    if record.verification is not None:
        return signed_percent(record.verification.observed_score)
    return "" if record.proposal is None else signed_percent(record.proposal.score)


def explain(record: CycleRecord | None, *, looks: Sequence[CycleRecord] = ()) -> RenderableType:
    """Return what a cycle saw and expected, what it proposed, how that was judged, and what came of it.

    Args:
        record: The cycle; None where the journal does not have it.
        looks: The cycles that looked at its change (`Journal.looks`), for what came of it.
    """
    if record is None:
        return Text("The journal does not have that cycle; `clocktuner history` lists those that it has.")
    parts: list[RenderableType | None] = [
        Text(f"Cycle {record.cycle_id}, {when(record.at_seconds)} UTC: {_word(record.decision)}", style="bold"),
        Text(record.reason),
        _failure(record),
        None if record.observation is None else _problems(record.observation),
        None
        if record.forecast is None or record.observation is None
        else _expected(record.forecast, record.observation),
        None if record.proposal is None else _proposed(record.proposal),
        None if record.verdict is None else _judged(record.verdict),
        None if record.receipt is None else _written(record.receipt),
        _verified(record),
        _outcome(record, looks),
        Text(_times(record), style="dim"),
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
    table = _table("series", "now", "in 15 min", "10 % to 90 %", "model", title="Expected")
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
    table = _table("metric", "if untouched", "if changed", title="Predicted by the twin")
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
    table = _table("guard", "finding", "observed", "limit", "in words", title="Judged")
    for finding in verdict.findings:
        table.add_row(
            finding.guard.replace("_", " "),
            Text("passed", style="green") if finding.passed else Text(finding.severity.value, style="red"),
            quantity(finding.observed, finding.unit),
            quantity(finding.limit, finding.unit),
            escape(finding.sentence),
        )
    return table


def _written(receipt: Receipt) -> Text:
    return Text(f"Written: {moves(receipt.before, receipt.after)}; {receipt.detail}")


def _verified(record: CycleRecord) -> Text | None:
    seen = record.verification
    if seen is None:
        return None
    outcome = f"{seen.outcome.value} after {count(seen.samples, 'sample')}"
    change = f"the change of cycle {seen.change_cycle_id} is {outcome}"
    return Text(f"Verified: {change}, so {_word(seen.step.value)}: {seen.reason}")


def _outcome(record: CycleRecord, looks: Sequence[CycleRecord]) -> Text | None:
    """Say what came of the change that a cycle made, from the cycles that followed."""
    made = changes([record, *looks])
    return Text(f"What came of it: {_came(made[0])}") if made else None


def _came(change: Change) -> str:
    if change.outcome is None:
        return f"{change.fate.value}, not looked at yet; {moves(change.before, change.after)}"
    measured = signed_percent(change.observed_score) + spread(change.score_error)
    moved = moves(change.before, change.after)
    predicted = signed_percent(change.expected_score)
    return (
        f"{change.fate.value}; {moved}, predicted {predicted}, measured {measured}, "
        f"{change.outcome.value}: {change.reason}"
    )


def _times(record: CycleRecord) -> str:
    said = ", ".join(f"{stage} {quantity(seconds, 's')}" for stage, seconds in record.stage_seconds.items())
    return f"Time by stage: {said or 'not measured'}."
