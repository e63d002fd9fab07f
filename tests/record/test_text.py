"""What the commands print tells every guard, what was expected, what was proposed and what came of it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from tests.support.records import MIDDLE, MIDNIGHT, SPECS, day, failed, observation, simplest
from tuner.record.journal import Intent, Journal
from tuner.record.setting import Setting, save_setting
from tuner.record.text import explain, history, status
from tuner.values.stages import CycleRecord, Decision, Problem, Step

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


def test_history_has_one_line_a_cycle_the_newest_last(journal: Journal) -> None:
    said = printed(history(journal, limit=12))

    numbers = [int(line.split()[0]) for line in said.splitlines() if line.strip() and line.split()[0].isdigit()]
    assert numbers == list(range(89, 101))
    assert "−5.4 %" in said
    assert "failed" in said


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
