"""Reads the scheduler's own /metrics page, where there is no Prometheus.

There is no history and no PromQL: each new time that is asked for reads the page once, and what was seen is remembered
for an hour. Expressions are names of series, with labels to choose among them: `name` or `name{label="value"}`.
"""

import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from tuner.errors import QueryRejected, SourceUnavailable
from tuner.observe.decode import too_many_series
from tuner.observe.source import Answer, Series
from tuner.observe.transport import GuardedSession, with_retries
from tuner.settings.model import SourceSettings

LOOKBACK_SECONDS: Final = 300.0
"""How long a sample stands for later times: as in Prometheus, so that a policy means the same with either source."""

MEMORY_SECONDS: Final = 3600.0
"""How long samples are remembered; observers keep their own, and ask for the newest only."""

_CHARACTERS: Final = r'(?:[^"\\\n]|\\.)*'
_SELECTOR: Final = re.compile(
    rf"""(?P<name>[a-zA-Z_:][\w:]*)
    (?:\{{(?P<matchers>\s*(?:[a-zA-Z_]\w*\s*=\s*"{_CHARACTERS}"\s*,?\s*)*)\}})?""",
    re.VERBOSE,
)
_MATCHER: Final = re.compile(rf'([a-zA-Z_]\w*)\s*=\s*"({_CHARACTERS})"')
_ESCAPED: Final = re.compile(r"\\(?:x(?P<code>[0-9a-fA-F]{2})|(?P<sign>.))")

_Samples: TypeAlias = list[tuple[dict[str, str], float]]


@dataclass(frozen=True, slots=True)
class _Page:
    at_seconds: float
    samples: Mapping[str, _Samples]

    def of(self, names: set[str]) -> "_Page":
        """Return the page with some names only."""
        return _Page(self.at_seconds, {name: self.samples[name] for name in names if name in self.samples})


class ScrapeSource:
    """Scrapes one page; one thread at a time."""

    fuses: Final = False

    def __init__(self, settings: SourceSettings, *, clock: Callable[[], float] = time.time) -> None:
        """Prepare; nothing is read yet.

        Args:
            settings: URL of the page, deadline, tries and caps.
            clock: Unix seconds, only compared with the server's clock.
        """
        self._settings = settings
        self._session = GuardedSession(settings.url, token_file=settings.token_file, clock=clock)
        self._pages: deque[_Page] = deque()
        self._asked: set[str] = set()

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def instant(self, expression: str, *, at_seconds: float) -> Answer:
        """Return the newest samples at a time; reads the page where the time is later than the last reading.

        What is read is taken to be of that time, so ask for the present. See `Source` for what it raises.
        """
        name, labels = parse_selector(expression)
        self._asked.add(name)
        queries, size = self._refresh(at_seconds)
        page = self._page_at(at_seconds)
        samples = _matching(page, name, labels) if page else []
        if len(samples) > self._settings.max_series:
            raise too_many_series(len(samples), self._settings.max_series)
        at = np.array([page.at_seconds if page else np.nan])
        series = tuple(Series({"__name__": name, **found}, at, np.array([value])) for found, value in samples)
        offset = self._session.last.clock_offset_seconds if queries else np.nan
        return Answer(series=series, queries=queries, bytes_read=size, clock_offset_seconds=offset)

    def range(self, expression: str, *, start_seconds: float, end_seconds: float, step_seconds: float) -> Answer:
        """Return what was seen in a range, as Prometheus would: the newest sample at each step. Reads nothing anew."""
        name, labels = parse_selector(expression)
        self._asked.add(name)
        found: dict[frozenset[tuple[str, str]], tuple[list[float], list[float]]] = {}
        steps = int((end_seconds - start_seconds) / step_seconds + 1e-9) + 1
        for at in start_seconds + step_seconds * np.arange(steps):
            page = self._page_at(float(at))
            for labels_of, value in _matching(page, name, labels) if page else ():
                times, values = found.setdefault(frozenset(labels_of.items()), ([], []))
                times.append(float(at))
                values.append(value)
        series = tuple(
            Series({"__name__": name, **dict(key)}, np.array(times), np.array(values))
            for key, (times, values) in found.items()
        )
        return Answer(series=series, queries=0)

    def _page_at(self, at_seconds: float) -> _Page | None:
        """Return the newest page that was read at a time or not too long before it."""
        pages = (page for page in reversed(self._pages) if page.at_seconds <= at_seconds)
        page = next(pages, None)
        return page if page and page.at_seconds > at_seconds - LOOKBACK_SECONDS else None

    def _refresh(self, at_seconds: float) -> tuple[int, int]:
        """Read the page if a time is new; return the number of requests and the bytes that it took."""
        if self._pages and at_seconds <= self._pages[-1].at_seconds:
            return 0, 0
        queries = with_retries(self._session, self._settings, self._get)
        body = self._session.last.body
        page = _Page(at_seconds, self._parse(body))
        if self._pages:  # Of the page before, only what anybody has asked for is kept.
            self._pages.append(self._pages.pop().of(self._asked))
        self._pages.append(page)
        while self._pages[0].at_seconds < at_seconds - MEMORY_SECONDS:
            self._pages.popleft()
        return queries, len(body)

    def _get(self, attempt: int) -> int:
        self._session.get(self._settings.url)
        return attempt

    def _parse(self, body: bytes) -> dict[str, _Samples]:
        samples: dict[str, _Samples] = {}
        try:
            for family in text_string_to_metric_families(body.decode()):
                for sample in family.samples:
                    samples.setdefault(sample.name, []).append((sample.labels, float(sample.value)))
        except (ValueError, IndexError, KeyError) as error:
            raise SourceUnavailable(
                f"{self._session.where} answers 200, but no page of metrics ({error}); it starts with "
                f"{body[:80].decode(errors='replace')!r}: check source.url and what stands between"
            ) from error
        return samples


def parse_selector(expression: str) -> tuple[str, dict[str, str]]:
    """Return name and labels of `name` or `name{label="value",...}`.

    Raises:
        QueryRejected: It is neither.
    """
    whole = _SELECTOR.fullmatch(expression.strip())
    if whole is None:
        raise QueryRejected(f'{expression!r} is not the name of a series, or name{{label="value"}}')
    labels = _MATCHER.findall(whole["matchers"] or "")
    return whole["name"], {name: _ESCAPED.sub(_unescape, value) for name, value in labels}


def _unescape(match: re.Match[str]) -> str:
    if match["code"]:
        return chr(int(match["code"], 16))
    return "\n" if match["sign"] == "n" else match["sign"]


def _matching(page: _Page, name: str, labels: Mapping[str, str]) -> _Samples:
    samples: Sequence[tuple[dict[str, str], float]] = page.samples.get(name, ())
    return [(found, value) for found, value in samples if labels.items() <= found.items()]
