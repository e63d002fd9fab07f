"""What the commands print tells every guard, what was expected, what was proposed and what came of it."""

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from tests.support.guarded import act, order
from tests.support.records import MIDDLE, MIDNIGHT, SPECS, applied, day, failed, observation, simplest
from tuner.control.orders import OrderKind
from tuner.record.families import GUARDED
from tuner.record.history import history, is_act
from tuner.record.journal import Intent, Journal
from tuner.record.setting import Setting, save_setting
from tuner.record.status import Point, Why, status
from tuner.record.text import explain
from tuner.values.knobs import KnobValues, Role, SchedulerMode
from tuner.values.stages import CycleRecord, Decision, Outcome, Problem, Step

DAY = day(100)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journal]:
    with Journal(tmp_path_factory.mktemp("journal") / "journal.sqlite") as opened:
        for record in DAY:
            opened.append(record)
        save_setting(opened, Setting(cluster="gpu-64x8", policy="reference", mode="auto", specs=SPECS))
        yield opened


def printed(renderable: RenderableType) -> str:
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def test_status_tells_cluster_mode_knobs_metrics_and_the_change_on_trial(journal: Journal) -> None:
    said = printed(status(journal, now_seconds=DAY[-1].at_seconds + 40))

    for part in (
        "gpu-64x8",
        "mode auto",
        "newest cycle 40 s ago",
        "base slice",
        "80 ms",
        "150 ms",
        "queue wait",
        "100 %",
    ):
        assert part in said
    assert "on trial; reservation 21 % → 22 %, predicted −5.4 %" in said
    assert "Last 24 h: 100 cycles, 9 changes, 5 kept, 3 undone, 2 cycles failed." in said


