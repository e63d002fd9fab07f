"""The folder by which orders reach a running tuner, and answers come back.

    <journal>.orders/                0700, of the tuner's user
        <order>.json                 an order that waits
        .<order>.*.tmp               one that is being written; a leftover where its writer was killed
        answers/<order>.json         what came of one
        refused/<name>               what was no order, set aside for a person to look at

An order is obeyed exactly once, wherever the process ends. The tuner

1. collects what waits, and passes over the orders that its state in the journal knows as done,
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
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Final

from tuner.control.orders import MAX_BYTES, MAX_REASON, Order, instant, is_id, parse
from tuner.errors import ConfigError

MOST_AT_ONCE: Final = 100
"""Files looked at in one go: people do not give more orders in a few seconds, and what does is no person."""

KEPT: Final = 200
"""Answers, and refused files, that are kept: the newest."""

LEFTOVER_SECONDS: Final = 3600.0
"""Age at which a file that is still being written has lost its writer."""

_SUFFIX: Final = ".json"
_TEMPORARY: Final = ".tmp"
_FOLDER_SUFFIX: Final = ".orders"
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_ANSWERS: Final = "answers"
_REFUSED: Final = "refused"
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


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
    with _told(folder), _opened(folder) as place:
        unsafe = _unsafe(place, for_root=True)
        if unsafe:
            raise ConfigError(f"{folder} {unsafe}")
        _put(place, order.order_id + _SUFFIX, order.to_json())


def collect(folder: Path, *, at_seconds: float) -> Collected:
    """Return the orders that wait, and set aside what is none; what is returned waits on until it is answered.

    Nothing that lies in the folder, and no right that is missing, makes it raise: the loop has other things to do.

    Args:
        folder: The spool folder; where there is none, nothing waits.
        at_seconds: Now: orders that have grown old are answered and not returned.
    """
    try:
        with _opened(folder) as place:
            unsafe = _unsafe(place)
            if unsafe:
                return Collected(refused=(Refused(name=folder.name, reason=unsafe),))
            _sweep(place, at_seconds)
            found = [_look(place, name, at_seconds) for name in _waiting(place)]
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
    with _told(folder), _opened(folder) as place:
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


def _look(place: int, name: str, at_seconds: float) -> Order | Refused | None:
    """Read one order; None where there is nothing more to do about it."""
    order_id = name.removesuffix(_SUFFIX)
    if is_id(order_id) and _exists(place, f"{_ANSWERS}/{name}"):
        _remove(place, name)  # The process ended between the answer and this.
        return None
    try:
        order = parse(_read(place, name))
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


def _printable(text: str) -> str:
    """Return what others wrote so that it can be shown and stored, and not too much of it."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:MAX_REASON])


def _set_aside(place: int, name: str, reason: str, at_seconds: float) -> Refused:
    reason, shown = _printable(reason), _printable(name)
    try:
        _folder_in(place, _REFUSED)
        os.rename(name, f"{_REFUSED}/{name}", src_dir_fd=place, dst_dir_fd=place)
        _keep_newest(place, _REFUSED)
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
    _folder_in(place, _ANSWERS)
    with _descriptor(os.open(_ANSWERS, _FOLDER_FLAGS, dir_fd=place)) as answers:
        text = json.dumps({field.name: getattr(answer, field.name) for field in fields(answer)}, allow_nan=False)
        _put(answers, answer.order_id + _SUFFIX, text)
    _remove(place, answer.order_id + _SUFFIX)
    _keep_newest(place, _ANSWERS)


# The folder.


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
