"""Remote write 0.1.0: puts samples with times of our choosing into a Prometheus-compatible server.

The request is a snappy block around a protobuf message, both written by hand: the message has three nested types
(prometheus/prompb: WriteRequest { TimeSeries { Label, Sample } }), and a snappy block may consist of one literal, which
is as fast on loopback as real compression. What costs is packing, so label bytes are encoded once per series and
samples of a whole push are packed by numpy.

One bad sample makes the server refuse its whole request, good samples included. Times that do not advance are
therefore dropped and counted here, series by series, before anything is sent.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import requests
from numpy.typing import ArrayLike, NDArray

from tuner.errors import PermanentError, SourceUnavailable

Labels: TypeAlias = Mapping[str, str]
"""Labels of one series, the metric's name under `__name__`."""

_HEADERS: Final = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}

_STALE_BITS: Final = 0x7FF0_0000_0000_0002
"""The NaN that tells Prometheus that a series has ended (prometheus/model/value: StaleNaN)."""

_REQUEST_BYTES: Final = 4 << 20
"""Size of one request, below the 32 MB at which receivers refuse."""


class WriteRejected(PermanentError):
    """The server refuses the samples: out of order, out of bounds, or not understood."""

    reason = "write_rejected"


@dataclass(slots=True)
class Written:
    """What a writer has done so far.

    Attributes:
        requests: Requests that were accepted.
        samples: Samples sent and accepted, markers of ended series included.
        dropped: Samples not sent because their time did not advance.
    """

    requests: int = 0
    samples: int = 0
    dropped: int = 0


class SeriesBlock:
    """Series that are written together, with their labels encoded once.

    Remembers the newest time of each, so a series must live in one block only.
    """

    def __init__(self, labels: Sequence[Labels]) -> None:
        """Encode the labels.

        Args:
            labels: One mapping a series; each with `__name__`. Empty values are left out, as Prometheus does.

        Raises:
            ValueError: A series has no name, or stands twice.
        """
        self.labels: Final = tuple(labels)
        self.encoded: Final = tuple(encode_labels(each) for each in labels)
        if len(set(self.encoded)) < len(self.encoded):
            raise ValueError("two series of a block have the same labels")
        self.newest_ms: Final = np.full(len(self.encoded), np.iinfo(np.int64).min)
        self.alive: Final = np.zeros(len(self.encoded), dtype=np.bool_)
        self._heads: dict[int, list[bytes]] = {}

    def __len__(self) -> int:
        """Return the number of series."""
        return len(self.encoded)

    def heads(self, sample_bytes: int) -> list[bytes]:
        """Return, for each series, the bytes that stand before samples of a given length."""
        if sample_bytes not in self._heads:
            self._heads[sample_bytes] = [series_head(labels, sample_bytes) for labels in self.encoded]
        return self._heads[sample_bytes]


class RemoteWriter:
    """Sends samples to one server."""

    def __init__(self, url: str, *, timeout_seconds: float = 30.0) -> None:
        """Remember where to write.

        Args:
            url: The receiver, for example `http://127.0.0.1:9090/api/v1/write`.
            timeout_seconds: Limit for connecting, and for each wait for an answer.
        """
        self.written: Final = Written()
        self._url = url
        self._timeout_seconds = timeout_seconds
        self._session = requests.Session()
        self._session.trust_env = False

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def write(self, block: SeriesBlock, times_seconds: ArrayLike, values: ArrayLike) -> None:
        """Send one value a series and time.

        NaN is "no sample" and is not sent; where it follows a value, a marker says that the series ended, so that no
        query carries the last value on. Infinities are legal samples.

        Args:
            block: N series.
            times_seconds: Shape (T,), Unix seconds; kept to the millisecond.
            values: Shape (N, T).

        Raises:
            SourceUnavailable: The server cannot be reached, or answers 5xx or 429.
            WriteRejected: The server refuses the samples.
            ValueError: Shapes disagree.
        """
        times_ms = np.rint(np.asarray(times_seconds, dtype=np.float64) * 1000.0).astype(np.int64)
        grid = np.array(values, dtype=np.float64)  # A copy: markers are written into it.
        if grid.shape != (len(block), len(times_ms)):
            raise ValueError(f"{len(block)} series and {len(times_ms)} times, but values of shape {grid.shape}")
        wanted = _mark_ended(grid, alive=block.alive)
        sent = wanted & _advancing(times_ms, block.newest_ms)
        self.written.dropped += int(wanted.sum() - sent.sum())
        for body, rows in _requests(block, times_ms, grid, sent):
            self._post(body)
            self.written.requests += 1
            self.written.samples += int(sent[rows].sum())
            _remember(block, times_ms, grid, sent, rows)

    def _post(self, body: bytes) -> None:
        try:
            answer = self._session.post(
                self._url, data=snappy_literal(body), headers=_HEADERS, timeout=self._timeout_seconds
            )
        except requests.RequestException as error:
            raise SourceUnavailable(f"remote write to {self._url} failed: {error}") from error
        if answer.ok:
            return
        detail = f"remote write to {self._url} answered {answer.status_code}: {answer.text.strip()[:300]}"
        if answer.status_code >= 500 or answer.status_code == requests.codes.too_many_requests:
            raise SourceUnavailable(detail)
        raise WriteRejected(detail)


