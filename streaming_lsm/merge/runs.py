"""Merge the sorted files of one slice, block by block.

A run is the sequence of batches of one file, ascending by record key. A block holds the records of all runs below a
bound, the smallest of the last keys that the runs have loaded. All records of these keys are loaded, so that the block
can be folded at once. Memory is bounded by one batch per run (more only if one key fills whole batches).

Runs whose key ranges do not overlap may form a chain: one is loaded when the one before it has ended, so that the
number of runs at a time is that of overlapping key ranges, not of files.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.arrow.columns import Flags, Int64s, flags, strings
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.keys.words import KeyWords, SortedKeys, sort_keys
from streaming_lsm.merge.fold import fold, last_marked
from streaming_lsm.merge.pair_fold import fold_pairs
from streaming_lsm.merge.partial import fold_columns, sent_values
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.schema import COMMIT_TIME, RECORD_KEY, kept_deletes_schema


@dataclass
class SortedRun:
    """The batches of one file, loaded one at a time.

    Attributes:
        source: the file's name in errors.
        batches: batches ascending by record key. A delete run has the key and ordering columns only.
        deletes: whether every record is a delete.
        base: whether this is the slice's base file.
        marks: a boolean column of a data run whose true rows are deletes. It is dropped from the output; columns other
            than the key and the ordering fields may be null in such rows.
        trusted: whether this process wrote the batches, so that their order is not checked.
        position: the place in merge order, for runs with a `successor`.
        successor: the run that takes this one's place when it has ended; all its keys are larger.
        successor_key: a key that is larger than all of this run, and not larger than any of the successor.
        least: a key that no key of this run may be below, as its file's statistics say; checked where it is given.
        time: of a delete run, the time of its records; those of a data run have it in their `_hoodie_commit_time`.
    """

    source: str
    batches: Iterator[pa.RecordBatch]
    deletes: bool = False
    base: bool = False
    marks: str | None = None
    trusted: bool = False
    position: int = 0
    successor: SortedRun | None = None
    successor_key: bytes | None = None
    least: bytes | None = None
    time: str = ""
    _repeats: bool = False
    _loaded: list[pa.RecordBatch] = field(default_factory=list)
    _sizes: list[int] = field(default_factory=list)
    _bytes: int = 0
    _latest: int = 0
    _exhausted: bool = False

    def ready(self) -> bool:
        """Load a batch if none is loaded; False at the end of the file."""
        return bool(self._loaded) or self.load()

    def load(self) -> bool:
        """Load one more batch with rows; False at the end of the file."""
        for batch in self.batches:
            if batch.num_rows:
                if not self.trusted:
                    self._check_order(batch)
                self._loaded.append(batch)
                self._latest = batch.nbytes
                self._sizes.append(self._latest)
                self._bytes += self._latest
                self._check_range()
                return True
        self._exhausted = True
        return False

    def _check_order(self, batch: pa.RecordBatch) -> None:
        keys = batch.column(RECORD_KEY)
        if keys.null_count:
            raise CorruptFileError(f"{self.source}: a record without {RECORD_KEY}; restore the file")
        repeats = not pc.all(pc.greater(keys[1:], keys[:-1])).as_py()
        descends = repeats and pc.any(pc.less(keys[1:], keys[:-1])).as_py()
        if self._loaded:
            last, first = _key(self._loaded[-1], -1), _key(batch, 0)
            repeats, descends = repeats or first == last, descends or first < last
        if descends:
            raise CorruptFileError(
                f"{self.source}: record keys do not ascend, as files of an lsm_tree table must; restore the file"
            )
        self._repeats |= repeats

    @property
    def distinct(self) -> bool:
        """Whether every key loaded so far was unique; False for a trusted run, which is not checked."""
        return not self.trusted and not self._repeats

    def fill(self) -> bool:
        """Load batches while less than half a batch is left; False if nothing is left.

        Runs of similar size reach the ends of their batches at about the same key. Without loading ahead the bounds
        would be close together there and give one block of a few rows for each run. Bytes are compared rather than
        rows: after a batch of many small rows, many batches of few large rows would be loaded.
        """
        while not self._exhausted and 2 * self._bytes < self._latest:
            self.load()
        return bool(self._loaded)

    def bound(self) -> bytes | None:
        """Return a key before which all keys are loaded: the last one, or the successor's; None if no more follow."""
        return self.successor_key if self._exhausted else _key(self._loaded[-1], -1)

    def _check_range(self) -> None:
        """Check that the batch just loaded lies in the key range that the footers of a chain say."""
        if self.successor_key is not None and _key(self._loaded[-1], -1) >= self.successor_key:
            raise CorruptFileError(f"{self.source}: a record key is larger than its footer says; restore the file")
        if self.least is not None and _key(self._loaded[-1], 0) < self.least:
            raise CorruptFileError(f"{self.source}: a record key is smaller than its footer says; restore the file")

    def check_ended(self, end: bytes) -> None:
        """Check that a merge up to `end` left nothing of this run.

        Raises:
            CorruptFileError: it holds keys from `end` on, where its file's statistics say that there are none.
        """
        if self.ready():
            raise CorruptFileError(
                f"{self.source}: a row group holds record keys from {end.decode()!r} on, where its statistics say that "
                "the next one begins; restore the file"
            )

    def take_below(self, bound: bytes | None) -> list[pa.RecordBatch]:
        """Remove and return all loaded rows whose key is below `bound` (all of them without one).

        Batches ascend, so all but one are returned or kept whole. Kept batches are not scanned: when one key fills
        thousands of batches, that would make the merge quadratic.
        """
        whole = len(self._loaded) if bound is None else bisect_left(self._loaded, bound, key=partial(_key, row=-1))
        taken = self._loaded[:whole]
        cut = 0
        if bound is not None and whole < len(self._loaded):
            batch = self._loaded[whole]
            cut = bisect_left(range(batch.num_rows), bound, key=partial(_key_at, batch.column(RECORD_KEY)))
        if whole:
            self._bytes -= sum(self._sizes[:whole])
            del self._loaded[:whole], self._sizes[:whole]
        if cut:
            taken.append(batch.slice(0, cut))
            self._loaded[0] = batch.slice(cut)
            # In proportion: Arrow looks at each column to count the bytes of a slice.
            left = self._sizes[0] * (batch.num_rows - cut) // batch.num_rows
            self._bytes += left - self._sizes[0]
            self._sizes[0] = left
        return taken


