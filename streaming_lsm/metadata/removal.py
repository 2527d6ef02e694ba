"""Delete files of a metadata table so that a writer that lost the lock deletes no file of a later holder of the lock.

Files of a metadata table have the names of those of an earlier one, and runs of one action have log files of the same
name. Their contents differ (see `streaming_lsm.format.metadata.files_partition.LOCK_KEY`): a file is deleted only if it
has the content that was read before the lock was verified. Only empty files may be deleted late, which is harmless.
"""

from __future__ import annotations

from collections.abc import Callable

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.storage.base import Storage

# Too large for this package, no regular file, or not readable: files that this package does not write.
_FOREIGN = (CorruptFileError, UnsupportedTable, IsADirectoryError, PermissionError)


def remove_file(storage: Storage, path: str, verify: Callable[[], None]) -> None:
    """Delete a file, unless a later holder of the lock has written it; do nothing if it is missing.

    Args:
        verify: raises `Fenced` if the caller does not hold the table's lock any more.

    Raises:
        Fenced: another writer took the lock; the file was not deleted.
    """
    try:
        content = storage.read(path)
    except FileNotFoundError:
        return
    except _FOREIGN:
        remove_foreign(storage, path, verify)
        return
    # Verified after the read: if the lock is held, the content is not a later holder's.
    verify()
    storage.delete_if_unchanged(path, content)


def remove_foreign(storage: Storage, path: str, verify: Callable[[], None]) -> None:
    """Delete a file that this package never writes, so that no later holder of the lock can have written it."""
    verify()
    storage.delete(path)


def remove_folder(storage: Storage, path: str, verify: Callable[[], None], *, foreign: bool = False) -> None:
    """Delete a folder file by file, and the folders that are empty then; a file in place of a folder is deleted, too.

    Args:
        verify: as in `remove_file`.
        foreign: whether this package never writes files there; they may be large, and are not read.

    Raises:
        Fenced: another writer took the lock; none of its files was deleted.
    """
    try:
        entries = storage.list(path)
    except NotADirectoryError:
        (remove_foreign if foreign else remove_file)(storage, path, verify)
        return
    for entry in entries:
        if entry.special or (foreign and not entry.is_dir):
            remove_foreign(storage, entry.path, verify)
        elif entry.is_dir:
            remove_folder(storage, entry.path, verify, foreign=foreign)
        else:
            remove_file(storage, entry.path, verify)
    storage.sweep(path)
    verify()
    storage.delete_empty_folder(path)
