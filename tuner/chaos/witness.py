"""What must hold whatever happens, and a witness at the scheduler's door who looks into the journal at every write."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tuner import wiring
from tuner.errors import JournalError
from tuner.record.journal import Intent, Journal
from tuner.values.knobs import DESIGN_RANGES, KnobValues, Role
from tuner.values.stages import CycleRecord, Step


class Promise(StrEnum):
    """What must hold whatever happens."""

    JOURNALLED = "journalled"
    """Every write that the scheduler took was in a journal before."""
    BOUNDED = "in bounds"
    """No value outside the policy's bounds was written."""
    ALONE = "one writer"
    """No write went over what somebody else had set meanwhile."""
    KEPT = "nothing lost"
    """Every intent has its receipt and its record, and every record that was given is in the journal."""
    KNOWN = "known"
    """What is in force is what was left in force, and nothing unproven is in force unwatched."""
    RESUMED = "goes on"
    """Good cycles follow, without a person."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken.

    Attributes:
        promise: Which.
        sentence: What was seen.
    """

    promise: Promise
    sentence: str


@dataclass(slots=True)
class Witness:
    """Looks into the journals of all tuners whenever the scheduler takes a write.

    Attributes:
        journals: Of every tuner that may write.
        writes: Writes of tuners that were taken.
        violations: What should not have been.
    """

    journals: list[Path]
    writes: int = 0
    violations: list[Violation] = field(default_factory=list)
    _newest_by: Path | None = None
    _known: list[tuple[Path, Intent]] = field(default_factory=list)

    def knock(self) -> None:
        """Look into the journals, as a write arrives: it was noted by now, or it was not."""
        self._known = [(journal, intent) for journal in self.journals for intent in _open_intents(journal)]

    def edited(self) -> None:
        """Note that somebody else has changed the settings."""
        self._newest_by = None

    def written(self, before: Mapping[str, object], after: Mapping[str, object]) -> None:
        """Note a write of a tuner, while it is still waiting for the answer."""
        self.writes += 1
        self.violations += [Violation(Promise.BOUNDED, sentence) for sentence in out_of_bounds(after)]
        meant = [(journal, intent) for journal, intent in self._known if _meant(intent, before, after)]
        if not meant:
            self.violations.append(Violation(Promise.JOURNALLED, f"no open intent says so: {_knobs(after).describe()}"))
            return
        journal, intent = meant[0]
        foreign = self._newest_by != journal
        if foreign and intent.expected_revision and _differs(intent.before, before):
            sentence = f"cycle {intent.cycle_id} wrote over {_knobs(before).describe()}, which it had not seen"
            self.violations.append(Violation(Promise.ALONE, sentence))
        self._newest_by = journal


def out_of_bounds(document: Mapping[str, object]) -> Iterator[str]:
    """Yield what is wrong with a document of settings."""
    for role, spec in DESIGN_RANGES.items():
        value = document.get(role.value)
        if not isinstance(value, int | float) or not spec.contains(float(value)):
            yield f"{role} was set to {value}, outside {spec.low:g}..{spec.high:g}"


def left(parts: wiring.Parts, given: Sequence[CycleRecord]) -> Iterator[Violation]:
    """Yield what is wrong once everything has settled.

    Args:
        parts: The tuner that runs then.
        given: The records that cycles and ticks have returned.
    """
    yield from _lost(parts.journal, given)
    live, standing = parts.actuator.read(), parts.writer.standing
    on_trial = parts.cycle.memory.on_trial
    if standing.knobs is None or standing.knobs.differs(live.knobs) or standing.mode is not live.mode:
        left_there = "nothing" if standing.knobs is None else f"{standing.knobs.describe()}, {standing.mode}"
        sentence = f"left in force: {left_there}; in force: {live.knobs.describe()}, {live.mode}"
        yield Violation(Promise.KNOWN, sentence)
    if on_trial is not None and on_trial.in_force.differs(live.knobs):
        yield Violation(Promise.KNOWN, "a setting is watched that is not in force")
    proven = standing.known_good is not None and not standing.known_good.differs(live.knobs)
    kept = any(record.decision == Step.KEEP for record in parts.journal.records())
    if on_trial is None and not proven and not kept:
        yield Violation(Promise.KNOWN, f"nobody watches {live.knobs.describe()}, which was never proven")


def _lost(journal: Journal, given: Sequence[CycleRecord]) -> Iterator[Violation]:
    for intent in journal.open_intents():
        yield Violation(Promise.KEPT, f"the intent of cycle {intent.cycle_id} has no receipt")
    for intent in journal.unrecorded():
        yield Violation(Promise.KEPT, f"the change of cycle {intent.cycle_id} has no record")
    for record in given:
        kept = journal.record(record.cycle_id)
        if kept is None or kept.decision != record.decision:
            yield Violation(Promise.KEPT, f"the record of cycle {record.cycle_id} ({record.decision}) is missing")


def _open_intents(journal: Path) -> tuple[Intent, ...]:
    try:
        with Journal.open_readonly(journal) as book:
            return book.open_intents()
    except JournalError:
        return ()


def _meant(intent: Intent, before: Mapping[str, object], after: Mapping[str, object]) -> bool:
    """Say whether an intent speaks of a write: of the change itself, or of putting the setting before back."""
    if after.get("mode") != before.get("mode") and intent.mode != after.get("mode"):
        return False
    old = _knobs(before)
    return any(not _differs(KnobValues.of({**old, **wanted}), after) for wanted in (intent.target, intent.before))


def _differs(knobs: KnobValues, document: Mapping[str, object]) -> bool:
    found = _knobs(document)
    return any(not math.isclose(value, found.get(role, math.nan), rel_tol=1e-9) for role, value in knobs.items())


def _knobs(document: Mapping[str, object]) -> KnobValues:
    named = {role: document.get(role.value) for role in Role}
    return KnobValues.of({role: float(value) for role, value in named.items() if isinstance(value, int | float)})
