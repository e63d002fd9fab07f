"""Remote write, read back by an independent snappy and protobuf reader, and by a real Prometheus."""

import math
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import requests
import snappy
from hypothesis import given
from hypothesis import strategies as st

from tests.support.faulty import Handler, Request, answer, faulty_server
from tests.support.servers import running_prometheus
from tuner.demo.remote_write import (
    RemoteWriter,
    SeriesBlock,
    WriteRejected,
    Written,
    encode_labels,
    snappy_literal,
    varint,
)
from tuner.errors import SourceUnavailable

START = 1_796_067_600.0
STALE = struct.pack("<Q", 0x7FF0000000000002)

Decoded = list[tuple[dict[str, str], list[tuple[int, bytes]]]]
"""Labels of each series, and time in milliseconds and raw value of each sample."""


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Read a protobuf message by its wire format: number and value of each field."""
    at = 0
    while at < len(message):
        key, at = read_varint(message, at)
        if key & 7 == 0:
            value, at = read_varint(message, at)
            yield key >> 3, value
        elif key & 7 == 1:
            yield key >> 3, message[at : at + 8]
            at += 8
        else:
            assert key & 7 == 2, f"unknown wire type {key & 7}"
            size, at = read_varint(message, at)
            assert at + size <= len(message)
            yield key >> 3, message[at : at + size]
            at += size


def read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return value, at


def decode(block: bytes) -> Decoded:
    series: Decoded = []
    for number, encoded in fields(snappy.uncompress(block)):
        assert number == 1
        labels: dict[str, str] = {}
        samples = []
        for part, content in fields(encoded):
            inner = dict(fields(content))
            if part == 1:
                labels[inner[1].decode()] = inner[2].decode()
            else:
                assert part == 2
                samples.append((inner[2] - (1 << 64) if inner[2] >> 63 else inner[2], inner[1]))
        assert list(labels) == sorted(labels), "receivers refuse labels that are not sorted"
        series.append((labels, samples))
    return series


class Receiver:
    """A real HTTP server that keeps what it is sent, and answers as it is told."""

    def __init__(self) -> None:
        self.blocks: list[bytes] = []
        self.headers: dict[str, str] = {}
        self.status = 204

    def __enter__(self) -> "Receiver":
        receiver = self

        def keep(handler: Handler, request: Request) -> None:
            receiver.blocks.append(request.body)
            receiver.headers = dict(handler.headers.items())
            answer(handler, receiver.status, b"out of order sample" if receiver.status >= 400 else b"")

        self._server = faulty_server(keep)
        self.writer = RemoteWriter(f"{self._server.__enter__().url}/api/v1/write", timeout_seconds=5)
        return self

    def __exit__(self, *error: object) -> None:
        self.writer.close()
        self._server.__exit__(None, None, None)

    def decoded(self) -> Decoded:
        return [series for block in self.blocks for series in decode(block)]


def block(count: int = 2) -> SeriesBlock:
    return SeriesBlock([{"__name__": "load", "node": f"n{index}"} for index in range(count)])


def plain(decoded: Decoded) -> dict[str, list[tuple[float, float | str]]]:
    """Return seconds after `START` and value of each sample by node; markers of an end as text."""
    return {
        labels["node"]: [
            (time / 1000 - START, "ended" if value == STALE else struct.unpack("<d", value)[0])
            for time, value in samples
        ]
        for labels, samples in decoded
    }


def test_what_is_sent_reads_back_as_it_was_given() -> None:
    with Receiver() as receiver:
        receiver.writer.write(block(), START + np.array([0.0, 15.25]), [[1.5, -2.0], [math.inf, 1e-300]])

        assert plain(receiver.decoded()) == {
            "n0": [(0.0, 1.5), (15.25, -2.0)],
            "n1": [(0.0, math.inf), (15.25, 1e-300)],
        }
        assert receiver.writer.written == Written(requests=1, samples=4, dropped=0)
        assert receiver.headers["Content-Encoding"] == "snappy"
        assert receiver.headers["Content-Type"] == "application/x-protobuf"
        assert receiver.headers["X-Prometheus-Remote-Write-Version"] == "0.1.0"


def test_no_sample_is_not_sent_and_the_end_of_a_series_is_marked_once() -> None:
    series = block()
    with Receiver() as receiver:
        receiver.writer.write(series, START + np.array([0.0, 1.0, 2.0]), [[1, math.nan, math.nan], [math.nan, 2, 3]])
        receiver.writer.write(series, START + np.array([3.0, 4.0]), [[math.nan, 5], [math.nan, math.nan]])

        first, second = (plain(decode(each)) for each in receiver.blocks)
    assert first == {"n0": [(0.0, 1.0), (1.0, "ended")], "n1": [(1.0, 2.0), (2.0, 3.0)]}
    assert second == {"n0": [(4.0, 5.0)], "n1": [(3.0, "ended")]}


def test_nothing_is_sent_where_there_is_nothing() -> None:
    with Receiver() as receiver:
        receiver.writer.write(block(), [START], np.full((2, 1), np.nan))
        receiver.writer.write(block(), [], np.empty((2, 0)))
        receiver.writer.write(SeriesBlock([]), [START], np.empty((0, 1)))

    assert receiver.blocks == []
    assert receiver.writer.written == Written()


def test_times_that_do_not_advance_are_dropped_and_counted_because_one_would_lose_the_whole_request() -> None:
    series = block(1)
    with Receiver() as receiver:
        receiver.writer.write(series, START + np.array([0.0, 2.0, 1.0, 2.0, 3.0]), [[0, 2, 1, 22, 3]])
        receiver.writer.write(series, START + np.array([3.0, 2.5, 4.0]), [[33, 25, 4]])

        assert [plain(decode(each))["n0"] for each in receiver.blocks] == [
            [(0.0, 0.0), (2.0, 2.0), (3.0, 3.0)],
            [(4.0, 4.0)],
        ]
    assert receiver.writer.written == Written(requests=2, samples=4, dropped=4)


def test_what_was_not_accepted_may_be_sent_again() -> None:
    series = block(1)
    with Receiver() as receiver:
        receiver.status = 503
        with pytest.raises(SourceUnavailable, match="503"):
            receiver.writer.write(series, [START], [[1.0]])
        receiver.status = 204
        receiver.writer.write(series, [START], [[1.0]])

    assert receiver.writer.written == Written(requests=1, samples=1, dropped=0)


@pytest.mark.parametrize(
    ("status", "expected"),
    [(400, WriteRejected), (404, WriteRejected), (429, SourceUnavailable), (500, SourceUnavailable)],
)
def test_refusals_are_told_from_a_server_that_is_unwell(status: int, expected: type[Exception]) -> None:
    with Receiver() as receiver:
        receiver.status = status
        with pytest.raises(expected, match=f"{status}: out of order sample"):
            receiver.writer.write(block(1), [START], [[1.0]])


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(SourceUnavailable):
        RemoteWriter("http://127.0.0.1:1/api/v1/write").write(block(1), [START], [[1.0]])


def test_large_pushes_are_split_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.demo.remote_write._REQUEST_BYTES", 1000)
    values = np.arange(200.0).reshape(100, 2)
    with Receiver() as receiver:
        receiver.writer.write(block(100), START + np.array([0.0, 1.0]), values)

        sent = plain(receiver.decoded())
    assert len(receiver.blocks) > 5
    assert max(map(len, receiver.blocks)) < 1100
    assert [[value for _, value in sent[f"n{index}"]] for index in range(100)] == values.tolist()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([{"node": "a"}], "needs a __name__"),
        ([{"__name__": ""}], "needs a __name__"),
        ([{"__name__": "a", "x": ""}, {"__name__": "a"}], "same labels"),
    ],
)
def test_series_that_no_server_would_take_are_refused_at_once(labels: list[dict[str, str]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SeriesBlock(labels)


def test_values_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"2 series and 1 times, but values of shape \(1, 2\)"):
        RemoteWriter("http://127.0.0.1:1").write(block(), [START], [[1.0, 2.0]])


@given(st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 1))
def test_integers_are_written_as_protobuf_reads_them(value: int) -> None:
    encoded = varint(value)

    assert read_varint(encoded, 0) == (value % (1 << 64), len(encoded))


@given(st.binary(max_size=70_000))
def test_any_text_is_a_legal_snappy_block(body: bytes) -> None:
    assert snappy.uncompress(snappy_literal(body)) == body


@given(st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=300), max_size=5))
def test_labels_read_back_without_the_empty_ones(labels: dict[str, str]) -> None:
    named = {**labels, "__name__": "x"}

    found = {}
    for number, pair in fields(encode_labels(named)):
        assert number == 1
        inner = dict(fields(pair))
        found[inner[1].decode()] = inner[2].decode()

    assert found == {name: value for name, value in named.items() if value}


samples = st.floats(width=64) | st.just(math.nan)


@given(
    st.lists(st.lists(samples, min_size=3, max_size=3), min_size=1, max_size=5),
    st.lists(st.integers(min_value=-5, max_value=10**13), min_size=3, max_size=3),
)
def test_whatever_is_given_is_sent_once_or_counted(values: list[list[float]], times_ms: list[int]) -> None:
    from tuner.demo import remote_write as inner  # The packing itself: no server a thousand times.

    series = block(len(values))
    grid = np.array(values)
    times = np.array(times_ms)
    wanted = inner._mark_ended(grid, alive=series.alive)
    sent = wanted & inner._advancing(times, series.newest_ms)
    decoded = [each for body, _ in inner._requests(series, times, grid, sent) for each in decode(snappy_literal(body))]

    found = {(labels["node"], time): value for labels, part in decoded for time, value in part}
    assert len(found) == sum(len(part) for _, part in decoded) == sent.sum()
    for row, column in np.argwhere(sent):
        assert found[f"n{row}", int(times[column])] == struct.pack("<d", grid[row, column])


@pytest.mark.e2e
def test_a_real_prometheus_shows_what_was_written_at_the_times_that_were_given() -> None:
    series = SeriesBlock([{"__name__": "load", "node": f"n{index}", "text": 'ä"\\\n'} for index in range(300)])
    values = np.arange(300.0)[:, None] + np.arange(40) / 100
    values[7, 20:] = np.nan
    with running_prometheus() as server:
        writer = RemoteWriter(server.write_url)
        for step in range(0, 40, 4):
            writer.write(series, START + 15 * np.arange(step, step + 4), values[:, step : step + 4])

        def ask(query: str, at: float) -> Any:
            parameters = {"query": query, "time": str(at)}
            return requests.get(f"{server.url}/api/v1/query", params=parameters, timeout=5).json()["data"]["result"]

        last = {each["metric"]["node"]: float(each["value"][1]) for each in ask("load", START + 15 * 39)}
        counted = ask("count_over_time(load{node='n9'}[10m])", START + 15 * 39)
        text = ask("load{node='n9'}", START)[0]["metric"]["text"]

    assert last == {f"n{index}": pytest.approx(values[index, 39]) for index in range(300) if index != 7}
    assert counted[0]["value"][1] == "40"
    assert text == 'ä"\\\n'
    assert writer.written == Written(requests=10, samples=300 * 40 - 19, dropped=0)
