"""Repeat a decision from the journal alone, and compare it with what was decided then, bit for bit.

What a search reads is kept as it was (`SearchInputs`). What the judge reads stands in the cycle's record, but for a
few values and the policy of that day, which are kept beside the search's inputs.
"""

import json
import struct
import zlib
from dataclasses import dataclass
from typing import Any, Final

from tuner.errors import ConfigError, JournalError
from tuner.judge.case import Case, required_metrics
from tuner.judge.change_breaker import ChangeBreaker
from tuner.judge.gate import judge
from tuner.judge.ladder import Ladder
from tuner.propose.inputs import SearchInputs
from tuner.propose.search import search
from tuner.record.encoding import decode, encode, jsonable
from tuner.record.journal import Journal
from tuner.settings.model import Policy
from tuner.values.knobs import Role
from tuner.values.stages import CycleRecord, Proposal, Verdict

_LENGTH = struct.Struct(">I")

_GUARDED: Final = (
    "region",
    "disruptive_allowed",
    "forbidden",
    "directions",
    "changes_today",
    "max_changes_per_day",
    "change_breaker",
    "ladder",
    "latency_breaker_open",
    "approved",
)
"""Fields of a case that say what stands in the way of a change. A journal of before they existed lacks them: they
take their defaults, which let everything pass."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """Result of repeating a decision.

    Attributes:
        equal: Whether every bit of proposal and verdict is the same.
        sentence: What was compared, and what differs.
    """

    equal: bool
    sentence: str


def pack(inputs: SearchInputs, case: Case, *, policy: Policy) -> bytes:
    """Return what is needed to repeat a decision, beside its record: a packed JSON text, then the search's inputs."""
    beside = {
        "policy": policy.model_dump(mode="json"),
        "trust": case.trust,
        "last_change_at_seconds": case.last_change_at_seconds,
        "on_trial": case.on_trial,
        "anchors": case.anchors,
        **{name: jsonable(getattr(case, name)) for name in _GUARDED},
    }
    text = zlib.compress(json.dumps(beside, allow_nan=False, separators=(",", ":")).encode())
    return _LENGTH.pack(len(text)) + text + inputs.to_bytes()


def replay_decision(journal: Journal, cycle_id: int) -> Replayed:
    """Search and judge again with what a cycle knew.

    Raises:
        ConfigError: There is no such cycle, or it did not search.
        JournalError: What it knew cannot be read.
    """
    record, packed = journal.record(cycle_id), journal.inputs(cycle_id)
    if record is None:
        raise ConfigError(f"cycle {cycle_id} is not in {journal.path}; `clocktuner history` lists those that are")
    if packed is None or record.proposal is None or record.verdict is None:
        raise ConfigError(
            f"cycle {cycle_id} did not search ({record.decision}: {record.reason}), so nothing can be repeated"
        )
    inputs, case = _unpack(packed, record)
    # As many candidates as then, for a deadline may have cut the search short.
    proposal = search(inputs, trials=record.proposal.trials)
    differing = _differing(proposal, record.proposal)
    if differing:
        return Replayed(equal=False, sentence=f"cycle {cycle_id}: the search now gives another {', '.join(differing)}")
    verdict = judge(case)
    judged = _judged_otherwise(verdict, record.verdict)
    if judged:
        return Replayed(equal=False, sentence=f"cycle {cycle_id}: the judge now finds otherwise: {', '.join(judged)}")
    return Replayed(
        equal=True,
        sentence=f"cycle {cycle_id}: repeated bit for bit: {proposal.trials} candidates, "
        f"score {proposal.score:+.4f}, {verdict.decision}",
    )


def _unpack(packed: bytes, record: CycleRecord) -> tuple[SearchInputs, Case]:
    if record.observation is None or record.proposal is None:
        raise JournalError(f"cycle {record.cycle_id} has search inputs but no observation; the journal is damaged")
    try:
        (length,) = _LENGTH.unpack_from(packed)
        beside = json.loads(zlib.decompress(packed[_LENGTH.size : _LENGTH.size + length]))
        policy = Policy.model_validate(beside["policy"])
        inputs = SearchInputs.from_bytes(packed[_LENGTH.size + length :])
        guarded = _guarded(beside)
    except (struct.error, zlib.error, ValueError, KeyError, TypeError, JournalError) as error:
        raise JournalError(f"what cycle {record.cycle_id} knew cannot be read: {error}") from error
    case = Case(
        proposal=record.proposal,
        observation=record.observation,
        forecast=record.forecast,
        at_seconds=record.observation.at_seconds,
        specs=inputs.specs,
        required=required_metrics(policy),
        settings=policy.cycle,
        tuner_mode=policy.mode,
        trust=beside["trust"],
        max_clock_skew_seconds=policy.source.max_clock_skew_seconds,
        last_change_at_seconds=beside["last_change_at_seconds"],
        on_trial=beside["on_trial"],
        anchors=beside["anchors"],
        choices=inputs.choices,
        **guarded,
    )
    return inputs, case


def _guarded(beside: dict[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {name: beside[name] for name in _GUARDED if name in beside}
    if "directions" in given:
        given["directions"] = {Role(role): way for role, way in dict(given["directions"]).items()}
    for name, kind in (("change_breaker", ChangeBreaker), ("ladder", Ladder)):
        if name in given:
            given[name] = decode(kind, json.dumps(given[name], allow_nan=False))
    return given


def _text(value: Proposal) -> str:
    """Return a value as the journal writes it: every bit of a float, NaN equal to NaN, whole numbers as floats."""
    return encode(decode(Proposal, encode(value)))


def _differing(now: Proposal, then: Proposal) -> tuple[str, ...]:
    """Name the fields that differ."""
    left, right = json.loads(_text(now)), json.loads(_text(then))
    return tuple(name for name in left if left[name] != right[name])


def _judged_otherwise(now: Verdict, then: Verdict) -> tuple[str, ...]:
    """Name what differs: the decision, its reason, and guards that find otherwise.

    A guard that did not exist then differs only where it would have spoken against the change.
    """
    fields = tuple(name for name in ("decision", "reason") if getattr(now, name) != getattr(then, name))
    left, right = ({one.guard: encode(one) for one in _again(verdict).findings} for verdict in (now, then))
    harmless = {one.guard for one in now.findings if one.passed and one.guard not in right}
    names = dict.fromkeys((*left, *right))
    guards = tuple(name for name in names if left.get(name) != right.get(name) and name not in harmless)
    return (*fields, *guards)


def _again(verdict: Verdict) -> Verdict:
    """Return a verdict as it comes back from the journal: whole numbers are floats there."""
    return decode(Verdict, encode(verdict))
