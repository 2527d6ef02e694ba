"""Compare the newest file slices of two states of a table, for indexes that follow its writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from streaming_lsm.file_group.file_system_view import FileSlice, FileSystemView, LogFile
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.metadata.changed_keys import FileSizes
from streaming_lsm.storage.base import FileEntry, Storage

Changed: TypeAlias = tuple[str, str, FileSlice | None, FileSlice | None]
"""Partition path, file id, and the newest slice before and after."""


def listed_entries(files: FileSizes, partition: str) -> list[FileEntry]:
    """Return the files of a partition as entries of a listing."""
    folder = f"{partition}/" if partition else ""
    sizes = files.get(partition, {})
    return [FileEntry(folder + name, size, is_dir=False, modified_ms=0) for name, size in sizes.items()]


def changed_slices(
    before: FileSystemView, old_files: FileSizes, after: FileSystemView, new_files: FileSizes
) -> Iterator[Changed]:
    """Yield each file group whose newest slice has other files than before."""
    for partition in sorted({*old_files, *new_files}):
        old, new = (
            {one.file_id: one for one in view.slices_in(partition, listed_entries(files, partition))}
            for view, files in ((before, old_files), (after, new_files))
        )
        for file_id in sorted({*old, *new}):
            was, now = old.get(file_id), new.get(file_id)
            if was is None or now is None or was.paths != now.paths:
                yield partition, file_id, was, now


def slices_of(
    storage: Storage, groups: Iterable[tuple[str, str]], before: FileSystemView, after: FileSystemView
) -> Iterator[Changed]:
    """Yield the file groups of some partition paths and file ids, as their folders have them."""
    of_partition: dict[str, set[str]] = defaultdict(set)
    for partition, file_id in groups:
        of_partition[partition].add(file_id)
    for partition, file_ids in sorted(of_partition.items()):
        parsed = ((entry, parse_file_name(entry.name)) for entry in storage.list(partition) if not entry.is_dir)
        entries = [entry for entry, name in parsed if name is not None and name.file_id in file_ids]
        old, new = ({one.file_id: one for one in view.slices_in(partition, entries)} for view in (before, after))
        for file_id in sorted(file_ids):
            yield partition, file_id, old.get(file_id), new.get(file_id)


def added_logs(was: FileSlice | None, now: FileSlice) -> list[LogFile] | None:
    """Return the logs that a slice has got since; None if that is not all that is new."""
    if was is None or (was.base and was.base.path) != (now.base and now.base.path):
        return None
    known = {log.path for log in was.logs}
    added = [log for log in now.logs if log.path not in known]
    return added if len(added) + len(known) == len(now.logs) else None
