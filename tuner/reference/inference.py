"""Inference requests: from arrivals and tokens to tasks of so many seconds.

Real traces tell when requests came and how many tokens they had, not how long an accelerator worked on them. A
`ServiceModel` says that, with its source. Traces of rates (ServeGen) do not hold single requests: their arrivals are
sampled from rate and variation, with a seed, and their tokens drawn from requests of another trace.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tuner.errors import TraceError
from tuner.reference.tables import Table, read_table
from tuner.reference.trace import Trace, make_trace
from tuner.reference.workload import TaskKind

FloatArray: TypeAlias = NDArray[np.float64]

RATE_WINDOW_SECONDS: Final = 600.0
"""Length of a window in the ServeGen traces."""

MAX_VARIATION: Final = 8.0
"""Largest coefficient of variation that is sampled. The published ones reach 149, where a window held a single burst;
beyond 8 a gamma gap is nearly always zero or the whole window, so that rates are no longer met (assumption)."""


@dataclass(frozen=True, slots=True)
class ServiceModel:
    """How long one accelerator works on a request.

    Attributes:
        prefill_tokens_per_second: Speed of reading the prompt.
        decode_seconds_per_token: Time a generated token takes.
        overhead_seconds: Time a request takes besides its tokens.
        source: Where the figures come from.
    """

    prefill_tokens_per_second: float
    decode_seconds_per_token: float
    overhead_seconds: float
    source: str

    def seconds(self, context_tokens: FloatArray, generated_tokens: FloatArray) -> FloatArray:
        """Return the seconds at full speed for prompts and answers of so many tokens."""
        prefill = context_tokens / self.prefill_tokens_per_second
        return self.overhead_seconds + prefill + generated_tokens * self.decode_seconds_per_token


LLAMA2_70B_H100: Final = ServiceModel(
    prefill_tokens_per_second=6500.0,
    decode_seconds_per_token=0.0374,
    overhead_seconds=0.0,
    source=(
        "Llama-2 70B on two H100 80GB, one request at a time: 158 ms for a prompt of 1,024 tokens, 37.4 ms a token "
        "(measurements in data/perf_model.csv of Mutinifni/splitwise-sim; Splitwise, ISCA 2024). "
        "Assumed: the pair counts as one accelerator; requests share it by slices, not by batches"
    ),
)


@dataclass(frozen=True, slots=True)
class Requests:
    """Inference requests in order of arrival.

    Attributes:
        at_seconds: Arrival, seconds from the start of the trace, shape (requests,).
        context_tokens: Length of the prompt, shape (requests,).
        generated_tokens: Length of the answer, shape (requests,).
        model: Number of the model that answers, shape (requests,).
    """

    at_seconds: FloatArray
    context_tokens: FloatArray
    generated_tokens: FloatArray
    model: NDArray[np.int64]

    def between(self, start_ratio: float, end_ratio: float) -> "Requests":
        """Return the requests of a part of the time that the trace spans, times unchanged."""
        span = self.at_seconds[-1] - self.at_seconds[0]
        low, high = self.at_seconds[0] + start_ratio * span, self.at_seconds[0] + end_ratio * span
        keep = (self.at_seconds >= low) & (self.at_seconds <= high)
        return Requests(self.at_seconds[keep], self.context_tokens[keep], self.generated_tokens[keep], self.model[keep])


def read_azure(path: Path) -> Requests:
    """Read requests of the Azure LLM inference traces: `TIMESTAMP`, `ContextTokens`, `GeneratedTokens`.

    Raises:
        TraceError: The file cannot be read or a value breaks the format.
    """
    table = read_table(path)
    table.require("TIMESTAMP", "ContextTokens", "GeneratedTokens")
    return _requests(table.timestamps("TIMESTAMP"), _tokens(table, "ContextTokens"), _tokens(table, "GeneratedTokens"))


def read_mooncake(path: Path) -> Requests:
    """Read requests of the Mooncake traces: `timestamp_ms`, `input_length`, `output_length`.

    Raises:
        TraceError: The file cannot be read or a value breaks the format.
    """
    table = read_table(path)
    table.require("timestamp_ms", "input_length", "output_length")
    at_seconds = table.numbers("timestamp_ms", low=0) / 1000.0
    return _requests(at_seconds, _tokens(table, "input_length"), _tokens(table, "output_length"))


def _tokens(table: Table, field: str) -> FloatArray:
    return table.numbers(field, low=0, whole=True)


def _requests(at_seconds: FloatArray, context: FloatArray, generated: FloatArray) -> Requests:
    order = np.argsort(at_seconds, kind="stable")
    model = np.zeros(len(order), dtype=np.int64)
    return Requests(at_seconds[order] - at_seconds[order[0]], context[order], generated[order], model)


@dataclass(frozen=True, slots=True)
class Rates:
    """Request rates of clients in windows of `RATE_WINDOW_SECONDS`.

    Attributes:
        client: Number of the client, shape (rows,); rows are sorted by client and time.
        start_seconds: Start of the window, shape (rows,); windows that are missing had no request.
        rate_per_second: Mean rate in the window, shape (rows,).
        variation: Coefficient of variation of the times between arrivals, shape (rows,).
    """

    client: NDArray[np.int64]
    start_seconds: FloatArray
    rate_per_second: FloatArray
    variation: FloatArray

    @property
    def clients(self) -> list[int]:
        """Numbers of the clients, ascending."""
        return [int(client) for client in np.unique(self.client)]

    def between(self, start_seconds: float, end_seconds: float) -> "Rates":
        """Return the windows that begin in [start, end), counted from the new start."""
        cut = self.where((self.start_seconds >= start_seconds) & (self.start_seconds < end_seconds))
        return replace(cut, start_seconds=cut.start_seconds - start_seconds)

    def expected(self) -> float:
        """Return how many requests all windows together stand for."""
        return float(self.rate_per_second.sum() * RATE_WINDOW_SECONDS)

    def smallest(self, requests: float) -> "Rates":
        """Return the fewest clients, smallest first, that together send so many requests; all where they send fewer."""
        totals = np.array([self.rate_per_second[self.client == client].sum() for client in self.clients])
        order = np.argsort(totals, kind="stable")
        enough = int(np.searchsorted(np.cumsum(totals[order]) * RATE_WINDOW_SECONDS, requests)) + 1
        return self.where(np.isin(self.client, np.array(self.clients)[order[:enough]]))

    def where(self, keep: NDArray[np.bool_]) -> "Rates":
        """Return the windows that a mask keeps."""
        return Rates(self.client[keep], self.start_seconds[keep], self.rate_per_second[keep], self.variation[keep])


def read_servegen(path: Path) -> Rates:
    """Read rates of the ServeGen traces: `client`, `t_s`, `rate_rps`, `cv`.

    Raises:
        TraceError: The file cannot be read, a value breaks the format, or a window stands twice.
    """
    table = read_table(path)
    table.require("client", "t_s", "rate_rps", "cv")
    client = table.numbers("client", low=0, whole=True).astype(np.int64)
    start = table.numbers("t_s", low=0)
    rate, variation = table.numbers("rate_rps", low=0), table.numbers("cv", low=0)
    order = np.lexsort((start, client))
    twice = (np.diff(client[order]) == 0) & (np.diff(start[order]) < RATE_WINDOW_SECONDS)
    if twice.any():
        row = int(order[int(np.argmax(twice)) + 1])
        raise table.error(row, "t_s", f"{RATE_WINDOW_SECONDS:g} s after the client's window before it")
    return Rates(client[order], start[order], rate[order], variation[order])


def sample_arrivals(rates: Rates, *, seed: int, scale: float = 1.0) -> tuple[FloatArray, NDArray[np.int64]]:
    """Sample when requests arrive.

    Each client is a renewal process with gamma gaps in operational time (the integral of its rate), as in ServeGen
    (arXiv 2505.09999); a gap that outlasts its window goes on in the next, so that the rates are met on average.

    Args:
        rates: The windows.
        seed: Seed of all randomness; clients have streams of their own, so that leaving one out changes no other.
        scale: Factor on all rates, over 0.

    Returns:
        Times in seconds, ascending, and the client of each.
    """
    times, owners = [], []
    for client in rates.clients:
        mine = rates.where(rates.client == client)
        arrivals = _sample_client(mine, np.random.default_rng([seed, client]), scale)
        times.append(arrivals)
        owners.append(np.full(len(arrivals), client, dtype=np.int64))
    at_seconds = np.concatenate(times) if times else np.empty(0)
    client_of = np.concatenate(owners) if owners else np.empty(0, dtype=np.int64)
    order = np.argsort(at_seconds, kind="stable")
    return at_seconds[order], client_of[order]


def _sample_client(rates: Rates, random: np.random.Generator, scale: float) -> FloatArray:
    """Return the arrivals of one client, ascending."""
    parts = []
    ahead = None  # Operational time from the start of the window to the next arrival.
    for start, rate, variation in zip(rates.start_seconds, rates.rate_per_second, rates.variation, strict=True):
        budget = rate * scale * RATE_WINDOW_SECONDS
        shape = 1.0 / min(max(variation, 0.1), MAX_VARIATION) ** 2
        if ahead is None:
            # In equilibrium the gap under way is a length-biased one, and we come upon it anywhere in it.
            ahead = random.gamma(shape + 1.0) / shape * random.random()
        offsets, ahead = _renew(budget, ahead, shape, random)
        if len(offsets):
            parts.append(start + offsets / budget * RATE_WINDOW_SECONDS)
    return np.concatenate(parts) if parts else np.empty(0)


def _renew(budget: float, ahead: float, shape: float, random: np.random.Generator) -> tuple[FloatArray, float]:
    """Return the renewals in an operational time `budget`, the first at `ahead`, and how far the next lies beyond."""
    points = [np.array([ahead])]
    while points[-1][-1] < budget:
        gaps = random.gamma(shape, 1.0 / shape, size=int(budget) + 16)
        points.append(points[-1][-1] + np.cumsum(gaps))
    offsets = np.concatenate(points)
    first_beyond = int(np.searchsorted(offsets, budget))
    return offsets[:first_beyond], float(offsets[first_beyond] - budget)


def with_tokens(
    at_seconds: FloatArray, model: NDArray[np.int64], sources: Sequence[Requests], *, seed: int
) -> Requests:
    """Give sampled arrivals the tokens of real requests.

    Prompt and answer of a request stay together; each model draws from one of the sources, in turn.

    Args:
        at_seconds: Arrivals, ascending.
        model: Number of the model of each.
        sources: Requests to draw from, none empty.
        seed: Seed of the draw.

    Raises:
        TraceError: There is no source, or one holds no request.
    """
    if not sources or not all(len(source.at_seconds) for source in sources):
        raise TraceError("tokens must be drawn from at least one trace, and each must hold a request; give such traces")
    random = np.random.default_rng(seed)
    context, generated = np.empty(len(at_seconds)), np.empty(len(at_seconds))
    for index, source in enumerate(sources):
        mine = np.flatnonzero(model % len(sources) == index)
        drawn = random.integers(len(source.at_seconds), size=len(mine))
        context[mine], generated[mine] = source.context_tokens[drawn], source.generated_tokens[drawn]
    return Requests(at_seconds, context, generated, model)


def request_trace(source: str, requests: Requests, *, service: ServiceModel, share: float) -> Trace:
    """Return requests as tasks.

    Args:
        source: Name of the source.
        requests: The requests; those without any token are left out.
        service: How long an accelerator works on them.
        share: Part of an accelerator's memory that a request holds, over 0 to 1.
    """
    seconds = service.seconds(requests.context_tokens, requests.generated_tokens)
    real = seconds > 0
    return make_trace(
        source,
        submit_seconds=requests.at_seconds[real],
        service_seconds=seconds[real],
        gpus=share,
        kind=TaskKind.INFERENCE,
        model=requests.model[real],
        notes=(service.source, f"assumed: a request holds {share:g} of an accelerator"),
    )