@dataclass(frozen=True)
class Block:
    """The merged rows of one key range.

    Attributes:
        rows: the live rows, ascending by key; none when all keys of the range are deleted.
        inserts: number of live keys that the base file does not have.
        updates: number of keys of the base file that a log record replaced.
        deletes: number of keys of the base file that were deleted.
        kept: the winning deletes with an ordering value, ascending, with the columns of `kept_deletes_schema`; None if
            there are none, or unless they are asked for.
    """

    rows: pa.Table
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    kept: pa.Table | None = None


Chunks = Sequence[tuple[SortedRun, pa.Table]]
"""The rows of a block by run, in merge order."""


def _key(batch: pa.RecordBatch, row: int) -> bytes:
    return _key_at(batch.column(RECORD_KEY), row)


def _key_at(keys: pa.Array[Any], row: int) -> bytes:
    return bytes(keys[row].as_buffer())


def aligned_blocks(
    runs: Sequence[SortedRun], end: bytes | None = None
) -> Iterator[list[tuple[SortedRun, list[pa.RecordBatch]]]]:
    """Cut the runs into key ranges that no key spans; each range is complete in all runs.

    Args:
        runs: runs with a key column; other columns are passed through.
        end: the key before which the ranges end; the runs keep what follows. None for all keys.

    Yields:
        The runs that have rows in the range, in the order given, each with its rows.
    """
    alive = _in_merge_order([found for run in runs if (found := _ready(run))])
    while alive:
        bounds = [bound for bound in (end, *(run.bound() for run in alive)) if bound is not None]
        bound = min(bounds, default=None)
        parts = [(run, batches) for run in alive if (batches := run.take_below(bound))]
        if parts:
            yield parts
        elif end is not None and bound == end:
            return
        else:  # one key fills all loaded rows: load more of the runs that end with it
            for run in alive:
                while run.bound() == bound and run.load():
                    pass
        left = [run if run.fill() else _ready(run.successor) for run in alive]
        changed = any(one is not other for one, other in zip(left, alive, strict=True))
        alive = [run for run in left if run]
        alive = _in_merge_order(alive) if changed else alive


