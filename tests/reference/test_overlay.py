import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import ConfigError
from tuner.reference import overlay
from tuner.reference.overlay import Assumptions
from tuner.reference.trace import DAY_SECONDS, Part, Trace, make_trace
from tuner.reference.workload import NO_MODEL, Priority, TaskKind

times = st.lists(st.floats(min_value=0, max_value=1e5), min_size=1, max_size=12)


def jobs(*submit: float, source: str = "made", gpus: float = 1.0, kind: int = TaskKind.TRAINING) -> Trace:
    return make_trace(source, submit_seconds=np.array(submit), service_seconds=10.0, gpus=gpus, kind=kind)


def test_an_overlay_keeps_all_tasks_of_the_base_and_cuts_the_others_where_it_ends() -> None:
    base, other = jobs(0, 100), jobs(50, 90, 150, source="other", gpus=2)

    both = overlay.overlay(base, other)

    assert both.workload.submit_seconds.tolist() == [0, 50, 90, 100]
    assert both.workload.gpus.tolist() == [1, 2, 2, 1]
    assert both.span_seconds == 100
    assert [(part.source, part.to_seconds) for part in both.parts] == [("made", 100), ("other", 100)]
    assert both.notes == ("overlaid, not observed together: made + other",)


def test_an_overlay_tells_only_what_all_its_traces_tell() -> None:
    told = make_trace("a", submit_seconds=np.array([1.0]), service_seconds=1, gpus=1, priority=[2])

    assert overlay.overlay(told, told).told == {"priority"}
    assert overlay.overlay(told, jobs(0)).told == frozenset()


def test_joined_traces_follow_each_other() -> None:
    joined = overlay.join(jobs(0, 100), jobs(5, 50))

    assert joined.workload.submit_seconds.tolist() == [0, 100, 105, 150]
    assert joined.span_seconds == 150
    assert [part.at_seconds for part in joined.parts] == [0, 100]


def test_a_repeated_trace_goes_on_where_its_span_ends() -> None:
    trace = overlay.slice_time(jobs(0, 30, 90), 0, 60)

    again = overlay.repeat(trace, 3)

    assert again.workload.submit_seconds.tolist() == [0, 30, 60, 90, 120, 150]
    assert again.span_seconds == 180


@given(submit=times, factor=st.floats(min_value=0.1, max_value=100))
def test_a_time_lapse_leaves_the_load_as_it_is(submit: list[float], factor: float) -> None:
    trace = jobs(*submit)

    lapse = overlay.compress_time(trace, factor)

    assert lapse.workload.demand_seconds().sum() * factor == pytest.approx(trace.workload.demand_seconds().sum())
    assert lapse.span_seconds * factor == pytest.approx(trace.span_seconds)
    assert lapse.parts[0].compression == factor


def test_a_cut_counts_from_its_start_and_remembers_where_it_lay() -> None:
    lapse = overlay.compress_time(jobs(0, 100, 200, 300), 2)

    cut = overlay.slice_time(lapse, 50, 150)

    assert cut.workload.submit_seconds.tolist() == [0, 50]
    assert cut.span_seconds == 100
    part = cut.parts[0]
    assert (part.from_seconds, part.to_seconds, part.compression) == (100, 300, 2)


def test_a_cut_of_joined_traces_keeps_only_the_parts_that_it_touches() -> None:
    joined = overlay.join(jobs(0, 100, source="a"), jobs(0, 100, source="b"), jobs(0, 100, source="c"))

    cut = overlay.slice_time(joined, 150, 250)

    assert [(part.source, part.from_seconds, part.to_seconds, part.at_seconds) for part in cut.parts] == [
        ("b", 50, 100, 0),
        ("c", 0, 50, 50),
    ]


@given(submit=times, at=st.floats(min_value=1e-3, max_value=1e5))
def test_the_two_sides_of_a_cut_hold_every_task_once(submit: list[float], at: float) -> None:
    trace = jobs(0, *submit, 1.5e5)

    sides = overlay.slice_time(trace, 0, at), overlay.slice_time(trace, at, 2e5)

    assert sum(len(side.workload) for side in sides) == len(submit) + 2


def test_a_folded_trace_has_all_tasks_in_a_fraction_of_the_time() -> None:
    trace = overlay.slice_time(jobs(0, 10, 20, 30), 0, 40)

    folded = overlay.fold(trace, 2)

    assert folded.workload.submit_seconds.tolist() == [0, 0, 10, 10]
    assert folded.span_seconds == 20
    assert [(part.from_seconds, part.at_seconds) for part in folded.parts] == [(0, 0), (20, 0)]
    assert folded.notes[-1] == "folded: 2 stretches of it at once"


def test_a_selection_keeps_what_the_mask_says_and_says_so() -> None:
    trace = jobs(0, 1, 2)

    kept = overlay.select(trace, np.array([True, False, True]), note="every other")

    assert kept.workload.submit_seconds.tolist() == [0, 2]
    assert kept.notes == ("every other",)


