"""Merging the sorted files of one slice, block by block.

Every file is a run of batches that ascend by record key. One block holds all records below a bound,
the smallest of the last keys that the runs have loaded: such records are complete, so the block can
be folded at once. Memory is bounded by one batch per run (more only where one key fills whole batches).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.columns import Flags, Int64s, strings
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.keys.words import KeyWords, sort_keys
from streaming_lsm.merge.fold import fold
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.schema import RECORD_KEY


@dataclass
class Run:
    """The batches of one file and what has been loaded of them.

    Attributes:
        source: the file, for errors.
        batches: batches ascending by record key. A delete run has the key and ordering columns only.
        deletes: whether every record is a delete.
        base: whether this is the slice's base file.
    """

    source: str
    batches: Iterator[pa.RecordBatch]
    deletes: bool = False
    base: bool = False
    _loaded: list[pa.RecordBatch] = field(default_factory=list)
    _exhausted: bool = False

    def load(self) -> bool:
        """Load one more batch with rows; False at the end of the file."""
        for batch in self.batches:
            if batch.num_rows:
                self._check_order(batch)
                self._loaded.append(batch)
                return True
        self._exhausted = True
        return False

    def _check_order(self, batch: pa.RecordBatch) -> None:
        keys = batch.column(RECORD_KEY)
        if keys.null_count:
            raise CorruptFileError(f"{self.source}: a record without {RECORD_KEY}; restore the file")
        descends = pc.any(pc.less(keys[1:], keys[:-1])).as_py()
        if descends or (self._loaded and _key(self._loaded[-1], -1) > _key(batch, 0)):
            raise CorruptFileError(f"{self.source}: record keys do not ascend, as an lsm_tree table needs")

    @property
    def ready(self) -> bool:
        """Whether rows are loaded."""
        return bool(self._loaded)

    def bound(self) -> bytes | None:
        """Last loaded key while more may follow; None at the end of the file."""
        return None if self._exhausted else _key(self._loaded[-1], -1)

    def take_below(self, bound: bytes | None) -> list[pa.RecordBatch]:
        """Hand over all loaded rows whose key is below `bound` (all of them without one)."""
        if bound is None:
            taken, self._loaded = self._loaded, []
            return taken
        taken, kept = [], []
        for batch in self._loaded:
            cut = bisect_left(range(batch.num_rows), bound, key=partial(_key, batch))
            taken.append(batch.slice(0, cut))
            kept.append(batch.slice(cut))
        self._loaded = [batch for batch in kept if batch.num_rows]
        return [batch for batch in taken if batch.num_rows]


def _key(batch: pa.RecordBatch, row: int) -> bytes:
    return bytes(batch.column(RECORD_KEY)[row].as_buffer())


def merge_runs(runs: Sequence[Run], rule: MergeRule) -> Iterator[pa.Table]:
    """Merge the runs of one slice into live records, ascending by key (format 05; format 03, Merge order).

    Args:
        runs: in merge order, the oldest first; data runs share one schema.
        rule: the table's merge semantics.

    Yields:
        Tables with the data runs' columns. A delete yields no row.
    """
    alive = [run for run in runs if run.load()]
    while alive:
        bounds = [bound for bound in (run.bound() for run in alive) if bound is not None]
        bound = min(bounds, default=None)
        parts = [(run, run.take_below(bound)) for run in alive]
        if any(batches for _, batches in parts):
            block = _merge_block(parts, rule)
            if block is not None and block.num_rows:
                yield block
        else:  # one key fills every row that is loaded: read on where it ends
            for run in alive:
                if run.ready and run.bound() == bound:
                    run.load()
        alive = [run for run in alive if run.ready or run.load()]


def _merge_block(parts: Iterable[tuple[Run, list[pa.RecordBatch]]], rule: MergeRule) -> pa.Table | None:
    chunks = [(run, pa.Table.from_batches(batches)) for run, batches in parts if batches]
    data = [table for run, table in chunks if not run.deletes]
    if not data:
        return None
    keys = strings(pa.chunked_array([chunk for _, table in chunks for chunk in table.column(RECORD_KEY).chunks]))
    ordered = sort_keys(KeyWords.of(keys), runs=True)
    if len(chunks) == 1 and chunks[0][0].base and len(ordered.starts) == len(keys):
        return data[0]
    records = _Records.of(chunks, rule)
    order = ordered.order
    folded = fold(ordered.starts, records.wipes[order], None if records.ranks is None else records.ranks[order])
    winner = order[folded.winner]
    only_base = np.logical_and.reduceat(records.base[order], ordered.starts)
    live = winner[only_base | ~records.deleted[winner]]
    values = pa.concat_tables(data)
    return values.take(pa.array(records.value_row[live], pa.int64()))


@dataclass(frozen=True)
class _Records:
    """What the fold needs to know of each record of a block, in merge order."""

    deleted: Flags
    wipes: Flags
    base: Flags
    ranks: Int64s | None
    value_row: Int64s

    @staticmethod
    def of(chunks: Sequence[tuple[Run, pa.Table]], rule: MergeRule) -> _Records:
        deleted = [np.ones(len(rows), np.bool_) if run.deletes else rule.deletes(rows) for run, rows in chunks]
        wipes = [rule.wipes(rows, flags) for (_, rows), flags in zip(chunks, deleted, strict=True)]
        base = [np.full(len(rows), run.base) for run, rows in chunks]
        is_value = np.concatenate([np.full(len(rows), not run.deletes) for run, rows in chunks])
        ordering = pa.concat_tables([rows.select(rule.ordering_fields) for _, rows in chunks])
        return _Records(
            np.concatenate(deleted),
            np.concatenate(wipes),
            np.concatenate(base),
            rule.ranks(ordering),
            np.cumsum(is_value, dtype=np.int64) - 1,
        )
