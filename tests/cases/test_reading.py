"""What metrics sources did to others, and what clocktuner makes of it: the real loop beside a Prometheus that errs."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.cases.front import (
    COMPLETED,
    IDLE,
    LATENCY,
    POWER,
    QUEUE,
    REMAINING,
    UTILIZATION,
    WAITS,
    PrometheusSimulation,
    propose,
    watched_world,
)
from tests.support.faulty import Handler, Request, answer, faulty_server
from tuner.errors import QueryTooLarge
from tuner.observe.prometheus import PrometheusSource
from tuner.record.families import FAMILIES
from tuner.settings.model import SourceSettings
from tuner.values.metrics import METRIC_INDEX
from tuner.values.stages import CycleRecord, Decision, Step

pytestmark = pytest.mark.timeout(180)

SWITCHBACK = {"method": "switchback", "leg_seconds": 600, "wash_out_seconds": 300}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[PrometheusSimulation]:
    with watched_world(tmp_path, verify=SWITCHBACK) as started:
        yield started


def seen(record: CycleRecord, metric: str) -> float:
    assert record.observation is not None
    return float(record.observation.metrics[METRIC_INDEX[metric]])


def problems(record: CycleRecord, metric: str) -> list[str]:
    assert record.observation is not None
    return [problem.reason for problem in record.observation.problems if problem.metric == metric]


def details(record: CycleRecord, metric: str) -> str:
    assert record.observation is not None
    return "; ".join(problem.detail for problem in record.observation.problems if problem.metric == metric)


def failed_guards(record: CycleRecord) -> list[str]:
    assert record.verdict is not None
    return [finding.guard for finding in record.verdict.findings if not finding.passed]


def test_an_empty_answer_at_peak_is_missing_and_the_last_setting_is_held(
    world: PrometheusSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kedacore/keda#3065: an empty answer was taken for zero, and everything was scaled down at peak."""
    propose(monkeypatch, base_slice_seconds=0.12)
    world.front.told[QUEUE] = "120"
    world.cycle()  # The next one would change something.
    before = world.in_force
    world.front.empty = True

    held = world.cycles(3)

    assert [record.decision for record in held] == [Decision.HOLD] * 3
    assert all(math.isnan(seen(record, "queue_length")) for record in held)
    assert all(problems(record, "queue_length") == ["stale"] for record in held)
    assert "missing" in held[-1].reason or "no value" in held[-1].reason
    assert not np.isin(0.0, held[-1].observation.history["queue_length"])  # type: ignore[union-attr]
    assert world.in_force == before
    assert world.exported("observed_queue_length") is None
    assert world.exported("observation_problems_total", reason="stale") >= 3  # type: ignore[operator]
    assert world.exported("changes_total") == 0
    world.front.empty = False
    assert world.until(Decision.APPLY, most=3).receipt is not None


