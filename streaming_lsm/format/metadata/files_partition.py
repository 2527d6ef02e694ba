"""Files of the metadata table's partition ``files``: which files each partition of the table has.

See docs/format/07-index-and-metadata.md.

One file group. Its base files are HFiles; its logs are inline with one HFile block, or from table version 10 on HFiles
of their own that carry the block's header in their file info.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.bloom import BloomFilter
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.hfile.writer import write_hfile
from streaming_lsm.format.log.inline_blocks import BlockType, Header, LogBlock, encode_block, read_blocks
from streaming_lsm.format.log.native_footer import LogHeader
from streaming_lsm.format.metadata.records import FilesRecord, encode_record, metadata_schema, read_records
from streaming_lsm.format.table.file_names import BaseFileName, InlineLogName, LogFileName, LogKind, WriteToken

PARTITION = "files"
FILE_GROUP = "files-0000-0"
FIRST_INSTANT = "0" * 17
"""The instant that makes the partition."""

Records = Mapping[str, FilesRecord]
"""Records by key."""

LogName = InlineLogName | LogFileName

# What Hudi sizes the bloom filters of its metadata table for.
_BLOOM_ENTRIES, _BLOOM_FPP, _BLOOM_MOST_ENTRIES = 10_000, 1e-9, 100_000
_TOKEN = WriteToken(0, 0, 0)
_NO_DELETES = bytes.fromhex("00000003 00000001 00")
_HFILE = "hfile"


@dataclass(frozen=True, slots=True)
class LoggedRecords:
    """What one instant logged."""

    instant: str
    records: Records


def base_name(instant: str) -> BaseFileName:
    """Name of the base file that an instant writes."""
    return BaseFileName(FILE_GROUP, str(_TOKEN), instant, _HFILE)


def log_name(instant: str, *, native: bool) -> LogName:
    """Name of the log that an instant writes.

    Args:
        native: as a table of version 10 has them.
    """
    if native:
        return LogFileName(FILE_GROUP, _TOKEN, instant, 1, LogKind.DATA, _HFILE)
    return InlineLogName(FILE_GROUP, instant, 1, _TOKEN)


def encode_base(records: Records, name: BaseFileName, created_ms: int) -> bytes:
    """A base file, with a bloom filter over its keys.

    Raises:
        UnsupportedTable: a name is not text.
    """
    entries = _entries(records, str(name))
    keys = [key for key, _ in entries]
    bloom = BloomFilter.build(keys, _BLOOM_ENTRIES, _BLOOM_FPP, _BLOOM_MOST_ENTRIES)
    return write_hfile(entries, schema_json=metadata_schema(), created_ms=created_ms, bloom=bloom)


def encode_log(records: Records, name: LogName, created_ms: int) -> bytes:
    """A log of changes: new names, and tombstones of those that are gone.

    One without records marks a new file group, as Hudi marks it: inline by an empty delete block.

    Raises:
        UnsupportedTable: a name is not text.
    """
    schema = metadata_schema()
    entries = _entries(records, None)
    if isinstance(name, LogFileName):
        footer = LogHeader(name.instant, schema).to_footer()
        info = {key.decode(): value for key, value in footer.items()}
        return write_hfile(entries, schema_json=schema, created_ms=created_ms, extra_info=info)
    if not entries:
        return encode_block(BlockType.DELETE, {Header.INSTANT_TIME: name.instant}, _NO_DELETES)
    header = {Header.INSTANT_TIME: name.instant, Header.SCHEMA: schema}
    return encode_block(BlockType.HFILE_DATA, header, write_hfile(entries, schema_json=schema, created_ms=created_ms))


def decode_base(data: bytes, source: str) -> Records:
    """The records of a base file.

    Raises:
        CorruptFileError: it is damaged, or holds other records.
    """
    return _records(HFile.open(data, source))


def decode_log(data: bytes, name: LogName, source: str) -> Iterator[LoggedRecords]:
    """What the blocks of a log hold; one block, but in tables of version 6.

    Raises:
        CorruptFileError: it is damaged, or holds other records.
        UnsupportedTable: blocks of another kind, or those of a log compaction or a rollback.
    """
    if isinstance(name, LogFileName):
        file = HFile.open(data, source)
        info = {key.encode(): value for key, value in file.info.items()}
        header = LogHeader.from_footer(info, name, source)
        if header.compacted:
            raise UnsupportedTable(f"{source}: a log compaction wrote it, which is not read in a metadata table")
        yield LoggedRecords(name.instant, _records(file))
        return
    for block in read_blocks(data, source):
        if block.type is BlockType.CORRUPT:
            raise CorruptFileError(f"{source}: a damaged block at offset {block.offset}; drop the metadata table")
        if block.type is BlockType.HFILE_DATA and not block.compacted:
            yield LoggedRecords(block.instant, _records(HFile.open(block.content, source)))
        elif not _is_empty(block):
            raise UnsupportedTable(
                f"{source}: block of the type {block.type.name} at offset {block.offset}, which is not read here"
            )


def _is_empty(block: LogBlock) -> bool:
    return block.type is BlockType.DELETE and block.content == _NO_DELETES


def _entries(records: Records, file_name: str | None) -> list[tuple[bytes, bytes]]:
    try:
        return sorted((key.encode(), encode_record(record, file_name)) for key, record in records.items())
    except UnicodeEncodeError as error:
        raise UnsupportedTable(f"{error.object!r:.80} is not UTF-8, which names in a metadata table must be") from None


def _records(file: HFile) -> Records:
    found: dict[str, FilesRecord] = {}
    for key, record in read_records(file):
        if not isinstance(record, FilesRecord):
            raise CorruptFileError(f"{file.source}: record {key!r:.80} does not list files; drop the metadata table")
        found[key] = record
    return found
