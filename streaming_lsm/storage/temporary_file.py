"""Write temporary files, which get their final names when they are complete, and delete those of dead processes.

Temporary files are named ``.<32 hex digits>.lsm-tmp``, and are locked (``flock``) by their process while it runs.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from streaming_lsm.storage.failures import naming

_NAME = re.compile(r"^\.[0-9a-f]{32}\.lsm-tmp$")


def is_temporary(name: str) -> bool:
    """Return whether a file name is that of a temporary file."""
    return _NAME.match(name) is not None


def temporary_name() -> str:
    """Return a name for a temporary file that no other has."""
    return f".{uuid.uuid4().hex}.lsm-tmp"


@contextmanager
def temporary_file(folder: str, data: bytes, final: str) -> Iterator[str]:
    """Write a temporary file to disk, and delete its name at the end; yields its path.

    Args:
        folder: path of its folder.
        data: its content.
        final: path under which it will be linked or moved, for errors.
    """
    descriptor, temporary = _created_and_locked(folder)
    try:
        with naming(final):
            _write_all(descriptor, data)
            os.fsync(descriptor)
        yield temporary
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        os.close(descriptor)


def delete_abandoned(folder: str) -> int:
    """Delete the temporary files of dead processes in a folder; returns their number."""
    names = [name for name in os.listdir(folder) if is_temporary(name)]
    return sum(_delete_if_abandoned(os.path.join(folder, name)) for name in names)


def _created_and_locked(folder: str) -> tuple[int, str]:
    # The kernel releases the lock when the process dies: a sweep deletes only files that are not locked.
    while True:
        temporary = os.path.join(folder, temporary_name())
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor, temporary
        os.close(descriptor)  # a sweep deleted the file between creation and lock


def _delete_if_abandoned(temporary: str) -> int:
    # Links, named pipes and other special files that have such a name are not temporary files.
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(temporary).st_mode):
            return 0
    try:
        descriptor = os.open(temporary, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        return 0
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(temporary)
    except (BlockingIOError, FileNotFoundError):
        return 0
    finally:
        os.close(descriptor)
    return 1


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
