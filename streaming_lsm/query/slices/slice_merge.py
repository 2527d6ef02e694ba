"""Merge the sorted files of one slice, for scans, compaction and copy on write, with a bound on open files.

A merge has all its runs open at once. Files whose key ranges do not overlap, by their statistics, are chained to one
run. If a slice has more chains than files may be open, adjacent logs in merge order are
first combined into spill files on a local disk: all their rows, sorted by key and then by merge order, without folding.
The final merge then gives the same rows as one over the files themselves. The base file, by far the largest, is always
read directly (docs/format/05-merge.md, "Opened-file bound"; the choice of logs to combine is left to the reader).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from heapq import heappush, heapreplace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.batches import rebatched
from streaming_lsm.file_group.data_file import MAX_OPEN_FILES, DataFile
from streaming_lsm.file_group.stored_row_group import StoredRowGroup
from streaming_lsm.merge.log_fold import FoldedLogs, fold_sorted_logs
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.merge.runs import Block, merge_runs
from streaming_lsm.merge.sorted_runs import SortedRun, interleave_runs
from streaming_lsm.schema import COMMIT_TIME, OPERATION, delete_log_schema
from streaming_lsm.storage.spill_file import SpillFile

_BEFORE_LOGS = -1
_DELETE = "_lsm_delete"
"""Marks the deletes among the rows of a spilled file; no column of a table may begin with ``_lsm_``."""


@dataclass(frozen=True)
class SliceMerge:
    """Merges the sorted files of slices.

    Attributes:
        rule: the table's merge semantics.
        columns: the columns of the blocks, among them the key and the columns of `rule`.
        spill_folder: a folder on a local disk for slices of many files; None means the system's for temporary files.
        threads: whether to decode columns in parallel.
        max_open: maximum files open at once; one spill file for each `max_open` logs is open in addition.
        keeps_deletes: whether blocks have the winning deletes with an ordering value; `columns` has
            `_hoodie_commit_time` then.
        returned: those of `columns` that the blocks have, at least one; None for all.
    """

    rule: MergeRule
    columns: pa.Schema
    spill_folder: str | None = None
    threads: bool = False
    max_open: int = MAX_OPEN_FILES
    keeps_deletes: bool = False
    returned: tuple[str, ...] | None = None

    def blocks(self, files: Sequence[DataFile]) -> Iterator[Block]:
        """Merge files that are in merge order; see `parts`."""
        return (part for part in self.parts(files, ()) if isinstance(part, Block))

    def parts(self, files: Sequence[DataFile], copied: Sequence[StoredRowGroup]) -> Iterator[Block | StoredRowGroup]:
        """Merge files that are in merge order, but for row groups of the base file that share no key with a log.

        Args:
            files: the base file first, if there is one.
            copied: row groups of the base file, ascending.

        Yields:
            Blocks with `columns`, and the changelog column `_hoodie_operation` if a file has one, or with `returned`;
            between them, in key order, the row groups of `copied`.

        Raises:
            CorruptFileError: a file is damaged.
            StorageError: the local disk has no room for the spill files, or too many files are open.
        """
        with ExitStack() as held:
            schema = self._data_schema(files)
            parts, keep = self._few_parts(files, schema, held), schema if self.keeps_deletes else None
            if not copied:
                yield from merge_runs(_open_chains(parts, held), self.rule, keep=keep, columns=self.returned)
                return
            logs = _open_chains(parts[1:], held)
            begin = 0
            for group in copied:
                end = group.first.encode()
                before = self._base_run(files[0], range(begin, group.number), schema, held)
                yield from merge_runs([*before, *logs], self.rule, end, keep, self.returned)
                for run in before:
                    run.check_ended(end)
                yield group
                begin = group.number + 1
            rest = self._base_run(files[0], range(begin, _group_count(files[0])), schema, held)
            yield from merge_runs([*rest, *logs], self.rule, keep=keep, columns=self.returned)

    def folded_logs(self, logs: Sequence[DataFile]) -> Iterator[FoldedLogs]:
        """Fold adjacent logs, in merge order, without the base file; raises as `parts`.

        Yields:
            Blocks whose rows have `columns`.
        """
        with ExitStack() as held:
            parts = self._few_parts(logs, self._data_schema(logs), held)
            yield from fold_sorted_logs(_open_chains(parts, held), self.rule, self.columns)

    def _few_parts(self, files: Sequence[DataFile], schema: pa.Schema, held: ExitStack) -> list[_Part]:
        """Combine adjacent logs until no more chains than `max_open` are left; `held` closes the spill files."""
        parts: list[_Part] = [_Stored(file, schema, self) for file in files]
        while len(_chains(parts)) > self.max_open:
            first, last = self._next_pass(parts)
            spilled = self._spill(parts[first:last], schema, files)
            held.callback(spilled.file.close)
            parts[first:last] = [spilled]
        return parts

    def _base_run(self, base: DataFile, groups: range, schema: pa.Schema, held: ExitStack) -> list[SortedRun]:
        """Open the row groups of a base file as a run, if there are any."""
        if not groups:
            return []
        run = _Stored(base.part(groups), schema, self).open(held)
        run.position = _BEFORE_LOGS
        return [run]

    def _data_schema(self, files: Sequence[DataFile]) -> pa.Schema:
        """Build the schema to read from data files; the changelog column, not a table column, is added if present."""
        fields = [field.with_nullable(True) for field in self.columns]
        if OPERATION not in self.columns.names and any(OPERATION in file.columns for file in files):
            fields.append(pa.field(OPERATION, pa.string()))
        return pa.schema(fields)

    def _next_pass(self, parts: Sequence[_Part]) -> tuple[int, int]:
        """Choose the adjacent logs to combine next, those with the fewest rows; returns their range in `parts`."""
        count = min(self.max_open, len(parts) - self.max_open + 1)
        total = np.cumsum([0, *(part.rows for part in parts)])
        begin = int(parts[0].is_base)
        first = begin + int(np.argmin((total[count:] - total[:-count])[begin:]))
        return first, first + count

    def _spill(self, parts: Sequence[_Part], schema: pa.Schema, files: Sequence[DataFile]) -> _Spilled:
        rows, size = min(file.batch_rows for file in files), min(file.batch_bytes for file in files)
        marked = schema.append(pa.field(_DELETE, pa.bool_()))
        with ExitStack() as opened:
            runs = [_with_marks(part.open(opened), marked) for part in parts]
            batches = (batch for table in interleave_runs(runs) for batch in table.to_batches())
            file = SpillFile(self.spill_folder, marked, rebatched(batches, size=size, rows=rows))
        return _Spilled(file, sum(part.rows for part in parts))


def _group_count(file: DataFile) -> int:
    assert file.opened is not None
    return int(file.opened.parquet.metadata.num_row_groups)


@dataclass(frozen=True)
class _Stored:
    """A file of the slice."""

    data: DataFile
    schema: pa.Schema
    merge: SliceMerge

    @property
    def rows(self) -> int:
        return self.data.rows

    @property
    def is_base(self) -> bool:
        return self.data.is_base

    @property
    def key_range(self) -> tuple[str, str] | None:
        return None if self.is_base else self.data.key_range

    def open(self, opened: ExitStack) -> SortedRun:
        """Open the file as a run; `opened` closes it."""
        is_delete = self.data.is_delete
        schema = delete_log_schema(self.schema, self.merge.rule.ordering_fields) if is_delete else self.schema
        batches = opened.enter_context(closing(self.data.batches(schema, threads=self.merge.threads)))
        time = self.data.time if is_delete else ""
        return SortedRun(self.data.path, batches, deletes=is_delete, base=self.is_base, time=time)


@dataclass(frozen=True)
class _Spilled:
    """Several adjacent logs combined in one spill file."""

    file: SpillFile
    rows: int
    is_base: bool = False
    key_range: None = None

    def open(self, opened: ExitStack) -> SortedRun:
        """Open the spill file as a run; it can be read once."""
        opened.callback(self.file.close)
        return SortedRun("a spilled run", self.file.batches(), marks=_DELETE, trusted=True)


_Part = _Stored | _Spilled


def _chains(parts: Sequence[_Part]) -> list[list[int]]:
    """Distribute the parts to as few chains as possible; the key ranges of a chain ascend and do not overlap.

    The base file is a chain of its own, and so is a file without statistics.

    Returns:
        The places in `parts` of each chain, in key order.
    """
    ranges = {place: found for place, part in enumerate(parts) if (found := part.key_range) is not None}
    chains = [[place] for place in range(len(parts)) if place not in ranges]
    ends: list[tuple[str, int]] = []  # last key and number of each chain, a heap
    for place in sorted(ranges, key=lambda place: (ranges[place], place)):
        first, last = ranges[place]
        if ends and ends[0][0] < first:
            number = heapreplace(ends, (last, ends[0][1]))[1]
            chains[number].append(place)
        else:
            heappush(ends, (last, len(chains)))
            chains.append([place])
    return chains


def _open_chains(parts: Sequence[_Part], opened: ExitStack) -> list[SortedRun]:
    """Chain the files; a file is read when the one before it in its chain has ended.

    Returns:
        The first run of each chain.
    """
    runs = [part.open(opened) for part in parts]
    for place, run in enumerate(runs):
        run.position = place
    chains = _chains(parts)
    for chain in chains:
        for one, other in pairwise(chain):
            found = parts[other].key_range
            runs[one].successor = runs[other]
            runs[one].successor_key = runs[other].least = None if found is None else found[0].encode()
    return [runs[chain[0]] for chain in chains]


def _with_marks(run: SortedRun, schema: pa.Schema) -> SortedRun:
    """Convert a run to a data run with a column that marks deletes; columns that a delete log lacks are null."""
    if run.marks is not None:
        return run
    return SortedRun(run.source, (_marked(batch, schema, run) for batch in run.batches), marks=_DELETE)


def _marked(batch: pa.RecordBatch, schema: pa.Schema, run: SortedRun) -> pa.RecordBatch:
    names, count = batch.schema.names, batch.num_rows
    columns: list[pa.Array[Any]] = []
    for field in schema:
        if field.name in names:
            columns.append(batch.column(field.name))
        elif field.name == COMMIT_TIME and run.deletes:
            columns.append(pa.repeat(run.time, count))
        elif field.name != _DELETE:
            columns.append(pa.nulls(count, field.type))
    return pa.RecordBatch.from_arrays([*columns, pa.repeat(run.deletes, count)], schema=schema)
