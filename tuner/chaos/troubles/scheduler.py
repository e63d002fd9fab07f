"""The scheduler refuses, hangs, does half, comes late, forgets, or is not there."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from tuner.chaos.scene import HASTY_SECONDS, PATIENT_SECONDS, Scene
from tuner.chaos.troubles.moments import GOOD, Break, Play, Trouble, everywhere, failed, once, struck
from tuner.chaos.unruly import Misbehaviour
from tuner.chaos.wire import Reply

_HANGS: Final = 1.5 * HASTY_SECONDS
_PERSONS_RATIO: Final = 0.23
_LOGIN: Final = Reply(body=b"<!doctype html><title>Sign in</title>", headers={"Content-Type": "text/html"})


def _wrong(wrong: Misbehaviour) -> Trouble:
    return everywhere(_while(wrong))


def _hanging(wrong: Misbehaviour) -> Trouble:
    return everywhere(_while(wrong), answer_within_seconds=HASTY_SECONDS)


def _while(wrong: Misbehaviour) -> Break:
    @contextmanager
    def broken(scene: Scene) -> Iterator[None]:
        asked = scene.scheduler.asked
        scene.scheduler.wrong = wrong
        try:
            yield
        finally:
            scene.scheduler.wrong = Misbehaviour()
        struck(asked, scene.scheduler.asked)

    return broken


@contextmanager
def _gone(scene: Scene) -> Iterator[None]:
    before = len(scene.given)
    scene.scheduler_wire.stop()
    try:
        yield
    finally:
        scene.scheduler_wire.start()
    failed(scene, before)


@contextmanager
def _gone_and_restarted(scene: Scene) -> Iterator[None]:
    with _gone(scene):
        yield
        scene.scheduler.restart()


@contextmanager
def _restarted(scene: Scene) -> Iterator[None]:
    scene.scheduler.restart()
    yield


def _restarts_proven(scene: Scene) -> None:
    """Restart it when a tuned setting has been proven: that one is to come back."""
    scene.store.planted.effect_ratio = GOOD
    scene.until("promote")
    proven = scene.parts.writer.standing.known_good
    scene.scheduler.restart()
    scene.ticks(2)
    live = scene.parts.actuator.read().knobs
    if proven is None or proven.differs(live):
        raise RuntimeError(f"the proven setting did not come back, but {live.describe()}")


def _edited(**values: object) -> Break:
    @contextmanager
    def broken(scene: Scene) -> Iterator[None]:
        scene.scheduler.edit(**values)
        yield

    return broken


def _edited_at_write(scene: Scene) -> None:
    """Let a person be quicker, between the tuner's look and its write."""
    refused = scene.scheduler.refused
    scene.scheduler.at_put = lambda: scene.scheduler.edit(reservation_ratio=_PERSONS_RATIO)
    scene.cycles(3)
    struck(refused, scene.scheduler.refused)
    if scene.scheduler.document["reservation_ratio"] not in (0.22, _PERSONS_RATIO):
        raise RuntimeError("the person's value was undone")


def _edited_in_doubt(scene: Scene) -> None:
    """Let a person set a value while the tuner does not know what came of its write: that is not half of its own."""
    refused = scene.scheduler.refused
    scene.scheduler.at_put = lambda: _edit_when_looked_at(scene)
    scene.cycles(1)
    struck(refused, scene.scheduler.refused)
    if scene.scheduler.document["reservation_ratio"] != _PERSONS_RATIO:
        raise RuntimeError("the person's value was undone")
    scene.cycles(1)
    if not any(record.decision == "adopted" for record in scene.given):
        raise RuntimeError("the person's value was not adopted")


def _edit_when_looked_at(scene: Scene) -> None:
    """Keep a write waiting until the tuner has given up and looks what came of it, and be quicker then."""
    asked, give_up_at = scene.scheduler.asked, time.monotonic() + PATIENT_SECONDS
    while scene.scheduler.asked == asked and time.monotonic() < give_up_at:
        time.sleep(0.005)
    scene.scheduler.edit(reservation_ratio=_PERSONS_RATIO)


SCHEDULER: Final[Mapping[str, Trouble]] = {
    "scheduler: refuses with 409": _wrong(Misbehaviour(put=Reply(status=409, body=b"busy"))),
    "scheduler: refuses with 403": _wrong(Misbehaviour(put=Reply(status=403, body=b"forbidden"))),
    "scheduler: fails without effect": _wrong(Misbehaviour(put=Reply(status=500, body=b"out of order"))),
    "scheduler: fails, with effect": _wrong(
        Misbehaviour(put=Reply(status=500, body=b"out of order"), put_has_effect=True)
    ),
    "scheduler: hangs, without effect": _hanging(Misbehaviour(put=Reply(after_seconds=_HANGS))),
    "scheduler: hangs, with effect": _hanging(Misbehaviour(put=Reply(after_seconds=_HANGS), put_has_effect=True)),
    "scheduler: breaks off, with effect": _wrong(Misbehaviour(put=Reply(status=0), put_has_effect=True)),
    "scheduler: hangs in everything": _hanging(Misbehaviour(late_seconds=_HANGS)),
    "scheduler: login page with 200": _wrong(Misbehaviour(get=_LOGIN, put=_LOGIN)),
    "scheduler: says done, and does nothing": _wrong(Misbehaviour(put=Reply(body=b"{}"))),
    "scheduler: applies half": _wrong(Misbehaviour(half=True)),
    "scheduler: takes its time": _wrong(Misbehaviour(shown_after_gets=2)),
    "scheduler: applies when given up": _wrong(Misbehaviour(shown_after_gets=8)),
    "scheduler: restarts with defaults": {**everywhere(_restarted), "proven": Play(_restarts_proven)},
    "scheduler: gone, comes back": everywhere(_gone),
    "scheduler: gone, comes back with defaults": everywhere(_gone_and_restarted),
    "a person sets a valid value": everywhere(_edited(reservation_ratio=_PERSONS_RATIO)),
    "a person sets a value out of bounds": everywhere(_edited(base_slice_seconds=4.9)),
    "a person writes garbage": everywhere(_edited(base_slice_seconds="fast")),
    "a person removes a setting": everywhere(_edited(base_slice_seconds=None)),
    "a person sets a value between look and write": once(_edited_at_write),
    "a person sets a value while a write is in doubt": once(_edited_in_doubt, answer_within_seconds=2 * HASTY_SECONDS),
}
"""Every fault of the scheduler."""
