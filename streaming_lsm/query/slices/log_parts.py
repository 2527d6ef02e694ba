"""Read the logs of a slice block by block, inline (version 1) and native ones in one merge order.

A part is the records of one log block; a native log is one block.
See docs/format/04-inline-logs.md, "Scan algorithm".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_lsm.arrow.columns import pc
from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.file_group.data_file import conform, open_log
from streaming_lsm.file_group.file_system_view import LogFile
from streaming_lsm.file_group.gone_files import gone_file
from streaming_lsm.file_group.log_order import logs_of_commits, merge_order
from streaming_lsm.format.avro.record_reader import decode_data_block, decode_records
from streaming_lsm.format.column_versions import FileNames, names_at
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.log.delete_block import decode_delete_block
from streaming_lsm.format.log.inline_blocks import MAGIC, BlockType, Header, LogBlock, read_blocks
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.file_names import LogFileName
from streaming_lsm.merge.hash_merge import LogPart
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.schema import COMMIT_TIME, RECORD_KEY, delete_log_schema
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.checked import read_checked
from streaming_lsm.timeline.timeline import Timeline, VisibleInstants

_LOG = logging.getLogger(__name__)
_ONE_WRITE_A_LOG = 8


def visible_blocks(config: TableConfig, timeline: Timeline) -> VisibleInstants | None:
    """Return the instants whose blocks are visible in logs that several writes appended to; None if there are none.

    See docs/format/04-inline-logs.md, "Scan algorithm".

    Up to version 6 writes appended to the logs of a slice. Such logs remain after an upgrade, for time travel.
    """
    first = config.properties.get("hoodie.table.initial.version", "0")
    is_alone = config.version >= _ONE_WRITE_A_LOG and first.isdecimal() and int(first) >= _ONE_WRITE_A_LOG
    return None if is_alone else timeline.visible()


@dataclass(frozen=True)
class LogBlocks:
    """Reads the blocks of logs; picklable.

    Attributes:
        storage: the table's files.
        schema: the columns to read, among them the key and the columns of `rule`.
        rule: the table's merge semantics.
        commits: instants whose rows take part, for an incremental read; None for all.
        visible: instants whose blocks are visible, if a file may hold blocks of several (`visible_blocks`). None if
            every file holds blocks of one write, the instant of which is in its name.
        skip_corrupt: whether damaged blocks are skipped. In tables up to version 6 failed writes leave such blocks;
            in later ones a file has the blocks of one completed write only, and a damaged one is an error.
        partial: whether blocks of partial rows are accepted.
        adjacent: whether the logs are not all those of a slice, but adjacent ones in merge order. It cannot be found
            again without the logs that those of a log compaction replaced.
        file_names: names the columns of logs that were written before columns were renamed.
    """

    storage: Storage
    schema: pa.Schema
    rule: MergeRule
    commits: frozenset[str] | None = None
    visible: Container[str] | None = None
    skip_corrupt: bool = False
    partial: bool = True
    adjacent: bool = False
    file_names: FileNames | None = None

    def parts(self, logs: Sequence[LogFile], base_instant: str = "") -> list[LogPart]:
        """Read the records of `logs` in merge order, the oldest block first.

        Args:
            logs: all logs of a slice in the order of their names, or `adjacent` ones.
            base_instant: of the slice, see `merge_order`.

        Raises:
            CorruptFileError: a file or block is damaged.
            UnsupportedTable: a block of an unsupported kind.
        """
        blocks = [block for log in logs for block in self._blocks(log)]
        undone = {block.rolls_back for block in blocks if block.rolls_back}
        kept = [block for block in blocks if not block.rolls_back and block.instant not in undone]
        counted = [block for block in kept if self.visible is None or block.instant in self.visible]
        if self.commits is not None:
            counted = logs_of_commits(counted, _said, self.commits, base_instant)
        ordered = counted if self.adjacent else merge_order(counted, _said, base_instant)
        return [self._of_commits(block) for block in ordered]

    def _of_commits(self, block: _Block) -> LogPart:
        part = block.load()
        if self.commits is None or not block.compacted or part.deletes:
            return part
        written = pc.is_in(part.rows.column(COMMIT_TIME), pa.array(sorted(self.commits), pa.string()))
        return replace(part, rows=part.rows.filter(written))

    def _blocks(self, log: LogFile) -> Iterator[_Block]:
        if isinstance(log.name, LogFileName):
            yield self._native(log)
            return
        try:
            content = read_checked(self.storage, log.path)
        except FileNotFoundError:
            raise gone_file(self.storage, log.path) from None
        if self.skip_corrupt and MAGIC.startswith(content):
            return  # a failed write created the file and wrote no block
        for block in read_blocks(content, log.path):
            where = f"{log.path}: block at offset {block.offset}"
            if block.type is BlockType.CORRUPT:
                if not self.skip_corrupt:
                    raise CorruptFileError(f"{where}: damaged; restore the file")
                _LOG.warning("%s is damaged, as failed writes leave blocks: it is skipped", where)
            elif block.type is BlockType.COMMAND:
                if not block.rolled_back:
                    raise CorruptFileError(f"{where}: a command other than a rollback of an instant; restore the file")
                yield _Block(block.instant, (), _no_records, block.rolled_back)
            elif block.type is not BlockType.CDC_DATA:
                instant = block.instant or log.name.instant
                if self.visible is None and instant != log.name.instant:
                    raise CorruptFileError(
                        f"{where}: INSTANT_TIME={instant!r:.80} is not the instant of the file's name; restore the file"
                    )
                yield _Block(instant, block.compacted, partial(self._load, block, instant, where))

    def _native(self, log: LogFile) -> _Block:
        name = log.name
        with ExitStack() as files:
            opened, header = open_log(self.storage, log, self.rule, files, self.file_names)
        file = replace(opened, opened=None)  # opened again when it is read
        self._check_partial(header.is_partial, log.path)
        columns = frozenset(file.columns) if header.is_partial else None
        wanted = delete_log_schema(self.schema, self.rule.ordering_fields) if file.is_delete else self.schema

        def load() -> LogPart:
            rows = pa.Table.from_batches(file.batches(wanted), schema=wanted)
            return LogPart(rows, file.is_delete, columns, time=file.time)

        return _Block(name.instant, header.compacted, load)

    def _load(self, block: LogBlock, instant: str, where: str) -> LogPart:
        if block.type is BlockType.DELETE:
            wanted = delete_log_schema(self.schema, self.rule.ordering_fields)
            ordering = [wanted.field(name) for name in self.rule.ordering_fields]
            deletes = decode_delete_block(block.content, ordering, where)
            rows = pa.Table.from_batches([deletes]).select(wanted.names).cast(wanted)
            return LogPart(rows, deletes=True, logs_first=True, time=instant)
        self._check_partial(block.is_partial, where)
        schema = block.header.get(Header.SCHEMA)
        if schema is None:
            raise CorruptFileError(f"{where}: its header has no SCHEMA; restore the file")
        names = names_at(self.file_names, instant)
        columns = self.schema.names if names is None else names.stored(self.schema.names)
        batches = self._rows(block, schema, columns, where)
        if names is not None:
            batches = [names.batch(batch) for batch in batches]
        if any(RECORD_KEY not in batch.schema.names for batch in batches):
            raise CorruptFileError(f"{where}: no column {RECORD_KEY}, which all data blocks have; restore the file")
        has = frozenset(batches[0].schema.names) if block.is_partial and batches else None
        rows = pa.Table.from_batches([conform(batch, self.schema, where) for batch in batches], schema=self.schema)
        return LogPart(rows, columns=has, logs_first=True)

    def _check_partial(self, is_partial: bool, where: str) -> None:
        if is_partial and not self.partial:
            raise UnsupportedTable(
                f"{where}: IS_PARTIAL=true: logs with partial rows cannot be merged without the base file; run a full "
                "compaction of the file group"
            )

    def _rows(self, block: LogBlock, schema: str, columns: Sequence[str], where: str) -> list[pa.RecordBatch]:
        if block.type is BlockType.AVRO_DATA:
            return [decode_data_block(schema, block.content, where, columns)]
        if block.type is BlockType.PARQUET_DATA:
            return _parquet(block.content, columns, where)
        return _hfile(block.content, schema, columns, where)


@dataclass(frozen=True)
class _Block:
    """A block whose header was read; `load` decodes its records."""

    instant: str
    compacted: tuple[str, ...]
    load: Callable[[], LogPart]
    rolls_back: str | None = None


def _said(block: _Block) -> tuple[str, tuple[str, ...]]:
    return block.instant, block.compacted


def _no_records() -> LogPart:
    raise TypeError("a command block has no records")


def _hfile(content: memoryview, schema: str, columns: Sequence[str], where: str) -> list[pa.RecordBatch]:
    """Decode the rows of an HFile block: its values are Avro records, which contain the keys too."""
    return [
        decode_records(
            schema_json=schema,
            content=cells.content,
            starts=cells.value_starts,
            ends=cells.value_ends,
            source=where,
            columns=columns,
        )
        for cells in HFile.open(bytes(content), where).cells()
    ]


def _parquet(content: memoryview, columns: Sequence[str], where: str) -> list[pa.RecordBatch]:
    try:
        file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(content)))
        present = [name for name in columns if name in file.schema_arrow.names]
        batches = list(file.iter_batches(columns=present))
        rows = file.metadata.num_rows
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptFileError(f"{where}: damaged Parquet content ({error}); restore the file") from error
    if sum(batch.num_rows for batch in batches) != rows:
        raise CorruptFileError(f"{where}: not all of its {rows} rows can be read; restore the file")
    return batches
