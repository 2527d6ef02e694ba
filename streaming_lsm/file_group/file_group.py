"""List every file slice of every file group, old ones included, for cleaning.

A file group is the set of files with one file id in one partition. A file slice is a base file and the logs completed
since its instant (docs/format/02-timeline.md, "Completion time semantics").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from streaming_lsm.file_group.file_system_view import FileSystemView
from streaming_lsm.format.table.file_names import BaseFileName, DataFileName
from streaming_lsm.storage.base import Listing


@dataclass(frozen=True, slots=True)
class SliceFiles:
    """The file names of one file slice, change logs included.

    Attributes:
        key: its base instant; without a base file its smallest log instant.
        files: names of its base file and all its logs, change logs included.
    """

    key: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileGroup:
    """One file group of one partition.

    Attributes:
        slices: the oldest first; queries read the last one, unless the group was replaced.
        replaced: requested time of the write that replaced the group, None while it is live.
    """

    partition_path: str
    file_id: str
    slices: tuple[SliceFiles, ...]
    replaced: str | None = None


def file_groups_in(view: FileSystemView, partition: str, entries: Listing) -> list[FileGroup]:
    """Group the files of one partition into file groups, ordered by file id; files of pending writes are left out.

    Args:
        entries: the listing of the partition.

    Raises:
        UnsupportedTable: the partition holds logs under RFC-103 names and `lsm.read.rfc103.names` is not set.
    """
    groups: dict[str, list[DataFileName]] = defaultdict(list)
    for entry in entries:
        name = view.visible_name(entry)
        if name is not None:
            groups[name.file_id].append(name)
    replaced = view.timeline.replaced_groups.get(partition, {})
    return [
        FileGroup(partition, file_id, tuple(_slices(view, names)), replaced.get(file_id))
        for file_id, names in sorted(groups.items())
    ]


def _slices(view: FileSystemView, names: list[DataFileName]) -> Iterator[SliceFiles]:
    bases = sorted({name.instant for name in names if isinstance(name, BaseFileName)})
    logs = [name for name in names if not isinstance(name, BaseFileName)]
    files: dict[str, list[str]] = {base: [] for base in bases}
    # Logs completed before the first base file form one slice, keyed by the smallest log instant.
    first = min((log.instant for log in logs), default="")
    for name in names:
        if isinstance(name, BaseFileName):
            key = name.instant
        else:
            completed = view.timeline.completion_time(name.instant) or ""
            key = max((base for base in bases if base <= completed), default=first)
        files.setdefault(key, []).append(str(name))
    return (SliceFiles(key, tuple(sorted(files[key]))) for key in sorted(files))
