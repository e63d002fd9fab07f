"""A folder that nobody but its owner may write in, worked on through its open descriptor.

Names are looked up in the folder that was opened and checked, wherever its path may lead by then; links are never
followed. Functions raise `OSError` as the system does.
"""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_TEMPORARY: Final = ".tmp"
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    """Give the descriptor of an open folder for the length of a `with` block."""
    with _descriptor(os.open(folder, _FOLDER_FLAGS)) as place:
        yield place


@contextmanager
def opened_in(place: int, name: str) -> Iterator[int]:
    """Give the descriptor of a folder in an open one; it is made where missing, for the same owner."""
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=place)
        if os.geteuid() == 0:
            owner = os.fstat(place)
            os.chown(name, owner.st_uid, owner.st_gid, dir_fd=place, follow_symlinks=False)
    with _descriptor(os.open(name, _FOLDER_FLAGS, dir_fd=place)) as inside:
        yield inside


def unsafe(place: int, *, for_root: bool = False) -> str:
    """Say why orders in a folder may be anybody's; empty where they may not.

    Args:
        place: The open folder.
        for_root: Whether root, who may do anything, may use the folder of somebody else.
    """
    found = os.fstat(place)
    if found.st_uid not in (0, os.geteuid()) and not (for_root and os.geteuid() == 0):
        return f"belongs to uid {found.st_uid}, neither the tuner's user nor root: remove it, and it is made anew"
    if found.st_mode & _OTHERS_WRITE:
        return "may be written by others: look at what lies in it, then take that right away (chmod 700)"
    return ""


def read(place: int, name: str, *, most: int) -> bytes:
    """Return what stands in a file that only its owner can have written.

    Args:
        place: The open folder.
        name: Name in it.
        most: Bytes that are read at most.

    Raises:
        ValueError: It is no plain file, or of somebody else, or others may write to it.
    """
    with _descriptor(os.open(name, _READ_FLAGS, dir_fd=place)) as file:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is no plain file")
        if found.st_uid not in (0, os.geteuid()):
            raise ValueError(f"it belongs to uid {found.st_uid}, neither the tuner's user nor root")
        if found.st_mode & _OTHERS_WRITE:
            raise ValueError("others may write to it")
        return os.read(file, most)


def put(place: int, name: str, text: str) -> None:
    """Write a file whole or not at all, and wait for the disk; what root writes goes to the owner of the folder."""
    temporary = f".{name}.{secrets.token_hex(4)}{_TEMPORARY}"
    try:
        with _descriptor(os.open(temporary, _WRITE_FLAGS, 0o600, dir_fd=place)) as file:
            if os.geteuid() == 0:
                owner = os.fstat(place)
                os.fchown(file, owner.st_uid, owner.st_gid)
            with open(file, "wb", closefd=False) as stream:
                stream.write(text.encode())
            os.fsync(file)
        os.rename(temporary, name, src_dir_fd=place, dst_dir_fd=place)
    except BaseException:
        remove(place, temporary)
        raise
    os.fsync(place)


def sweep(place: int, *, before_seconds: float) -> None:
    """Remove what writers that were killed have left unfinished, from before a time."""
    for name in os.listdir(place):
        if name.startswith(".") and name.endswith(_TEMPORARY):
            try:
                left_at = os.stat(name, dir_fd=place, follow_symlinks=False).st_mtime
            except FileNotFoundError:
                continue
            if left_at < before_seconds:
                remove(place, name)


def keep_newest(place: int, count: int) -> None:
    """Remove all files but those that come last by their names."""
    for name in sorted(os.listdir(place))[:-count]:
        remove(place, name)


def exists(place: int, name: str) -> bool:
    """Say whether a name is taken, be it by a broken link."""
    try:
        os.stat(name, dir_fd=place, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def remove(place: int, name: str) -> None:
    """Remove a file; what is gone, is a folder, or may not be removed stays as it is."""
    with suppress(FileNotFoundError, IsADirectoryError, PermissionError):
        os.unlink(name, dir_fd=place)


@contextmanager
def _descriptor(number: int) -> Iterator[int]:
    try:
        yield number
    finally:
        os.close(number)
