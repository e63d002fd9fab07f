"""When something breaks: where a change is about to be made, while a good one is on trial, while a bad one is."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, TypeAlias

from tuner.chaos.scene import PATIENT_SECONDS, Scene

Break: TypeAlias = Callable[[Scene], AbstractContextManager[None]]
"""Breaks something on entry, and mends it on exit."""

Act: TypeAlias = Callable[[Scene], None]
"""What happens in a scene, up to the end of a fault."""


@dataclass(frozen=True, slots=True)
class Play:
    """A fault at a moment.

    Attributes:
        act: What happens, up to the end of the fault.
        answer_within_seconds: Deadline of every request of the tuner: short only where something hangs.
    """

    act: Act
    answer_within_seconds: float = PATIENT_SECONDS


Trouble: TypeAlias = Mapping[str, Play]
"""What happens, by the moment at which it breaks."""

GOOD: Final = 0.4
"""Factor that a good change has on waits and latencies."""

BAD: Final = 3.0
"""The same of a bad one."""


def everywhere(broken: Break, *, answer_within_seconds: float = PATIENT_SECONDS) -> Trouble:
    """Return a fault at each of the three moments."""
    acts = {"before a change": _before(broken), "on trial": _on_trial(broken), "in harm": _in_harm(broken)}
    return {moment: Play(act, answer_within_seconds) for moment, act in acts.items()}


def once(act: Act, *, answer_within_seconds: float = PATIENT_SECONDS) -> Trouble:
    """Return what has a moment of its own."""
    return {"": Play(act, answer_within_seconds)}


def _before(broken: Break) -> Act:
    def act(scene: Scene) -> None:
        scene.store.planted.effect_ratio = GOOD
        scene.ticks(2)
        with broken(scene):
            scene.cycles(3)

    return act


def _on_trial(broken: Break) -> Act:
    def act(scene: Scene) -> None:
        scene.store.planted.effect_ratio = 1.0
        scene.until("apply")
        scene.cycles(1)
        with broken(scene):
            scene.cycles(4)
        scene.store.planted.effect_ratio = GOOD

    return act


def _in_harm(broken: Break) -> Act:
    def act(scene: Scene) -> None:
        scene.store.planted.effect_ratio = BAD
        scene.until("apply")
        with broken(scene):
            scene.cycles(4)

    return act


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