@pytest.mark.parametrize("factor", [0.2, 1.0, 2.5])
def test_a_scaled_rate_gives_about_so_many_tasks_of_the_same_kind_in_order(factor: float) -> None:
    trace = jobs(*np.linspace(0, 1e5, 2000))

    scaled = overlay.scale_rate(trace, factor, seed=3)

    submit = scaled.workload.submit_seconds
    assert len(submit) == pytest.approx(2000 * factor, rel=0.1)
    assert (np.diff(submit) >= 0).all()
    assert submit[-1] <= trace.span_seconds
    assert scaled.notes[-1] == f"number of tasks scaled by {factor:g}"


def test_copies_are_submitted_shortly_after_their_originals() -> None:
    scaled = overlay.scale_rate(jobs(0, 1000), 3, seed=1)

    submit = scaled.workload.submit_seconds
    assert submit[0] == 0
    assert 0 < submit[1] <= submit[2] <= overlay.JITTER_SECONDS


def test_what_a_trace_does_not_tell_is_drawn_in_the_stated_shares() -> None:
    assumptions = Assumptions(high_ratio=(0, 0.3, 0.8), low_ratio=(0, 0.5, 0), zones=3, models=5)
    training = jobs(*np.arange(4000.0))
    requests = jobs(*np.arange(4000.0), kind=TaskKind.INFERENCE)

    batch = overlay.assume(training, assumptions, seed=1).workload
    online = overlay.assume(requests, assumptions, seed=1).workload

    assert np.bincount(batch.priority) / 4000 == pytest.approx([0.5, 0.2, 0.3], abs=0.03)
    assert np.bincount(online.priority, minlength=3) / 4000 == pytest.approx([0, 0.2, 0.8], abs=0.03)
    assert (batch.model == NO_MODEL).all()
    shares = np.bincount(online.model) / 4000
    assert shares == pytest.approx(np.array([1, 1 / 2, 1 / 3, 1 / 4, 1 / 5]) / (137 / 60), abs=0.03)
    assert np.bincount(batch.zone) / 4000 == pytest.approx([1 / 3] * 3, abs=0.03)
    assert np.median(online.patience_seconds) == pytest.approx(60, rel=0.05)


def test_patience_grows_with_the_run_time() -> None:
    long = make_trace("made", submit_seconds=np.arange(1000.0), service_seconds=1e6, gpus=1)

    patience = overlay.assume(long, Assumptions(patience_runs=2.0), seed=1).workload.patience_seconds

    assert np.median(patience) == pytest.approx(2e6, rel=0.05)


def test_what_a_trace_tells_is_left_alone_and_the_same_seed_draws_the_same() -> None:
    trace = make_trace("a", submit_seconds=np.arange(50.0), service_seconds=1, gpus=1, priority=Priority.LOW, zone=7)

    first, second, third = (overlay.assume(trace, Assumptions(), seed=seed).workload for seed in (1, 1, 2))

    assert (first.priority == Priority.LOW).all()
    assert (first.zone == 7).all()
    assert first.patience_seconds.tolist() == second.patience_seconds.tolist()
    assert first.patience_seconds.tolist() != third.patience_seconds.tolist()


def test_what_was_assumed_stands_in_the_notes() -> None:
    notes = overlay.assume(jobs(0), Assumptions(), seed=1).notes

    assert notes[-1].startswith("assumed per class (preprocessing, training, inference): high priority 0/5/70 %")


def test_a_part_is_described_with_its_days_and_factor() -> None:
    assert Part(source="a", from_seconds=0, to_seconds=DAY_SECONDS).describe() == "a, day 0.00 to 1.00"
    part = Part(source="a", from_seconds=0, to_seconds=DAY_SECONDS, compression=17.5)
    assert part.describe() == "a, day 0.00 to 1.00, time compressed 17.5 times"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: overlay.compress_time(jobs(0), 0), "factor is 0, must be over 0"),
        (lambda: overlay.compress_time(jobs(0), math.nan), "factor is nan, must be over 0"),
        (lambda: overlay.scale_rate(jobs(0), -1, seed=1), "factor is -1, must be over 0"),
        (lambda: overlay.repeat(jobs(0), 0), "times is 0, must be 1 or more"),
        (lambda: overlay.fold(jobs(0), 0), "times is 0, must be 1 or more"),
        (lambda: overlay.slice_time(jobs(0), 5, 5), "stretch is 5 to 5 s"),
        (lambda: overlay.slice_time(jobs(0), -1, 5), "must begin at 0 or later"),
        (lambda: overlay.slice_time(jobs(0), 7, 9), "no task is submitted from 7 to 9 s; the trace spans 0.0 s"),
        (lambda: Assumptions(high_ratio=(0.5, 0, 0), low_ratio=(0.6, 0, 0)), "together at most 1"),
        (lambda: Assumptions(zones=0), "zones is 0"),
        (lambda: Assumptions(patience_seconds=(1, 0, 1)), "patience_seconds is 0, must be over 0"),
    ],
)
def test_what_makes_no_sense_is_refused_with_value_and_limit(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ConfigError, match=message):
        call()
