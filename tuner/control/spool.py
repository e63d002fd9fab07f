"""The folder by which orders reach a running tuner, and answers come back.

    <journal>.orders/                0700, of the tuner's user
        <order>.json                 an order that waits
        .<order>.*.tmp               one that is being written; a leftover where its writer was killed
        answers/<order>.json         what came of one
        refused/<name>               what was no order, set aside for a person to look at

An order is obeyed exactly once, wherever the process ends. The tuner

1. collects what waits, but for the orders that its state in the journal knows as done: those are answered,
2. does what is asked, and notes the order as done in the transaction of the journal that notes what came of it,
3. answers, which puts the answer in its place and then removes the order.

Before 2 is on the disk, the order still waits and is taken again: nothing of it has happened, or what has begun is
finished or undone as after any crash. After 2, the state knows it. After the answer is in its place, `collect` removes
what still waits without asking anybody.

The file system says who may give orders: the folder belongs to the tuner's user and nobody else may write in it. That
is looked at again with each order, because folders are copied and rights are changed. Orders are read through the
open folder, follow no links, and have to be plain files of the tuner's user or of root.
"""

import json
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Final

from tuner.control.orders import MAX_BYTES, MAX_REASON, Order, instant, is_id, parse
from tuner.control.place import exists, keep_newest, opened, opened_in, put, read, remove, sweep, unsafe
from tuner.errors import ConfigError

MOST_AT_ONCE: Final = 100
"""Files looked at in one go: people do not give more orders in a few seconds, and what does is no person."""

KEPT: Final = 200
"""Answers, and refused files, that are kept: the newest."""

LEFTOVER_SECONDS: Final = 3600.0
"""Age at which a file that is still being written has lost its writer."""

_BEFORE: Final = "this was dealt with before the tuner was restarted; `clocktuner history` tells what came of it"
_SUFFIX: Final = ".json"
_FOLDER_SUFFIX: Final = ".orders"
_ANSWERS: Final = "answers"
_REFUSED: Final = "refused"


class Outcome(StrEnum):
    """What may come of an order."""

    DONE = "done"
    REFUSED = "refused"
    """Not done, and nothing has changed."""
    FAILED = "failed"
    """Tried, and not done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of an order.

    Attributes:
        order_id: Identity of the order.
        outcome: What came of it.
        sentence: The same for the person who asked; never empty.
        at_seconds: When.
        cycle_id: Number under which the journal tells of it; None where it does not.
    """

    order_id: str
    outcome: Outcome
    sentence: str
    at_seconds: float
    cycle_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A file that is no order that may be obeyed.

    Attributes:
        name: Name of the file.
        reason: Why not, in one sentence.
    """

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What waits in a spool folder.

    Attributes:
        orders: Sound orders, oldest first.
        refused: What was set aside just now, or keeps the folder from being used at all.
    """

    orders: tuple[Order, ...] = ()
    refused: tuple[Refused, ...] = ()


def folder_of(journal: Path) -> Path:
    """Return the spool folder of a journal."""
    real = journal.resolve()
    return real.with_name(real.name + _FOLDER_SUFFIX)


def prepare(folder: Path) -> None:
    """Make the folder where it is missing; the tuner does so at its start, so that it is its own.

    Where root makes it, it is given to whoever owns the journal, or the journal's folder.

    Raises:
        ConfigError: It cannot be made.
    """
    with _told(folder):
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            return
        if os.geteuid() == 0:
            journal = folder.with_name(folder.name.removesuffix(_FOLDER_SUFFIX))
            owner = (journal if journal.exists() else folder.parent).stat()
            os.chown(folder, owner.st_uid, owner.st_gid)


def leave(folder: Path, order: Order) -> None:
    """Leave an order; on return it is on the disk, whole, and will be found.

    Raises:
        ConfigError: The folder cannot be used, or others may write in it.
    """
    prepare(folder)
    with _told(folder), opened(folder) as place:
        danger = unsafe(place, for_root=True)
        if danger:
            raise ConfigError(f"{folder} {danger}")
        put(place, order.order_id + _SUFFIX, order.to_json())


