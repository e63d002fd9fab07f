"""A second tuner, and orders that are none."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tuner import wiring
from tuner.chaos.plant import finding
from tuner.chaos.scene import Scene
from tuner.chaos.troubles.moments import GOOD, Trouble, once, struck
from tuner.control import spool
from tuner.control.orders import MAX_BYTES, Order, OrderKind, new_id
from tuner.errors import JournalError
from tuner.values.knobs import Role

_RIVALS_SLICE_SECONDS: Final = 0.11


def _same_journal(scene: Scene) -> None:
    """Start a second tuner on the same journal: it must not even start."""
    scene.cycles(2)
    try:
        scene.assemble(scene.journal).close()
    except JournalError as error:
        if str(os.getpid()) not in str(error):
            raise RuntimeError(f"the refusal does not name who writes: {error}") from error
    else:
        raise RuntimeError("two tuners write one journal")
    scene.cycles(2)


def _taking_turns(scene: Scene) -> None:
    """Let a second tuner with a journal of its own look and write in turns with the first."""
    scene.store.planted.effect_ratio = GOOD
    rival = _rival(scene)
    for _ in range(4):
        rival.guard.tick(at_seconds=scene.now)
        rival.cycle.run(at_seconds=scene.now)
        scene.cycles(1)
    rival.close()


def _racing(scene: Scene) -> None:
    """Let a second tuner be quicker, between the look of the first and its write: only one may win, and both know."""
    scene.store.planted.effect_ratio = GOOD
    rival, refused = _rival(scene), scene.scheduler.refused
    scene.ticks(1)
    rival.guard.tick(at_seconds=scene.now)
    scene.scheduler.at_put = lambda: _run(rival, scene.now)
    (lost,) = scene.cycles(1)
    struck(refused, scene.scheduler.refused)
    if lost.receipt is None or lost.receipt.applied or "nothing was written" not in lost.receipt.detail:
        raise RuntimeError(f"who lost does not say so: {lost.reason}")
    scene.cycles(1)
    if not any(record.decision == "adopted" for record in scene.given):
        raise RuntimeError("who lost does not say that somebody else has set the scheduler")
    rival.close()


def _rival(scene: Scene) -> wiring.Parts:
    journal = scene.folder / "rival" / "journal.sqlite"
    scene.witness.journals.append(journal)
    rival = scene.assemble(journal, planted=finding({Role.BASE_SLICE: _RIVALS_SLICE_SECONDS}))
    rival.people.prepare()
    return rival


def _run(rival: wiring.Parts, at_seconds: float) -> None:
    rival.cycle.run(at_seconds=at_seconds)


def _garbage_in_the_spool(scene: Scene) -> None:
    """Leave what is no order among one that is: that one is done, and the others are set aside."""
    scene.ticks(1)
    folder = spool.folder_of(scene.journal)
    texts = (b"", b"{", b"null", b"[]", b"\xff\xfe" * 300, b"{" * 3000, b" " * (MAX_BYTES + 1), b'{"kind": "drop"}')
    for number, text in enumerate(texts):
        (folder / f"{number:014d}-{number:08x}.json").write_bytes(text)
    (scene.folder / "elsewhere.json").write_bytes(b"{}")
    (folder / f"{20:014d}-{20:08x}.json").symlink_to(scene.folder / "elsewhere.json")
    (folder / f"{21:014d}-{21:08x}.json").mkdir()
    os.mkfifo(folder / f"{22:014d}-{22:08x}.json")
    (folder / "no-id.json").write_bytes(b"{}")
    order = _order(scene, OrderKind.PAUSE)
    scene.cycles(2)
    resumed = _order(scene, OrderKind.RESUME)
    scene.ticks(2)
    for asked in (order, resumed):
        answer = spool.answer_of(folder, asked.order_id)
        if answer is None or answer.outcome is not spool.Outcome.DONE:
            raise RuntimeError(f"a sound order among garbage was not done: {answer}")


def _foreign_orders(scene: Scene) -> None:
    """Leave orders that are none of this tuner's: old ones, and ones whose name is another's."""
    scene.ticks(1)
    folder = spool.folder_of(scene.journal)
    old = replace(_made(scene, OrderKind.ROLL_BACK), at_seconds=scene.now - 86_400.0)
    spool.leave(folder, old)
    copied = _made(scene, OrderKind.DRILL)
    (folder / f"{new_id(scene.now)}.json").write_text(copied.to_json(), encoding="utf-8")
    writes = scene.witness.writes
    scene.ticks(3)
    if scene.witness.writes != writes:
        raise RuntimeError("an order that was not meant for now was obeyed")


def _open_to_all(scene: Scene) -> None:
    """Let everybody write into the folder: nothing in it is believed until that is mended."""
    scene.ticks(1)
    folder = spool.folder_of(scene.journal)
    order = _order(scene, OrderKind.ROLL_BACK)
    folder.chmod(0o777)
    scene.ticks(2)
    folder.chmod(0o700)
    if spool.answer_of(folder, order.order_id) is not None:
        raise RuntimeError("an order from a folder that all may write in was obeyed")


def _order(scene: Scene, kind: OrderKind) -> Order:
    order = _made(scene, kind)
    spool.leave(spool.folder_of(scene.journal), order)
    return order


def _made(scene: Scene, kind: OrderKind) -> Order:
    return Order(order_id=new_id(scene.now), kind=kind, at_seconds=scene.now, by="alice")


COMPANY: Final[Mapping[str, Trouble]] = {
    "second tuner: same journal": once(_same_journal),
    "second tuner: journal of its own, in turns": once(_taking_turns),
    "second tuner: journal of its own, in a race": once(_racing),
    "orders: garbage among them": once(_garbage_in_the_spool),
    "orders: foreign and old ones": once(_foreign_orders),
    "orders: folder open to all": once(_open_to_all),
}
"""Every fault of company."""
