"""Open, compare, lock and sync files and folders of a local file system, each given by its full path.

*Special file*: one that is neither a regular file nor a folder, such as a named pipe.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache
from io import FileIO
from typing import TYPE_CHECKING

from streaming_lsm.errors import CommitConflict, UnsupportedTable
from streaming_lsm.storage.failures import naming

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_LOCK_ATTEMPTS = 100
_MOST_KNOWN = 4096
"""Folders that are remembered; each write has a few of its own."""


def open_at_once(full: str, flags: int) -> int:
    """Open a file for reading without blocking: opening a named pipe would wait for a writer."""
    try:
        return os.open(full, flags | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a device without a driver
            check_regular(full, os.stat(full))
        raise


def check_regular(path: str, status: os.stat_result) -> None:
    """Check that a file is a regular file or a folder; raises `UnsupportedTable`."""
    special = special_kind(status)
    if special:
        raise UnsupportedTable(f"{path} is a {special}, which cannot be read: remove it, or restore the file")


def special_kind(status: os.stat_result) -> str:
    """Return the kind of a special file; an empty text for a regular file or a folder."""
    if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
        return ""
    kinds = {stat.S_IFIFO: "named pipe", stat.S_IFSOCK: "socket", stat.S_IFLNK: "symbolic link"}
    return kinds.get(stat.S_IFMT(status.st_mode), "device")


class NamedFile(FileIO):
    """Write to a file, and add its path to write errors."""

    def write(self, data: ReadableBuffer, /) -> int:
        with naming(str(self.name)):
            return super().write(data)


@contextmanager
def exclusive(folder: str) -> Iterator[None]:
    """Hold the kernel's lock on a folder, so that a comparison and the change that follows are one step."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: str) -> None:
    for attempt in range(_LOCK_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(min(0.001 * 2**attempt, 0.1))
    raise CommitConflict(f"{folder} stays locked by another process (stopped?): find it with `lsof`, end it, retry")


def has_content(full: str, expected: bytes) -> bool:
    """Return whether a file is there and has this content."""
    try:
        with open(full, "rb", opener=open_at_once) as file:
            status = os.fstat(file.fileno())
            check_regular(full, status)
            return status.st_size == len(expected) and file.read() == expected
    except FileNotFoundError:
        return False


def unlink_if_unmodified(full: str, modified_ms: int, *, aside: str) -> bool:
    """Delete a regular file and its checksum file if it was last modified at that time; return whether it was.

    Programs that do not lock the folder may replace the file after it was looked at. So it is renamed, looked at again,
    and linked back if it is another one.

    Args:
        full: the file.
        aside: a path in the same folder that no other process uses.
    """
    if not _was_modified(full, modified_ms):
        return False
    drop_checksum(full)
    try:
        os.rename(full, aside)
    except FileNotFoundError:
        return False
    is_it = _was_modified(aside, modified_ms)
    if not is_it:
        with suppress(FileExistsError):
            os.link(aside, full)
    with suppress(FileNotFoundError):
        os.unlink(aside)
    return is_it


def _was_modified(full: str, modified_ms: int) -> bool:
    try:
        status = os.lstat(full)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_mtime_ns // 1_000_000 == modified_ms


def drop_checksum(full: str) -> None:
    """Delete the checksum file that Hadoop keeps beside a local file: new content would not match it.

    It is deleted before the file. As soon as a lock file is gone, Hudi creates its own with a checksum file, and then
    sets the permissions of both: without the second it takes the lock for not acquired, and leaves the first for ever.
    """
    folder, name = os.path.split(full)
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, f".{name}.crc"))


def unlink(full: str) -> bool:
    """Delete a file after its checksum file; return whether it was there."""
    if not os.path.lexists(full):
        return False
    drop_checksum(full)
    try:
        os.unlink(full)
    except FileNotFoundError:
        return False
    return True


class DurableFolders:
    """Create folders durably, and remember which are.

    A folder that is there may have been created by a process that was killed before it made it durable, or has not
    done so yet: its name is written to disk by the first call for it.
    """

    def __init__(self, root: str) -> None:
        """Folders above `root` are durable if they are there."""
        self._root = root
        self._known: set[str] = set()

    def create(self, full: str) -> None:
        """Create a folder and those above it, as far as they are missing, durably."""
        pending = []
        while not self._is_durable(full):
            pending.append(full)
            full = os.path.dirname(full)
        for folder in reversed(pending):
            self._create_one(folder)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known.add(folder)

    def _create_one(self, folder: str) -> None:
        parent = os.path.dirname(folder)
        try:
            os.mkdir(folder)
        except FileExistsError:
            _refuse_file(folder)
            # The folder above the table may be closed to this process.
            with suppress(PermissionError) if folder == self._root else nullcontext():
                sync(parent)
        else:
            sync(parent)

    def _is_durable(self, full: str) -> bool:
        is_above = len(full) < len(self._root) or full == os.path.dirname(full)
        return (is_above or full in self._known) and os.path.isdir(full)


@lru_cache(maxsize=64)
def durable_folders(root: str) -> DurableFolders:
    """Return what this process knows of the folders of a storage; tasks of one worker share it."""
    return DurableFolders(root)


def _refuse_file(folder: str) -> None:
    # A single stat call, as another process may delete the folder at any moment; that is no error here.
    with suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.stat(folder).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "a file is where a folder is needed", folder)


def sync(path: str) -> None:
    """Write a file or the names in a folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
