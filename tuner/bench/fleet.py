"""A cluster of any size for the benchmark of the cycle: its series, and the page where it is set.

The series of the cluster as a whole are those of a real run of the reference scheduler on a few nodes, with what counts
or accumulates multiplied to the size that is wanted. Each node is one of the recorded ones, some minutes later and a
little slower, so that no two are alike and every value was once computed by the scheduler. The series do not react to
what is set: the benchmark measures what a cycle costs, not what it brings.

Runs as a process of its own, so that its memory and time do not count for those of the tuner. It is told how far to
write, one JSON object a line on standard input, and ends with it.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tuner import serving
from tuner.demo.lockstep import application
from tuner.demo.remote_write import RemoteWriter, SeriesBlock
from tuner.demo.world import START_AT_SECONDS, Run, open_run
from tuner.reference import workloads
from tuner.reference.settings import ClockSettings
from tuner.values.stages import FloatArray

MINUTE_SECONDS: Final = 60.0
"""Distance of two samples."""

RUN_LABEL: Final = "bench"
"""Value of the label `run` of every series."""

WORKLOAD: Final = "openb"
"""What is recorded: the smallest of the workloads, with tasks of all classes."""

WARM_UP_MINUTES: Final = 60
"""What is left out of the recording: the cluster fills."""

MAX_SHIFT_MINUTES: Final = 30
"""How much later than the recorded node a node may be."""

LEAST_SPEED: Final = 0.9
"""Slowest node, as a factor on all that is measured of it; the fastest are as recorded."""

PUSH_SAMPLES: Final = 500_000
"""Samples a push: some tens of megabytes while it is packed."""

PUSH_MINUTES: Final = 30
"""Longest stretch of a push: samples an hour behind the newest are refused, and the nodes come after the cluster."""

_GROWING_SUFFIXES: Final = ("_total", "_bucket", "_sum", "_count")
_GROWING_GAUGES: Final = frozenset(
    f"reference_{name}"
    for name in (
        "nodes",
        "accelerators",
        "accelerators_allocated",
        "queue_length",
        "waiting_tasks",
        "running_tasks",
        "pending_accelerators",
        "warm_instances",
    )
)
_SAME_ON_ALL_NODES: Final = "reference_node_accelerators"


@dataclass(frozen=True, slots=True)
class Recording:
    """What a reference scheduler showed, one sample a minute.

    Attributes:
        labels: Labels of each series, `__name__` among them.
        values: Shape (series, minutes); NaN for "no sample".
    """

    labels: Sequence[Mapping[str, str]]
    values: FloatArray

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes, in order."""
        return tuple(dict.fromkeys(labels["node"] for labels in self.labels if "node" in labels))


def record(minutes: int, *, seed: int) -> tuple[Run, Recording]:
    """Run the reference scheduler until it has filled and then for some minutes; return it and what it showed."""
    hours = min(24.0, (WARM_UP_MINUTES + minutes) / 60)
    workload = workloads.build(WORKLOAD, seed=seed, hours=hours)
    run = open_run(RUN_LABEL, WORKLOAD, workload.cluster, workload.trace.workload, ClockSettings(), seed=seed)
    times: FloatArray = (WARM_UP_MINUTES + np.arange(minutes, dtype=np.float64)) * MINUTE_SECONDS
    values = run.advance(times, closes_window=False)
    return run, Recording([dict(pairs) for pairs in run.exposition.labels], values)


