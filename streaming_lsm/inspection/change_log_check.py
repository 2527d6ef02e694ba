"""Check the change logs (CDC logs) of base files that are there: missing ones, and their content."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streaming_lsm.errors import CorruptFileError, ReadOvertaken
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.inspection.file_check import COUNT, DAMAGED, MISSING, Finding
from streaming_lsm.query.cdc.change_log import read_change_log
from streaming_lsm.readable_table import ReadableTable

_INSTEAD = "restore the file, or delete it: changes are worked out from base files and logs without it"


def change_log_findings(table: ReadableTable, slices: Sequence[FileSlice], *, quick: bool) -> Iterator[Finding]:
    """List what is wrong with change logs; those of archived writes are left out.

    Args:
        slices: the live ones: a missing base file of another slice was cleaned, together with its log.
        quick: whether only their sizes are compared.
    """
    live = {found.base.path for found in slices if found.base is not None}
    timeline = table.file_system_view().timeline
    named = [
        (stat.path, path, size, write.path)
        for write in timeline.completed_writes
        for stat in timeline.read_commit(write).stats
        for path, size in stat.cdc_files
    ]
    folders = {path.rpartition("/")[0] for _, path, _, _ in named}
    sizes = {entry.path: entry.size for folder in folders for entry in table.storage.list(folder)}
    for base, path, size, write_path in named:
        if base in live or base in sizes:
            yield from _of_log(table, path, sizes.get(path), size, write_path, quick=quick)


def _of_log(
    table: ReadableTable, path: str, stored: int | None, size: int, write: str, *, quick: bool
) -> Iterator[Finding]:
    if stored is None:
        yield Finding(MISSING, path, f"{path} is gone, though {write} has committed it: restore the file")
    elif stored != size:
        yield Finding(COUNT, path, f"{path} has {stored:,} bytes, and {write} says {size:,}: {_INSTEAD}")
    elif not quick:
        try:
            read_change_log(table.storage, path)
        except (CorruptFileError, ReadOvertaken) as error:
            yield Finding(DAMAGED, path, str(error))
