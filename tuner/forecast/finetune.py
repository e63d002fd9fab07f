"""The child process of fine-tuning: `python -m tuner.forecast.finetune --examples F --weights F --out F`.

It reads windows that closed and the weights in force, trains a little, and writes a challenger. Files pass as npz
and safetensors, never as pickle. It may be killed at any instant: its result appears whole or not at all, and memory
that training took goes back to the machine when it ends.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

STEPS = 100
"""Steps of one fine-tuning: two to three seconds on one core."""

LEARNING_RATE = 3e-4
"""A tenth of training's: the challenger must stay near what was learned of many clusters."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Fine-tune as the arguments say; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tuner.forecast.finetune", description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=Path, required=True, help="windows to learn from, npz")
    parser.add_argument("--weights", type=Path, required=True, help="weights to start from, safetensors")
    parser.add_argument("--out", type=Path, required=True, help="file to write the challenger to")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of the optimiser")
    parser.add_argument("--seed", type=int, default=1, help="seed of the order of the windows")
    parser.add_argument("--nice", type=int, default=0, help="how far to step back for other processes, 0..19")
    options = parser.parse_args(arguments)
    os.nice(options.nice)

    from tuner.errors import ForecastFailed
    from tuner.forecast.examples import Examples
    from tuner.forecast.lstm import load_network
    from tuner.forecast.training import Recipe, fit, save

    try:
        examples = Examples.load(options.examples)
        network = load_network(options.weights)
    except (ForecastFailed, OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    recipe = Recipe(steps=options.steps, learning_rate=LEARNING_RATE, threads=1)
    fit(network, examples, recipe=recipe, seed=options.seed)
    save(network, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