class Fleet:
    """The series of a cluster of some size, made of a recording.

    Attributes:
        cluster_labels: Labels of the series of the cluster as a whole.
        node_labels: Labels of the series of its nodes, family by family.
    """

    def __init__(self, recording: Recording, *, nodes: int, seed: int) -> None:
        """Lay out the series.

        Args:
            recording: What is multiplied.
            nodes: Nodes of the cluster.
            seed: Of which node is like which recorded one.
        """
        random = np.random.default_rng(seed)
        recorded = recording.nodes
        self._source = np.arange(nodes) % len(recorded)
        self._shift = random.integers(MAX_SHIFT_MINUTES + 1, size=nodes)
        self._speed = random.uniform(LEAST_SPEED, 1.0, nodes)
        whole = [row for row, labels in enumerate(recording.labels) if "node" not in labels]
        self.cluster_labels: Final = [recording.labels[row] for row in whole]
        growth = np.where([_grows(labels) for labels in self.cluster_labels], nodes / len(recorded), 1.0)
        self._cluster: Final[FloatArray] = recording.values[whole] * growth[:, None]
        self._families: Final = _by_family(recording)
        self.node_labels: Final = [
            {**recording.labels[rows[0]], "node": f"n{node:05d}"}
            for rows in self._families.values()
            for node in range(nodes)
        ]
        self._recorded: Final = recording.values

    @property
    def minutes(self) -> int:
        """Minutes for which there are values."""
        return int(self._cluster.shape[1]) - MAX_SHIFT_MINUTES

    def cluster_values(self, first: int, last: int) -> FloatArray:
        """Return the values of the cluster's series in some minutes, the last one left out."""
        return self._cluster[:, first:last]

    def node_values(self, first: int, last: int) -> FloatArray:
        """Return the values of the nodes' series in some minutes, the last one left out."""
        at: NDArray[np.int64] = np.arange(first, last) + self._shift[:, None]
        parts = []
        for family, rows in self._families.items():
            speed = 1.0 if family == _SAME_ON_ALL_NODES else self._speed[:, None]
            parts.append(self._recorded[rows[self._source][:, None], at] * speed)
        return np.concatenate(parts)


def _grows(labels: Mapping[str, str]) -> bool:
    """Say whether a series grows with the cluster."""
    return labels["__name__"].endswith(_GROWING_SUFFIXES) or labels["__name__"] in _GROWING_GAUGES


def _by_family(recording: Recording) -> dict[str, NDArray[np.int64]]:
    """Return the rows of each family that is per node, in the order of the nodes."""
    rows: dict[str, dict[str, int]] = {}
    for row, labels in enumerate(recording.labels):
        if "node" in labels:
            rows.setdefault(labels["__name__"], {})[labels["node"]] = row
    return {family: np.array([found[node] for node in recording.nodes]) for family, found in rows.items()}


class Feeder:
    """Writes a fleet's series into a store, minute after minute."""

    def __init__(self, fleet: Fleet, writer: RemoteWriter) -> None:
        """Begin at minute 0."""
        self._fleet = fleet
        self._writer = writer
        self._cluster = SeriesBlock(fleet.cluster_labels)
        self._nodes = SeriesBlock(fleet.node_labels)
        self._next = 0

    @property
    def series(self) -> int:
        """Series of the cluster and of its nodes."""
        return len(self._cluster) + len(self._nodes)

    def write(self, until: int, *, nodes_from: int = 0) -> int:
        """Write up to a minute, which is left out; return how many samples the store has taken so far.

        Args:
            until: Minute at which to stop.
            nodes_from: Minute before which the nodes are left out, so that a long history costs less to make.
        """
        step = min(max(1, PUSH_SAMPLES // self.series), PUSH_MINUTES)
        for first in range(self._next, until, step):
            last = min(first + step, until)
            self._push(self._cluster, first, self._fleet.cluster_values(first, last))
            begin = max(first, nodes_from)
            if begin < last:
                self._push(self._nodes, begin, self._fleet.node_values(begin, last))
        self._next = max(self._next, until)
        return self._writer.written.samples

    def _push(self, block: SeriesBlock, first: int, values: FloatArray) -> None:
        times = START_AT_SECONDS + np.arange(first, first + values.shape[1]) * MINUTE_SECONDS
        self._writer.write(block, times, values)


def main(arguments: list[str] | None = None) -> None:
    """Serve one fleet: the page with its settings until standard input ends, and its series as far as it says."""
    parser = argparse.ArgumentParser(description="A cluster for the benchmark of the cycle.")
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--minutes", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--write-url", required=True)
    options = parser.parse_args(arguments)
    run, recording = record(options.minutes + MAX_SHIFT_MINUTES, seed=options.seed)
    feeder = Feeder(Fleet(recording, nodes=options.nodes, seed=options.seed), RemoteWriter(options.write_url))
    page = serving.start(application(run, ClockSettings()), listen="127.0.0.1:0")
    try:
        _say({"url": page.url, "series": feeder.series})
        for line in sys.stdin:
            _say({"samples": feeder.write(**json.loads(line))})
    finally:
        page.stop()


def _say(document: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(document, allow_nan=False) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
