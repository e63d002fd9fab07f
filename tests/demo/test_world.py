"""The simulated world of the demonstration."""

import numpy as np
import pytest

from tests.loop.harness import CLUSTER, workload
from tuner.demo.world import SAMPLE_SECONDS, chunks, open_run
from tuner.reference.settings import ClockSettings
from tuner.reference.tally import Tally
from tuner.values.metrics import METRIC_INDEX, METRIC_NAMES


def test_time_is_cut_into_pieces_of_one_cycle_without_gap_or_overlap() -> None:
    pieces = chunks(2.0, chunk_seconds=300.0)

    joined = np.concatenate(pieces)
    assert len(pieces) == 24
    assert joined[0] == SAMPLE_SECONDS
    assert joined[-1] == 7200.0
    assert (np.diff(joined) == SAMPLE_SECONDS).all()


def test_a_run_returns_a_column_a_time_and_closes_a_window_a_piece() -> None:
    run = open_run("a", "a", CLUSTER, workload(0.5), ClockSettings(), seed=1)

    values = [run.advance(piece) for piece in chunks(0.5, chunk_seconds=300.0)]

    assert values[0].shape == (len(run.exposition.labels), 10)
    assert len(run.windows) == 6
    assert dict(run.exposition.labels[0])["run"] == "a"


def test_the_whole_is_the_sum_of_its_windows() -> None:
    run = open_run("a", "a", CLUSTER, workload(0.5), ClockSettings(), seed=1)
    for piece in chunks(0.5, chunk_seconds=300.0):
        run.advance(piece)
    throughput = METRIC_INDEX["tasks_completed_per_second"]

    assert run.tally.metrics()[throughput] == pytest.approx(np.mean([window[throughput] for window in run.windows]))
    assert np.isfinite(run.tally.metrics()).all()


def test_a_tally_of_less_than_two_snapshots_knows_nothing() -> None:
    tally = Tally()
    run = open_run("a", "a", CLUSTER, workload(0.1), ClockSettings(), seed=1)
    tally.add(run.scheduler.snapshot())

    assert np.isnan(tally.metrics()).all()
    assert tally.metrics().shape == (len(METRIC_NAMES),)
