"""Write inline (version 1) logs of one file group: the changes of one flush, block after block in one file.

See docs/format/04-inline-logs.md, "Frame".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_lsm.format.actions.commit import WriteStat, log_file_stat
from streaming_lsm.format.avro.record_writer import encode_data_block
from streaming_lsm.format.base_file_footer import AVRO_SCHEMA_KEY
from streaming_lsm.format.checksum_file import ChecksumFile, checksum_path
from streaming_lsm.format.log.delete_block import encode_delete_block
from streaming_lsm.format.log.inline_blocks import BlockType, Header, encode_block
from streaming_lsm.format.table.file_names import InlineLogName
from streaming_lsm.schema import RECORD_KEY
from streaming_lsm.storage.base import Storage
from streaming_lsm.write.files.parquet import PARQUET_CODECS

AVRO, PARQUET = "avro", "parquet"


@dataclass(frozen=True)
class BlockOptions:
    """Settings for writing inline blocks.

    Attributes:
        data_format: ``avro`` or ``parquet``: what a data block holds.
        codec: Parquet codec of Parquet blocks.
        limit: bytes at which a file is large enough.
    """

    data_format: str
    codec: str
    limit: int


@dataclass(frozen=True)
class InlineLogTarget:
    """Holds the properties that all blocks of one file group share.

    Attributes:
        storage: the table's files.
        partition: partition path.
        instant: the instant that writes.
        schema: the rows' columns, meta columns included.
        avro: their Avro JSON.
        updates: whether rows count as updates.
        options: how blocks are written.
        create: creates the marker of a file and returns its path and name, by version.
        compacted: the instants whose blocks these replace, if a log compaction writes them.
    """

    storage: Storage
    partition: str
    instant: str
    schema: pa.Schema
    avro: str
    updates: bool
    options: BlockOptions
    create: Callable[[int], tuple[str, InlineLogName]]
    compacted: tuple[str, ...] = ()


@dataclass
class _OpenFile:
    path: str
    name: InlineLogName
    file: BinaryIO
    sums: ChecksumFile = field(default_factory=ChecksumFile)
    size: int = 0
    rows: int = 0
    deletes: int = 0


@dataclass
class InlineLogWriter:
    """Writes one log file until it is large enough. Leaving the context unfinished removes the file.

    Blocks of a file are read in its order, so that deletes before and after rows need no files of their own.
    """

    source: InlineLogTarget
    version: int
    _open: _OpenFile | None = None
    _files: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> InlineLogWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.__exit__(kind, error, trace)

    @property
    def next_version(self) -> int:
        """The first version after that of this log."""
        return self.version + 1

    @property
    def buffered_bytes(self) -> int:
        """Bytes in memory beyond the block that is being written: none."""
        return 0

    def takes(self, _earlier_deletes: pa.Table) -> bool:
        """Test whether a block can be added; if not, it needs a new log file."""
        return self._open is None or self._open.size < self.source.options.limit

    def append(self, rows: pa.Table, deletes: pa.Table, earlier_deletes: pa.Table) -> None:
        """Add a block's rows (with meta columns), deletes and earlier deletes; earlier deletes act on what is older
        than the rows."""
        if earlier_deletes.num_rows:
            self.append_deletes(earlier_deletes)
        if rows.num_rows:
            kind, content = self._data(rows.cast(self.source.schema))
            self._append(kind, content).rows += rows.num_rows
        if deletes.num_rows:
            self.append_deletes(deletes)

    def append_deletes(self, deletes: pa.Table) -> None:
        """Add deletes as the newest; there is a block even if there are none."""
        columns = deletes.combine_chunks()
        paths = pa.repeat(pa.scalar(self.source.partition), columns.num_rows)
        ordering = [columns.column(name).combine_chunks() for name in columns.schema.names if name != RECORD_KEY]
        content = encode_delete_block(columns.column(RECORD_KEY).combine_chunks(), paths, ordering)
        self._append(BlockType.DELETE, content).deletes += deletes.num_rows

    def _data(self, rows: pa.Table) -> tuple[BlockType, bytes]:
        if self.source.options.data_format == AVRO:
            (batch,) = rows.combine_chunks().to_batches()
            return BlockType.AVRO_DATA, encode_data_block(batch, self.source.avro)
        buffer = pa.BufferOutputStream()
        codec = PARQUET_CODECS[self.source.options.codec]
        with pq.ParquetWriter(buffer, rows.schema, compression=codec, store_schema=False) as writer:
            writer.write_table(rows)
            writer.add_key_value_metadata({AVRO_SCHEMA_KEY: self.source.avro})
        return BlockType.PARQUET_DATA, buffer.getvalue().to_pybytes()

    def _append(self, kind: BlockType, content: bytes) -> _OpenFile:
        if self._open is None:
            path, name = self.source.create(self.version)
            self._open = _OpenFile(path, name, self._files.enter_context(self.source.storage.create(path)))
        header = {Header.INSTANT_TIME: self.source.instant, Header.SCHEMA: self.source.avro}
        if self.source.compacted:
            header[Header.COMPACTED_BLOCK_TIMES] = ",".join(sorted(self.source.compacted))
        block = encode_block(kind, header, content)
        self._open.file.write(block)
        self._open.sums.update(block)
        self._open.size += len(block)
        return self._open

    def finish(self) -> Iterator[WriteStat]:
        """Make the file durable."""
        self._files.close()
        if self._open is not None:
            found = self._open
            if self.source.storage.is_file_system:  # an object store has checksums of its own
                # No checksum file exists: one of an earlier file of this name was deleted together with it.
                self.source.storage.put_if_absent(checksum_path(found.path), found.sums.encode())
            updates = found.rows if self.source.updates else 0
            yield log_file_stat(
                self.source.partition,
                found.name,
                total_bytes=found.size,
                num_inserts=found.rows - updates,
                num_updates=updates,
                num_deletes=found.deletes,
            )
