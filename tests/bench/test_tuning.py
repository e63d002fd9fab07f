import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from rich.console import Console

from tests.bench.tuning_world import Sets, small
from tuner.bench import cases, headlines, tuning
from tuner.bench.ablations import ABLATED_ARMS
from tuner.bench.arms import Case, Compared, Laboratory
from tuner.bench.cases import (
    ARMS,
    BEST_FIXED,
    BEST_FIXED_WINDOW,
    BOUND_SETS,
    CLOCKTUNER,
    RECOMMENDED,
    UNTOUCHED,
    WIDE,
    own,
    own_name,
)
from tuner.bench.faults import FAULT_ARMS
from tuner.bench.hardware import nodes_for_equal_wait
from tuner.bench.hindsight import Hindsight
from tuner.bench.remembered import Remembered
from tuner.bench.replays import Outcome
from tuner.bench.results import Results
from tuner.bench.tuners import Random, Site
from tuner.errors import TraceError
from tuner.reference.workload import TaskKind
from tuner.values.knobs import KnobValues
from tuner.values.metrics import MetricVector, metric_vector


def _case(bounds: cases.BoundSet = RECOMMENDED, *, seeds: tuple[int, ...] = (1, 2)) -> Case:
    return Case(name="small", bounds=bounds, workload=lambda seed: small(seed, minutes=10), seeds=seeds)


@pytest.fixture
def laboratory(tmp_path: Path) -> Iterator[Laboratory]:
    made = Laboratory(Remembered(tmp_path / "replays"), say=lambda _: None, threads=2)
    yield made
    made.close()


