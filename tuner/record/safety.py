"""What guard ticks and people did in a period, found from its records: events with their length, and time in modes.

A record of the guard tells of a moment; what belongs together is joined here. The latency breaker opens, probes and
recovers: that is one event, with the time that it took. What people have ordered is told by the sentence of the order.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from typing import Final, Self

from tuner.record.summary import INTERRUPTED, of_guard
from tuner.record.wording import count, written
from tuner.values.knobs import SchedulerMode
from tuner.values.safety import Rung
from tuner.values.stages import CycleRecord, Decision, Step


class Kind(StrEnum):
    """What happened."""

    BREAKER = "latency breaker"
    """The scheduler took too long to decide, and ran its simplified policy."""
    DEGRADATION = "degradation"
    """Resources were tight, and only high-priority work was served."""
    HEAL = "restored"
    """Settings that nobody can have meant were put back."""
    CONTEST = "edited by others"
    """Somebody else set a knob, or the policy mode."""
    FREEZE = "frozen"
    """Nothing was changed until a person said so."""
    PAUSE = "paused"
    """A person stopped the tuning for a while."""
    ORDER = "order"
    """A person asked for something."""
    DRILL = "drill"
    """It was proven that a change can be undone."""
    HARM = "harmful change"
    """A change was undone, because it did harm."""
    UNDONE = "undone"
    """A change whose end nobody saw was undone."""
    INTERRUPTED = "interrupted"
    """The process ended before a cycle was recorded."""
    FAILED = "failed"
    """What was to be done could not be."""
    WOULD = "would have acted"
    """The guard was not allowed to do what it wanted to."""


_ORDER: Final = re.compile(r"^[^:]+: (pause|go on|do not move|let|make the change|adopt|go back to|prove by a drill)\b")
"""How the sentence of a record begins that a person's order led to: the name, and what was asked."""

_UNTIL: Final = re.compile(r": pause until (\d{4}-\d\d-\d\d \d\d:\d\d) UTC")
_RESTORED: Final = re.compile(r"restored (\d+(?:\.\d+)?) s after asking")
_BY_SCHEDULE: Final = "drill by the schedule"
_ENDS_A_FREEZE: Final = frozenset({"go on", "adopt"})
"""Orders after which a frozen tuner tunes again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened.

    Attributes:
        kind: What.
        cycle_id: Record that tells of its beginning.
        at_seconds: When it began; NaN where that was before the period.
        why: Why, in one sentence.
        done: What was done about it.
        lasted_seconds: How long it lasted: until the full policy was back, until a setting was restored; NaN where it
            is over in a moment, or goes on.
        goes_on: Whether it goes on at the end of the period.
    """

    kind: Kind
    cycle_id: int
    at_seconds: float
    why: str
    done: str
    lasted_seconds: float = math.nan
    goes_on: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """What kept the scheduler safe in a period.

    Attributes:
        events: What happened, oldest first.
        modes: Seconds in each policy mode of the scheduler, as far as records tell.
        rungs: Seconds on each rung of the ladder, as far as searches and freezes tell.
    """

    events: tuple[Event, ...] = ()
    modes: tuple[tuple[str, float], ...] = ()
    rungs: tuple[tuple[str, float], ...] = ()

    @classmethod
    def of(cls, records: Sequence[CycleRecord]) -> Self:
        """Return what records in time order tell."""
        end = records[-1].at_seconds if records else math.nan
        return cls(
            events=_Timeline(records).events(),
            modes=_shares(_modes(records), end, [mode.value for mode in SchedulerMode]),
            rungs=_shares(_rungs(records), end, [rung.label for rung in Rung]),
        )

    @property
    def counts(self) -> tuple[tuple[str, int], ...]:
        """How many events of each kind there were, in the order of `Kind`, without those that there were not."""
        counted = Counter(event.kind for event in self.events)
        return tuple((kind.value, counted[kind]) for kind in Kind if counted[kind])


def ordered(record: CycleRecord) -> str:
    """Return what a person's order asked for, as its first words; empty where a record tells of none."""
    found = _ORDER.match(record.reason) if of_guard(record) else None
    return found[1] if found else ""


