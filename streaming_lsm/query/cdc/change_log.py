"""Read change logs (CDC log files), in which a write recorded each row that it changed.

See docs/format/03-native-logs.md, "CDC log schema".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.file_group.gone_files import gone_file
from streaming_lsm.format.avro.record_reader import decode_data_block
from streaming_lsm.format.log.inline_blocks import BlockType, Header, read_blocks
from streaming_lsm.format.table.file_names import LogFileName, parse_file_name
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.checked import read_checked


def read_change_log(storage: Storage, path: str) -> list[pa.RecordBatch]:
    """Read the records of a change log, native or inline; their columns depend on the CDC logging mode of the write.

    Raises:
        CorruptFileError: the file is missing or damaged, or has blocks of another kind.
        ReadOvertaken: a clean has deleted it since it was found.
        UnsupportedTable: its format is not Parquet.
    """
    try:
        return _read(storage, path)
    except FileNotFoundError:
        raise gone_file(storage, path) from None


def recorded_columns(storage: Storage, path: str) -> frozenset[str] | None:
    """Return the columns of a change log, from the footer of a native one; None if it has no changes.

    Raises:
        FileNotFoundError: the file is missing.
        CorruptFileError: it is damaged, or has blocks of another kind.
        UnsupportedTable: its format is not Parquet.
    """
    if not isinstance(parse_file_name(path.rpartition("/")[2]), LogFileName):
        columns = [frozenset(batch.schema.names) for batch in _read(storage, path) if batch.num_rows]
        return frozenset.intersection(*columns) if columns else None
    with _opened(storage, path) as file:
        return frozenset(file.schema_arrow.names) if file.metadata.num_rows else None


def _read(storage: Storage, path: str) -> list[pa.RecordBatch]:
    name = parse_file_name(path.rpartition("/")[2])
    if not isinstance(name, LogFileName):
        return _inline(storage, path)
    if name.format != "parquet":
        raise UnsupportedTable(f"{path}: change logs in the format {name.format} are not supported, only Parquet is")
    return _native(storage, path)


def _inline(storage: Storage, path: str) -> list[pa.RecordBatch]:
    batches = []
    for block in read_blocks(read_checked(storage, path), path):
        where = f"{path}: block at offset {block.offset}"
        if block.type is not BlockType.CDC_DATA:
            raise CorruptFileError(f"{where}: a {block.type.name} block in a change log; restore the file")
        batches.append(decode_data_block(block.header.get(Header.SCHEMA, ""), block.content, where))
    return batches


def _native(storage: Storage, path: str) -> list[pa.RecordBatch]:
    """Read a native change log, whose footer has no entries to check."""
    with _opened(storage, path) as file:
        rows = file.read()
        expected = file.metadata.num_rows
    if len(rows) != expected:
        raise CorruptFileError(f"{path}: {len(rows)} of {expected} changes can be read; restore the file")
    return rows.to_batches()


@contextmanager
def _opened(storage: Storage, path: str) -> Iterator[pq.ParquetFile]:
    """Open a native change log; raises as `recorded_columns`."""
    try:
        with storage.open_input(path) as source, pq.ParquetFile(source, page_checksum_verification=True) as file:
            yield file
    except FileNotFoundError:
        raise
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptFileError(f"{path}: a damaged change log ({error}); restore the file") from error