def test_status_after_a_guard_tick_still_tells_knobs_and_metrics(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.sqlite") as opened:
        for record in DAY[:5]:
            opened.append(record)
        save_setting(opened, Setting(cluster="east", policy="reference", mode="auto", specs=SPECS))
        noted = CycleRecord(
            cycle_id=DAY[4].cycle_id + 1,
            at_seconds=DAY[4].at_seconds + 5,
            decision="simplify",
            reason="3 samples in a row over 3 s",
        )
        opened.append(noted)

        said = printed(status(opened))

    assert "simplify: 3 samples in a row over 3 s" in said
    assert "base slice" in said
    assert "queue wait" in said


def test_status_tells_the_newest_cycle_and_what_the_guard_did_since(tmp_path: Path) -> None:
    moved = KnobValues.of({**MIDDLE, Role.BASE_SLICE: 0.12})
    with kept(
        tmp_path, simplest(1), act(2, 5, "heal", "put back", after=moved), act(3, 9, "recover", "fine")
    ) as journal:
        said = printed(status(journal))

    assert "cycle 1: hold: the load moved" in said
    assert "guard 3: recover: fine" in said
    assert "120 ms" in said  # What the guard wrote is in force.
    assert "Last 24 h: 1 cycle, 0 changes, 0 kept, 0 undone, 0 cycles failed, 2 acts of guard and people." in said


def test_status_tells_what_stands_and_why_nothing_is_changed(tmp_path: Path) -> None:
    with kept(tmp_path, simplest(1)) as journal:
        said = printed(
            status(
                journal,
                safety=[Point("latency breaker", "open since noon", "bad"), Point("trial", "none", "")],
                why=[Why("paused by alice", "`clocktuner resume`")],
            )
        )

    assert "Nothing is changed: paused by alice. What would have to change: `clocktuner resume`" in said
    assert re.search(r"latency breaker\s+open since noon", said)
    assert "No change is on trial." not in said  # It stands among the parts.


def test_status_of_an_empty_journal_and_without_a_clock(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.sqlite") as empty:
        assert "No cycle has been recorded yet." in printed(status(empty))
        empty.append(failed())

        said = printed(status(empty))

    assert "newest cycle at 2026-01-01 00:00:00 UTC" in said
    assert "failed: observe failed" in said
    assert "no sample" in said
    assert "No change is on trial." in said


def test_status_warns_of_an_interrupted_change(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.append(simplest(1))
        journal.begin_change(
            Intent(
                cycle_id=2,
                at_seconds=MIDNIGHT,
                action="apply",
                before=MIDDLE,
                target=MIDDLE,
                expected_revision="",
                reason="better",
            )
        )

        assert "change of cycle 2 was interrupted" in printed(status(journal))


def lines(said: str) -> list[list[str]]:
    """Return the rows of a table that begin with a number, in words."""
    return [line.split() for line in said.splitlines() if re.match(r"\s*\d+(–\d+)? ", line)]


def kept(path: Path, *records: CycleRecord) -> Journal:
    """Return a journal of records."""
    journal = Journal(path / "journal.sqlite")
    for record in records:
        journal.append(record)
    return journal


def test_history_has_one_line_a_cycle_the_newest_last_and_one_for_those_that_held_alike(journal: Journal) -> None:
    said = printed(history(journal, limit=12))

    assert [row[0] for row in lines(said)] == ["89", "90", "91", "92", "93–97", "98", "99", "100"]
    assert "hold 5 ×" in said
    assert "−5.4 %" in said
    assert "failed" in said


def test_history_of_an_empty_journal_says_so(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.sqlite") as empty:
        assert printed(history(empty)).strip() == "Nothing has been recorded yet."
        assert printed(history(empty, acts=True)).strip() == "Nothing has been recorded yet."
        empty.append(simplest())

        assert "none changed anything" in printed(history(empty, acts=True))


def test_history_tells_guard_and_orders_apart_from_cycles(tmp_path: Path) -> None:
    records = (
        simplest(1),
        act(2, 10, "simplify", "too slow", mode=SchedulerMode.SIMPLIFIED),
        act(3, 20, "hold", "would probe"),
        order(4, 30, OrderKind.PAUSE),
        simplest(5, MIDNIGHT + 300),
    )
    with kept(tmp_path, *records) as journal:
        every, acts = lines(printed(history(journal))), lines(printed(history(journal, acts=True)))

    assert [row[:2] for row in every if row[1] in ("guard", "order")] == [
        ["2", "guard"],
        ["3", "guard"],
        ["4", "order"],
    ]
    assert [row[0] for row in every] == ["1", "2", "3", "4", "5"]
    assert [row[0] for row in acts] == ["2", "3", "4"]


def test_acts_are_found_behind_many_quiet_cycles(tmp_path: Path) -> None:
    quiet = [simplest(index, MIDNIGHT + index) for index in range(2, 60)]
    with kept(tmp_path, act(1, 0, "heal", after=MIDDLE), *quiet) as journal:
        assert [row[0] for row in lines(printed(history(journal, limit=5, acts=True)))] == ["1"]


@pytest.mark.parametrize(
    ("record", "tells"),
    [
        (simplest(), False),
        (next(record for record in DAY if record.decision == Step.WAIT), False),
        (failed(), True),
        (applied(), True),
        (act(1, 0, "hold"), True),
        (order(1, 0, OrderKind.RESUME), True),
    ],
)
def test_an_act_is_what_changed_something_or_a_state(record: CycleRecord, tells: bool) -> None:
    assert is_act(record) is tells


def test_explain_tells_every_guard_with_value_limit_and_sentence(journal: Journal) -> None:
    record = next(record for record in DAY if record.decision == Decision.APPLY)
    assert record.verdict is not None
    assert record.proposal is not None

    said = printed(explain(journal.record(record.cycle_id), looks=journal.looks(record.cycle_id)))

    for finding in record.verdict.findings:
        assert finding.sentence in said
    assert "prediction window 15 min → 17 min" in said
    assert record.proposal.reason in said
    assert "100 candidates, fidelity of the twin 74 %" in said
    assert "in 15 min" in said
    assert "What came of it: kept;" in said
    assert "Time by stage: observe 41 ms" in said


def test_explain_tells_of_the_change_as_far_as_it_got(journal: Journal) -> None:
    record = next(record for record in DAY if record.decision == Decision.APPLY)

    assert "not looked at yet" in printed(explain(record))
    assert "on trial" in printed(explain(record, looks=journal.looks(record.cycle_id)[:1]))


def test_explain_tells_of_a_rollback(journal: Journal) -> None:
    back = next(record for record in DAY if record.decision == Step.ROLL_BACK)

    said = printed(explain(journal.record(back.cycle_id)))

    assert "so roll back" in said
    assert "Written:" in said


def test_explain_tells_failures_and_what_was_not_believed() -> None:
    assert "Failed in observe, counted as source_unavailable." in printed(explain(failed()))
    seen = replace(
        observation(1, MIDNIGHT), problems=(Problem("queue_length", "non_finite", "2 of 5 samples were NaN"),)
    )

    assert "queue_length non finite: 2 of 5 samples were NaN" in printed(explain(replace(simplest(), observation=seen)))


def test_a_cycle_that_does_not_exist_is_said_to_be_missing(journal: Journal) -> None:
    assert "does not have that cycle" in printed(explain(journal.record(4711)))


def test_square_brackets_in_reasons_are_text(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.append(replace(simplest(), reason="held [bold]on purpose[/]"))

        assert "held [bold]on purpose[/]" in printed(history(journal))


def test_a_proposal_that_breaks_limits_names_them() -> None:
    record = next(record for record in DAY if record.proposal is not None)
    assert record.proposal is not None
    broken = replace(record.proposal, feasible=False, violations=("task_abandonment_ratio",))

    assert "it breaks task abandonment" in printed(explain(replace(record, proposal=broken)))


def test_explain_of_a_guard_act_tells_what_it_stands_for_and_what_was_written() -> None:
    said = printed(explain(act(21, 0, "simplify", "too slow", mode=SchedulerMode.SIMPLIFIED)))

    assert "Guard 21, 2026-01-01 00:00:00 UTC: simplify" in said
    assert "too slow" in said
    assert "The latency breaker opened" in said
    assert "Written: policy mode simplified; in force" in said
    assert "Time by stage" not in said


def test_explain_of_an_order_names_who_asked_for_what() -> None:
    said = printed(explain(order(3, 0, OrderKind.PAUSE, reason="new racks")))

    assert "Order 3," in said
    assert "alice: pause (new racks): done" in said


@pytest.mark.parametrize("decision", sorted({*GUARDED, "adopted", "drill", "order", "hold", "failed", "roll_back"}))
def test_explain_has_a_word_for_all_that_guard_and_people_do(decision: str) -> None:
    bare = printed(explain(replace(act(1, 0, decision, "why"), decision="unheard of")))

    assert len(printed(explain(act(1, 0, decision, "why"))).splitlines()) > len(bare.splitlines())


def in_turns(pairs: int, cycle_id: int, step: Step, *, harm: bool = False) -> CycleRecord:
    """Return a cycle that looked at the switchback of cycle 1."""
    record = next(record for record in DAY if record.decision == Step.WAIT)
    assert record.verification is not None
    look = replace(
        record.verification,
        change_cycle_id=1,
        pairs=pairs,
        evidence=math.log(2.0) * pairs,
        observed_score=-0.05,
        score_error=0.02,
        expected_score=-0.04,
        step=step,
        harm=harm,
        outcome=Outcome.INCONCLUSIVE,
    )
    return replace(record, cycle_id=cycle_id, at_seconds=MIDNIGHT + 300 * cycle_id, verification=look, decision=step)


def test_explain_of_a_change_shows_its_pairs_and_what_they_told() -> None:
    looks = [
        in_turns(0, 2, Step.WAIT),
        in_turns(1, 3, Step.SWITCH),
        in_turns(1, 4, Step.WAIT),
        in_turns(2, 5, Step.PROMOTE),
    ]

    said = printed(explain(applied(1), looks=looks))
    rows = lines(said[said.index("Compared in turns") :])

    assert [row[0] for row in rows] == ["3", "5"]  # Looks that brought no pair are left out.
    assert rows[1][3:] == ["2", "−4.0", "%", "−5.0", "%", "±", "3.9", "4", "inconclusive", "promote"]
    assert "kept; " in said
    assert "in 2 pairs, e-value 4," in said


def test_explain_of_a_look_shows_its_pairs_and_harm() -> None:
    said = printed(explain(in_turns(2, 5, Step.ROLL_BACK, harm=True)))

    assert "Compared in turns" in said
    assert "inconclusive, harm" in said


def test_a_change_that_is_held_against_a_forecast_has_no_table_of_pairs(journal: Journal) -> None:
    record = next(record for record in DAY if record.decision == Decision.APPLY)

    assert "Compared in turns" not in printed(explain(record, looks=journal.looks(record.cycle_id)))


def test_a_guard_without_a_number_leaves_its_cells_empty() -> None:
    record = next(record for record in DAY if record.verdict is not None)
    assert record.verdict is not None
    bare = replace(record.verdict.findings[0], observed=math.nan, limit=math.nan, sentence="nobody forbids changes")

    said = printed(explain(replace(record, forecast=None, verdict=replace(record.verdict, findings=(bare,)))))

    row = next(line for line in said.splitlines() if "nobody forbids changes" in line)
    assert "no sample" not in row