class _Timeline:
    """Joins records to events."""

    def __init__(self, records: Sequence[CycleRecord]) -> None:
        self._records = records
        self._open: dict[Kind, Event] = {}
        self._probes = 0
        self._failed_probes = 0
        self._made: dict[int, float] = {}
        self._found: list[Event] = []

    def events(self) -> tuple[Event, ...]:
        for record in self._records:
            self._take(record)
        self._found += (replace(event, goes_on=True) for event in self._open.values())
        # Stable, and NaN, which is before the period, first.
        return tuple(sorted(self._found, key=lambda event: (not math.isnan(event.at_seconds), event.cycle_id)))

    def _take(self, record: CycleRecord) -> None:
        self._expire(record.at_seconds)
        if record.decision == Decision.APPLY:
            self._made[record.cycle_id] = record.at_seconds
        if record.failure is not None and record.failure.reason == INTERRUPTED:
            self._add(Kind.INTERRUPTED, record, done=_written(record))
        elif ordered(record) or record.reason.startswith(_BY_SCHEDULE):
            self._obeyed(record)
        elif record.verification is not None:
            self._verified(record)
        else:
            self._guarded(record)

    def _guarded(self, record: CycleRecord) -> None:
        match record.decision:
            case "simplify":
                self._simplified(record)
            case "probe":
                self._probes += 1
                self._begin_unseen(Kind.BREAKER, record)
                self._release(record)
            case "recover":
                self._begin_unseen(Kind.BREAKER, record)
                self._end(Kind.BREAKER, record.at_seconds, self._recovery(record))
            case "protect":
                if Kind.DEGRADATION not in self._open:
                    self._begin(Kind.DEGRADATION, record, done="only high-priority work was served")
            case "release":
                self._begin_unseen(Kind.DEGRADATION, record)
                self._release(record)
            case _:
                self._kept(record)

    def _kept(self, record: CycleRecord) -> None:
        changed = _written(record)
        match record.decision:
            case "heal":
                self._add(Kind.HEAL, record, done=changed)
            case "adopted":
                self._add(Kind.CONTEST, record, done="taken for the setting to go on from")
            case "frozen":
                self._add(Kind.CONTEST, record, done="left as it is, and everything frozen")
                if Kind.FREEZE not in self._open:
                    self._begin(Kind.FREEZE, record, done="nothing was changed")
            case Step.ROLL_BACK:
                self._add(Kind.UNDONE, record, done=changed)
            case "failed" if of_guard(record):
                self._add(Kind.FAILED, record, done="nothing changed")
            case Decision.HOLD if of_guard(record):
                self._add(Kind.WOULD, record, done="nothing changed")

    def _simplified(self, record: CycleRecord) -> None:
        if Kind.BREAKER in self._open:
            self._failed_probes += 1
        else:
            self._probes = self._failed_probes = 0
            self._begin(Kind.BREAKER, record, done="the simplified policy was put in force")

    def _recovery(self, record: CycleRecord) -> str:
        failed = f", of which {self._failed_probes} failed" if self._failed_probes else ""
        probes = f" with {count(self._probes, 'probe')}{failed}" if self._probes else ""
        return f"the simplified policy{probes}, then the full one again: {record.reason}"

    def _release(self, record: CycleRecord) -> None:
        """End a degradation where all work is served again, be it because the breaker gave the full policy back."""
        if record.receipt is not None and record.receipt.mode is SchedulerMode.FULL:
            self._end(Kind.DEGRADATION, record.at_seconds, f"high-priority work came first: {record.reason}")

    def _verified(self, record: CycleRecord) -> None:
        look = record.verification
        if look is not None and look.harm and record.decision == Step.ROLL_BACK:
            lasted = record.at_seconds - self._made.get(look.change_cycle_id, math.nan)
            self._add(Kind.HARM, record, done="undone", why=look.reason, lasted_seconds=lasted)
        elif record.decision in ("heal", "adopted", "frozen"):
            self._kept(record)

    def _obeyed(self, record: CycleRecord) -> None:
        asked = ordered(record)
        if asked in _ENDS_A_FREEZE:
            self._end(Kind.FREEZE, record.at_seconds, f"until {record.reason}")
        if asked == "go on":
            self._end(Kind.PAUSE, record.at_seconds, f"no tuning, until {record.reason}")
        if asked == "pause":
            self._end(Kind.PAUSE, record.at_seconds, "no tuning, until the next pause")
            self._begin(Kind.PAUSE, record, done="no tuning")
        elif record.decision == "drill":
            self._drilled(record)
        else:
            self._add(Kind.ORDER, record, done=_written(record) if record.receipt else "")

    def _drilled(self, record: CycleRecord) -> None:
        restored = _RESTORED.search(record.reason)
        lasted = float(restored[1]) if restored else math.nan
        self._add(Kind.DRILL, record, done="passed" if restored else "failed", lasted_seconds=lasted)

    def _expire(self, now_seconds: float) -> None:
        """End a pause that was ordered until a time."""
        pause = self._open.get(Kind.PAUSE)
        until = _UNTIL.search(pause.why) if pause is not None else None
        if until is not None:
            end = datetime.strptime(until[1], "%Y-%m-%d %H:%M").replace(tzinfo=UTC).timestamp()
            if now_seconds >= end:
                self._end(Kind.PAUSE, end, "no tuning, until the time that was named")

    def _add(
        self, kind: Kind, record: CycleRecord, *, done: str, why: str = "", lasted_seconds: float = math.nan
    ) -> None:
        event = Event(
            kind=kind,
            cycle_id=record.cycle_id,
            at_seconds=record.at_seconds,
            why=why or record.reason,
            done=done,
            lasted_seconds=lasted_seconds,
        )
        self._found.append(event)

    def _begin(self, kind: Kind, record: CycleRecord, *, done: str) -> None:
        self._open[kind] = Event(
            kind=kind, cycle_id=record.cycle_id, at_seconds=record.at_seconds, why=record.reason, done=done
        )

    def _begin_unseen(self, kind: Kind, record: CycleRecord) -> None:
        """Begin what must have begun before the period, since it goes on or ends within it."""
        if kind not in self._open:
            why = f"it began before: {record.reason}"
            self._open[kind] = Event(kind=kind, cycle_id=record.cycle_id, at_seconds=math.nan, why=why, done="")

    def _end(self, kind: Kind, at_seconds: float, done: str) -> None:
        event = self._open.pop(kind, None)
        if event is not None:
            self._found.append(replace(event, done=done, lasted_seconds=at_seconds - event.at_seconds))


