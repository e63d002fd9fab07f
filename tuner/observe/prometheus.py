"""Reads a server that speaks Prometheus's API: Prometheus itself, VictoriaMetrics, Thanos, Mimir.

The requests are made by `prometheus-api-client`. What it leaves open is closed here: it has no deadline, retries for
ten seconds where one was asked for, drops `warnings`, pastes POST parameters into the URL, rounds times, and fails in
five families of exceptions.
"""

import json
import math
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException

from tuner.errors import QueryRejected, QueryTooLarge, SourceUnavailable, TunerError
from tuner.observe.decode import decode, join, too_many_series
from tuner.observe.source import Answer
from tuner.observe.transport import GuardedSession, TooManySamples, rejection, with_retries
from tuner.settings.model import SourceSettings

_Result: TypeAlias = list[Any]
"""`data.result` of an answer, as JSON gives it."""

MAX_POINTS: Final = 10_000
"""Points a request asks for; Prometheus refuses more than 11,000."""

_MAX_HALVINGS: Final = 5
"""How often a range is halved when the server says that it is too much; then the reason is given up to the caller."""


class PrometheusSource:
    """Asks a Prometheus-compatible server; one thread at a time."""

    fuses: Final = True

    def __init__(self, settings: SourceSettings, *, clock: Callable[[], float] = time.time) -> None:
        """Prepare; nothing is asked yet.

        Args:
            settings: URL, deadline, tries and caps.
            clock: Unix seconds, only compared with the server's clock.
        """
        url = settings.url.rstrip("/")
        self._settings = settings
        self._session = GuardedSession(url, token_file=settings.token_file, inspect=self._count_series, clock=clock)
        self._api = PrometheusConnect(url=url, session=self._session, method="POST")
        self._session.guard(url)  # PrometheusConnect has mounted an adapter of its own, which retries.

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def instant(self, expression: str, *, at_seconds: float) -> Answer:
        """Evaluate an expression at one time; see `Source`."""

        def ask(options: Mapping[str, str]) -> _Result:
            result: _Result = self._api.custom_query(expression, params={"time": f"{at_seconds:.3f}", **options})
            return _as_series(result)

        return self._ask(ask)

    def range(self, expression: str, *, start_seconds: float, end_seconds: float, step_seconds: float) -> Answer:
        """Evaluate an expression over a range, in pieces where it is long or too much at once; see `Source`."""
        points = math.floor((end_seconds - start_seconds) / step_seconds + 1e-9) + 1
        pieces = [
            self._piece(expression, start_seconds + first * step_seconds, min(MAX_POINTS, points - first), step_seconds)
            for first in range(0, points, MAX_POINTS)
        ]
        return join(pieces)

    def _piece(self, expression: str, start: float, points: int, step: float, halvings: int = 0) -> Answer:
        """Ask for some points, halving while the server says that it is too much."""

        def ask(options: Mapping[str, str]) -> _Result:
            end = start + (points - 1) * step
            result: _Result = self._api.custom_query_range(
                expression,
                start_time=datetime.fromtimestamp(start, UTC),
                end_time=datetime.fromtimestamp(end, UTC),
                step=f"{step:g}",
                # These replace the client's, which are rounded to whole seconds.
                params={"start": f"{start:.3f}", "end": f"{end:.3f}", **options},
            )
            return result

        try:
            return self._ask(ask)
        except TooManySamples as error:
            if points == 1 or halvings == _MAX_HALVINGS:
                raise QueryTooLarge(f"{error}; still so after halving the range {halvings} times") from error
            half = points // 2
            left = self._piece(expression, start, half, step, halvings + 1)
            right = self._piece(expression, start + half * step, points - half, step, halvings + 1)
            return join([left, right], queries=1)

    def _ask(self, ask: Callable[[Mapping[str, str]], _Result]) -> Answer:
        return with_retries(self._session, self._settings, lambda queries: self._try(ask, queries=queries))

    def _try(self, ask: Callable[[Mapping[str, str]], _Result], *, queries: int) -> Answer:
        remaining = self._session.deadline_at - time.monotonic()
        # VictoriaMetrics would answer from a cache that ignores samples written with past times, and hides the newest
        # 30 seconds; Prometheus ignores both options.
        options = {"timeout": f"{max(remaining, 0.001):.3f}", "nocache": "1", "latency_offset": "1ms"}
        try:
            result = ask(options)
            last = self._session.last
            series, duplicates = decode(result)
        except TunerError:
            raise
        except (requests.JSONDecodeError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise self._not_an_answer(error) from error
        except (requests.RequestException, PrometheusApiClientException) as error:
            raise SourceUnavailable(f"{self._session.where}: {error}") from error
        return Answer(
            series=series,
            warnings=_warnings(last.body),
            duplicates=duplicates,
            queries=queries,
            bytes_read=len(last.body),
            clock_offset_seconds=last.clock_offset_seconds,
        )

    def _count_series(self, body: bytes) -> None:
        """Refuse an answer with too many series before it is parsed, which takes ten times its size in memory."""
        count = body.count(b'"metric":{')
        if count > self._settings.max_series:
            raise too_many_series(count, self._settings.max_series)

    def _not_an_answer(self, error: Exception) -> TunerError:
        """Return what a 200 that holds no answer means."""
        body = self._session.last.body
        try:
            document = json.loads(body)
            if document["status"] == "error":
                detail = f"{self._session.where}: {document.get('errorType')}: {document.get('error')}"
                wrong = document.get("errorType") in {"bad_data", "execution"}
                return rejection(detail) if wrong else SourceUnavailable(detail)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass
        start = body[:80].decode(errors="replace")
        return SourceUnavailable(
            f"{self._session.where} answers 200, but nothing that Prometheus would say ({error!r}); it starts with "
            f"{start!r}: check source.url and what stands between"
        )


def _as_series(result: _Result) -> _Result:
    """Return a list of series also where the expression gives a scalar or a text, which come as a bare pair.

    Raises:
        QueryRejected: It gives a text.
    """
    if not result or isinstance(result[0], dict):
        return result
    try:
        float(result[1])
    except (TypeError, ValueError):
        raise QueryRejected(f"the expression gives a text ({result[1]!r}), not numbers") from None
    return [{"metric": {}, "value": result}]


def _warnings(body: bytes) -> tuple[str, ...]:
    """Return what an answer says against itself; most say nothing, and are not parsed a second time."""
    if b'"warnings":[' not in body and b'"isPartial":true' not in body:
        return ()
    document = json.loads(body)
    texts = [str(text) for text in document.get("warnings") or ()]
    if document.get("isPartial"):  # VictoriaMetrics, when one of its storage nodes is down.
        texts.append("the answer is partial")
    return tuple(texts)
