"""Execute one input group of a clustering: sort the rows of its file slices together, and write new file groups.

The rows are read twice: first the sort columns, of which a sample tells the *cells*, ranges of the order with about the
same number of rows; then whole, each to its cell. A new file has the rows of adjacent cells. In the lsm_tree layout a
file is sorted by record key; else its rows are in the order of the clustering.
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, pc, strings
from streaming_lsm.arrow.required_fields import cast_table
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.format.actions.commit import WriteStat, base_file_stat
from streaming_lsm.format.table.file_names import BaseFileName, WriteToken
from streaming_lsm.keys.words import KeyWords, sort_keys
from streaming_lsm.lock.heartbeat import check_still_inflight
from streaming_lsm.merge.runs import Block
from streaming_lsm.query.slices.key_order import in_key_order
from streaming_lsm.query.slices.slice_reader import SliceReader
from streaming_lsm.schema import RECORD_KEY
from streaming_lsm.services.clustering.cells import CellRows
from streaming_lsm.services.clustering.file_cut import FileCut
from streaming_lsm.services.clustering.row_order import RowOrder, order_of
from streaming_lsm.services.clustering.sample import RowSample
from streaming_lsm.services.compaction.attempt import attempt_token, discard
from streaming_lsm.services.compaction.target import CompactionTarget
from streaming_lsm.services.compaction.timed import Timed
from streaming_lsm.write.files.base_file_writer import BaseFileWriter
from streaming_lsm.write.files.kept_deletes import KeptDeletesWriter, Retention

_SAMPLE = 1 << 16
_PER_CELL = 128
"""Rows of the sample for each cell, at least: the rows of cells differ by a tenth or so."""
_CELLS = 8
"""Cells of a file, at least: of so many parts the size of a file is made."""
_MOST_CELLS = 1 << 14
_CELL_BYTES = 4 << 20
"""Bytes in a file of the rows that are sorted in memory at once; there they take several times as many."""


@dataclass(frozen=True)
class ClusteringTask:
    """Clusters input groups; picklable, so that it can be sent to executors.

    Attributes:
        target: the table, and how its files are written.
        order: the order of rows.
        target_bytes: bytes of a new file.
        held_bytes: most bytes of rows in memory before they are spilled.
        visible: instants whose inline blocks are visible, if a log may hold blocks of several. See `LogBlocks`.
        retention: which deletes are kept; None for none.
    """

    target: CompactionTarget
    order: RowOrder
    target_bytes: int
    held_bytes: int
    visible: Container[str] | None = None
    retention: Retention | None = None

    def __call__(self, group: tuple[int, int, Sequence[FileSlice]]) -> tuple[WriteStat, ...]:
        """Write the file groups of an input group; none if it has no rows and keeps no deletes.

        Args:
            group: its number in the plan, the expected number of new file groups, and its slices, of one partition.

        Returns:
            The stats of the new files.

        Raises:
            CorruptFileError: a file is missing or damaged, or its footer contradicts its name.
            Fenced: the clustering was completed or rolled back meanwhile; the new files are removed.
        """
        number, outputs, slices = group
        output = _Output(self, slices[0].partition_path, attempt_token(number))
        try:
            self._cluster(output, max(1, outputs), slices)
            check_still_inflight(self.target.storage, self.target.instant)
        except BaseException as error:
            discard(self.target, output.paths, error)
            raise
        return tuple(output.stats)

    def _cluster(self, output: _Output, outputs: int, slices: Sequence[FileSlice]) -> None:
        per_file = _CELLS if self.target.sorted_files else max(_CELLS, -(-self.target_bytes // _CELL_BYTES))
        cells = min(outputs * per_file, _MOST_CELLS)
        sample, count = self._sample(slices, max(_SAMPLE, _PER_CELL * cells))
        order = self.order.fitted(sample)
        cuts = order.cuts(sample, cells)
        cut = FileCut(self.target_bytes, sum(map(_size, slices)) / max(1, count))
        kept: list[pa.Table] = []
        schema = self.target.schema
        with CellRows(schema, cuts.cells, self.target.spill_folder, self.held_bytes) as rows:
            for block in self._blocks(slices):
                if block.kept is not None:
                    kept.append(block.kept)
                if block.rows.num_rows:
                    found = cast_table(block.rows, schema)
                    rows.append(found, cuts.cells_of(order.positions(found)))
            for chosen in cut.files(rows.counts, cuts.boxes, cuts.box_count):
                parts = map(rows.of, chosen)
                before = output.rows, output.bytes
                if self.target.sorted_files:
                    output.write_by_key(chain.from_iterable(parts))
                else:
                    output.write((_in_order(list(part), order, schema) for part in parts), by_key=False)
                cut.measure(output.rows - before[0], output.bytes - before[1])
        if kept:
            output.write_kept(pa.concat_tables(kept))

    def _sample(self, slices: Sequence[FileSlice], size: int) -> tuple[pa.Table, int]:
        """Read the columns of the order; return those of a sample of the rows, and the number of all rows."""
        reader = self._reader(self.order.needed, keeps_deletes=False)
        sample = RowSample(reader.output_schema, size)
        for found in slices:
            for batch in reader.read(found):
                sample.add(batch)
        return sample.table(), sample.rows

    def _blocks(self, slices: Sequence[FileSlice]) -> Iterator[Block]:
        reader = self._reader(tuple(self.target.schema.names), keeps_deletes=self.retention is not None)
        return chain.from_iterable(map(reader.blocks, slices))

    def _reader(self, columns: tuple[str, ...], *, keeps_deletes: bool) -> SliceReader:
        target = self.target
        return SliceReader(
            target.storage,
            target.schema,
            target.rule,
            columns,
            spill_folder=target.spill_folder,
            sorted_files=target.sorted_files,
            visible=self.visible,
            keeps_deletes=keeps_deletes,
            file_names=target.file_names,
        )


@dataclass
class _Output:
    """Writes the new file groups of one input group, and collects their paths and stats."""

    task: ClusteringTask
    partition: str
    token: WriteToken
    prefix: str = field(default_factory=lambda: str(uuid.uuid4()))
    paths: list[str] = field(default_factory=list)
    stats: list[WriteStat] = field(default_factory=list)
    groups: int = 0
    rows: int = 0
    bytes: int = 0

    def write_by_key(self, parts: Iterable[pa.Table]) -> None:
        """Write rows as a file group that is sorted by record key.

        Readers of the lsm_tree layout merge rows of one key in a file. Rows of one key in several file groups, as
        inserts may have made them, go to several again.
        """
        task = self.task
        apart: list[pa.Table] = []
        sorted_rows = in_key_order(map(Block, parts), task.target.spill_folder, task.held_bytes)
        self.write(_distinct((block.rows for block in sorted_rows), apart), by_key=True)
        if apart:
            self.write_by_key(apart)

    def write(self, parts: Iterable[pa.Table], *, by_key: bool) -> None:
        """Write rows as a file group, if there are any.

        Args:
            parts: the rows, in their order.
            by_key: whether they ascend by record key.
        """
        timed = Timed(part for part in parts if part.num_rows)
        rows = iter(timed)
        first = next(rows, None)
        if first is not None:
            with self._base(by_key=by_key) as base:
                for part in chain((first,), rows):
                    base.append(part)
                self._add(base, timed.age_ms)

    def write_kept(self, deletes: pa.Table) -> None:
        """Write deletes that are kept as a file group without rows, so that none meets a row of its key.

        See docs/format/06-services.md, "Kept deletes".
        """
        task, target = self.task, self.task.target
        assert task.retention is not None
        with self._base(by_key=True) as base:
            base.append(target.schema.empty_table())
            logs = target.logs_beside_base(self.partition, base.name.file_id, self.token, self.paths)
            with KeptDeletesWriter(logs, target.delete_schema, task.retention) as kept:
                kept.append(_first_of_keys(deletes))
                stats = list(kept.finish())
            if stats:
                self._add(base, 0)
                self.stats += stats
            else:
                self.paths.remove(base.path)

    def _base(self, *, by_key: bool) -> BaseFileWriter:
        """Create the base file of a new file group."""
        target = self.task.target
        name = BaseFileName(f"{self.prefix}-{self.groups}", str(self.token), target.instant)
        self.groups += 1
        base = BaseFileWriter(
            storage=target.storage,
            instant=target.instant,
            partition=self.partition,
            name=name,
            avro_schema=target.avro,
            options=target.files,
            by_key=by_key,
        )
        self.paths.append(base.path)
        return base

    def _add(self, base: BaseFileWriter, create_ms: int) -> None:
        size = base.finish()
        self.rows, self.bytes = self.rows + base.rows, self.bytes + size
        stat = base_file_stat(
            self.partition,
            base.name,
            total_bytes=size,
            num_writes=base.rows,
            num_inserts=base.rows,
            num_updates=0,
            num_deletes=0,
            previous=None,
        )
        self.stats.append(replace(stat, create_ms=create_ms))


def _size(found: FileSlice) -> int:
    return (found.base.size if found.base else 0) + sum(log.size for log in found.logs)


def _in_order(parts: Sequence[pa.Table], order: RowOrder, schema: pa.Schema) -> pa.Table:
    rows = pa.concat_tables([schema.empty_table(), *parts])
    return rows.take(order_of(order.positions(rows)))


def _distinct(parts: Iterable[pa.Table], apart: list[pa.Table]) -> Iterator[pa.Table]:
    """Yield the first row of each key of ascending rows, and add the others to `apart`."""
    last: str | None = None
    for rows in parts:
        if rows.num_rows:
            keys = strings(rows.column(RECORD_KEY))
            repeats = _repeats(keys, last)
            last = keys[-1].as_py()
            if repeats.any():
                apart.append(rows.filter(pa.array(repeats)))
                rows = rows.filter(pa.array(~repeats))
            yield rows


def _repeats(keys: pa.StringArray, last: str | None = None) -> Flags:
    """Flag the keys that equal the one before; bool (keys,)."""
    found = np.zeros(len(keys), np.bool_)
    found[1:] = np.asarray(pc.equal(keys[1:], keys[:-1]))
    found[0] = last is not None and keys[0].as_py() == last
    return found


def _first_of_keys(deletes: pa.Table) -> pa.Table:
    """Sort deletes by record key, and leave out those of a key that has one."""
    keys = strings(deletes.column(RECORD_KEY))
    ordered = deletes.take(pa.array(sort_keys(KeyWords.of(keys)).order, pa.int64()))
    return ordered.filter(pa.array(~_repeats(strings(ordered.column(RECORD_KEY)))))