KNOWS: Final = partial(Sets, period=0.3)
"""A tuner that knows what is better."""


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a tuner that knows what is better stand in for the loop, which takes long to load."""
    for arms in ("tuner.bench.cases.TUNED_ARMS", "tuner.bench.arms.TUNED_ARMS", "tuner.bench.hardware.TUNED_ARMS"):
        monkeypatch.setattr(arms, {**cases.LIVE_ARMS, CLOCKTUNER: KNOWS})
    for arms in ("tuner.bench.arms.FAULT_ARMS", "tuner.bench.safety.FAULT_ARMS"):
        monkeypatch.setattr(arms, dict.fromkeys(FAULT_ARMS, KNOWS))
    for arms in ("tuner.bench.arms.ABLATED_ARMS", "tuner.bench.parts.ABLATED_ARMS"):
        monkeypatch.setattr(arms, dict.fromkeys(ABLATED_ARMS, KNOWS))


@pytest.mark.usefixtures("planted")
def test_all_arms_are_compared_on_every_seed(laboratory: Laboratory) -> None:
    case = replace(_case(WIDE), workload=lambda seed: small(seed, minutes=40))

    found = laboratory.compare(case, budget=8)

    assert set(found.outcomes) == set(ARMS)
    assert all(len(outcomes) == 2 for outcomes in found.outcomes.values())
    assert found.scores(UNTOUCHED) == (0.0, 0.0)
    assert found.hindsight.runs <= 8
    assert found.scores(BEST_FIXED) == found.hindsight.scores
    assert np.mean(found.scores(CLOCKTUNER)) < -0.02
    assert {outcome.changes for outcome in found.outcomes[CLOCKTUNER]} == {1}


@pytest.mark.usefixtures("planted")
def test_a_comparison_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    class Stopped(Exception):
        pass

    said: list[str] = []

    def stop_late(line: str) -> None:
        said.append(line)
        if "hindsight" in line:
            raise Stopped

    first = Laboratory(Remembered(tmp_path), say=stop_late, threads=2)
    with pytest.raises(Stopped):
        first.compare(_case(), budget=8)
    first.close()

    second = Laboratory(Remembered(tmp_path), say=said.append, threads=2)
    found = second.compare(_case(), budget=8)
    second.close()
    whole = Laboratory(Remembered(tmp_path / "other"), say=said.append, threads=1)
    alone = whole.compare(_case(), budget=8)
    whole.close()

    assert second.memory.recalled >= first.memory.made > 0
    assert second.memory.made < whole.memory.made
    for arm in ARMS:
        assert found.scores(arm) == alone.scores(arm)


@pytest.mark.usefixtures("planted")
def test_a_tuner_of_the_outside_takes_part_and_is_never_remembered(laboratory: Laboratory) -> None:
    made = []

    class Mine:
        def __init__(self, site: Site) -> None:
            made.append(site.seed)
            self.knobs = site.start

        def ask(self) -> KnobValues:
            return self.knobs

        def tell(self, score: float, metrics: MetricVector) -> None:
            del score, metrics

    for _ in range(2):
        found = laboratory.compare(_case(), budget=2, others={"mine": Mine})

    assert tuple(found.outcomes) == (*ARMS, "mine")
    assert found.scores("mine") == (0.0, 0.0)
    assert sorted(made) == [1, 1, 2, 2]


def test_a_tuned_replay_differs_between_seeds_but_not_between_runs(tmp_path: Path) -> None:
    scores = []
    for folder in ("one", "two"):
        made = Laboratory(Remembered(tmp_path / folder), say=lambda _: None, threads=2)
        untouched = made.fixed(_case(), RECOMMENDED.settings, title="untouched")
        tuned = made.tuned(_case(), "random", Random)
        scores.append([one.score(other) for one, other in zip(tuned, untouched, strict=True)])
        made.close()

    assert scores[0] == scores[1]
    assert scores[0][0] != scores[0][1]


def _outcome(wait: float) -> Outcome:
    metrics = metric_vector({"queue_wait_seconds": wait})
    facts = dict.fromkeys(("lost_ratio", "mean_wait_seconds"), wait)
    return Outcome(metrics=metrics, windows=metrics[None], facts=facts)


def _compared(*, clocktuner: Sequence[float], fixed: Sequence[float], live: Sequence[float]) -> Compared:
    """Return a comparison in which each arm waits such that its scores are these."""
    scores = dict.fromkeys(ARMS, (0.0,) * len(fixed)) | {
        CLOCKTUNER: tuple(clocktuner),
        BEST_FIXED: tuple(fixed),
        BEST_FIXED_WINDOW: tuple(fixed),
        "random": (0.5,) * len(fixed),
        "tpe_live": tuple(live),
        "cmaes_live": (0.4,) * len(fixed),
    }
    outcomes = {
        arm: tuple(_outcome(100.0 * math.exp(score / 0.25)) for score in given) for arm, given in scores.items()
    }
    hindsight = Hindsight(RECOMMENDED.start, tuple(fixed), 42)
    return Compared(outcomes, hindsight, hindsight)


@pytest.mark.parametrize(
    ("clocktuner", "fixed", "live", "expected"),
    [
        (
            (-0.08, -0.09),
            (-0.10, -0.10),
            (0.10, 0.10),
            {
                "tuning_gap_closed_ratio_small_recommended": (0.85, True),
                "tuning_gap_closed_window_ratio_small_recommended": (0.85, True),
                "tuning_regret_ratio": (0.075, True),
            },
        ),
        (
            (0.05, 0.05),
            (-0.10, -0.10),
            (0.0, 0.0),
            {"tuning_gap_closed_ratio_small_recommended": (-0.5, False), "tuning_regret_ratio": (1.5, False)},
        ),
        (
            (0.005, 0.005),
            (-0.02, -0.02),
            (0.03, 0.03),
            {"tuning_harm_ratio_small_recommended": (0.005, True), "tuning_regret_ratio": (0.5, True)},
        ),
        (
            (0.02, 0.02),
            (0.0, 0.0),
            (0.04, 0.04),
            {"tuning_harm_ratio_small_recommended": (0.02, False)},
        ),
    ],
)
def test_figures_follow_from_the_scores(
    clocktuner: Sequence[float],
    fixed: Sequence[float],
    live: Sequence[float],
    expected: dict[str, tuple[float, bool]],
) -> None:
    results = Results("tuning")

    tuning.judge(results, _case(), _compared(clocktuner=clocktuner, fixed=fixed, live=live))

    assert results.figures["tuning_hindsight_gain_small_recommended"] == pytest.approx(-np.mean(fixed))
    for start, (value, met) in expected.items():
        (name,) = (name for name in results.figures if name.startswith(start))
        assert results.figures[name] == pytest.approx(value)
        assert results.goals[name].met_by(results.figures[name]) or not met
    gap, harm = (f"tuning_{kind}_ratio_small_recommended" in results.figures for kind in ("gap_closed", "harm"))
    assert gap is not harm


def test_each_arm_is_told_in_full() -> None:
    results = Results("tuning")

    tuning.judge(results, _case(), _compared(clocktuner=(-0.1, -0.1), fixed=(-0.2, -0.2), live=(0.1, 0.1)))

    arms: Any = results.setting["arms"]
    told = arms["small_recommended"]
    assert list(told) == list(ARMS)
    assert told[BEST_FIXED]["replays"] == 42
    assert told["random"]["worse"] == ["queue_wait_seconds"]
    assert told["random"]["harmful_minutes"] == 5.0
    assert told[CLOCKTUNER]["harmful_minutes"] == 0.0
    assert told[CLOCKTUNER]["worse"] == []
    assert told[CLOCKTUNER]["metrics"]["queue_length"] is None


@pytest.mark.usefixtures("planted")
def test_the_benchmark_of_an_own_trace_gives_its_figures_and_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = _trace(tmp_path / "My Trace.v2.csv")
    monkeypatch.setattr(tuning, "QUICK_RUNS", 4)
    monkeypatch.setattr(tuning, "QUICK_HOURS", 0.25)

    def run() -> Results:
        return tuning.run(trace=trace, trace_format="csv", seeds=3, quick=True, cache=tmp_path / "cache")

    first, again = run(), run()
    first.write(tmp_path / "figures.json")
    first.print(Console())

    assert first.figures == pytest.approx(again.figures, nan_ok=True)
    assert again.setting["replays_made"] == 0
    assert first.setting["seeds"] == [1, 2]
    for bounds in BOUND_SETS:
        assert f"tuning_regret_ratio_my_trace_{bounds.name}" in first.figures
    assert {f"tuning_worst_ratio_{arm}" for arm in FAULT_ARMS} <= set(first.figures)
    # What stands in for the product stands in for it without its parts, too: nothing is lost.
    assert {first.figures[f"tuning_ablation_{arm}"] for arm in ABLATED_ARMS} == {0.0}
    assert first.figures["headline_lost_ratio_unoptimised"] >= 0
    assert 0.5 < first.figures["headline_hardware_ratio_untouched"] <= 1
    printed = capsys.readouterr().out
    assert "my_trace, wide bounds, from a plausible operator's default" in printed
    assert "62 % -> 81 %" in printed


def _trace(path: Path) -> Path:
    """Write a quarter of an hour of requests and jobs, in turn."""
    generator = np.random.default_rng(3)
    lines = ["submit_seconds,duration_seconds,gpus,class"]
    for number in range(100):
        gpus, kind = (0.25, "inference") if number % 2 else (generator.choice([1, 2]), "training")
        lines.append(f"{10 * number},{generator.uniform(5, 60):.1f},{gpus},{kind}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_cluster_for_an_own_trace_is_sized_for_its_load_and_its_gangs(tmp_path: Path) -> None:
    plain = "submit_seconds,duration_seconds,gpus\n"
    busy, gang = tmp_path / "busy.csv", tmp_path / "gang.csv"
    busy.write_text(plain + "".join(f"{10 * number},400,1\n" for number in range(361)))
    gang.write_text(plain + "0,10,40\n3600,10,1\n")

    load = own(busy, "csv")(1)
    wide = own(gang, "csv")(1)

    assert load.offered_load == pytest.approx(0.8, abs=0.1)
    # Half of the cluster may be reserved, within the wide bounds.
    assert wide.cluster.gpus >= 80
    assert (load.trace.workload.kind == TaskKind.TRAINING).all()


def test_only_the_beginning_of_a_long_trace_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text(
        "submit_seconds,duration_seconds,gpus\n" + "".join(f"{600 * number},100,1\n" for number in range(200))
    )

    assert own(path, "csv", hours=2.0)(1).trace.span_seconds == 7200.0


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="format is 'xml'"):
        own(_trace(tmp_path / "trace.csv"), "xml")


@pytest.mark.parametrize(("name", "expected"), [("My-Jobs 2.csv.gz", "my_jobs_2"), ("___.csv", "own"), ("a.swf", "a")])
def test_names_of_traces_fit_into_those_of_figures(name: str, expected: str) -> None:
    assert own_name(Path(name)) == expected


def test_the_untouched_setting_lies_within_both_bounds() -> None:
    for bounds in BOUND_SETS:
        assert all(spec.contains(bounds.start[spec.role]) for spec in bounds.specs)
        assert bounds.settings.knobs == bounds.start


@pytest.mark.parametrize("least", range(8))
def test_the_smallest_good_size_is_found(least: int) -> None:
    tried: list[int] = []

    def good(size: int) -> bool:
        tried.append(size)
        return size >= least

    assert headlines.smallest(range(7), good) == (least if least < 7 else None)
    assert len(tried) <= 3


@pytest.mark.parametrize(
    ("arm_waits", "expected"),
    [
        (lambda nodes: 10.0 * 8 / nodes, 1.0),
        (lambda nodes: 6.0 * 8 / nodes, 5 / 8),
        (lambda _: 1.0, 0.5),
        (lambda _: 99.0, 1.0),
    ],
)
def test_hardware_is_the_share_of_nodes_with_equal_waiting(arm_waits: Callable[[int], float], expected: float) -> None:
    class Waiting:
        def fixed(self, case: Case, settings: Any, *, title: str) -> tuple[Outcome, ...]:
            del title
            nodes = case.workload(1).cluster.nodes
            unoptimised = not settings.tiers
            assert nodes == 8 or not unoptimised
            return (_outcome(10.0 if unoptimised else arm_waits(nodes)),)

    def make(seed: int) -> Any:
        return replace(small(seed), cluster=small().cluster.sized(8))

    case = replace(_case(), workload=make)

    assert nodes_for_equal_wait(Waiting(), case, UNTOUCHED) == expected  # type: ignore[arg-type]


def test_headlines_are_means_of_what_has_samples() -> None:
    waits = next(each for each in headlines.HEADLINES if each.name == "mean_wait_seconds")

    assert headlines.averaged(waits, [_outcome(1.0), _outcome(3.0), _outcome(math.nan)]) == 2.0
    assert math.isnan(headlines.averaged(waits, [_outcome(math.nan)]))


def test_table_cells_tell_the_change_from_the_first() -> None:
    assert headlines.cells([10.0, 15.0, 5.0, math.nan]) == ["10", "15 (+50%)", "5 (-50%)", ""]
    assert headlines.cells([0.0, 1.0]) == ["0", "1"]