def collect(folder: Path, *, at_seconds: float, known: Collection[str] = ()) -> Collected:
    """Return the orders that wait, and set aside what is none; what is returned waits on until it is answered.

    Nothing that lies in the folder, and no right that is missing, makes it raise: the loop has other things to do.

    Args:
        folder: The spool folder; where there is none, nothing waits.
        at_seconds: Now: orders that have grown old are answered and not returned.
        known: Identities of the orders that the journal knows as done (`Control.done`): answered, and not returned.
    """
    try:
        with opened(folder) as place:
            danger = unsafe(place)
            if danger:
                return Collected(refused=(Refused(name=folder.name, reason=danger),))
            sweep(place, before_seconds=at_seconds - LEFTOVER_SECONDS)
            found = [_look(place, name, at_seconds, known) for name in _waiting(place)]
    except FileNotFoundError:
        return Collected()
    except OSError as error:
        reason = f"cannot be used ({error.strerror}); check the rights on it, and that it is a folder"
        return Collected(refused=(Refused(name=folder.name, reason=reason),))
    return Collected(
        orders=tuple(item for item in found if isinstance(item, Order)),
        refused=tuple(item for item in found if isinstance(item, Refused)),
    )


def done(folder: Path, answer: Answer) -> None:
    """Answer an order, and let it wait no more; call it when the journal has on the disk what came of it.

    Raises:
        ConfigError: The answer cannot be written. The order waits on, and is known as done when it is collected again.
    """
    with _told(folder), opened(folder) as place:
        _finish(place, answer)


def answer_of(folder: Path, order_id: str) -> Answer | None:
    """Return what came of an order; None while nobody has answered."""
    if not is_id(order_id):
        return None
    try:
        text = (folder / _ANSWERS / (order_id + _SUFFIX)).read_bytes()
        data = json.loads(text)
        return Answer(**{**data, "outcome": Outcome(data["outcome"])})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"the answer to {order_id} in {folder} cannot be read: {error}") from error


# One file.


def _look(place: int, name: str, at_seconds: float, known: Collection[str]) -> Order | Refused | None:
    """Read one order; None where there is nothing more to do about it."""
    order_id = name.removesuffix(_SUFFIX)
    if is_id(order_id) and _settled(place, order_id, at_seconds, known):
        return None
    try:
        order = parse(read(place, name, most=MAX_BYTES + 1))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return _set_aside(place, name, getattr(error, "strerror", None) or str(error), at_seconds)
    if order.order_id != order_id:
        return _set_aside(place, name, "its name is not its order_id", at_seconds)
    if order.current(at_seconds):
        return order
    reason = f"it is from {instant(order.at_seconds)}, too far from now to be meant now; give it again if it is"
    _finish(place, _refusal(order_id, reason, at_seconds))
    return Refused(name=name, reason=reason)


def _settled(place: int, order_id: str, at_seconds: float, known: Collection[str]) -> bool:
    """Bring to an end what a process that ended has left: an order that was answered, or done and not answered."""
    if exists(place, f"{_ANSWERS}/{order_id}{_SUFFIX}"):
        remove(place, order_id + _SUFFIX)
        return True
    if order_id in known:
        _finish(place, Answer(order_id=order_id, outcome=Outcome.DONE, sentence=_BEFORE, at_seconds=at_seconds))
        return True
    return False


def _printable(text: str) -> str:
    """Return what others wrote so that it can be shown and stored, and not too much of it."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:MAX_REASON])


def _set_aside(place: int, name: str, reason: str, at_seconds: float) -> Refused:
    reason, shown = _printable(reason), _printable(name)
    try:
        with opened_in(place, _REFUSED) as refused:
            os.rename(name, name, src_dir_fd=place, dst_dir_fd=refused)
            keep_newest(refused, KEPT)
    except OSError as error:
        return Refused(name=shown, reason=f"{reason}; it could not be set aside ({error.strerror}): remove it")
    order_id = name.removesuffix(_SUFFIX)
    if is_id(order_id):
        _finish(place, _refusal(order_id, f"the order was not understood: {reason}", at_seconds))
    return Refused(name=shown, reason=reason)


def _refusal(order_id: str, reason: str, at_seconds: float) -> Answer:
    return Answer(order_id=order_id, outcome=Outcome.REFUSED, sentence=reason, at_seconds=at_seconds)


def _finish(place: int, answer: Answer) -> None:
    """Put an answer in its place, and only then remove the order."""
    text = json.dumps({field.name: getattr(answer, field.name) for field in fields(answer)}, allow_nan=False)
    with opened_in(place, _ANSWERS) as answers:
        put(answers, answer.order_id + _SUFFIX, text)
        remove(place, answer.order_id + _SUFFIX)
        keep_newest(answers, KEPT)


def _waiting(place: int) -> list[str]:
    """Name what waits, oldest first."""
    names = [name for name in os.listdir(place) if name.endswith(_SUFFIX) and not name.startswith(".")]
    return sorted(names)[:MOST_AT_ONCE]


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """Turn errors of the file system into one that names the folder and a remedy."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be used ({error.strerror or error}); give orders as the user that clocktuner runs as, or "
            "as root, and name the journal of that clocktuner"
        ) from error
