"""When something breaks: where a change is about to be made, while a good one is on trial, while a bad one is."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final, TypeAlias

from tuner.chaos.scene import Scene

Break: TypeAlias = Callable[[Scene], AbstractContextManager[None]]
"""Breaks something on entry, and mends it on exit."""

Play: TypeAlias = Callable[[Scene], None]
"""What happens in a scene, up to the end of a fault."""

Trouble: TypeAlias = Mapping[str, Play]
"""What happens, by the moment at which it breaks."""

GOOD: Final = 0.4
"""Factor that a good change has on waits and latencies."""

BAD: Final = 3.0
"""The same of a bad one."""


def everywhere(broken: Break) -> Trouble:
    """Return a fault at each of the three moments."""
    return {"before a change": _before(broken), "on trial": _on_trial(broken), "in harm": _in_harm(broken)}


def once(play: Play) -> Trouble:
    """Return what has a moment of its own."""
    return {"": play}


def _before(broken: Break) -> Play:
    def play(scene: Scene) -> None:
        scene.store.planted.effect_ratio = GOOD
        scene.ticks(2)
        with broken(scene):
            scene.cycles(3)

    return play


def _on_trial(broken: Break) -> Play:
    def play(scene: Scene) -> None:
        scene.store.planted.effect_ratio = 1.0
        scene.until("apply")
        scene.cycles(1)
        with broken(scene):
            scene.cycles(4)
        scene.store.planted.effect_ratio = GOOD

    return play


def _in_harm(broken: Break) -> Play:
    def play(scene: Scene) -> None:
        scene.store.planted.effect_ratio = BAD
        scene.until("apply")
        with broken(scene):
            scene.cycles(4)

    return play


def struck(before: int, after: int) -> None:
    """See to it that a fault was met at all: one that nobody meets proves nothing.

    Raises:
        RuntimeError: It was not.
    """
    if after <= before:
        raise RuntimeError("the fault was never met")


def failed(scene: Scene, since: int) -> None:
    """The same, where the records tell: since so many, one must say that something failed."""
    struck(0, sum(_troubled(record.decision, record.failure) for record in scene.given[since:]))


def _troubled(decision: str, failure: object) -> bool:
    return failure is not None or decision == "failed"
