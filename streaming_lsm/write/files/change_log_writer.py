"""Write the change log (CDC log) of one file group: native from table version 10 on, inline below.

See docs/format/03-native-logs.md, "CDC log schema"; docs/format/04-inline-logs.md, "Contents".
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from types import TracebackType
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_lsm.format.avro.record_writer import encode_data_block
from streaming_lsm.format.base_file_footer import AVRO_SCHEMA_KEY
from streaming_lsm.format.checksum_file import ChecksumFile, checksum_path
from streaming_lsm.format.log.inline_blocks import BlockType, Header, encode_block
from streaming_lsm.format.log.native_footer import LogHeader
from streaming_lsm.lock.heartbeat import check_still_inflight
from streaming_lsm.merge.sorted_runs import SortedRun
from streaming_lsm.schema import RECORD_KEY
from streaming_lsm.storage.base import Storage
from streaming_lsm.write.files.change_rows import ChangeRows
from streaming_lsm.write.files.parquet import PARQUET_CODECS

_HELD_BYTES = 16 << 20
"""Bytes of changes in memory at which a row group, or a block, is written."""


class _Encoding(Protocol):
    """Encodes changes in one of the two formats."""

    def write(self, changes: pa.Table) -> None:
        """Write a row group or a block."""

    def finish(self) -> None:
        """Write what follows the last one."""

    def close(self) -> None:
        """Release an encoder whose file is deleted next."""


class _NativeEncoding:
    """Row groups of a Parquet file, whose footer has the header of a log."""

    def __init__(self, sink: BinaryIO, rows: ChangeRows, codec: str) -> None:
        self._writer = pq.ParquetWriter(
            sink, rows.schema, compression=PARQUET_CODECS[codec], store_schema=False, write_page_checksum=True
        )
        self._avro, self._header = rows.avro, LogHeader(rows.instant, rows.avro)

    def write(self, changes: pa.Table) -> None:
        self._writer.write_table(changes)

    def finish(self) -> None:
        self._writer.add_key_value_metadata({AVRO_SCHEMA_KEY: self._avro})
        entries = self._header.to_footer().items()
        self._writer.add_key_value_metadata({key.decode(): value.decode() for key, value in entries})
        self._writer.close()

    def close(self) -> None:
        # The file is deleted next, so errors while closing are ignored.
        with suppress(OSError, pa.ArrowException):
            self._writer.close()


class _InlineEncoding:
    """CDC blocks of an inline log, whose content is that of Avro data blocks."""

    def __init__(self, sink: BinaryIO, rows: ChangeRows, sums: ChecksumFile) -> None:
        self._sink, self._rows, self._sums = sink, rows, sums

    def write(self, changes: pa.Table) -> None:
        columns = [column.combine_chunks() for column in changes.columns]
        batch = pa.RecordBatch.from_arrays(columns, schema=changes.schema)
        header = {Header.INSTANT_TIME: self._rows.instant, Header.SCHEMA: self._rows.avro}
        block = encode_block(BlockType.CDC_DATA, header, encode_data_block(batch, self._rows.avro))
        self._sink.write(block)
        self._sums.update(block)

    def finish(self) -> None:
        """Do nothing: the blocks are complete."""

    def close(self) -> None:
        """Do nothing: there is no encoder."""


class ChangeLogWriter:
    """Writes the changes from one base file to the next, as its rows are written; unless finished it is removed.

    There is a log even without changes: in Hudi a CDC query fails at a new base file of a file group that has none.
    """

    def __init__(
        self, storage: Storage, path: str, rows: ChangeRows, before: SortedRun, *, native: bool, codec: str
    ) -> None:
        """Create the file, whose marker exists.

        Args:
            path: the file, relative to the table.
            rows: computes the changes.
            before: the rows of the older base file, ascending by key.
            native: whether it is a native log.
            codec: Parquet codec of a native log.

        Raises:
            FileExistsError: the file exists.
            Fenced: the instant is not inflight any more; the file is deleted.
        """
        self.path = path
        self._storage, self._rows, self._before = storage, rows, before
        self._sums = None if native else ChecksumFile()
        self._held: list[pa.Table] = []
        self.buffered_bytes = 0
        with ExitStack() as created:
            self._sink: BinaryIO = created.enter_context(storage.create(path))
            if storage.is_file_system:
                check_still_inflight(storage, rows.instant)
            self._created = created.pop_all()
        self._encoding: _Encoding = (
            _NativeEncoding(self._sink, rows, codec)
            if self._sums is None
            else _InlineEncoding(self._sink, rows, self._sums)
        )

    def __enter__(self) -> ChangeLogWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the file unless it was finished."""
        unfinished = error or RuntimeError(f"{self.path} was left unfinished")
        self._encoding.close()
        self._created.__exit__(type(unfinished), unfinished, unfinished.__traceback__)

    def append(self, after: pa.Table) -> None:
        """Add the changes up to the last key of some rows of the new base file, which ascend by key."""
        if not after.num_rows:
            return
        keys = after.column(RECORD_KEY)
        first, last = (str(keys[place].as_py()).encode() for place in (0, -1))
        self._delete_below(first)
        end = last + b"\0"  # the smallest key that is larger
        while self._ends_below(end) and self._before.load():
            pass
        before = self._before.take_below(end) if self._before.ready() else []
        self._add(self._rows.of(pa.Table.from_batches(before, self._rows.base_columns), after))

    def finish(self) -> int:
        """Add the deletes after the last row, and make the file durable; returns its size in bytes."""
        self._delete_below(None)
        self._flush()
        self._encoding.finish()
        size = int(self._sink.tell())
        self._created.close()
        if self._sums is not None and self._storage.is_file_system:  # an object store has checksums of its own
            self._storage.put_if_absent(checksum_path(self.path), self._sums.encode())
        return size

    def _delete_below(self, bound: bytes | None) -> None:
        """Add the deletes of base rows batch by batch, while all that are loaded are below a key."""
        while self._before.ready() and (bound is None or self._ends_below(bound)):
            gone = pa.Table.from_batches(self._before.take_below(None), self._rows.base_columns)
            self._add(self._rows.of(gone, None))

    def _ends_below(self, bound: bytes) -> bool:
        """Test whether the loaded base rows end below a key, and more may follow."""
        end = self._before.bound() if self._before.ready() else None
        return end is not None and end < bound

    def _add(self, changes: pa.Table) -> None:
        if changes.num_rows:
            self._held.append(changes)
            self.buffered_bytes += changes.nbytes
        if self.buffered_bytes >= _HELD_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._encoding.write(pa.concat_tables(self._held) if self._held else self._rows.schema.empty_table())
        self._held.clear()
        self.buffered_bytes = 0