def _mark_ended(grid: NDArray[np.float64], *, alive: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Write end markers over the first NaN after a value; return what is to be sent."""
    present = ~np.isnan(grid)
    before = np.concatenate([alive[:, None], present[:, :-1]], axis=1)
    ended = before & ~present
    grid.view(np.uint64)[ended] = _STALE_BITS
    wanted: NDArray[np.bool_] = present | ended
    return wanted


def _advancing(times_ms: NDArray[np.int64], newest_ms: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say which times are later than all before them, in this push and in the ones before."""
    before = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(times_ms)[:-1]])
    later: NDArray[np.bool_] = (times_ms > before)[None, :] & (times_ms[None, :] > newest_ms[:, None])
    return later


def _remember(
    block: SeriesBlock,
    times_ms: NDArray[np.int64],
    grid: NDArray[np.float64],
    sent: NDArray[np.bool_],
    rows: slice,
) -> None:
    part = sent[rows]
    newest = np.where(part, times_ms[None, :], np.iinfo(np.int64).min).max(axis=1)
    np.maximum(block.newest_ms[rows], newest, out=block.newest_ms[rows])
    last = part.shape[1] - 1 - part[:, ::-1].argmax(axis=1)
    ends_with_value = ~np.isnan(grid[rows][np.arange(len(part)), last])
    block.alive[rows] = np.where(part.any(axis=1), ends_with_value, block.alive[rows])


def _requests(
    block: SeriesBlock, times_ms: NDArray[np.int64], grid: NDArray[np.float64], sent: NDArray[np.bool_]
) -> Iterator[tuple[bytes, slice]]:
    """Pack what is to be sent into requests of a bounded size; yields them with the series they hold."""
    if not len(times_ms):
        return
    samples, owner = _pack_samples(times_ms, grid)
    label_bytes = sum(map(len, block.encoded)) // max(len(block), 1)
    step = max(1, _REQUEST_BYTES // (samples.shape[1] + label_bytes + 10))
    for start in range(0, len(block), step):
        rows = slice(start, min(start + step, len(block)))
        body = _pack_series(block, samples, owner, sent, rows)
        if body:
            yield body, rows


def _pack_samples(times_ms: NDArray[np.int64], grid: NDArray[np.float64]) -> tuple[NDArray[np.uint8], NDArray[np.intp]]:
    """Return the bytes of all samples, shape (series, bytes), and the column of `grid` that each byte belongs to.

    A sample is `12 <length> 09 <8 bytes: double, little endian> 10 <varint: milliseconds>`.
    """
    tails = [b"\x10" + varint(int(time)) for time in times_ms]
    sizes = [2 + 9 + len(tail) for tail in tails]
    packed = np.empty((len(grid), sum(sizes)), dtype=np.uint8)
    raw = np.ascontiguousarray(grid.T).astype("<f8").view(np.uint8).reshape(grid.shape[1], len(grid), 8)
    offset = 0
    for column, (tail, size) in enumerate(zip(tails, sizes, strict=True)):
        packed[:, offset : offset + 3] = (0x12, size - 2, 0x09)
        packed[:, offset + 3 : offset + 11] = raw[column]
        packed[:, offset + 11 : offset + size] = np.frombuffer(tail, dtype=np.uint8)
        offset += size
    return packed, np.repeat(np.arange(len(sizes)), sizes)


def _pack_series(
    block: SeriesBlock,
    samples: NDArray[np.uint8],
    owner: NDArray[np.intp],
    sent: NDArray[np.bool_],
    rows: slice,
) -> bytes:
    """Return the message of some series, without the samples that are not to be sent."""
    width = samples.shape[1]
    whole = memoryview(samples[rows].tobytes())
    heads = block.heads(width)[rows]
    parts: list[bytes | memoryview] = []
    completes: NDArray[np.bool_] = np.all(sent[rows], axis=1)
    for row, complete in enumerate(completes):
        index = rows.start + row
        if complete:
            parts += (heads[row], whole[row * width : (row + 1) * width])
        elif sent[index].any():
            kept = samples[index][sent[index][owner]].tobytes()
            parts += (series_head(block.encoded[index], len(kept)), kept)
    return b"".join(parts)


def encode_labels(labels: Labels) -> bytes:
    """Return the label fields of a series: `0a <length> 0a <length> <name> 12 <length> <value>`, sorted by name.

    Raises:
        ValueError: There is no `__name__`.
    """
    if not labels.get("__name__"):
        raise ValueError(f"a series needs a __name__; got {dict(labels)}")
    parts = []
    for name, value in sorted(labels.items()):
        if value:
            key, text = name.encode(), value.encode()
            pair = b"\x0a" + varint(len(key)) + key + b"\x12" + varint(len(text)) + text
            parts.append(b"\x0a" + varint(len(pair)) + pair)
    return b"".join(parts)


def series_head(labels: bytes, sample_bytes: int) -> bytes:
    """Return what stands before the samples of a series in a WriteRequest."""
    return b"\x0a" + varint(len(labels) + sample_bytes) + labels


def varint(value: int) -> bytes:
    """Return an integer as protobuf does: seven bits a byte, low ones first; negative ones as 64 bits."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def snappy_literal(body: bytes) -> bytes:
    """Return a snappy block that holds a text as one literal (google/snappy: format_description.txt, 2.1)."""
    if not body:
        return b"\x00"
    # Tag 63 << 2: a literal whose length less one follows in four bytes.
    return varint(len(body)) + b"\xfc" + struct.pack("<I", len(body) - 1) + body
