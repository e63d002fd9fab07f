"""The bad hour of the demonstration against a real Prometheus: whatever goes wrong is answered, and told."""

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.dashboards import answered, expressions
from tests.support.servers import require_program
from tuner.demo import bad_hour
from tuner.demo.incidents import Answered
from tuner.demo.prometheus_server import PrometheusServer, prometheus_server
from tuner.demo.replay import Stopwatch
from tuner.demo.story import EDITED_RESERVATION, END_SECONDS, HARMFUL_PERIOD_SECONDS, Story
from tuner.demo.world import START_AT_SECONDS
from tuner.record.report import write_report
from tuner.values.knobs import Role, SchedulerMode
from tuner.values.stages import CycleRecord

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

NOT_IN_THIS_HOUR = {"Rank agreement", "Last drill", "Restored within", "What tuning is worth"}
"""Panels that are empty after it: several changes to rank, a drill and a hold-back take more than an hour."""

HOURS = 24.0
"""As the demonstration has it: the story goes on where its comparison ends."""


@dataclass(frozen=True)
class Played:
    story: Story
    rows: dict[str, Answered]
    server: PrometheusServer
    told: str
    folder: Path

    @property
    def records(self) -> tuple[CycleRecord, ...]:
        return tuple(self.story.parts.journal.records())


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    require_program("prometheus")
    output, screen = tmp_path_factory.mktemp("bad"), io.StringIO()
    console = Console(file=screen, width=150)
    with (
        prometheus_server() as server,
        bad_hour.opened(output=output, seed=1, hours=HOURS, server=server, console=console, watch=Stopwatch()) as story,
    ):
        assert server is not None
        rows = {row.incident.title: row for row in story.play()}
        yield Played(story, rows, server, screen.getvalue(), output)


def test_everything_that_goes_wrong_is_answered_to_the_end(played: Played) -> None:
    assert len(played.rows) == 5
    assert {title: row.complete for title, row in played.rows.items()} == dict.fromkeys(played.rows, True)


def test_in_the_end_everything_is_as_it_should_be_and_the_edit_still_stands(played: Played) -> None:
    live = played.story.parts.actuator.read()

    assert live.mode is SchedulerMode.FULL
    assert live.knobs[Role.RESERVATION] == EDITED_RESERVATION
    assert all(spec.low <= live.knobs[spec.role] <= spec.high for spec in played.story.parts.policy.knob_specs())
    assert live.knobs[Role.DECISION_PERIOD] != HARMFUL_PERIOD_SECONDS


def test_no_write_of_the_tuner_leaves_the_bounds_of_the_policy(played: Played) -> None:
    specs = played.story.parts.policy.knob_specs()
    written = [record.receipt for record in played.records if record.receipt is not None and record.receipt.applied]

    assert len(written) >= 6
    assert all(spec.low <= receipt.after[spec.role] <= spec.high for receipt in written for spec in specs)


def test_the_story_is_told_in_order_with_what_others_did_and_what_was_done_about_it(played: Played) -> None:
    told = [
        "by hand", "adopted", "4.9 s into the time slice", "heal", "apply", "roll_back", "a surge", "simplify", "probe",
        "recover", ">> ", "protect", "release",
    ]  # fmt: skip

    assert re.search(".*?".join(map(re.escape, told)), played.told, re.DOTALL), played.told


def test_the_report_tells_of_each_with_its_reason(played: Played) -> None:
    report = write_report(played.story.parts.journal, played.folder / "bad-hour.html")

    page = report.read_text(encoding="utf-8")
    events = json.loads(report.with_suffix(".json").read_text(encoding="utf-8"))["safety"]["events"]
    assert len(events) == 5
    for row in played.rows.values():
        assert all(record.reason.split("; ")[0].split(":")[0] in page for record in row.records), row.incident.title


@pytest.mark.parametrize(("title", "expression"), expressions("safety"))
def test_every_expression_of_the_safety_dashboard_answers_unless_the_hour_had_none_of_it(
    played: Played, title: str, expression: str
) -> None:
    start = START_AT_SECONDS + HOURS * 3600

    found = answered(played.server.url, expression, start_seconds=start, end_seconds=start + END_SECONDS)

    assert bool(found) is (title not in NOT_IN_THIS_HOUR), f"{title}: {expression}"
