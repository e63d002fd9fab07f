"""`status` says of every part what stands, since when and by whom, and in one line why nothing is changed."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import clocktuner
from tests.support.guarded import act, order
from tests.support.policies import REFERENCE
from tests.support.records import MIDDLE, MIDNIGHT, applied, simplest
from tests.verify.test_switchback import trial
from tuner.caution import Caution
from tuner.cli.safety import points
from tuner.cli.states import States, load, newest_cycle
from tuner.cli.why import why
from tuner.control.orders import Direction, OrderKind
from tuner.control.permission import stop_file
from tuner.control.state import Control
from tuner.errors import JournalError
from tuner.guard import GuardState
from tuner.judge.breaker import LatencyBreaker
from tuner.judge.change_breaker import ChangeBreaker
from tuner.judge.degradation import Degradation
from tuner.judge.ladder import Ladder
from tuner.judge.limits import MIN_TRUST
from tuner.keeper import Progress
from tuner.memory import Memory, OnTrial
from tuner.people import Drilled
from tuner.record.encoding import encode
from tuner.record.journal import Journal
from tuner.record.policy import kept_policy, save_policy
from tuner.settings.loading import load_policy
from tuner.settings.model import Policy
from tuner.standing import Standing
from tuner.twin.parameters import TwinParameters
from tuner.values.knobs import Role, SchedulerMode
from tuner.values.safety import BreakerState, Rung
from tuner.values.stages import CycleRecord, Decision, Receipt
from tuner.verify.legs import Leg

NOW = MIDNIGHT + 40.0
HOUR = 3600.0


def policy(**control: Any) -> Policy:
    loaded = load_policy(REFERENCE)
    document = loaded.model_dump(mode="json", exclude_unset=True)
    return Policy.model_validate({**document, "mode": "auto", "control": {**document.get("control", {}), **control}})


def states_of(
    folder: Path,
    *,
    told: Policy | None = None,
    records: tuple[CycleRecord, ...] = (),
    now_seconds: float = NOW,
    memory: Memory | None = None,
    **states: object,
) -> States:
    """Return what a journal with some records and states tells."""
    with Journal(folder / "journal.sqlite") as journal:
        for record in records or (simplest(),):
            journal.append(record)
        save_policy(journal, told or policy())
        for name, state in states.items():
            journal.save_state(name, encode(state))
        if memory is not None:
            journal.save_state("memory", memory.to_json())
        found = load(journal, now_seconds=now_seconds)
    assert found is not None
    return found


def said(states: States) -> Mapping[str, tuple[str, str]]:
    return {point.name: (point.said, point.tone) for point in points(states)}


def on_trial(**changes: Any) -> OnTrial:
    running = replace(trial(), **changes)
    return OnTrial(trial=running, parameters=TwinParameters(), context=(1.0,), began_at_seconds=MIDNIGHT)


OPEN_BREAKER = GuardState(
    breaker=LatencyBreaker(
        state=BreakerState.OPEN, opened_at_seconds=MIDNIGHT, cool_down_seconds=120.0, reason="5 samples over 3 s"
    )
)
DEGRADED = GuardState(degradation=Degradation(active=True, since_seconds=MIDNIGHT, reason="resources are tight"))
FROZEN = Standing(knobs=MIDDLE, frozen_because="somebody else set reservation_ratio")


# What stands.


def test_a_quiet_tuner_has_nothing_to_complain_of(tmp_path: Path) -> None:
    found = said(states_of(tmp_path, standing=Standing(knobs=MIDDLE)))

    assert {name for name, (_, tone) in found.items() if tone == "bad"} == set()
    assert found["latency breaker"] == ("closed", "good")
    assert found["settings"] == ("ours", "good")
    assert found["changes"] == ("0 of 24 in the last 24 h", "good")
    assert found["barred"] == ("no direction", "good")
    assert found["trusts itself"] == ("normal", "good")
    assert found["may change"][0] == "yes"
    assert found["trial"] == ("none", "")


@pytest.mark.parametrize(
    ("states", "part", "parts", "tone"),
    [
        ({"guard": OPEN_BREAKER}, "latency breaker", ("open since 2026-01-01 00:00", "00:02 UTC", "over 3 s"), "bad"),
        (
            {"guard": GuardState(breaker=LatencyBreaker(state=BreakerState.HALF_OPEN, under=2, reason="tried again"))},
            "latency breaker",
            ("on probe", "2 of 6 good samples", "tried again"),
            "trial",
        ),
        (
            {"guard": GuardState(breaker=LatencyBreaker(openings=(MIDNIGHT - 60, MIDNIGHT - 40, MIDNIGHT - 20)))},
            "latency breaker",
            ("closed", "opening again and again"),
            "trial",
        ),
        ({"guard": DEGRADED}, "degradation", ("only high-priority work", "since 2026-01-01 00:00", "tight"), "bad"),
        ({"standing": FROZEN}, "settings", ("contested: somebody else set reservation_ratio",), "bad"),
        (
            {"standing": Standing(knobs=MIDDLE, mode=SchedulerMode.PRIORITY_ONLY, mode_is_theirs=True)},
            "settings",
            ("ours", "somebody else has chosen the policy mode priority only"),
            "trial",
        ),
        (
            {"keeper": Progress(attempts=2, next_at_seconds=MIDNIGHT + 60)},
            "settings",
            ("attempt 2 of 5", "from 2026-01-01 00:01 UTC"),
            "bad",
        ),
        ({"keeper": Progress(attempts=5)}, "settings", ("given up after 5 attempts",), "bad"),
        ({"keeper": Progress(told="would restore the settings: x")}, "settings", ("would restore",), "bad"),
        ({}, "settings", ("not read yet",), ""),
        (
            {"control": Control(barred=((Role.RESERVATION, Direction.UP),))},
            "barred",
            ("reservation not up",),
            "trial",
        ),
        (
            {"standing": Standing(changes=(MIDNIGHT - HOUR, MIDNIGHT - 25 * HOUR))},
            "changes",
            ("1 of 24 in the last 24 h",),
            "good",
        ),
        (
            {"control": Control(paused_by="alice", paused_at_seconds=MIDNIGHT, reason="new racks")},
            "may change",
            ("no: paused by alice at 2026-01-01 00:00 UTC, until somebody resumes it (new racks)",),
            "bad",
        ),
        ({"standing": FROZEN}, "may change", ("no: frozen",), "bad"),
        ({}, "last drill", ("none yet",), ""),
        ({"drill": Drilled(MIDNIGHT - 30 * HOUR)}, "last drill", ("2025-12-30 18:00 UTC",), ""),
    ],
)
def test_a_part_tells_what_stands_since_when_and_why(
    tmp_path: Path, states: dict[str, Any], part: str, parts: tuple[str, ...], tone: str
) -> None:
    text, told_as = said(states_of(tmp_path, **states))[part]

    assert all(one in text for one in parts), text
    assert told_as == tone


@pytest.mark.parametrize(
    ("caution", "part", "parts", "tone"),
    [
        (
            Caution(
                change_breaker=ChangeBreaker(
                    state=BreakerState.OPEN, opened_at_seconds=MIDNIGHT, cool_down_seconds=HOUR, reason="3 did harm"
                )
            ),
            "change breaker",
            ("open since 2026-01-01 00:00", "from 2026-01-01 01:00 UTC", "3 did harm"),
            "bad",
        ),
        (
            Caution(change_breaker=ChangeBreaker(state=BreakerState.HALF_OPEN, reason="one may")),
            "change breaker",
            ("half open: one may",),
            "trial",
        ),
        (
            Caution(change_breaker=ChangeBreaker(harms=(MIDNIGHT - HOUR, MIDNIGHT - 30 * HOUR))),
            "change breaker",
            ("closed, 1 of 3 harms that open it",),
            "good",
        ),
        (
            Caution(
                ladder=Ladder(
                    rung=Rung.OBSERVE_ONLY,
                    causes=("required_metrics", "trust"),
                    since_seconds=MIDNIGHT,
                    reason="2 metrics have no value",
                )
            ),
            "trusts itself",
            ("observe only since 2026-01-01 00:00 UTC (required metrics, trust): 2 metrics have no value",),
            "bad",
        ),
        (Caution(ladder=Ladder(rung=Rung.CAUTIOUS, reason="x")), "trusts itself", ("cautious: x",), "trial"),
    ],
)
def test_what_the_tuner_holds_against_itself_is_told(
    tmp_path: Path, caution: Caution, part: str, parts: tuple[str, ...], tone: str
) -> None:
    text, told_as = said(states_of(tmp_path, memory=Memory(caution=caution)))[part]

    assert all(one in text for one in parts), text
    assert told_as == tone


def test_a_trial_tells_pairs_evidence_and_the_leg_in_force(tmp_path: Path) -> None:
    running = on_trial(gain_evidence=math.log(8.0), in_force=Leg.BEFORE)

    text, tone = said(states_of(tmp_path, memory=Memory(on_trial=running)))["trial"]

    assert text == ("the change of cycle 3: 0 of 5 pairs, e-value 8 of 33.3 needed; now the old setting is in force")
    assert tone == "trial"


def test_a_hold_back_is_told_as_one(tmp_path: Path) -> None:
    running = replace(on_trial(), hold_back=True)

    text, _ = said(states_of(tmp_path, memory=Memory(on_trial=running)))["trial"]

    assert text == "hold-back: 0 of 5 pairs; now the untouched setting is in force"


@pytest.mark.parametrize(("passed", "tone"), [(True, "good"), (False, "bad")])
def test_the_last_drill_is_told_with_what_came_of_it(tmp_path: Path, passed: bool, tone: str) -> None:
    drill = order(2, -HOUR, OrderKind.DRILL, decision="drill", said="and back: restored 0.40 s after asking")
    record = replace(drill, receipt=replace(_receipt(), applied=passed))

    text, told_as = said(states_of(tmp_path, records=(record, simplest(3)), drill=Drilled(MIDNIGHT - HOUR)))[
        "last drill"
    ]

    assert "2025-12-31 23:00 UTC: alice: prove by a drill" in text
    assert "restored 0.40 s" in text
    assert told_as == tone


def _receipt() -> Receipt:
    found = act(2, 0, "drill", after=MIDDLE).receipt
    assert found is not None
    return found


# Why nothing is changed.


def reason(states: States) -> tuple[str, str]:
    first = why(states)[0]
    return first.reason, first.cure


@pytest.mark.parametrize(
    ("states", "because", "cure"),
    [
        ({"standing": FROZEN}, "frozen: somebody else set reservation_ratio", "`clocktuner adopt`"),
        ({"control": Control(paused_by="alice", paused_at_seconds=MIDNIGHT)}, "paused by alice", "`clocktuner resume`"),
        (
            {"control": Control(paused_by="alice", paused_at_seconds=MIDNIGHT, paused_until_seconds=MIDNIGHT + HOUR)},
            "paused by alice",
            "or wait until 2026-01-01 01:00 UTC",
        ),
        ({"guard": OPEN_BREAKER}, "the latency breaker is open: 5 samples over 3 s", "6 samples in a row"),
        ({"guard": DEGRADED}, "only high-priority work is served", "idle accelerators"),
        ({"keeper": Progress(attempts=1)}, "could not be restored", "`clocktuner history --acts`"),
        (
            {"standing": Standing(knobs=MIDDLE, changes=tuple(MIDNIGHT - 60.0 * n for n in range(24)))},
            "24 of 24 changes a day were tried",
            "wait until 2026-01-01 23:37 UTC",
        ),
        ({}, "the load moved by 0.04 since the last search", "`clocktuner explain 1`"),
    ],
)
def test_the_reason_comes_with_what_would_have_to_change(
    tmp_path: Path, states: dict[str, Any], because: str, cure: str
) -> None:
    found = reason(states_of(tmp_path, **states))

    assert because in found[0]
    assert cure in found[1]


def test_what_people_say_comes_before_what_the_tuner_holds_against_itself(tmp_path: Path) -> None:
    caution = Caution(ladder=Ladder(rung=Rung.OBSERVE_ONLY, causes=("trust",), reason="trust is 0.02"))
    paused = Control(paused_by="alice", paused_at_seconds=MIDNIGHT)

    both = states_of(tmp_path, memory=Memory(caution=caution), control=paused)
    alone = replace(both, permission=replace(both.permission, allowed=True, by="", sentence=""))

    assert reason(both)[0].startswith("paused by alice")
    assert reason(alone)[0] == "the tuner is observe only: trust is 0.02"
    assert f"trust in the twin at {MIN_TRUST:.2f} or more" in reason(alone)[1]


def test_an_open_change_breaker_says_when_it_is_over(tmp_path: Path) -> None:
    breaker = ChangeBreaker(
        state=BreakerState.OPEN, opened_at_seconds=MIDNIGHT, cool_down_seconds=HOUR, reason="3 did harm"
    )

    found = reason(states_of(tmp_path, memory=Memory(caution=Caution(change_breaker=breaker))))

    assert found == (
        "the change breaker is open: 3 did harm",
        "wait until 2026-01-01 01:00 UTC; then one small change is tried",
    )


def test_the_kill_switch_comes_before_all_else(tmp_path: Path) -> None:
    journal = tmp_path / "journal.sqlite"
    journal.touch()
    stop_file(journal).write_text("hands off")
    journal.unlink()

    states = states_of(tmp_path, standing=FROZEN)

    assert "the kill switch is on" in reason(states)[0]
    assert "hands off" in reason(states)[0]
    assert "`clocktuner kill-switch off`" in reason(states)[1]
    assert said(states)["may change"][1] == "bad"


def test_a_maintenance_window_says_when_it_is_over(tmp_path: Path) -> None:
    window = {"start": "00:00", "end": "02:00"}

    found = reason(states_of(tmp_path, told=policy(maintenance=[window])))

    assert found == ("a maintenance window is open until 2026-01-01 02:00 UTC", "wait until 2026-01-01 02:00 UTC")


@pytest.mark.parametrize("mode", ["observe", "recommend"])
def test_a_tuner_that_may_not_act_says_so(tmp_path: Path, mode: str) -> None:
    told = Policy.model_validate({**policy().model_dump(mode="json", exclude_unset=True), "mode": mode})

    found = reason(states_of(tmp_path, told=told))

    assert found[0] == f"the tuner's mode is {mode}"
    assert "`mode: auto`" in found[1]


def test_a_guard_that_held_is_named_with_its_sentence(tmp_path: Path) -> None:
    held = applied()
    assert held.verdict is not None
    one, *others = held.verdict.findings
    failing = replace(one, passed=False, sentence="5 % is under the limit of 10 %")
    verdict = replace(held.verdict, decision=Decision.HOLD, findings=(failing, *others))

    found = reason(states_of(tmp_path, records=(replace(held, decision=Decision.HOLD, verdict=verdict),)))

    assert f"{one.guard}: 5 % is under the limit of 10 %" in found[1]


def test_a_trial_is_a_reason_and_a_change_just_made_is_none(tmp_path: Path) -> None:
    states = states_of(tmp_path, records=(applied(),), memory=Memory(on_trial=on_trial()))

    assert reason(states)[0].startswith("on trial: the change of cycle 3")
    assert why(replace(states, memory=Memory())) == ()


def test_a_tuner_that_stands_still_is_told_first_and_what_stood_in_the_way(tmp_path: Path) -> None:
    first, second = why(states_of(tmp_path, standing=FROZEN, now_seconds=MIDNIGHT + 2 * HOUR))

    assert first.reason.startswith("no cycle has run for 2 h; one is due every ")
    assert second.reason.startswith("frozen")


def test_a_journal_without_a_cycle_says_to_start_the_tuner(tmp_path: Path) -> None:
    first = why(states_of(tmp_path, records=(act(1, 0, "recover"),)))[0]

    assert first.reason == "no cycle has run yet"
    assert "clocktuner run" in first.cure


# Where it is read.


def test_the_newest_cycle_is_found_behind_many_acts(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.sqlite") as journal:
        assert newest_cycle(journal) is None
        assert load(journal, now_seconds=NOW) is None
        journal.append(simplest(1))
        for number in range(2, 130):
            journal.append(act(number, number, "probe"))

        found = newest_cycle(journal)

    assert found is not None
    assert found.cycle_id == 1


def test_the_policy_of_a_journal_comes_back_and_one_of_another_release_is_none(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.sqlite") as journal:
        assert kept_policy(journal) is None
        save_policy(journal, policy(max_changes_per_day=7))

        returned = kept_policy(journal)
        journal.save_state("policy", '{"version": 99}')

        assert kept_policy(journal) is None
    assert returned == policy(max_changes_per_day=7)


def test_without_a_policy_limits_are_not_made_up(tmp_path: Path) -> None:
    states = replace(states_of(tmp_path, standing=Standing(changes=(MIDNIGHT - 60,))), policy=None)

    assert said(states)["changes"] == ("1 in the last 24 h", "")


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        (("status",), ("Safety", "latency breaker", "Nothing is changed: no cycle has run for")),
        (("history",), ("1 ", "2 guard", "recover")),
        (("history", "--acts"), ("2 guard", "recover")),
        (("explain", "2"), ("Guard 2", "The latency breaker closed")),
    ],
    ids=" ".join,
)
def test_the_commands_tell_it(tmp_path: Path, command: tuple[str, ...], parts: tuple[str, ...]) -> None:
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.append(simplest())
        journal.append(act(2, 10, "recover"))

    done = clocktuner(*command, "--journal", str(tmp_path / "journal.sqlite"))

    assert done.returncode == 0, done.stderr
    assert all(part in done.stdout for part in parts), done.stdout


def test_a_state_that_cannot_be_read_is_told_and_the_rest_all_the_same(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.append(simplest())
        journal.save_state("guard", '{"breaker": 3}')
        with pytest.raises(JournalError):
            load(journal, now_seconds=NOW)

    done = clocktuner("status", "--journal", str(tmp_path / "journal.sqlite"))

    assert done.returncode == 0, done.stderr
    assert "GuardState in the journal cannot be read" in done.stdout
    assert "queue wait" in done.stdout
