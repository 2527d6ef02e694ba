"""Name, encode and open the base files and logs of the metadata table's file groups.

See docs/format/07-index-and-metadata.md, "Metadata table". Base files are HFiles. Logs, each of one instant, are inline
logs with one HFile block or, from table version 10 on, native logs: HFiles with the block's header in their file info.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.avro.record_writer import encode_records
from streaming_lsm.format.bloom import BloomFilter
from streaming_lsm.format.hfile.reader import SCHEMA_ENTRY, HFile
from streaming_lsm.format.hfile.writer import write_hfile
from streaming_lsm.format.log.delete_block import decode_delete_block, encode_delete_block
from streaming_lsm.format.log.inline_blocks import BlockType, Header, encode_block, read_blocks
from streaming_lsm.format.log.native_footer import FOOTER_KEY, LogHeader, schema_columns
from streaming_lsm.format.metadata.parts import TYPE, names_file
from streaming_lsm.format.metadata.schema import metadata_schema
from streaming_lsm.format.table.file_names import (
    BaseFileName,
    InlineLogName,
    LogFileName,
    LogKind,
    WriteToken,
    parse_file_name,
)
from streaming_lsm.schema import RECORD_KEY

LogName = InlineLogName | LogFileName

FIRST_INSTANT = "0" * 17
"""Instant that initialises the first partition."""

LOCK_KEY = "lsm.lock"
"""Entry of the file info: token of the lock under which a file was written, so that no two files have equal content."""

_BLOOM_FPP = 0.01
"""Of bloom filters, which are sized by the number of keys. Hudi's, of 10,000 to 100,000 keys and 1e-9, take half of the
time to write a file of few keys or of many, and admit nearly all keys from half a million on."""
_FEW_BYTES = 1 << 14
"""Bytes of records from which their compression takes more time than the rest of a small commit or compaction."""
_TOKEN = WriteToken(0, 0, 0)
_LONGEST_NAME = 255
"""Bytes of the longest file name that file systems take."""
_HFILE = "hfile"
_NO_DELETES = bytes.fromhex("00000003 00000001 00")
"""Content of the delete block that marks a new file group."""
_DELETE_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "hudi_delete_log_record",
        "fields": [{"name": RECORD_KEY, "type": "string"}],
    },
    separators=(",", ":"),
)


def check_file_id(file_id: str, what: str) -> None:
    """Check that files of a file group can have names that are read again.

    Args:
        file_id: the file id.
        what: what it is made of, for the message.

    Raises:
        UnsupportedTable: they cannot.
    """
    names = [
        *(log_name(file_id, FIRST_INSTANT, native=native, kind=LogKind.DELETES) for native in (True, False)),
        base_name(file_id, FIRST_INSTANT),
    ]
    for name in names:
        if parse_file_name(str(name)) != name:
            raise UnsupportedTable(f"{what} has characters that names of files in a metadata table cannot have")
        size = len(str(name).encode(errors="surrogateescape"))
        if size > _LONGEST_NAME:
            raise UnsupportedTable(
                f"{what} is too long: a file of the metadata table would have a name of {size} bytes, more than "
                f"{_LONGEST_NAME}"
            )


def base_name(file_id: str, instant: str) -> BaseFileName:
    """Return the name of the base file of an instant."""
    return BaseFileName(file_id, str(_TOKEN), instant, _HFILE)


def log_name(file_id: str, instant: str, *, native: bool, kind: LogKind = LogKind.DATA) -> LogName:
    """Return the name of the log of an instant.

    Args:
        file_id: the file group.
        instant: the instant.
        native: whether it is a native log, as in table version 10.
        kind: of a native log, records or deletes; an inline log has both.
    """
    if native:
        return LogFileName(file_id=file_id, token=_TOKEN, instant=instant, version=1, kind=kind, format=_HFILE)
    return InlineLogName(file_id, instant, 1, _TOKEN)


def base_content(keys: pa.BinaryArray, values: pa.BinaryArray, created_ms: int, token: str) -> bytes:
    """Encode a base file, with a bloom filter over its keys.

    Args:
        keys: ascending.
        values: the records, which name the file.
        created_ms: the time, epoch milliseconds.
        token: the `LOCK_KEY`; empty for none.
    """
    texts: Any = keys.cast(pa.string())
    count = max(len(keys), 1)
    return write_hfile(
        keys,
        values,
        schema_json=metadata_schema(),
        created_ms=created_ms,
        extra_info=_lock_info(token),
        bloom=BloomFilter.build(texts, count, _BLOOM_FPP, count),
        fast=values.nbytes > _FEW_BYTES,
    )


def log_content(
    keys: pa.BinaryArray,
    values: pa.BinaryArray,
    name: LogName,
    created_ms: int,
    token: str,
    deleted: pa.BinaryArray | None = None,
    partition: str = "",
) -> bytes:
    """Encode a log; see `base_content` for other arguments.

    A log without records marks a new file group; as in Hudi, an inline one has an empty delete block, and no token.

    Args:
        deleted: keys whose records an inline log deletes, none of which is in `keys`; None for none.
        partition: the partition of the metadata table, for deletes.
    """
    schema = metadata_schema()
    fast = values.nbytes > _FEW_BYTES
    if isinstance(name, LogFileName):
        footer = LogHeader(name.instant, schema).to_footer()
        info = {key.decode(): value for key, value in footer.items()} | _lock_info(token)
        return write_hfile(keys, values, schema_json=schema, created_ms=created_ms, extra_info=info, fast=fast)
    if not len(keys) and deleted is None:
        return encode_block(BlockType.DELETE, {Header.INSTANT_TIME: name.instant}, _NO_DELETES)
    blocks = b""
    if len(keys):
        header = {Header.INSTANT_TIME: name.instant, Header.SCHEMA: schema}
        info = _lock_info(token)
        content = write_hfile(keys, values, schema_json=schema, created_ms=created_ms, extra_info=info, fast=fast)
        blocks = encode_block(BlockType.HFILE_DATA, header, content)
    if deleted is not None:
        # Nothing reads the schema of deletes; an Avro schema may have entries of any name.
        known = {**json.loads(schema), LOCK_KEY: token}
        header = {Header.INSTANT_TIME: name.instant, Header.SCHEMA: json.dumps(known, separators=(",", ":"))}
        blocks += encode_block(BlockType.DELETE, header, _deletes(deleted, partition))
    return blocks


def _deletes(keys: pa.BinaryArray, partition: str) -> bytes:
    texts: Any = keys.cast(pa.string())
    return encode_delete_block(texts, pa.repeat(pa.scalar(partition), len(texts)), [])


def delete_log_content(keys: pa.BinaryArray, name: LogFileName, created_ms: int, token: str) -> bytes:
    """Encode a native delete log.

    Args:
        keys: keys whose records are deleted, ascending.
        name: name of the log.
        created_ms, token: see `base_content`.
    """
    footer = LogHeader(name.instant, metadata_schema()).to_footer()
    info = {key.decode(): value for key, value in footer.items()} | _lock_info(token)
    texts: Any = keys.cast(pa.string())
    values: Any = encode_records(pa.RecordBatch.from_arrays([texts], names=[RECORD_KEY]), _DELETE_SCHEMA)
    return write_hfile(keys, values, schema_json=_DELETE_SCHEMA, created_ms=created_ms, extra_info=info)


def _lock_info(token: str) -> dict[str, bytes]:
    return {LOCK_KEY: token.encode()} if token else {}


@dataclass(frozen=True)
class DeletedKeys:
    """Keys of which a log deletes the records.

    Attributes:
        source: the block, for messages.
        keys: the keys.
    """

    source: str
    keys: pa.StringArray


def open_base(file: pa.NativeFile, name: BaseFileName, source: str) -> HFile:
    """Open a base file, and check that it is the one of its name: an older one would hide records.

    Args:
        file: open for random access.
        name: its name.
        source: its path, for messages.

    Raises:
        CorruptFileError: the file is damaged, or its first record names another file, or it is a native log.
        UnsupportedTable: see `HFile.open`.
    """
    found = HFile.open(file, source)
    value = found.first_value()
    is_own = None if value is None else names_file(value, str(name))
    if is_own is False or (is_own is None and FOOTER_KEY.decode() in found.info):
        raise CorruptFileError(f"{source}: holds the records of another file; drop the metadata table")
    return found


def open_log(
    data: bytes | pa.NativeFile, name: LogName, source: str, *, is_flat: bool = False
) -> Iterator[tuple[str, HFile | DeletedKeys]]:
    """Yield the HFile or the deleted keys of each block of a log, with its instant.

    Hudi logs deletes in the partitions of indexes.

    Args:
        data: its content; or a native log, open for random access.
        name: its name.
        source: its path, for messages.
        is_flat: whether inline logs are named by the instant of the base file, as in layout 1, and not by their own.

    Raises:
        CorruptFileError: the log is damaged, or of another instant than its name.
        UnsupportedTable: blocks of another kind, or those of a log compaction or a rollback.
    """
    if isinstance(name, LogFileName):
        file = HFile.open(data, source)
        info = {key.encode(): value for key, value in file.info.items()}
        header = LogHeader.from_footer(info, name, source)
        if header.compacted:
            raise UnsupportedTable(f"{source}: a log compaction wrote it, which is not read in a metadata table")
        if name.kind is LogKind.DELETES:
            if TYPE in schema_columns(file.schema_json, source, SCHEMA_ENTRY):
                raise CorruptFileError(f"{source}: holds records in place of deletes; drop the metadata table")
            texts: Any = pa.concat_arrays([pa.array([], pa.binary()), *(cells.keys for cells in file.cells())])
            yield name.instant, DeletedKeys(source, texts.cast(pa.string()))
            return
        yield name.instant, file
        return
    assert isinstance(data, bytes)  # of an inline log
    for block in read_blocks(data, source):
        if block.type is BlockType.CORRUPT:
            raise CorruptFileError(f"{source}: a damaged block at offset {block.offset}; drop the metadata table")
        if block.type not in (BlockType.HFILE_DATA, BlockType.DELETE) or block.compacted:
            raise UnsupportedTable(
                f"{source}: block of the type {block.type.name} at offset {block.offset}, which is not read here"
            )
        if not is_flat and block.instant != name.instant:
            raise CorruptFileError(f"{source}: a block of instant {block.instant!r:.40}; drop the metadata table")
        if block.type is BlockType.HFILE_DATA:
            yield block.instant, HFile.open(block.content, source)
        elif block.content != _NO_DELETES:
            where = f"{source} at offset {block.offset}"
            keys: Any = decode_delete_block(block.content, [], where).column(RECORD_KEY)
            yield block.instant, DeletedKeys(where, keys)
