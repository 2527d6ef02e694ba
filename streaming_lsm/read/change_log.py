"""Change logs: what a write of another program recorded of each row that it changed.

See docs/format/03-native-logs.md, "CDC log schema".
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.avro.record_reader import decode_data_block
from streaming_lsm.format.log.inline_blocks import BlockType, Header, read_blocks
from streaming_lsm.format.table.file_names import LogFileName, parse_file_name
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.checked import read_checked


def read_change_log(storage: Storage, path: str) -> list[pa.RecordBatch]:
    """The records of a change log, native or of inline blocks; which columns they have tells how much was recorded.

    Raises:
        CorruptFileError: the file is gone, damaged, or holds something else.
        UnsupportedTable: it is of another format than Parquet.
    """
    name = parse_file_name(path.rpartition("/")[2])
    try:
        if not isinstance(name, LogFileName):
            return _inline(storage, path)
        if name.format != "parquet":
            raise UnsupportedTable(f"{path}: change logs in the format {name.format} are not read, only Parquet is")
        return _native(storage, path)
    except FileNotFoundError:
        raise CorruptFileError(f"{path}: the change log is gone though its write is complete; restore it") from None


def _inline(storage: Storage, path: str) -> list[pa.RecordBatch]:
    batches = []
    for block in read_blocks(read_checked(storage, path), path):
        where = f"{path}: block at offset {block.offset}"
        if block.type is not BlockType.CDC_DATA:
            raise CorruptFileError(f"{where}: a {block.type.name} block in a change log; restore the file")
        batches.append(decode_data_block(block.header.get(Header.SCHEMA, ""), block.content, where))
    return batches


def _native(storage: Storage, path: str) -> list[pa.RecordBatch]:
    """It has no footer entry that could be checked."""
    try:
        with storage.open_input(path) as source, pq.ParquetFile(source, page_checksum_verification=True) as file:
            rows = file.read()
            expected = file.metadata.num_rows
    except FileNotFoundError:
        raise
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptFileError(f"{path}: a damaged change log ({error}); restore the file") from error
    if len(rows) != expected:
        raise CorruptFileError(f"{path}: {len(rows)} of {expected} changes can be read; restore the file")
    return rows.to_batches()
