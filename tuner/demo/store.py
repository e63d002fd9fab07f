"""Where the demonstration's samples go: a real Prometheus by remote write, with simulated times."""

from collections.abc import Iterable, Mapping

import numpy as np

from tuner.demo.remote_write import RemoteWriter, SeriesBlock
from tuner.demo.world import START_AT_SECONDS, Run
from tuner.record.exporter import Sample
from tuner.values.stages import FloatArray


class Store:
    """Writes the schedulers' series and the tuner's own."""

    def __init__(self, write_url: str, runs: Mapping[str, Run], *, origin_seconds: float = START_AT_SECONDS) -> None:
        """Lay out the series of every run, whose time 0 is `origin_seconds`.

        Those of the tuner appear as it begins to export them.
        """
        self._origin_seconds = origin_seconds
        self._writer = RemoteWriter(write_url)
        self._blocks = {
            key: SeriesBlock([dict(labels) for labels in run.exposition.labels]) for key, run in runs.items()
        }
        self._tuner: list[tuple[list[int], SeriesBlock]] = []

    @property
    def samples(self) -> int:
        """Samples written so far."""
        return self._writer.written.samples

    def write_run(self, key: str, times_seconds: FloatArray, values: FloatArray) -> None:
        """Write the series of one run, values of shape (series, times); several steps in one push."""
        self._writer.write(self._blocks[key], self._origin_seconds + times_seconds, values)

    def write_tuner(self, samples: Iterable[Sample], at_seconds: float) -> None:
        """Write what the tuner exports of itself, at the time of its cycle.

        The exporter hands out the same mapping for the same series each time, so its identity is a key. Series that
        appear together are written together; one that disappears is marked as ended.
        """
        found = {id(sample.labels): sample for sample in samples}
        known = {key for keys, _ in self._tuner for key in keys}
        new = [key for key in found if key not in known]
        if new:
            self._tuner.append((new, SeriesBlock([found[key].labels for key in new])))
        for keys, block in self._tuner:
            values = [found[key].value if key in found else np.nan for key in keys]
            self._writer.write(block, np.array([at_seconds]), np.array(values)[:, None])

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()