@pytest.mark.parametrize("text", ["NaN", "+Inf", "-Inf"])
def test_what_is_not_a_finite_number_never_becomes_one(
    world: PrometheusSimulation, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """kedacore/keda#7475: NaN passed the parser and became a huge negative number."""
    propose(monkeypatch, base_slice_seconds=0.12)
    world.front.told |= {LATENCY: text}

    held = world.cycles(7)

    assert {record.decision for record in held} == {Decision.HOLD}
    assert all(math.isnan(seen(record, "scheduling_latency_seconds")) for record in held)
    assert "non_finite" in problems(held[-1], "scheduling_latency_seconds")
    assert "scheduling_latency_seconds" in held[-1].reason
    assert world.exported("observation_problems_total", reason="non_finite") == 7
    assert world.exported("observed_scheduling_latency_seconds") is None


def test_nothing_is_decided_while_too_many_samples_are_no_numbers(
    world: PrometheusSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kedacore/keda#7475: half of the samples of a range are NaN, the newest one is not."""
    world.front.told[LATENCY] = lambda at: "NaN" if round(at / 60) % 2 else "0.2"
    propose(monkeypatch, base_slice_seconds=0.12)

    held = world.cycles(8)[-1]

    assert held.decision == Decision.HOLD
    assert held.observation is not None
    coverage = held.observation.coverage_ratio[METRIC_INDEX["scheduling_latency_seconds"]]
    assert coverage < world.policy.cycle.min_coverage_ratio
    assert "coverage" in failed_guards(held) or "scheduling_latency_seconds" in held.reason
    assert world.exported("changes_total") == 0


def test_an_idle_cluster_is_neither_success_nor_failure_of_a_change(
    world: PrometheusSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fluxcd/flagger#1035: an idle service counted as failed checks, and changes were rolled back."""
    propose(monkeypatch, base_slice_seconds=0.12)
    world.until(Decision.APPLY)
    during = world.in_force
    world.front.told |= {QUEUE: "0", COMPLETED: "0", LATENCY: None} | dict.fromkeys(WAITS)

    idle = world.cycles(4)

    assert [record.decision for record in idle] == [Step.WAIT] * 4
    assert all(record.observation is not None and not record.observation.arriving for record in idle)
    assert world.in_force == during
    assert world.exported("change_on_trial") == 1
    assert world.exported("rollbacks_total") == 0
    assert world.exported("verifications_total", outcome="failed") == 0


def test_a_wrong_query_is_told_as_such_and_is_no_harm_of_a_change(
    world: PrometheusSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fluxcd/flagger#1754: a metric that does not exist ended in rollbacks as if the release were bad."""
    propose(monkeypatch, base_slice_seconds=0.12)
    world.until(Decision.APPLY)
    world.front.refused = frozenset({LATENCY})

    looks = world.cycles(8)

    assert "rejected" in problems(looks[-1], "scheduling_latency_seconds")
    assert "parse error" in details(looks[-1], "scheduling_latency_seconds")
    assert not any(record.verification.harm for record in looks if record.verification is not None)
    assert world.parts.cycle.memory.caution.change_breaker.harms == ()
    assert world.exported("promotions_total") == 0


def test_clocks_that_disagree_hold_everything_and_are_exported(
    world: PrometheusSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """prometheus/prometheus#2530: a server's clock moved by twelve hours, and its samples were refused."""
    propose(monkeypatch, base_slice_seconds=0.12)
    world.front.clock_ahead_seconds = 43_200.0

    held = world.cycles(7)
    world.tick()

    assert {record.decision for record in held} == {Decision.HOLD}
    assert world.exported("changes_total") == 0
    assert problems(held[-1], "source") == ["clock_skew"]
    assert "+43200 s, over 30 s" in details(held[-1], "source")
    assert world.exported("source_clock_offset_seconds") == pytest.approx(43_200, abs=5)


def test_samples_from_the_future_followed_by_nothing_are_explained(world: PrometheusSimulation) -> None:
    """prometheus/prometheus#2530: the newest sample lies twelve hours ahead, then nothing more comes."""
    world.cycles(2)
    world.front.told |= dict.fromkeys(_all_names(world))
    world.front.ahead_seconds = 43_200.0

    held = world.cycle()

    assert held.decision == Decision.HOLD
    assert "its newest sample lies 43200 s in the future" in details(held, "source")
    assert world.exported("observation_problems_total", reason="clock_skew") == 1


def _all_names(world: PrometheusSimulation) -> list[str]:
    return [mapping.query for mapping in world.policy.mapped_metrics.values()]


THIRTY_DAYS, STEP = 30 * 86_400.0, 15.0
TOO_MANY = b'{"status": "error", "errorType": "execution", "error": "query processing would load too many samples"}'


def _narrow(most: int) -> object:
    """A server that gives so many points at most, with their times for values."""

    def reply(handler: Handler, request: Request) -> None:
        start, end = (float(request.body_parameters[name]) for name in ("start", "end"))
        times = np.arange(start, end + 1e-6, STEP)
        if len(times) > most:
            answer(handler, 422, TOO_MANY)
            return
        values = ",".join(f'[{at:.3f},"{at:.0f}"]' for at in times)
        body = (
            f'{{"status":"success","data":{{"resultType":"matrix","result":[{{"metric":{{}},"values":[{values}]}}]}}}}'
        )
        answer(handler, 200, body.encode())

    return reply


def test_thirty_days_are_read_from_a_server_that_gives_little_at_once() -> None:
    """prometheus/prometheus#7281: a simple query over a long range exceeded what the server may load."""
    with faulty_server(_narrow(6_000)) as server:  # type: ignore[arg-type]
        source = PrometheusSource(SourceSettings(url=server.url, timeout_seconds=30))
        found = source.range("x", start_seconds=0.0, end_seconds=THIRTY_DAYS, step_seconds=STEP)

    (series,) = found.series
    assert len(series.values) == 172_801
    np.testing.assert_allclose(np.diff(series.values), STEP)


def test_a_server_that_gives_nothing_is_given_up_with_the_reason() -> None:
    """prometheus/prometheus#7281: however short the range, it is too much."""
    with faulty_server(_narrow(0)) as server:  # type: ignore[arg-type]
        source = PrometheusSource(SourceSettings(url=server.url))
        with pytest.raises(QueryTooLarge, match=r"too many samples; still so after halving the range 5 times"):
            source.range("x", start_seconds=0.0, end_seconds=THIRTY_DAYS, step_seconds=STEP)


def test_fifty_thousand_series_are_refused_with_a_remedy_and_cost_only_their_metric(
    world: PrometheusSimulation,
) -> None:
    """PrincetonUniversity/jobstats#3: a label that names the job makes a series of each."""
    world.cycle()
    world.front.flood = (REMAINING, 50_000)

    flooded = world.cycle()

    assert "too_many_series" in problems(flooded, "running_task_remaining_seconds")
    assert "50000 series, over source.max_series (20000): aggregate away the label" in details(
        flooded, "running_task_remaining_seconds"
    )
    assert not math.isnan(seen(flooded, "scheduling_latency_seconds"))
    assert flooded.decision == Decision.HOLD


def test_no_label_of_ours_grows_with_the_work() -> None:
    """actions/actions-runner-controller#2873: labels by job made 96 new series of each."""
    # Versions, models and guards are few, and known once the program is written.
    open_ended = {("build_info", "version"), ("forecast_model", "model"), ("guard_failures_total", "guard")}
    unknown = {
        (family.name, label)
        for family in FAMILIES
        for label, values in zip(family.labels, family.values, strict=True)
        if not values
    }

    assert unknown == open_ended
    assert not {label for family in FAMILIES for label in family.labels} & {
        "job", "job_id", "task", "user", "trial", "pod", "node", "uid", "cycle", "change", "by_whom",
    }  # fmt: skip


def test_accelerators_in_slices_that_show_no_use_while_they_draw_power_are_not_believed(
    world: PrometheusSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVIDIA/dcgm-exporter#216: with MIG, utilisation is 0 however busy the accelerators are."""
    propose(monkeypatch, base_slice_seconds=0.12)
    world.front.told |= {UTILIZATION: "0", POWER: "1400", IDLE: "0.2"}

    held = world.cycles(7)

    assert {record.decision for record in held} == {Decision.HOLD}
    assert problems(held[-1], "accelerator_utilization_ratio") == ["implausible"]
    assert "80% of the accelerators are allocated and draw 350 W each" in details(
        held[-1], "accelerator_utilization_ratio"
    )
    assert math.isnan(seen(held[-1], "accelerator_utilization_ratio"))
    assert world.exported("observed_accelerator_utilization_ratio") is None
    assert world.exported("observation_problems_total", reason="implausible") == 7


@pytest.mark.parametrize(
    "told",
    [{POWER: "240"}, {IDLE: "0.95"}, {UTILIZATION: "0.8", POWER: "1400"}],
    ids=["at rest", "not allocated", "as the profiling metric tells it"],
)
def test_a_utilisation_that_fits_what_else_is_known_is_believed(
    world: PrometheusSimulation, told: dict[str, str]
) -> None:
    """NVIDIA/dcgm-exporter#216: what is idle is idle, and the profiling metric tells what is busy."""
    world.front.told |= {UTILIZATION: "0", POWER: "1400", IDLE: "0.2"}
    world.front.told |= told

    record = world.cycle()

    assert problems(record, "accelerator_utilization_ratio") == []
    assert seen(record, "accelerator_utilization_ratio") == float(world.front.told[UTILIZATION])  # type: ignore[arg-type]
