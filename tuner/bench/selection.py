"""What of `bench tuning` to run; a module of its own, for the command line must not load the benchmark."""

from enum import StrEnum
from typing import Final

MAX_RUNS: Final = 150
"""Replays that a search of the best fixed setting may take for one workload and one set of bounds, over all seeds."""


class Arms(StrEnum):
    """Arms by what they are for."""

    ALL = "all"
    COMPARED = "compared"
    ABLATIONS = "ablations"
    SAFETY = "safety"
