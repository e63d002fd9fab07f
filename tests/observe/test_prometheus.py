"""What the Prometheus source makes of servers that misbehave."""

import json
import socket
import time
from typing import Any

import numpy as np
import pytest

from tests.support.faulty import Handler, Reply, Request, answer, faulty_server
from tuner.errors import QueryRejected, QueryTooLarge, SourceUnavailable, TunerError
from tuner.observe.prometheus import PrometheusSource
from tuner.settings.model import SourceSettings

AT = 1_796_067_600.0


def source(url: str, **settings: Any) -> PrometheusSource:
    return PrometheusSource(SourceSettings.model_validate({"url": url, "timeout_seconds": 5.0, **settings}))


def reply(status: int, body: bytes, **headers: str) -> Reply:
    return lambda handler, _: answer(handler, status, body, **headers)


def vector(*values: str, **extra: Any) -> Reply:
    result = [{"metric": {"series": str(index)}, "value": [AT, value]} for index, value in enumerate(values)]
    document = {"status": "success", "data": {"resultType": "vector", "result": result}, **extra}
    return reply(200, json.dumps(document, separators=(",", ":")).encode())


def error(status: int, kind: str, text: str) -> Reply:
    return reply(status, json.dumps({"status": "error", "errorType": kind, "error": text}).encode())


def hang(handler: Handler, _: Request) -> None:
    handler.connection.settimeout(20)
    handler.rfile.read(1)  # Ends when the client hangs up.


def drip_headers(handler: Handler, _: Request) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    drip(handler, b"X-Slow: 1\r\n")


def drip_body(handler: Handler, _: Request) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    drip(handler, b" ")


def drip_without_length(handler: Handler, _: Request) -> None:
    handler.close_connection = True
    handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
    drip(handler, b" ")


def drip(handler: Handler, piece: bytes) -> None:
    for _ in range(1000):
        handler.wfile.write(piece)
        handler.wfile.flush()
        time.sleep(0.01)


def cut_body(handler: Handler, _: Request) -> None:
    handler.close_connection = True
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"status":')


def cut_connection(handler: Handler, _: Request) -> None:
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("served", "expected", "message"),
    [
        (error(400, "bad_data", "1:9: parse error"), QueryRejected, "answers 400: 1:9: parse error"),
        (error(422, "execution", "many-to-many matching not allowed"), QueryRejected, "many-to-many"),
        (reply(414, b"URI too long"), QueryRejected, "answers 414: URI too long"),
        (error(422, "execution", "query processing would load too many samples"), QueryTooLarge, "too many samples"),
        (error(503, "timeout", "query timed out"), SourceUnavailable, "answers 503: query timed out"),
        (reply(500, b"\xff\xfe oops"), SourceUnavailable, "answers 500"),
        (reply(401, b"who are you"), SourceUnavailable, "check source.url"),
        (reply(404, b"page not found"), SourceUnavailable, "check source.url"),
        (reply(302, b"", Location="https://login.example/"), SourceUnavailable, "redirects to https://login.example/"),
        (reply(200, b"<html>please log in</html>", Content_Type="text/html"), SourceUnavailable, "please log in"),
        (error(200, "bad_data", "parse error after all"), QueryRejected, "parse error after all"),
        (error(200, "internal", "disk full"), SourceUnavailable, "disk full"),
        (reply(200, b""), SourceUnavailable, "nothing that Prometheus would say"),
        (reply(200, b"[" * 100_000), SourceUnavailable, "nothing that Prometheus would say"),
        (reply(200, b'{"status":"success","data":null}'), SourceUnavailable, "nothing that Prometheus would say"),
        (reply(200, b'{"status":"success","data":{"result":[{"metric":{}}]}}'), SourceUnavailable, "KeyError"),
        (reply(200, b'{"status":"success","data":{"result":[7]}}'), SourceUnavailable, "nothing that Prometheus"),
        (reply(200, b'{"status":"success","data":{"result":{"a":1}}}'), SourceUnavailable, "nothing that Prometheus"),
        (reply(200, b'{"data":{"result":[{"metric":{},"value":[1,"x"]}]}}'), SourceUnavailable, "nothing that"),
        (reply(200, b'{"data":{"result":[{"metric":{},"histogram":[1,{}]}]}}'), QueryRejected, "native histograms"),
        (reply(200, b'{"data":{"result":[1796067600,"some text"]}}'), QueryRejected, "some text"),
        (cut_body, SourceUnavailable, ""),
        (cut_connection, SourceUnavailable, ""),
    ],
)
def test_every_family_of_failure_becomes_one_of_ours(served: Reply, expected: type[TunerError], message: str) -> None:
    with faulty_server(served) as server, pytest.raises(expected) as caught:
        source(server.url, retries=0).instant("up", at_seconds=AT)

    assert message in str(caught.value)


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"

        with pytest.raises(SourceUnavailable):
            source(url, retries=0).instant("up", at_seconds=AT)


