"""Read, write and merge the records of the partition ``files`` one at a time: what the package does by columns.

See docs/format/07-index-and-metadata.md, "Files payload".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from streaming_lsm.arrow.buffers import offsets_of
from streaming_lsm.format.hfile.cells import Cells
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.metadata.files_partition import Records, decode_maps, encode_files, unexpected_deletes
from streaming_lsm.format.metadata.group_files import DeletedKeys, LogName, base_content, log_content, open_log
from streaming_lsm.format.metadata.records import FilesRecord, MetadataFileInfo
from streaming_lsm.format.table.file_names import BaseFileName


@dataclass(frozen=True, slots=True)
class LoggedRecords:
    """Records that one instant logged."""

    instant: str
    records: Records


def merge_files(
    older: Mapping[str, MetadataFileInfo], newer: Mapping[str, MetadataFileInfo]
) -> dict[str, MetadataFileInfo]:
    """Merge the entries of two records with the same key.

    A tombstone removes the name; it is kept if the older record does not have the name, for still older records. The
    larger of two sizes wins, because files only grow. Merge from the oldest record to the newest: a tombstone that has
    removed a name from a log is dropped, and would no longer remove it from the base file.
    """
    merged = dict(older)
    for name, entry in newer.items():
        before = merged.get(name)
        if before is None or before.is_deleted:
            merged[name] = entry
        elif entry.is_deleted:
            del merged[name]
        else:
            merged[name] = MetadataFileInfo(max(before.size, entry.size))
    return merged


def existing(files: Mapping[str, MetadataFileInfo]) -> dict[str, int]:
    """Return the name and size of all files (or partitions) that are not deleted."""
    return {name: entry.size for name, entry in files.items() if not entry.is_deleted}


def encode_base(records: Records, name: BaseFileName, created_ms: int, token: str = "") -> bytes:
    """Encode a base file; `token` is its `LOCK_KEY`.

    Raises:
        UnsupportedTable: a name is not valid UTF-8.
    """
    return base_content(*encode_files(records, str(name)), created_ms, token)


def encode_log(records: Records, name: LogName, created_ms: int, token: str = "") -> bytes:
    """Encode a log of changes: added names, and tombstones of deleted names; `token` is its `LOCK_KEY`.

    Raises:
        UnsupportedTable: a name is not valid UTF-8.
    """
    return log_content(*encode_files(records, None), name, created_ms, token)


def decode_base(data: bytes, source: str) -> Records:
    """Decode the records of a base file.

    Raises:
        CorruptFileError: the file is damaged, or has records of another type.
    """
    return decode_files(HFile.open(data, source))


def decode_log(data: bytes, name: LogName, source: str) -> Iterator[LoggedRecords]:
    """Yield the records of each block of a log; see `open_log`.

    Raises:
        CorruptFileError: the log is damaged, or has records of another type.
        UnsupportedTable: see `open_log`.
    """
    for instant, file in open_log(data, name, source):
        yield LoggedRecords(instant, decode_files(file))


def decode_files(file: HFile | DeletedKeys) -> Records:
    """Decode the records of an HFile; raises as `decode_base`, and for deletes, which the partition never has."""
    if isinstance(file, DeletedKeys):
        raise unexpected_deletes(file)
    return dict(record for cells in file.cells() for record in decode_cells(cells, file.schema_json, file.source))


def decode_cells(cells: Cells, schema_json: str, source: str) -> Iterator[tuple[str, FilesRecord]]:
    """Decode records, in the order of the cells.

    Args:
        cells: cells of HFiles of the partition.
        schema_json: the ``schema`` of the HFiles.
        source: name of the file, for messages.

    Yields:
        Key and record.

    Raises:
        CorruptFileError: a record is damaged, or of another type.
    """
    keys, lists, maps = decode_maps(cells, schema_json, source)
    ends = offsets_of(maps).tolist()
    names = maps.keys.to_pylist()
    sizes, deleted = (maps.items.field(field.name).to_pylist() for field in maps.type.item_type)
    infos = list(map(MetadataFileInfo, sizes, deleted))
    for place, (key, is_list) in enumerate(zip(keys.to_pylist(), lists.tolist(), strict=True)):
        part = slice(ends[place], ends[place + 1])
        yield cast("str", key), FilesRecord(dict(zip(names[part], infos[part], strict=True)), is_list)