def _ready(run: SortedRun | None) -> SortedRun | None:
    """Return the run, or the first of its successors, that has rows left."""
    while run is not None and not run.ready():
        run = run.successor
    return run


def _in_merge_order(runs: Sequence[SortedRun]) -> list[SortedRun]:
    return sorted(runs, key=lambda run: run.position)


def interleave_runs(runs: Sequence[SortedRun]) -> Iterator[pa.Table]:
    """Merge runs without folding: every row, ascending by key; rows of one key in the order of the runs.

    Args:
        runs: data runs of one schema.
    """
    for parts in aligned_blocks(runs):
        rows = pa.Table.from_batches([batch for _, batches in parts for batch in batches])
        if len(parts) > 1:
            keys = strings(rows.column(RECORD_KEY))
            rows = rows.take(pa.array(sort_keys(KeyWords.of(keys), runs=True).order, pa.int64()))
        yield rows


def merge_runs(
    runs: Sequence[SortedRun],
    rule: MergeRule,
    end: bytes | None = None,
    keep: pa.Schema | None = None,
    columns: Sequence[str] | None = None,
) -> Iterator[Block]:
    """Merge the runs of one slice into live records, ascending by key.

    See docs/format/05-merge.md, "Pairwise rule"; docs/format/03-native-logs.md, "Merge order".

    Args:
        runs: in merge order, the oldest first; data runs share one schema, but for their `marks`.
        rule: the table's merge semantics.
        end: the key before which the merge ends; the runs keep what follows. None for all keys.
        keep: the columns of the data runs, `_hoodie_commit_time` among them, if the blocks are to have the winning
            deletes with an ordering value.
        columns: the columns of the blocks' rows, at least one; None for all of the data runs.

    Yields:
        Blocks of rows. A delete yields no row.
    """
    for parts in aligned_blocks(runs, end):
        block = _merge_block([(run, pa.Table.from_batches(batches)) for run, batches in parts], rule, keep, columns)
        if block is not None and (block.rows.num_rows or block.deletes or block.kept is not None):
            yield block


def _merge_block(
    chunks: Chunks, rule: MergeRule, keep: pa.Schema | None, columns: Sequence[str] | None
) -> Block | None:
    if len(chunks) == 1 and chunks[0][0].base and chunks[0][0].distinct:
        rows = chunks[0][1]
        return Block(rows if columns is None else rows.select(columns))
    data = data_of_runs(chunks)
    if not data:
        if keep is None:
            return None
        data = [keep.empty_table()]
    keys = keys_of_runs(chunks)
    ordered = sort_keys_of_runs(chunks, keys)
    values = pa.concat_tables(data)
    records = Records.of(chunks, values, rule)
    winner = winners(ordered, records)
    # The base file is the oldest run: it has the key if the first record is its own, and it alone if the last one is.
    in_base = records.base[ordered.order[ordered.starts]]
    only_base = records.base[ordered.order[ends_of(ordered) - 1]]
    live = only_base | ~records.deleted[winner]
    return Block(
        _live_rows(values, columns or values.schema.names, ordered, records, winner[live], live, rule),
        inserts=int(np.count_nonzero(live & ~in_base)),
        updates=int(np.count_nonzero(live & in_base & ~records.base[winner])),
        deletes=int(np.count_nonzero(in_base & ~live)),
        kept=None if keep is None else _kept(chunks, keys, winner[~live], records, rule),
    )