@pytest.mark.parametrize("served", [hang, drip_headers, drip_body, drip_without_length])
def test_a_deadline_holds_wherever_the_server_dawdles(served: Reply) -> None:
    with faulty_server(served) as server:
        started = time.monotonic()
        with pytest.raises(SourceUnavailable, match=r"did not answer within 0\.3 s"):
            source(server.url, timeout_seconds=0.3, retries=3).instant("up", at_seconds=AT)
        took = time.monotonic() - started

    assert took < 5.0, "ten seconds is what the dripping server takes to finish"
    assert len(server.requests) == 1, "a second try would have begun after the deadline"


@pytest.mark.parametrize("first", [reply(503, b""), reply(429, b"", Retry_After="0"), reply(502, b""), cut_connection])
def test_a_hiccup_is_tried_again(first: Reply) -> None:
    with faulty_server(first, vector("3")) as server:
        found = source(server.url, retries=1).instant("up", at_seconds=AT)

    assert found.series[0].values.tolist() == [3.0]
    assert found.queries == 2


def test_no_more_tries_are_made_than_allowed() -> None:
    with faulty_server(reply(503, b"busy")) as server, pytest.raises(SourceUnavailable, match="busy"):
        source(server.url, retries=2).instant("up", at_seconds=AT)

    assert len(server.requests) == 3


def test_a_server_that_asks_for_more_patience_than_there_is_time_is_not_waited_for() -> None:
    patient = reply(503, b"", Retry_After="3600")
    with faulty_server(patient, vector("3")) as server, pytest.raises(SourceUnavailable):
        source(server.url, retries=3).instant("up", at_seconds=AT)

    assert len(server.requests) == 1


def test_a_wrong_query_is_not_tried_again() -> None:
    with faulty_server(error(400, "bad_data", "no")) as server, pytest.raises(QueryRejected):
        source(server.url, retries=3).instant("up", at_seconds=AT)

    assert len(server.requests) == 1


def test_long_expressions_travel_in_the_body_with_the_time_of_evaluation() -> None:
    expression = " or ".join(f"metric_{index}" for index in range(5000))
    with faulty_server(vector("1")) as server:
        source(server.url).instant(expression, at_seconds=AT + 0.25)

    (request,) = server.requests
    assert (request.method, request.path, request.url_parameters) == ("POST", "/api/v1/query", {})
    assert request.body_parameters["query"] == expression
    assert request.body_parameters["time"] == f"{AT + 0.25:.3f}"


def test_ranges_keep_fractions_of_seconds() -> None:
    with faulty_server(vector()) as server:
        source(server.url).range("up", start_seconds=AT + 0.5, end_seconds=AT + 60.5, step_seconds=0.5)

    sent = server.requests[0].body_parameters
    assert (sent["start"], sent["end"], sent["step"]) == (f"{AT + 0.5:.3f}", f"{AT + 60.5:.3f}", "0.5")


def test_values_that_are_not_finite_are_passed_on_for_the_reader_to_judge() -> None:
    with faulty_server(vector("NaN", "+Inf", "-Inf", "1e-3")) as server:
        found = source(server.url).instant("x", at_seconds=AT)

    values = [series.values[0] for series in found]
    np.testing.assert_array_equal(values, [np.nan, np.inf, -np.inf, 0.001])


@pytest.mark.parametrize(
    ("extra", "warnings"),
    [
        ({}, ()),
        ({"warnings": []}, ()),
        ({"infos": ["metric might not be a counter"]}, ()),
        ({"warnings": ["store b did not answer", "c neither"]}, ("store b did not answer", "c neither")),
        ({"isPartial": True}, ("the answer is partial",)),
        ({"isPartial": False}, ()),
    ],
)
def test_what_a_server_says_against_its_own_answer_is_kept(extra: dict[str, Any], warnings: tuple[str, ...]) -> None:
    with faulty_server(vector("1", **extra)) as server:
        found = source(server.url).instant("x", at_seconds=AT)

    assert found.warnings == warnings
    assert found.partial == bool(warnings)


def test_more_series_than_allowed_are_refused_with_what_to_do() -> None:
    with faulty_server(vector(*["1"] * 50)) as server:
        with pytest.raises(QueryTooLarge, match=r"50 series, over source\.max_series \(49\): aggregate"):
            source(server.url, max_series=49).instant("x", at_seconds=AT)
        assert len(source(server.url, max_series=50).instant("x", at_seconds=AT)) == 50


