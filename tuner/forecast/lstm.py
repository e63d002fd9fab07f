"""The pretrained LSTM as a member: loads torch when it is first asked, and steps aside when it cannot answer."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from tuner.errors import ForecastFailed
from tuner.forecast.batch import Batch
from tuner.forecast.features import HORIZON_STEPS, Features, decode, encode
from tuner.values.stages import QUANTILES, FloatArray

if TYPE_CHECKING:
    from tuner.forecast.network import Network

SHIPPED: Final = Path(__file__).parent / "weights" / "lstm.safetensors"
"""Weights that come with the product; `weights/README.md` is their model card."""

EXACT_SERIES: Final = 64
"""Batches up to this size run in float64, so that rounding leaves the same forecasts, and decisions, on machines with
other vector units. Cluster-level fleets, which feed the search, are smaller."""

THREADS: Final = 2
"""Threads that a forecast may take of the machine: the tuner is a guest there."""

SINGLE_SERIES: Final = 1_000
"""Batches up to this size run in one thread: on a busy machine, waiting for a second one costs more than it brings."""

CHUNK_SERIES: Final = 1_250
"""Series that the network sees at once: its working memory grows with them, some thirty kilobytes each."""

REST_CALLS: Final = 30
"""Forecasts for which a network that was too slow is left alone before it is tried again."""


class Lstm:
    """The network over a whole batch of series."""

    name: ClassVar[str] = "lstm"

    def __init__(
        self,
        weights: Path = SHIPPED,
        *,
        deadline_seconds: float = float("inf"),
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Remember where the weights lie; nothing is loaded yet.

        Args:
            weights: File in the safetensors format.
            deadline_seconds: Time that an answer may take; after a slower one the member rests.
            clock: Monotonic seconds; without one, as in replays, there is no deadline.
        """
        self.weights = weights
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._networks: tuple[Network, Network] | None = None
        self._rest = 0

    def forecast(self, batch: Batch) -> FloatArray:
        """Return quantiles, shape (series, horizon, 3).

        Raises:
            ForecastFailed: torch or the weights are not there, the horizon is too long, or the member rests because
                its last answer was too slow.
        """
        if self._rest > 0:
            self._rest -= 1
            raise ForecastFailed("the network rests after it failed or took too long; smoothing stands in")
        network, exact = self._loaded()
        began = self._clock() if self._clock else 0.0
        features = encode(batch)
        changes = _infer(exact if len(batch) <= EXACT_SERIES else network, features)
        if self._clock and self._clock() - began > self._deadline_seconds:
            self._rest = REST_CALLS
        return decode(stretch(changes, batch.horizon), batch, features.unit)

    def swap(self, weights: Path) -> None:
        """Take other weights from the next forecast on."""
        self.weights = weights
        self._networks = None
        self._rest = 0

    def _loaded(self) -> "tuple[Network, Network]":
        if self._networks is None:
            # Should loading fail, the member rests: the next cycles need not wait for the same failure.
            self._rest = REST_CALLS
            self._networks = load_network(self.weights), load_network(self.weights).double()
            self._rest = 0
        return self._networks


def load_network(weights: Path) -> "Network":
    """Return the network with the weights of a file, ready to answer.

    Raises:
        ForecastFailed: torch is not installed, or the file is missing or of another network.
    """
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        from tuner.forecast.network import Network
    except ImportError as error:
        raise ForecastFailed(
            f"the network cannot run: {error}; install torch, or set forecast.lstm to false"
        ) from error
    try:
        state = load_file(weights)
        network = Network()
        network.load_state_dict(state)
    except (OSError, SafetensorError, RuntimeError) as error:
        raise ForecastFailed(f"{weights}: no usable weights: {error}; run `clocktuner train`, or reinstall") from error
    return network.eval()


def stretch(changes: FloatArray, horizon: int) -> FloatArray:
    """Fit the network's answer to a horizon: cut it, or hold its last step.

    Beyond the last step the spread grows as that of a random walk.
    """
    if horizon <= HORIZON_STEPS:
        return changes[:, :horizon]
    ahead = np.arange(HORIZON_STEPS + 1, horizon + 1)
    last = changes[:, -1:]
    growth = np.sqrt(ahead / HORIZON_STEPS)[None, :, None]
    further = last[..., 1:2] + (last - last[..., 1:2]) * growth
    return np.concatenate([changes, further], axis=1)


def _infer(network: "Network", features: Features) -> FloatArray:
    import torch

    kind = next(network.parameters()).dtype
    wanted = 1 if len(features.unit) <= SINGLE_SERIES else THREADS
    with _at_most_threads(wanted), torch.inference_mode():
        answers = []
        for start in range(0, len(features.unit), CHUNK_SERIES):
            rows = slice(start, start + CHUNK_SERIES)
            sequence = torch.from_numpy(features.sequence[rows]).to(kind)
            answer: Any = network(sequence, torch.from_numpy(features.static[rows]).to(kind))
            answers.append(answer.double().numpy())
    return np.concatenate(answers) if answers else np.empty((0, HORIZON_STEPS, len(QUANTILES)))


@contextlib.contextmanager
def _at_most_threads(wanted: int) -> Iterator[None]:
    """Lend torch a few threads, and leave the number as it was: it belongs to the process."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(min(before, wanted))
    try:
        yield
    finally:
        torch.set_num_threads(before)
