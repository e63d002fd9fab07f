"""What `status` prints: what stands, whether cycles are run, and why nothing is changed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tuner.record.journal import Intent, Journal
from tuner.record.setting import Setting, load_setting
from tuner.record.summary import Change, Fate, changes, cycles, in_force, of_guard
from tuner.record.terminal import STYLES, came, style, titled_table, who, word
from tuner.record.wording import KNOB_LABELS, count, knob, label, moves, quantity, when
from tuner.values.knobs import KnobValues
from tuner.values.metrics import METRICS
from tuner.values.stages import CycleRecord, Observation

DAY_SECONDS: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Point:
    """What stands of one part that keeps the scheduler safe.

    Attributes:
        name: The part.
        said: What stands, since when, and why.
        tone: `good`, `trial` or `bad`; empty for what is neither.
    """

    name: str
    said: str
    tone: str


@dataclass(frozen=True, slots=True)
class Why:
    """Why nothing is changed.

    Attributes:
        reason: What stands in the way.
        cure: What would have to change.
    """

    reason: str
    cure: str


def status(
    journal: Journal,
    *,
    now_seconds: float | None = None,
    safety: Sequence[Point] = (),
    why: Sequence[Why] = (),
) -> RenderableType:
    """Return what is in force, what is on trial, whether cycles are still run, and why nothing is changed.

    Args:
        journal: Of the tuner.
        now_seconds: Present time, to tell the age of the newest cycle; None to leave it out.
        safety: What stands of the parts that keep the scheduler safe.
        why: Why nothing is changed.
    """
    setting, newest = load_setting(journal), journal.records(limit=1)
    if not newest:
        return Text("No cycle has been recorded yet.")
    recent = journal.records(since_seconds=newest[-1].at_seconds - DAY_SECONDS)
    run = cycles(recent)
    noted = recent[-1]
    # What a guard tick or an order noted tells nothing of metrics: the newest cycle that saw them does.
    seen = next((one.observation for one in reversed(run) if one.observation is not None), None)
    return Group(
        Text.assemble(
            (f"{setting.cluster}", "bold"),
            f" · policy {setting.policy} · mode {setting.mode} · ",
            _age(run[-1] if run else noted, now_seconds),
        ),
        *(_newest(record) for record in run[-1:]),
        *([_newest(noted)] if of_guard(noted) else []),
        *(_interrupted(intent) for intent in journal.open_intents()),
        *(_nothing(one) for one in why),
        _knobs(next((found for one in reversed(recent) if (found := in_force(one)) is not None), None), setting),
        *([_safety(safety)] if safety else []),
        # Where the safety parts are told, a trial is told among them.
        *([] if safety and not _on_trial(changes(recent)) else [_trial(changes(recent))]),
        *([] if seen is None else [_metrics(seen)]),
        Text(_day(recent)),
    )


def _age(record: CycleRecord, now_seconds: float | None) -> str:
    ago = "" if now_seconds is None else f" {quantity(max(0.0, now_seconds - record.at_seconds), 's')} ago,"
    return f"newest cycle{ago} at {when(record.at_seconds)} UTC"


def _newest(record: CycleRecord) -> Text:
    return Text(f"{who(record)} {record.cycle_id}: {word(record.decision)}: {record.reason}", style=style(record))


def _interrupted(intent: Intent) -> Text:
    moved = moves(intent.before, intent.target)
    return Text(f"change of cycle {intent.cycle_id} was interrupted: {moved} may be in force", style="bold red")


def _nothing(why: Why) -> Text:
    return Text.assemble(
        ("Nothing is changed: ", "bold yellow"), f"{why.reason}. ", ("What would have to change: ", "bold"), why.cure
    )


def _knobs(values: KnobValues | None, setting: Setting) -> Table:
    table = titled_table("knob", "in force", "low", "high", title="Knobs")
    for spec in setting.specs:
        value = math.nan if values is None else values.get(spec.role, math.nan)
        table.add_row(KNOB_LABELS[spec.role], *(knob(spec.role, item) for item in (value, spec.low, spec.high)))
    return table


def _safety(points: Sequence[Point]) -> Table:
    table = titled_table("part", "state", title="Safety")
    for point in points:
        table.add_row(point.name, Text(point.said, style=STYLES.get(point.tone, "")))
    return table


def _metrics(observation: Observation) -> Table:
    table = titled_table("metric", "now", "age", "coverage", title="Metrics")
    for index, spec in enumerate(METRICS):
        table.add_row(
            label(spec.name),
            quantity(float(observation.metrics[index]), spec.unit),
            quantity(float(observation.ages_seconds[index]), "s"),
            quantity(float(observation.coverage_ratio[index]), "ratio"),
        )
    return table


def _on_trial(made: Sequence[Change]) -> bool:
    return bool(made) and made[-1].fate is Fate.ON_TRIAL


def _trial(made: Sequence[Change]) -> Text:
    if not _on_trial(made):
        return Text("No change is on trial.")
    return Text(f"Since {when(made[-1].at_seconds)}: {came(made[-1])}", style="yellow")


def _day(records: Sequence[CycleRecord]) -> str:
    made, run = changes(records), cycles(records)
    kept = sum(change.kept for change in made)
    undone = sum(change.fate is Fate.UNDONE for change in made)
    failed = sum(record.failure is not None for record in run)
    noted = len(records) - len(run)
    acts = f", {count(noted, 'act')} of guard and people" if noted else ""
    return (
        f"Last 24 h: {count(len(run), 'cycle')}, {count(len(made), 'change')}, {kept} kept, {undone} undone, "
        f"{count(failed, 'cycle')} failed{acts}."
    )