def test_an_answer_without_end_is_refused() -> None:
    def flood(handler: Handler, _: Request) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(1 << 40))
        handler.end_headers()
        for _count in range(1000):
            handler.wfile.write(b" " * (1 << 20))

    with faulty_server(flood) as server, pytest.raises(QueryTooLarge, match="more than 32 MiB"):
        source(server.url, timeout_seconds=30).instant("x", at_seconds=AT)


def matrix(handler: Handler, request: Request) -> None:
    """Answer a range query with the time of each point as its value."""
    sent = {name: float(request.body_parameters[name]) for name in ("start", "end", "step")}
    times = np.arange(sent["start"], sent["end"] + 1e-6, sent["step"])
    result = [{"metric": {"job": "a"}, "values": [[time, f"{time - AT}"] for time in times.tolist()]}]
    answer(handler, 200, json.dumps({"status": "success", "data": {"result": result}}).encode())


def test_thirty_days_at_fifteen_seconds_are_read_in_pieces_of_which_each_instant_comes_once() -> None:
    with faulty_server(matrix) as server:
        found = source(server.url).range("x", start_seconds=AT, end_seconds=AT + 30 * 86_400, step_seconds=15)

    (series,) = found.series
    np.testing.assert_allclose(series.times_seconds, AT + 15 * np.arange(172_801))
    np.testing.assert_allclose(series.values, 15 * np.arange(172_801))
    assert found.queries == len(server.requests) == 18
    assert found.duplicates == 0


def test_a_range_is_halved_while_the_server_says_that_it_is_too_much() -> None:
    def limited(handler: Handler, request: Request) -> None:
        sent = {name: float(request.body_parameters[name]) for name in ("start", "end", "step")}
        if (sent["end"] - sent["start"]) / sent["step"] >= 25:
            error(422, "execution", "query processing would load too many samples into memory")(handler, request)
        else:
            matrix(handler, request)

    with faulty_server(limited) as server:
        found = source(server.url).range("x", start_seconds=AT, end_seconds=AT + 59 * 60, step_seconds=60)

    (series,) = found.series
    np.testing.assert_allclose(series.times_seconds, AT + 60 * np.arange(60))
    assert found.queries == len(server.requests) == 7, "60, 30, 15, 15, 30, 15, 15 points"


def test_halving_ends_with_the_reason() -> None:
    always = error(422, "execution", "query processing would load too many samples into memory")
    reason = r"too many samples.*after halving the range 5 times"
    with faulty_server(always) as server, pytest.raises(QueryTooLarge, match=reason):
        source(server.url).range("x", start_seconds=AT, end_seconds=AT + 86_400, step_seconds=60)

    assert len(server.requests) == 6


def test_a_series_that_comes_twice_is_merged_and_counted() -> None:
    pairs = [[AT, "1"], [AT + 60, "2"], [AT + 60, "3"]]
    result = [{"metric": {"a": "b"}, "values": pairs}, {"metric": {"a": "b"}, "values": [[AT + 30, "9"]]}]
    body = json.dumps({"status": "success", "data": {"result": result}}).encode()
    with faulty_server(reply(200, body)) as server:
        found = source(server.url).range("x", start_seconds=AT, end_seconds=AT + 60, step_seconds=30)

    (series,) = found.series
    assert (series.times_seconds - AT).tolist() == [0.0, 30.0, 60.0]
    assert series.values.tolist() == [1.0, 9.0, 3.0]
    assert found.duplicates == 1


@pytest.mark.parametrize("ahead_seconds", [-43_200.0, 0.0, 43_200.0])
def test_the_difference_of_the_clocks_is_told(ahead_seconds: float) -> None:
    settings = {"url": "", "timeout_seconds": 5.0}
    with faulty_server(vector("1")) as server:
        skewed = PrometheusSource(
            SourceSettings.model_validate(settings | {"url": server.url}), clock=lambda: time.time() - ahead_seconds
        )
        found = skewed.instant("x", at_seconds=AT)

    assert found.clock_offset_seconds == pytest.approx(ahead_seconds, abs=5.0)


def test_credentials_in_the_url_are_sent_and_never_shown() -> None:
    with faulty_server(reply(401, b"no")) as server:
        url = server.url.replace("http://", "http://user:hunter2@")
        with pytest.raises(SourceUnavailable) as caught:
            source(url, retries=0).instant("x", at_seconds=AT)

    assert "hunter2" not in str(caught.value)
