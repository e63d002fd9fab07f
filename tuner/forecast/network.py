"""The network: one small LSTM for all series. Importing this module imports torch; only `lstm` and training do."""

from typing import Final

import torch
from torch import Tensor, nn

from tuner.forecast.features import COVARIATE_INPUTS, HORIZON_STEPS, RECENT_STEPS, SEQUENCE_FEATURES, STATIC_FEATURES

HIDDEN: Final = 64
"""Width of the state: the size at which 10,000 series still fit into a fraction of a second on two cores."""

HEAD: Final = 128
"""Width of the two layers of the head, which runs once a window and so costs little beside the recurrent part."""

LARGEST_CHANGE: Final = 6.0
"""Bound of an output, in squeezed units: sinh(6) is 200 units of recent movement."""


class Network(nn.Module):
    """LSTM over the window, started from the description of the series, read out once for all steps ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Linear(STATIC_FEATURES, 2 * HIDDEN)
        self.recurrent = nn.LSTM(SEQUENCE_FEATURES, HIDDEN, batch_first=True)
        self.mix = nn.Linear(HIDDEN + STATIC_FEATURES + RECENT_STEPS, HEAD)
        self.head = nn.Linear(HEAD, HEAD)
        self.out = nn.Linear(HEAD, 3 * HORIZON_STEPS)
        with torch.no_grad():
            # The first forecast is "no change, and a spread of some half a unit": training starts from last value.
            self.out.weight.mul_(0.1)
            self.out.bias.zero_()
            # Covariates count for nothing until something was learned of them.
            self.start.weight[:, -COVARIATE_INPUTS:] = 0.0
            self.mix.weight[:, HIDDEN + STATIC_FEATURES - COVARIATE_INPUTS : HIDDEN + STATIC_FEATURES] = 0.0

    def forward(self, sequence: Tensor, static: Tensor) -> Tensor:
        """Return quantiles of the change, squeezed units, ordered; shape (series, HORIZON_STEPS, 3)."""
        start = torch.tanh(self.start(static))
        hidden, cell = start.chunk(2, dim=1)
        _, (state, _) = self.recurrent(sequence, (hidden[None].contiguous(), cell[None].contiguous()))
        mixed = nn.functional.silu(self.mix(torch.cat([state[0], static, sequence[:, -RECENT_STEPS:, 0]], dim=1)))
        mixed = nn.functional.silu(self.head(mixed))
        below, median, above = self.out(mixed).view(-1, HORIZON_STEPS, 3).unbind(dim=2)
        # Offsets are positive, so that quantiles cannot cross.
        low = median - nn.functional.softplus(below)
        high = median + nn.functional.softplus(above)
        return torch.stack([low, median, high], dim=2).clamp(-LARGEST_CHANGE, LARGEST_CHANGE)
