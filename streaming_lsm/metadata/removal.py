"""Delete files of a metadata table by their content, so that a writer that lost the lock deletes none of its successor.

Files of a metadata table have the names of those of an earlier one, and runs of one action have log files of the same
name. Their contents differ (see `streaming_lsm.format.metadata.files_partition.LOCK_KEY`): a file is deleted only if it
has the content that was read before the lock was verified. Only empty files may be deleted late, which is harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, islice

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.storage.base import FileEntry, Storage
from streaming_lsm.timeline.instant import TIMELINE_FOLDER

# Too large for this package, no regular file, or not readable: files that this package does not write.
_FOREIGN = (CorruptFileError, UnsupportedTable, IsADirectoryError, PermissionError)
_BATCH_FILES, _BATCH_BYTES = 256, 8 << 20


def remove_file(storage: Storage, path: str, verify: Callable[[], None]) -> None:
    """Delete a file, unless a later holder of the lock has written it; do nothing if it is missing.

    Args:
        verify: raises `Fenced` if the caller does not hold the table's lock any more.

    Raises:
        Fenced: another writer took the lock; the file was not deleted.
    """
    content = _content(storage, path)
    if content is None:
        remove_foreign(storage, path, verify)
    else:
        # Verified after the read: if the lock is held, the content is not a later holder's.
        verify()
        storage.delete_if_unchanged(path, content, reused=_is_reused(path.rpartition("/")[0]))


def remove_files(storage: Storage, paths: Iterable[str], verify: Callable[[], None]) -> None:
    """Delete files of the timeline, in the given order, as `remove_file` does, many after one look at the lock."""
    by_folder = groupby(paths, key=lambda path: path.rpartition("/")[0])
    for folder, of_folder in by_folder:
        for batch in _few_at_a_time(of_folder):
            _remove_batch(storage, folder, batch, verify)


def remove_foreign(storage: Storage, path: str, verify: Callable[[], None]) -> None:
    """Delete a file that this package never writes, so that no later holder of the lock can have written it."""
    verify()
    storage.delete(path)


def remove_folder(storage: Storage, path: str, verify: Callable[[], None], *, foreign: bool = False) -> None:
    """Delete the files below a folder, as `remove_file` does, and the folders that are empty then.

    A file in place of the folder is deleted, too.

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
    own = [] if foreign else [entry for entry in entries if not (entry.is_dir or entry.special)]
    for batch in _batches(own):
        _remove_batch(storage, path, [entry.path for entry in batch], verify)
    for entry in entries:
        if entry.is_dir and not entry.special:
            remove_folder(storage, entry.path, verify, foreign=foreign)
        elif foreign or entry.special:
            remove_foreign(storage, entry.path, verify)
    storage.sweep(path)
    verify()
    storage.delete_empty_folder(path)


def _batches(entries: Iterable[FileEntry]) -> Iterator[list[FileEntry]]:
    """Group files whose contents are read at a time, so that few calls delete a timeline of thousands of files."""
    batch: list[FileEntry] = []
    size = 0
    for entry in entries:
        if batch and (len(batch) == _BATCH_FILES or size + entry.size > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += entry.size
    if batch:
        yield batch


def _few_at_a_time(paths: Iterator[str]) -> Iterator[list[str]]:
    """Group files of the timeline, which are small, by their number."""
    while batch := list(islice(paths, _BATCH_FILES)):
        yield batch


def _remove_batch(storage: Storage, folder: str, paths: Iterable[str], verify: Callable[[], None]) -> None:
    contents = {path: _content(storage, path) for path in paths}
    for path in [path for path, content in contents.items() if content is None]:
        remove_foreign(storage, path, verify)
    verify()
    expected = {path.rpartition("/")[2]: content for path, content in contents.items() if content is not None}
    storage.delete_all_if_unchanged(folder, expected, reused=_is_reused(folder))


def _is_reused(folder: str) -> bool:
    """Return whether the names of files with content in a folder are used again, by a later metadata table or run.

    Instant files are not: plans and completed files have a time of their own. A tombstone that stayed in the timeline
    would be an instant for Hudi.
    """
    return not folder.endswith(TIMELINE_FOLDER)


def _content(storage: Storage, path: str) -> bytes | None:
    """Read a file; return None for a file that this package does not write."""
    try:
        return storage.read(path)
    except FileNotFoundError:
        return b""
    except _FOREIGN:
        return None
