"""The clock is set, while the world goes on."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from tuner.chaos.scene import Scene
from tuner.chaos.troubles.moments import Break, Trouble, everywhere


def _set(by_seconds: float, *, back_again: bool = False) -> Break:
    @contextmanager
    def broken(scene: Scene) -> Iterator[None]:
        scene.now += by_seconds
        yield
        if back_again:
            scene.now -= by_seconds

    return broken


CLOCK: Final[Mapping[str, Trouble]] = {
    "clock set back 2 min": everywhere(_set(-120.0)),
    "clock set forward 2 min": everywhere(_set(120.0)),
    "clock set back 12 h": everywhere(_set(-43_200.0)),
    "clock set forward 12 h": everywhere(_set(43_200.0)),
    "clock set forward 12 h, then right again": everywhere(_set(43_200.0, back_again=True)),
}
"""Every fault of the clock."""
