"""Compare the newest file slices of two states of a table, for indexes that catch up with writes."""

from __future__ import annotations

from collections.abc import Iterator

from streaming_lsm.file_group.file_system_view import FileSlice, FileSystemView, LogFile
from streaming_lsm.metadata.changed_keys import FileSizes
from streaming_lsm.storage.base import FileEntry


def listed_entries(files: FileSizes, partition: str) -> list[FileEntry]:
    """Return the files of a partition as entries of a listing."""
    folder = f"{partition}/" if partition else ""
    sizes = files.get(partition, {})
    return [FileEntry(folder + name, size, is_dir=False, modified_ms=0) for name, size in sizes.items()]


def changed_slices(
    before: FileSystemView, old_files: FileSizes, after: FileSystemView, new_files: FileSizes
) -> Iterator[tuple[str, str, FileSlice | None, FileSlice | None]]:
    """Yield partition path, file id, and the slice before and after, of each file group whose slice has other files."""
    for partition in sorted({*old_files, *new_files}):
        old, new = (
            {one.file_id: one for one in view.slices_in(partition, listed_entries(files, partition))}
            for view, files in ((before, old_files), (after, new_files))
        )
        for file_id in sorted({*old, *new}):
            was, now = old.get(file_id), new.get(file_id)
            if was is None or now is None or was.paths != now.paths:
                yield partition, file_id, was, now


def added_logs(was: FileSlice | None, now: FileSlice) -> list[LogFile] | None:
    """Return the logs that a slice has got since; None if that is not all that is new."""
    if was is None or (was.base and was.base.path) != (now.base and now.base.path):
        return None
    known = {log.path for log in was.logs}
    added = [log for log in now.logs if log.path not in known]
    return added if len(added) + len(known) == len(now.logs) else None