def _written(record: CycleRecord) -> str:
    changed = "nothing" if record.receipt is None else written(record.receipt)
    return "nothing changed" if changed == "nothing" else changed


def _modes(records: Iterable[CycleRecord]) -> Iterator[tuple[float, str]]:
    """Yield when which policy mode was seen or set."""
    for record in records:
        if record.receipt is not None and record.receipt.mode is not None:
            yield record.at_seconds, record.receipt.mode.value
        elif record.observation is not None and record.observation.knobs is not None:
            yield record.at_seconds, record.observation.mode.value


def _rungs(records: Iterable[CycleRecord]) -> Iterator[tuple[float, str]]:
    """Yield when the tuner was found on which rung: by the judge in a search, or frozen."""
    frozen = False
    for record in records:
        if record.decision == "frozen":
            frozen = True
            yield record.at_seconds, Rung.FROZEN.label
        elif frozen and ordered(record) in _ENDS_A_FREEZE:
            frozen = False
            yield record.at_seconds, Rung.OBSERVE_ONLY.label
        for finding in () if record.verdict is None else record.verdict.findings:
            if finding.guard == "ladder" and math.isfinite(finding.observed):
                yield record.at_seconds, Rung(int(finding.observed)).label


def _shares(
    points: Iterable[tuple[float, str]], end_seconds: float, names: Iterable[str]
) -> tuple[tuple[str, float], ...]:
    """Return how long each name held, each until the next point; names that never did are left out."""
    seconds: dict[str, float] = {}
    for (at_seconds, name), (until, _) in pairwise((*points, (end_seconds, ""))):
        seconds[name] = seconds.get(name, 0.0) + max(0.0, until - at_seconds)
    return tuple((name, seconds[name]) for name in names if name in seconds)
