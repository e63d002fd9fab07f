"""Which arms of `bench tuning` to run; a module of its own, for the command line must not load the benchmark."""

from enum import StrEnum


class Arms(StrEnum):
    """Arms by what they are for."""

    ALL = "all"
    COMPARED = "compared"
    ABLATIONS = "ablations"
    SAFETY = "safety"