def _live_rows(
    values: pa.Table,
    columns: Sequence[str],
    ordered: SortedKeys,
    records: Records,
    winner: Int64s,
    live: Flags,
    rule: MergeRule,
) -> pa.Table:
    """Return the rows of the `live` keys: their winners, or what is made of all their records."""
    rows, returned = records.value_row[winner], values.select(columns)
    several = np.flatnonzero(live & (ends_of(ordered) - ordered.starts > 1))
    if rule.takes_winner or not len(several):
        return gather_rows(returned, rows)
    begins, places = _records_of(ordered, several)
    slots = (np.cumsum(live) - 1)[several]
    if rule.strategy:
        made = _merged_pairs(values, begins, places, records, rule).select(columns)
        rows[slots] = len(values) + np.arange(len(made))
        return pa.concat_tables([returned, made]).take(pa.array(rows, pa.int64()))
    return _filled(returned, rows, slots, begins, places, records, rule)


def _merged_pairs(values: pa.Table, begins: Int64s, places: Int64s, records: Records, rule: MergeRule) -> pa.Table:
    """Merge the rows of each key that follow its last delete; the last record of each is a row."""
    last = np.repeat(last_marked(begins, records.deleted[places]), np.diff(np.append(begins, len(places))))
    counts = np.arange(len(places)) > last
    starts: Int64s = (np.cumsum(counts) - counts)[begins]
    return fold_pairs(values, starts, records.value_row[places[counts]], rule)


def _filled(
    values: pa.Table, rows: Int64s, slots: Int64s, begins: Int64s, places: Int64s, records: Records, rule: MergeRule
) -> pa.Table:
    """Gather rows; those in the `slots` are filled from all records of their keys."""
    found = records.value_row[places]
    sent = sent_values(values, [(None, len(values))], rule).take(found)
    deleted, unordered_deletes = records.deleted[places], records.unordered_deletes[places]
    ranks = None if records.ranks is None else records.ranks[places]
    chosen = fold_columns(begins, deleted, unordered_deletes, ranks, sent)
    columns = []
    for name in values.schema.names:
        of_column = rows.copy()
        of_column[slots] = found[chosen.places.get(name, chosen.ruling)]
        columns.append(values.column(name).take(pa.array(of_column, pa.int64())))
    return pa.table(columns, schema=values.schema)


def _records_of(ordered: SortedKeys, keys: Int64s) -> tuple[Int64s, Int64s]:
    """Select the records of some keys: the first one of each key among these, and their places in merge order."""
    begins_there = ordered.starts[keys]
    counts = ends_of(ordered)[keys] - begins_there
    begins = np.cumsum(counts) - counts
    return begins, ordered.order[np.repeat(begins_there - begins, counts) + np.arange(counts.sum())]


def _kept(chunks: Chunks, keys: pa.StringArray, deletes: Int64s, records: Records, rule: MergeRule) -> pa.Table | None:
    """Return those of some deletes that have an ordering value; None if there are none."""
    places = pa.array(deletes[~records.unordered_deletes[deletes]], pa.int64())
    if not len(places):
        return None
    ordering = pa.concat_tables([rows.select(rule.ordering_fields) for _, rows in chunks]).take(places)
    times = pa.chunked_array([time for run, rows in chunks for time in times_of_run(run, rows)]).take(places)
    return pa.table(
        [keys.take(places), *ordering.columns, times], schema=kept_deletes_schema(ordering.schema, rule.ordering_fields)
    )


def times_of_run(run: SortedRun, rows: pa.Table) -> Sequence[pa.Array[Any]]:
    """Return the times of the records of a run."""
    return [pa.repeat(run.time, len(rows))] if run.deletes else rows.column(COMMIT_TIME).chunks


def data_of_runs(chunks: Chunks) -> list[pa.Table]:
    """Return the rows of the data runs, without their marks."""
    return [table.drop_columns(run.marks) if run.marks else table for run, table in chunks if not run.deletes]


def keys_of_runs(chunks: Chunks) -> pa.StringArray:
    """Return the keys of all records of a block, in merge order."""
    return strings(pa.chunked_array([chunk for _, table in chunks for chunk in table.column(RECORD_KEY).chunks]))


