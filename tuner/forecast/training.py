"""Training of the network: what `clocktuner train` runs, and what fine-tuning runs a little of.

The loss is the one that is scored: the mean of 2 x pinball at 0.1, 0.5 and 0.9 of the forecast itself, not of its
squeezed form, counted in the normal size of each series' changes. Weights are averaged over the last thousand steps
or so (Polyak averaging), which is worth as much as a second network.

Only the first 70 % of each trace is ever read here: `TrainingPart` holds nothing else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import structlog

from tuner.forecast.examples import Examples, sample
from tuner.forecast.lstm import SHIPPED
from tuner.forecast.traces import TRACES, TrainingPart, load, load_recording
from tuner.values.stages import QUANTILES

if TYPE_CHECKING:
    import torch

    from tuner.forecast.network import Network

AVERAGING: Final = 0.999
"""Share of the running average of weights that a step keeps: about the last thousand steps count."""

LARGEST_GRADIENT: Final = 1.0
"""Norm to which gradients are clipped: regime shifts make rare, huge ones."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a network is trained.

    Attributes:
        steps: Steps of the optimiser.
        windows: Windows a trace.
        batch: Windows a step.
        learning_rate: Peak of the one-cycle schedule.
        threads: Threads that torch may take: one, because sums in another order give other weights.
    """

    steps: int = 9_500
    windows: int = 100_000
    batch: int = 256
    learning_rate: float = 3e-3
    threads: int = 1


QUICK: Final = Recipe(steps=1_000, windows=10_000)
"""A minute's training: weights that work, and are worse than those that are shipped."""

Progress = Callable[[int, float], None]
"""Told the number of steps done, and the mean loss since the last call."""

REPORT_STEPS: Final = 500
"""Distance of two calls of `Progress`."""


def train(
    *,
    output: Path | None = None,
    seed: int = 1,
    quick: bool = False,
    recipe: Recipe | None = None,
    parts: Sequence[TrainingPart] | None = None,
    progress: Progress | None = None,
) -> Path:
    """Train a network from scratch and write its weights.

    It learns from the shipped traces first, and then, more gently, from these and the recorded runs, which alone
    tell the covariates.

    Args:
        output: File to write, in the safetensors format; the place of the shipped weights where absent.
        seed: Seed of the sampling and of the weights.
        quick: Whether to train for a minute only, to see that it works; a recipe goes before.
        recipe: How long and on how much.
        parts: What to train on, instead of all that is shipped, in one stage.
        progress: Told of progress; logged where absent.

    Returns:
        The file.
    """
    import torch

    from tuner.forecast.network import Network

    recipe = recipe or (QUICK if quick else Recipe())
    output = output or SHIPPED
    traces = [load(name).training_part() for name in TRACES] if parts is None else list(parts)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Network()
    examples = sample(traces, windows=recipe.windows, rng=np.random.default_rng(seed))
    fit(network, examples, recipe=recipe, seed=seed, progress=progress or _log)
    if parts is None:
        learn_covariates(network, [*traces, load_recording().training_part()], recipe, seed=seed, progress=progress)
    save(network, output)
    return output


def learn_covariates(
    network: "Network",
    parts: Sequence[TrainingPart],
    recipe: Recipe,
    *,
    seed: int,
    progress: Progress | None = None,
) -> None:
    """Train a network on, in place: a ninth of the steps at a third of the rate, on windows drawn anew.

    Args:
        network: Where to start from.
        parts: Traces and recordings.
        recipe: That of the first stage.
        seed: Seed of the first stage.
        progress: Told of progress; logged where absent.
    """
    gentle = replace(
        recipe,
        steps=max(recipe.steps // 9, 1),
        windows=recipe.windows // 2,
        learning_rate=recipe.learning_rate / 3,
    )
    examples = sample(parts, windows=gentle.windows, rng=np.random.default_rng([seed, 2]))
    fit(network, examples, recipe=gentle, seed=seed, progress=progress or _log)


def fit(network: "Network", examples: Examples, *, recipe: Recipe, seed: int, progress: Progress | None = None) -> None:
    """Train a network in place; at the end it holds the averaged weights.

    Args:
        network: Where to start from.
        examples: What to learn from.
        recipe: How long; its `windows` do not matter here.
        seed: Seed of the order of the windows.
        progress: Told of progress.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(recipe.threads)
    try:
        _fit(network, examples, recipe, seed, progress)
    finally:
        torch.set_num_threads(before)


def _fit(network: "Network", examples: Examples, recipe: Recipe, seed: int, progress: Progress | None) -> None:
    import torch

    inputs = [torch.from_numpy(part) for part in (examples.sequence, examples.static, examples.unit, examples.target)]
    optimiser = torch.optim.AdamW(network.parameters(), lr=recipe.learning_rate, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, recipe.learning_rate, total_steps=recipe.steps, pct_start=0.05, final_div_factor=100
    )
    generator = torch.Generator().manual_seed(seed)
    average = {name: value.clone() for name, value in network.state_dict().items()}
    network.train()
    total = 0.0
    for step in range(1, recipe.steps + 1):
        rows = torch.randint(0, len(examples), (recipe.batch,), generator=generator)
        sequence, static, unit, target = (part[rows] for part in inputs)
        loss = quantile_loss(unit[:, None, None] * torch.sinh(network(sequence, static)), target)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), LARGEST_GRADIENT)
        optimiser.step()
        schedule.step()
        keep = min(AVERAGING, (1 + step) / (10 + step))
        for name, value in network.state_dict().items():
            average[name].mul_(keep).add_(value, alpha=1 - keep)
        total += float(loss.detach())
        if progress is not None and step % REPORT_STEPS == 0:
            progress(step, total / REPORT_STEPS)
            total = 0.0
    network.load_state_dict(average)
    network.eval()


def _log(step: int, loss: float) -> None:
    structlog.get_logger(__name__).info("training_progressed", step=step, loss=round(loss, 4))


def quantile_loss(changes: "torch.Tensor", target: "torch.Tensor") -> "torch.Tensor":
    """Return the mean of 2 x pinball over windows, steps and quantiles; unknown targets do not count.

    Args:
        changes: Shape (windows, steps, 3).
        target: Shape (windows, steps); NaN where unknown.
    """
    import torch

    levels = torch.tensor(QUANTILES, dtype=changes.dtype)
    known = torch.isfinite(target)
    error = torch.where(known, target, 0.0)[..., None] - changes
    loss = 2 * torch.maximum(levels * error, (levels - 1) * error)
    return (loss * known[..., None]).sum() / (known.sum().clamp(min=1) * len(QUANTILES))


def save(network: "Network", out: Path) -> None:
    """Write weights as safetensors, the whole file or none."""
    from safetensors.torch import save_file

    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".partial")
    save_file(network.state_dict(), partial)
    partial.replace(out)