def sort_keys_of_runs(chunks: Chunks, keys: pa.StringArray) -> SortedKeys:
    """Sort the records of a block by key; those of one key keep their order."""
    longest = max(len(table) for _, table in chunks)
    return sort_keys(KeyWords.of(keys), runs=longest * 4 > len(keys) * 3)


def gather_rows(values: pa.Table, rows: Int64s) -> pa.Table:
    """Take rows of a table; return a slice without a copy if they are contiguous and at least half of the table.

    A slice keeps all rows of its table in memory, which is too much for a caller that keeps a few rows of each block.
    """
    most = 2 * len(rows) >= len(values)
    if most and len(rows) and rows[-1] - rows[0] == len(rows) - 1 and bool((rows[1:] > rows[:-1]).all()):
        return values.slice(int(rows[0]), len(rows))
    return values.take(pa.array(rows, pa.int64()))


def ends_of(ordered: SortedKeys) -> Int64s:
    """Return the position after the last record of each key, int64 (keys,)."""
    return np.append(ordered.starts[1:], len(ordered.order))


def winners(ordered: SortedKeys, records: Records) -> Int64s:
    """Find the winning record of each key.

    It is the key's last record unless a smaller ordering value follows a larger one or there is an unordered delete;
    only such keys are folded.
    """
    order, starts = ordered.order, ordered.starts
    winner = order[ends_of(ordered) - 1]
    if records.ranks is None or len(starts) == len(order):
        return winner
    ranks, unordered_deletes = records.ranks[order], records.unordered_deletes[order]
    unclear = unordered_deletes.copy()
    unclear[1:] |= ranks[1:] < ranks[:-1]
    unclear[starts] = unordered_deletes[starts]
    groups = np.unique(np.searchsorted(starts, np.flatnonzero(unclear), "right") - 1)
    if len(groups):
        begins, places = _records_of(ordered, groups)
        of_groups = fold(begins, records.unordered_deletes[places], records.ranks[places])
        winner[groups] = places[of_groups.winner]
    return winner


@dataclass(frozen=True)
class Records:
    """The columns of a block's records that the fold needs, in merge order.

    Attributes:
        deleted: whether it is a delete, by its file or by its own columns.
        unordered_deletes: whether it is an unordered delete.
        base: whether it is of the base file.
        ranks: its ordering value as a number; None in commit-time mode.
        value_row: its place among the rows of the data runs, unless it is of a delete run.
        is_row: whether it is a row of a data file, rather than a record of a delete log.
    """

    deleted: Flags
    unordered_deletes: Flags
    base: Flags
    ranks: Int64s | None
    value_row: Int64s
    is_row: Flags

    @staticmethod
    def of(chunks: Chunks, values: pa.Table, rule: MergeRule) -> Records:
        """Compute them for the whole block at once.

        Args:
            chunks: the runs' rows, in merge order.
            values: the rows of the data runs.
            rule: the table's merge semantics.
        """
        base = [np.full(len(rows), run.base) for run, rows in chunks]
        is_value = np.concatenate([np.full(len(rows), not run.deletes) for run, rows in chunks])
        ordering = pa.concat_tables([rows.select(rule.ordering_fields) for _, rows in chunks])
        deleted = ~is_value
        deleted[is_value] = rule.deletes(values)
        is_row = is_value
        if any(run.marks is not None for run, _ in chunks):
            marked = np.concatenate([_marked(run, rows) for run, rows in chunks])
            deleted |= marked
            is_row = is_value & ~marked
        return Records(
            deleted,
            rule.unordered_deletes(ordering, deleted),
            np.concatenate(base),
            rule.ranks(ordering),
            np.cumsum(is_value, dtype=np.int64) - 1,
            is_row,
        )


def _marked(run: SortedRun, rows: pa.Table) -> Flags:
    return np.zeros(len(rows), np.bool_) if run.marks is None else flags(rows.column(run.marks))
